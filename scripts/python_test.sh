#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of the Python package (python/tests, pytest) with the module of a build (COMET_BUILD_PYTHON=ON) and the
# PyTorch that scripts/torch_venv.sh names. Exits with 77 and the reason where there is none.
# usage: scripts/python_test.sh BUILD_DIR [ARGUMENT_OF_PYTEST...]     which runs in python/: tests/test_x.py, -k name
set -euo pipefail
build=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."

python=$(scripts/torch_venv.sh --find) || {
    status=$?
    [ $status != 1 ] || { echo "skipped: $python"; exit 77; }
    echo "$python"
    exit 1
}
[ -e "$build/python/libcomet/_native.abi3.so" ] || { echo "'$build' has no module: COMET_BUILD_PYTHON=ON"; exit 1; }
export PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
"$python" -c 'import pytest' 2>/dev/null || { echo "skipped: '$python' has no pytest"; exit 77; }
cd python
exec "$python" -m pytest "$@"
