/* SPDX-License-Identifier: Apache-2.0 */
/* Sums: of two tensors, of gradients, of rows. */
#include "base/vector/loop.h"
#include "train/backend/cpu/kernels.h"

enum { ADD_GRAIN = 16384 };

typedef struct sum {
    float *sum;
    const float *a, *b;
} sum;

COMET_RANGE(add_range) {
    const sum s = *(const sum *)context;
    COMET_EACH for (int64_t i = first; i < end; i++) s.sum[i] = s.a[i] + s.b[i];
}

comet_status comet_cpu_add(comet_backend *backend, void *result, const void *a, const void *b, int64_t count) {
    comet_loop(backend->threads, count, ADD_GRAIN, add_range, &(sum){result, a, b});
    return COMET_OK;
}

static comet_status add_forward(const comet_op_call *call) {
    return comet_cpu_add(call->backend, call->y, call->x[0], call->x[1], comet_call_count(call, call->node->output));
}

const comet_op_kernel comet_cpu_add_op = {.forward = add_forward}; /* its gradients are its output's */

void comet_cpu_add_bias(float *y, const float *bias, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            y[r * columns + c] += bias[c];
}

void comet_cpu_sum_rows(float *result, const float *x, int64_t rows, int64_t columns, int accumulate) {
    enum { STRIP = 64 };
    for (int64_t c = 0; c < columns; c += STRIP) {
        double total[STRIP] = {0};
        int64_t n = columns - c < STRIP ? columns - c : STRIP;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < n; k++)
                total[k] += (double)x[r * columns + c + k];
        for (int64_t k = 0; k < n; k++)
            result[c + k] = (float)(accumulate ? total[k] + (double)result[c + k] : total[k]);
    }
}
