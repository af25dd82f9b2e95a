/* SPDX-License-Identifier: Apache-2.0 */
/* Values for tests: what networks produce, and what breaks quantisers. */
#ifndef TESTS_SUPPORT_VALUES_H
#define TESTS_SUPPORT_VALUES_H

#include "comet/tensor.h"
#include "support/rng.h"

typedef enum value_kind {
    VALUES_GAUSS,     /* dense */
    VALUES_RELU,      /* three quarters zeros */
    VALUES_SMOOTH,    /* a slow walk, as along the rows of a map */
    VALUES_CONSTANT,  /* one value */
    VALUES_ZEROS,     /* all 0 */
    VALUES_FEW,       /* zeros, and one value in a thousand that is not */
    VALUES_SUBNORMAL, /* of the dtype */
    VALUES_HUGE,      /* up to the largest finite one */
    VALUES_SPECIAL,   /* NaN of several payloads, infinities, -0, among others */
    VALUES_EDGES,     /* bin edges and ties of the bound, and their neighbours */
    VALUES_BINADES,   /* around powers of two, and where 16-bit types round */
    VALUES_OUTLIERS,  /* small, and a few that are large */
    VALUES_BITS,      /* any pattern */
    VALUES_MIXED,     /* runs of all of these */
    VALUES_KINDS
} value_kind;

const char *value_kind_name(value_kind kind);

/* Fills `count` patterns. `scale` is about the rms of what is not extreme; `bound` is what EDGES works against. */
void values_fill(rng *r, value_kind kind, comet_dtype dtype, double scale, double bound, void *patterns, int64_t count);

/* One value on or next to an edge of the bound's bins: (k + 1/2) or k times one of the steps the format may use. */
uint32_t value_on_edge(rng *r, comet_dtype dtype, double bound);

#endif
