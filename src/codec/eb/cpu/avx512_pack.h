/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow codes to residuals, and a tile of them packed. A part of tile_avx512.c. */
#ifndef COMET_CODEC_CPU_AVX512_PACK_H
#define COMET_CODEC_CPU_AVX512_PACK_H

#include "codec/eb/cpu/avx512_planes.h"
#include "codec/eb/cpu/tile_generic.h"

/* ---- residuals of narrow codes: sixteen registers, four for each row k ---- */

enum { REGISTERS = 16, ROW_REGISTERS = 4 };

/*
 * Collects in *over where a difference or a sum of bytes leaves a byte: there the saturated result is not the plain
 * one.
 */
static inline void note_overflow(__m512i *over, __m512i plain, __m512i saturated) {
    *over = _mm512_ternarylogic_epi64(*over, plain, saturated, 0xf6); /* or of the exclusive or */
}

static inline int has_overflow(__m512i over) {
    return _mm512_test_epi64_mask(over, over) != 0;
}

/* Row 0 of the codes less their left neighbours. `before` holds the 64 codes in front of q, for chained lanes. */
static inline __m512i minus_left(__m512i before, __m512i q, int chained, __m512i *over) {
    static const uint8_t shift_one[64] = {
        63,  64,  65,  66,  67,  68,  69,  70,  71,  72,  73,  74,  75,  76,  77,  78,  79,  80,  81,  82,  83,  84,
        85,  86,  87,  88,  89,  90,  91,  92,  93,  94,  95,  96,  97,  98,  99,  100, 101, 102, 103, 104, 105, 106,
        107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126};
    const __mmask64 not_first = chained ? ~0ull : 0xfefefefefefefefe;
    __m512i left =
        chained ? _mm512_permutex2var_epi8(before, _mm512_loadu_si512(shift_one), q) : _mm512_slli_epi64(q, 8);
    __m512i d = _mm512_maskz_sub_epi8(not_first, q, left);
    note_overflow(over, d, _mm512_maskz_subs_epi8(not_first, q, left));
    return d;
}

/*
 * Register i of the predicted residuals, folded, as long as no difference leaves a byte. One that does in the last row
 * has no row to carry into.
 */
static inline __m512i predicted_register(const int8_t *codes, int i, int chained, __m512i *over) {
    __m512i q = _mm512_load_si512(codes + 64 * i);
    if (i >= ROW_REGISTERS) {
        __m512i above = _mm512_load_si512(codes + 64 * (i - ROW_REGISTERS)), d = _mm512_sub_epi8(q, above);
        if (i < REGISTERS - ROW_REGISTERS)
            note_overflow(over, d, _mm512_subs_epi8(q, above));
        return fold(d);
    }
    /* lane 0's code stands in front of itself: its residual is 0 */
    __m512i before = i ? _mm512_load_si512(codes + 64 * (i - 1)) : _mm512_set1_epi8(codes[0]);
    return fold(minus_left(before, q, chained, over));
}

static inline __m512i direct_register(const int8_t *codes, int i) {
    return fold(_mm512_load_si512(codes + 64 * i));
}

/* The two sampled columns of eight lanes as 32-bit words, row 0 in the low bytes: of register i of each row. */
static inline __m512i sampled_columns(const int8_t *codes, int i) {
    const __m512i bits = _mm512_set1_epi64(0x3030303008080808); /* where a column's byte starts: 8 * 1 and 8 * 6 */
    __m512i u = _mm512_multishift_epi64_epi8(bits, _mm512_load_si512(codes + 64 * i));
    for (int k = 1; k < TILE_ROWS; k++)
        u = _mm512_mask_multishift_epi64_epi8(u, 0x1111111111111111u << k, bits,
                                              _mm512_load_si512(codes + 64 * (ROW_REGISTERS * k + i)));
    return u;
}

/* In words, so that what a difference carries is counted too. */
static inline int sample_pays(const int8_t *codes) {
    const __m512i left_bits = _mm512_set1_epi64(0x2828282800000000), bias = _mm512_set1_epi32((int)COLUMN_BIAS);
    __m512i direct = _mm512_setzero_si512(), predicted = _mm512_setzero_si512(); /* at most 4 * 8 in a byte */
#pragma GCC unroll 4
    for (int i = 0; i < ROW_REGISTERS; i++) {
        __m512i u = sampled_columns(codes, i);
        __m512i from = _mm512_mask_multishift_epi64_epi8(_mm512_slli_epi32(u, 8), 0x1111111111111111u, left_bits,
                                                         _mm512_load_si512(codes + 64 * i));
        __m512i e = _mm512_sub_epi32(_mm512_xor_si512(u, bias), _mm512_xor_si512(from, bias));
        direct = _mm512_add_epi8(direct, _mm512_popcnt_epi8(fold(u)));
        predicted = _mm512_add_epi8(predicted, _mm512_popcnt_epi8(fold_biased(_mm512_add_epi32(e, bias))));
    }
    const __m512i zero = _mm512_setzero_si512();
    __m512i more = _mm512_sub_epi64(_mm512_sad_epu8(predicted, zero), _mm512_sad_epu8(direct, zero));
    return fewer_bits((int)_mm512_reduce_add_epi64(more), 0);
}

