#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of the Python package with several versions of PyTorch, on the CPU: the oldest it is for, one between, and
# the newest that the package index has. Each is an environment of scripts/torch_venv.sh, kept for the next time.
# usage: scripts/torch_matrix.sh BUILD_DIR [VERSION...]
set -uo pipefail
build=$1
shift
here=$(dirname "$0")
[ $# -gt 0 ] || set -- 2.4.0 2.8.0 newest

summary=()
failed=0
for version in "$@"; do
    if python=$("$here/torch_venv.sh" --torch "$version"); then
        name=$("$python" -c 'import platform, torch; print(torch.__version__, "Python", platform.python_version())')
        result=$(COMET_TORCH_PYTHON=$python "$here/python_test.sh" "$build" 2>&1)
        status=$?
        echo "$result"
        result=$(tail -n 1 <<<"$result" | tr -d =)
    else
        name=$version result=$python status=1
    fi
    [ $status = 0 ] || failed=1
    summary+=("$(printf '%-7s torch %s:%s' "$([ $status = 0 ] && echo passed || echo FAILED)" "$name" " ${result# }")")
done
printf '%s\n' "${summary[@]}"
exit $failed
