/* SPDX-License-Identifier: Apache-2.0 */
/* An encoder of eb and zvc written from docs/format.md alone: what the library writes must be these bytes. */
#ifndef TESTS_SUPPORT_SPEC_ENCODER_H
#define TESTS_SUPPORT_SPEC_ENCODER_H

#include <stddef.h>

#include "support/spec/spec_format.h"

/*
 * s: codec, dtype, layout, ndim, shape, flags, bound and grid; the rest is filled in. patterns: what is stored, in
 * logical order (with a grid: y as fp32). out: at least count * 5 + 8192 bytes. Returns the bytes of the stream.
 */
size_t spec_encode(spec_stream *s, const void *patterns, uint64_t seed, unsigned char *out);

#endif
