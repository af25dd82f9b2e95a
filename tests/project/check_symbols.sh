#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What libcomet exports is what its headers declare with COMET_API, no more and no less, and every name starts with
# comet_. In the static library, where internal functions are visible to the linker too, all of them do.
# usage, from the repository's root: check_symbols.sh LIBCOMET LIBCOMET_INTERNAL NM [OTHER_STATIC_LIBRARY...]
set -euo pipefail

library=$1
static=$2
nm=$3
shift 3
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One declaration per line: comments, preprocessor lines and the bodies of braces removed.
declarations() {
    cat include/comet/*.h include/comet/*.h.in |
        sed -e ':a' -e '/\\$/{N;s/\\\n/ /;ba' -e '}' |
        sed -e 's@//.*@@' -e '/^[ \t]*#/d' | tr '\n' ' ' |
        sed -e 's@/\*@\x01@g' -e 's@\*/@\x02@g' -e 's@\x01[^\x02]*\x02@@g' -e 's@extern "C" {@@g' |
        sed -e ':a' -e 's@{[^{}]*}@@g' -e 'ta' | tr ';' '\n'
}

declarations | grep -E '(^|[ \t}])COMET_API ' |
    sed -E 's/\(.*//; s/\[.*//; s/.*[^A-Za-z0-9_]([A-Za-z0-9_]+)[ \t]*$/\1/' |
    sort -u >"$work/declared"
if [ ! -s "$work/declared" ]; then
    echo "no COMET_API declaration found in include/comet: this check is broken"
    exit 1
fi

unmarked=$(declarations | grep '(' | grep -vE 'COMET_API |typedef ' | sed 's/[ \t]\+/ /g' || true)
if [ -n "$unmarked" ]; then
    printf 'declared in include/comet without COMET_API:\n%s\n' "$unmarked"
    failed=1
fi

case $library in
*.so*) "$nm" -D --defined-only "$library" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort -u >"$work/exported" ;;
*) cp "$work/declared" "$work/exported" ;; # a static build: only the names below can be checked
esac

only() { # only MESSAGE FILE: prints the names, if there are any
    if [ -s "$2" ]; then
        echo "$1"
        sed 's/^/    /' "$2"
        failed=1
    fi
}
comm -13 "$work/declared" "$work/exported" >"$work/more"
comm -23 "$work/declared" "$work/exported" >"$work/less"
grep -v '^comet_' "$work/declared" >"$work/bare" || true
"$nm" -g --defined-only "$static" "$@" | awk 'NF == 3 {print $3}' | sort -u |
    grep -vE '^(comet_|__asan_|__odr_asan|__gcov|DW\.ref)' >"$work/bare_static" || true
only "exported by $library but not declared with COMET_API:" "$work/more"
only "declared with COMET_API but not exported by $library:" "$work/less"
only "declared with COMET_API but not named comet_...:" "$work/bare"
only "visible to the linker in $static but not named comet_...:" "$work/bare_static"

[ $failed = 0 ] && echo "$(wc -l <"$work/declared") symbols, all declared, exported and named comet_..."
exit $failed
