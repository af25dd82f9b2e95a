/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices of a max-pool on the CPU (docs/codecs.md, section 7), a unit at a time: where the windows of its indices
 * begin, their codes, a byte each, and the bits of these. Only the first goes from index to index; the other loops are
 * the compiler's to make wide. Division is a multiplication.
 */
#include "base/bits.h"
#include "base/fail.h"
#include "base/isa.h"
#include "codec/indices/window.h"

enum { UNIT = 2048 }; /* indices handled at a time: whole bytes of any number of bits */

/* ---- division ---- */

/* By a number of up to 2^28; see comet_window. */
typedef struct divider {
    uint32_t by, multiplier;
    unsigned shift;
} divider;

static divider divider_of(uint32_t by) {
    const unsigned shift = 28 + comet_bit_width(by - 1);
    return (divider){by, (uint32_t)((((uint64_t)1 << shift) + by - 1) / by), shift};
}

/*
 * For n < 2^28: multiplier * by is above 2^shift by less than `by`, and so n * multiplier / 2^shift above n / by by
 * less than n / 2^shift < 1 / by: the floor is right. The product has 57 bits.
 */
COMET_INLINE uint32_t divide(uint32_t n, divider d) {
    return (uint32_t)((uint64_t)n * d.multiplier >> d.shift);
}

/* ---- windows ---- */

typedef struct unit {
    uint32_t n;
    uint32_t window[2][UNIT]; /* where the indices' windows begin, counted from the padding's begin: rows, columns */
    uint8_t codes[UNIT + 8];
} unit;

typedef struct work {
    const comet_window *w;
    divider width, dilation[2];
    uint32_t end[2]; /* where the windows of a map would go on */
    uint32_t bad;    /* not 0: something found was wrong */
} work;

/* The window of the next index, and how many of its channels are done where these come last. */
typedef struct place {
    uint32_t window[2], inner;
} place;

static work work_of(const comet_window *w) {
    return (work){.w = w,
                  .width = divider_of(w->input[1]),
                  .dilation = {divider_of(w->dilation[0]), divider_of(w->dilation[1])},
                  .end = {w->output[0] * w->stride[0], w->output[1] * w->stride[1]}};
}

COMET_INLINE void next_row(const work *k, place *p) {
    p->window[1] = 0;
    p->window[0] += k->w->stride[0];
    if (p->window[0] == k->end[0])
        p->window[0] = 0;
}

/* A row of windows after the other. */
COMET_INLINE void find_rows(const work *k, place *p, unit *u) {
    for (uint32_t i = 0; i < u->n;) {
        for (; i < u->n && p->window[1] < k->end[1]; p->window[1] += k->w->stride[1], i++) {
            u->window[0][i] = p->window[0];
            u->window[1][i] = p->window[1];
        }
        if (p->window[1] == k->end[1])
            next_row(k, p);
    }
}

/* The channels of a place have the same window. */
COMET_INLINE void find_channels(const work *k, place *p, unit *u) {
    for (uint32_t i = 0; i < u->n;) {
        for (; i < u->n && p->inner < k->w->inner; p->inner++, i++) {
            u->window[0][i] = p->window[0];
            u->window[1][i] = p->window[1];
        }
        if (p->inner < k->w->inner)
            return;
        p->inner = 0;
        p->window[1] += k->w->stride[1];
        if (p->window[1] == k->end[1])
            next_row(k, p);
    }
}

COMET_INLINE void find_windows(const work *k, place *p, uint32_t n, unit *u) {
    u->n = n;
    if (k->w->inner == 1)
        find_rows(k, p, u);
    else
        find_channels(k, p, u);
}

/* ---- indices to codes ---- */

/* The number of a place, from its distance to the window's begin; *bad is set if it is none. */
COMET_INLINE uint32_t number_of(const work *k, int d, uint32_t distance, int dilated, uint32_t *bad) {
    if (!dilated) {
        *bad |= distance >= k->w->kernel[d];
        return distance;
    }
    const uint32_t span = (k->w->kernel[d] - 1) * k->w->dilation[d] + 1;
    const uint32_t inside = distance < span ? distance : 0, number = divide(inside, k->dilation[d]);
    *bad |= number * k->w->dilation[d] != distance;
    return number;
}

