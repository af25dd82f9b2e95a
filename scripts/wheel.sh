#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel of the Python package with pip, as `pip install ./python` does, and says what it needs to run.
# What was compiled is kept beside it for the next time.
# usage: scripts/wheel.sh FOLDER [SETTING=VALUE...]     CMake's settings: COMET_CUDA_ARCHS="80;90"
set -euo pipefail
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

settings=(--config-settings=build-dir="$folder/build")
for setting in "$@"; do
    settings+=(--config-settings=cmake.define."$setting")
done
rm -f "$folder"/libcomet-*.whl "$folder/build/CMakeCache.txt" # no setting of the last time
python3 -m venv "$work/venv" # Debian's Python has no pip of its own
"$work/venv/bin/python" -m pip wheel --no-deps --disable-pip-version-check --progress-bar off -w "$folder" \
    "${settings[@]}" ./python

wheel=$(echo "$folder"/libcomet-*.whl)
"$work/venv/bin/python" -m zipfile -e "$wheel" "$work/content"
module=$work/content/libcomet/_native.abi3.so
glibc=$(objdump -T "$module" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
needed=$(objdump -p "$module" | awk '/NEEDED/ { printf "%s%s", comma, $2; comma = ", " }')
cuda=$(cat "$folder/build/cuda_version")
case $cuda in # the least driver of each major version of the CUDA runtime, for minor versions too
'') gpu="none: built for the CPU alone (no nvcc, or COMET_CUDA=OFF)" ;;
12.*) gpu="an NVIDIA driver 525 or later (CUDA $cuda); without one it works on the CPU" ;;
13.*) gpu="an NVIDIA driver 580 or later (CUDA $cuda); without one it works on the CPU" ;;
*) gpu="an NVIDIA driver for CUDA $cuda; without one it works on the CPU" ;;
esac
cat <<NEEDS
$wheel
    size       $(stat -c %s "$wheel" | awk '{ printf "%.1f MB", $1 / 1e6 }')
    Python     3.10 or later, PyTorch 2.4 or later
    C library  glibc ${glibc#GLIBC_} or later; $needed
    GPU        $gpu
NEEDS
