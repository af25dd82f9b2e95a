/* SPDX-License-Identifier: Apache-2.0 */
/* Codes to residuals and their planes of bits, and back; and what stands in front of them. A part of tile_generic.h. */
#ifndef COMET_CODEC_CPU_GENERIC_RESIDUALS_H
#define COMET_CODEC_CPU_GENERIC_RESIDUALS_H

#include <string.h>

#include "base/bits.h"
#include "codec/eb/tile.h"

enum { COLUMN_BYTES = 32, PLANE_BYTES = 128, COLUMNS = 4, FULL_FROM = 28, PREDICTION_COST = 128 };
enum { COLUMN_EMPTY = 0, COLUMN_SOME = 1, COLUMN_FULL = 2, COLUMN_SINGLE = 3 };

/* Sixteen planes: magnitudes first, the sign last. Narrow codes use magnitudes 0-6 and the sign. */
enum { PLANES = 16, SIGN_PLANE = 15 };
typedef uint8_t tile_planes[PLANES][PLANE_BYTES];

/* ---- columns: the primitives of packing ---- */

#ifndef HAVE_COLUMNS
/* Bit l set where byte l is not 0. */
static inline uint32_t column_ballot(const uint8_t *column) {
    uint32_t ballot = 0;
    for (int l = 0; l < COLUMN_BYTES; l++)
        ballot |= (uint32_t)(column[l] != 0) << l;
    return ballot;
}

/* The bytes marked, side by side; may write all 32. */
static inline void column_compress(uint8_t *out, const uint8_t *column, uint32_t ballot) {
    for (; ballot; ballot &= ballot - 1)
        *out++ = column[__builtin_ctz(ballot)];
}

/* The inverse; bytes not marked become 0. May read 32 bytes. */
static inline void column_expand(uint8_t *column, const uint8_t *in, uint32_t ballot) {
    memset(column, 0, COLUMN_BYTES);
    for (; ballot; ballot &= ballot - 1)
        column[__builtin_ctz(ballot)] = *in++;
}
#endif

/* ---- planes of bytes: 8 planes from 1,024 bytes, and back ---- */

#ifndef HAVE_TRANSPOSE
/* planes[b][j] has bit m of byte 8 j + m's bit b. */
static void planes_of_bytes(const uint8_t *bytes, uint8_t (*planes)[PLANE_BYTES]) {
    for (int j = 0; j < PLANE_BYTES; j++) {
        uint64_t x = comet_read_u64(bytes + 8 * j);
        for (int b = 0; b < 8; b++)
            planes[b][j] = (uint8_t)((((x >> b) & 0x0101010101010101u) * 0x0102040810204080u) >> 56);
    }
}

static void bytes_of_planes(const uint8_t (*planes)[PLANE_BYTES], uint8_t *bytes) {
    for (int j = 0; j < PLANE_BYTES; j++) {
        uint64_t x = 0;
        for (int b = 0; b < 8; b++) {
            uint64_t spread = (planes[b][j] * 0x8040201008040201u) >> 7 & 0x0101010101010101u;
            /* byte m of `spread` now has bit 7 - m of the plane's byte: reverse the bytes */
            x |= __builtin_bswap64(spread) << b;
        }
        comet_write_u64(bytes + 8 * j, x);
    }
}
#endif

/* ---- residuals ---- */

static inline uint8_t fold_narrow(int8_t d) {
    return (uint8_t)(d < 0 ? d ^ 0x7f : d);
}

static inline int8_t unfold_narrow(uint8_t f) {
    return (int8_t)(f & 0x80 ? f ^ 0x7f : f);
}

static inline uint16_t fold_wide(int16_t d) {
    return (uint16_t)(d < 0 ? d ^ 0x7fff : d);
}

static inline int16_t unfold_wide(uint16_t f) {
    return (int16_t)(f & 0x8000 ? f ^ 0x7fff : f);
}

static inline int count_bits(const void *folded, int bytes) {
    int bits = 0;
    for (int i = 0; i < bytes; i += 8)
        bits += __builtin_popcountll(comet_read_u64((const uint8_t *)folded + i));
    return bits;
}

/* ---- residuals of wide codes. A lane's first code has residual 0 and is kept apart (chained: lane 0's alone). ---- */

static void fold_predicted_wide(const int16_t *q, int chained, uint16_t *f) {
    f[0] = 0;
    for (int i = 1; i < TILE_ROW_VALUES; i++)
        f[i] = fold_wide((int16_t)(q[i] - q[i - 1]));
    for (int i = 0; i < TILE_ROW_VALUES && !chained; i += TILE_LANE_COLUMNS)
        f[i] = 0;
    for (int i = TILE_ROW_VALUES; i < TILE_VALUES; i++)
        f[i] = fold_wide((int16_t)(q[i] - q[i - TILE_ROW_VALUES]));
}

static void clear_padding_wide(const tile_padding *padding, uint16_t *f) {
    for (int i = 0; i < TILE_VALUES; i++)
        if (!(padding->valid[i / 8] >> (i % 8) & 1))
            f[i] = 0;
}

