#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs everything that needs a GPU: the tests of a build, then once more, with less effort, under each tool of
# compute-sanitizer where that works. Prints one summary. Exits with 1 if something failed, or if there is no GPU.
# The build may have been made on another machine: programs are started by path, and BUILD_DIR/lib may hold libraries
# that they need (libcmocka, say).
# usage: scripts/gpu_test.sh BUILD_DIR [NAME...]     NAME: only programs whose name contains it
# COMET_TEST_EFFORT       as in all tests (CONTRIBUTING.md)
# COMET_SANITIZER_EFFORT  the same under compute-sanitizer, 0.02 by default; 0 leaves it out
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
sanitizer_effort=${COMET_SANITIZER_EFFORT:-0.02}
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
start=$(date +%s)

if ! gpu=$("$build/tests/gpu_state"); then
    echo "gpu-test: ${gpu:-no GPU: $build/tests/gpu_state does not run}"
    exit 1
fi

programs=()
for program in "$build"/tests/test_cuda_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    [ $# = 0 ] && programs+=("$program")
    for name in "$@"; do
        case ${program##*/} in *"$name"*) programs+=("$program") ;; esac
    done
done
if [ ${#programs[@]} = 0 ]; then
    echo "gpu-test: no test programs in $build/tests: build them first (make)"
    exit 1
fi

summary=()
failed=0
run_all() { # run_all TITLE COMMAND...: every program behind COMMAND
    local title=$1 passed=0 skipped=0 bad=() program status before
    shift
    for program in "${programs[@]}"; do
        before=$(date +%s)
        "$@" "$program" >"$log" 2>&1
        status=$?
        case $status in
        0) passed=$((passed + 1)) ;;
        77) skipped=$((skipped + 1)) ;;
        *) bad+=("${program##*/}") ;;
        esac
        printf '%-10s %-32s %s\n' "$title" "${program##*/}" "exit $status, $(($(date +%s) - before)) s"
        if [ $status = 77 ]; then tail -n 3 "$log"; elif [ $status != 0 ]; then tail -n 60 "$log"; fi
    done
    summary+=("$(printf '%-10s %d passed, %d failed, %d skipped%s' "$title" "$passed" "${#bad[@]}" "$skipped" \
        "${bad:+: ${bad[*]}}")")
    [ ${#bad[@]} = 0 ] || failed=1
}

sanitizer=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer || true)
# Whether it works here: a virtual machine may hide from it what it needs.
sanitizer_obstacle() {
    if [ "$sanitizer_effort" = 0 ]; then
        echo "left out (COMET_SANITIZER_EFFORT=0)"
    elif [ -z "$sanitizer" ]; then
        echo "not installed"
    elif ! "$sanitizer" --tool memcheck --error-exitcode 99 "$build/tests/gpu_state" >"$log" 2>&1; then
        echo "does not work here: $(grep -m 1 -iE 'error|not supported' "$log" || tail -n 1 "$log")"
    fi
}

run_all plain
obstacle=$(sanitizer_obstacle)
if [ -n "$obstacle" ]; then
    summary+=("compute-sanitizer $obstacle")
else
    export COMET_TEST_EFFORT=$sanitizer_effort
    for tool in memcheck racecheck initcheck synccheck; do
        export COMET_TEST_SANITIZER=$tool # a test that provokes faults on purpose leaves them out
        run_all $tool "$sanitizer" --tool $tool --error-exitcode 99
    done
fi

echo "gpu-test on $gpu: $([ $failed = 0 ] && echo passed || echo FAILED), $(($(date +%s) - start)) s"
printf '    %s\n' "${summary[@]}"
exit $failed
