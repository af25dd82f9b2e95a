#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats all C code with clang-format 14, the version whose result the tests check. `--check` only says what differs.
# usage: scripts/format.sh [--check]     exits with 77 if clang-format 14 is not there
set -euo pipefail
cd "$(dirname "$0")/.."

for clang_format in clang-format-14 clang-format ''; do
    if [ -z "$clang_format" ]; then
        echo "clang-format 14 is not installed (on Debian 12: apt-get install clang-format)"
        exit 77
    fi
    if "$clang_format" --version 2>/dev/null | grep -q 'version 14\.'; then break; fi
done

how=(-i)
[ "${1:-}" = --check ] && how=(--dry-run -Werror --ferror-limit=1)
find . -path ./build -prune -o -type f \( -name '*.c' -o -name '*.h' -o -name '*.cc' -o -name '*.cu' -o \
    -name '*.cuh' \) -print0 |
    xargs -0 "$clang_format" "${how[@]}"
