/* SPDX-License-Identifier: Apache-2.0 */
#include "support/spec_decoder.h"

#include <math.h>
#include <string.h>

#include "support/number.h"

/* ---- section 1: the header ---- */

enum { CODEC_EB = 1, CODEC_ZVC = 2, DTYPE_F32 = 0, DTYPE_F16 = 1, DTYPE_BF16 = 2, DTYPE_U8 = 3 };
enum { FLAG_CHECKSUM = 1, FLAG_KEEP = 2, FLAG_STOCHASTIC = 4, FLAG_GRID = 8 };
enum { LAYOUT_NCHW = 1, LAYOUT_NHWC = 2 };

typedef struct decoder {
    const unsigned char *stream;
    uint64_t bytes;
    int codec, dtype, layout, ndim, flags;
    float bound;
    int64_t shape[8], count, channels, row, positions, columns, tiles;
    uint64_t payload; /* where the table ends */
    const comet_codec_grid *grid;
} decoder;

static uint64_t little(const unsigned char *p, int n) {
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

/* zlib's CRC-32, bit by bit, with bytes 24 to 27 taken as 0. */
static uint32_t crc_of(const unsigned char *stream, uint64_t bytes) {
    uint32_t crc = 0xffffffffu;
    for (uint64_t i = 0; i < bytes; i++) {
        crc ^= i >= 24 && i < 28 ? 0 : stream[i];
        for (int b = 0; b < 8; b++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static int read_header(decoder *d, failure *f) {
    const unsigned char *s = d->stream;
    if (d->bytes < 128 || memcmp(s, "CMET", 4) != 0 || little(s + 4, 2) != 0)
        return failure_set(f, "no header of version 0");
    d->codec = s[6];
    d->dtype = s[7];
    d->ndim = s[8];
    d->layout = s[9];
    d->flags = (int)little(s + 10, 2);
    d->bound = float_of_bits((uint32_t)little(s + 12, 4));
    d->channels = (int64_t)little(s + 32, 8);
    d->row = (int64_t)little(s + 40, 8);
    if ((d->codec != CODEC_EB && d->codec != CODEC_ZVC) || d->dtype > 3 || d->ndim > 8 || d->layout > 2 ||
        d->flags > 15)
        return failure_set(f, "fields of the header");
    d->count = 1;
    for (int i = 0; i < d->ndim; i++)
        d->count *= d->shape[i] = (int64_t)little(s + 64 + 8 * i, 8);
    if (little(s + 16, 8) > d->bytes)
        return failure_set(f, "length");
    d->bytes = little(s + 16, 8);
    uint32_t expected = d->flags & FLAG_CHECKSUM ? crc_of(s, d->bytes) : 0;
    return little(s + 24, 4) == expected ? 1 : failure_set(f, "checksum");
}

/* ---- section 2: tiles ---- */

static int64_t div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* C and S as the table of layouts gives them; the stream stores the same. */
static int geometry_is_as_told(const decoder *d) {
    int64_t channels = 1, width = 0, rows = 0;
    if (d->count == 0)
        return d->channels == 1 && d->row == 8;
    if (d->layout == LAYOUT_NCHW && d->ndim >= 1) {
        width = d->shape[d->ndim - 1];
        rows = d->count / width;
    }
    if (d->layout == LAYOUT_NHWC && d->ndim >= 1 && d->count / d->shape[d->ndim - 1] >= 32) {
        channels = d->shape[d->ndim - 1];
        width = d->ndim >= 2 ? d->shape[d->ndim - 2] : 0;
        rows = width ? d->count / channels / width : 0;
    }
    int64_t row = width >= 8 && rows >= 16 ? width : 8;
    return d->channels == channels && d->row == row;
}

static int read_geometry(decoder *d, failure *f) {
    if (!geometry_is_as_told(d))
        return failure_set(f, "C %lld, S %lld are not the layout's", (long long)d->channels, (long long)d->row);
    d->positions = d->count / d->channels;
    int64_t bands = div_up(d->positions, 4 * d->row);
    d->columns = bands * d->row;
    d->tiles = div_up(div_up(d->columns, 8) * d->channels, 32);
    d->payload = 128 + 24 * (uint64_t)div_up(d->tiles, 8);
    return d->payload <= d->bytes ? 1 : failure_set(f, "no room for the table");
}

/* The index in the tensor of value i of tile t; -1 for padding. */
static int64_t index_of(const decoder *d, int64_t t, int i) {
    int64_t k = i / 256, l = i / 8 % 32, m = i % 8, lane = 32 * t + l;
    int64_t column = 8 * (lane / d->channels) + m, channel = lane % d->channels;
    if (column >= d->columns)
        return -1;
    int64_t position = column / d->row * 4 * d->row + k * d->row + column % d->row;
    return position < d->positions ? position * d->channels + channel : -1;
}

static uint64_t entry_of(const decoder *d, int64_t t) {
    return little(d->stream + 128 + t / 8 * 24 + 8 + t % 8 * 2, 2);
}

/* Where tile t starts, from the start of the stream. */
static uint64_t start_of(const decoder *d, int64_t t) {
    uint64_t start = d->payload + little(d->stream + 128 + t / 8 * 24, 8);
    for (int64_t i = t / 8 * 8; i < t; i++)
        start += entry_of(d, i) & 0x1fff;
    return start;
}

static size_t value_size(const decoder *d) {
    return d->dtype == DTYPE_F32 ? 4 : d->dtype == DTYPE_U8 ? 1 : 2;
}

/* ---- section 3: the quantiser ---- */

typedef enum rule { RULE_MULTIPLE, RULE_RISE, RULE_GRID } rule;

typedef struct step_class {
    int exists, wide;
    float s;
    rule rule;
} step_class;

static float cut(int n, float v) {
    int exponent;
    float m = frexpf(v, &exponent);
    return ldexpf(truncf(ldexpf(m, n)), exponent - n);
}

static step_class class_f32(int index, float target, rule r) {
    float factor = index == 0 ? 1.0f - 0x1p-12f : 1.0f - 0x1p-6f;
    return (step_class){.exists = index < 2, .wide = index == 1, .s = cut(16, target * factor), .rule = r};
}

static step_class class_16_bit(const decoder *d, int index, float target) {
    int keep = d->flags & FLAG_KEEP, is_f16 = d->dtype == DTYPE_F16;
    static const int bits_f16[] = {6, 4, 0}, bits_bf16[] = {4, 3, 2};
    if (index == 3) {
        float s = cut(1, keep ? d->bound : target);
        return (step_class){1, 1, is_f16 && s < 0x1p-24f ? 0x1p-24f : s, RULE_MULTIPLE};
    }
    int n = is_f16 ? bits_f16[index] : bits_bf16[index];
    if (n == 0)
        return (step_class){0};
    float s = cut(n, target * (1.0f - 0x1p-12f));
    return (step_class){!is_f16 || s >= ldexpf(1.0f, n - 24), 0, s, keep ? RULE_RISE : RULE_MULTIPLE};
}

static step_class class_u8(const decoder *d, int index) {
    float whole = floorf(d->bound), s = 2.0f * whole + 1.0f;
    if (d->flags & FLAG_STOCHASTIC)
        s = whole > 1.0f ? whole : 1.0f;
    if (d->flags & FLAG_KEEP)
        s = whole + 1.0f;
    return (step_class){index < 2, index == 1, s, RULE_MULTIPLE};
}

static step_class class_of(const decoder *d, int index) {
    float target = d->flags & FLAG_STOCHASTIC ? d->bound : 2.0f * d->bound;
    if (d->codec == CODEC_ZVC || (d->bound == 0.0f && d->dtype != DTYPE_U8))
        return (step_class){0};
    if (d->dtype == DTYPE_U8)
        return class_u8(d, index);
    if (d->dtype == DTYPE_F32)
        return class_f32(index, target,
                         d->flags & FLAG_GRID   ? RULE_GRID
                         : d->flags & FLAG_KEEP ? RULE_RISE
                                                : RULE_MULTIPLE);
    return class_16_bit(d, index, target);
}

static int64_t channel_of(const decoder *d, int64_t index) {
    int64_t behind = 1;
    if (d->layout == LAYOUT_NHWC && d->ndim >= 1)
        return index % d->shape[d->ndim - 1];
    if (d->layout != LAYOUT_NCHW || d->ndim < 3)
        return 0;
    for (int i = 2; i < d->ndim; i++)
        behind *= d->shape[i];
    return index / behind % d->shape[1];
}

static float remainder_of(float h, float s) {
    if (isnan(h) || fabsf(h) >= 0x1p14f * s)
        return 0.0f;
    float inverse = 1.0f / s, a = fmaf(h, inverse, 0x1.8p23f) - 0x1.8p23f;
    return fmaf(-a, s, h);
}

static float value_of(const decoder *d, const step_class *c, int code, int64_t index) {
    if (!c->exists)
        return 0.0f; /* only codes of 0 come here */
    if (c->rule == RULE_MULTIPLE)
        return (float)code * c->s;
    if (c->rule == RULE_GRID)
        return fmaf((float)(2 * code + 1), c->s / 2, remainder_of(d->grid->threshold[channel_of(d, index)], c->s));
    int j = (code < 0 ? -code : code) - 1;
    float magnitude = (float)(2 * j + 1) * (c->s / 2);
    return code == 0 ? 0.0f : code < 0 ? -magnitude : magnitude;
}

static uint32_t bits_of_value(const decoder *d, float v) {
    if (d->dtype == DTYPE_F16)
        v = v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
    return d->dtype == DTYPE_F32 ? bits_of_float(v) : bits_of_number((comet_dtype)d->dtype, (double)v);
}

/* ---- exact tiles ---- */

static int decode_raw(const decoder *d, int64_t t, const unsigned char *p, size_t bytes, void *patterns, failure *f) {
    size_t size = value_size(d), at = 0;
    for (int i = 0; i < 1024; i++) {
        int64_t index = index_of(d, t, i);
        if (index < 0)
            continue;
        if (bytes - at < size)
            return failure_set(f, "raw tile too short");
        bits_put((comet_dtype)d->dtype, patterns, index, (uint32_t)little(p + at, (int)size));
        at += size;
    }
    return at == bytes ? 1 : failure_set(f, "raw tile too long");
}

static int decode_sparse(const decoder *d, int64_t t, const unsigned char *p, size_t bytes, void *patterns,
                         failure *f) {
    size_t size = value_size(d), at = 128;
    if (bytes < 128)
        return failure_set(f, "sparse tile without its bitmap");
    for (int i = 0; i < 1024; i++) {
        int64_t index = index_of(d, t, i);
        uint32_t bits = 0;
        if (p[i / 8] >> (i % 8) & 1) {
            if (bytes - at < size)
                return failure_set(f, "sparse tile too short");
            bits = (uint32_t)little(p + at, (int)size);
            at += size;
        }
        if (index >= 0)
            bits_put((comet_dtype)d->dtype, patterns, index, bits);
    }
    return at == bytes ? 1 : failure_set(f, "sparse tile too long");
}

/* ---- code tiles ---- */

typedef struct code_tile {
    int n, sign, class_index, predicted, wide, chained;
    int folded[1024], codes[1024], firsts[32];
} code_tile;

/* Sixteen or eight bits of two's complement. */
static int wrap(const code_tile *c, int v) {
    return c->wide ? (int16_t)(uint16_t)(unsigned)v : (int8_t)(uint8_t)(unsigned)v;
}

static int unfold(const code_tile *c, int folded) {
    int sign = c->wide ? 0x8000 : 0x80;
    return wrap(c, folded & sign ? folded ^ (sign - 1) : folded);
}

/* Bytes behind which nothing may be read. */
typedef struct reader {
    const unsigned char *at, *end;
} reader;

static const unsigned char *take(reader *r, size_t bytes) {
    if ((size_t)(r->end - r->at) < bytes)
        return NULL;
    r->at += bytes;
    return r->at - bytes;
}

static int sign_bit(const code_tile *c) {
    return c->wide ? 15 : 7;
}

static int read_firsts(code_tile *c, reader *r) {
    const unsigned char *p = take(r, c->chained && c->wide ? 2 : 1);
    if (!p)
        return 0;
    if (c->chained) {
        c->firsts[0] = wrap(c, (int)little(p, c->wide ? 2 : 1));
        return 1;
    }
    int n = p[0] & 15, sign = p[0] >> 4 & 1, folded[32] = {0};
    for (int plane = 0; plane < n + sign; plane++) {
        const unsigned char *word = take(r, 4);
        if (!word)
            return 0;
        for (int l = 0; l < 32; l++)
            folded[l] |= (int)(little(word, 4) >> l & 1) << (plane == n ? sign_bit(c) : plane);
    }
    for (int l = 0; l < 32; l++)
        c->firsts[l] = unfold(c, folded[l]);
    return 1;
}

static int flag_at(const unsigned char *flags, int column) {
    return flags[column / 4] >> (column % 4 * 2) & 3;
}

/* Sets the bits of column k of a plane. */
static int read_column(code_tile *c, int flag, uint32_t ballot, int bit, int k, reader *r) {
    for (int l = 0; l < 32; l++) {
        if (flag == 0 || flag == 3 || (flag == 1 && !(ballot >> l & 1)))
            continue;
        const unsigned char *byte = take(r, 1);
        if (!byte)
            return 0;
        for (int m = 0; m < 8; m++)
            c->folded[256 * k + 8 * l + m] |= (*byte >> m & 1) << bit;
    }
    if (flag == 3) {
        const unsigned char *byte = take(r, 1);
        if (!byte)
            return 0;
        c->folded[256 * k + *byte] |= 1 << bit;
    }
    return 1;
}

static int read_planes(code_tile *c, const unsigned char *flags, reader *r) {
    int planes = c->n + c->sign, ballots = 0;
    for (int column = 0; column < 4 * planes; column++)
        ballots += flag_at(flags, column) == 1;
    const unsigned char *ballot = take(r, 4 * (size_t)ballots);
    if (!ballot)
        return 0;
    for (int column = 0; column < 4 * planes; column++) {
        int flag = flag_at(flags, column), plane = column / 4;
        uint32_t word = 0;
        if (flag == 1) {
            word = (uint32_t)little(ballot, 4);
            ballot += 4;
        }
        if (!read_column(c, flag, word, plane == c->n ? sign_bit(c) : plane, column % 4, r))
            return 0;
    }
    return r->at == r->end;
}

static void undo_prediction(code_tile *c) {
    for (int i = 0; i < 1024; i++) {
        int residual = unfold(c, c->folded[i]), k = i / 256, l = i / 8 % 32, m = i % 8;
        if (!c->predicted)
            c->codes[i] = residual;
        else if (k > 0)
            c->codes[i] = wrap(c, residual + c->codes[i - 256]);
        else if (m > 0 || (c->chained && l > 0))
            c->codes[i] = wrap(c, residual + c->codes[i - 1]);
        else
            c->codes[i] = c->firsts[c->chained ? 0 : l];
    }
}

static int read_code_tile(const decoder *d, code_tile *c, const unsigned char *p, size_t bytes) {
    memset(c, 0, sizeof *c);
    c->chained = d->channels == 1;
    if (bytes == 0)
        return 1;
    reader r = {p, p + bytes};
    const unsigned char *head = take(&r, 1);
    c->n = head[0] & 15;
    c->sign = head[0] >> 4 & 1;
    c->class_index = head[0] >> 5 & 3;
    c->predicted = head[0] >> 7;
    step_class class = class_of(d, c->class_index);
    c->wide = class.wide;
    const unsigned char *flags = take(&r, (size_t)(c->n + c->sign));
    if (!class.exists || !flags || (c->predicted && !read_firsts(c, &r)) || !read_planes(c, flags, &r))
        return 0;
    undo_prediction(c);
    return 1;
}

static int decode_codes(const decoder *d, int64_t t, const unsigned char *p, size_t bytes, void *patterns, failure *f) {
    code_tile tile;
    if (!read_code_tile(d, &tile, p, bytes))
        return failure_set(f, "code tile");
    step_class c = class_of(d, tile.class_index);
    for (int i = 0; i < 1024; i++) {
        int64_t index = index_of(d, t, i);
        if (index >= 0)
            bits_put((comet_dtype)d->dtype, patterns, index, bits_of_value(d, value_of(d, &c, tile.codes[i], index)));
    }
    return 1;
}

/* ---- all tiles ---- */

static int decode_tile(const decoder *d, int64_t t, void *patterns, failure *f) {
    uint64_t entry = entry_of(d, t), bytes = entry & 0x1fff, kind = entry >> 13, start = start_of(d, t);
    if (start > d->bytes || bytes > d->bytes - start || kind > 2)
        return failure_set(f, "entry in the table");
    const unsigned char *p = d->stream + start;
    return kind == 0   ? decode_codes(d, t, p, bytes, patterns, f)
           : kind == 1 ? decode_sparse(d, t, p, bytes, patterns, f)
                       : decode_raw(d, t, p, bytes, patterns, f);
}

int spec_decode(const void *stream, size_t bytes, const comet_codec_grid *grid, void *patterns, size_t pattern_bytes,
                failure *f) {
    decoder d = {.stream = stream, .bytes = bytes, .grid = grid};
    if (!read_header(&d, f) || !read_geometry(&d, f))
        return 0;
    if ((uint64_t)d.count * value_size(&d) != pattern_bytes || !(d.flags & FLAG_GRID) != !grid)
        return failure_set(f, "another tensor");
    for (int64_t t = 0; t < d.tiles; t++)
        if (!decode_tile(&d, t, patterns, f))
            return failure_prefix(f, "tile %lld", (long long)t);
    return 1;
}
