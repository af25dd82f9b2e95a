#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/torch_venv.sh without a network: what it answers, and that nothing half made is left or taken for whole.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
export XDG_CACHE_HOME=$cache PIP_NO_INDEX=1 PIP_FIND_LINKS=$cache
unset COMET_NO_TORCH COMET_TORCH_PYTHON COMET_TORCH_FOUND
failures=0

expect() { # exit code, what the line on standard output contains; then the command
    local code=$1 part=$2 answer found=0
    shift 2
    answer=$("$@" 2>"$cache/stderr") || found=$?
    if [ "$found" != "$code" ] || [[ $answer != *"$part"* ]]; then
        echo "$*: exit code $found and '$answer', not $code and '$part'"
        failures=1
    fi
}

expect 1 "COMET_NO_TORCH=1 is set" env COMET_NO_TORCH=1 scripts/torch_venv.sh
expect 1 "not today" env COMET_NO_TORCH="not today" scripts/torch_venv.sh --find
expect 2 "has no torch" env COMET_TORCH_PYTHON=/nowhere/python scripts/torch_venv.sh
[ ! -e "$cache/comet" ] || { echo "a folder was made though nothing was"; failures=1; }

python3 -c 'import sys, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null || {
    echo "skipped: python3 is none that makes virtual environments for PyTorch"
    exit $((failures ? 1 : 77))
}
expect 1 "scripts/torch_venv.sh makes one" scripts/torch_venv.sh --find
COMET_TORCH_PYTHON=/nowhere/python expect 1 "scripts/torch_venv.sh makes one" scripts/torch_venv.sh --find --torch 2.4.0
expect 1 "no package index" scripts/torch_venv.sh --torch newest
expect 2 "usage" scripts/torch_venv.sh --newest

# One that was killed has left its folder: it is not taken for whole, and is gone after the next try. Two at once do not
# meet.
mkdir -p "$cache/comet/torch-3.11-1.partial-1/bin"
ln -s "$(command -v python3)" "$cache/comet/torch-3.11-1.partial-1/bin/python"
expect 1 "scripts/torch_venv.sh makes one" scripts/torch_venv.sh --find
(expect 1 "pip could not get it" scripts/torch_venv.sh && exit $failures) &
expect 1 "pip could not get it" scripts/torch_venv.sh
wait $! || failures=1
grep -q "570 MB" "$cache/stderr" || { echo "it did not say how much it downloads"; failures=1; }
left=$(find "$cache/comet" -mindepth 1 ! -name torch.lock)
[ -z "$left" ] || { echo "left behind: $left"; failures=1; }
exit $failures
