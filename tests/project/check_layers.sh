#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The dependency rule of CONTRIBUTING.md, checked on every #include line:
#   base <- codec <- (control, store) <- train <- cmd; base <- data <- train
# A file includes headers of its own layer, of lower layers and of include/comet; public headers include only public headers
# and the C standard library; examples only what is public; CUDA only in codec/cuda, store/cuda, train/cuda and cmd/cuda.
# usage: check_layers.sh [ROOT]
set -euo pipefail
cd "${1:-.}"

files=$(find include src cmd examples -type f \( -name '*.c' -o -name '*.h' -o -name '*.h.in' -o -name '*.cu' -o -name '*.cuh' \) | sort)
[ -n "$files" ] || { echo "no source found: this check is broken"; exit 1; }

# shellcheck disable=SC2086
awk '
BEGIN {
    allowed["base"] = " base "
    allowed["codec"] = " base codec "
    allowed["control"] = " base codec control "
    allowed["store"] = " base codec store "
    allowed["data"] = " base data "
    allowed["train"] = " base codec control store data train "
    allowed["cmd"] = " base codec control store data train cmd "
    standard = " assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h locale.h math.h setjmp.h " \
               "signal.h stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h stdnoreturn.h " \
               "string.h tgmath.h threads.h time.h uchar.h wchar.h wctype.h "
    cuda = "^(cuda|cudnn|cublas|cub/|curand|cusparse|cufft|nccl|nvml|nvtx|nvToolsExt|nvrtc|cooperative_groups|thrust/|mma\\.h|device_)"
}
function fail(why) {
    printf "%s:%d: %s: %s\n", FILENAME, FNR, $0, why
    failed = 1
}
FNR == 1 {
    split(FILENAME, part, "/")
    layer = part[1] == "src" ? part[2] : part[1]   # include, examples, cmd or a folder of src
    is_cuda = FILENAME ~ /^(src\/(codec|store|train)|cmd)\/cuda\//
    if (part[1] == "src" && !(layer in allowed))
        fail("src/" layer " is not a layer")
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
    if (name ~ cuda && !is_cuda)
        fail("CUDA only in codec/cuda, store/cuda, train/cuda and cmd/cuda")
    if (name ~ /^\.\.?\// || name ~ /\/\.\.?\//)
        fail("no relative paths")
    else if (layer == "include") {
        if (quoted ? name !~ /^comet\// : !index(standard, " " name " "))
            fail("a public header includes only public headers and the C standard library")
    } else if (name ~ /^comet\//)
        ;   # public: for everyone
    else if (layer == "examples") {
        if (quoted)
            fail("an example includes only what is public")
    } else if (name ~ /\//) {
        split(name, part, "/")
        known = part[1] in allowed
        if (known && !index(allowed[layer], " " part[1] " "))
            fail(layer " must not include " part[1])
        else if (known && !quoted)
            fail("own headers are included with quotes")
        else if (!known && quoted)
            fail(part[1] " is not a layer")
    } else if (quoted && layer != "cmd")
        fail("own headers are included with their layer, as \"" layer "/" name "\"")
}
END {
    if (!checked) {
        print "no #include found: this check is broken"
        exit 1
    }
    if (!failed)
        printf "%d includes follow the rule\n", checked
    exit failed
}
' $files
