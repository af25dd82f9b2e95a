#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs everything that needs a GPU: the tests of a build, those of its Python package, then the former once more, with
# less effort, under each tool of compute-sanitizer where that works. Prints one summary. Exits with 1 if something
# failed, or if there is no GPU.
# The build may have been made on another machine: programs are started by path, and BUILD_DIR/lib may hold libraries
# that they need (libcmocka, say).
# usage: scripts/gpu_test.sh BUILD_DIR [NAME...]     NAME: only programs whose name contains it; python: the package
# COMET_TORCH_PYTHON      the Python with torch for CUDA, torchvision and pytest, python3 by default; pytest may also
#                         lie in BUILD_DIR/python. COMET_NO_TORCH=1 leaves the package out
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
with_python=$([ $# = 0 ] && echo 1)
for name in "$@"; do
    [ "$name" != python ] || with_python=1
done
for program in "$build"/tests/test_cuda_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    [ $# = 0 ] && programs+=("$program")
    for name in "$@"; do
        case ${program##*/} in *"$name"*) programs+=("$program") ;; esac
    done
done
if [ ${#programs[@]} = 0 ] && [ -z "$with_python" ]; then
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

# A Python without torch, or whose torch sees no GPU, is a failure here.
run_python() {
    local python=${COMET_TORCH_PYTHON:-python3} before status
    before=$(date +%s)
    if [ -n "${COMET_NO_TORCH:-}" ]; then
        summary+=("$(printf '%-10s left out (COMET_NO_TORCH)' python)")
        return
    elif "$python" -c 'import torch; assert torch.cuda.is_available(), "torch sees no GPU"' >"$log" 2>&1; then
        COMET_TORCH_PYTHON=$python scripts/python_test.sh "$build" >"$log" 2>&1
        status=$?
    else
        status=1
    fi
    printf '%-10s %-32s %s\n' python "$python" "exit $status, $(($(date +%s) - before)) s"
    [ $status = 0 ] || { tail -n 60 "$log"; failed=1; }
    summary+=("$(printf '%-10s %s' python "$(tail -n 1 "$log" | tr -d =)")")
}

sanitizer=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer || true)
# Whether it works here: a virtual machine may hide from it what it needs.
sanitizer_obstacle() {
    if [ "$sanitizer_effort" = 0 ]; then
        echo "left out (COMET_SANITIZER_EFFORT=0)"
    elif [ ${#programs[@]} = 0 ]; then
        echo "left out: only the Python package was asked for"
    elif [ -z "$sanitizer" ]; then
        echo "not installed"
    elif ! "$sanitizer" --tool memcheck --error-exitcode 99 "$build/tests/gpu_state" >"$log" 2>&1; then
        echo "does not work here: $(grep -m 1 -iE 'error|not supported' "$log" || tail -n 1 "$log")"
    fi
}

[ ${#programs[@]} = 0 ] || run_all plain
[ -z "$with_python" ] || run_python
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
