#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Do networks learn the same with compressed activations? The comparison of "Less Memory Means smaller GPUs" (Barley &
# Froening 2024), which keeps averages of saved activations: trains without compression, with the error-bounded codec
# under its controller and with averages of 2 x 2, all from the same first values, and puts what they have learnt side
# by side. A second training without compression, from other first values, is the measure of what chance does. Behind
# bench/results/papers.md.
#
# usage: bench/papers/learnt.sh COMET OUT [OPTION...]
#   COMET    the command
#   OUT      a folder for the trained networks, learnt.html, learnt.txt and learnt.json. What is trained is kept: the
#            same command goes on where it was stopped
#   OPTION   of comet train; without any: --model resnet8 --data fashion-mnist --epochs 3
#
# Environment: FORMS   what the others are trained with ("eb pool:2")
#              SEED    of all but the last (1), which has the next one
#              IMAGES  that the networks are shown (1024)
set -euo pipefail
[ $# -ge 2 ] || { sed -n '3,19s/^# \{0,1\}//p' "$0" >&2; exit 2; }
comet=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- --model resnet8 --data fashion-mnist --epochs 3
forms=${FORMS:-eb pool:2} seed=${SEED:-1} images=${IMAGES:-1024}
mkdir -p "$out"

runs=()
train() { # FOLDER FORM SEED [OPTION...]
    local folder=$out/$1 form=$2 own=$3
    shift 3
    "$comet" train "$@" --codec "$form" --seed "$own" --checkpoint "$folder" --resume=auto
    runs+=(--from "$folder/last.safetensors") # of the same length: the best ones are not of the same step
}

train none none "$seed" "$@"
for form in $forms; do
    train "${form//[^A-Za-z0-9.]/-}" "$form" "$seed" "$@"
done
train none-again none $((seed + 1)) "$@"

"$comet" look "${runs[@]}" --images "$images" --json --quiet >"$out/learnt.json"
"$comet" look "${runs[@]}" --images "$images" --quiet --report "$out/learnt.html" | tee "$out/learnt.txt"
