#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure that what a build needs is installed: Debian packages, named with the reason before anything happens.
# When nothing is missing it only looks and touches neither the network nor apt.
#
# usage: scripts/setup.sh [test|browser|wheel|fuzz|format|aarch64]    what that needs, beside what every build needs
# COMET_NO_INSTALL=1   only check: say what is missing, install nothing, exit with 1 if any of it is required
set -euo pipefail

# How to tell that it is there (a command, a header, a module or a header of Python, or a file), the Debian package, and
# what it is for.
required=(
    'command:gcc          gcc           compiles the library and the command'
    'header:stdlib.h      libc6-dev     headers of the C library'
    'command:cmake        cmake         configures the build'
    'command:ninja        ninja-build   runs the build'
    'command:pkg-config   pkg-config    tests that an installed libcomet is found'
    'header:zlib.h        zlib1g-dev    checksums of streams'
    'header:jpeglib.h     libjpeg62-turbo-dev reads JPEG images'
    'header:png.h         libpng-dev    reads PNG images'
    'header:oneapi/dnnl/dnnl.h libdnnl-dev convolutions of the trainer'
    'header:dlpack/dlpack.h libdlpack-dev tensors of other frameworks'
    'header:cmocka.h      libcmocka-dev unit tests'
    'command:python3      python3       tests of the command'
    'command:g++          g++           tests: headers as C++, kernels on the CPU'
)
# Installed if that is possible; what stands in for it is said when it is used.
wanted=(
    'file:/usr/share/datasets/fashion-mnist dataset-fashion-mnist images to train with (else generated ones)'
)
optional=(
    'header:zfp.h         libzfp-dev    zfp, measured beside Comet by comet bench'
    'header:zstd.h        libzstd-dev   zstd, measured beside Comet by comet bench'
)
python_headers='python:Python.h python3-dev the module for Python'
case ${1:-} in
'') ;;
test)
    required+=("$python_headers")
    [ -n "${COMET_NO_TORCH:-}${COMET_TORCH_PYTHON:-}" ] ||
        wanted+=('module:ensurepip python3-venv PyTorch to compare the trainer with (else those tests are skipped)')
    ;;
browser)
    required+=('chromium: chromium opens reports' 'file:/usr/share/fonts/truetype fonts-dejavu-core letters in reports')
    ;;
wheel) required+=("$python_headers" 'module:ensurepip python3-venv pip, which builds the wheel') ;;
fuzz)
    required+=('command:clang clang libFuzzer'
        'fuzzer:clang libclang-rt-14-dev runtime of libFuzzer and the sanitizers')
    ;;
format) required+=('command:clang-format clang-format formats the code') ;;
aarch64)
    required+=('command:aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu compiles for 64-bit Arm'
        'command:aarch64-linux-gnu-g++ g++-aarch64-linux-gnu compiles kernels for the tests'
        'command:qemu-aarch64 qemu-user runs the tests on this machine')
    ;;
*)
    echo "usage: scripts/setup.sh [test|browser|wheel|fuzz|format|aarch64]" >&2
    exit 2
    ;;
esac

present() {
    local name=${1#*:}
    case $1 in
    command:*) command -v "$name" >/dev/null ;;
    chromium:*)
        for name in ${COMET_CHROMIUM:-chromium chromium-browser google-chrome google-chrome-stable chrome}; do
            command -v "$name" >/dev/null && return
        done
        return 1
        ;;
    file:*) [ -e "$name" ] ;;
    module:*) python3 -c "import $name" 2>/dev/null || /usr/bin/python3 -c "import $name" 2>/dev/null ;;
    python:*)
        python3 -c 'import sys, sysconfig; open(sysconfig.get_path("include") + "/" + sys.argv[1])' "$name" \
            2>/dev/null
        ;;
    header:*)
        # The compiler knows where to look; the two usual folders are asked first because that is quick.
        [ -e "/usr/include/$name" ] || [ -e "/usr/local/include/$name" ] ||
            { command -v gcc >/dev/null && echo "#include <$name>" | gcc -E -x c - >/dev/null 2>&1; }
        ;;
    fuzzer:*) compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a' >/dev/null ;;
    esac
}

missing=() # Debian packages
report=""
collect() { # collect KIND ENTRY...
    local kind=$1 probe package purpose
    shift
    for entry in "$@"; do
        read -r probe package purpose <<<"$entry"
        present "$probe" && continue
        missing+=("$package")
        report+=$(printf '    %-22s %s (%s)' "$package" "$purpose" "$kind")$'\n'
    done
}
collect required "${required[@]}"
required_missing=${#missing[@]}
collect wanted "${wanted[@]}"
wanted_missing=${#missing[@]}
collect optional "${optional[@]}"

if command -v cmake >/dev/null; then
    version=$(cmake --version | sed -n '1s/[^0-9]*//p')
    if [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" != 3.25 ]; then
        echo "cmake $version is too old: Comet needs 3.25 or later (Debian 12 has it)" >&2
        exit 1
    fi
fi
[ ${#missing[@]} -gt 0 ] || exit 0

fail() { # what is missing, and what to do about it
    printf 'Not installed:\n%s%s\n' "$report" "$1" >&2
    exit 1
}
command="apt-get install --no-install-recommends ${missing[*]}"
if [ "$wanted_missing" = 0 ]; then
    # Not worth a wait or a password: everything works without them.
    echo "Optional and not installed: ${missing[*]} (peers in comet bench). To have them: $command"
    exit 0
fi
give_up() { # the same, but what is only wanted can be missing
    [ "$required_missing" = 0 ] || fail "$1"
    printf 'Not installed, going on without:\n%s%s\n' "$report" "$1"
    exit 0
}
[ -z "${COMET_NO_INSTALL:-}" ] || give_up "To install them, as root: $command"
command -v apt-get >/dev/null ||
    give_up "There is no apt-get here: please install these (the names are Debian's) and try again."
as_root=()
if [ "$(id -u)" != 0 ]; then
    # A password is asked for only if nothing can be built without.
    [ "$required_missing" != 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; } ||
        give_up "As root: $command"
    command -v sudo >/dev/null || fail "There is no sudo here. As root: $command"
    as_root=(sudo)
fi

install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}
printf 'Installing Debian packages%s:\n%s' "${as_root:+ with sudo}" "$report"
patience=() # without a network, what is only wanted must not cost much time
[ "$required_missing" != 0 ] || patience=(-o Acquire::Retries=0 -o Acquire::http::Timeout=10)
"${as_root[@]}" apt-get "${patience[@]}" update -q || echo "apt-get update failed: trying with the lists that are there"
[ "$required_missing" = 0 ] || install "${missing[@]:0:required_missing}"
for package in "${missing[@]:required_missing}"; do
    install "$package" || echo "Not installed: $package. Going on without it."
done
