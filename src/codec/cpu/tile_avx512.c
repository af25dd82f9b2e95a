/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tile with AVX-512 (VBMI, VBMI2, BITALG, VPOPCNTDQ, GFNI). What is not here is tile_generic.h compiled for AVX-512.
 *
 * Folding a residual is linear over GF(2), and turning eight bytes into eight bytes of bit-planes is the transpose of an
 * 8 x 8 bit matrix: both are one GFNI instruction. Columns are packed with vpcompressb into a register and stored whole
 * (compressing to memory is microcoded on some processors).
 */
#include <immintrin.h>

#define HAVE_CONVERT
#define HAVE_SURVEY
#define HAVE_ORDER
#define HAVE_QUANTISE
#define HAVE_DEQUANTISE
#define HAVE_COLUMNS
#define HAVE_TRANSPOSE
#define HAVE_ENCODE
#define HAVE_DECODE

/* ---- columns ---- */

#include <stdint.h>

static inline uint32_t column_ballot(const uint8_t *column) {
    __m256i c = _mm256_loadu_si256((const __m256i *)column);
    return _mm256_test_epi8_mask(c, c);
}

static inline void column_compress(uint8_t *out, const uint8_t *column, uint32_t ballot) {
    __m256i c = _mm256_loadu_si256((const __m256i *)column);
    _mm256_storeu_si256((__m256i *)out, _mm256_maskz_compress_epi8(ballot, c));
}

static inline void column_expand(uint8_t *column, const uint8_t *in, uint32_t ballot) {
    __m256i c = _mm256_loadu_si256((const __m256i *)in);
    _mm256_storeu_si256((__m256i *)column, _mm256_maskz_expand_epi8(ballot, c));
}

/* ---- bit-planes ---- */

#define FOLD_MATRIX 0x8182848890A0C080 /* bit b becomes bit b ^ bit 7 for b < 7; its own inverse */
#define UNIT_MATRIX 0x8040201008040201 /* byte b is 1 << b: as the vector, it transposes the matrix operand */

static inline __m512i fold(__m512i d) {
    return _mm512_gf2p8affine_epi64_epi8(d, _mm512_set1_epi64((int64_t)FOLD_MATRIX), 0);
}

/* Of bytes with 128 added. */
static inline __m512i fold_biased(__m512i d) {
    return _mm512_gf2p8affine_epi64_epi8(d, _mm512_set1_epi64((int64_t)FOLD_MATRIX), 0xff);
}

/* Byte 16 p + 8 s + g: plane p (or 4 + p) of group g in zmm s, from bytes 8 g + p. */
static const uint8_t planes_low[64] = {0, 8,  16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120,
                                       1, 9,  17, 25, 33, 41, 49, 57, 65, 73, 81, 89, 97, 105, 113, 121,
                                       2, 10, 18, 26, 34, 42, 50, 58, 66, 74, 82, 90, 98, 106, 114, 122,
                                       3, 11, 19, 27, 35, 43, 51, 59, 67, 75, 83, 91, 99, 107, 115, 123};

/* Byte 8 g + 7 - p: plane p of group g of zmm 0, from units of 16 bytes a plane (p < 4 first operand, else second). */
static const uint8_t groups_first[64] = {112, 96,  80, 64, 48, 32, 16, 0, 113, 97,  81, 65, 49, 33, 17, 1,
                                         114, 98,  82, 66, 50, 34, 18, 2, 115, 99,  83, 67, 51, 35, 19, 3,
                                         116, 100, 84, 68, 52, 36, 20, 4, 117, 101, 85, 69, 53, 37, 21, 5,
                                         118, 102, 86, 70, 54, 38, 22, 6, 119, 103, 87, 71, 55, 39, 23, 7};

static const uint8_t reverse_qword[64] = {
    7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8,
    7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8};

/* Four registers of four 16-byte units: unit j of register i becomes unit i of register j. */
static inline void transpose_units(__m512i *u) {
    __m512i a = _mm512_shuffle_i64x2(u[0], u[1], 0x44), b = _mm512_shuffle_i64x2(u[0], u[1], 0xee);
    __m512i c = _mm512_shuffle_i64x2(u[2], u[3], 0x44), d = _mm512_shuffle_i64x2(u[2], u[3], 0xee);
    u[0] = _mm512_shuffle_i64x2(a, c, 0x88);
    u[1] = _mm512_shuffle_i64x2(a, c, 0xdd);
    u[2] = _mm512_shuffle_i64x2(b, d, 0x88);
    u[3] = _mm512_shuffle_i64x2(b, d, 0xdd);
}

