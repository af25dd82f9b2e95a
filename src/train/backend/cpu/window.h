/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of pooling, and the strips of channels they are computed in: small enough for a few arrays to stay in the
 * first cache.
 */
#ifndef COMET_TRAIN_CPU_WINDOW_H
#define COMET_TRAIN_CPU_WINDOW_H

#include "base/vector/loop.h"
#include "train/backend/cpu/kernels.h"

enum { COMET_STRIP = 64 };

typedef struct comet_window {
    int top, bottom, left, right; /* of the input; bottom and right are not in it */
    int count;                    /* an average's divisor */
} comet_window;

/* What all pooling loops go over: an item is a strip of a sample's channels. Items write to different places. */
typedef struct comet_pooling {
    const comet_op_call *call;
    const comet_shape *in, *out;
    int64_t strips;
} comet_pooling;

COMET_INLINE int comet_least(int a, int b) {
    return a < b ? a : b;
}

COMET_INLINE int comet_most(int a, int b) {
    return a > b ? a : b;
}

COMET_INLINE comet_pooling comet_pooling_of(const comet_op_call *call) {
    const comet_shape *out = comet_value_shape(call->graph, call->node->output);
    return (comet_pooling){call, comet_value_shape(call->graph, call->node->input[0]), out,
                           (out->channels + COMET_STRIP - 1) / COMET_STRIP};
}

/* As PyTorch: the divisor counts padding if asked, but never what ceil_mode adds behind it. */
COMET_INLINE comet_window comet_pool_window(const comet_pool2d *p, const comet_shape *in, int h, int w) {
    int top = h * p->stride - p->padding, left = w * p->stride - p->padding;
    int bottom = comet_least(top + p->kernel, in->height + p->padding),
        right = comet_least(left + p->kernel, in->width + p->padding);
    comet_window window = {comet_most(top, 0), comet_least(bottom, in->height), comet_most(left, 0),
                           comet_least(right, in->width), 0};
    window.count = p->count_padding ? (bottom - top) * (right - left)
                                    : (window.bottom - window.top) * (window.right - window.left);
    return window;
}

COMET_INLINE comet_window comet_adaptive_window(const comet_shape *in, const comet_shape *out, int h, int w) {
    comet_window window = {(int)((int64_t)h * in->height / out->height),
                           (int)(((int64_t)(h + 1) * in->height + out->height - 1) / out->height),
                           (int)((int64_t)w * in->width / out->width),
                           (int)(((int64_t)(w + 1) * in->width + out->width - 1) / out->width), 0};
    window.count = (window.bottom - window.top) * (window.right - window.left);
    return window;
}

#endif
