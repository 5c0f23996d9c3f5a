#!/usr/bin/env bash
# Runs the tests that are built:  tests/run.sh fast|all [SEED]
#
# fast leaves out what needs a real model: programs with `smollm` or `model_` in their names, and scripts
# with a line `# slow` near their top.  A seed, or the one a failing test printed, makes random walks repeat.
#
# Two kinds of test:
#   BUILD/tests/{unit,conformance,fault}/test_*   libcheck programs; counted from their summary lines
#   tests/{wire,cli}/*.{sh,py}                    scripts; counted from lines `ok NAME` and `FAIL NAME ...`
#                                                 (names that begin with `lib` or `_` are helpers)
# All run from the top of the checkout, one at a time, because the threads of ggml spin.
#
# What a test finds in its environment:
#   MODELD, MODELD_TEST_BUILD, MODELD_TEST_MODEL   the program, the build folder, SmolLM2 (absolute paths)
#   SEED                                           only when a seed was given
#   TMPDIR, XDG_*                                  empty folders of its own
# Tests of other models look in .deps/models (tools/setup.sh model NAME) and fail where one is missing.
# What run.sh finds in its own: MODELD_TEST_BUILD (build), MODELD_TEST_ONLY (patterns such as
# 'unit/* *worker*'), MODELD_TEST_LIMIT (seconds for one program).
#
# The last line is `N passed, N failed`.  Exits non-zero if anything failed or nothing ran.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

case ${1:-} in
    fast) fast=1 limit=60 ;;
    all) fast= limit=900 ;;
    *) echo "usage: tests/run.sh fast|all [SEED]" >&2; exit 2 ;;
esac
[ -z "${2:-}" ] || export SEED=$2
limit=${MODELD_TEST_LIMIT:-$limit}
only=${MODELD_TEST_ONLY:-*}
build=$(realpath "${MODELD_TEST_BUILD:-build}")

export MODELD=$build/modeld MODELD_TEST_BUILD=$build MODELD_TEST_MODEL=$PWD/.deps/models/smollm2.gguf
export CK_DEFAULT_TIMEOUT=$limit CK_FORK=${CK_FORK:-yes}
export no_proxy='127.0.0.1,localhost,::1' NO_PROXY='127.0.0.1,localhost,::1'

passed=0 failed=0 group=
tmp=$(mktemp -d "${TMPDIR:-/tmp}/modeld-test.XXXXXX")
finish() {
    [ -z "$group" ] || kill -KILL -- "-$group" 2>/dev/null
    rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

wanted() {      # folder/name
    local pattern
    set -f
    # shellcheck disable=SC2254,SC2086
    for pattern in $only; do
        case $1 in $pattern) set +f; return 0 ;; esac
    done
    set +f
    return 1
}

# Runs a command with a time limit and an empty world; its output goes to $tmp/out.  Returns its status.
run_alone() {
    local status=0 kind
    rm -rf "$tmp/world"
    for kind in tmp config data state cache run; do mkdir -p "$tmp/world/$kind"; done
    chmod 700 "$tmp/world/run"
    TMPDIR=$tmp/world/tmp XDG_CONFIG_HOME=$tmp/world/config XDG_DATA_HOME=$tmp/world/data \
        XDG_STATE_HOME=$tmp/world/state XDG_CACHE_HOME=$tmp/world/cache XDG_RUNTIME_DIR=$tmp/world/run \
        timeout -k 5 "$limit" "$@" </dev/null >"$tmp/out" 2>&1 &
    group=$!                                    # timeout leads a process group of its own
    wait "$group" || status=$?
    kill -KILL -- "-$group" 2>/dev/null         # what the test left running
    group=
    return "$status"
}

# Adds up one program.  A program that failed without saying so counts as one failure.
report() {      # name, status, passed, failed
    local name=$1 status=$2 good=$3 bad=$4 why=
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        why="over its $limit s" bad=$((bad + 1))
    elif [ "$status" -gt 128 ]; then
        why="signal $((status - 128))" bad=$((bad + 1))
    elif [ "$status" != 0 ] && [ "$bad" = 0 ]; then
        why="exit status $status" bad=1
    elif [ "$good" = 0 ] && [ "$bad" = 0 ]; then
        why="reported no result" bad=1
    fi
    passed=$((passed + good)) failed=$((failed + bad))
    if [ "$bad" = 0 ]; then
        printf 'ok    %-44s %4d passed  %5d s\n' "$name" "$good" "$SECONDS"
    else
        printf 'FAIL  %-44s %4d passed, %d failed  %5d s  %s\n' "$name" "$good" "$bad" "$SECONDS" "$why"
        tail -n 40 "$tmp/out" | sed 's/^/      | /'
    fi
}

# Scenarios that a program left out, by name, a line for each reason; a program that runs several engines says it of each.
report_left_out() {
    sed -nE 's/^# ([a-z0-9_]+): left out, (.*)$/\2|\1/p' "$tmp/out" | sort -u |
        awk -F'|' '$1 != why { if (why != "") print line; why = $1; line = "      left out, " $1 ":" }
                   { line = line " " $2 }
                   END { if (why != "") print line }'
}

run_program() { # folder/name
    local status=0 checks wrong
    SECONDS=0
    run_alone "$build/tests/$1" || status=$?
    # shellcheck disable=SC2046
    set -- "$1" $(sed -nE 's/^[0-9]+%: Checks: ([0-9]+), Failures: ([0-9]+), Errors: ([0-9]+)$/\1 \2 \3/p' "$tmp/out" |
        awk '{ c += $1; w += $2 + $3 } END { print c + 0, w + 0 }')
    checks=$2 wrong=$3
    report "$1" "$status" "$((checks - wrong))" "$wrong"
    report_left_out
}

run_script() {  # folder/name.sh or .py
    local status=0 with=bash
    case $1 in *.py) with=python3 ;; esac
    SECONDS=0
    run_alone "$with" "tests/$1" || status=$?
    report "$1" "$status" "$(grep -c '^ok ' "$tmp/out")" "$(grep -c '^FAIL ' "$tmp/out")"
}

for source in tests/{unit,conformance,fault}/test_*.c; do
    name=${source#tests/} name=${name%.c}
    [ -e "$source" ] && wanted "$name" || continue
    case $fast$name in 1*smollm* | 1*model_*) continue ;; esac
    case $name in *openvino*)           # an engine that is not in every build
        [ -x "$build/tests/$name" ] || { echo "left out: $name (this build has no OpenVINO)"; continue; } ;;
    esac
    run_program "$name"
done
for source in tests/{wire,cli}/*.{sh,py}; do
    name=${source#tests/}
    [ -e "$source" ] && wanted "$name" || continue
    case ${source##*/} in lib* | _*) continue ;; esac
    if [ -n "$fast" ] && head -n 20 "$source" | grep -qx '# slow'; then continue; fi
    run_script "$name"
done

[ $((passed + failed)) -gt 0 ] || echo "no test ran"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