/* The folded residuals to store; returns 1 if they are predicted. */
static int residuals_wide(const int16_t *q, int chained, const tile_padding *padding, uint16_t *f) {
    uint16_t other[TILE_VALUES];
    for (int i = 0; i < TILE_VALUES; i++)
        f[i] = fold_wide(q[i]);
    fold_predicted_wide(q, chained, other);
    if (!padding->all_valid) {
        clear_padding_wide(padding, f);
        clear_padding_wide(padding, other);
    }
    if (count_bits(other, 2 * TILE_VALUES) + PREDICTION_COST >= count_bits(f, 2 * TILE_VALUES))
        return 0;
    memcpy(f, other, sizeof other);
    return 1;
}

/* Unfolds, and undoes prediction with the firsts put in where they belong (NULL: not predicted). */
static void codes_of_residuals_wide(const uint16_t *f, const int16_t *firsts, int chained, int16_t *q) {
    for (int i = 0; i < TILE_VALUES; i++)
        q[i] = unfold_wide(f[i]);
    if (!firsts)
        return;
    for (int l = 0; l < (chained ? 1 : TILE_LANES); l++)
        q[l * TILE_LANE_COLUMNS] = firsts[l];
    for (int i = 1; i < TILE_ROW_VALUES; i++)
        if (chained || i % TILE_LANE_COLUMNS != 0)
            q[i] = (int16_t)(q[i] + q[i - 1]);
    for (int i = TILE_ROW_VALUES; i < TILE_VALUES; i++)
        q[i] = (int16_t)(q[i] + q[i - TILE_ROW_VALUES]);
}

/*
 * ---- residuals of narrow codes ----
 *
 * The four bytes of a column are the digits of a number, row 0's the lowest, each with 128 added: U of docs/format.md
 * for codes, E for residuals. A difference that leaves a byte carries into the next row's. Where none does, bytes can
 * be subtracted and added on their own, which is what the fast paths of the instruction sets do.
 */
#define COLUMN_BIAS 0x80808080u

static inline uint32_t read_column_word(const int8_t *bytes) {
    uint32_t word = 0;
    for (int k = 0; k < TILE_ROWS; k++)
        word |= (uint32_t)(uint8_t)bytes[k * TILE_ROW_VALUES] << 8 * k;
    return word ^ COLUMN_BIAS;
}

/* The residuals' E of a column of codes U; `left` is the biased code that row 0 is predicted from. */
static inline uint32_t predict_column(uint32_t u, uint32_t left) {
    return u - (u << 8 | left) + COLUMN_BIAS;
}

static inline uint32_t unpredict_column(uint32_t e, uint32_t left) {
    return (e - COLUMN_BIAS + left) * 0x01010101u;
}

/* The four bytes of a column, bias taken off, folded. */
static inline uint32_t fold_column(uint32_t word) {
    uint32_t d = word ^ COLUMN_BIAS, signs = d >> 7 & 0x01010101u;
    return d ^ signs * 0x7fu;
}

static inline uint8_t biased(int8_t code) {
    return (uint8_t)code ^ 0x80u;
}

static inline int is_first(int i, int chained) {
    return chained ? i == 0 : i % TILE_LANE_COLUMNS == 0;
}

/* All rows of a column that are not padding, as bytes of 0xff. */
static inline uint32_t column_valid(const tile_padding *padding, int i) {
    uint32_t valid = 0;
    for (int k = 0; k < TILE_ROWS; k++)
        valid |= (padding->valid[(k * TILE_ROW_VALUES + i) / 8] >> (i % 8) & 1u) * 0xffu << 8 * k;
    return padding->all_valid ? 0xffffffffu : valid;
}

/* A quarter of the columns stands for all: these two of every lane, whose left neighbours are in the lane. */
enum { SAMPLED_COLUMN = 1, OTHER_SAMPLED_COLUMN = 6, SAMPLED_SHARE = 4 };

static inline int fewer_bits(int predicted, int direct) {
    return SAMPLED_SHARE * predicted + PREDICTION_COST < SAMPLED_SHARE * direct;
}

static int prediction_pays_generic(const int8_t *q, const tile_padding *padding) {
    int direct = 0, predicted = 0;
    for (int l = 0; l < TILE_LANES; l++)
        for (int m = SAMPLED_COLUMN; m <= OTHER_SAMPLED_COLUMN; m += OTHER_SAMPLED_COLUMN - SAMPLED_COLUMN) {
            int i = l * TILE_LANE_COLUMNS + m;
            uint32_t u = read_column_word(q + i), valid = column_valid(padding, i);
            direct += __builtin_popcount(fold_column(u) & valid);
            predicted += __builtin_popcount(fold_column(predict_column(u, biased(q[i - 1]))) & valid);
        }
    return fewer_bits(predicted, direct);
}

