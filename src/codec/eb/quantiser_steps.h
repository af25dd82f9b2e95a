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

QUANTISER_INLINE quantiser_mode quantiser_mode_of(unsigned flags) {
    return flags & STREAM_GRID         ? QUANTISE_GRID
           : flags & STREAM_KEEP_MASK  ? QUANTISE_KEEP_RISE
           : flags & STREAM_STOCHASTIC ? QUANTISE_STOCHASTIC
                                       : QUANTISE_NEAREST;
}

/* The mode of a class of a stream: only fp32 has room for half steps between wide codes, u8 for none at all. */
QUANTISER_INLINE quantiser_mode quantiser_class_mode(comet_dtype dtype, quantiser_mode mode, int index) {
    int rises = dtype == COMET_F32 || (dtype != COMET_U8 && index != QUANTISER_WIDE);
    return mode == QUANTISE_KEEP_RISE && !rises ? QUANTISE_KEEP_TREAD : mode;
}

QUANTISER_INLINE float quantiser_step_u8(float bound, quantiser_mode mode, int index) {
    float whole = floorf(bound);
    if (index != 0 && index != QUANTISER_WIDE)
        return 0.0f;
    if (mode == QUANTISE_STOCHASTIC)
        return whole < 1.0f ? 1.0f : whole;
    return mode == QUANTISE_KEEP_RISE ? whole + 1.0f : 2.0f * whole + 1.0f;
}

/* How many significant bits the narrow step of a 16-bit type has; 0: there is no such class. */
QUANTISER_INLINE int quantiser_half_bits(comet_dtype dtype, quantiser_mode mode, int index) {
    if (dtype == COMET_BF16)
        return 4 - index;
    return index == 3 && mode != QUANTISE_KEEP_RISE ? 0 : 6 - index;
}

/*
 * 16-bit values: steps so short that code * step is exact. The last bit of a step of fp16 may not fall below twice the
 * least subnormal, because keep-mask decodes to halves of a step.
 */
QUANTISER_INLINE float quantiser_step_half(float bound, comet_dtype dtype, quantiser_mode mode, int index) {
    float target = mode == QUANTISE_STOCHASTIC ? bound : 2.0f * bound;
    if (index == QUANTISER_WIDE) {
        float step = quantiser_cut(mode == QUANTISE_KEEP_RISE ? bound : target, 1);
        return dtype == COMET_F16 && step < 0x1p-24f ? 0x1p-24f : step;
    }
    int bits = quantiser_half_bits(dtype, mode, index);
    if (bits == 0)
        return 0.0f;
    float step = quantiser_cut(target * (1.0f - 0x1p-12f), bits);
    return dtype == COMET_F16 && step < 0x1p-24f * (float)(1 << bits) ? 0.0f : step;
}

/* The step of a class; 0: the stream does not have it. bound: of quantiser_bound. */
QUANTISER_INLINE float quantiser_step(float bound, comet_dtype dtype, quantiser_mode mode, int index) {
    if (dtype == COMET_U8)
        return quantiser_step_u8(bound, mode, index);
    if (bound == 0.0f)
        return 0.0f;
    if (dtype != COMET_F32)
        return quantiser_step_half(bound, dtype, mode, index);
    float target = mode == QUANTISE_STOCHASTIC ? bound : 2.0f * bound;
    if (index == QUANTISER_WIDE)
        return quantiser_cut(target * (1.0f - 0x1p-6f), 16);
    if (index > (mode == QUANTISE_GRID)) /* a grid's first two classes have the same step */
        return 0.0f;
    return quantiser_cut(target * (1.0f - 0x1p-12f), 15);
}

/* The greatest |code| of a class. */
QUANTISER_INLINE float quantiser_limit(comet_dtype dtype, quantiser_mode mode, int index) {
    if (index == QUANTISER_WIDE && dtype == COMET_U8)
        return 255.0f + quantiser_margin(mode);
    if (index == QUANTISER_WIDE)
        return mode == QUANTISE_GRID ? 8000.0f : 32000.0f;
    if (mode == QUANTISE_GRID && index == 0)
        return 64.0f; /* so that code + 192 can be built in the bits of a float */
    if (dtype == COMET_F32 || dtype == COMET_U8)
        return 127.0f;
    /* bits of the step and of the code, keep-mask's being odd numbers of half steps, are those of the type; a step of
       one bit adds none */
    int half = mode == QUANTISE_KEEP_RISE, bits = quantiser_half_bits(dtype, mode, index);
    int room = (dtype == COMET_BF16 ? 8 : 11) - half - bits + (bits == 1);
    return room >= 7 ? 127.0f : (float)(1 << room);
}

/* What decoding needs of one class: step, mode, wide, and for a grid the inverse, for whose sake alone it divides. */
QUANTISER_INLINE quantiser_class quantiser_step_of(float bound, comet_dtype dtype, unsigned flags, int index) {
    quantiser_mode mode = quantiser_mode_of(flags);
    quantiser_class c = {0.0f, 0.0f, 0, quantiser_class_mode(dtype, mode, index), 0};
    c.step = quantiser_step(bound, dtype, mode, index);
    c.wide = c.step != 0.0f && index == QUANTISER_WIDE;
    if (mode == QUANTISE_GRID && c.step != 0.0f)
        c.inverse = 1.0f / c.step;
    return c;
}

/* *q is all zero but for bound and dtype. */
QUANTISER_INLINE void quantiser_init(quantiser *q, unsigned flags) {
    quantiser_mode mode = quantiser_mode_of(flags);
#ifdef __CUDA_ARCH__
#pragma unroll 1 /* short code: it runs once a block */
#endif
    for (int i = 0; i < QUANTISER_CLASSES; i++) {
        quantiser_class *c = &q->classes[i];
        float step = quantiser_step(q->bound, q->dtype, mode, i);
        if (step == 0.0f)
            continue;
        c->mode = quantiser_class_mode(q->dtype, mode, i);
        c->step = step;
        c->inverse = 1.0f / step;
        c->reach = comet_bits_of((quantiser_limit(q->dtype, c->mode, i) - quantiser_margin(c->mode)) * step);
        c->wide = i == QUANTISER_WIDE;
    }
}

/* The number after a finite one. */
QUANTISER_INLINE float quantiser_number_after(float v) {
    uint32_t bits = comet_bits_of(v);
    if ((bits << 1) == 0)
        return comet_float_of(1u);
    return comet_float_of(bits >> 31 ? bits - 1u : bits + 1u);
}

/* Whether there is a threshold, and one that a code can come near. */
QUANTISER_INLINE int quantiser_is_near(const quantiser_class *c, float threshold) {
    return fabsf(threshold) < (c->wide ? 8192.0f : 128.0f) * c->step;
}

QUANTISER_INLINE grid_channel quantiser_grid(const quantiser_class *c, float threshold, float slope) {
    const float magic = 0x1.8p23f;
    grid_channel g = {0.0f, 0.0f, 0};
    g.base = -(QUANTISER_GRID_BIAS - 0.5f) * c->step;
    if (!quantiser_is_near(c, threshold))
        return g;
    g.edge = slope < 0.0f ? threshold : quantiser_number_after(threshold);
    g.code = (int32_t)(fmaf(g.edge, c->inverse, magic) - magic);
    g.base = fmaf(-((float)g.code + (QUANTISER_GRID_BIAS - 0.5f)), c->step, g.edge);
    return g;
}

#endif
