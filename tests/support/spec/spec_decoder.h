/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second decoder of eb and zvc, written from docs/format.md alone: one value at a time, formula by formula, without
 * anything of the library. Slow, and not meant for hostile streams beyond what its checks catch.
 */
#ifndef TESTS_SUPPORT_SPEC_DECODER_H
#define TESTS_SUPPORT_SPEC_DECODER_H

#include <stddef.h>

#include "comet/codec.h"
#include "support/failure.h"

/* Fills `patterns` (of exactly `pattern_bytes`) in logical order. */
int spec_decode(const void *stream, size_t bytes, const comet_codec_grid *grid, void *patterns, size_t pattern_bytes,
                failure *f);

#endif
