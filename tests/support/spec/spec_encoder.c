/* SPDX-License-Identifier: Apache-2.0 */
#include "support/spec/spec_encoder.h"

#include <math.h>
#include <string.h>

#include "support/number.h"

/* Bytes written one behind the other. */
typedef struct writer {
    unsigned char *at;
} writer;

static void put(writer *w, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        *w->at++ = (unsigned char)(v >> 8 * i);
}

/* A tile's values: patterns and fp32 values where there is no padding. */
typedef struct tile_values {
    int valid[1024], count;
    uint32_t bits[1024];
    float values[1024];
    int64_t index[1024];
} tile_values;

static void collect(const spec_stream *s, const void *patterns, int64_t t, tile_values *v) {
    memset(v, 0, sizeof *v);
    for (int i = 0; i < 1024; i++) {
        v->index[i] = spec_index(s, t, i);
        if (v->index[i] < 0)
            continue;
        v->valid[i] = 1;
        v->count++;
        v->bits[i] = bits_at((comet_dtype)s->dtype, patterns, v->index[i]);
        v->values[i] = (float)number_of_bits((comet_dtype)s->dtype, v->bits[i]);
    }
}

/* ---- the quantiser ---- */

static float reach_of(const spec_class *c) {
    switch (c->rule) {
    case SPEC_STOCHASTIC_RULE:
    case SPEC_RISE_RULE:
        return (c->limit - 1.0f) * c->s;
    case SPEC_GRID_RULE:
        return ((c->limit < 8000.0f ? c->limit : 8000.0f) - 2.0f) * c->s;
    default:
        return c->limit * c->s;
    }
}

/* The first class that reaches the largest value; -1 if none does. */
static int choose_class(const spec_stream *s, const tile_values *v) {
    float largest = 0.0f;
    for (int i = 0; i < 1024; i++) {
        if (!isfinite(v->values[i]))
            return -1;
        largest = fabsf(v->values[i]) > largest ? fabsf(v->values[i]) : largest;
    }
    for (int c = 0; c < SPEC_CLASSES; c++) {
        spec_class class = spec_class_of(s, c);
        if (s->dtype == SPEC_U8 && c == SPEC_WIDE && class.rule == SPEC_STOCHASTIC_RULE)
            class.limit += 1.0f; /* so that 255 is in reach: the text's limit of 255 leaves it out */
        if (class.exists && reach_of(&class) >= largest)
            return c;
    }
    return -1;
}

static uint32_t high_of(uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32);
}

