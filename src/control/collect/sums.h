/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over gradients and activations that the error model asks for. Each reads its tensors once. Sums are in fp64
 * but for a few values at a time, in blocks of rows that do not depend on the number of threads.
 */
#ifndef COMET_CONTROL_COLLECT_SUMS_H
#define COMET_CONTROL_COLLECT_SUMS_H

#include "comet/threads.h"
#include "control/collect/maps.h"

enum { COMET_SUMS_BLOCKS = 8, COMET_SUMS_STRIP = 16, COMET_SUMS_MOST_ARRAYS = 5 };

/*
 * Results, by channel, are at the beginning of `sums`; `strips` are for tensors that do not lie in rows, the first
 * and the second.
 */
typedef struct comet_sums {
    double *sums;
    float *strips[2];
} comet_sums;

static inline size_t comet_sums_bytes(int64_t channels, int arrays) {
    return (size_t)channels * COMET_SUMS_BLOCKS * (size_t)arrays * sizeof(double);
}

/* Floats of a strip: so many rows, rounded up to what is summed together. */
static inline int64_t comet_sums_strip(int64_t channels) {
    return (COMET_SUMS_STRIP * channels + 63) / 64 * 64;
}

static inline size_t comet_sums_strip_bytes(const comet_maps *m) {
    return m->is_rows ? 0 : (size_t)comet_sums_strip(m->channels) * COMET_SUMS_BLOCKS * sizeof(float);
}

typedef struct comet_sizes {
    double squares, sizes; /* sums of x^2 and |x| */
} comet_sizes;

/* Of all values. The sums: of one channel, two arrays. */
comet_sizes comet_sums_sizes(comet_threads *threads, const comet_maps *x, const comet_sums *memory);

/* By channel: sums of x and of x^2. */
void comet_sums_moments(comet_threads *threads, const comet_maps *x, const comet_sums *memory);

/*
 * A batch norm's backward, u = scale * x + shift (NULL: x is u), g the gradient behind its ReLU. By channel: sums of
 * g^2 and g u, how many are on, then the greatest |g| and |u|. `greatest` 0: not these two.
 */
typedef struct comet_norm_rows {
    comet_maps x, dy;
    const float *scale, *shift, *gamma, *beta;
    const unsigned char *mask; /* a bit for each value: the ReLU is on; NULL: from u */
    int64_t first;             /* the row of the mask that x and dy begin with */
    int relu, greatest;
} comet_norm_rows;

void comet_sums_norm(comet_threads *threads, const comet_norm_rows *n, const comet_sums *memory);

/* g of one row; `x` and `dy`: room for a row each. */
void comet_norm_gradient(const comet_norm_rows *n, int64_t row, float *x, float *dy, float *g);

/*
 * SiLU's backward at y = gamma u + beta, dz behind it. By channel: sums of act'(y)^2, of (dz act''(y))^2 and of
 * (dz act'(y) + dz act''(y) (y - beta))^2.
 */
void comet_sums_silu(comet_threads *threads, const comet_maps *y, const comet_maps *dz, const float *beta,
                     const comet_sums *memory);

/*
 * Factors s of images' channels, s = sigmoid(z). By channel: sums over images of (s (1 - s))^2 sum(dy^2), and of s^2;
 * three arrays.
 */
void comet_sums_factors(comet_threads *threads, const comet_maps *s, const comet_maps *dy, const comet_sums *memory);

#endif
