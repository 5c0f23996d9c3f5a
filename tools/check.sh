#!/usr/bin/env bash
# `make check`: what is too slow or too picky for every build.  Runs all, then names what failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failures=()
jobs=$(nproc)

step() {        # name, command
    local name=$1
    shift
    echo "== $name"
    "$@" || failures+=("$name")
}

build() {       # preset
    local log
    log=build/$1.log
    mkdir -p build
    if ! cmake --preset "$1" --log-level=WARNING -DMODELD_ACCEL="${MODELD_ACCEL:-cpu}" \
        -DMODELD_LLAMA_ROOT="${MODELD_LLAMA_ROOT:-}" >"$log" 2>&1 ||
        ! cmake --build "build/$1" -j "$jobs" --target modeld tests >>"$log" 2>&1; then
        grep -E -A4 'error|warning|undefined' "$log" | head -n 60
        echo "(all of it: $log)"
        return 1
    fi
}

# Sanitizers make everything several times slower; libcheck's limits get longer with it.
export CK_TIMEOUT_MULTIPLIER=10 MODELD_TEST_LIMIT=${MODELD_TEST_LIMIT:-600} MODELD_TEST_SLACK=${MODELD_TEST_SLACK:-5}
front='wire/http_stream.py wire/http_json.py wire/http_limits.py wire/http_api.py'     # against the scripted server

# TBB, which OpenVINO brings, loads a part of itself in a way (RTLD_DEEPBIND) that ends a program with sanitizers, unless told.
asan() {
    build asan || return 1
    ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 TBB_ENABLE_SANITIZERS=1 \
        MODELD_TEST_BUILD=build/asan MODELD_TEST_ONLY="unit/* conformance/* fault/* $front" tests/run.sh fast
}

# The libraries are not made for ThreadSanitizer, so it sees only programs that leave llama.cpp alone.
tsan() {
    local fixed=()
    build tsan || return 1
    if setarch -R true 2>/dev/null; then fixed=(setarch -R); fi     # its address map wants no randomness
    MODELD_TEST_BUILD=build/tsan MODELD_TEST_ONLY="unit/*thread* unit/*worker* $front" \
        "${fixed[@]}" tests/run.sh fast
}

tools/setup.sh check || exit 1
step "layers" tools/check-layers.sh
step "headers" tools/check-headers.sh
step "sizes" tools/check-size.sh
step "format" tools/check-format.sh
step "gcc, warnings are errors" build gcc
step "clang, warnings are errors" build clang
step "address and undefined behaviour sanitizers" asan
step "thread sanitizer" tsan

if [ ${#failures[@]} -gt 0 ]; then
    printf 'check: %s failed\n' "${failures[@]}"
    exit 1
fi
echo "check: all is well"
