/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Max pooling. What is kept for backward is the place of the greatest value in its window, in 1, 2, 4, 8 or 16 bits (2
 * x 2: 2, 3 x 3: 4), where oneDNN's workspace takes a byte. A pixel's places start at a byte. Of equal values the first
 * counts, NaN always, as in PyTorch.
 */
#include <math.h>
#include <string.h>

#include "train/backend/cpu/window.h"
#include "train/graph/op.h"

/* `n` places of `bits` bits, from place `from` of a pixel's; `from` is a multiple of COMET_STRIP. */
COMET_INLINE void pack(uint8_t *pixel, int64_t from, const int32_t *place, int n, int bits) {
    if (bits >= 8) {
        for (int c = 0; c < n; c++)
            for (int k = 0; k < bits / 8; k++)
                pixel[(from + c) * (bits / 8) + k] = (uint8_t)(place[c] >> 8 * k);
        return;
    }
    const int per_byte = 8 / bits;
    uint8_t *bytes = pixel + from / per_byte;
    for (int c = 0; c < n; c += per_byte) {
        int32_t byte = 0;
        for (int k = 0; k < per_byte && c + k < n; k++)
            byte |= place[c + k] << k * bits;
        bytes[c / per_byte] = (uint8_t)byte;
    }
}

COMET_INLINE int unpack(const uint8_t *pixel, int64_t at, int bits) {
    if (bits == 16)
        return pixel[at * 2] | pixel[at * 2 + 1] << 8;
    return pixel[at * bits / 8] >> (int)(at * bits % 8) & ((1 << bits) - 1);
}

COMET_INLINE void greatest(const comet_pooling *p, int top, int left, const float *x, float *y, int32_t *place, int n) {
    const int kernel = p->call->node->as.pool.kernel;
    float best[COMET_STRIP];
    int32_t at[COMET_STRIP];
    for (int c = 0; c < n; c++)
        best[c] = -INFINITY;
    memset(at, 0, sizeof at);
    int any = 0;
    for (int i = 0; i < kernel; i++)
        for (int j = 0; j < kernel; j++) {
            const int h = top + i, w = left + j, here = i * kernel + j;
            if (h < 0 || h >= p->in->height || w < 0 || w >= p->in->width)
                continue;
            const float *pixel = x + ((int64_t)h * p->in->width + w) * p->in->channels;
            for (int c = 0; c < n; c++) {
                const int more = !any | (pixel[c] > best[c]) | (pixel[c] != pixel[c]);
                best[c] = more ? pixel[c] : best[c];
                at[c] = more ? here : at[c];
            }
            any = 1;
        }
    memcpy(y, best, (size_t)n * sizeof *y);
    memcpy(place, at, (size_t)n * sizeof *place);
}

/* Output rows: different threads write to different ones. */
COMET_RANGE(forward_range) {
    const comet_pooling *p = context;
    const comet_pool2d *pool = &p->call->node->as.pool;
    const int bits = comet_op_argmax_bits(pool->kernel), channels = p->out->channels;
    const int64_t pixel_bytes = ((int64_t)channels * bits + 7) / 8, in_sample = comet_shape_count(*p->in);
    for (int64_t row = first; row < end; row++) {
        const float *x = (const float *)p->call->x[0] + row / p->out->height * in_sample;
        const int top = (int)(row % p->out->height) * pool->stride - pool->padding;
        for (int w = 0; w < p->out->width; w++) {
            const int64_t pixel = row * p->out->width + w;
            for (int from = 0; from < channels; from += COMET_STRIP) {
                const int n = comet_least(COMET_STRIP, channels - from);
                int32_t place[COMET_STRIP];
                greatest(p, top, w * pool->stride - pool->padding, x + from,
                         (float *)p->call->y + pixel * channels + from, place, n);
                if (p->call->side)
                    pack((uint8_t *)p->call->side + pixel * pixel_bytes, from, place, n, bits);
            }
        }
    }
}

/* A strip of a sample's channels: windows overlap within it only. */
static void backward_item(const comet_pooling *p, int64_t sample, int from) {
    const comet_pool2d *pool = &p->call->node->as.pool;
    const int bits = comet_op_argmax_bits(pool->kernel), channels = p->out->channels,
              n = comet_least(COMET_STRIP, channels - from);
    const int64_t pixel_bytes = ((int64_t)channels * bits + 7) / 8;
    float *dx = (float *)p->call->dx[0] + sample * comet_shape_count(*p->in) + from;
    for (int64_t i = 0; i < (int64_t)p->in->height * p->in->width; i++)
        memset(dx + i * channels, 0, (size_t)n * sizeof *dx);
    for (int h = 0; h < p->out->height; h++)
        for (int w = 0; w < p->out->width; w++) {
            const int64_t pixel = (sample * p->out->height + h) * p->out->width + w;
            const uint8_t *places = (const uint8_t *)p->call->side + pixel * pixel_bytes;
            const float *dy = (const float *)p->call->dy + pixel * channels + from;
            const int top = h * pool->stride - pool->padding, left = w * pool->stride - pool->padding;
            for (int c = 0; c < n; c++) {
                const int at = unpack(places, from + c, bits);
                dx[((int64_t)(top + at / pool->kernel) * p->in->width + left + at % pool->kernel) * channels + c] +=
                    dy[c];
            }
        }
}

static void backward_range(const void *context, int64_t first, int64_t end) {
    const comet_pooling *p = context;
    for (int64_t item = first; item < end; item++)
        backward_item(p, item / p->strips, (int)(item % p->strips) * COMET_STRIP);
}

static comet_status pool_forward(const comet_op_call *call) {
    comet_pooling p = comet_pooling_of(call);
    comet_loop(call->backend->threads, (int64_t)p.out->height * call->batch, 1, forward_range, &p);
    return COMET_OK;
}

static comet_status pool_backward(const comet_op_call *call) {
    comet_pooling p = comet_pooling_of(call);
    if (call->dx[0])
        comet_loop(call->backend->threads, p.strips * call->batch, 1, backward_range, &p);
    return COMET_OK;
}

const comet_op_kernel comet_cpu_max_pool = {.forward = pool_forward, .backward = pool_backward};
