#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Comet as another project meets it: installed under a prefix, found with find_package and with pkg-config, linked, run.
# usage, from the repository's root: check_install.sh CMAKE BUILD_DIR CC GENERATOR SHARED
set -euo pipefail

cmake=$1
build=$2
cc=$3
generator=$4
shared=$5
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() { # quiet unless it fails
    if ! "$@" >"$work/log" 2>&1; then
        echo "failed: $*"
        cat "$work/log"
        exit 1
    fi
}

prefix=$work/prefix
run "$cmake" --install "$build" --prefix "$prefix"

echo "find_package:"
run "$cmake" -S "$here/consumer" -B "$work/consumer" -G "$generator" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$prefix"
run "$cmake" --build "$work/consumer"
"$work/consumer/consumer"

# The installation may be moved.
mv "$prefix" "$work/moved"
prefix=$work/moved

if [ -x "$prefix/bin/comet" ]; then
    echo "installed command:"
    run "$prefix/bin/comet" --help
    for file in man/man1/comet.1 bash-completion/completions/comet zsh/site-functions/_comet; do
        [ -s "$prefix/share/$file" ] || { echo "share/$file was not installed"; exit 1; }
    done
fi

if ! command -v pkg-config >/dev/null; then
    echo "pkg-config is not installed, so comet.pc was not tried (on Debian: apt-get install pkg-config)"
    exit 77
fi
echo "pkg-config:"
pc=$(find "$prefix" -name comet.pc)
libdir=$(dirname "$(dirname "$pc")")
static=
[ "$shared" = 1 ] || static=--static
export PKG_CONFIG_PATH=${pc%/*}
# shellcheck disable=SC2046
run "$cc" -std=c11 -o "$work/pc" "$here/consumer/main.c" $(pkg-config --cflags --libs $static comet)
LD_LIBRARY_PATH=$libdir "$work/pc"
