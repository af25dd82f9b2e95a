/* SPDX-License-Identifier: Apache-2.0 */
/* A sample's map as a vector in the order of NCHW, which is what weights of torchvision expect. */
#include <string.h>

#include "base/vector/loop.h"
#include "train/backend/cpu/kernels.h"

typedef struct transposition {
    const float *from;
    float *to;
    int64_t rows, columns; /* of `from`, for each sample */
} transposition;

static void transpose_range(const void *context, int64_t first, int64_t end) {
    const transposition *t = context;
    enum { TILE = 16 };
    for (int64_t sample = first; sample < end; sample++) {
        const float *from = t->from + sample * t->rows * t->columns;
        float *to = t->to + sample * t->rows * t->columns;
        for (int64_t c = 0; c < t->columns; c += TILE)
            for (int64_t r = 0; r < t->rows; r++)
                for (int64_t k = c; k < c + TILE && k < t->columns; k++)
                    to[k * t->rows + r] = from[r * t->columns + k];
    }
}

static comet_status move(const comet_op_call *call, const float *from, float *to, int backward) {
    const comet_shape *s = comet_value_shape(call->graph, call->node->input[0]);
    const int64_t pixels = (int64_t)s->height * s->width;
    transposition t = {from, to, backward ? s->channels : pixels, backward ? pixels : s->channels};
    if (pixels == 1 || s->channels == 1) {
        if (from != to)
            memcpy(to, from, (size_t)(pixels * s->channels * call->batch) * sizeof *to);
        return COMET_OK;
    }
    comet_loop(call->backend->threads, call->batch, 1, transpose_range, &t);
    return COMET_OK;
}

static comet_status flatten_forward(const comet_op_call *call) {
    return move(call, call->x[0], call->y, 0);
}

static comet_status flatten_backward(const comet_op_call *call) {
    return call->dx[0] ? move(call, call->dy, call->dx[0], 1) : COMET_OK;
}

const comet_op_kernel comet_cpu_flatten = {.forward = flatten_forward, .backward = flatten_backward};