COMET_INLINE uint32_t find_codes(const work *k, const int64_t *from, int dilated, unit *u) {
    const comet_window *w = k->w;
    const uint32_t low = COMET_WINDOW_MOST - 1;
    uint64_t high = 0;
    uint32_t bad = 0;
    for (uint32_t i = 0; i < u->n; i++) {
        high |= (uint64_t)from[i] & ~(uint64_t)low;
        const uint32_t index = (uint32_t)from[i] & low, row = divide(index, k->width);
        const uint32_t column = index - row * w->input[1];
        bad |= row >= w->input[0];
        const uint32_t down = number_of(k, 0, row + w->padding[0] - u->window[0][i], dilated, &bad);
        const uint32_t right = number_of(k, 1, column + w->padding[1] - u->window[1][i], dilated, &bad);
        u->codes[i] = (uint8_t)(down * w->kernel[1] + right);
    }
    return bad | (high != 0);
}

/* ---- codes to indices ---- */

/* What is nearest to `at` in 0 .. extent - 1, both as numbers above `padding`. */
COMET_INLINE uint32_t bring_inside(uint32_t at, uint32_t padding, uint32_t extent) {
    const uint32_t most = padding + extent - 1, above = at > padding ? at : padding;
    return above < most ? above : most;
}

COMET_INLINE uint32_t find_indices(const work *k, const unit *u, int64_t *to) {
    const comet_window *w = k->w;
    const uint32_t last = w->places - 1, across = w->kernel[1];
    const uint32_t inverse = 65535 / across + 1; /* right for codes below 256: see divide */
    uint32_t bad = 0;
    for (uint32_t i = 0; i < u->n; i++) {
        const uint32_t code = u->codes[i] < last ? u->codes[i] : last, down = code * inverse >> 16;
        const uint32_t row = u->window[0][i] + down * w->dilation[0];
        const uint32_t column = u->window[1][i] + (code - down * across) * w->dilation[1];
        const uint32_t row_inside = bring_inside(row, w->padding[0], w->input[0]);
        const uint32_t column_inside = bring_inside(column, w->padding[1], w->input[1]);
        bad |= (code ^ u->codes[i]) | (row ^ row_inside) | (column ^ column_inside);
        to[i] = (int64_t)((row_inside - w->padding[0]) * w->input[1] + (column_inside - w->padding[1]));
    }
    return bad;
}

/* ---- codes and bits ---- */

/* `n` codes, to whole bytes; behind them there are 7 more, which are 0. */
COMET_INLINE void pack_codes(const uint8_t *codes, uint32_t n, uint32_t bits, uint8_t *to) {
    const uint32_t a_byte = 8 / bits, bytes = (n + a_byte - 1) / a_byte;
    for (uint32_t i = 0; i < bytes; i++) {
        uint32_t byte = 0;
        for (uint32_t j = 0; j < a_byte; j++)
            byte |= (uint32_t)codes[a_byte * i + j] << bits * j;
        to[i] = (uint8_t)byte;
    }
}

/* As many codes as whole bytes have: up to 7 more than `n`. */
COMET_INLINE void expand_codes(const uint8_t *from, uint32_t n, uint32_t bits, uint8_t *codes) {
    const uint32_t a_byte = 8 / bits, bytes = (n + a_byte - 1) / a_byte;
    for (uint32_t i = 0; i < bytes; i++)
        for (uint32_t j = 0; j < a_byte; j++)
            codes[a_byte * i + j] = (uint8_t)(from[i] >> bits * j & (0xffu >> (8 - bits)));
}

/* Both with the number of bits as a constant. */
COMET_INLINE void pack_bits(const uint8_t *codes, uint32_t n, uint32_t bits, uint8_t *to) {
    switch (bits) {
    case 1:
        pack_codes(codes, n, 1, to);
        break;
    case 2:
        pack_codes(codes, n, 2, to);
        break;
    case 4:
        pack_codes(codes, n, 4, to);
        break;
    default:
        pack_codes(codes, n, 8, to);
        break;
    }
}

