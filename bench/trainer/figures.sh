#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The measurements of the trainer on a GPU (`comet ... --device cuda`) beside PyTorch's, part by part, as files in a
# folder: what was printed, and JSON. Goes on where one fails, and exits with 1 then. What has succeeded leaves
# NAME.done and is not run again, so that a call that was cut short goes on where it was; delete these to measure anew.
#
# usage: bench/trainer/figures.sh OUT PHOTOGRAPHS CIFAR [PART...]
#   OUT          where results go
#   PHOTOGRAPHS  a folder, or a .tar, of train/CLASS/*.jpg and test/CLASS/*.jpg, short side 160 or more
#   CIFAR        a folder with the binary batches of CIFAR-10, as they are or with .xz; for `cifar` alone
#   PART         all but `warm` if none is named; with seconds on an H200, which are estimates
#     check       180  GPU tests of the trainer, several at once, and compute-sanitizer (check.sh)
#     steps       250  ResNet-50, batch 128: `none` and `eb` (the default controller), PyTorch eager and checkpoint
#     compile     260  torch.compile, without and with a memory budget, of the same; 60 behind `warm`
#     techniques  140  ResNet-50 in bf16: ways to hold activations, and combinations of them
#     networks    480  `none` beside eager and compile, five networks; 600 without `warm`
#     batches     330  ResNet-50 in bf16: the largest batch and images a second inside 4, 8 and 16 GiB
#     batches-compile  230  torch.compile inside 8 GiB
#     batches-more     300  the other networks inside 8 GiB
#     norms       150  batch norms beside cuDNN's (needs bench/cudnn_probe.c compiled: CUDNN_PROBE, or nvcc and headers)
#     loader       15  images a second of the loader alone
#     cifar       350  CIFAR-10, ResNet-18, 15 epochs, three seeds: `none`, `eb`, PyTorch with the same recipe
#     dogs        300  photographs at 160 px, ResNet-18 and ResNet-50, three seeds
#     warm        200  fills the cache of torch.compile: beside parts that are not timed, `cifar` and `dogs`
#     tables        0  tables.md and batches.svg, of all that is in OUT; also at the end of each call
# Nothing else may run on the GPU beside steps, compile, techniques, networks, batches*, norms and loader.
#
# BUILD=build/release  PYTHON=python3  LIMIT=420 (seconds for one program; 570 where several run at once)
# DEADLINE=570: the whole call ends after so many seconds, with what there is by then.
# COMET_TRY=1 runs everything on the CPU in sizes that say nothing, to see that it runs.
#
# CIFAR's recipe is torch_accuracy.py's with `comet train`'s edges and schedule: the same network, first values of the
# same distributions, SGD with Nesterov's momentum, one cycle, batches of 512. Of the photographs Comet decodes its cuts
# from the whole image and tests on the middle seven eighths, PyTorch has the middle square of each: beside each other
# they are for orientation, `eb` beside `none` is the figure.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '3,42s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd) photographs=$(realpath "$2") cifar=$(realpath -m "$3")
build=$(realpath "${BUILD:-$root/build/release}") python=${PYTHON:-python3}
limit=${LIMIT:-420} long_limit=${LIMIT:-570} deadline=$((SECONDS + ${DEADLINE:-86400}))
comet=$build/comet
shift 3
usual=(check loader steps compile techniques networks batches batches-compile batches-more norms cifar dogs tables)
parts=("${usual[@]}" warm)
[ $# -gt 0 ] || set -- "${usual[@]}"
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} OMP_WAIT_POLICY=passive
cd "$root/bench/trainer"

# ---- sizes ----

device=cuda dtypes=(tf32 bf16 fp16) two=tf32,bf16 one=bf16 model=resnet50 batch=128 image=224 settle=200 short=10
row=100 short_row=50 caps_row=20
models=(resnet18 resnet50 vgg16 alexnet efficientnet_b0) more=(resnet18 vgg16 alexnet efficientnet_b0)
caps=4GiB,8GiB,16GiB torch_caps=4GiB,8GiB,16GiB single=8GiB torch_single=8GiB plans=32,64 multiple=16 most=3072
epochs=15 dog_epochs=20 cifar_batch=512 dog_batch=64 dog_image=160 dog_models=(resnet18 resnet50) seeds=(1 2 3)
images=() length=()
ways=none,eb,eb:0.3,pool:2,group:4,zvc,offload,recompute,eb+offload
combinations=('layer1.*=offload' 'layer1.*=recompute' 'layer1.*=pool:2')
decide=70 # updates, after which the controller has decided
compile=compile,compile-budget
if [ -n "${COMET_TRY:-}" ]; then
    device=cpu dtypes=(fp32) two=fp32 one=fp32 model=resnet18 batch=4 image=32 settle=3 short=1 row=2
    short_row=1 caps_row=1 models=(resnet18) more=(resnet18) epochs=1
    caps=170MiB,200MiB torch_caps=2,4 single=170MiB torch_single=4 plans=2,4 multiple=2 most=4
    dog_epochs=1 cifar_batch=4 dog_batch=4 dog_image=32 dog_models=(resnet18) seeds=(1) images=(--images 8) ways=none,eb
    combinations=('layer1.*=recompute') decide=2 length=(--steps 2 --eval-images 8)
    [ -n "${COMET_TRY_COMPILE:-}" ] || compile=checkpoint # compiling takes a minute
