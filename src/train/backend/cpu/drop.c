/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout and stochastic depth. What is dropped comes from Philox, keyed by seed, step and node: backward draws it
 * again, nothing is kept. In evaluation the output is the input.
 */
#include <string.h>

#include "base/philox.h"
#include "base/vector/loop.h"
#include "train/backend/cpu/kernels.h"

enum { DROP_PURPOSE = 16 << 16, DROP_LANES = 16, DROP_GRAIN = 4 * DROP_LANES };

typedef struct drop {
    const comet_op_call *call;
    const float *from;
    float *to;
    int64_t count, sample_values;
    uint32_t limit; /* a word below it: dropped */
    float scale;
} drop;

static void counter(const comet_op_call *call, int64_t index, uint32_t c[4]) {
    c[0] = (uint32_t)index;
    c[1] = (uint32_t)call->step;
    c[2] = (uint32_t)(call->node - call->graph->nodes);
    c[3] = (uint32_t)DROP_PURPOSE | (uint32_t)((uint64_t)index >> 32 & 0xFFFF);
}

/* Words for values first .. first + DROP_GRAIN - 1: value i has word i % 4 of counter i / 4. */
COMET_INLINE void words(const comet_op_call *call, int64_t first, uint32_t c[4][DROP_LANES]) {
    for (int i = 0; i < DROP_LANES; i++) {
        uint32_t one[4];
        counter(call, first / 4 + i, one);
        for (int k = 0; k < 4; k++)
            c[k][i] = one[k];
    }
    comet_philox_many((uint32_t *const[4]){c[0], c[1], c[2], c[3]}, DROP_LANES, call->seed);
}

COMET_RANGE(dropout_range) {
    const drop *d = context;
    const int64_t before = d->call->first_sample * d->sample_values; /* of other ranks */
    for (int64_t block = first, n; block < end; block += n) {
        uint32_t c[4][DROP_LANES];
        const int64_t skip = (before + block) % 4;
        words(d->call, before + block - skip, c);
        n = end - block < DROP_GRAIN - skip ? end - block : DROP_GRAIN - skip;
        for (int64_t i = 0; i < n; i++)
            d->to[block + i] = c[(i + skip) % 4][(i + skip) / 4] < d->limit ? 0 : d->from[block + i] * d->scale;
    }
}

static void depth_range(const void *context, int64_t first, int64_t end) {
    const drop *d = context;
    for (int64_t sample = first; sample < end; sample++) {
        uint32_t c[4];
        counter(d->call, d->call->first_sample + sample, c);
        comet_philox(c, d->call->seed);
        const float *from = d->from + sample * d->sample_values;
        float *to = d->to + sample * d->sample_values, scale = d->scale;
        const int dropped = c[0] < d->limit;
        COMET_EACH for (int64_t i = 0; i < d->sample_values; i++) to[i] = dropped ? 0 : from[i] * scale;
    }
}

static comet_status apply(const comet_op_call *call, const float *from, float *to) {
    const double p = (double)call->node->as.probability;
    const int64_t count = comet_call_count(call, call->node->output);
    drop d = {call, from, to, count, count / call->batch, (uint32_t)(p * 0x1p32), (float)(1 / (1 - p))};
    if (!call->training) {
        if (from != to)
            memcpy(to, from, (size_t)count * sizeof *to);
    } else if (call->node->kind == COMET_OP_DROPOUT)
        comet_loop(call->backend->threads, count, DROP_GRAIN, dropout_range, &d);
    else
        comet_loop(call->backend->threads, call->batch, 1, depth_range, &d);
    return COMET_OK;
}

static comet_status drop_forward(const comet_op_call *call) {
    return apply(call, call->x[0], call->y);
}

static comet_status drop_backward(const comet_op_call *call) {
    return call->dx[0] ? apply(call, call->dy, call->dx[0]) : COMET_OK;
}

const comet_op_kernel comet_cpu_dropout = {.forward = drop_forward, .backward = drop_backward};
const comet_op_kernel comet_cpu_stochastic_depth = {.forward = drop_forward, .backward = drop_backward};
