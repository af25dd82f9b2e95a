#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The measurements of the plug-in for PyTorch, part by part, as files in a folder: what was printed, and JSON. Goes on
# where one fails, and exits with 1 then.
#
# usage: bench/plugin/figures.sh OUT PHOTOGRAPHS CIFAR [PART...]
#   OUT          where results go
#   PHOTOGRAPHS  a .tar of train/CLASS/*.jpg and test/CLASS/*.jpg, short side 160 or more
#   CIFAR        a folder with the binary batches of CIFAR-10, for the part `cifar` alone
#   PART         steps, peers, nchw, networks, lead, budget, search, batch, cifar, dogs; all of them if none is named
# search, cifar and dogs do not depend on timing and may run beside others; `batch` begins where `search` ended, if that
# has left its files in OUT. libcomet must be importable (PYTHONPATH); PyTorch with CUDA, torchvision.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '3,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) photographs=$(realpath "$2") cifar=$3
shift 3
parts=(steps peers nchw networks lead budget search batch cifar dogs)
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
steps() {
    run steps torch_plugin.py --data "$photographs" --variants plain,hooks,fuse --alternate 20 --time-hooks --kinds
}
short=(--settle 100 --row 40 --profile 0) # of what is only reported
peers() {
    run peers torch_plugin.py --data "$photographs" --settle 0 --row 20 --profile 0 \
        --variants plain,checkpoint,compile-budget,save_on_cpu,fp8
}
nchw() { run nchw torch_plugin.py --data "$photographs" --layout nchw --variants plain,hooks,fuse "${short[@]}"; }
networks() {
    run networks torch_plugin.py --data "$photographs" --models resnet18,efficientnet_b0 --variants plain,hooks,fuse \
        "${short[@]}"
}
lead() { # how far the host may be ahead of the GPU: for memory, time is lost
    for size in 1 512 1024 8192; do
        run "lead-$size" torch_plugin.py --data "$photographs" --steps-before 60 --settle 40 --row 40 --profile 0 \
            --variants hooks --comet "lead_bytes=$((size == 1 ? 1 : size << 20))"
    done
}
budget() { # few images are on the GPU beside the network: they are in the budget, too
    for size in 1500MiB 2GiB 4GiB; do
        run "budget-$size" torch_plugin.py --data "$photographs" --photographs 512 --ready 2 --precisions tf32 \
            --variants hooks --steps-before 60 --settle 40 --row 40 --profile 0 --comet "memory=$size"
    done
}
# 60 steps before: the network has begun to learn.
batches() { # batches search|batch SUFFIX OPTION...
    local name=$1 suffix=$2 from=()
    shift 2
    [ "$name" = search ] || [ ! -e "$out/search$suffix.json" ] || from=(--from "$out/search$suffix.json")
    run "$name$suffix" torch_batch.py --data "$photographs" --cap 8GiB --steps-before 60 --multiple 16 --start 128 \
        "${from[@]}" "$@"
}
# With PyTorch's allocator as it is, with the kind of segments that does not break up, and with a budget.
all_batches() { # all_batches search|batch OPTION...
    batches "$1" "" --precisions tf32,bf16 "${@:2}"
    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
    batches "$1" -expandable --precisions tf32,bf16 "${@:2}"
    batches "$1" -budget --variants hooks --comet memory=7900MiB --most 2048 "${@:2}"
    unset PYTORCH_CUDA_ALLOC_CONF
}
search() { all_batches search --timed 0; }
batch() { all_batches batch; }
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
