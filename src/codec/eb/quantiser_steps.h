/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic behind quantiser.h, for the host and for kernels alike: both must derive the same steps from the same
 * bound. C that is also CUDA C++.
 */
#ifndef COMET_CODEC_QUANTISER_STEPS_H
#define COMET_CODEC_QUANTISER_STEPS_H

#include <math.h>

#include "base/bits.h"
#include "codec/eb/quantiser.h"
#include "codec/stream_header.h"

#define QUANTISER_INLINE COMET_HOST_DEVICE static inline

/* Clears all but the n leading significant bits of a normal positive number. */
QUANTISER_INLINE float quantiser_cut(float v, int n) {
    return comet_float_of(comet_bits_of(v) & ~((1u << (24 - n)) - 1u));
}

QUANTISER_INLINE float quantiser_bound(double bound, comet_dtype dtype) {
    double most = dtype == COMET_U8 ? 255.0 : 0x1p100;
    if (bound > most)
        bound = most;
    if (dtype != COMET_U8 && bound < 0x1p-100)
        return 0.0f;
    float b = (float)bound;
    return (double)b > bound ? comet_float_of(comet_bits_of(b) - 1u) : b;
}

/* How far the codes of a mode may go before the limit: what rounding can add to |value| / s. */
QUANTISER_INLINE float quantiser_margin(quantiser_mode mode) {
    if (mode == QUANTISE_STOCHASTIC || mode == QUANTISE_KEEP_RISE)
        return 1.0f;
    return mode == QUANTISE_GRID ? 2.0f : 0.0f;
}

QUANTISER_INLINE void quantiser_set(quantiser_class *c, float step, float limit, quantiser_mode mode, int wide) {
    if (mode == QUANTISE_GRID && limit > 8000.0f)
        limit = 8000.0f;
    c->step = step;
    c->inverse = 1.0f / step;
    c->reach = comet_bits_of((limit - quantiser_margin(mode)) * step);
    c->mode = mode;
    c->wide = (uint8_t)wide;
}

QUANTISER_INLINE void quantiser_init_f32(quantiser *q, float target, quantiser_mode mode) {
    quantiser_set(&q->classes[0], quantiser_cut(target * (1.0f - 0x1p-12f), 15), 127.0f, mode, 0);
    quantiser_set(&q->classes[1], quantiser_cut(target * (1.0f - 0x1p-6f), 16), 32000.0f, mode, 1);
}

/*
 * 16-bit values: steps so short that code * step is exact. The last bit of a step of fp16 may not fall below twice the
 * least subnormal, because keep-mask decodes to halves of a step.
 */
QUANTISER_INLINE void quantiser_init_half(quantiser *q, float target, quantiser_mode mode) {
    int is_bf16 = q->dtype == COMET_BF16;
    for (int i = 0; i < 3 - !is_bf16; i++) {
        int bits = is_bf16 ? 4 - i : 6 - 2 * i;
        float limit = is_bf16 ? (float)(16 << i) : i == 0 ? 32.0f : 127.0f;
        float step = quantiser_cut(target * (1.0f - 0x1p-12f), bits);
        if (mode == QUANTISE_KEEP_RISE)
            limit = limit == 127.0f ? 64.0f : limit / 2;
        if (is_bf16 || step >= ldexpf(1.0f, bits - 24))
            quantiser_set(&q->classes[i], step, limit, mode, 0);
    }
    float step = quantiser_cut(mode == QUANTISE_KEEP_RISE ? q->bound : target, 1);
    if (!is_bf16 && step < 0x1p-24f)
        step = 0x1p-24f;
    quantiser_set(&q->classes[3], step, 32000.0f, mode == QUANTISE_KEEP_RISE ? QUANTISE_KEEP_TREAD : mode, 1);
}

QUANTISER_INLINE void quantiser_init_u8(quantiser *q, quantiser_mode mode) {
    float whole = floorf(q->bound), step = 2.0f * whole + 1.0f;
    if (mode == QUANTISE_STOCHASTIC)
        step = whole < 1.0f ? 1.0f : whole;
    if (mode == QUANTISE_KEEP_RISE) {
        mode = QUANTISE_KEEP_TREAD;
        step = whole + 1.0f;
    }
    quantiser_set(&q->classes[0], step, 127.0f, mode, 0);
    quantiser_set(&q->classes[1], step, 255.0f + quantiser_margin(mode), mode, 1);
}

