/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shortcut without parameters (He et al. 2015, option A): every stride-th pixel, zeros for the channels that are
 * new.
 */
#include <string.h>

#include "base/vector/loop.h"
#include "train/backend/cpu/kernels.h"

static void forward_range(const void *context, int64_t first, int64_t end) {
    const comet_op_call *call = context;
    const comet_shape *in = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    for (int64_t row = first; row < end; row++) {
        const int64_t sample = row / out->height, h = row % out->height * call->node->as.stride;
        for (int64_t w = 0; w < out->width; w++) {
            float *y = (float *)call->y + (row * out->width + w) * out->channels;
            const float *x = (const float *)call->x[0] +
                             ((sample * in->height + h) * in->width + w * call->node->as.stride) * in->channels;
            memcpy(y, x, (size_t)in->channels * sizeof *y);
            memset(y + in->channels, 0, (size_t)(out->channels - in->channels) * sizeof *y);
        }
    }
}

static void backward_range(const void *context, int64_t first, int64_t end) {
    const comet_op_call *call = context;
    const comet_shape *in = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    const int64_t stride = call->node->as.stride;
    for (int64_t row = first; row < end; row++) {
        const int64_t sample = row / in->height, h = row % in->height;
        for (int64_t w = 0; w < in->width; w++) {
            float *dx = (float *)call->dx[0] + (row * in->width + w) * in->channels;
            const float *dy = (const float *)call->dy +
                              ((sample * out->height + h / stride) * out->width + w / stride) * out->channels;
            if (h % stride == 0 && w % stride == 0)
                memcpy(dx, dy, (size_t)in->channels * sizeof *dx);
            else
                memset(dx, 0, (size_t)in->channels * sizeof *dx);
        }
    }
}

static comet_status shortcut_forward(const comet_op_call *call) {
    const int64_t rows = (int64_t)comet_value_shape(call->graph, call->node->output)->height * call->batch;
    comet_loop(call->backend->threads, rows, 1, forward_range, call);
    return COMET_OK;
}

static comet_status shortcut_backward(const comet_op_call *call) {
    const int64_t rows = (int64_t)comet_value_shape(call->graph, call->node->input[0])->height * call->batch;
    if (call->dx[0])
        comet_loop(call->backend->threads, rows, 1, backward_range, call);
    return COMET_OK;
}

const comet_op_kernel comet_cpu_shortcut = {.forward = shortcut_forward, .backward = shortcut_backward};
