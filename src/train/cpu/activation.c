/* SPDX-License-Identifier: Apache-2.0 */
/* ReLU, SiLU and sigmoid. */
#include "train/cpu/bits.h"
#include "train/cpu/kernels.h"
#include "train/cpu/loop.h"
#include "train/cpu/math.h"

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

static comet_status relu_forward(const comet_op_call *call) {
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