QUANTISER_INLINE quantiser_mode quantiser_mode_of(unsigned flags) {
    return flags & STREAM_GRID         ? QUANTISE_GRID
           : flags & STREAM_KEEP_MASK  ? QUANTISE_KEEP_RISE
           : flags & STREAM_STOCHASTIC ? QUANTISE_STOCHASTIC
                                       : QUANTISE_NEAREST;
}

/* *q is all zero but for bound and dtype. */
QUANTISER_INLINE void quantiser_init(quantiser *q, unsigned flags) {
    quantiser_mode mode = quantiser_mode_of(flags);
    if (q->bound == 0.0f && q->dtype != COMET_U8)
        return;
    float target = mode == QUANTISE_STOCHASTIC ? q->bound : 2.0f * q->bound;
    if (q->dtype == COMET_U8)
        quantiser_init_u8(q, mode);
    else if (q->dtype == COMET_F32)
        quantiser_init_f32(q, target, mode);
    else
        quantiser_init_half(q, target, mode);
}

/* What decoding needs of one class: step, mode, wide, and for a grid the inverse, for whose sake alone it divides. */
QUANTISER_INLINE quantiser_class quantiser_step_of(float bound, comet_dtype dtype, unsigned flags, unsigned index) {
    quantiser_mode mode = quantiser_mode_of(flags);
    quantiser_class c = {0.0f, 0.0f, 0, mode, 0};
    float target = mode == QUANTISE_STOCHASTIC ? bound : 2.0f * bound;
    if (bound == 0.0f)
        return c;
    if (dtype == COMET_F32) {
        c.wide = index == 1;
        if (index < 2)
            c.step = quantiser_cut(target * (index ? 1.0f - 0x1p-6f : 1.0f - 0x1p-12f), index ? 16 : 15);
        if (index < 2 && mode == QUANTISE_GRID)
            c.inverse = 1.0f / c.step;
        return c;
    }
    int is_bf16 = dtype == COMET_BF16, bits = is_bf16 ? 4 - (int)index : 6 - 2 * (int)index;
    if (index == 3) {
        c.wide = 1;
        c.mode = mode == QUANTISE_KEEP_RISE ? QUANTISE_KEEP_TREAD : mode;
        c.step = quantiser_cut(mode == QUANTISE_KEEP_RISE ? bound : target, 1);
        if (!is_bf16 && c.step < 0x1p-24f)
            c.step = 0x1p-24f;
        return c;
    }
    if (bits < 2 || (!is_bf16 && index == 2))
        return c;
    c.step = quantiser_cut(target * (1.0f - 0x1p-12f), bits);
    if (!is_bf16 && c.step < (bits == 6 ? 0x1p-18f : 0x1p-20f)) /* 2^(bits - 24) */
        c.step = 0.0f;
    return c;
}

/* The number before a finite one or +Inf; itself for -Inf. */
QUANTISER_INLINE float quantiser_number_before(float v) {
    uint32_t bits = comet_bits_of(v);
    if (bits == 0xff800000u)
        return v;
    if ((bits << 1) == 0)
        return comet_float_of(0x80000001u);
    return comet_float_of(bits >> 31 ? bits + 1u : bits - 1u);
}

QUANTISER_INLINE grid_channel quantiser_grid(const quantiser_class *c, float threshold, float slope) {
    const float magic = 0x1.8p23f;
    grid_channel g;
    g.edge = threshold;
    g.remainder = 0.0f;
    g.code = -(1 << 20);
    if (threshold != threshold) {
        g.edge = -INFINITY;
        return g;
    }
    if (slope < 0.0f)
        g.edge = quantiser_number_before(threshold);
    if (fabsf(threshold) >= 0x1p14f * c->step) {
        g.code = threshold > 0.0f ? 1 << 20 : -(1 << 20);
    } else {
        g.code = (int32_t)(fmaf(threshold, c->inverse, magic) - magic);
        g.remainder = fmaf(-(float)g.code, c->step, threshold);
    }
    return g;
}

#endif
