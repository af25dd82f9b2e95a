#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A Python with a recent PyTorch, for the tests that compare the trainer with it and those of the Python package: a
# virtual environment in the user's cache, made from the package index once, with the versions of
# tests/train/requirements.txt. Says what it downloads before it does.
#
# usage: scripts/torch_venv.sh [--find] [--torch VERSION]
#   --find    never download
#   --torch   another version, 2.4.0 say, or `newest`: the newest that the index has now; one more environment
# Standard output is one line. Exit 0: the path of the Python. Exit 1: why there is none. Exit 2: COMET_TORCH_PYTHON
# cannot be used, and why.
# COMET_NO_TORCH=1            none is wanted (any other text is the reason given)
# COMET_TORCH_PYTHON=python   use this one; it must have torch 2.4 or later and torchvision. Not with --torch
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
requirements=$root/tests/train/requirements.txt

find="" version=""
while [ $# -gt 0 ]; do
    case $1 in
    --find) find=1 ;;
    --torch) version=${2:?} && shift ;;
    *) echo "usage: scripts/torch_venv.sh [--find] [--torch VERSION]" && exit 2 ;;
    esac
    shift
done

none() { # why
    echo "$1"
    exit 1
}

case ${COMET_NO_TORCH:-} in
'') ;;
1) none "COMET_NO_TORCH=1 is set" ;;
*) none "$COMET_NO_TORCH" ;;
esac

if [ -n "${COMET_TORCH_PYTHON:-}" ] && [ -z "$version" ]; then
    if ! "$COMET_TORCH_PYTHON" - <<'CHECK' >/dev/null 2>&1; then
import torch
import torchvision
assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)
CHECK
        echo "COMET_TORCH_PYTHON: '$COMET_TORCH_PYTHON' has no torch 2.4 or later with torchvision"
        exit 2
    fi
    command -v "$COMET_TORCH_PYTHON"
    exit 0
fi

# ---- the Python it is made with, and where it is ----