/* 512 bytes in eight registers to 64 bytes of each of eight planes, in place. */
static inline void planes_of_half(__m512i *r) {
    const __m512i unit = _mm512_set1_epi64((int64_t)UNIT_MATRIX), reverse = _mm512_loadu_si512(reverse_qword);
    const __m512i low = _mm512_loadu_si512(planes_low), high = _mm512_add_epi8(low, _mm512_set1_epi8(4));
    __m512i u[8];
    for (int i = 0; i < 8; i++)
        r[i] = _mm512_gf2p8affine_epi64_epi8(unit, _mm512_shuffle_epi8(r[i], reverse), 0);
    for (int i = 0; i < 4; i++) {
        u[i] = _mm512_permutex2var_epi8(r[2 * i], low, r[2 * i + 1]);
        u[4 + i] = _mm512_permutex2var_epi8(r[2 * i], high, r[2 * i + 1]);
    }
    transpose_units(u);
    transpose_units(u + 4);
    for (int i = 0; i < 8; i++)
        r[i] = u[i];
}

static inline void half_of_planes(__m512i *r) {
    const __m512i unit = _mm512_set1_epi64((int64_t)UNIT_MATRIX);
    const __m512i first = _mm512_loadu_si512(groups_first), second = _mm512_add_epi8(first, _mm512_set1_epi8(8));
    __m512i u[8];
    for (int i = 0; i < 8; i++)
        u[i] = r[i];
    transpose_units(u);
    transpose_units(u + 4);
    for (int i = 0; i < 4; i++) {
        r[2 * i] = _mm512_gf2p8affine_epi64_epi8(unit, _mm512_permutex2var_epi8(u[i], first, u[4 + i]), 0);
        r[2 * i + 1] = _mm512_gf2p8affine_epi64_epi8(unit, _mm512_permutex2var_epi8(u[i], second, u[4 + i]), 0);
    }
}

static void planes_of_bytes(const uint8_t *bytes, uint8_t (*planes)[128]) {
    for (int half = 0; half < 2; half++) {
        __m512i r[8];
        for (int i = 0; i < 8; i++)
            r[i] = _mm512_loadu_si512(bytes + 512 * half + 64 * i);
        planes_of_half(r);
        for (int i = 0; i < 8; i++)
            _mm512_storeu_si512(planes[i] + 64 * half, r[i]);
    }
}

static void bytes_of_planes(const uint8_t (*planes)[128], uint8_t *bytes) {
    for (int half = 0; half < 2; half++) {
        __m512i r[8];
        for (int i = 0; i < 8; i++)
            r[i] = _mm512_loadu_si512(planes[i] + 64 * half);
        half_of_planes(r);
        for (int i = 0; i < 8; i++)
            _mm512_storeu_si512(bytes + 512 * half + 64 * i, r[i]);
    }
}

/* ---- the rest of tile_generic.h, which needs the above ---- */

#include "codec/cpu/tile.h"

static void to_f32(comet_dtype dtype, const void *patterns, int count, float *values);
static void of_f32(comet_dtype dtype, const float *values, int count, void *patterns);
static void survey(const float *v, tile_order order, survey_order sums, const tile_padding *padding, tile_survey *s);
static void linear_of_interleaved(const int8_t *from, int8_t *to);
static void interleaved_of_linear(const int8_t *from, int8_t *to);
static void quantise(const float *v, tile_order order, const tile_quantise *how, tile_codes *codes);
static void dequantise(const tile_codes *codes, tile_order order, const tile_quantise *how, float *v);
static int encode(const tile_codes *codes, int wide, int chained, unsigned class_index, const tile_padding *padding,
                  uint8_t *out, int *predicted);
static int decode(const uint8_t *tile, int bytes, const uint8_t class_is_wide[QUANTISER_CLASSES], int chained,
                  tile_codes *codes, unsigned *class_index);

#include "codec/cpu/tile_generic.h"

/* ---- residuals of narrow codes: sixteen registers, four for each row k ---- */

enum { REGISTERS = 16, ROW_REGISTERS = 4 };

/* Collects in *over where a difference or a sum of bytes leaves a byte: there the saturated result is not the plain one. */
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
 * Register i of the predicted residuals, folded, as long as no difference leaves a byte. One that does in the last row has
 * no row to carry into.
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
 * Planes and ballots of the folded residuals; returns 0 if they are predicted and carry, and so are others. Ballots are put
 * together in registers: to store halves and load all stalls.
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

