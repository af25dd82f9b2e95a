/* SPDX-License-Identifier: Apache-2.0 */
#include "support/spec/spec_decoder.h"

#include <math.h>
#include <string.h>

#include "support/number.h"
#include "support/spec/spec_format.h"

/* ---- section 1: the header ---- */

typedef struct decoder {
    const unsigned char *stream;
    uint64_t bytes, payload; /* payload: where the table ends */
    spec_stream s;
} decoder;

static uint64_t little(const unsigned char *p, int n) {
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static void read_fields(const unsigned char *p, spec_stream *s) {
    s->codec = p[6];
    s->dtype = p[7];
    s->ndim = p[8];
    s->layout = p[9];
    s->flags = (int)little(p + 10, 2);
    s->bound = float_of_bits((uint32_t)little(p + 12, 4));
    s->channels = (int64_t)little(p + 32, 8);
    s->row = (int64_t)little(p + 40, 8);
    s->count = 1;
    for (int i = 0; i < s->ndim && i < 8; i++)
        s->count *= s->shape[i] = (int64_t)little(p + 64 + 8 * i, 8);
}

static int read_header(decoder *d, failure *f) {
    const unsigned char *p = d->stream;
    spec_stream *s = &d->s;
    if (d->bytes < 128 || memcmp(p, "CMET", 4) != 0 || little(p + 4, 2) != 0)
        return failure_set(f, "no header of version 0");
    read_fields(p, s);
    if ((s->codec != SPEC_EB && s->codec != SPEC_ZVC) || s->dtype > 3 || s->ndim > 8 || s->layout > 2 || s->flags > 15)
        return failure_set(f, "fields of the header");
    if (little(p + 16, 8) > d->bytes)
        return failure_set(f, "length");
    d->bytes = little(p + 16, 8);
    uint32_t expected = s->flags & SPEC_CHECKSUM ? spec_crc(p, d->bytes) : 0;
    return little(p + 24, 4) == expected ? 1 : failure_set(f, "checksum");
}

/* ---- section 2: tiles ---- */

static int read_geometry(decoder *d, failure *f) {
    int64_t channels, row;
    spec_layout(&d->s, &channels, &row);
    if (channels != d->s.channels || row != d->s.row)
        return failure_set(f, "C %lld, S %lld are not the layout's", (long long)d->s.channels, (long long)d->s.row);
    spec_geometry(&d->s);
    d->payload = 128 + 24 * (uint64_t)((d->s.tiles + 7) / 8);
    return d->payload <= d->bytes ? 1 : failure_set(f, "no room for the table");
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

/* ---- section 3: the quantiser ---- */

static float value_of(const spec_stream *s, const spec_class *c, int code, int64_t index) {
    if (!c->exists)
        return 0.0f; /* only codes of 0 come here */
    if (c->rule == SPEC_GRID_RULE) {
        int64_t channel = spec_channel(s, index);
        int a;
        float e = spec_edge(c, s->grid->threshold[channel], s->grid->slope ? s->grid->slope[channel] : 1.0f, &a);
        return fmaf((float)(code + 192), c->s, fmaf(-((float)a + 191.5f), c->s, e));
    }
    if (c->rule != SPEC_RISE_RULE)
        return (float)code * c->s;
    float magnitude = (float)(2 * (code < 0 ? -code : code) - 1) * (c->s / 2);
    return code == 0 ? 0.0f : code < 0 ? -magnitude : magnitude;
}

static uint32_t bits_of_value(const spec_stream *s, float v) {
    if (s->dtype == SPEC_F16)
        v = v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
    return s->dtype == SPEC_F32 ? bits_of_float(v) : bits_of_number((comet_dtype)s->dtype, (double)v);
}

/* ---- exact tiles ---- */

static int decode_raw(const decoder *d, int64_t t, const unsigned char *p, size_t bytes, void *patterns, failure *f) {
    size_t size = (size_t)spec_value_size(&d->s), at = 0;
    for (int i = 0; i < 1024; i++) {
        int64_t index = spec_index(&d->s, t, i);
        if (index < 0)
            continue;
        if (bytes - at < size)
            return failure_set(f, "raw tile too short");
        bits_put((comet_dtype)d->s.dtype, patterns, index, (uint32_t)little(p + at, (int)size));
        at += size;
    }
    return at == bytes ? 1 : failure_set(f, "raw tile too long");
}

static int decode_sparse(const decoder *d, int64_t t, const unsigned char *p, size_t bytes, void *patterns,
                         failure *f) {
    size_t size = (size_t)spec_value_size(&d->s), at = 128;
    if (bytes < 128)
        return failure_set(f, "sparse tile without its bitmap");
    for (int i = 0; i < 1024; i++) {
        int64_t index = spec_index(&d->s, t, i);
        uint32_t bits = 0;
        if (p[i / 8] >> (i % 8) & 1) {
            if (bytes - at < size)
                return failure_set(f, "sparse tile too short");
            bits = (uint32_t)little(p + at, (int)size);
            at += size;
        }
        if (index >= 0)
            bits_put((comet_dtype)d->s.dtype, patterns, index, bits);
    }
    return at == bytes ? 1 : failure_set(f, "sparse tile too long");
}

/* ---- code tiles ---- */

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

static int read_firsts(spec_tile *c, reader *r) {
    const unsigned char *p = take(r, c->chained && c->wide ? 2 : 1);
    if (!p)
        return 0;
    if (c->chained) {
        c->firsts[0] = spec_wrap(c, (int)little(p, c->wide ? 2 : 1));
        return 1;
    }
    int n = p[0] & 15, sign = p[0] >> 4 & 1, folded[32] = {0};
    for (int plane = 0; plane < n + sign; plane++) {
        const unsigned char *word = take(r, 4);
        if (!word)
            return 0;
        for (int l = 0; l < 32; l++)
            folded[l] |= (int)(little(word, 4) >> l & 1) << (plane == n ? spec_sign_bit(c) : plane);
    }
    for (int l = 0; l < 32; l++)
        c->firsts[l] = spec_unfold(c, folded[l]);
    return 1;
}

static int flag_at(const unsigned char *flags, int column) {
    return flags[column / 4] >> (column % 4 * 2) & 3;
}

/* Sets the bits of column k of a plane. */
static int read_column(spec_tile *c, int flag, uint32_t ballot, int bit, int k, reader *r) {
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

static int read_planes(spec_tile *c, const unsigned char *flags, reader *r) {
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
        if (!read_column(c, flag, word, plane == c->n ? spec_sign_bit(c) : plane, column % 4, r))
            return 0;
    }
    return r->at == r->end;
}

static int first_of(const spec_tile *c, int i) {
    return c->firsts[c->chained ? 0 : i / 8];
}

/* Column i of a narrow tile: the codes are the digits of U. */
static void undo_narrow_column(spec_tile *c, int i) {
    int from = spec_predictor(c, i);
    int64_t e = 0, p = (from < 0 ? first_of(c, i) : c->codes[from]) + 128, power = 1;
    for (int k = 0; k < 4; k++, power *= 256) {
        int residual = k == 0 && from < 0 ? 0 : spec_unfold(c, c->folded[256 * k + i]);
        e += (residual + 128) * power;
    }
    uint64_t u = (uint64_t)(e - 0x80808080 + p) * 0x01010101u;
    for (int k = 0; k < 4; k++, u /= 256)
        c->codes[256 * k + i] = (int)(u % 256) - 128;
}

static void undo_prediction(spec_tile *c) {
    for (int i = 0; i < 1024; i++) {
        int residual = spec_unfold(c, c->folded[i]), from = spec_predictor(c, i);
        if (!c->predicted)
            c->codes[i] = residual;
        else if (c->wide)
            c->codes[i] = from < 0 ? first_of(c, i) : spec_wrap(c, residual + c->codes[from]);
        else if (i < 256)
            undo_narrow_column(c, i);
    }
}

static int read_code_tile(const decoder *d, spec_tile *c, const unsigned char *p, size_t bytes) {
    memset(c, 0, sizeof *c);
    c->chained = d->s.channels == 1;
    if (bytes == 0)
        return 1;
    reader r = {p, p + bytes};
    const unsigned char *head = take(&r, 1);
    c->n = head[0] & 15;
    c->sign = head[0] >> 4 & 1;
    c->class_index = head[0] >> 5 & 3;
    c->predicted = head[0] >> 7;
    c->wide = c->n >= 8;
    if (c->wide && c->class_index != 0)
        return 0;
    c->class_index = c->wide ? SPEC_WIDE : c->class_index;
    spec_class class = spec_class_of(&d->s, c->class_index);
    const unsigned char *flags = take(&r, (size_t)(c->n + c->sign));
    if (!class.exists || !flags || (c->predicted && !read_firsts(c, &r)) || !read_planes(c, flags, &r))
        return 0;
    undo_prediction(c);
    return 1;
}

static int decode_codes(const decoder *d, int64_t t, const unsigned char *p, size_t bytes, void *patterns, failure *f) {
    spec_tile tile;
    if (!read_code_tile(d, &tile, p, bytes))
        return failure_set(f, "code tile");
    spec_class c = spec_class_of(&d->s, tile.class_index);
    for (int i = 0; i < 1024; i++) {
        int64_t index = spec_index(&d->s, t, i);
        if (index >= 0)
            bits_put((comet_dtype)d->s.dtype, patterns, index,
                     bits_of_value(&d->s, value_of(&d->s, &c, tile.codes[i], index)));
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
    decoder d = {.stream = stream, .bytes = bytes, .s = {.grid = grid}};
    if (!read_header(&d, f) || !read_geometry(&d, f))
        return 0;
    if ((uint64_t)d.s.count * (uint64_t)spec_value_size(&d.s) != pattern_bytes || !(d.s.flags & SPEC_GRID) != !grid)
        return failure_set(f, "another tensor");
    for (int64_t t = 0; t < d.s.tiles; t++)
        if (!decode_tile(&d, t, patterns, f))
            return failure_prefix(f, "tile %lld", (long long)t);
    return 1;
}
