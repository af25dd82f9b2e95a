/* SPDX-License-Identifier: Apache-2.0 */
/* ReLU, SiLU and sigmoid. */
#include <math.h>

#include "base/vector/loop.h"
#include "base/vector/math.h"
#include "train/backend/cpu/bits.h"
#include "train/backend/cpu/kernels.h"

enum { ACTIVATION_GRAIN = 8192 };

static void over_output(const comet_op_call *call, comet_loop_body body) {
    comet_loop(call->backend->threads, comet_call_count(call, call->node->output), ACTIVATION_GRAIN, body, call);
}

/* ---- ReLU ---- */

COMET_RANGE(relu_forward_range) {
    const comet_op_call *call = context;
    const float *x = call->x[0];
    float *y = call->y;
    COMET_EACH for (int64_t i = first; i < end; i++) y[i] = x[i] <= 0 ? 0 : x[i]; /* NaN stays */
    if (call->mask)
        comet_bits_write(call->mask, y, first, end);
}

COMET_RANGE(relu_backward_range) {
    const comet_op_call *call = context;
    const float *y = call->y, *dy = call->dy;
    const uint8_t *mask = call->mask;
    float *dx = call->dx[0];
    if (mask) {
        COMET_EACH for (int64_t i = first; i < end; i++) dx[i] = comet_bit(mask, i) ? dy[i] : 0;
        return;
    }
    COMET_EACH for (int64_t i = first; i < end; i++) dx[i] = y[i] <= 0 ? 0 : dy[i];
}

/* With the rms of the non-zeros, by blocks of which each has a place for its sums. */
enum { RELU_BLOCKS = 64, RELU_LANES = 16, RELU_RUN = 1024 };

typedef struct relu_sums {
    const comet_op_call *call;
    int64_t block;
    double (*parts)[2]; /* squares, non-zeros */
} relu_sums;

/* Up to RELU_RUN values, a multiple of RELU_LANES. */
COMET_INLINE void relu_run(const float *x, float *y, int64_t count, double *part) {
    float squares[RELU_LANES] = {0}, nonzero[RELU_LANES] = {0};
    for (int64_t i = 0; i < count; i += RELU_LANES)
        for (int k = 0; k < RELU_LANES; k++) {
            const float v = x[i + k] <= 0 ? 0 : x[i + k];
            y[i + k] = v;
            squares[k] += v * v;
            nonzero[k] += v != 0 ? 1.0f : 0.0f;
        }
    for (int k = 0; k < RELU_LANES; k++) {
        part[0] += (double)squares[k];
        part[1] += (double)nonzero[k];
    }
}

COMET_RANGE(relu_measured_range) {
    const relu_sums *s = context;
    const float *x = s->call->x[0];
    float *y = s->call->y;
    for (int64_t i = first; i < end;) {
        double *part = s->parts[i / s->block];
        int64_t count = end - i < RELU_RUN ? end - i : RELU_RUN, whole = count - count % RELU_LANES;
        relu_run(x + i, y + i, whole, part);
        for (int64_t k = i + whole; k < i + count; k++) {
            y[k] = x[k] <= 0 ? 0 : x[k];
            part[0] += (double)y[k] * (double)y[k];
            part[1] += y[k] != 0;
        }
        i += count;
    }
    if (s->call->mask)
        comet_bits_write(s->call->mask, y, first, end);
}

static void relu_measured(const comet_op_call *call) {
    const int64_t count = comet_call_count(call, call->node->output);
    double parts[RELU_BLOCKS][2] = {{0}}, squares = 0, nonzero = 0;
    relu_sums s = {call, ((count + RELU_BLOCKS - 1) / RELU_BLOCKS + RELU_RUN - 1) / RELU_RUN * RELU_RUN, parts};
    comet_loop(call->backend->threads, count, s.block, relu_measured_range, &s);
    for (int b = 0; b < RELU_BLOCKS; b++) {
        squares += parts[b][0];
        nonzero += parts[b][1];
    }
    *call->rms = nonzero > 0 ? sqrt(squares / nonzero) : 0;
}

static comet_status relu_forward(const comet_op_call *call) {
    if (call->rms)
        relu_measured(call);
    else
        over_output(call, relu_forward_range);
    return COMET_OK;
}

static comet_status relu_backward(const comet_op_call *call) {
    if (call->dx[0])
        over_output(call, relu_backward_range);
    return COMET_OK;
}

const comet_op_kernel comet_cpu_relu = {.forward = relu_forward, .backward = relu_backward};

/* ---- SiLU: x sigmoid(x) ---- */

COMET_RANGE(silu_forward_range) {
    const comet_op_call *call = context;
    const float *x = call->x[0];
    float *y = call->y;
    COMET_EACH for (int64_t i = first; i < end; i++) y[i] = x[i] * comet_sigmoidf(x[i]);
}

COMET_RANGE(silu_backward_range) {
    const comet_op_call *call = context;
    const float *x = call->x[0], *dy = call->dy;
    float *dx = call->dx[0];
    COMET_EACH for (int64_t i = first; i < end; i++) {
        float s = comet_sigmoidf(x[i]);
        dx[i] = dy[i] * (s * (1.0f + x[i] * (1.0f - s)));
    }
}

static comet_status silu_forward(const comet_op_call *call) {
    over_output(call, silu_forward_range);
    return COMET_OK;
}

static comet_status silu_backward(const comet_op_call *call) {
    if (call->dx[0])
        over_output(call, silu_backward_range);
    return COMET_OK;
}

const comet_op_kernel comet_cpu_silu = {.forward = silu_forward, .backward = silu_backward};

/* ---- sigmoid ---- */

COMET_RANGE(sigmoid_forward_range) {
    const comet_op_call *call = context;
    const float *x = call->x[0];
    float *y = call->y;
    COMET_EACH for (int64_t i = first; i < end; i++) y[i] = comet_sigmoidf(x[i]);
}

COMET_RANGE(sigmoid_backward_range) {
    const comet_op_call *call = context;
    const float *y = call->y, *dy = call->dy;
    float *dx = call->dx[0];
    COMET_EACH for (int64_t i = first; i < end; i++) dx[i] = dy[i] * (y[i] * (1.0f - y[i]));
}

static comet_status sigmoid_forward(const comet_op_call *call) {
    over_output(call, sigmoid_forward_range);
    return COMET_OK;
}

static comet_status sigmoid_backward(const comet_op_call *call) {
    if (call->dx[0])
        over_output(call, sigmoid_backward_range);
    return COMET_OK;
}

const comet_op_kernel comet_cpu_sigmoid = {.forward = sigmoid_forward, .backward = sigmoid_backward};
