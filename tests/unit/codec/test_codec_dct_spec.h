/* SPDX-License-Identifier: Apache-2.0 */
/* dct again, from docs/codecs.md, section 5, alone: one value at a time, formula by formula. For test_codec_dct.c. */
#ifndef TESTS_UNIT_TEST_CODEC_DCT_SPEC_H
#define TESTS_UNIT_TEST_CODEC_DCT_SPEC_H

#include "unit/codec/test_codec_common.h"

#include <math.h>

typedef struct spec {
    const test_shape *shape;
    comet_dtype dtype;
    int64_t count, channels, outer, height, width, inner, rows, block_columns, blocks;
    int transformed, table;
    const void *in;
    float *maxima;
    unsigned char *body;
    size_t bytes;
    void *decoded;
} spec;

static inline void spec_geometry(spec *s) {
    const test_shape *t = s->shape;
    s->channels = shape_channels(t);
    s->inner = t->layout == COMET_NHWC && t->ndim ? t->shape[t->ndim - 1] : 1;
    int32_t at = t->ndim - (t->layout == COMET_NHWC ? 3 : 2);
    if (t->layout == COMET_FLAT || at < 0 || (t->layout == COMET_NCHW && t->ndim == 3))
        return;
    s->outer = 1;
    for (int32_t d = 0; d < at; d++)
        s->outer *= t->shape[d];
    s->height = t->shape[at];
    s->width = t->shape[at + 1];
    s->transformed = s->height >= 8 && s->width >= 8;
    s->rows = s->outer * s->height;
    s->block_columns = (s->width + 7) / 8;
    s->blocks = (s->rows + 7) / 8 * s->block_columns * s->inner;
}

static inline int64_t spec_channel(const spec *s, int64_t i) {
    return s->shape->layout == COMET_FLAT ? 0 : i / shape_channel_stride(s->shape) % s->channels;
}

static inline void spec_maxima(spec *s) {
    s->maxima = take((size_t)s->channels * 4);
    memset(s->maxima, 0, (size_t)s->channels * 4);
    for (int64_t i = 0; i < s->count; i++) {
        float x = fabsf(value_at(s->dtype, s->in, i)), *max = &s->maxima[spec_channel(s, i)];
        if (isfinite(x) && x > *max)
            *max = x;
    }
}

static inline int spec_code(const spec *s, int64_t i) {
    float a = s->maxima[spec_channel(s, i)] + 1e-5f, scale = 144.0f / a, v = value_at(s->dtype, s->in, i) * scale;
    v = isnan(v) ? 0.0f : v > -128.0f ? v : -128.0f;
    return (int)rintf(v < 127.0f ? v : 127.0f);
}

static inline void spec_put(const spec *s, int64_t i, int code) {
    float a = s->maxima[spec_channel(s, i)] + 1e-5f, step = a / 144.0f, x = (float)code * step;
    bits_put(s->dtype, s->decoded, i, bits_of_number(s->dtype, (double)x));
}

/* M from its definition: the cosines, rounded. */
static inline int64_t spec_m(int u, int x) {
    static int64_t m[8][8]; /* 0: not computed yet */
    if (m[u][x] == 0)
        m[u][x] = u == 0 ? 8192 : llrint(8192.0 * sqrt(2.0) * cos((2 * x + 1) * u * 3.14159265358979323846 / 16.0));
    return m[u][x];
}

static inline int spec_divisor(const spec *s, int u, int v) {
    return s->table == 0 || (u == 0 && v == 0) ? 8 : u + v < 8 ? 32 : 16;
}

static inline int64_t floor_shift(int64_t value, int bits) {
    int64_t d = (int64_t)1 << bits;
    return value >= 0 ? value / d : -((-value + d - 1) / d);
}

static inline int64_t turn(int64_t sum) {
    int64_t t = floor_shift(sum + 256, 9);
    return t < -32768 ? -32768 : t > 32767 ? 32767 : t;
}