fi

# ---- data ----

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# comet wants folders and files that are unpacked.
folder_of_photographs() {
    local found=$photographs
    if [ ! -d "$photographs" ]; then
        mkdir -p "$work/photographs"
        tar -xf "$photographs" -C "$work/photographs"
        found=$work/photographs
    fi
    dirname "$(find "$found" -maxdepth 3 -type d -name train | head -n 1)"
}
folder_of_cifar() {
    if ls "$cifar"/*_batch*.bin >/dev/null 2>&1; then
        echo "$cifar"
        return
    fi
    mkdir -p "$work/cifar"
    "$python" - "$cifar" "$work/cifar" <<'UNPACK'
import lzma
import pathlib
import sys
for path in pathlib.Path(sys.argv[1]).glob("*.bin.xz"):
    (pathlib.Path(sys.argv[2]) / path.stem).write_bytes(lzma.open(path).read())
UNPACK
    echo "$work/cifar"
}

# ---- running ----

failed=0
say() { echo "figures.sh: $*" >&2; }
finish() { # finish NAME STATUS: what is left of a run
    if [ "$2" = 0 ]; then
        touch "$out/$1.done"
    else
        say "$1: exit $2; $(tail -n 1 "$out/$1.err")"
        failed=1
    fi
}
is_done() { [ -e "$out/$1.done" ]; }
# Seconds that one program may still take; none: it is left for another call.
time_for() { # time_for NAME
    local left=$((deadline - SECONDS))
    if [ $left -lt 30 ]; then
        say "$1: no time is left"
        return 1
    fi
    echo $((left < limit ? left : limit))
}
# When its time is up comet ends with what it has; the Python programs have written it.
run_comet() { # run_comet NAME OPTION...: JSON on standard output
    local name=$1 status=0 most
    shift
    is_done "$name" && return
    most=$(time_for "$name") || { failed=1; return; }
    timeout -k 10 "$most" "$comet" "$@" --json --quiet >"$out/$name.json" 2>"$out/$name.err" || status=$?
    finish "$name" $status
}
run_python() { # run_python NAME PROGRAM OPTION...: writes its JSON as it goes
    local name=$1 program=$2 status=0 most
    shift 2
    is_done "$name" && return
    most=$(time_for "$name") || { failed=1; return; }
    timeout -k 10 "$most" "$python" "$program" "$@" --json "$out/$name.json" >"$out/$name.txt" \
        2>"$out/$name.err" || status=$?
    finish "$name" $status
}
type_option() { [ $device = cpu ] || echo --dtype "$1"; }
comet_step() { # comet_step NAME MODEL TYPES OPTION...
    local name=$1 network=$2 types=$3
    shift 3
    # shellcheck disable=SC2046 # an option and its value
    run_comet "$name" bench step --model "$network" --device $device $(type_option "$types") --batch $batch \
        --image $image --data "folder:$photos" "$@"
}
torch_step() { # torch_step NAME MODEL OPTION...
    local name=$1 network=$2
    shift 2
    run_python "$name" torch_step.py --model "$network" --device $device --batch $batch --image $image \
        --data "$photos" --photographs 512 --resume "$@"
}

# ---- parts ----

check() {
    local status=0 most
    is_done check && return
    most=$(time_for check) || return
    COMET_CHECK_LIMIT=$most ./check.sh "$build" "$out" >"$out/check.txt" 2>"$out/check.err" || status=$?
    cat "$out/check.txt"
    finish check $status
}
steps() {
    for dtype in "${dtypes[@]}"; do
        comet_step "steps-comet-$dtype" $model "$dtype" --variants none,eb --settle $settle --lr 0.02 --row $row \
            --parts 5
    done
    torch_step steps-torch $model --dtype "$(IFS=,; echo "${dtypes[*]}")" --variants eager,checkpoint --rate 0.02 \
        --row $row --settle $((settle < 30 ? settle : 30))
}
compile() {
    torch_step steps-torch-compile $model --dtype $two --variants $compile --rate 0.02 --row $row --settle $short
}
techniques() {
    local number=0
    comet_step techniques $model $one --variants $ways --settle $decide --lr 0.02 --steps 10 --row $short_row
    for forms in "${combinations[@]}"; do
        number=$((number + 1))
        comet_step "techniques-$number" $model $one --variants eb --forms "$forms" --settle $decide --lr 0.02 \
            --steps 10 --row $short_row
    done
}
# A rate at which none of them diverges in so few steps.
networks() {
    for network in "${models[@]}"; do
        comet_step "networks-comet-$network" "$network" $two --variants none --settle $short --lr 0.001 --steps 10 \
            --row $short_row
        torch_step "networks-torch-$network" "$network" --dtype $two --variants "eager,${compile%%,*}" --settle $short \
            --rate 0.001 --steps 10 --row $short_row
    done
}
comet_caps() { # comet_caps NAME CAPS OPTION...
    local name=$1 sizes=$2
    shift 2
    run_python "$name" comet_caps.py "$comet" --device $device --dtype $one --caps "$sizes" --data "folder:$photos" \
        --image $image --plans $plans --multiple $multiple --most $most --settle $decide --row $caps_row "$@"
}
caps_of_torch() { # caps_of_torch NAME CAPS OPTION...
    local name=$1 sizes=$2
    shift 2
    run_python "$name" torch_caps.py --device $device --dtype $one --caps "$sizes" --data "$photos" --image $image \
        --plans $plans --multiple $multiple --most $most "$@"
}
batches() {
    comet_caps batches-comet $caps --model $model --variants none
    comet_caps batches-comet-eb $caps --model $model --variants eb --beyond 1,1.5
    caps_of_torch batches-torch $torch_caps --model $model --variants eager,checkpoint
}
batches-compile() { # each batch is compiled anew
    caps_of_torch batches-torch-compile $torch_single --model $model --variants "${compile##*,}" --tries 3
}
batches-more() {
    for network in "${more[@]}"; do
        comet_caps "batches-comet-$network" $single --model "$network" --variants none,eb
        caps_of_torch "batches-torch-$network" $torch_single --model "$network" --variants eager,checkpoint
    done
}
# The library that PyTorch brings along, if there is no other.
make_probe() {
    local headers library
    [ -z "${CUDNN_PROBE:-}" ] || { echo "$CUDNN_PROBE"; return; }
    command -v nvcc >/dev/null || return 1
    local places=(/usr /opt "$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')")
    headers=$(find "${places[@]}" -name cudnn_graph.h 2>/dev/null | head -n 1)
    library=$(find "${places[@]}" -name libcudnn.so.9 2>/dev/null | head -n 1)
    [ -n "$headers" ] && [ -n "$library" ] || return 1
    nvcc -O2 -I"${headers%/*}" ../cudnn_probe.c -o "$work/cudnn_probe" -L"${library%/*}" -l:libcudnn.so.9 \
        -Xlinker -rpath="${library%/*}" -Xcompiler -pthread && echo "$work/cudnn_probe"
}
norms() {
    local probe status=0 with=()
    if [ $device = cpu ]; then
        say "norms: needs a GPU"
        return
    fi
    if ! is_done norms-cudnn && probe=$(make_probe 2>"$out/norms-cudnn.err"); then
        timeout "$limit" "$probe" --json "$out/norms-cudnn.json" --types fp32,bf16 \
            --patterns bn+relu,bn+add+relu,drelu+dbn,drelu+dbn+dz >"$out/norms-cudnn.txt" 2>&1 || status=$?
        finish norms-cudnn $status
    fi
    [ ! -e "$out/norms-cudnn.json" ] || with=(--probe "$out/norms-cudnn.json")
    run_python norms norms.py "$comet" "${with[@]}"
}
loader() {
    run_comet loader bench loader --data "folder:$photos" --image $image --batch $batch --threads 1,4,8,0 \
        --batches $((row / 2))
}
# All seeds at once: nothing of it is timed.
accuracy() { # accuracy NAME DATA MODEL BATCH IMAGE EPOCHS RATE
    local name=$1 data=$2 network=$3 size=$4 side=$5 long=(--epochs "$6") rate=$7
    [ ${#length[@]} = 0 ] || long=("${length[@]}")
    for seed in "${seeds[@]}"; do
        # shellcheck disable=SC2046 # an option and its value
        run_comet "$name-comet-$seed" compare --model "$network" --data "$data" --device $device $(type_option $one) \
            --batch "$size" --image "$side" "${long[@]}" --lr "$rate" --nesterov --weight-decay 5e-4 --eval-every 0 \
            --variants none,eb --seed "$seed" --seeds 1 --state "$out/$name-$seed.runs" --resume=auto &
    done
}
torch_accuracy() { # torch_accuracy NAME TASK DATA MODEL EPOCHS BATCH OPTION...
    local name=$1 task=$2 data=$3 network=$4 passes=$5 size=$6
    shift 6
    for seed in "${seeds[@]}"; do
        run_python "$name-torch-$seed" ../plugin/torch_accuracy.py "$task" --data "$data" --model "$network" \
            --seeds "$seed" --variants plain --device $device --precision $one --epochs "$passes" --batch "$size" \
            --rise 0.3 "${images[@]}" "$@" &
    done
}
# Failures in the background are seen by what they did not leave.
await() { # await PATTERN
    local name
    wait
    for name in "$out"/$1.err; do
        name=${name%.err}
        [ -e "$name.done" ] || failed=1
    done
}
cifar() {
    local place limit=$long_limit
    place=$(folder_of_cifar)
    accuracy cifar "cifar10:$place" resnet18-cifar $cifar_batch 32 $epochs 0.4
    torch_accuracy cifar cifar "$place" resnet18 $epochs $cifar_batch --edges black
    await 'cifar-*'
}
dogs() {
    local limit=$long_limit
    for network in "${dog_models[@]}"; do
        accuracy "dogs-$network" "folder:$photos" "$network" $dog_batch $dog_image $dog_epochs 0.1
        torch_accuracy "dogs-$network" dogs "$photos" "$network" $dog_epochs $dog_batch --image $dog_image \
            --least-area 0.08
        await "dogs-$network-*"
    done
}
warm() {
    local once=(--settle 1 --steps 1 --row 0 --dtype "$two")
    for network in "${models[@]}"; do
        torch_step "warm-$network" "$network" --variants "${compile%%,*}" "${once[@]}" &
    done
    torch_step "warm-budget" $model --variants "${compile##*,}" "${once[@]}" &
    await 'warm-*'
}

# ---- tables ----

existing() { # existing PATTERN...: files of that name that are there
    local file
    for file in "$@"; do [ ! -e "$file" ] || echo "$file"; done
}
table_of() { # table_of TITLE PROGRAM... -- FILE...: nothing where there are no files
    local command=()
    echo
    echo "## $1"
    shift
    while [ "$1" != -- ]; do command+=("$1") && shift; done
    shift
    if [ $# -gt 0 ]; then "$python" "${command[@]}" "$@" 2>&1 || true; else echo "Not measured."; fi
}
tables() {
    local network files
    {
        mapfile -t files < <(existing "$out"/steps-*.json)
        table_of Steps step_table.py -- "${files[@]}"
        mapfile -t files < <(existing "$out"/techniques*.json "$out/steps-torch.json")
        table_of Techniques step_table.py --dtype $one -- "${files[@]}"
        mapfile -t files < <(existing "$out"/networks-*.json)
        table_of Networks step_table.py -- "${files[@]}"
        mapfile -t files < <(existing "$out"/batches-*.json)
        table_of Batches caps_table.py --plot "$out/batches.svg" --model $model --dtype $one -- "${files[@]}"
        mapfile -t files < <(existing "$out"/cifar-*.json)
        table_of CIFAR-10 accuracy_table.py "ResNet-18, $epochs epochs" -- "${files[@]}"
        for network in "${dog_models[@]}"; do
            mapfile -t files < <(existing "$out/dogs-$network"-*.json)
            table_of Photographs accuracy_table.py "$network, $dog_image px, $dog_epochs epochs" -- "${files[@]}"
        done
        for file in norms.txt loader.json check.txt; do
            if [ -e "$out/$file" ]; then printf '\n## %s\n\n```\n' "$file" && cat "$out/$file" && echo '```'; fi
        done
    } >"$out/tables.md"
}

for part in "$@"; do
    case " ${parts[*]} " in
    *" $part "*) ;;
    *) say "no part is called $part"; exit 2 ;;
    esac
done
photos=$(folder_of_photographs)
for part in "$@"; do
    start=$(date +%s)
    "$part" || failed=1
    say "$part took $(($(date +%s) - start)) s"
done
tables
exit $failed
