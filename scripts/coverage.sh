#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a coverage build and prints, for each source file, how many of its lines ran.
# The annotated sources (##### marks a line that never ran) are left in BUILD_DIR/gcov.
# usage: scripts/coverage.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
build=$1

find "$build" -name '*.gcda' -delete
status=0
ctest --test-dir "$build" --output-on-failure --parallel "$(nproc)" || status=$?

rm -rf "$build/gcov"
mkdir -p "$build/gcov"
cd "$build/gcov"
# Objects of the library, its device code (as the tests run it on the CPU) and the command; headers with code in them
# appear once for all files that include them.
find .. -name '*.gcda' \
    \( -path '*comet_objects*' -o -path '*comet_emulated.dir/__/src/*' -o -path '*comet_command*' \) \
    -print0 |
    xargs -0 -r gcov --relative-only --source-prefix "$root" --preserve-paths >/dev/null 2>gcov.log || {
    cat gcov.log
    exit 1
}
awk -F: '
FNR == 1 { name = FILENAME; sub(/^\.\//, "", name); gsub(/#/, "/", name); sub(/\.gcov$/, "", name) }
{ count = $1; gsub(/ /, "", count) }
$2 + 0 > 0 && count != "-" { lines[name]++; if (count !~ /^[#=]+/) ran[name]++ }
END {
    for (name in lines) {
        printf "%6.1f %%  %5d / %-5d  %s\n", 100 * ran[name] / lines[name], ran[name], lines[name], name
        all += lines[name]; all_ran += ran[name]
    }
    if (all) printf "%6.1f %%  %5d / %-5d  %s\n", 100 * all_ran / all, all_ran, all, "~ all"
}' ./*.gcov | sort -b -k 6 | sed 's/~ all/all/'
exit $status
