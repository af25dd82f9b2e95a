/* SPDX-License-Identifier: Apache-2.0 */
#include "control/collect/alike.h"

#include "base/vector/loop.h"

enum { LANES = 16 };

COMET_CLONES(add_errors,
             (const float *a, const float *b, const float *weight, const float *on, int64_t count, double *sums),
             (a, b, weight, on, count, sums)) {
    float plain[LANES] = {0}, masked[LANES] = {0}, weights[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const float product = comet_alike(b[i + k] - a[i + k]);
            plain[k] += product;
            masked[k] += weight[i + k] * on[i + k] * product;
            weights[k] += weight[i + k];
        }
    for (; i < count; i++) {
        const float product = comet_alike(b[i] - a[i]);
        plain[0] += product;
        masked[0] += weight[i] * on[i] * product;
        weights[0] += weight[i];
    }
    for (int k = 0; k < LANES; k++) {
        sums[0] += (double)plain[k];
        sums[1] += (double)masked[k];
        sums[2] += (double)weights[k];
    }
}

COMET_CLONES(read_plain, (const float *x, float inverse, int64_t count, float *restrict cells, float *restrict on),
             (x, inverse, count, cells, on)) {
    for (int64_t c = 0; c < count; c++) {
        cells[c] = x[c] * inverse;
        on[c] = x[c] != 0;
    }
}

COMET_CLONES(read_grid,
             (const float *x, const comet_alike_channels *a, int64_t count, float *restrict cells, float *restrict on),
             (x, a, count, cells, on)) {
    const float *scale = a->scale, *shift = a->shift, inverse = a->inverse_cell;
    for (int64_t c = 0; c < count; c++) {
        cells[c] = (scale[c] * x[c] + shift[c]) * inverse;
        on[c] = 1;
    }
}

COMET_CLONES(read_relu,
             (const float *x, const comet_alike_channels *a, int64_t count, float *restrict cells, float *restrict on),
             (x, a, count, cells, on)) {
    const float *scale = a->scale, *shift = a->shift, *threshold = a->threshold, *slope = a->slope;
    const float inverse = a->inverse_cell;
    for (int64_t c = 0; c < count; c++) {
        const float u = scale[c] * x[c] + shift[c], above = u - threshold[c];
        cells[c] = u * inverse;
        on[c] = (slope[c] < 0 ? -above : above) > 0;
    }
}

void comet_alike_read(const float *x, const comet_alike_channels *a, int64_t count, float *cells, float *on) {
    if (!a->scale)
        read_plain(x, a->inverse_cell, count, cells, on);
    else if (!a->threshold)
        read_grid(x, a, count, cells, on);
    else
        read_relu(x, a, count, cells, on);
}

void comet_alike_errors(const float *a, const float *b, const float *weight, const float *on, int64_t count,
                        comet_alike_errors_sums *sums) {
    double more[3] = {0, 0, 0};
    add_errors(a, b, weight, on, count, more);
    sums->plain += more[0];
    sums->pairs += (double)count;
    sums->masked += more[1];
    sums->weights += more[2];
}
