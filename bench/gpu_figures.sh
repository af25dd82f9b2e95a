#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The measurements behind bench/results/codec-gpu.md, part by part, as files in a folder.
#
# usage: bench/gpu_figures.sh BUILD OUT DATA [PART...]
#   BUILD  a build with CUDA; its lib/ may hold libraries that programs need
#   OUT    where results go
#   DATA   a folder with shapes.npz (bench/resnet50_shapes.py), resnet50.npz, resnet18.npz and efficientnet_b0.npz
#   PART   tests, codec, nchw, nearest, small, norm, others, step, strict; all of them if none is named. `step` needs
#          PyTorch with CUDA and torchvision, and a shared library (-DBUILD_SHARED_LIBS=ON)
set -euo pipefail
[ $# -ge 3 ] || { sed -n '3,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$1 out=$2 data=$3
shift 3
[ $# -gt 0 ] || set -- tests codec nchw nearest small norm others step strict
here=$(dirname "$0")
comet=$build/comet
shapes=$data/shapes.npz
all=("$shapes" "$data/resnet50.npz" "$data/resnet18.npz" "$data/efficientnet_b0.npz")
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$out"

bench_codec() { # bench_codec NAME OPTION...
    local name=$1
    shift
    "$comet" bench codec --device cuda --runs 5 --json "$@" >"$out/$name.json"
}

tests() { # without compute-sanitizer: scripts/gpu_test.sh alone has both
    COMET_SANITIZER_EFFORT=0 "$here/../scripts/gpu_test.sh" "$build" >"$out/tests.txt"
}
codec() { bench_codec codec --data "${all[@]}" --sizes 200 --layout nhwc --error-rel 0.1,0.3 --dtype f32,bf16,f16; }
nchw() { bench_codec nchw --data "${all[@]}" --sizes 200 --layout nchw --error-rel 0.3 --dtype f32,bf16; }
nearest() {
    bench_codec nearest --data "${all[@]}" --sizes 200 --layout nhwc --error-rel 0.1,0.3 --dtype f32,bf16,f16 \
        --mode nearest
}
small() { bench_codec small --data "$shapes" --sizes 1,4 --layout nhwc,nchw --error-rel 0.3 --dtype f32,bf16; }
norm() {
    "$comet" bench norm --device cuda --data "$shapes" --tensors dense --sizes 200 --layout nhwc,nchw --error-rel 0.3 \
        --dtype f32,bf16 --runs 7 --json >"$out/norm.json"
}
others() {
    bench_codec others --data "$shapes" --tensors sparse --codec zvc,group:4,pool:2 --layout nhwc --dtype f32,bf16 \
        --sizes 200
}
step() {
    python3 "$here/gpu_step.py" --library "$build/lib/libcomet.so" --check >"$out/step-check.txt"
    python3 "$here/gpu_step.py" --library "$build/lib/libcomet.so" --json "$out/step.json" >"$out/step.txt"
}
strict() { "$build/tests/cuda_eb" 1e12 >"$out/strict.txt"; }

for part in "$@"; do
    case $part in
    tests | codec | nchw | nearest | small | norm | others | step | strict) ;;
    *) echo "gpu_figures.sh: no part is called $part" >&2; exit 2 ;;
    esac
done
for part in "$@"; do
    start=$(date +%s)
    "$part"
    echo "$part: $(($(date +%s) - start)) s"
done
