#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The measurements behind bench/results/train-cpu.md, part by part, as JSON files in a folder. Takes hours on two cores.
#
# usage: bench/train_figures.sh COMET OUT DOGS CIFAR WEIGHTS [PART...]
#   COMET  the command        DOGS   a folder of images with train/ and test/ (figures: 28 breeds of Stanford Dogs)
#   OUT    where results go   CIFAR  the folder of CIFAR-10's binary files
#   WEIGHTS  a folder with MODEL.safetensors of resnet18, resnet50, resnet50-adamw and vgg16 trained on DOGS
#            (bench/pretrain.py)
#   PART   saved, peak, models, accuracy, others, speed; all of them if none is named
set -euo pipefail
[ $# -ge 5 ] || { sed -n '3,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
comet=$1 out=$2 images=$(realpath "$3") dogs=folder:$3 cifar=cifar10:$4 folder=$5
shift 5
[ $# -gt 0 ] || set -- saved peak models accuracy others speed
here=$(dirname "$0")
torch=${PYTHON:-python3}
mkdir -p "$out"

# What a network saves that has learnt something, under the default controller (it decides after 60 updates, and again
# after 80) and at a fixed bound. Then the same without what can be made again from few channels, at little cost.
saved() {
    for weights in resnet18 resnet50 resnet50-adamw; do
        for codec in eb eb:0.3; do
            "$comet" train --model ${weights%-*} --data "$dogs" --image 224 --batch 16 \
                --steps $([ $codec = eb ] && echo 84 || echo 20) \
                --codec $codec --weights "$folder/$weights.safetensors" --checkpoint none --eval-images 64 \
                --json-log "$out/saved-$weights-$codec.jsonl" --quiet
        done
    done
    "$comet" train --model resnet50 --data "$dogs" --image 224 --batch 16 --steps 20 --codec eb:0.3 \
        --weights "$folder/resnet50.safetensors" \
        --forms 'layer1.*.bn3=recompute,layer1.*.conv3=recompute,layer1.0.downsample.*=recompute' \
        --checkpoint none --eval-images 64 --json-log "$out/saved-resnet50-recompute.jsonl" --quiet
}

# Peaks at batch 16, planned and as the operating system counts them, beside PyTorch's; at 64 as planned. The default
# goes on for long enough that its controller decides.
peak() {
    for model in resnet18 resnet50; do
        "$comet" compare --model $model --data "$dogs" --image 224 --batch 16 --steps 84 --eval-images 16 \
            --variants eb --json --quiet >"$out/peak-$model-default.json"
        "$comet" compare --model $model --data "$dogs" --image 224 --batch 16 --steps 3 --eval-images 16 \
            --variants none,eb:0.3,pool:2,group:4,recompute --json --quiet >"$out/peak-$model.json"
        "$torch" "$here/pytorch_step.py" $model 224 16 3 >"$out/peak-$model-pytorch.json"
        for codec in none eb eb:0.3 pool:2 recompute; do
            "$comet" plan --model $model --image 224 --batch 64 --codec $codec --json >"$out/plan-$model-$codec.json"
        done
    done
}

# The first ten classes of DOGS.
ten_classes() {
    for split in train test; do
        mkdir -p "$out/ten/$split"
        for class in $(ls "$images/$split" | head -10); do
            ln -sfn "$images/$split/$class" "$out/ten/$split/$class"
        done
    done
}

# Each network on photographs, compressed and not: does the loss fall alike? The first epochs, on small images. From
# first values VGG-16's loss hardly moves in that time: it is tuned to ten classes, from weights for all.
models() {
    ten_classes
    for model in alexnet resnet18 efficientnet_b0 resnet50 vgg16; do
        case $model in
        alexnet) set -- --data "$dogs" --lr 0.0001 --steps 300 ;;
        vgg16) set -- --data "folder:$out/ten" --lr 0.0001 --steps 60 --weights "$folder/vgg16.safetensors" ;;
        *) set -- --data "$dogs" --lr 0.001 --steps 300 ;;
        esac
        "$comet" compare --model $model "$@" --image 64 --batch 32 --optimiser adamw --eval-images 200 --eval-every 0 \
            --variants none,eb:0.3 --json --report "$out/models-$model.html" --quiet >"$out/models-$model.json"
    done
}

accuracy() {
    "$comet" compare --model resnet8 --data "$cifar" --variants none,eb:0.3 --seeds 5 --epochs 5 \
        --eval-every 0 --json \
        --report "$out/accuracy.html" --quiet >"$out/accuracy.json"
}

# `none` is not run again: for a seed it gives the same bits.
others() {
    "$comet" compare --model resnet8 --data "$cifar" --variants pool:2,group:4,dct --seeds 5 \
        --epochs 5 --eval-every 0 --json \
        --report "$out/others.html" --quiet >"$out/others.json"
}

# Beside PyTorch in turns, so that both see the same machine.
speed() {
    for turn in 1 2 3; do
        for model in resnet18 resnet50; do
            "$comet" compare --model $model --data "$dogs" --image 224 --batch 16 --steps 10 --eval-images 16 \
                --variants none,eb,eb:0.3 --json --quiet >"$out/speed-$model-$turn.json"
            "$torch" "$here/pytorch_step.py" $model 224 16 10 >"$out/speed-$model-pytorch-$turn.json"
        done
    done
}

for part in "$@"; do
    echo "$part ..."
    "$part"
done
