#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The measurements of the plug-in for PyTorch, part by part, as files in a folder: what was printed, and JSON. Goes on
# where one fails, and exits with 1 then.
#
# usage: bench/plugin/figures.sh OUT PHOTOGRAPHS CIFAR [PART...]
#   OUT          where results go
#   PHOTOGRAPHS  a .tar of train/CLASS/*.jpg and test/CLASS/*.jpg, short side 160 or more
#   CIFAR        a folder with the binary batches of CIFAR-10, for the part `cifar` alone
#   PART         steps, peers, nchw, networks, budget, batch, cifar, dogs; all of them if none is named
# libcomet must be importable (PYTHONPATH); PyTorch with CUDA, torchvision.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '3,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) photographs=$(realpath "$2") cifar=$3
shift 3
parts=(steps peers nchw networks budget batch cifar dogs)
[ $# -gt 0 ] || set -- "${parts[@]}"
[ ! -e "$cifar" ] || cifar=$(realpath "$cifar")
cd "$(dirname "$0")"

failed=0
run() { # run NAME PROGRAM OPTION...: to files; a variant that fails is in its table
    local name=$1 program=$2
    shift 2
    python3 "$program" "$@" --json "$out/$name.json" >"$out/$name.txt" 2>"$out/$name.err" ||
        { cat "$out/$name.err" >&2; failed=1; }
    cat "$out/$name.txt"
}
steps() { run steps torch_plugin.py --data "$photographs" --variants plain,hooks,fuse --time-hooks --kinds; }
peers() {
    run peers torch_plugin.py --data "$photographs" --profile 0 --row 20 \
        --variants plain,checkpoint,compile,compile-budget,save_on_cpu,fp8
}
nchw() { run nchw torch_plugin.py --data "$photographs" --layout nchw --variants plain,hooks,fuse --profile 0; }
networks() {
    run networks torch_plugin.py --data "$photographs" --models resnet18,efficientnet_b0 --profile 0 \
        --variants plain,checkpoint,hooks,fuse
}
budget() {
    for size in 2GiB 3GiB 4GiB 8GiB; do
        run "budget-$size" torch_plugin.py --data "$photographs" --precisions tf32 --variants plain,hooks --profile 0 \
            --steps-before 60 --comet "memory=$size"
    done
}
batch() { # with PyTorch's allocator as it is, with the kind of segments that does not break up, and with a budget
    local each=(--data "$photographs" --cap 8GiB --steps-before 60 --multiple 16)
    run batch torch_batch.py "${each[@]}" --precisions tf32,bf16
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    run batch-expandable torch_batch.py "${each[@]}" --precisions tf32,bf16
    run batch-budget torch_batch.py "${each[@]}" --variants hooks --comet memory=7900MiB --most 2048
    unset PYTORCH_CUDA_ALLOC_CONF
}
cifar() { run cifar torch_accuracy.py cifar --data "$cifar"; }
dogs() { run dogs torch_accuracy.py dogs --data "$photographs"; }

for part in "$@"; do
    case " ${parts[*]} " in
    *" $part "*) ;;
    *) echo "figures.sh: no part is called $part" >&2; exit 2 ;;
    esac
done
for part in "$@"; do
    start=$(date +%s)
    "$part"
    echo "figures.sh: $part took $(($(date +%s) - start)) s" >&2
done
exit $failed
