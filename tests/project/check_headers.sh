#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C11 and as C++17, without a warning, also beside <dlpack/dlpack.h>.
# usage, from the repository's root: check_headers.sh CC GENERATED_INCLUDE_DIR
set -euo pipefail

cc=$1
generated=$2
cxx=${CXX:-}
for candidate in g++ clang++ c++; do
    [ -n "$cxx" ] || cxx=$(command -v $candidate || true)
done

failed=0
count=0
compile() { # compile LANGUAGE STANDARD COMPILER SOURCE_TEXT
    if ! printf '%s\n' "$4" | "$3" -x "$1" -std="$2" -Wall -Wextra -Wpedantic -Wundef -Werror -fsyntax-only \
        -I include -I "$generated" -; then
        printf 'does not compile as %s:\n%s\n' "$2" "$4"
        failed=1
    fi
    count=$((count + 1))
}

dlpack=0
echo '#include <dlpack/dlpack.h>' | "$cc" -x c -fsyntax-only - 2>/dev/null && dlpack=1
for header in include/comet/*.h "$generated"/comet/*.h; do
    name=comet/$(basename "$header")
    alone="#include \"$name\""
    twice="$alone"$'\n'"$alone"
    sources=("$twice")
    if [ $dlpack = 1 ]; then
        sources+=("#include <dlpack/dlpack.h>"$'\n'"$alone" "$alone"$'\n'"#include <dlpack/dlpack.h>")
    fi
    for source in "${sources[@]}"; do
        compile c c11 "$cc" "$source"$'\n''typedef int not_empty;'
        [ -z "$cxx" ] || compile c++ c++17 "$cxx" "$source"
    done
done

[ $failed = 0 ] || exit 1
if [ -z "$cxx" ]; then
    echo "every header compiles as C11; no C++ compiler here, so not tried as C++17 (on Debian: apt-get install g++)"
    exit 77
fi
echo "$count compilations as C11 and C++17 without a warning"