static int encode(const tile_codes *codes, int wide, int chained, unsigned class_index, const tile_padding *padding,
                  uint8_t *out, int *predicted) {
    if (wide || !padding->all_valid)
        return encode_generic(codes, wide, chained, class_index, padding, out, predicted);
    _Alignas(64) uint8_t planes[8][PLANE_BYTES];
    column_set set;
    __m512i ballots[2];
    *predicted = sample_pays(codes->narrow);
    if (!*predicted)
        planes_of_codes(codes->narrow, chained, 0, planes, ballots);
    else if (!planes_of_codes(codes->narrow, chained, 1, planes, ballots))
        return encode_generic(codes, wide, chained, class_index, padding, out, predicted);
    unsigned used = planes_used(ballots);
    if (used == 0 && !*predicted && class_index == 0)
        return 0;
    int n = (int)comet_bit_width(used & 0x7fu), sign = (int)(used >> 7);
    out[0] = (uint8_t)((unsigned)n | (sign ? HEAD_SIGN : 0u) | class_index << HEAD_CLASS_SHIFT |
                       (*predicted ? HEAD_PREDICTED : 0u));
    uint8_t *flags = out + 1, *next = flags + n + sign;
    if (*predicted && chained)
        *next++ = (uint8_t)codes->narrow[0];
    else if (*predicted)
        next = write_lane_firsts(codes->narrow, next);
    next = write_ballots(&set, ballots, planes, n, sign, flags, next);
    return (int)(write_columns(&set, planes, next) - out);
}

/* ---- unpack ---- */

/* Reads flags and ballots; returns where the data starts, NULL if the parts do not add up to the tile. */
static inline const uint8_t *read_ballots(const uint8_t *flags, int n, int sign, const uint8_t *in, const uint8_t *end,
                                          column_set *set) {
    _Alignas(16) uint32_t four[8] = {0};
    __m512i sizes = _mm512_setzero_si512();
    for (int p = 0; p < n; p++)
        four[p] = _pdep_u32(flags[p], 0x03030303);
    if (sign)
        four[7] = _pdep_u32(flags[n], 0x03030303);
    set->nonempty = set->single = 0;
    for (int p = 0; p < 8; p += 4) {
        __m512i flag = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)&four[p]));
        __mmask16 some = _mm512_cmpeq_epi32_mask(flag, _mm512_set1_epi32(COLUMN_SOME));
        __mmask16 full = _mm512_cmpeq_epi32_mask(flag, _mm512_set1_epi32(COLUMN_FULL));
        __mmask16 lone = _mm512_cmpeq_epi32_mask(flag, _mm512_set1_epi32(COLUMN_SINGLE));
        int bytes = 4 * __builtin_popcount(some);
        if (end - in < bytes)
            return NULL;
        __m512i b = _mm512_maskz_expand_epi32(some, _mm512_loadu_si512(in));
        b = _mm512_mask_mov_epi32(b, full, _mm512_set1_epi32(-1));
        _mm512_store_si512(&set->ballots[COLUMNS * p], b);
        sizes = _mm512_add_epi32(sizes, _mm512_mask_mov_epi32(_mm512_popcnt_epi32(b), lone, _mm512_set1_epi32(1)));
        in += bytes;
        set->nonempty |= (uint32_t)(some | full | lone) << (COLUMNS * p);
        set->single |= (uint32_t)lone << (COLUMNS * p);
    }
    return end - in == _mm512_reduce_add_epi32(sizes) ? in : NULL;
}

static inline void read_columns(const column_set *set, const uint8_t *data, uint8_t (*planes)[PLANE_BYTES]) {
    for (int i = 0; i < REGISTERS; i++)
        _mm512_store_si512((uint8_t *)planes + 64 * i, _mm512_setzero_si512());
    uint32_t left = (set->nonempty | set->nonempty >> 1) & 0x55555555u;
    for (; left; left &= left - 1) {
        int c = __builtin_ctz(left);
        uint8_t *columns = (uint8_t *)planes + c * COLUMN_BYTES;
        uint64_t ballots = comet_read_u64(&set->ballots[c]);
        if (set->single >> c & 3) {
            for (int i = c; i < c + 2; i++) {
                int flag = set->single >> i & 1 ? COLUMN_SINGLE : set->nonempty >> i & 1 ? COLUMN_SOME : COLUMN_EMPTY;
                data = unpack_column((uint8_t *)planes + i * COLUMN_BYTES, data, set->ballots[i], flag);
            }
        } else {
            _mm512_store_si512(columns, _mm512_maskz_expand_epi8(ballots, _mm512_loadu_si512(data)));
            data += __builtin_popcountll(ballots);
        }
    }
}