can_make() { # python: of a version that the pinned torch has a package for, with what makes virtual environments
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

python=""
for candidate in python3 /usr/bin/python3; do
    if command -v "$candidate" >/dev/null && can_make "$candidate"; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || none "no python3 of version 3.10 to 3.14 that can make virtual environments \
(on Debian: apt-get install python3-venv)"

versions_of() { # python with pip, package: those that the index has for this Python, the newest first
    "$1" -m pip index versions "$2" --disable-pip-version-check 2>/dev/null |
        sed -n 's/^Available versions: //p' | tr -d ' ' | tr ',' '\n'
}
if [ "$version" = newest ]; then
    work=$(mktemp -d) # for pip: Debian's Python has none of its own
    version=$("$python" -m venv "$work" >&2 && versions_of "$work/bin/python" torch | sed -n 1p) || version=""
    rm -rf "$work"
    [ -n "$version" ] || none "pip finds no torch: there is no package index"
fi

cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/comet
way=1 # counted up when what is made below changes
pins=$({ cat "$requirements" && echo $way; } | cksum | cut -d ' ' -f 1) # other versions: another folder
venv=$cache/torch-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')${version:+-$version}-$pins

if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c '' 2>/dev/null; then
    echo "$venv/bin/python"
    exit 0
fi
[ -z "$find" ] || none "no PyTorch in '$cache': scripts/torch_venv.sh makes one"

# ---- making it ----

# The package for Linux is built for CUDA and linked with a dozen of its libraries: two gigabytes that tests on the CPU
# never call. In their place comes one library that has their names and answers "there is no device" to every call. It
# is found first: beside those that need it.
stand_in_for_cuda() { # folder of torch's libraries
    local libraries=$1 work=$2 names symbols
    names=$(for file in "$libraries"/*.so; do readelf -d "$file"; done |
        sed -n 's/.*(NEEDED).*\[\(lib\(cu\|nv\|nccl\)[^]]*\)\]/\1/p' | sort -u)
    [ -n "$names" ] || return 0 # built for the CPU
    nm -D --defined-only "$libraries"/*.so | awk 'NF == 3 { sub(/@.*/, "", $3); print $3 }' | sort -u >"$work/defined"
    symbols=$(nm -D --undefined-only "$libraries"/*.so | awk '$1 == "U" || $1 == "w" { print $2 }' |
        grep -E '^(cu|nv|nccl|__cuda)|@(lib(cu|nv|nccl)|NVSHMEM)' | sort -u)
    sed 's/@.*//' <<<"$symbols" | sort -u | comm -23 - "$work/defined" |
        awk '{ print "int " $1 "(void) { return 100; }" }' >"$work/no_cuda.c" # cudaErrorNoDevice
    # Who needs a symbol names its version, too.
    sed -n 's/@@*/ /p' <<<"$symbols" |
        awk '{ all[$2] = all[$2] " " $1 ";" }
             END { for (version in all) print version " { global:" all[version] " };" }' >"$work/no_cuda.map"
    "${CC:-cc}" -w -fno-builtin -shared -fPIC -Wl,--version-script="$work/no_cuda.map" \
        -o "$libraries/libno_cuda.so" "$work/no_cuda.c" || return 1
    local name
    for name in $names; do
        [ -e "$libraries/$name" ] || ln -s libno_cuda.so "$libraries/$name"
    done
}

# The requirements with another torch. torchvision 0.N is made for torch 2.(N - 15); from 0.29 also for later ones.
requirements_for() { # python with pip, version of torch
    local vision
    vision=$(versions_of "$1" torchvision | awk -F . -v torch="$2" '
        BEGIN { split(torch, t, "."); most = (t[2] + 15) * 1000 + t[3] }
        !found && $2 * 1000 + $3 <= most { print; found = 1 }') && [ -n "$vision" ] || return 1
    sed -e "s/^torch==.*/torch==$2/" -e "s/^torchvision==.*/torchvision==$vision/" "$root/tests/train/requirements.txt"
}

make_venv() { # folder; messages go to standard error, the reason of a failure to standard output
    local folder=$1 packages
    "$python" -m venv "$folder" >"$folder.log" 2>&1 ||
        { echo "python3 -m venv failed: $(tail -n 1 "$folder.log")"; return 1; }
    if [ -n "$version" ]; then
        requirements=$folder/requirements.txt
        requirements_for "$folder/bin/python" "$version" >"$requirements" ||
            { echo "pip finds no torchvision for torch $version"; return 1; }
    fi
    "$folder/bin/python" -m pip install --no-deps --only-binary :all: --no-cache-dir --retries 2 --timeout 30 \
        --progress-bar off --disable-pip-version-check -r "$requirements" >"$folder.log" 2>&1 ||
        { echo "pip could not get it: $(grep -v '^ *$' "$folder.log" | tail -n 1)"; return 1; }
    packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    if [ "$(uname -s)" = Linux ]; then
        stand_in_for_cuda "$packages/torch/lib" "$folder" 2>"$folder.log" ||
            { echo "its CUDA libraries could not be replaced: $(tail -n 1 "$folder.log")"; return 1; }
    fi
    if ! "$folder/bin/python" - >"$folder.log" 2>&1 <<'CHECK'; then
import torch
import torchvision
network = torchvision.models.resnet18(num_classes=2)
network(torch.ones(2, 3, 32, 32)).sum().backward()
CHECK
        echo "it does not work: $(tail -n 1 "$folder.log")"
        return 1
    fi
}

mkdir -p "$cache"
if command -v flock >/dev/null; then # who comes second waits, and finds it
    exec 9>"$cache/torch.lock"
    flock -n 9 || { echo "Waiting for another scripts/torch_venv.sh" >&2; flock 9; }
    rm -rf "$cache"/torch-*.partial-* # of those that were interrupted
fi
if [ ! -x "$venv/bin/python" ]; then
    what="$(grep '^torch' "$requirements" | tr '\n' ' ')and what they need; on Linux about 570 MB" disk="1.4 GB"
    [ -z "$version" ] || what="torch==$version, torchvision and what they need; on Linux up to 950 MB" disk="2 GB"
    cat >&2 <<WHAT
Making a Python with PyTorch for the tests, once, in $venv
    downloads: a dozen packages with pip, $what
    on disk:   about $disk
    To go without: COMET_NO_TORCH=1. To use one you have: COMET_TORCH_PYTHON=/path/to/python
WHAT
    partial=$venv.partial-$$
    trap 'rm -rf "$partial" "$partial.log"' EXIT
    started=$(date +%s)
    reason=$(make_venv "$partial") || none "$reason"
    rm -rf "$venv" # one whose Python is gone
    mv "$partial" "$venv"
    echo "It took $(($(date +%s) - started)) s and $(du -sm "$venv" | cut -f 1) MB" >&2
fi
echo "$venv/bin/python"