/* Philox-4x32-10, from the paper. */
static void philox(uint32_t c[4], uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; round++) {
        uint32_t next[4] = {high_of(0xCD9E8D57u, c[2]) ^ c[1] ^ k0, 0xCD9E8D57u * c[2],
                            high_of(0xD2511F53u, c[0]) ^ c[3] ^ k1, 0xD2511F53u * c[0]};
        memcpy(c, next, sizeof next);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

static float noise(int64_t t, int i, int wide, uint64_t seed) {
    uint32_t k = (uint32_t)i / 256, l = (uint32_t)i / 8 % 32, m = (uint32_t)i % 8;
    uint32_t c[4] = {(uint32_t)t, (uint32_t)(t >> 32), 4 * l + k, 0};
    philox(c, (uint32_t)seed, (uint32_t)(seed >> 32));
    uint32_t r = m % 2 == 0 ? c[m / 2] & 0xffffu : c[m / 2] >> 16;
    return wide ? (float)(2 * (r / 256) + 1) / 512.0f : (float)(2 * r + 1) / 131072.0f;
}

/* The integer nearest to the exact product, ties to even: both factors have 24 bits, so a double holds it. */
static int nearest(float x, float inverse) {
    return (int)nearbyint((double)x * (double)inverse);
}

static int code_on_grid(const spec_stream *s, const spec_class *c, float y, int64_t index) {
    int64_t channel = spec_channel(s, index);
    float h = s->grid->threshold[channel], slope = s->grid->slope ? s->grid->slope[channel] : 1.0f;
    int a;
    float e = spec_edge(c, h, slope, &a), difference = y - e, inverse = 1.0f / c->s;
    return a + (int)floor((double)difference * (double)inverse);
}

static int code_of(const spec_stream *s, const spec_class *c, const tile_values *v, int64_t t, int i, uint64_t seed) {
    float x = v->values[i], inverse = 1.0f / c->s;
    int sign = x < 0.0f ? -1 : 1, q;
    switch (c->rule) {
    case SPEC_STOCHASTIC_RULE:
        return (int)floorf(fmaf(x, inverse, noise(t, i, c->wide, seed)));
    case SPEC_RISE_RULE:
        return sign * (int)ceil((double)fabsf(x) * (double)inverse);
    case SPEC_TREAD_RULE:
        q = nearest(x, inverse);
        return q == 0 && x != 0.0f ? sign : q;
    case SPEC_GRID_RULE:
        return code_on_grid(s, c, x, v->index[i]);
    default:
        return nearest(x, inverse);
    }
}

/* ---- code tiles ---- */

/* Of all values, or of columns 1 and 6 of every lane alone. */
static int count_bits(const int *folded, int sampled) {
    int bits = 0;
    for (int i = 0; i < 1024; i++)
        for (int b = 0; b < 16; b++)
            if (!sampled || i % 8 == 1 || i % 8 == 6)
                bits += folded[i] >> b & 1;
    return bits;
}

/* The residual of value i of a narrow tile: the digit of its row in E. */
static int narrow_residual(const spec_tile *c, int i) {
    int top = i % 256, from = spec_predictor(c, top);
    int64_t u = 0, p = c->codes[from < 0 ? top : from] + 128, power = 1;
    for (int k = 0; k < 4; k++, power *= 256) {
        int64_t b = c->codes[256 * k + top] + 128;
        u += b * power;
        p += k < 3 ? b * power * 256 : 0;
    }
    int64_t e = (u - p + 0x80808080) & 0xffffffff;
    for (int k = 0; k < i / 256; k++)
        e /= 256;
    return (int)(e % 256) - 128;
}

/* Folded residuals, directly or predicted; 0 for padding. */
static void residuals(const spec_tile *c, const tile_values *v, int predicted, int folded[1024]) {
    for (int i = 0; i < 1024; i++) {
        int from = spec_predictor(c, i), residual;
        if (!predicted)
            residual = c->codes[i];
        else if (c->wide)
            residual = from < 0 ? 0 : spec_wrap(c, c->codes[i] - c->codes[from]);
        else
            residual = narrow_residual(c, i);
        folded[i] = v->valid[i] ? spec_fold(c, residual) : 0;
    }
}

static int prediction_pays(const spec_tile *c, const int *direct, const int *predicted) {
    if (c->wide)
        return count_bits(predicted, 0) + 128 < count_bits(direct, 0);
    return 4 * count_bits(predicted, 1) + 128 < 4 * count_bits(direct, 1);
}

/* The magnitude planes and the sign plane that hold all of these. */
static void planes_of(const spec_tile *c, const int *folded, int count, int *n, int *sign) {
    *n = *sign = 0;
    for (int i = 0; i < count; i++) {
        int magnitude = folded[i] & ((1 << spec_sign_bit(c)) - 1);
        while (magnitude >> *n)
            ++*n;
        *sign |= folded[i] >> spec_sign_bit(c) & 1;
    }
}

static void put_firsts(const spec_tile *c, writer *w) {
    int folded[32], n, sign;
    if (c->chained) {
        put(w, (uint64_t)(int64_t)c->codes[0], c->wide ? 2 : 1);
        return;
    }
    for (int l = 0; l < 32; l++)
        folded[l] = spec_fold(c, c->codes[8 * l]);
    planes_of(c, folded, 32, &n, &sign);
    put(w, (uint64_t)(n | sign << 4), 1);
    for (int p = 0; p < n + sign; p++) {
        uint32_t word = 0;
        for (int l = 0; l < 32; l++)
            word |= (uint32_t)(folded[l] >> (p == n ? spec_sign_bit(c) : p) & 1) << l;
        put(w, word, 4);
    }
}

typedef struct column {
    unsigned char bytes[32];
    uint32_t ballot;
    int flag, place; /* place: of the only bit */
} column;

static column column_of(const int *folded, int bit, int k) {
    column c = {.ballot = 0};
    int nonzero = 0, ones = 0;
    for (int j = 0; j < 256; j++)
        if (folded[256 * k + j] >> bit & 1) {
            c.bytes[j / 8] |= (unsigned char)(1u << j % 8);
            c.place = j;
            ones++;
        }
    for (int l = 0; l < 32; l++)
        if (c.bytes[l]) {
            c.ballot |= 1u << l;
            nonzero++;
        }
    c.flag = ones == 0 ? 0 : ones == 1 ? 3 : nonzero >= 28 ? 2 : 1;
    return c;
}

static void put_planes(const spec_tile *c, unsigned char *flags, writer *w) {
    int columns = 4 * (c->n + c->sign);
    for (int pass = 0; pass < 2; pass++) /* ballots, then data */
        for (int i = 0; i < columns; i++) {
            column one = column_of(c->folded, i / 4 == c->n ? spec_sign_bit(c) : i / 4, i % 4);
            if (pass == 0) {
                flags[i / 4] = (unsigned char)((i % 4 ? flags[i / 4] : 0) | one.flag << 2 * (i % 4));
                if (one.flag == 1)
                    put(w, one.ballot, 4);
            } else if (one.flag == 3) {
                put(w, (uint64_t)one.place, 1);
            } else {
                for (int l = 0; l < 32; l++)
                    if (one.flag == 2 || (one.flag == 1 && one.bytes[l]))
                        put(w, one.bytes[l], 1);
            }
        }
}

static size_t encode_codes(spec_tile *c, const tile_values *v, unsigned char *out) {
    int direct[1024], predicted[1024], any = 0;
    writer w = {out};
    for (int i = 0; i < 1024; i++)
        any |= c->codes[i];
    if (!any && c->class_index == 0)
        return 0;
    residuals(c, v, 0, direct);
    residuals(c, v, 1, predicted);
    c->predicted = prediction_pays(c, direct, predicted);
    memcpy(c->folded, c->predicted ? predicted : direct, sizeof c->folded);
    planes_of(c, c->folded, 1024, &c->n, &c->sign);
    if (c->wide && c->n < 8)
        c->n = 8;
    put(&w, (uint64_t)(c->n | c->sign << 4 | (c->wide ? 0 : c->class_index) << 5 | c->predicted << 7), 1);
    unsigned char *flags = w.at;
    w.at += c->n + c->sign;
    if (c->predicted)
        put_firsts(c, &w);
    put_planes(c, flags, &w);
    return (size_t)(w.at - out);
}

/* ---- tiles ---- */

static size_t encode_exact(const spec_stream *s, const tile_values *v, unsigned char *out, int *kind) {
    int size = spec_value_size(s), marked = 0;
    writer w = {out};
    for (int i = 0; i < 1024; i++)
        marked += v->bits[i] != 0;
    *kind = 0;
    if (marked == 0 && !(s->flags & SPEC_GRID))
        return 0;
    *kind = 128 + marked * size < v->count * size ? 1 : 2;
    for (int i = 0; i < 1024 && *kind == 1; i += 8) {
        unsigned byte = 0;
        for (int b = 0; b < 8; b++)
            byte |= (unsigned)(v->bits[i + b] != 0) << b;
        put(&w, byte, 1);
    }
    for (int i = 0; i < 1024; i++)
        if (*kind == 1 ? v->bits[i] != 0 : v->valid[i])
            put(&w, v->bits[i], size);
    return (size_t)(w.at - out);
}

static size_t encode_tile(const spec_stream *s, const void *patterns, int64_t t, uint64_t seed, unsigned char *out,
                          int *kind) {
    tile_values v;
    spec_tile c;
    collect(s, patterns, t, &v);
    int class_index = choose_class(s, &v);
    if (class_index >= 0) {
        spec_class class = spec_class_of(s, class_index);
        memset(&c, 0, sizeof c);
        c.class_index = class_index;
        c.wide = class.wide;
        c.chained = s->channels == 1;
        for (int i = 0; i < 1024; i++)
            c.codes[i] = v.valid[i] ? code_of(s, &class, &v, t, i, seed) : 0;
        size_t bytes = encode_codes(&c, &v, out);
        *kind = 0;
        if (bytes == 0 || bytes < (size_t)(v.count * spec_value_size(s)))
            return bytes;
    }
    return encode_exact(s, &v, out, kind);
}

static void put_header(const spec_stream *s, uint64_t bytes, unsigned char *out) {
    writer w = {out};
    memcpy(w.at, "CMET", 4);
    w.at += 4;
    put(&w, 0, 2);
    put(&w, (uint64_t)s->codec, 1);
    put(&w, (uint64_t)s->dtype, 1);
    put(&w, (uint64_t)s->ndim, 1);
    put(&w, (uint64_t)s->layout, 1);
    put(&w, (uint64_t)s->flags, 2);
    put(&w, bits_of_float(s->bound), 4);
    put(&w, bytes, 8);
    put(&w, 0, 8);
    put(&w, (uint64_t)s->channels, 8);
    put(&w, (uint64_t)s->row, 8);
    put(&w, 0, 8);
    put(&w, 0, 8);
    for (int d = 0; d < 8; d++)
        put(&w, d < s->ndim ? (uint64_t)s->shape[d] : 0, 8);
    w.at = out + 24;
    put(&w, s->flags & SPEC_CHECKSUM ? spec_crc(out, bytes) : 0, 4);
}

size_t spec_encode(spec_stream *s, const void *patterns, uint64_t seed, unsigned char *out) {
    s->count = 1;
    for (int d = 0; d < s->ndim; d++)
        s->count *= s->shape[d];
    spec_layout(s, &s->channels, &s->row);
    spec_geometry(s);
    size_t groups = (size_t)(s->tiles + 7) / 8;
    unsigned char *payload = out + 128 + 24 * groups, *end = payload;
    memset(out + 128, 0, 24 * groups);
    for (int64_t t = 0; t < s->tiles; t++) {
        int kind;
        writer entry = {out + 128 + t / 8 * 24};
        size_t bytes = encode_tile(s, patterns, t, seed, end, &kind);
        if (t % 8 == 0)
            put(&entry, (uint64_t)(end - payload), 8);
        entry.at = out + 128 + t / 8 * 24 + 8 + t % 8 * 2;
        put(&entry, bytes | (uint64_t)kind << 13, 2);
        end += bytes;
    }
    put_header(s, (uint64_t)(end - out), out);
    return (size_t)(end - out);
}