/* Sums of bytes from the start of each group of eight. */
static inline __m512i prefix_of_groups(__m512i x) {
    x = _mm512_add_epi8(x, _mm512_slli_epi64(x, 8));
    x = _mm512_add_epi8(x, _mm512_slli_epi64(x, 16));
    return _mm512_add_epi8(x, _mm512_slli_epi64(x, 32));
}

/* The last byte of the group `distance` groups before, in every byte; 0 where there is none. */
static inline __m512i last_of_group_before(__m512i x, int distance) {
    __m512i index = _mm512_sub_epi8(_mm512_set_epi64(0x3f3f3f3f3f3f3f3f, 0x3737373737373737, 0x2f2f2f2f2f2f2f2f,
                                                     0x2727272727272727, 0x1f1f1f1f1f1f1f1f, 0x1717171717171717,
                                                     0x0f0f0f0f0f0f0f0f, 0x0707070707070707),
                                    _mm512_set1_epi8((char)(8 * distance)));
    return _mm512_maskz_permutexvar_epi8(~0ull << (8 * distance), index, x);
}

/* Row 0 from its residuals, with the firsts in their places. */
static inline void unpredict_row(const __m512i *d, int chained, __m512i *q) {
    __m512i carry = _mm512_setzero_si512();
    for (int i = 0; i < ROW_REGISTERS; i++) {
        __m512i x = prefix_of_groups(d[i]);
        if (chained) {
            x = _mm512_add_epi8(x, last_of_group_before(x, 1));
            x = _mm512_add_epi8(x, last_of_group_before(x, 2));
            x = _mm512_add_epi8(x, last_of_group_before(x, 4));
            x = _mm512_add_epi8(x, carry);
            carry = _mm512_permutexvar_epi8(_mm512_set1_epi8(63), x);
        }
        q[i] = x;
    }
}

/*
 * Codes from residuals, with the firsts in their places. Returns 0 if a sum leaves a byte, and so carries: the codes are
 * others then. (In row 0 a sum does if the code less the residual does: that spares the code to the left. The last row has
 * no row to carry into.)
 */
static inline int unpredict_registers(const __m512i *d, int chained, int8_t *codes) {
    __m512i q[ROW_REGISTERS], over = _mm512_setzero_si512();
    unpredict_row(d, chained, q);
    for (int i = 0; i < ROW_REGISTERS; i++) {
        note_overflow(&over, _mm512_sub_epi8(q[i], d[i]), _mm512_subs_epi8(q[i], d[i]));
        _mm512_store_si512(codes + 64 * i, q[i]);
    }
    for (int i = ROW_REGISTERS; i < REGISTERS; i++) {
        __m512i *above = &q[i % ROW_REGISTERS], sum = _mm512_add_epi8(d[i], *above);
        if (i < REGISTERS - ROW_REGISTERS)
            note_overflow(&over, sum, _mm512_adds_epi8(d[i], *above));
        *above = sum;
        _mm512_store_si512(codes + 64 * i, sum);
    }
    return !has_overflow(over);
}

/* Puts the firsts where their lanes' first residuals are, which a hostile stream may have set. */
static inline void put_firsts(__m512i *q, __m256i firsts, int chained) {
    if (chained) {
        q[0] = _mm512_mask_mov_epi8(q[0], 1, _mm512_castsi256_si512(firsts));
        return;
    }
    uint64_t eight[4];
    _mm256_storeu_si256((__m256i *)eight, firsts);
    for (int i = 0; i < 4; i++) {
        __m512i lanes = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128((int64_t)eight[i]));
        q[i] = _mm512_mask_mov_epi8(q[i], 0x0101010101010101, lanes);
    }
}

