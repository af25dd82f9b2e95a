#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The order of the folders, checked on every #include line. Each folder below may include its own headers, those of the
# folders it is said to use, and of all that these use. A folder uses only such as stand above it: there are no circles.
# A folder that is not in the list is an error. Public headers include only public headers and the C standard library;
# examples only what is public; CUDA only in folders named cuda. Tests may include all of src and cmd; among themselves
# they have an order, too.
# usage: check_layers.sh [ROOT]
set -euo pipefail
cd "${1:-.}"

order='
base
base/file              base
base/text              base
base/vector            base
codec                  base
codec/eb               codec
codec/eb/cpu           codec/eb
codec/simple           codec
codec/indices          codec
codec/cuda             codec
codec/cuda/simple      codec/cuda codec/simple
codec/cuda/indices     codec/cuda codec/indices
codec/cuda/tile        codec/cuda codec/eb
codec/cuda/eb          codec/cuda/tile
codec/cuda/norm        codec/cuda/eb
codec/cuda/instances   codec/cuda/norm
control                codec
control/collect        control base/vector
control/cuda           control/collect codec/cuda
store/host             codec
store/device           codec
store/device/cuda      store/device codec/cuda
data/files             base/file
data/image             base
data/sets              data/image base/text
data/loader            data/sets
train/graph            base
train/models           train/graph base/text
train/optimiser        train/graph
train/backend          train/optimiser control data/image
train/backend/cpu      train/backend control/collect store/host base/vector
train/backend/onednn   train/backend/cpu
train/backend/cuda/base train/backend codec/cuda
train/backend/cuda/library train/backend/cuda/base
train/backend/cuda/kernels train/backend/cuda/base base/vector
train/backend/cuda/kernels/maps train/backend/cuda/kernels
train/backend/cuda/kernels/conv train/backend/cuda/kernels
train/backend/cuda/kernels/depthwise train/backend/cuda/kernels
train/backend/cuda/kernels/errors train/backend/cuda/kernels
train/backend/cuda/cudnn train/backend/cuda/library train/backend/cuda/kernels
train/backend/cuda/cublaslt train/backend/cuda/library train/backend/cuda/kernels
train/backend/cuda/ops train/backend/cuda/kernels/maps train/backend/cuda/kernels/conv
train/backend/cuda/ops train/backend/cuda/kernels/depthwise train/backend/cuda/cudnn train/backend/cuda/cublaslt
train/backend/cuda     train/backend/cuda/ops train/backend/cuda/kernels/errors control/cuda
train/plan             train/backend
train/collect          train/plan train/optimiser control
train/step             train/collect
train/trainer          train/step train/models
train/checkpoint       train/optimiser data/files data/loader
train/predict          train/step train/models train/checkpoint
train/run              train/trainer train/checkpoint
study                  train/run train/predict base/vector
cmd/common             base/file base/text
cmd/files              cmd/common codec
cmd/report             cmd/common
cmd/memory             cmd/common train/backend
cmd/bench              cmd/files
cmd/bench/cuda         cmd/bench
cmd/codec              cmd/files
cmd/train              cmd/report cmd/files cmd/memory study
cmd/bench/loader       cmd/bench data/loader
cmd/bench/step         cmd/bench/loader cmd/train
cmd/predict            cmd/train train/predict
cmd/look               cmd/predict
cmd/plan               cmd/train
cmd/study              cmd/plan
cmd/demo               cmd/study cmd/bench
cmd/manual             cmd/common train/models
cmd                    cmd/demo cmd/codec cmd/bench/step cmd/look cmd/manual
python/native/base
python/native/torch    python/native/base
python/native/hold     python/native/torch
python/native/pass     python/native/hold
python/native/control  python/native/pass
python/native          python/native/control
tests/support
tests/support/spec     tests/support
tests/support/codec    tests/support/spec
tests/emulation
tests/emulation/train  tests/emulation
tests/emulation/numbers tests/emulation/train
tests/support/cuda     tests/support/codec tests/emulation
tests/support/train    tests/support tests/emulation
tests/unit/base        tests/support/codec
tests/unit/codec       tests/support/codec
tests/unit/cuda        tests/support/cuda tests/support/train
tests/unit/store       tests/support
tests/unit/control     tests/support
tests/unit/data        tests/support
tests/unit/train       tests/support/train
tests/unit/train/frozen tests/unit/train
tests/unit/train/collect tests/unit/train
tests/unit/cuda/train  tests/unit/cuda tests/unit/train/collect tests/unit/train/frozen tests/emulation/train
tests/unit/train/ops   tests/unit/train
tests/unit/train/predict tests/unit/train
tests/unit/study       tests/unit/train
tests/train            tests/unit/train
tests/fuzz/common      tests/support
tests/fuzz             tests/fuzz/common tests/unit/data tests/support/codec
tests/stress           tests/support/codec
tests/cmd              tests/emulation
'

