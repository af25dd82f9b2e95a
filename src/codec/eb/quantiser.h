/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and limits of the error-bounded quantiser: docs/format.md, section 3. */
#ifndef COMET_CODEC_QUANTISER_H
#define COMET_CODEC_QUANTISER_H

#include <stdint.h>

#include "comet/codec.h"

typedef enum quantiser_mode {
    QUANTISE_NEAREST,
    QUANTISE_STOCHASTIC,
    QUANTISE_KEEP_RISE,  /* keep-mask, in the middle of a step: +-(2 |q| - 1) * s / 2 */
    QUANTISE_KEEP_TREAD, /* keep-mask, nearest, but a non-zero never becomes 0 */
    QUANTISE_GRID
} quantiser_mode;

typedef struct quantiser_class {
    float step, inverse;
    uint32_t reach; /* bit pattern of the largest |value| the class takes; 0: the class is not used */
    quantiser_mode mode;
    uint8_t wide; /* codes of 16 bits, not 8 */
} quantiser_class;

enum { QUANTISER_WIDE = 4, QUANTISER_CLASSES = 5 }; /* narrow ones first; the last has codes of 16 bits */

typedef struct quantiser {
    float bound;       /* B; 0: lossless, no class is used */
    comet_dtype dtype; /* of what is decoded */
    quantiser_class classes[QUANTISER_CLASSES];
} quantiser;

/* The bound really used: `bound` cut down to fp32 and to the range of the format. bound is finite and >= 0. */
float comet_quantiser_bound(double bound, comet_dtype dtype);

/* The classes for a bound from comet_quantiser_bound. flags: STREAM_KEEP_MASK, STREAM_STOCHASTIC, STREAM_GRID. */
void comet_quantiser_init(quantiser *q, float bound, comet_dtype dtype, unsigned flags);

#define QUANTISER_GRID_BIAS 192.0f /* code + 192 is a float's upper bits for codes of up to +-64 */

/* A channel's threshold in terms of a class's codes: docs/format.md, 'Grid'. */
typedef struct grid_channel {
    float edge;   /* e: the least value on the upper side; 0 where no code comes near the threshold */
    float base;   /* K: what is decoded of code q is fma(q + QUANTISER_GRID_BIAS, step, K) */
    int32_t code; /* A: codes from here on are on the upper side */
} grid_channel;

grid_channel comet_quantiser_grid(const quantiser_class *c, float threshold, float slope);

#endif
