/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/quantiser.h"

#include <math.h>

#include "base/bits.h"
#include "codec/stream_header.h"

/* Clears all but the n leading significant bits of a normal positive number. */
static float cut(float v, int n) {
    return comet_float_of(comet_bits_of(v) & ~((1u << (24 - n)) - 1u));
}

float comet_quantiser_bound(double bound, comet_dtype dtype) {
    double most = dtype == COMET_U8 ? 255.0 : 0x1p100;
    if (bound > most)
        bound = most;
    if (dtype != COMET_U8 && bound < 0x1p-100)
        return 0.0f;
    float b = (float)bound;
    return (double)b > bound ? nextafterf(b, 0.0f) : b;
}

/* How far the codes of a mode may go before the limit: what rounding can add to |value| / s. */
static float margin_of(quantiser_mode mode) {
    switch (mode) {
    case QUANTISE_NEAREST:
    case QUANTISE_KEEP_TREAD:
        return 0.0f;
    case QUANTISE_STOCHASTIC:
    case QUANTISE_KEEP_RISE:
        return 1.0f;
    case QUANTISE_GRID:
        return 2.0f;
    }
    return 0.0f;
}

static quantiser_class class_of(float step, float limit, quantiser_mode mode, int wide) {
    if (mode == QUANTISE_GRID && limit > 8000.0f)
        limit = 8000.0f;
    return (quantiser_class){.step = step,
                             .inverse = 1.0f / step,
                             .reach = comet_bits_of((limit - margin_of(mode)) * step),
                             .mode = mode,
                             .wide = (uint8_t)wide};
}

static void init_f32(quantiser *q, float target, quantiser_mode mode) {
    q->classes[0] = class_of(cut(target * (1.0f - 0x1p-12f), 16), 127.0f, mode, 0);
    q->classes[1] = class_of(cut(target * (1.0f - 0x1p-6f), 16), 32000.0f, mode, 1);
}

/*
 * 16-bit values: steps so short that code * step is exact. `least` is the least subnormal, which the last bit of a step may
 * not fall below: twice that is asked for, because keep-mask decodes to halves of a step.
 */
static void init_half(quantiser *q, float target, quantiser_mode mode) {
    static const struct {
        int bits;
        float limit;
    } narrow[2][3] = {{{6, 32.0f}, {4, 127.0f}, {0, 0.0f}}, {{4, 16.0f}, {3, 32.0f}, {2, 64.0f}}};
    int is_bf16 = q->dtype == COMET_BF16;
    for (int i = 0; i < 3; i++) {
        int bits = narrow[is_bf16][i].bits;
        if (bits == 0)
            continue;
        float step = cut(target * (1.0f - 0x1p-12f), bits), limit = narrow[is_bf16][i].limit;
        if (mode == QUANTISE_KEEP_RISE)
            limit = limit == 127.0f ? 64.0f : limit / 2;
        if (is_bf16 || step >= ldexpf(1.0f, bits - 24))
            q->classes[i] = class_of(step, limit, mode, 0);
    }
    quantiser_mode wide_mode = mode == QUANTISE_KEEP_RISE ? QUANTISE_KEEP_TREAD : mode;
    float step = cut(mode == QUANTISE_KEEP_RISE ? q->bound : target, 1);
    if (!is_bf16 && step < 0x1p-24f)
        step = 0x1p-24f;
    q->classes[3] = class_of(step, 32000.0f, wide_mode, 1);
}

static void init_u8(quantiser *q, quantiser_mode mode) {
    float whole = floorf(q->bound), step = 2.0f * whole + 1.0f;
    if (mode == QUANTISE_STOCHASTIC)
        step = whole < 1.0f ? 1.0f : whole;
    if (mode == QUANTISE_KEEP_RISE) {
        mode = QUANTISE_KEEP_TREAD;
        step = whole + 1.0f;
    }
    q->classes[0] = class_of(step, 127.0f, mode, 0);
    q->classes[1] = class_of(step, 255.0f + margin_of(mode), mode, 1);
}

void comet_quantiser_init(quantiser *q, float bound, comet_dtype dtype, unsigned flags) {
    *q = (quantiser){.bound = bound, .dtype = dtype};
    quantiser_mode mode = flags & STREAM_GRID         ? QUANTISE_GRID
                          : flags & STREAM_KEEP_MASK  ? QUANTISE_KEEP_RISE
                          : flags & STREAM_STOCHASTIC ? QUANTISE_STOCHASTIC
                                                      : QUANTISE_NEAREST;
    if (bound == 0.0f && dtype != COMET_U8)
        return;
    float target = mode == QUANTISE_STOCHASTIC ? bound : 2.0f * bound;
    if (dtype == COMET_U8)
        init_u8(q, mode);
    else if (dtype == COMET_F32)
        init_f32(q, target, mode);
    else
        init_half(q, target, mode);
}

grid_channel comet_quantiser_grid(const quantiser_class *c, float threshold, float slope) {
    const float magic = 0x1.8p23f;
    grid_channel g = {.edge = slope < 0.0f ? nextafterf(threshold, -INFINITY) : threshold};
    if (isnan(threshold)) {
        g.code = -(1 << 20);
        g.edge = -INFINITY;
    } else if (fabsf(threshold) >= 0x1p14f * c->step) {
        g.code = threshold > 0.0f ? 1 << 20 : -(1 << 20);
    } else {
        g.code = (int32_t)(fmaf(threshold, c->inverse, magic) - magic);
        g.remainder = fmaf(-(float)g.code, c->step, threshold);
    }
    return g;
}