static int decode(const uint8_t *tile, int bytes, const uint8_t class_is_wide[QUANTISER_CLASSES], int chained,
                  tile_codes *codes, unsigned *class_index) {
    unsigned head = tile[0];
    if (class_is_wide[head >> HEAD_CLASS_SHIFT & 3u])
        return decode_generic(tile, bytes, class_is_wide, chained, codes, class_index);
    _Alignas(64) uint8_t planes[8][PLANE_BYTES];
    column_set set;
    const uint8_t *end = tile + bytes;
    int n = (int)(head & 15u), sign = !!(head & HEAD_SIGN), predicted = !!(head & HEAD_PREDICTED);
    *class_index = head >> HEAD_CLASS_SHIFT & 3u;
    if (n > 7 || bytes < 1 + n + sign)
        return 0;
    const uint8_t *flags = tile + 1, *next = flags + n + sign;
    __m256i firsts = _mm256_setzero_si256();
    if (predicted && chained) {
        if (end - next < 1)
            return 0;
        firsts = _mm256_castsi128_si256(_mm_cvtsi32_si128(*next++));
    } else if (predicted && !(next = read_lane_firsts(next, end, &firsts))) {
        return 0;
    }
    if (!(next = read_ballots(flags, n, sign, next, end, &set)))
        return 0;
    read_columns(&set, next, planes);
    __m512i q[REGISTERS];
    for (int half = 0; half < 2; half++) {
        for (int p = 0; p < 8; p++)
            q[8 * half + p] = _mm512_load_si512(planes[p] + 64 * half);
        half_of_planes(q + 8 * half);
    }
    for (int i = 0; i < REGISTERS; i++)
        q[i] = fold(q[i]);
    if (predicted) {
        put_firsts(q, firsts, chained);
        if (unpredict_registers(q, chained, codes->narrow))
            return 1;
        for (int i = 0; i < REGISTERS; i++)
            _mm512_store_si512(codes->narrow + 64 * i, q[i]);
        unpredict_generic(codes->narrow, chained);
        return 1;
    }
    for (int i = 0; i < REGISTERS; i++)
        _mm512_store_si512(codes->narrow + 64 * i, q[i]);
    return 1;
}

/* ---- dtypes: only fp16 is worth instructions of its own; what is stored is never a NaN ---- */

/* The first `left` of sixteen, or all. */
static inline __mmask16 mask_of(int left) {
    return (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1u);
}

static void to_f32(comet_dtype dtype, const void *patterns, int count, float *values) {
    if (dtype != COMET_F16) {
        comet_loop_to_f32(dtype, patterns, count, values);
        return;
    }
    for (int i = 0; i < count; i += 16) {
        __mmask16 mask = mask_of(count - i);
        __m256i h = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)patterns + i);
        __m256i magnitude = _mm256_and_si256(h, _mm256_set1_epi16(0x7fff));
        if (_mm256_cmpgt_epi16_mask(magnitude, _mm256_set1_epi16(0x7c00))) /* the instruction would make a NaN quiet */
            comet_loop_to_f32(dtype, (const uint8_t *)patterns + 2 * i, count - i < 16 ? count - i : 16, values + i);
        else
            _mm512_mask_storeu_ps(values + i, mask, _mm512_cvtph_ps(h));
    }
}

