/* SPDX-License-Identifier: Apache-2.0 */
/* Channels times a factor of their sample's (squeeze-excite). */
#include "base/vector/loop.h"
#include "train/backend/cpu/kernels.h"

enum { SCALE_STRIP = 64 };

typedef struct strip {
    const comet_op_call *call;
    int64_t pixels, channels, strips;
} strip;

static strip strip_of(const comet_op_call *call) {
    const comet_shape *s = comet_value_shape(call->graph, call->node->output);
    return (strip){call, (int64_t)s->height * s->width, s->channels, (s->channels + SCALE_STRIP - 1) / SCALE_STRIP};
}

COMET_RANGE(scale_forward_range) {
    const strip *s = context;
    const int64_t channels = s->channels, pixels = s->pixels;
    for (int64_t row = first; row < end; row++) {
        const float *x = (const float *)s->call->x[0] + row * channels,
                    *scale = (const float *)s->call->x[1] + row / pixels * channels;
        float *y = (float *)s->call->y + row * channels;
        COMET_EACH for (int64_t c = 0; c < channels; c++) y[c] = x[c] * scale[c];
    }
}

static comet_status scale_forward(const comet_op_call *call) {
    strip s = strip_of(call);
    comet_loop(call->backend->threads, s.pixels * call->batch, 32, scale_forward_range, &s);
    return COMET_OK;
}

/* An item is a strip of a sample's channels: the factor's gradient is a sum over its pixels. */
COMET_RANGE(scale_backward_range) {
    const strip *s = context;
    const comet_op_call *call = s->call;
    for (int64_t item = first; item < end; item++) {
        const int64_t sample = item / s->strips, from = item % s->strips * SCALE_STRIP,
                      factor = sample * s->channels + from;
        const int64_t n = s->channels - from < SCALE_STRIP ? s->channels - from : SCALE_STRIP;
        const float *scale = (const float *)call->x[1] + factor;
        double total[SCALE_STRIP] = {0};
        for (int64_t p = 0; p < s->pixels; p++) {
            const int64_t at = (sample * s->pixels + p) * s->channels + from;
            const float *x = (const float *)call->x[0] + at, *dy = (const float *)call->dy + at;
            for (int64_t c = 0; c < n; c++)
                total[c] += (double)x[c] * (double)dy[c];
            if (!call->dx[0])
                continue;
            float *dx = (float *)call->dx[0] + at;
            COMET_EACH for (int64_t c = 0; c < n; c++) dx[c] = dy[c] * scale[c];
        }
        for (int64_t c = 0; call->dx[1] && c < n; c++)
            ((float *)call->dx[1])[factor + c] = (float)total[c];
    }
}

static comet_status scale_backward(const comet_op_call *call) {
    strip s = strip_of(call);
    comet_loop(call->backend->threads, s.strips * call->batch, 1, scale_backward_range, &s);
    return COMET_OK;
}

const comet_op_kernel comet_cpu_scale = {.forward = scale_forward, .backward = scale_backward};
