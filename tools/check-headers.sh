#!/usr/bin/env bash
# Each header under src/ compiles alone, twice in a row, as C; as C++ too if a .cc file includes it.  A header *.hh is C++.
# Headers of llama.cpp are included in src/adapters/llama only, those of OpenVINO in the shim of src/adapters/openvino.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

bad=0
warn='-Wall -Wextra -Wpedantic -Wshadow -Wundef -Werror -fsyntax-only'
dirs="-Isrc -isystem .deps/yyjson $(pkg-config --cflags libmicrohttpd libxxhash libcrypto libcurl)"
llama='-isystem .deps/llama/include -isystem .deps/llama/include/common -isystem .deps/llama/include/vendor'

alone() {       # header, compiler and options
    local header=$1
    shift
    printf '#include "%s"\n#include "%s"\ntypedef int not_empty;\n' "$header" "$header" | "$@" - ||
        { echo "src/$header does not compile alone ($1)"; bad=1; }
}

from_cxx=$(grep -rhoE --include='*.cc' '^ *# *include *"[^"]+"' src tests 2>/dev/null | sed 's/.*"\(.*\)"/\1/' | sort -u)
for header in $(cd src && find . -name '*.h' | sed 's,^\./,,' | sort); do
    more=
    case $header in adapters/llama/*) more=$llama ;; esac
    # shellcheck disable=SC2086
    alone "$header" gcc -x c -std=gnu17 -D_GNU_SOURCE= -Wstrict-prototypes $warn $dirs $more
    if grep -qxF "$header" <<<"$from_cxx"; then
        # shellcheck disable=SC2086
        alone "$header" g++ -x c++ -std=c++17 $warn $dirs $more
    fi
done

for header in $(cd src && find . -name '*.hh' | sed 's,^\./,,' | sort); do
    [ -d .deps/openvino/include ] || continue       # not fetched: the engine is left out
    # shellcheck disable=SC2086
    alone "$header" g++ -x c++ -std=c++17 $warn $dirs -isystem .deps/openvino/include
done

known=$(find .deps/llama/include -maxdepth 1 -name '*.h' -printf '%f\n'; printf '%s\n' chat.h common.h sampling.h)
strays=$(grep -rnE '^ *# *include *[<"]' src tests bench --include='*.[ch]' --include='*.cc' 2>/dev/null |
    grep -v '^src/adapters/llama/' | grep -E "[<\"]($(tr '\n' '|' <<<"$known" | sed 's/|$//; s/\./\\./g'))[>\"]")
[ -z "$strays" ] || { echo "$strays"; echo "headers of llama.cpp are for src/adapters/llama"; bad=1; }
strays=$(grep -rnE '^ *# *include *<openvino/' src tests bench --include='*.[ch]' --include='*.cc' --include='*.hh' 2>/dev/null |
    grep -vE '^(src/adapters/openvino/ov_[a-z]*\.(cc|hh)|tests/fault/openvino_(calls|device)\.cc):')
[ -z "$strays" ] || { echo "$strays"; echo "headers of OpenVINO are for src/adapters/openvino/*.cc and *.hh, and the tests that stand in for its calls"; bad=1; }
exit "$bad"