static void of_f32(comet_dtype dtype, const float *values, int count, void *patterns) {
    if (dtype != COMET_F16) {
        comet_loop_of_f32(dtype, values, count, patterns);
        return;
    }
    for (int i = 0; i < count; i += 16) {
        __mmask16 mask = mask_of(count - i);
        __m512 v = _mm512_maskz_loadu_ps(mask, values + i);
        _mm256_mask_storeu_epi16((uint16_t *)patterns + i, mask, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
}

/* ---- survey ---- */

/* What is accumulated over the 64 registers of a tile, beside the sums. Counted without masks: those cost more. */
typedef struct survey_state {
    __m512i nonzero, signs;
    __m512 min, max;
} survey_state;

static inline __m512 survey_add(survey_state *s, __m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512 magnitude = _mm512_abs_ps(x);
    s->min = _mm512_min_ps(s->min, x);
    s->max = _mm512_max_ps(s->max, x);
    s->nonzero = _mm512_add_epi32(s->nonzero, _mm512_min_epu32(_mm512_castps_si512(magnitude), _mm512_set1_epi32(1)));
    s->signs = _mm512_add_epi32(s->signs, _mm512_srli_epi32(bits, 31));
    return magnitude;
}

/* Sums of `terms` registers, `step` values apart. */
static inline __attribute__((always_inline)) void survey_place(survey_state *s, const float *v, int step, int terms,
                                                               __m512 *abs_sum, __m512 *square_sum) {
    __m512 x = _mm512_load_ps(v);
    *abs_sum = survey_add(s, x);
    *square_sum = _mm512_mul_ps(x, x);
    for (int j = 1; j < terms; j++) {
        x = _mm512_load_ps(v + j * step);
        *abs_sum = _mm512_add_ps(*abs_sum, survey_add(s, x));
        *square_sum = _mm512_fmadd_ps(x, x, *square_sum);
    }
}

/* The same of the two halves of the rows, added. */
static inline __attribute__((always_inline)) void survey_rows(survey_state *s, const float *v, __m512 *abs_sum,
                                                              __m512 *square_sum) {
    __m512 abs_high, square_high;
    survey_place(s, v, TILE_ROW_VALUES, TILE_ROWS, abs_sum, square_sum);
    survey_place(s, v + SURVEY_PLACES, TILE_ROW_VALUES, TILE_ROWS, &abs_high, &square_high);
    *abs_sum = _mm512_add_ps(*abs_sum, abs_high);
    *square_sum = _mm512_add_ps(*square_sum, square_high);
}

static int count_positive(const float *v) {
    int positive = 0;
    for (int i = 0; i < TILE_VALUES; i += 16)
        positive += __builtin_popcount(_mm512_cmp_ps_mask(_mm512_load_ps(v + i), _mm512_setzero_ps(), _CMP_GT_OQ));
    return positive;
}

static inline __m512 add_neighbours(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* Of four registers: the sum of each quad, quad w of register i at place 4 w + i. */
static inline __m512 sum_quads(const __m512 *r) {
    return add_neighbours(add_neighbours(r[0], r[1]), add_neighbours(r[2], r[3]));
}

/* Eight registers in order of places: quads u = 16 (i / 4) + 4 (i mod 4) + w. */
static inline __attribute__((always_inline)) double sum_rows(const __m512 *r) {
    __m512 quads = _mm512_add_ps(sum_quads(r), sum_quads(r + 4));           /* distance 16 */
    quads = _mm512_add_ps(quads, _mm512_permute_ps(quads, 0x4e));           /* 8 */
    quads = _mm512_add_ps(quads, _mm512_permute_ps(quads, 0xb1));           /* 4 */
    quads = _mm512_add_ps(quads, _mm512_shuffle_f32x4(quads, quads, 0x4e)); /* 2 */
    quads = _mm512_add_ps(quads, _mm512_shuffle_f32x4(quads, quads, 0xb1)); /* 1 */
    return (double)_mm512_cvtss_f32(quads);
}

/* Register 4 h + k has row k of lanes 2 h and 2 h + 1: quads u = 16 h + 8 (w / 2) + 2 k + w mod 2. */
static inline __attribute__((always_inline)) double sum_run(const __m512 *r) {
    __m512 quads = _mm512_add_ps(sum_quads(r), sum_quads(r + 4));           /* distance 16 */
    quads = _mm512_add_ps(quads, _mm512_shuffle_f32x4(quads, quads, 0x4e)); /* 8 */
    quads = _mm512_add_ps(quads, _mm512_permute_ps(quads, 0x4e));           /* 4 */
    quads = _mm512_add_ps(quads, _mm512_permute_ps(quads, 0xb1));           /* 2 */
    quads = _mm512_add_ps(quads, _mm512_shuffle_f32x4(quads, quads, 0xb1)); /* 1 */
    return (double)_mm512_cvtss_f32(quads);
}

static void survey(const float *v, tile_order order, survey_order sums, const tile_padding *padding, tile_survey *s) {
    if (!padding->all_valid) {
        survey_generic(v, order, sums, padding, s);
        return;
    }
    survey_state state = {.nonzero = _mm512_setzero_si512(),
                          .signs = _mm512_setzero_si512(),
                          .min = _mm512_set1_ps(INFINITY),
                          .max = _mm512_set1_ps(-INFINITY)};
    __m512 abs_sums[8], square_sums[8];
    if (sums == SURVEY_RUN)
        for (int i = 0; i < 8; i++)
            survey_place(&state, v + i % 4 * TILE_ROW_VALUES + i / 4 * 16, SURVEY_RUN_STEP, SURVEY_RUN_TERMS,
                         &abs_sums[i], &square_sums[i]);
    else
        for (int i = 0; i < 8; i++)
            survey_rows(&state, v + 16 * i, &abs_sums[i], &square_sums[i]);
    double sum_abs = sums == SURVEY_RUN ? sum_run(abs_sums) : sum_rows(abs_sums);
    float min = _mm512_reduce_min_ps(state.min), max = _mm512_reduce_max_ps(state.max);
    uint32_t magnitude = comet_bits_of(fmaxf(fabsf(min), fabsf(max)));
    /* min and max may miss a NaN, but the sum does not; and a sum that overflows is of values that are not plain */
    if (!isfinite(sum_abs) || !survey_is_plain(magnitude)) {
        survey_generic(v, order, sums, padding, s);
        return;
    }
    int nonzero = _mm512_reduce_add_epi32(state.nonzero), signs = _mm512_reduce_add_epi32(state.signs);
    /* zeros may have signs too; where there are both, count again */
    int zeros_may_have_signs = signs && nonzero < TILE_VALUES;
    *s = (tile_survey){.magnitude = magnitude,
                       .nonzero = nonzero,
                       .positive = zeros_may_have_signs ? count_positive(v) : nonzero - signs,
                       .min = min,
                       .max = max,
                       .sum_abs = sum_abs,
                       .sum_squares = sums == SURVEY_RUN ? sum_run(square_sums) : sum_rows(square_sums)};
}

/* ---- quantise, dequantise ---- */

/* The low bytes of the 64 integers in four registers. */
static inline __m512i narrow_four(__m512i a, __m512i b, __m512i c, __m512i d) {
    static const uint8_t low_bytes[64] = {0,  4,  8,  12, 16, 20, 24, 28, 32, 36,  40,  44,  48,  52,  56,  60,
                                          64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124,
                                          0,  4,  8,  12, 16, 20, 24, 28, 32, 36,  40,  44,  48,  52,  56,  60,
                                          64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124};
    const __m512i index = _mm512_loadu_si512(low_bytes);
    return _mm512_mask_blend_epi64(0xf0, _mm512_permutex2var_epi8(a, index, b), _mm512_permutex2var_epi8(c, index, d));
}

/* The code of each value, in the low byte at least. */
static inline __m512i codes_nearest(__m512 x, __m512 inverse) {
    return _mm512_castps_si512(_mm512_fmadd_ps(x, inverse, _mm512_set1_ps(MAGIC)));
}

static inline __m512i codes_keep_rise(__m512 x, __m512 inverse) {
    const __m512i bits = _mm512_castps_si512(x), zero = _mm512_setzero_si512();
    __m512i code = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_abs_ps(x), inverse));
    __mmask16 nonzero = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x7fffffff));
    code = _mm512_mask_add_epi32(code, nonzero, code, _mm512_set1_epi32(1));
    return _mm512_mask_sub_epi32(code, _mm512_movepi32_mask(bits), zero, code);
}

