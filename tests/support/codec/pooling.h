/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Max-pools for tests of comet/indices.h: what a framework would keep of random maps, the bytes that these become by
 * docs/codecs.md, and what any code and any index are, one value at a time and in 64 bits.
 */
#ifndef TESTS_SUPPORT_POOLING_H
#define TESTS_SUPPORT_POOLING_H

#include "comet/indices.h"
#include "support/rng.h"

typedef struct pooling {
    comet_pool_window window;
    int64_t count;
    int64_t *indices;      /* in memory's order */
    unsigned bits;         /* of each */
    size_t bytes;          /* packed */
    unsigned char *packed; /* as they must be */
} pooling;

/* Any kernel up to 16 x 16, floor and ceil mode, both layouts; not more than `most` outputs, if those of a map fit. */
comet_pool_window pooling_window(rng *r, int64_t most);

/* Windows at the limits of what is supported, with maps that no test could hold. */
enum { POOLING_EXTREMES = 6 };
comet_pool_window pooling_extreme(int which);

/* Pools random maps; where those would be too large, any place of each window is the greatest. */
pooling pooling_new(rng *r, const comet_pool_window *window);
void pooling_free(pooling *p);

/* Every output has a place in the map. (Wide dilations can step over a small one.) */
int pooling_is_possible(const comet_pool_window *window);

/* Whether `index` is a place of the window of output `i`; *code is its number then. */
int pooling_is_place(const comet_pool_window *window, int64_t i, int64_t index, unsigned *code);

/* What unpacking makes of a code, *valid: whether packing writes it. */
int64_t pooling_index(const comet_pool_window *window, int64_t i, unsigned code, int *valid);

/* Code i of packed bytes. */
unsigned pooling_code(const pooling *p, const unsigned char *packed, int64_t i);

#endif
