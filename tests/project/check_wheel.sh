#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python package as a user without a GPU and without PyTorch meets it: the wheel is built with pip (CPU alone), goes
# into a clean environment, and is imported. Skipped where pip finds no package index to build with.
# usage, from the repository's root: check_wheel.sh
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -c 'import ensurepip' 2>/dev/null || { echo "skipped: python3 cannot make virtual environments"; exit 77; }
if ! scripts/wheel.sh "$work/wheel" COMET_CUDA=OFF >"$work/log" 2>&1; then
    ! grep -q 'No matching distribution found for scikit-build-core' "$work/log" ||
        { echo "skipped: pip finds no scikit-build-core: there is no package index"; exit 77; }
    cat "$work/log"
    exit 1
fi
tail -n 5 "$work/log"
wheel=$(echo "$work"/wheel/*.whl)
[[ $wheel == */libcomet-*-cp310-abi3-linux_*.whl ]] || { echo "tagged wrongly: ${wheel##*/}"; exit 1; }

python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --no-index --disable-pip-version-check "$wheel"
module=$(echo "$work"/venv/lib/python*/site-packages/libcomet/_native.abi3.so)
exported=$(nm -D --defined-only "$module" | awk '{ print $3 }')
[ "$exported" = PyInit__native ] || { echo "exported: $exported"; exit 1; }
cd "$work"
venv/bin/python - <<'CHECK'
import importlib.metadata
import importlib.util
import sys

import libcomet
import libcomet._native

assert importlib.util.find_spec("torch") is None, "torch is there: this check is broken"
assert libcomet.__file__.startswith(sys.prefix), libcomet.__file__
files = [str(file) for file in importlib.metadata.files("libcomet")]
stray = [f for f in files if not f.startswith(("libcomet/", "libcomet-"))]
assert not stray, stray
assert any(f.endswith("licenses/LICENSE") for f in files), files
CHECK
echo "imported without PyTorch"
