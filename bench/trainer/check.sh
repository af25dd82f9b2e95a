#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The trainer's tests on a GPU, several programs at once, each a process of its own with a log of its own; then a few
# steps of a small network under compute-sanitizer. scripts/gpu_test.sh runs all tests of the library, one by one.
#
# usage: bench/trainer/check.sh BUILD OUT     exits with 1 if something failed
# COMET_CHECK_JOBS  programs at once (4)
# COMET_CHECK_LIMIT seconds for each (240)
# COMET_CHECK_TOOLS of compute-sanitizer (memcheck racecheck synccheck)
set -uo pipefail
[ $# = 2 ] || { sed -n '3,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$1 out=$2/check
jobs=${COMET_CHECK_JOBS:-4} limit=${COMET_CHECK_LIMIT:-240}
mkdir -p "$out"
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} OMP_WAIT_POLICY=passive

one() { # one NAME COMMAND...: a line, and a log
    local name=$1 start status=0
    shift
    start=$(date +%s)
    timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || status=$?
    case $status in
    0) status=passed ;;
    77) status=skipped ;;
    124) status="FAILED: more than $limit s" ;;
    *) status="FAILED: exit $status" ;;
    esac
    printf '%-44s %s, %d s\n' "$name" "$status" "$(($(date +%s) - start))"
}
export -f one
export out limit

steps() { # steps TOOL NAME OPTION...: of resnet8
    local tool=$1 name=$2
    shift 2
    one "$tool-$name" "$sanitizer" --tool "$tool" --error-exitcode 99 "$build/comet" train --model resnet8 \
        --device cuda --data generated:64 --image 16 --batch 8 --steps 6 --eval-images 8 --checkpoint none --quiet "$@"
}

: >"$out/summary.txt"
for program in "$build"/tests/test_cuda_train_*; do
    if [ -f "$program" ] && [ -x "$program" ]; then printf '%s\n' "$program"; fi
done | xargs -r -P "$jobs" -I{} bash -c 'one "$(basename "{}")" "{}"' | tee -a "$out/summary.txt"

sanitizer=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer || true)
if [ -z "$sanitizer" ]; then
    echo "compute-sanitizer is not installed" | tee -a "$out/summary.txt"
else
    for tool in ${COMET_CHECK_TOOLS:-memcheck racecheck synccheck}; do
        steps "$tool" eb --dtype bf16 --codec eb &
        steps "$tool" eb-issued --dtype tf32 --codec eb:0.3 --no-graphs &
        steps "$tool" none --dtype fp16 --codec none &
        wait
    done | tee -a "$out/summary.txt"
fi
! grep -q FAILED "$out/summary.txt"
