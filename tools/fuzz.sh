#!/usr/bin/env bash
# `make fuzz`: each fuzzer of a build for FUZZ_SECONDS (600), from a copy of its corpus.
#   tools/fuzz.sh BUILD
# What is found stays in BUILD/corpus/NAME, an input that breaks something in BUILD/crashes/NAME-*.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

build=$1 seconds=${FUZZ_SECONDS:-600} failed=0 ran=0
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c) name=${name#fuzz_}
    mkdir -p "$build/corpus/$name" "$build/crashes"
    cp -r "tests/fuzz/corpus/$name/." "$build/corpus/$name"
    echo "== fuzz_$name, $seconds s"
    UBSAN_OPTIONS=print_stacktrace=1 "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" \
        -max_len=4096 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256 -print_final_stats=1 \
        -artifact_prefix="$build/crashes/$name-" "$build/corpus/$name" || failed=1
    ran=$((ran + 1))
done
[ "$ran" -gt 0 ] && [ "$failed" = 0 ]
