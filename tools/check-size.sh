#!/usr/bin/env bash
# No function over 100 lines, no file over 800.  A function is what stands between `{` and `}` in column 1.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

bad=0
for file in $(find src tests bench -name '*.[ch]' -o -name '*.cc' -o -name '*.hh' 2>/dev/null | sort); do
    awk -v file="$file" '
        /^[a-zA-Z_].*\(/ { name = $0 }
        /^{/ { start = NR; inside = 1 }
        /^}/ { if (inside && NR - start > 100) { print file ":" start ": " NR - start " lines: " name; bad = 1 } inside = 0 }
        END { if (NR > 800) { print file ": " NR " lines"; bad = 1 } exit bad }' "$file" || bad=1
done
exit "$bad"
