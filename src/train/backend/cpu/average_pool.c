/* SPDX-License-Identifier: Apache-2.0 */
/* Average pooling, with windows of one size or adaptive ones. Sums are formed in fp64. */
#include <string.h>

#include "train/backend/cpu/window.h"

COMET_INLINE comet_window window_of(const comet_pooling *p, int adaptive, int h, int w) {
    return adaptive ? comet_adaptive_window(p->in, p->out, h, w)
                    : comet_pool_window(&p->call->node->as.pool, p->in, h, w);
}

COMET_INLINE void average(const comet_pooling *p, comet_window v, const float *x, float *y, int n) {
    double total[COMET_STRIP] = {0};
    for (int h = v.top; h < v.bottom; h++)
        for (int w = v.left; w < v.right; w++) {
            const float *pixel = x + ((int64_t)h * p->in->width + w) * p->in->channels;
            for (int c = 0; c < n; c++)
                total[c] += (double)pixel[c];
        }
    const double share = 1.0 / v.count;
    for (int c = 0; c < n; c++)
        y[c] = (float)(total[c] * share);
}

COMET_INLINE void forward_items(const comet_pooling *p, int adaptive, int64_t first, int64_t end) {
    const int64_t in_sample = comet_shape_count(*p->in), out_sample = comet_shape_count(*p->out);
    for (int64_t item = first; item < end; item++) {
        const int64_t sample = item / p->strips, from = item % p->strips * COMET_STRIP;
        const int n = comet_least(COMET_STRIP, p->out->channels - (int)from);
        const float *x = (const float *)p->call->x[0] + sample * in_sample + from;
        float *y = (float *)p->call->y + sample * out_sample + from;
        for (int h = 0; h < p->out->height; h++)
            for (int w = 0; w < p->out->width; w++)
                average(p, window_of(p, adaptive, h, w), x, y + ((int64_t)h * p->out->width + w) * p->out->channels, n);
    }
}

COMET_INLINE void spread(const comet_pooling *p, comet_window v, const float *dy, float *dx, int n) {
    const float share = 1.0f / (float)v.count;
    for (int h = v.top; h < v.bottom; h++)
        for (int w = v.left; w < v.right; w++) {
            float *pixel = dx + ((int64_t)h * p->in->width + w) * p->in->channels;
            COMET_EACH for (int c = 0; c < n; c++) pixel[c] += dy[c] * share;
        }
}

static void clear(const comet_pooling *p, float *dx, int n) {
    const int64_t pixels = (int64_t)p->in->height * p->in->width;
    for (int64_t i = 0; i < pixels; i++)
        memset(dx + i * p->in->channels, 0, (size_t)n * sizeof *dx);
}

COMET_INLINE void backward_items(const comet_pooling *p, int adaptive, int64_t first, int64_t end) {
    const int64_t in_sample = comet_shape_count(*p->in), out_sample = comet_shape_count(*p->out);
    for (int64_t item = first; item < end; item++) {
        const int64_t sample = item / p->strips, from = item % p->strips * COMET_STRIP;
        const int n = comet_least(COMET_STRIP, p->out->channels - (int)from);
        float *dx = (float *)p->call->dx[0] + sample * in_sample + from;
        const float *dy = (const float *)p->call->dy + sample * out_sample + from;
        clear(p, dx, n);
        for (int h = 0; h < p->out->height; h++)
            for (int w = 0; w < p->out->width; w++)
                spread(p, window_of(p, adaptive, h, w), dy + ((int64_t)h * p->out->width + w) * p->out->channels, dx,
                       n);
    }
}

COMET_RANGE(forward_fixed) {
    forward_items(context, 0, first, end);
}

COMET_RANGE(forward_adaptive) {
    forward_items(context, 1, first, end);
}

COMET_RANGE(backward_fixed) {
    backward_items(context, 0, first, end);
}

COMET_RANGE(backward_adaptive) {
    backward_items(context, 1, first, end);
}

static comet_status over_items(const comet_op_call *call, comet_loop_body body) {
    comet_pooling p = comet_pooling_of(call);
    comet_loop(call->backend->threads, p.strips * call->batch, 1, body, &p);
    return COMET_OK;
}

static comet_status pool_forward(const comet_op_call *call) {
    return over_items(call, forward_fixed);
}

static comet_status pool_backward(const comet_op_call *call) {
    return call->dx[0] ? over_items(call, backward_fixed) : COMET_OK;
}

static comet_status adaptive_forward(const comet_op_call *call) {
    return over_items(call, forward_adaptive);
}

static comet_status adaptive_backward(const comet_op_call *call) {
    return call->dx[0] ? over_items(call, backward_adaptive) : COMET_OK;
}

const comet_op_kernel comet_cpu_average_pool = {.forward = pool_forward, .backward = pool_backward};
const comet_op_kernel comet_cpu_adaptive_pool = {.forward = adaptive_forward, .backward = adaptive_backward};
