#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The house rules that can be counted:
#   - no source line above 120 columns, comments included (clang-format does not wrap those);
#   - no folder with more than 25 source files: by then there are two things in it;
#   - no source file above 600 lines outside tests;
#   - no .c file below 30 lines, unless it is a thing of its own and the list below says what;
#   - no line of README.md, CONTRIBUTING.md and docs/*.md above 120 columns, but for tables, what a link points to, and
#     what a command line in a code block prints (a block with a line that begins with `$ `);
#   - every file of the project that these link to is there;
#   - every path `src/...`, `cmd/...` or `include/...` that docs/design.md and CONTRIBUTING.md name is there.
# usage: check_house.sh [ROOT]
set -euo pipefail
cd "${1:-.}"
columns=120 most_files=25 most_lines=600 least_lines=30

# One file for each variant of a kernel, so that they compile side by side: as many as there are.
uncounted_folders='src/codec/cuda/instances'

# Small files that are things of their own: the file, and what it is.
small_files='
cmd/look/colours.c                  numbers as colours
src/study/blocks.c                  blocks of memory that are given back together
cmd/common/workers.c                threads of the command: how many, and how they wait
src/base/message.c                  the line beside a status
src/base/vector/loop.c              loops over threads
src/codec/eb/cpu/tile_reference.c   the reference among the instruction sets, built as each of them is
src/codec/eb/quantiser.c            what quantiser_steps.h, which kernels compile too, is for the CPU
src/control/number.c                arithmetic that is the same to the bit everywhere
src/control/policy_fixed.c          a controller
src/store/device/cuda_absent.c      in the place of store/device/cuda where there is no CUDA
src/store/host/store_io.c           the seam to the system that tests replace
src/train/backend/cuda_absent.c     in the place of train/backend/cuda where there is no CUDA
src/train/backend/cuda/guard.c      whether an update may be made
src/train/backend/cuda/ops/images.c an op
src/train/graph/pattern.c           patterns of layer names
src/train/models/alexnet.c          a model
src/train/models/layers.c           layers that models share
'

fails() {
    echo "$*"
    failed=1
}
failed=0

is_listed() { # NAME LIST: whether a line of the list begins with it
    printf '%s\n' "$2" | awk -v name="$1" '$1 == name { found = 1 } END { exit !found }'
}

folders=(include src cmd examples tests bench scripts cmake)
[ ! -d python ] || folders+=(python)
files=$(find "${folders[@]}" CMakeLists.txt -type f \( -name '*.c' -o -name '*.h' -o -name '*.h.in' -o -name '*.cu' -o \
    -name '*.cuh' -o -name '*.cc' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' -o -name CMakeLists.txt \) | sort)
[ -n "$files" ] || { echo "no source found: this check is broken"; exit 1; }

# ---- lines ----

# shellcheck disable=SC2086
long=$(awk -v most=$columns 'length($0) > most { printf "%s:%d: %d columns\n", FILENAME, FNR, length($0) }' $files)
[ -z "$long" ] || fails "$long"

# ---- files ----

while read -r lines file; do
    case $file in
        tests/*) continue ;;
    esac
    [ "$lines" -le $most_lines ] || fails "$file: $lines lines; more than $most_lines want to be two files"
    case $file in
        src/*.c | cmd/*.c)
            if [ "$lines" -lt $least_lines ]; then
                is_listed "$file" "$small_files" ||
                    fails "$file: $lines lines; if it is a thing of its own, the list in $0 says so"
            elif is_listed "$file" "$small_files"; then
                fails "$file: is listed as a small file, but has $lines lines"
            fi
            ;;
    esac
done < <(printf '%s\n' "$files" | xargs wc -l | awk '$2 != "total"')
while read -r file reason; do
    [ -z "$file" ] || [ -f "$file" ] || fails "$file: is listed as a small file ($reason), but is not there"
done <<<"$small_files"

# ---- folders ----

while read -r count folder; do
    is_listed "$folder" "$uncounted_folders" || [ "$count" -le $most_files ] ||
        fails "$folder: $count files; more than $most_files want to be two folders"
done < <(printf '%s\n' "$files" | sed 's#/[^/]*$##' | sort | uniq -c)

# ---- documents ----

# A code block is looked at when it ends: only then it is known whether a command's output is in it.
# shellcheck disable=SC2016
wide='function report(place, line) {
        gsub(/\]\([^)]*\)/, "]", line)
        if (length(line) > most) printf "%s: %d columns\n", place, length(line)
    }
    FNR == 1 { inside = 0 }
    /^ *```/ {
        if (inside && !printed) for (i = 1; i <= count; i++) report(places[i], lines[i])
        inside = !inside; count = printed = 0
        next
    }
    inside { places[++count] = FILENAME ":" FNR; lines[count] = $0; if (/^ *\$ /) printed = 1; next }
    !/^ *\|/ { report(FILENAME ":" FNR, $0) }'
documents=$(find README.md CONTRIBUTING.md docs -maxdepth 1 -name '*.md' | sort)
# shellcheck disable=SC2086
long=$(awk -v most=$columns "$wide" $documents)
[ -z "$long" ] || fails "$long"

# shellcheck disable=SC2086
while IFS=: read -r document target; do
    [ -e "$(dirname "$document")/$target" ] || fails "$document: there is no $target to link to"
done < <(grep -HoE '\]\([^)#: ]+' $documents | sed 's/:](/:/')

for document in docs/design.md CONTRIBUTING.md; do
    while read -r path; do
        case $path in
            *[!A-Za-z0-9_./*,{}-]*) fails "$document: \`$path\`: not a path"; continue ;;
        esac
        for one in $(eval "printf '%s\n' $path"); do # braces; a star that matches nothing stays
            [ -e "$one" ] || fails "$document: there is no \`$one\`"
        done
    done < <(grep -oE '`(src|cmd|include)/[^` ]*`' "$document" | tr -d '`' | sort -u)
done

[ $failed = 0 ] && echo "$(printf '%s\n' "$files" | wc -l) files keep the house rules"
exit $failed
