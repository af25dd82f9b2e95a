/* SPDX-License-Identifier: Apache-2.0 */
#include "control/collect/correlate.h"

#include "base/vector/loop.h"

enum { LANES = 16 };

COMET_CLONES(dot, (const float *a, const float *b, int64_t count, double *result), (a, b, count, result)) {
    float lanes[LANES] = {0};
    double sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    for (int k = 0; k < LANES; k++)
        sum += (double)lanes[k];
    *result = sum;
}

COMET_CLONES(add_scaled, (const float *x, float scale, int64_t count, float *to), (x, scale, count, to)) {
    for (int64_t i = 0; i < count; i++)
        to[i] += scale * x[i];
}

double comet_correlate_dot(const float *a, const float *b, int64_t count) {
    double sum;
    dot(a, b, count, &sum);
    return sum;
}

void comet_correlate(const float *x, const double *squares, int positions, int64_t inputs, const float *weights,
                     float *sums, comet_correlation *found) {
    for (int p = 0; p < positions; p++) {
        const float *at = x + p * inputs;
        double u;
        dot(weights, at, inputs, &u);
        found->squares += u * u;
        found->own += u * u * squares[p];
        add_scaled(at, (float)u, inputs, sums);
    }
}