static inline void spec_forward(const spec *s, int x_in[8][8], int64_t c[8][8]) {
    int64_t t[8][8];
    for (int u = 0; u < 8; u++)
        for (int x = 0; x < 8; x++) {
            int64_t sum = 0;
            for (int y = 0; y < 8; y++)
                sum += spec_m(u, y) * x_in[y][x];
            t[u][x] = turn(sum);
        }
    for (int u = 0; u < 8; u++)
        for (int v = 0; v < 8; v++) {
            int64_t sum = 0;
            for (int x = 0; x < 8; x++)
                sum += spec_m(v, x) * t[u][x];
            assert_true(sum >= INT32_MIN && sum <= INT32_MAX);
            c[u][v] = sum / ((int64_t)1048576 * spec_divisor(s, u, v)); /* C truncates */
            assert_true(c[u][v] >= -128 && c[u][v] <= 127);
        }
}

static inline void spec_inverse(const spec *s, int64_t c[8][8], int x_out[8][8]) {
    int64_t t[8][8];
    for (int u = 0; u < 8; u++)
        for (int x = 0; x < 8; x++) {
            int64_t sum = 0;
            for (int v = 0; v < 8; v++)
                sum += spec_m(v, x) * c[u][v] * spec_divisor(s, u, v);
            t[u][x] = turn(sum);
        }
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++) {
            int64_t sum = 0;
            for (int u = 0; u < 8; u++)
                sum += spec_m(u, y) * t[u][x];
            int64_t code = floor_shift(sum + 524288, 20);
            x_out[y][x] = (int)(code < -128 ? -128 : code > 127 ? 127 : code);
        }
}

static inline int64_t spec_index(const spec *s, int64_t row, int64_t x, int64_t channel) {
    return (row * s->width + x) * s->inner + channel;
}

static inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Codes a block, appends its values, decodes it. Returns how many values there are now. */
static inline size_t spec_block(spec *s, int64_t block, unsigned char *mask, unsigned char *values, size_t n) {
    int64_t channel = block % s->inner, place = block / s->inner;
    int64_t row = place / s->block_columns * 8, col = place % s->block_columns * 8, c[8][8];
    int codes[8][8];
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++)
            codes[y][x] =
                spec_code(s, spec_index(s, least(row + y, s->rows - 1), least(col + x, s->width - 1), channel));
    spec_forward(s, codes, c);
    memset(mask, 0, 8);
    for (int i = 0; i < 64; i++)
        if (c[i % 8][i / 8]) {
            mask[i / 8] |= (unsigned char)(1u << i % 8);
            values[n++] = (unsigned char)c[i % 8][i / 8];
        }
    spec_inverse(s, c, codes);
    for (int y = 0; y < 8 && row + y < s->rows; y++)
        for (int x = 0; x < 8 && col + x < s->width; x++)
            spec_put(s, spec_index(s, row + y, col + x, channel), codes[y][x]);
    return n;
}

static inline void spec_encode(spec *s) {
    s->bytes = 0;
    s->decoded = take((size_t)s->count * comet_dtype_size(s->dtype));
    s->maxima = NULL;
    s->body = NULL;
    if (s->count == 0)
        return;
    spec_geometry(s);
    spec_maxima(s);
    size_t scales = (size_t)s->channels * 4, chunks = ((size_t)s->blocks + 127) / 128, n = 0;
    s->body = take(scales + (s->transformed ? 8 * chunks + 72 * (size_t)s->blocks : (size_t)s->count));
    memcpy(s->body, s->maxima, scales);
    if (!s->transformed) {
        for (int64_t i = 0; i < s->count; i++) {
            s->body[scales + (size_t)i] = (unsigned char)spec_code(s, i);
            spec_put(s, i, spec_code(s, i));
        }
        s->bytes = scales + (size_t)s->count;
        return;
    }
    unsigned char *masks = s->body + scales + 8 * chunks, *values = masks + 8 * s->blocks;
    for (int64_t b = 0; b < s->blocks; b++) {
        uint64_t offset = n;
        if (b % 128 == 0)
            memcpy(s->body + scales + b / 128 * 8, &offset, 8);
        n = spec_block(s, b, masks + 8 * b, values, n);
    }
    s->bytes = (size_t)(values - s->body) + n;
}

static inline void spec_free(spec *s) {
    free(s->maxima);
    free(s->body);
    free(s->decoded);
}

#endif
