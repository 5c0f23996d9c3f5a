#!/usr/bin/env bash
# What only a machine with a GPU can prove of modeld, in at most 8 minutes, with one command:  tools/device-check.sh
#
#   conformance   the engine's suite on the exact model, all layers on the card
#   retrieval     scores of attention there choose the blocks that they must, and no others; a question that is taken back and
#                 evaluated again, on windowed and hybrid models too
#   depth         decode and prefill far into a conversation, with a small hot set beside all of it hot, as ratios
#
# It needs the pinned llama.cpp libraries for CUDA: tools/setup.sh fetches them (143 MB) unless they lie in .deps already.
# Where there is no GPU it says so in one line and exits 77, which test runners know as "skipped": 0 would pass for a proof, and 1
# for a failure; `make device-check` takes it for no failure.  Otherwise: 0, or 1 with the names of what failed, what had no time left among them.
#
# DEVICE_CHECK_SECONDS=N  all of it (480)
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
    echo "device-check: no NVIDIA GPU is here, nothing was checked"
    exit 77
fi
limit=${DEVICE_CHECK_SECONDS:-480}
build=build/device
failures=()
SECONDS=0

step() {        # name, most seconds, command
    local name=$1 most=$2 left=$((limit - SECONDS)) from=$SECONDS
    shift 2
    [ "$left" -lt "$most" ] && most=$left
    if [ "$most" -lt 5 ]; then
        failures+=("$name (no time left)")
        return 1
    fi
    echo "== $name"
    timeout -k 5 "$most" "$@" || { failures+=("$name"); echo "== $name failed"; return 1; }
    echo "== $name: $((SECONDS - from)) s"
}

finish() {
    local name
    for name in "${failures[@]}"; do echo "device-check: failed: $name"; done
    [ ${#failures[@]} -eq 0 ] && echo "device-check: all is well, $SECONDS s"
    [ ${#failures[@]} -eq 0 ]
    exit
}

make_it() {
    MODELD_ACCEL=cuda MODELD_OPENVINO=OFF tools/setup.sh >"$log" 2>&1 &&
        cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMODELD_ACCEL=cuda -DMODELD_OPENVINO=OFF \
            -DMODELD_LLAMA_ROOT="${MODELD_LLAMA_ROOT:-}" >>"$log" 2>&1 &&
        cmake --build "$build" -j "$(nproc)" --target modeld support-exact_model conformance-test_conformance_llama_exact \
            conformance-test_retrieve_llama_exact conformance-test_retrieve_back_llama_exact >>"$log" 2>&1 && return
    tail -n 20 "$log"
    return 1
}

on_the_card() { # test program: what it says, but for the library's log
    local status=0
    "$build/tests/conformance/$1" >"$log" 2>"$log.err" || status=$?
    grep -E 'Checks:|:[FE]:|^#.*left out|places|off by' "$log"
    [ "$status" = 0 ] || tail -n 5 "$log.err"
    return "$status"
}

depth() {       # model, depths, the first without the dense one beside it
    python3 bench/depth.py "$build/modeld" "$1" --depths "$2" --no-dense "$3"
}

mkdir -p "$build"
log=$PWD/$build/device-check.log
tmp=$(mktemp -d "${TMPDIR:-/tmp}/modeld-device.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
# f32 is computed as f32 where the library asks cuBLAS; kernels of its own may round (tests/support/on_device.h)
export TMPDIR=$tmp MODELD_TEST_GPU_LAYERS=-1 NVIDIA_TF32_OVERRIDE=0 MODELD_DATA_ROOT=$tmp/data
export log build
export -f make_it on_the_card depth

step "build for CUDA" 240 bash -c make_it || finish
step "what is here" 20 "$build/modeld" doctor
step "conformance" 120 bash -c "on_the_card test_conformance_llama_exact"
step "retrieval" 120 bash -c "on_the_card test_retrieve_llama_exact"
step "a question taken back" 90 bash -c "on_the_card test_retrieve_back_llama_exact"
step "an exact model of 140,000 tokens" 20 "$build/tests/support/exact_model" "$tmp/exact.gguf" 140000
step "depth, exact model" 150 bash -c "depth '$tmp/exact.gguf' 2048,8192,32768,131072 131073"
[ -e .deps/models/smollm2.gguf ] && step "depth, SmolLM2" 120 bash -c "depth .deps/models/smollm2.gguf 2048,7168 32768"
finish