static inline void quantise_rows(const float *v, __m512 inverse, int keep, __m512i *rows) {
    for (int i = 0; i < 16; i++) {
        __m512i c[4];
        for (int j = 0; j < 4; j++) {
            __m512 x = _mm512_load_ps(v + 64 * i + 16 * j);
            c[j] = keep ? codes_keep_rise(x, inverse) : codes_nearest(x, inverse);
        }
        rows[i] = narrow_four(c[0], c[1], c[2], c[3]);
    }
}

/* Bytes 4 l + m of lanes 0-15 from two registers of two columns by 32 lanes; + 16 for lanes 16-31. */
static const uint8_t lanes_of_columns[64] = {0,  32, 64, 96,  1,  33, 65, 97,  2,  34, 66, 98,  3,  35, 67, 99,
                                             4,  36, 68, 100, 5,  37, 69, 101, 6,  38, 70, 102, 7,  39, 71, 103,
                                             8,  40, 72, 104, 9,  41, 73, 105, 10, 42, 74, 106, 11, 43, 75, 107,
                                             12, 44, 76, 108, 13, 45, 77, 109, 14, 46, 78, 110, 15, 47, 79, 111};

/* A row of the tile, 256 bytes as 8 columns by 32 lanes, to 32 lanes by 8 columns. */
static inline void row_to_linear(__m512i *r) {
    const __m512i low = _mm512_loadu_si512(lanes_of_columns), high = _mm512_add_epi8(low, _mm512_set1_epi8(16));
    const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    __m512i a = _mm512_permutex2var_epi8(r[0], low, r[1]), b = _mm512_permutex2var_epi8(r[2], low, r[3]);
    __m512i c = _mm512_permutex2var_epi8(r[0], high, r[1]), d = _mm512_permutex2var_epi8(r[2], high, r[3]);
    r[0] = _mm512_permutex2var_epi32(a, first, b);
    r[1] = _mm512_permutex2var_epi32(a, second, b);
    r[2] = _mm512_permutex2var_epi32(c, first, d);
    r[3] = _mm512_permutex2var_epi32(c, second, d);
}

