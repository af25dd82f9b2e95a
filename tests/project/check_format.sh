#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All C code is as `make format` writes it.
# usage, from the repository's root: check_format.sh
set -euo pipefail

scripts/format.sh --check || {
    status=$?
    [ $status = 77 ] || echo "run: make format"
    exit $status
}
echo "formatted"