static void fold_predicted_generic(const int8_t *q, int chained, uint8_t *f) {
    uint8_t left[TILE_ROW_VALUES];
    for (int i = 0; i < TILE_ROW_VALUES; i++)
        left[i] = biased(q[is_first(i, chained) ? i : i - 1]); /* to itself: residual 0 */
    for (int i = 0; i < TILE_ROW_VALUES; i++) {
        uint32_t folded = fold_column(predict_column(read_column_word(q + i), left[i]));
        for (int k = 0; k < TILE_ROWS; k++)
            f[k * TILE_ROW_VALUES + i] = (uint8_t)(folded >> 8 * k);
    }
}

/* q holds residuals and, where a first belongs, the first: which is its residual to a code of 0. */
static void unpredict_generic(int8_t *q, int chained) {
    uint8_t left[TILE_ROW_VALUES + 1] = {0};
    for (int i = 0; i < TILE_ROW_VALUES; i++) {
        left[i] = is_first(i, chained) ? biased(0) : left[i];
        left[i + 1] = (uint8_t)(left[i] + q[i]);
    }
    for (int i = 0; i < TILE_ROW_VALUES; i++) {
        uint32_t codes = unpredict_column(read_column_word(q + i), left[i]) ^ COLUMN_BIAS;
        for (int k = 0; k < TILE_ROWS; k++)
            q[k * TILE_ROW_VALUES + i] = (int8_t)(codes >> 8 * k);
    }
}

#ifndef HAVE_RESIDUALS
/* Padding counts nothing. */
static int prediction_pays(const int8_t *q, const tile_padding *padding) {
    return prediction_pays_generic(q, padding);
}

static void fold_predicted(const int8_t *q, int chained, uint8_t *f) {
    fold_predicted_generic(q, chained, f);
}

static void unpredict(int8_t *q, int chained) {
    unpredict_generic(q, chained);
}
#endif

/* The folded residuals to store; returns 1 if they are predicted. */
static int residuals_narrow(const int8_t *q, int chained, const tile_padding *padding, uint8_t *f) {
    int predicted = prediction_pays(q, padding);
    if (predicted)
        fold_predicted(q, chained, f);
    else
        for (int i = 0; i < TILE_VALUES; i++)
            f[i] = fold_narrow(q[i]);
    for (int i = 0; i < TILE_VALUES && !padding->all_valid; i++)
        if (!(padding->valid[i / 8] >> (i % 8) & 1))
            f[i] = 0;
    return predicted;
}

static void codes_of_residuals_narrow(const uint8_t *f, const int16_t *firsts, int chained, int8_t *q) {
    for (int i = 0; i < TILE_VALUES; i++)
        q[i] = unfold_narrow(f[i]);
    if (!firsts)
        return;
    for (int l = 0; l < (chained ? 1 : TILE_LANES); l++)
        q[l * TILE_LANE_COLUMNS] = (int8_t)firsts[l];
    unpredict(q, chained);
}

/* ---- firsts ---- */

/* Codes q(0, l, 0); padding has code 0 already. */
static uint8_t *write_firsts(const tile_codes *codes, int wide, int chained, uint8_t *out) {
    if (chained) {
        memcpy(out, codes, wide ? 2 : 1);
        return out + (wide ? 2 : 1);
    }
    uint32_t planes[PLANES] = {0}, any = 0;
    for (int l = 0; l < TILE_LANES; l++) {
        int16_t code = wide ? codes->wide[l * TILE_LANE_COLUMNS] : codes->narrow[l * TILE_LANE_COLUMNS];
        uint32_t f = fold_wide(code);
        any |= f;
        for (int b = 0; b < PLANES; b++)
            planes[b] |= (f >> b & 1u) << l;
    }
    unsigned n = comet_bit_width(any & 0x7fffu), sign = any >> SIGN_PLANE;
    *out++ = (uint8_t)(n | (sign ? HEAD_SIGN : 0));
    memcpy(out, planes, 4 * n);
    out += 4 * n;
    if (sign) {
        comet_write_u32(out, planes[SIGN_PLANE]);
        out += 4;
    }
    return out;
}

/* Returns what lies behind the firsts, NULL if they do not fit. */
static const uint8_t *read_firsts(const uint8_t *in, const uint8_t *end, int wide, int chained, int16_t *firsts) {
    if (chained) {
        if (end - in < (wide ? 2 : 1))
            return NULL;
        firsts[0] = wide ? (int16_t)comet_read_u16(in) : (int8_t)*in;
        return in + (wide ? 2 : 1);
    }
    if (end - in < 1)
        return NULL;
    int n = *in & 15, sign = !!(*in & HEAD_SIGN);
    if (*in++ >> 5 || (!wide && n > 7) || end - in < 4 * (n + sign))
        return NULL;
    uint16_t folded[TILE_LANES] = {0};
    for (int p = 0; p < n + sign; p++, in += 4)
        for (int l = 0; l < TILE_LANES; l++)
            folded[l] |= (uint16_t)((comet_read_u32(in) >> l & 1u) << (p == n ? SIGN_PLANE : p));
    for (int l = 0; l < TILE_LANES; l++)
        firsts[l] = unfold_wide(folded[l]);
    return in;
}

#endif
