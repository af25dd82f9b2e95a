#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The measurements behind bench/results/control.md, part by part, as JSON files in a folder. Takes hours on two cores.
#
# usage: bench/study_figures.sh COMET OUT DOGS CIFAR WEIGHTS [PART...]
#   COMET    the command        DOGS     a folder of images with train/ and test/ (figures: 28 breeds of Stanford Dogs)
#   OUT      where results go   CIFAR    the folder of CIFAR-10's binary files
#   WEIGHTS  a folder with MODEL.safetensors of resnet18, resnet50, vgg16, alexnet and efficientnet_b0 trained on DOGS
#            (bench/pretrain.py)
#   PART     early, late, factors, calibration, accuracy, others, cost; all of them if none is named. factors needs
#            Debian's dataset-fashion-mnist
set -euo pipefail
[ $# -ge 5 ] || { sed -n '3,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
comet=$1 out=$2 dogs=folder:$3 cifar=cifar10:$4 weights=$5
shift 5
[ $# -gt 0 ] || set -- early late factors calibration accuracy others cost
mkdir -p "$out"

# Predicted and measured errors of gradients, for each use of each tensor.
assess() { # MODEL IMAGE BATCH WHEN [OPTION...]
    local model=$1 image=$2 batch=$3 when=$4
    shift 4
    "$comet" assess --model "$model" --data "$dogs" --image "$image" --batch "$batch" --steps 40 \
        --control comet:warmup=8:every=8 \
        --error-rel 0.1,0.3,control --json --quiet "$@" >"$out/assess-$model-$when.json"
}

early() {
    assess resnet18 96 16 early
    assess resnet50 96 16 early
    assess vgg16 64 16 early --optimiser adamw --lr 0.0001
    assess alexnet 96 16 early --optimiser adamw --lr 0.0001
    assess efficientnet_b0 96 16 early
}

late() {
    assess resnet18 96 16 late --weights "$weights/resnet18.safetensors"
    assess resnet50 96 16 late --weights "$weights/resnet50.safetensors"
    assess vgg16 64 16 late --weights "$weights/vgg16.safetensors" --optimiser adamw --lr 0.00002
    assess alexnet 96 16 late --weights "$weights/alexnet.safetensors" --optimiser adamw --lr 0.00002
    assess efficientnet_b0 96 16 late --weights "$weights/efficientnet_b0.safetensors"
}

# Predictions with measured factors.
factors() {
    local fashion=fashion-mnist:/usr/share/datasets/fashion-mnist data name steps
    for steps in 0 400; do
        for name in fashion cifar; do
            data=${!name}
            "$comet" assess --model resnet8 --data "$data" --batch 128 --batches 4 --factors 80 --steps $steps \
                --error-rel "0.1,0.3$([ $steps = 0 ] || echo ,control)" --json --quiet >"$out/factors-$name-$steps.json"
        done
    done
    for steps in 0 200; do
        for name in efficientnet_b0 resnet18; do
            "$comet" assess --model $name --data "$cifar" --batch 64 --batches 1 --factors 40 --steps $steps \
                --error-rel 0.3 --json --quiet >"$out/factors-$name-$steps.json"
        done
    done
}

compare() { # NAME VARIANTS SEEDS; one thread each, so that two can run side by side
    "$comet" compare --model resnet8 --data "$cifar" --epochs 5 --eval-every 0 --threads 1 \
        --variants "$2" --seeds "$3" --state "$out/$1.runs" --json \
        --report "$out/$1.html" --quiet >"$out/$1.json"
}

calibration() { compare cifar-c comet:c=0.1:ceiling=0.6,comet:c=0.3:ceiling=0.6,comet:ceiling=0.6 5; }
accuracy() { compare cifar-comet none,comet,eb:0.3 10; }
others() { compare cifar-others acgc,budget,comet:mean,dct,group:4,group:2,pool:2 2; }

# What collecting takes: steps on which it is done (every 20th) beside the others. On a machine with nothing else to do.
cost() {
    "$comet" train --model resnet8 --data "$cifar" --steps 400 --eval-every 0 --eval-images 128 \
        --checkpoint none --json-log "$out/cost-resnet8.jsonl" --quiet
    "$comet" train --model resnet18-cifar --data "$cifar" --batch 64 --steps 62 --eval-every 0 --eval-images 64 \
        --checkpoint none \
        --json-log "$out/cost-resnet18-cifar.jsonl" --quiet
    "$comet" train --model resnet50 --data "$dogs" --image 224 --batch 8 --steps 42 --eval-every 0 --eval-images 8 \
        --checkpoint none \
        --json-log "$out/cost-resnet50.jsonl" --quiet
}

for part in "$@"; do
    echo "$part ..."
    "$part"
done