/* Bytes 32 m' + l of lanes 0-15 (then 16-31 from the second operand), from registers of 16 lanes by 4 columns. */
static const uint8_t columns_of_lanes[64] = {0,  4,  8,  12, 16, 20, 24, 28, 32, 36,  40,  44,  48,  52,  56,  60,
                                             64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124,
                                             1,  5,  9,  13, 17, 21, 25, 29, 33, 37,  41,  45,  49,  53,  57,  61,
                                             65, 69, 73, 77, 81, 85, 89, 93, 97, 101, 105, 109, 113, 117, 121, 125};

static inline void row_to_interleaved(__m512i *r) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i low = _mm512_loadu_si512(columns_of_lanes), high = _mm512_add_epi8(low, _mm512_set1_epi8(2));
    __m512i a = _mm512_permutex2var_epi32(r[0], even, r[1]), b = _mm512_permutex2var_epi32(r[0], odd, r[1]);
    __m512i c = _mm512_permutex2var_epi32(r[2], even, r[3]), d = _mm512_permutex2var_epi32(r[2], odd, r[3]);
    r[0] = _mm512_permutex2var_epi8(a, low, c);
    r[1] = _mm512_permutex2var_epi8(a, high, c);
    r[2] = _mm512_permutex2var_epi8(b, low, d);
    r[3] = _mm512_permutex2var_epi8(b, high, d);
}

static void linear_of_interleaved(const int8_t *from, int8_t *to) {
    for (int k = 0; k < TILE_VALUES; k += TILE_ROW_VALUES) {
        __m512i r[4];
        for (int i = 0; i < 4; i++)
            r[i] = _mm512_load_si512(from + k + 64 * i);
        row_to_linear(r);
        for (int i = 0; i < 4; i++)
            _mm512_store_si512(to + k + 64 * i, r[i]);
    }
}

static void interleaved_of_linear(const int8_t *from, int8_t *to) {
    for (int k = 0; k < TILE_VALUES; k += TILE_ROW_VALUES) {
        __m512i r[4];
        for (int i = 0; i < 4; i++)
            r[i] = _mm512_load_si512(from + k + 64 * i);
        row_to_interleaved(r);
        for (int i = 0; i < 4; i++)
            _mm512_store_si512(to + k + 64 * i, r[i]);
    }
}

static void quantise(const float *v, tile_order order, const tile_quantise *how, tile_codes *codes) {
    quantiser_mode mode = how->c->mode;
    if (how->c->wide || (mode != QUANTISE_NEAREST && mode != QUANTISE_KEEP_RISE)) {
        quantise_generic(v, order, how, codes);
        return;
    }
    __m512i rows[16];
    __m512 inverse = _mm512_set1_ps(how->c->inverse);
    if (mode == QUANTISE_NEAREST)
        quantise_rows(v, inverse, 0, rows);
    else
        quantise_rows(v, inverse, 1, rows);
    if (order == TILE_INTERLEAVED)
        for (int k = 0; k < TILE_ROWS; k++)
            row_to_linear(rows + 4 * k);
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(codes->narrow + 64 * i, rows[i]);
}

static inline __m512 values_nearest(__m512i q, __m512 step) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(q), step);
}

static inline __m512 values_keep_rise(__m512i q, __m512 half_step) {
    const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi32(1);
    __m512i twice = _mm512_add_epi32(q, q);
    twice = _mm512_mask_sub_epi32(twice, _mm512_cmpgt_epi32_mask(q, zero), twice, one);
    twice = _mm512_mask_add_epi32(twice, _mm512_movepi32_mask(q), twice, one);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(twice), half_step);
}

static void dequantise(const tile_codes *codes, tile_order order, const tile_quantise *how, float *v) {
    quantiser_mode mode = how->c->mode;
    if (how->c->wide || mode == QUANTISE_GRID) {
        dequantise_generic(codes, order, how, v);
        return;
    }
    _Alignas(64) int8_t places[TILE_VALUES];
    const int8_t *q = codes->narrow;
    if (order == TILE_INTERLEAVED) {
        interleaved_of_linear(q, places);
        q = places;
    }
    __m512 step = _mm512_set1_ps(mode == QUANTISE_KEEP_RISE ? 0.5f * how->c->step : how->c->step);
    for (int i = 0; i < TILE_VALUES; i += 16) {
        __m512i x = _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(q + i)));
        _mm512_store_ps(v + i, mode == QUANTISE_KEEP_RISE ? values_keep_rise(x, step) : values_nearest(x, step));
    }
}

DEFINE_TILE_KERNELS(comet_tile_avx512);
