#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds two commits of this repository side by side and compares how they train: the same weights bit by bit, the
# measured peak, the time of a step. For changes that shall change nothing. bench/compare_commits.py says what is run.
#
# usage: bench/compare_commits.sh BASE [OTHER] [--quick] [--pairs N] [--threads N] [--cifar DIR] [--folder DIR]
#   BASE, OTHER  the commits; OTHER is HEAD if it is not given
#   --quick      weights and peaks only: for a machine that others use, too
#   --pairs N    pairs of runs whose times are compared (10)
#   --threads N  of each run (2)
#   --cifar DIR  CIFAR-10's binary files, for resnet18-cifar; without them it trains on generated images
#   --folder DIR where builds and logs go, and stay; without it a temporary folder that is removed
# Exit codes: 0 all within the limits, 1 a limit is broken or a run failed, 2 used wrongly.
set -euo pipefail

usage() {
    sed -n '6,13s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

commits=() options=() folder=''
while [ $# -gt 0 ]; do
    case $1 in
        --quick) options+=("$1") ;;
        --pairs | --threads | --cifar)
            [ $# -gt 1 ] || usage
            options+=("$1" "$2")
            shift
            ;;
        --folder)
            [ $# -gt 1 ] || usage
            folder=$2
            shift
            ;;
        -*) usage ;;
        *) commits+=("$1") ;;
    esac
    shift
done
[ ${#commits[@]} -eq 1 ] || [ ${#commits[@]} -eq 2 ] || usage

root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
name() { git -C "$root" rev-parse --short --verify "$1^{commit}" 2>/dev/null; }
base=$(name "${commits[0]}") || { echo "no such commit: ${commits[0]}" >&2; exit 2; }
other=$(name "${commits[1]:-HEAD}") || { echo "no such commit: ${commits[1]:-HEAD}" >&2; exit 2; }

temporary=''
[ -n "$folder" ] || folder=$(mktemp -d) temporary=1
mkdir -p "$folder"
folder=$(realpath "$folder")

# Sources are not needed once the command is built. A folder given by the user keeps the builds and the logs.
remove_sources() {
    for which in base other; do
        git -C "$root" worktree remove --force "$folder/$which" 2>/dev/null || true
    done
    [ -z "$temporary" ] || rm -rf "$folder"
}
trap remove_sources EXIT

build() { # WHICH COMMIT
    if [ -x "$folder/build-$1-$2/comet" ]; then return; fi
    echo "building $2 (minutes)" >&2
    git -C "$root" worktree add --quiet --detach "$folder/$1" "$2"
    cmake -S "$folder/$1" -B "$folder/build-$1-$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCOMET_CUDA=OFF \
        -DCOMET_BUILD_TESTS=OFF -DCOMET_BUILD_EXAMPLES=OFF >"$folder/build-$1.log"
    cmake --build "$folder/build-$1-$2" --target comet_command >>"$folder/build-$1.log" 2>&1 ||
        { tail -30 "$folder/build-$1.log" >&2; exit 1; }
}

build base "$base"
build other "$other"
python3 "$(dirname "$0")/compare_commits.py" "$folder/build-base-$base/comet" "$folder/build-other-$other/comet" \
    --names "$base" "$other" --folder "$folder" ${options[@]+"${options[@]}"}
