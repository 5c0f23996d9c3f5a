#!/usr/bin/env bash
# Holds tools/layers.txt: who may include whom.  src/main.c may include everything.
set -euo pipefail
cd "$(dirname "$0")/.."

includes() { grep -rnE --include='*.[ch]' --include='*.cc' --include='*.hh' '^ *# *include *"' "$@" || true; }

# Each quoted include of one layer that is in no folder it may use.
strangers() {       # layer, folders it may use
    local layer=$1 file line text name folder
    includes "src/$layer" | while IFS=: read -r file line text; do
        name=${text#*\"} name=${name%%\"*}
        for folder in "$@"; do
            case $name in "$folder"/*) continue 2 ;; esac
        done
        case $layer:$name in
            adapters/*:*/*) ;;
            adapters/*) continue ;;         # a header of the engine's library
            *:*/*) ;;
            *) echo "$file:$line: \"$name\" names no folder (libraries are included with < >)"; continue ;;
        esac
        echo "$file:$line: $layer may not include \"$name\""
    done
}

complaints() {
    local layer uses file folder
    while read -r layer uses; do
        case $layer in '' | '#'*) continue ;; esac
        # shellcheck disable=SC2086
        [ ! -d "src/$layer" ] || strangers "$layer" $uses
    done <tools/layers.txt
    find src -name '*.[ch]' -o -name '*.cc' -o -name '*.hh' | while read -r file; do
        folder=${file#src/}
        [ "$folder" != main.c ] || continue
        while read -r layer uses; do
            case $folder in "$layer"/*) continue 2 ;; esac
        done < <(grep -v '^#' tools/layers.txt)
        echo "$file: its folder is not in tools/layers.txt"
    done
    # the operations table is for those who make engines
    includes src | grep '"engine/engine_ops.h"' | grep -vE '^src/(engine|adapters)/' |
        sed 's/$/ : engine_ops.h is for engines and adapters/' || true
}

found=$(complaints)
[ -z "$found" ] || { echo "$found"; exit 1; }