/* ---- firsts of independent lanes ---- */

static uint8_t *write_lane_firsts(const int8_t *codes, uint8_t *out) {
    uint64_t eight[4];
    for (int i = 0; i < 4; i++)
        _mm_storel_epi64((__m128i *)&eight[i], _mm512_cvtepi64_epi8(_mm512_load_si512(codes + 64 * i)));
    __m256i f = _mm512_castsi512_si256(fold(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)eight))));
    uint32_t sign = (uint32_t)_mm256_movepi8_mask(f);
    int n = 0;
    for (int p = 0; p < 7; p++) {
        uint32_t plane = (uint32_t)_mm256_movepi8_mask(_mm256_slli_epi16(f, 7 - p));
        comet_write_u32(out + 1 + 4 * p, plane);
        n = plane ? p + 1 : n;
    }
    comet_write_u32(out + 1 + 4 * n, sign);
    out[0] = (uint8_t)(n | (sign ? HEAD_SIGN : 0));
    return out + 1 + 4 * (n + (sign != 0));
}

/* The 32 firsts as bytes; returns what lies behind them, NULL if they do not fit. */
static const uint8_t *read_lane_firsts(const uint8_t *in, const uint8_t *end, __m256i *firsts) {
    if (end - in < 1)
        return NULL;
    int n = *in & 15, sign = !!(*in & HEAD_SIGN);
    if (*in++ >> 5 || n > 7 || end - in < 4 * (n + sign))
        return NULL;
    __m256i f = _mm256_setzero_si256();
    for (int p = 0; p < n; p++, in += 4)
        f = _mm256_or_si256(f, _mm256_maskz_set1_epi8(comet_read_u32(in), (char)(1 << p)));
    if (sign) {
        f = _mm256_or_si256(f, _mm256_maskz_set1_epi8(comet_read_u32(in), (char)0x80));
        in += 4;
    }
    *firsts = _mm512_castsi512_si256(fold(_mm512_castsi256_si512(f)));
    return in;
}

/* ---- pack ---- */

/* What is known of a tile's columns, 4 for each plane: ballots (all set for full ones) and which are what. */
typedef struct column_set {
    _Alignas(64) uint32_t ballots[32];
    uint32_t nonempty, single;
} column_set;

static inline int has_single_bit(const uint8_t *column) {
    return is_single_bit(column, column_ballot(column));
}

/* Ballots of the columns that are 'some' at `out`, flags at `flags`; fills in the rest of the set. */
static inline uint8_t *write_ballots(column_set *set, const __m512i ballots[2], uint8_t (*planes)[PLANE_BYTES], int n,
                                     int sign, uint8_t *flags, uint8_t *out) {
    _Alignas(16) uint32_t four[8];
    set->nonempty = set->single = 0;
#pragma GCC unroll 2
    for (int p = 0; p < 8; p += 4) { /* sixteen columns at a time */
        __m512i b = ballots[p / 4], count = _mm512_popcnt_epi32(b);
        __mmask16 any = _mm512_test_epi32_mask(b, b);
        __mmask16 full = _mm512_cmpge_epi32_mask(count, _mm512_set1_epi32(FULL_FROM));
        __mmask16 lone = 0;
        for (unsigned one = _mm512_cmpeq_epi32_mask(count, _mm512_set1_epi32(1)); one; one &= one - 1) {
            int c = __builtin_ctz(one);
            const uint8_t *column = (uint8_t *)planes + (COLUMNS * p + c) * COLUMN_BYTES;
            lone = (__mmask16)(lone | has_single_bit(column) << c);
        }
        __mmask16 some = (__mmask16)(any & ~full & ~lone);
        __m512i flag = _mm512_maskz_set1_epi32(any, COLUMN_SOME);
        flag = _mm512_mask_mov_epi32(flag, full, _mm512_set1_epi32(COLUMN_FULL));
        flag = _mm512_mask_mov_epi32(flag, lone, _mm512_set1_epi32(COLUMN_SINGLE));
        _mm_store_si128((__m128i *)&four[p], _mm512_cvtepi32_epi8(flag));
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(some, b));
        out += 4 * __builtin_popcount(some);
        _mm512_store_si512(&set->ballots[COLUMNS * p], _mm512_mask_mov_epi32(b, full, _mm512_set1_epi32(-1)));
        set->nonempty |= (uint32_t)any << (COLUMNS * p);
        set->single |= (uint32_t)lone << (COLUMNS * p);
    }
    for (int p = 0; p < n; p++)
        flags[p] = (uint8_t)_pext_u32(four[p], 0x03030303);
    if (sign)
        flags[n] = (uint8_t)_pext_u32(four[7], 0x03030303);
    return out;
}

