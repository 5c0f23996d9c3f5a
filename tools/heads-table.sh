#!/usr/bin/env bash
# Writes src/policy/heads_table.inc: what `modeld calibrate --print` says of each model given, as C strings.
#
#     tools/heads-table.sh MODEL.gguf...          with MODELD=build/modeld, and flags in MODELD_FLAGS
#
# Or of texts that were printed before: tools/heads-table.sh FILE.txt...  All that shall be in the table are to be given.
# Heads of models that were calibrated with other texts (MD_NEEDLES_VERSION) are not found any more: make the table again then.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || { echo "usage: tools/heads-table.sh MODEL.gguf|FILE.txt..." >&2; exit 2; }
out=src/policy/heads_table.inc
text=$(mktemp)
trap 'rm -f "$text" "$out.new"' EXIT

echo "/* written by tools/heads-table.sh */" > "$out.new"
for model in "$@"; do
    case $model in
        *.txt) cp "$model" "$text" ;;
        # shellcheck disable=SC2086
        *) "${MODELD:-build/modeld}" calibrate -m "$model" --print ${MODELD_FLAGS:-} > "$text" ;;
    esac
    [ "$(head -n 1 "$text")" = "modeld heads 1" ] ||
        { echo "'$model' is no text of heads" >&2; exit 1; }
    printf '/* %s */\n' "$(basename "${model%.*}")" >> "$out.new"
    sed 's/.*/"&\\n"/' "$text" >> "$out.new"
    echo "," >> "$out.new"
done
mv "$out.new" "$out"
echo "$out: $# models"
