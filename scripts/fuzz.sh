#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz program of a build for some seconds, one process per core, starting from the corpus in
# tests/fuzz/corpus. New inputs are kept in BUILD_DIR/corpus, findings in BUILD_DIR/findings. To keep new inputs for
# good, merge them:
#   BUILD_DIR/fuzz/TARGET -merge=1 tests/fuzz/corpus/TARGET BUILD_DIR/corpus/TARGET
# Words of a format that a fuzzer would be long in finding are in tests/fuzz/TARGET.dict, where there is one.
# usage: scripts/fuzz.sh BUILD_DIR SECONDS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
seconds=$2
shift 2
programs=("$build"/fuzz/fuzz_*)
[ $# = 0 ] || programs=("${@/#/$build/fuzz/}")
cores=$(nproc)
found=0
for program in "${programs[@]}"; do
    target=$(basename "$program")
    [ -x "$program" ] || { echo "no fuzz program $program" >&2; exit 1; }
    new=$build/corpus/$target
    findings=$build/findings/$target
    mkdir -p "$new" "$findings"
    known=()
    words=()
    [ ! -f "tests/fuzz/$target.dict" ] || words=("-dict=tests/fuzz/$target.dict")
    [ ! -d "tests/fuzz/corpus/$target" ] || known=("tests/fuzz/corpus/$target")
    echo "$target: $seconds s on $cores cores"
    # Every worker writes to one log; libFuzzer's own summary line at the end of each says how much was tried.
    "$program" -max_total_time="$seconds" -fork="$cores" -ignore_crashes=0 -timeout=10 -rss_limit_mb=2048 \
        "${words[@]}" -artifact_prefix="$findings/" -print_final_stats=1 "$new" "${known[@]}" >"$findings.log" 2>&1 || {
        echo "$target: a finding, in $findings; the end of $findings.log:"
        tail -n 60 "$findings.log"
        found=1
        continue
    }
    grep -E '^#[0-9]+:' "$findings.log" | tail -n 1
    echo "$target: clean, $(find "$new" -type f | wc -l) new inputs"
done
exit $found