/* Two columns of a plane lie side by side in `planes` and in the data: they are packed as one, but for single bits. */
static inline uint8_t *write_columns(const column_set *set, uint8_t (*planes)[PLANE_BYTES], uint8_t *out) {
    uint32_t left = (set->nonempty | set->nonempty >> 1) & 0x55555555u;
    for (; left; left &= left - 1) {
        int c = __builtin_ctz(left);
        const uint8_t *columns = (uint8_t *)planes + c * COLUMN_BYTES;
        uint64_t ballots = comet_read_u64(&set->ballots[c]);
        if (set->single >> c & 3) {
            for (int i = c; i < c + 2; i++) {
                int flag = set->single >> i & 1 ? COLUMN_SINGLE : set->nonempty >> i & 1 ? COLUMN_SOME : COLUMN_EMPTY;
                out = pack_column(out, (uint8_t *)planes + i * COLUMN_BYTES, set->ballots[i], flag);
            }
        } else {
            _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(ballots, _mm512_load_si512(columns)));
            out += __builtin_popcountll(ballots);
        }
    }
    return out;
}

/*
 * Planes and ballots of the folded residuals; returns 0 if they are predicted and carry, and so are others. Ballots are
 * put together in registers: to store halves and load all stalls.
 */
static inline int planes_of_codes(const int8_t *codes, int chained, int predicted, uint8_t (*planes)[PLANE_BYTES],
                                  __m512i ballots[2]) {
    uint64_t half_ballots[2][8];
    __m512i over = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m512i r[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            r[i] = predicted ? predicted_register(codes, 8 * half + i, chained, &over)
                             : direct_register(codes, 8 * half + i);
        planes_of_half(r);
#pragma GCC unroll 8
        for (int p = 0; p < 8; p++) {
            _mm512_store_si512(planes[p] + 64 * half, r[p]);
            half_ballots[half][p] = _mm512_test_epi8_mask(r[p], r[p]);
        }
    }
    const uint64_t *a = half_ballots[0], *b = half_ballots[1];
#define PAIR(p) (int64_t) b[p], (int64_t)a[p]
    ballots[0] = _mm512_set_epi64(PAIR(3), PAIR(2), PAIR(1), PAIR(0));
    ballots[1] = _mm512_set_epi64(PAIR(7), PAIR(6), PAIR(5), PAIR(4));
#undef PAIR
    return !predicted || !has_overflow(over);
}

/* The number of magnitude planes, and whether the sign's is there: bit p of the mask is set if plane p is not empty. */
static inline unsigned planes_used(const __m512i ballots[2]) {
    unsigned columns =
        _mm512_test_epi32_mask(ballots[0], ballots[0]) | (unsigned)_mm512_test_epi32_mask(ballots[1], ballots[1]) << 16;
    columns |= columns >> 1;
    return _pext_u32(columns | columns >> 2, 0x11111111);
}

static int encode(const tile_codes *codes, int chained, unsigned class_index, const tile_padding *padding, uint8_t *out,
                  int *predicted) {
    if (class_index == QUANTISER_WIDE || !padding->all_valid)
        return encode_generic(codes, chained, class_index, padding, out, predicted);
    _Alignas(64) uint8_t planes[8][PLANE_BYTES];
    column_set set;
    __m512i ballots[2];
    *predicted = sample_pays(codes->narrow);
    if (!*predicted)
        planes_of_codes(codes->narrow, chained, 0, planes, ballots);
    else if (!planes_of_codes(codes->narrow, chained, 1, planes, ballots))
        return encode_generic(codes, chained, class_index, padding, out, predicted);
    unsigned used = planes_used(ballots);
    if (used == 0 && !*predicted && class_index == 0)
        return 0;
    int n = (int)comet_bit_width(used & 0x7fu), sign = (int)(used >> 7);
    out[0] = (uint8_t)((unsigned)n | (sign ? HEAD_SIGN : 0u) | comet_head_of(class_index, *predicted));
    uint8_t *flags = out + 1, *next = flags + n + sign;
    if (*predicted && chained)
        *next++ = (uint8_t)codes->narrow[0];
    else if (*predicted)
        next = write_lane_firsts(codes->narrow, next);
    next = write_ballots(&set, ballots, planes, n, sign, flags, next);
    return (int)(write_columns(&set, planes, next) - out);
}

#endif
