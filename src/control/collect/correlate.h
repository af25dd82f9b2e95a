/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of a layer at a few positions, and what they have to do with its inputs there. */
#ifndef COMET_CONTROL_COLLECT_CORRELATE_H
#define COMET_CONTROL_COLLECT_CORRELATE_H

#include <stdint.h>

/* What a layer's output u, weights . x, has to do with its inputs x at some positions. */
typedef struct comet_correlation {
    double squares; /* sum of u^2 */
    double own;     /* sum of u^2 x . x */
} comet_correlation;

/* Added to both, and u x to `sums`; `squares`: x . x of each position. */
void comet_correlate(const float *x, const double *squares, int positions, int64_t inputs, const float *weights,
                     float *sums, comet_correlation *found);
double comet_correlate_dot(const float *a, const float *b, int64_t count);

#endif
