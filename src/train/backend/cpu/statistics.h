/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over gradients and activations that the error model asks for. Each reads its arrays once. Sums are in fp64 but for a few values at a
 * time, in blocks of rows that do not depend on the number of threads.
 */
#ifndef COMET_TRAIN_CPU_STATISTICS_H
#define COMET_TRAIN_CPU_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

#include "comet/threads.h"

/*
 * Rows of channels, NHWC. Results, by channel, are at the beginning of `scratch`, which has comet_statistics_bytes for as many arrays as there
 * are results, at most three, or five of a batch norm with the greatest.
 */
enum { COMET_STATISTICS_BLOCKS = 8, COMET_STATISTICS_ARRAYS = 3, COMET_STATISTICS_MOST_ARRAYS = 5 };

static inline size_t comet_statistics_bytes(int64_t channels, int arrays) {
    return (size_t)channels * COMET_STATISTICS_BLOCKS * (size_t)arrays * sizeof(double);
}

typedef struct comet_sizes {
    double squares, sizes; /* sums of x^2 and |x| */
} comet_sizes;

/* Of all values. `scratch`: for one channel. */
comet_sizes comet_statistics_sizes(comet_threads *threads, const float *x, int64_t count, double *scratch);

/* By channel: sums of x and of x^2. */
void comet_statistics_moments(comet_threads *threads, const float *x, int64_t rows, int64_t channels, double *scratch);

/*
 * A batch norm's backward, u = scale * x + shift (NULL: x is u), g the gradient behind its ReLU. By channel: sums of g^2 and g u, how many are on,
 * then the greatest |g| and |u|. `greatest` 0: not these two.
 */
typedef struct comet_norm_rows {
    const float *x, *dy;
    const float *scale, *shift, *gamma, *beta;
    const unsigned char *mask; /* a bit for each value: the ReLU is on; NULL: from u */
    int64_t first;             /* the row of the mask that x and dy begin with */
    int relu, greatest;
} comet_norm_rows;

void comet_statistics_norm(comet_threads *threads, const comet_norm_rows *n, int64_t rows, int64_t channels,
                           double *scratch);

/* g of one row. */
void comet_statistics_norm_gradient(const comet_norm_rows *n, int64_t row, int64_t channels, float *g);

/*
 * SiLU's backward at y = gamma u + beta, dz behind it. By channel: sums of act'(y)^2, of (dz act''(y))^2 and of
 * (dz act'(y) + dz act''(y) (y - beta))^2.
 */
void comet_statistics_silu(comet_threads *threads, const float *y, const float *dz, const float *beta, int64_t rows,
                           int64_t channels, double *scratch);

/* Factors s of samples' channels, s = sigmoid(z). By channel: sums over samples of (s (1 - s))^2 sum(dy^2), and of s^2. */
void comet_statistics_factors(comet_threads *threads, const float *s, const float *dy, int64_t samples, int64_t pixels,
                              int64_t channels, double *scratch);

/* What a layer's output u, weights . x, has to do with its inputs x at some positions. */
typedef struct comet_correlation {
    double squares; /* sum of u^2 */
    double own;     /* sum of u^2 x . x */
} comet_correlation;

/* Added to both, and u x to `sums`; `squares`: x . x of each position. */
void comet_statistics_correlate(const float *x, const double *squares, int positions, int64_t inputs,
                                const float *weights, float *sums, comet_correlation *found);
double comet_statistics_dot(const float *a, const float *b, int64_t count);

#endif
