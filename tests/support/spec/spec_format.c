/* SPDX-License-Identifier: Apache-2.0 */
#include "support/spec/spec_format.h"

#include <math.h>

/* ---- sections 1 and 2: header and tiles ---- */

uint32_t spec_crc(const unsigned char *stream, uint64_t bytes) {
    uint32_t crc = 0xffffffffu;
    for (uint64_t i = 0; i < bytes; i++) {
        crc ^= i >= 24 && i < 28 ? 0 : stream[i];
        for (int b = 0; b < 8; b++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

void spec_layout(const spec_stream *s, int64_t *channels, int64_t *row) {
    int64_t width = 0, rows = 0;
    *channels = 1;
    *row = 8;
    if (s->count == 0)
        return;
    if (s->layout == SPEC_NCHW && s->ndim >= 1) {
        width = s->shape[s->ndim - 1];
        rows = s->count / width;
    }
    if (s->layout == SPEC_NHWC && s->ndim >= 1 && s->count / s->shape[s->ndim - 1] >= 32) {
        *channels = s->shape[s->ndim - 1];
        width = s->ndim >= 2 ? s->shape[s->ndim - 2] : 0;
        rows = width ? s->count / *channels / width : 0;
    }
    if (width >= 8 && rows >= 16)
        *row = width;
}

static int64_t div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

void spec_geometry(spec_stream *s) {
    s->positions = s->count / s->channels;
    s->columns = div_up(s->positions, 4 * s->row) * s->row;
    s->tiles = div_up(div_up(s->columns, 8) * s->channels, 32);
}

int64_t spec_index(const spec_stream *s, int64_t t, int i) {
    int64_t k = i / 256, l = i / 8 % 32, m = i % 8, lane = 32 * t + l;
    int64_t column = 8 * (lane / s->channels) + m, channel = lane % s->channels;
    if (column >= s->columns)
        return -1;
    int64_t position = column / s->row * 4 * s->row + k * s->row + column % s->row;
    return position < s->positions ? position * s->channels + channel : -1;
}

int64_t spec_channel(const spec_stream *s, int64_t index) {
    int64_t behind = 1;
    if (s->layout == SPEC_NHWC && s->ndim >= 1)
        return index % s->shape[s->ndim - 1];
    if (s->layout != SPEC_NCHW || s->ndim < 3)
        return 0;
    for (int i = 2; i < s->ndim; i++)
        behind *= s->shape[i];
    return index / behind % s->shape[1];
}

int spec_value_size(const spec_stream *s) {
    return s->dtype == SPEC_F32 ? 4 : s->dtype == SPEC_U8 ? 1 : 2;
}

/* ---- code tiles ---- */

int spec_wrap(const spec_tile *t, int v) {
    return t->wide ? (int16_t)(uint16_t)(unsigned)v : (int8_t)(uint8_t)(unsigned)v;
}

int spec_sign_bit(const spec_tile *t) {
    return t->wide ? 15 : 7;
}

int spec_unfold(const spec_tile *t, int folded) {
    int sign = 1 << spec_sign_bit(t);
    return spec_wrap(t, folded & sign ? folded ^ (sign - 1) : folded);
}

int spec_fold(const spec_tile *t, int code) {
    int sign = 1 << spec_sign_bit(t), bits = code & (2 * sign - 1);
    return bits & sign ? bits ^ (sign - 1) : bits;
}

int spec_predictor(const spec_tile *t, int i) {
    int k = i / 256, l = i / 8 % 32, m = i % 8;
    if (k > 0)
        return i - 256;
    return m > 0 || (t->chained && l > 0) ? i - 1 : -1;
}

/* ---- section 3: the quantiser ---- */

static float cut(int n, float v) {
    int exponent;
    float m = frexpf(v, &exponent);
    return ldexpf(truncf(ldexpf(m, n)), exponent - n);
}

static spec_rule rule_of(const spec_stream *s) {
    return s->flags & SPEC_GRID         ? SPEC_GRID_RULE
           : s->flags & SPEC_KEEP       ? SPEC_RISE_RULE
           : s->flags & SPEC_STOCHASTIC ? SPEC_STOCHASTIC_RULE
                                        : SPEC_NEAREST_RULE;
}

static spec_class class_f32(const spec_stream *s, int index, float target) {
    if (index == SPEC_WIDE)
        return (spec_class){1, 1, cut(16, target * (1.0f - 0x1p-6f)), 32000.0f, rule_of(s)};
    int is_grid = rule_of(s) == SPEC_GRID_RULE;
    float limit = is_grid && index == 0 ? 64.0f : 127.0f;
    return (spec_class){index <= is_grid, 0, cut(15, target * (1.0f - 0x1p-12f)), limit, rule_of(s)};
}

static spec_class class_16_bit(const spec_stream *s, int index, float target) {
    static const int bits[2][4] = {{6, 5, 4, 3}, {4, 3, 2, 1}};
    static const float limits[2][2][4] = {{{32, 64, 127, 0}, {16, 32, 64, 127}}, {{16, 32, 64, 127}, {8, 16, 32, 127}}};
    int keep = (s->flags & SPEC_KEEP) != 0, is_f16 = s->dtype == SPEC_F16;
    if (index == SPEC_WIDE) {
        float step = cut(1, keep ? s->bound : target);
        return (spec_class){1, 1, is_f16 && step < 0x1p-24f ? 0x1p-24f : step, 32000.0f,
                            keep ? SPEC_TREAD_RULE : rule_of(s)};
    }
    int n = bits[!is_f16][index];
    float step = cut(n, target * (1.0f - 0x1p-12f)), limit = limits[keep][!is_f16][index];
    return (spec_class){limit > 0.0f && (!is_f16 || step >= ldexpf(1.0f, n - 24)), 0, step, limit, rule_of(s)};
}

static spec_class class_u8(const spec_stream *s, int index) {
    float whole = floorf(s->bound), step = 2.0f * whole + 1.0f;
    spec_rule rule = rule_of(s);
    if (rule == SPEC_STOCHASTIC_RULE)
        step = whole > 1.0f ? whole : 1.0f;
    if (rule == SPEC_RISE_RULE) {
        rule = SPEC_TREAD_RULE;
        step = whole + 1.0f;
    }
    int wide = index == SPEC_WIDE;
    return (spec_class){index == 0 || wide, wide, step, wide ? 255.0f : 127.0f, rule};
}

spec_class spec_class_of(const spec_stream *s, int index) {
    float target = s->flags & SPEC_STOCHASTIC ? s->bound : 2.0f * s->bound;
    if (s->codec == SPEC_ZVC || (s->bound == 0.0f && s->dtype != SPEC_U8))
        return (spec_class){0};
    if (s->dtype == SPEC_U8)
        return class_u8(s, index);
    return s->dtype == SPEC_F32 ? class_f32(s, index, target) : class_16_bit(s, index, target);
}

float spec_edge(const spec_class *c, float threshold, float slope, int *a) {
    *a = 0;
    if (isnan(threshold) || fabsf(threshold) >= (c->wide ? 8192.0f : 128.0f) * c->s)
        return 0.0f;
    float edge = slope < 0.0f ? threshold : nextafterf(threshold, INFINITY), inverse = 1.0f / c->s;
    *a = (int)nearbyint((double)edge * (double)inverse);
    return edge;
}
