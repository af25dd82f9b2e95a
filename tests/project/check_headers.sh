#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C11 and as C++17, without a warning, also beside <dlpack/dlpack.h>.
# comet/comet.h includes every other public header. Every initializer works in both languages, outside of functions
# too.
# Each header of device code compiles alone too, with the tests' stand-in for CUDA.
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
    if [ "$name" != comet/comet.h ] && ! grep -qxF "$alone" include/comet/comet.h; then
        echo "comet/comet.h does not include $name"
        failed=1
    fi
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

initializers=$(sed -nE 's/^#define (COMET_[A-Z_]+_INIT)\b.*/\1/p' include/comet/*.h)
[ "$(wc -w <<<"$initializers")" -gt 3 ] || failed=1
uses='#include "comet/comet.h"'
for initializer in $initializers; do
    type=$(tr '[:upper:]' '[:lower:]' <<<"${initializer%_INIT}")
    uses+=$'\n'"static $type a_$type = $initializer; int use_$type(void); int use_$type(void) {"
    uses+=" $type b = $initializer; a_$type = ($type)$initializer; return a_$type.size == b.size; }"
done
compile c c11 "$cc" "$uses"
[ -z "$cxx" ] || compile c++ c++17 "$cxx" "$uses"

# Functions of kernels are static: a header alone leaves them unused. Pragmas and initializers:
# cmake/CometCompiler.cmake.
for header in $(find src -path '*/cuda/*' \( -name '*.h' -o -name '*.cuh' \)); do
    [ -n "$cxx" ] && [ -e "$header" ] || continue
    count=$((count + 1))
    if ! printf '#include "%s"\n' "${header#src/}" "${header#src/}" | "$cxx" -x c++ -std=c++17 -Wall -Wextra -Werror \
        -Wno-missing-field-initializers -Wno-unknown-pragmas -Wno-unused-function -fsyntax-only \
        -DCOMET_CUDA_EMULATION=1 -I tests/emulation -I include -I "$generated" -I src -; then
        echo "does not compile alone: $header"
        failed=1
    fi
done

[ $failed = 0 ] || exit 1
if [ -z "$cxx" ]; then
    echo "every header compiles as C11; no C++ compiler here, so not tried as C++17 (on Debian: apt-get install g++)"
    exit 77
fi
echo "$count compilations as C11 and C++17 without a warning"
