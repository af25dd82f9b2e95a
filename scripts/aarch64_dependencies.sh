#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts zlib, cmocka, DLPack, libjpeg-turbo, libpng and oneDNN for 64-bit Arm into a folder, for the aarch64 preset. The
# packages are downloaded from the Debian mirrors this machine already uses, checked by apt as always, and unpacked, not
# installed: the system is not changed and root is not needed.
# usage: scripts/aarch64_dependencies.sh FOLDER
set -euo pipefail

target=$(realpath -m "$1")
packages=(zlib1g zlib1g-dev libcmocka0 libcmocka-dev libdlpack-dev libjpeg62-turbo libjpeg62-turbo-dev
    libpng16-16 libpng-dev
    libdnnl2 libdnnl-dev)
[ "$(cat "$target/complete" 2>/dev/null)" != "${packages[*]}" ] || exit 0

echo "Unpacking ${packages[*]} for arm64 into $1"
rm -rf "$target"
mkdir -p "$target/apt/lists/partial" "$target/apt/cache/archives/partial" "$target/apt/state"
touch "$target/apt/state/status"
# apt with a state of its own, for which arm64 is the only architecture.
options=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64
    -o Dir::State="$target/apt/state" -o Dir::State::status="$target/apt/state/status"
    -o Dir::State::lists="$target/apt/lists" -o Dir::Cache="$target/apt/cache" -o APT::Sandbox::User=root)
apt-get "${options[@]}" -q update
cd "$target/apt"
apt-get "${options[@]}" -q download "${packages[@]}"
for package in ./*.deb; do
    dpkg-deb -x "$package" "$target"
done
rm -rf "$target/apt"

# Links that name files of the running system are turned to the files beside them.
find "$target" -type l -lname '/*' | while read -r link; do
    ln -sfr "$target$(readlink "$link")" "$link"
done
# One folder of libraries, as on a system where /lib is /usr/lib.
if [ -d "$target/lib/aarch64-linux-gnu" ]; then
    for library in "$target"/lib/aarch64-linux-gnu/*; do
        ln -sfr "$library" "$target/usr/lib/aarch64-linux-gnu/"
    done
fi
echo "${packages[*]}" >"$target/complete"
