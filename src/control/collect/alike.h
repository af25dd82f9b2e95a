/* SPDX-License-Identifier: Apache-2.0 */
/* How alike the errors of rounding are at two places of a map. */
#ifndef COMET_CONTROL_COLLECT_ALIKE_H
#define COMET_CONTROL_COLLECT_ALIKE_H

#include <math.h>
#include <stdint.h>

#include "base/bits.h"

/*
 * An error of rounding is a sawtooth of the value. Two values that are apart by `t` cells, wherever they lie in them,
 * have errors whose product is in the mean 1 - 6 t (1 - t) of the variance, t without its whole part.
 */
COMET_HOST_DEVICE static inline __attribute__((always_inline)) float comet_alike(float apart) {
    const float t = apart - floorf(apart);
    return 1 - 6 * t * (1 - t);
}

/*
 * What is stored of values x, by channel: scale * x + shift; it passes a ReLU above the threshold, below it where the
 * slope is negative.
 */
typedef struct comet_alike_channels {
    const float *scale, *shift; /* NULL: x itself, which is off where it is 0 */
    const float *threshold;     /* NULL: all of it is on */
    const float *slope;         /* with a threshold */
    const float *gamma;         /* what an error is multiplied with behind it; NULL: 1 */
    float inverse_cell;
} comet_alike_channels;

/* At one place: in cells of the rounding, and 1 or 0 for what is on or off. */
void comet_alike_read(const float *x, const comet_alike_channels *channels, int64_t count, float *cells, float *on);

/*
 * Sums over channels and pairs of places of what the product of two errors is in the mean, in parts of their
 * variance.
 */
typedef struct comet_alike_errors_sums {
    double plain, pairs;    /* of all values; how many */
    double masked, weights; /* of those on at both places, weighted; the weights of those on at the first one */
} comet_alike_errors_sums;

/*
 * `a` and `b`: the values at the two places, in cells of the rounding; `weight`: 0 for what is off at the first;
 * `on`: 1 or 0 at the second.
 */
void comet_alike_errors(const float *a, const float *b, const float *weight, const float *on, int64_t count,
                        comet_alike_errors_sums *sums);

#endif
