#!/usr/bin/env bash
# Compares the C files with .clang-format; --fix rewrites them.
# The format is what clang-format 14 makes (Debian 12): others differ in details, so they are not asked.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

wanted=14
tool=$(command -v "clang-format-$wanted" || command -v clang-format) || { echo "clang-format is missing: tools/setup.sh check"; exit 1; }
version=$("$tool" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
if [ "${version%%.*}" != "$wanted" ]; then
    echo "clang-format $version is not version $wanted: format not compared"
    exit 0
fi
mapfile -t files < <(find src tests bench -name '*.[ch]' -o -name '*.cc' -o -name '*.hh' 2>/dev/null | sort)
[ "${#files[@]}" -gt 0 ] || exit 0
if [ "${1:-}" = --fix ]; then exec "$tool" -i "${files[@]}"; fi
echo "clang-format $version"
wrong=$("$tool" --dry-run "${files[@]}" 2>&1 | sed -nE 's/^([^:]+):[0-9]+:[0-9]+: warning:.*/\1/p' | sort | uniq -c)
[ -z "$wrong" ] || { echo "places to change in each file (make format does it):"; echo "$wrong"; exit 1; }
