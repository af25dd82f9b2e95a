#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs a build for a machine that has a GPU but not what building needs: the command, the GPU tests, the Python module,
# and the shared libraries they are linked with but for the C library's. There, beside a checkout of the same commit:
#
#   tar -xf build.tar.zst && scripts/gpu_test.sh build; BUILD=build bench/trainer/figures.sh ...
#
# cuDNN and cuBLASLt are not packed: they are opened at run time (docs/cuda-trainer.md). PyTorch is not packed either.
# usage: scripts/pack_build.sh BUILD_DIR OUT.tar.zst [PYTHON]     PYTHON: whose pytest and timm go along
set -euo pipefail
[ $# -ge 2 ] || { sed -n '3,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$(cd "$1" && pwd) out=$(realpath -m "$2") python=${3:-}
cd "$(dirname "$0")/.."
[ -x "$build/comet" ] || { echo "pack_build.sh: '$build' has no comet in it: build it first" >&2; exit 1; }
command -v zstd >/dev/null || { echo "pack_build.sh: zstd is not installed: apt-get install zstd" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/build/tests" "$work/build/lib" "$work/build/python/libcomet"

cp "$build/comet" "$work/build/"
cp -a "$build"/lib/libcomet.so* "$work/build/lib/"
for program in "$build"/tests/test_cuda_* "$build"/tests/cuda_train_* "$build/tests/gpu_state"; do
    [ ! -f "$program" ] || [ ! -x "$program" ] || cp "$program" "$work/build/tests/"
done
# Of the package the sources stay links: into python/src of the checkout beside which it is unpacked.
if [ -e "$build/python/libcomet/_native.abi3.so" ]; then
    cp "$build/python/libcomet/_native.abi3.so" "$work/build/python/libcomet/"
    ln -s ../../../python/src/libcomet/__init__.py "$work/build/python/libcomet/__init__.py"
    ln -s ../../../python/src/libcomet/torch "$work/build/python/libcomet/torch"
fi
if [ -n "$python" ]; then
    packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    for name in pytest _pytest iniconfig packaging pluggy pygments timm; do
        cp -r "$packages/$name" "$work/build/python/"
    done
fi

find "$work/build" -type f -perm -u+x -exec ldd {} + 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    while read -r library; do
        case ${library##*/} in
        libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux*) ;;
        libstdc++.so.* | libgcc_s.so.* | libcomet.so.*) ;;
        *) cp -L "$library" "$work/build/lib/" ;;
        esac
    done
find "$work/build" -type f \( -perm -u+x -o -name '*.so*' \) -exec strip --strip-unneeded {} + 2>/dev/null || true
# Test programs contain the same objects: a long window finds them again.
tar -C "$work" -cf - build | zstd -q -T0 -15 --long=31 -o "$out" -f
printf '%s: %s MB packed, %s MB unpacked (zstd --long=31)\n' "$out" "$(($(stat -c %s "$out") / 1000000))" \
    "$(du -sm "$work/build" | cut -f1)"