COMET_INLINE void expand_bits(const uint8_t *from, uint32_t n, uint32_t bits, uint8_t *codes) {
    switch (bits) {
    case 1:
        expand_codes(from, n, 1, codes);
        break;
    case 2:
        expand_codes(from, n, 2, codes);
        break;
    case 4:
        expand_codes(from, n, 4, codes);
        break;
    default:
        expand_codes(from, n, 8, codes);
        break;
    }
}

/* ---- units ---- */

COMET_CLONES(pack_all, (work * k, const int64_t *from, uint8_t *to), (k, from, to)) {
    const comet_window *w = k->w;
    const int dilated = w->dilation[0] > 1 || w->dilation[1] > 1;
    place p = {{0, 0}, 0};
    unit u;
    for (int64_t first = 0; first < w->count; first += UNIT) {
        find_windows(k, &p, (uint32_t)comet_min_i64(UNIT, w->count - first), &u);
        if (dilated)
            k->bad |= find_codes(k, from + first, 1, &u);
        else
            k->bad |= find_codes(k, from + first, 0, &u);
        memset(u.codes + u.n, 0, 8);
        pack_bits(u.codes, u.n, w->bits, to + first * w->bits / 8);
    }
}

COMET_CLONES(unpack_all, (work * k, const uint8_t *from, int64_t *to), (k, from, to)) {
    const comet_window *w = k->w;
    place p = {{0, 0}, 0};
    unit u;
    for (int64_t first = 0; first < w->count; first += UNIT) {
        find_windows(k, &p, (uint32_t)comet_min_i64(UNIT, w->count - first), &u);
        expand_bits(from + first * w->bits / 8, u.n, w->bits, u.codes);
        k->bad |= find_indices(k, &u, to + first);
    }
}

/* ---- calls ---- */

static comet_status take(const comet_pool_window *window, const void *indices, const void *packed, comet_window *w) {
    COMET_TRY(comet_window_take(window, w));
    COMET_REQUIRE(w->count == 0 || indices, "indices is NULL");
    COMET_REQUIRE(w->count == 0 || packed, "packed is NULL");
    return COMET_OK;
}

/* Bytes that hold an index. */
static size_t used_bytes(const comet_window *w) {
    return (size_t)comet_div_up(w->count * w->bits, 8);
}

comet_status comet_indices_pack(const comet_pool_window *window, const int64_t *indices, void *packed) {
    comet_window w;
    comet_begin();
    COMET_TRY(take(window, indices, packed, &w));
    if (w.count == 0)
        return COMET_OK;
    work k = work_of(&w);
    pack_all(&k, indices, packed);
    memset((uint8_t *)packed + used_bytes(&w), 0, w.bytes - used_bytes(&w));
    COMET_REQUIRE(!k.bad, "indices has one that is not a place of its window");
    return COMET_OK;
}

/* Not 0 if a bit behind the last index is set. */
static uint32_t bits_behind(const comet_window *w, const uint8_t *packed) {
    const unsigned in_last = (unsigned)(w->count * w->bits % 8);
    const size_t used = used_bytes(w);
    uint32_t found = in_last ? (uint32_t)packed[used - 1] >> in_last : 0;
    for (size_t i = used; i < w->bytes; i++)
        found |= packed[i];
    return found;
}

comet_status comet_indices_unpack(const comet_pool_window *window, const void *packed, int64_t *indices) {
    comet_window w;
    comet_begin();
    COMET_TRY(take(window, indices, packed, &w));
    if (w.count == 0)
        return COMET_OK;
    work k = work_of(&w);
    k.bad = bits_behind(&w, packed);
    unpack_all(&k, packed, indices);
    if (k.bad)
        return comet_fail(COMET_ERROR_CORRUPT, "packed holds what packing does not write");
    return COMET_OK;
}