files=$(find include src cmd python/native examples tests -path tests/project -prune -o -type f \( -name '*.c' -o \
    -name '*.h' -o -name '*.h.in' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print | sort)
[ -n "$files" ] || { echo "no source found: this check is broken"; exit 1; }

# shellcheck disable=SC2086
awk -v order="$order" '
function fail(why) {
    printf "%s:%d: %s: %s\n", FILENAME, FNR, $0, why
    failed = 1
}
# allowed[a, b]: a may include b.
function read_order(    lines, words, n, m, i, k, b) {
    n = split(order, lines, "\n")
    for (i = 1; i <= n; i++) {
        m = split(lines[i], words, " ")
        if (m == 0)
            continue
        for (k = 2; k <= m; k++) {
            if (!(words[k] in known)) {
                print words[1] " uses " words[k] ", which does not stand above it"
                failed = 1
            }
            for (b in known)
                if (b == words[k] || (words[k], b) in allowed)
                    allowed[words[1], b] = 1
        }
        known[words[1]] = allowed[words[1], words[1]] = 1
    }
}
function folder_of(path) {
    sub(/\/[^\/]*$/, "", path)
    return path
}
# The folder of a header that a test includes: beside it, of the tests, or of what is tested.
function tested_folder(name,    target) {
    if (name !~ /\//)
        return name ~ /^emulation/ ? "tests/emulation" : folder
    target = folder_of(name)
    if (("tests/" target) in known)
        return "tests/" target
    if (("tests/fuzz/" target) in known)
        return "tests/fuzz/" target
    if (target in known)
        allowed[folder, target] = 1
    return target
}
BEGIN {
    standard = " assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h locale.h math.h " \
               "setjmp.h signal.h stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h " \
               "stdnoreturn.h string.h tgmath.h threads.h time.h uchar.h wchar.h wctype.h "
    cuda = "^(cuda|cudnn|cublas|cub/|curand|cusparse|cufft|nccl|nvml|nvtx|nvToolsExt|nvrtc|cooperative_groups|" \
           "thrust/|mma\\.h|device_)"
    read_order()
}
FNR == 1 {
    folder = folder_of(FILENAME)
    sub(/^src\//, "", folder)
    used[folder] = 1
    is_test = folder ~ /^tests/
    is_plugin = folder ~ /^python/
    public = folder ~ /^include/ ? "header" : folder ~ /^examples/ ? "example" : ""
    if (!public && folder != "tests" && !(folder in known))
        fail("the folder " folder " is not in the order")
}
/^[ \t]*#[ \t]*include/ {
    text = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", text)
    quoted = text ~ /^"/
    if (!quoted && text !~ /^</) {
        fail("an include must name a file")
        next
    }
    name = substr(text, 2)
    sub(/[">].*/, "", name)
    checked++
    if (name ~ cuda && !is_test && folder !~ /(^|\/)cuda(\/|$)/)
        fail("CUDA only in folders named cuda")
    if (name ~ /^\.\.?\// || name ~ /\/\.\.?\//)
        fail("no relative paths")
    else if (public == "header") {
        if (quoted ? name !~ /^comet\// : !index(standard, " " name " "))
            fail("a public header includes only public headers and the C standard library")
    } else if (name ~ /^comet\//)
        ;   # public: for everyone
    else if (quoted && public == "example")
        fail("an example includes only what is public")
    else if (quoted) {
        target = is_test ? tested_folder(name) : (is_plugin ? "python/native/" : "") folder_of(name)
        if (!(target in known))
            fail("own headers are included with their folder, as \"" folder "/x.h\"")
        else if (!((folder, target) in allowed))
            fail(folder " must not use " target)
    } else if (folder_of(name) in known)
        fail("own headers are included with quotes")
}
END {
    if (!checked) {
        print "no #include found: this check is broken"
        exit 1
    }
    for (folder in known)
        if (!(folder in used)) {
            print folder " is in the order, but has no sources"
            failed = 1
        }
    if (!failed)
        printf "%d includes follow the order of the folders\n", checked
    exit failed
}
' $files
