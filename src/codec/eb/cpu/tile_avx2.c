/* SPDX-License-Identifier: Apache-2.0 */
/* The tile with AVX2, FMA and BMI2. What is not here is tile_generic.h compiled for AVX2. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define HAVE_SURVEY
#define HAVE_ORDER
#define HAVE_QUANTISE
#define HAVE_DEQUANTISE
#define HAVE_COLUMNS
#define HAVE_TRANSPOSE
#define HAVE_RESIDUALS

/* ---- columns ---- */

static inline uint32_t column_ballot(const uint8_t *column) {
    __m256i c = _mm256_loadu_si256((const __m256i *)column);
    return ~(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(c, _mm256_setzero_si256()));
}

/* Eight bits as eight bytes of 0x00 or 0xff. */
static inline uint64_t spread_bits(uint32_t bits) {
    return _pdep_u64(bits & 0xffu, 0x0101010101010101u) * 0xffu;
}

static inline void column_compress(uint8_t *out, const uint8_t *column, uint32_t ballot) {
    for (int i = 0; i < 4; i++, ballot >>= 8) {
        uint64_t eight;
        memcpy(&eight, column + 8 * i, 8);
        eight = _pext_u64(eight, spread_bits(ballot));
        memcpy(out, &eight, 8);
        out += __builtin_popcount(ballot & 0xffu);
    }
}

static inline void column_expand(uint8_t *column, const uint8_t *in, uint32_t ballot) {
    for (int i = 0; i < 4; i++, ballot >>= 8) {
        uint64_t eight;
        memcpy(&eight, in, 8);
        eight = _pdep_u64(eight, spread_bits(ballot));
        memcpy(column + 8 * i, &eight, 8);
        in += __builtin_popcount(ballot & 0xffu);
    }
}

/* ---- bit-planes: 32 values at a time, four bytes of each plane ---- */

static void planes_of_bytes(const uint8_t *bytes, uint8_t (*planes)[128]) {
    for (int i = 0; i < 32; i++) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(bytes + 32 * i));
        for (int b = 7; b >= 0; b--) {
            uint32_t plane = (uint32_t)_mm256_movemask_epi8(v);
            memcpy(planes[b] + 4 * i, &plane, 4);
            v = _mm256_add_epi8(v, v);
        }
    }
}

static void bytes_of_planes(const uint8_t (*planes)[128], uint8_t *bytes) {
    const __m256i spread = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    for (int i = 0; i < 32; i++) {
        __m256i v = _mm256_setzero_si256();
        for (int b = 7; b >= 0; b--) {
            int32_t plane;
            memcpy(&plane, planes[b] + 4 * i, 4);
            __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(plane), spread), bit);
            /* v = 2 v + (own is set): the comparison gives -1 */
            v = _mm256_sub_epi8(_mm256_add_epi8(v, v), _mm256_cmpeq_epi8(own, bit));
        }
        _mm256_storeu_si256((__m256i *)(bytes + 32 * i), v);
    }
}

/* ---- the rest of tile_generic.h, which needs the above ---- */

#include "codec/eb/tile.h"

static void survey(const float *v, tile_order order, survey_order sums, const tile_padding *padding, tile_survey *s);
static void linear_of_interleaved(const int8_t *from, int8_t *to);
static void interleaved_of_linear(const int8_t *from, int8_t *to);
static void quantise(const float *v, tile_order order, const tile_quantise *how, tile_codes *codes);
static void dequantise(const tile_codes *codes, tile_order order, const tile_quantise *how, float *v);
static int prediction_pays(const int8_t *q, const tile_padding *padding);
static void fold_predicted(const int8_t *q, int chained, uint8_t *f);
static void unpredict(int8_t *q, int chained);

#include "codec/eb/cpu/tile_generic.h"

/* ---- survey ---- */

typedef struct survey_state {
    __m256i zeros, signs; /* zeros counted down from 0 */
    __m256 min, max;
} survey_state;

static inline __m256 survey_add(survey_state *s, __m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    s->min = _mm256_min_ps(s->min, x);
    s->max = _mm256_max_ps(s->max, x);
    s->zeros = _mm256_add_epi32(s->zeros, _mm256_cmpeq_epi32(_mm256_castps_si256(magnitude), _mm256_setzero_si256()));
    s->signs = _mm256_add_epi32(s->signs, _mm256_srli_epi32(bits, 31));
    return magnitude;
}

/* Adds `terms` registers, `step` values apart, to the sums of their places. */
static inline void survey_more(survey_state *s, const float *v, int step, int terms, __m256 *abs_sum,
                               __m256 *square_sum) {
    for (int j = 0; j < terms; j++) {
        __m256 x = _mm256_load_ps(v + j * step);
        *abs_sum = _mm256_add_ps(*abs_sum, survey_add(s, x));
        *square_sum = _mm256_fmadd_ps(x, x, *square_sum);
    }
}

/* The same from the first term on. */
static inline void survey_place(survey_state *s, const float *v, int step, int terms, __m256 *abs_sum,
                                __m256 *square_sum) {
    __m256 x = _mm256_load_ps(v);
    *abs_sum = survey_add(s, x);
    *square_sum = _mm256_mul_ps(x, x);
    survey_more(s, v + step, step, terms - 1, abs_sum, square_sum);
}

/* The 128 places in 16 registers, in two passes: eight terms at once are more than gcc keeps in registers. */
static void survey_rows(survey_state *s, const float *v, __m256 *abs_sums, __m256 *square_sums) {
    for (int i = 0; i < 16; i++)
        survey_place(s, v + 8 * i, TILE_ROW_VALUES, TILE_ROWS, &abs_sums[i], &square_sums[i]);
    for (int i = 0; i < 16; i++) {
        __m256 abs_sum, square_sum;
        survey_place(s, v + SURVEY_PLACES + 8 * i, TILE_ROW_VALUES, TILE_ROWS, &abs_sum, &square_sum);
        abs_sums[i] = _mm256_add_ps(abs_sums[i], abs_sum);
        square_sums[i] = _mm256_add_ps(square_sums[i], square_sum);
    }
}

static void survey_run(survey_state *s, const float *v, __m256 *abs_sums, __m256 *square_sums) {
    enum { HALF = SURVEY_RUN_TERMS / 2 };
    for (int i = 0; i < 16; i++) /* row i mod 4 of lane i div 4 */
        survey_place(s, v + i % 4 * TILE_ROW_VALUES + i / 4 * TILE_LANE_COLUMNS, SURVEY_RUN_STEP, HALF, &abs_sums[i],
                     &square_sums[i]);
    v += HALF * SURVEY_RUN_STEP;
    for (int i = 0; i < 16; i++)
        survey_more(s, v + i % 4 * TILE_ROW_VALUES + i / 4 * TILE_LANE_COLUMNS, SURVEY_RUN_STEP, HALF, &abs_sums[i],
                    &square_sums[i]);
}

/* Of four registers: the sum of each quad, quad w of register i at place 4 w + i. */
static inline __m256 sum_quads(const __m256 *r) {
    return _mm256_hadd_ps(_mm256_hadd_ps(r[0], r[1]), _mm256_hadd_ps(r[2], r[3]));
}

/* The tree over quads: quad w of register i is number 2 i + w. */
static double sum_tree(const __m256 *r) {
    __m256 even = _mm256_add_ps(sum_quads(r), sum_quads(r + 8)); /* quads at distance 16 */
    __m256 odd = _mm256_add_ps(sum_quads(r + 4), sum_quads(r + 12));
    __m256 quads = _mm256_add_ps(even, odd);                                  /* 8 */
    quads = _mm256_add_ps(quads, _mm256_permute_ps(quads, 0x4e));             /* 4 */
    quads = _mm256_add_ps(quads, _mm256_permute_ps(quads, 0xb1));             /* 2 */
    quads = _mm256_add_ps(quads, _mm256_permute2f128_ps(quads, quads, 0x01)); /* 1 */
    return (double)_mm256_cvtss_f32(quads);
}

static int sum_integers(__m256i v) {
    int32_t each[8], sum = 0;
    _mm256_storeu_si256((__m256i *)each, v);
    for (int i = 0; i < 8; i++)
        sum += each[i];
    return sum;
}

static void least_and_greatest(const survey_state *s, float *min, float *max) {
    float low[8], high[8];
    _mm256_storeu_ps(low, s->min);
    _mm256_storeu_ps(high, s->max);
    *min = low[0];
    *max = high[0];
    for (int i = 1; i < 8; i++) {
        *min = low[i] < *min ? low[i] : *min;
        *max = high[i] > *max ? high[i] : *max;
    }
}

static int count_positive(const float *v) {
    int positive = 0;
    for (int i = 0; i < TILE_VALUES; i += 8)
        positive += __builtin_popcount(
            (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_load_ps(v + i), _mm256_setzero_ps(), _CMP_GT_OQ)));
    return positive;
}

static void survey(const float *v, tile_order order, survey_order sums, const tile_padding *padding, tile_survey *s) {
    if (!padding->all_valid) {
        survey_generic(v, order, sums, padding, s);
        return;
    }
    survey_state state = {.zeros = _mm256_setzero_si256(),
                          .signs = _mm256_setzero_si256(),
                          .min = _mm256_set1_ps(INFINITY),
                          .max = _mm256_set1_ps(-INFINITY)};
    __m256 abs_sums[16], square_sums[16];
    if (sums == SURVEY_RUN)
        survey_run(&state, v, abs_sums, square_sums);
    else
        survey_rows(&state, v, abs_sums, square_sums);
    double sum_abs = sum_tree(abs_sums);
    float min, max;
    least_and_greatest(&state, &min, &max);
    uint32_t magnitude = comet_bits_of(fmaxf(fabsf(min), fabsf(max)));
    /* min and max may miss a NaN, but the sum does not; and a sum that overflows is of values that are not plain */
    if (!isfinite(sum_abs) || !survey_is_plain(magnitude)) {
        survey_generic(v, order, sums, padding, s);
        return;
    }
    int nonzero = TILE_VALUES + sum_integers(state.zeros), signs = sum_integers(state.signs);
    /* zeros may have signs too; where there are both, count again */
    int zeros_may_have_signs = signs && nonzero < TILE_VALUES;
    *s = (tile_survey){.magnitude = magnitude,
                       .nonzero = nonzero,
                       .positive = zeros_may_have_signs ? count_positive(v) : nonzero - signs,
                       .min = min,
                       .max = max,
                       .sum_abs = sum_abs,
                       .sum_squares = sum_tree(square_sums)};
}

/* ---- order of bytes ---- */

/* Interleaves two registers' units of 1, 2 or 4 bytes into a pair, in order over the whole of both. */
#define ZIP(unit, a, b, low, high)                                                                                     \
    do {                                                                                                               \
        __m256i zip_l = _mm256_unpacklo_##unit(a, b), zip_h = _mm256_unpackhi_##unit(a, b);                            \
        low = _mm256_permute2x128_si256(zip_l, zip_h, 0x20);                                                           \
        high = _mm256_permute2x128_si256(zip_l, zip_h, 0x31);                                                          \
    } while (0)

/* A row of the tile, 256 bytes as 8 columns by 32 lanes, to 32 lanes by 8 columns. */
static void row_to_linear(const int8_t *from, int8_t *to) {
    __m256i c[8], p[8], q[8], r[8];
    for (int m = 0; m < 8; m++)
        c[m] = _mm256_loadu_si256((const __m256i *)(from + 32 * m));
    for (int m = 0; m < 8; m += 2)
        ZIP(epi8, c[m], c[m + 1], p[m], p[m + 1]); /* pairs of columns, lanes 0-15 and 16-31 */
    for (int h = 0; h < 2; h++)
        for (int m = 0; m < 2; m++)
            ZIP(epi16, p[4 * m + h], p[4 * m + 2 + h], q[4 * m + 2 * h], q[4 * m + 2 * h + 1]);
    for (int h = 0; h < 4; h++)
        ZIP(epi32, q[h], q[4 + h], r[2 * h], r[2 * h + 1]);
    for (int i = 0; i < 8; i++)
        _mm256_storeu_si256((__m256i *)(to + 32 * i), r[i]);
}

/* The inverse. */
static void row_to_interleaved(const int8_t *from, int8_t *to) {
    for (int g = 0; g < 4; g++) { /* eight lanes at a time */
        const __m256i by_column = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15, 0, 8, 1, 9, 2,
                                                   10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
        __m256i a = _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)(from + 64 * g)), by_column);
        __m256i b = _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)(from + 64 * g + 32)), by_column);
        /* 16-bit units: column m of two lanes; now lanes 01 | 45 and 23 | 67 */
        __m256i even = _mm256_permute2x128_si256(a, b, 0x20), odd = _mm256_permute2x128_si256(a, b, 0x31);
        __m256i low = _mm256_unpacklo_epi16(even, odd), high = _mm256_unpackhi_epi16(even, odd);
        /* 32-bit units: column m of lanes 0-3 in the low halves, of 4-7 in the high ones */
        int32_t units[16];
        _mm256_storeu_si256((__m256i *)units, low);
        _mm256_storeu_si256((__m256i *)(units + 8), high);
        for (int m = 0; m < 8; m++) {
            int at = (m < 4 ? 0 : 8) + m % 4;
            memcpy(to + 32 * m + 8 * g, &units[at], 4);
            memcpy(to + 32 * m + 8 * g + 4, &units[at + 4], 4);
        }
    }
}

static void linear_of_interleaved(const int8_t *from, int8_t *to) {
    for (int k = 0; k < TILE_VALUES; k += TILE_ROW_VALUES)
        row_to_linear(from + k, to + k);
}

static void interleaved_of_linear(const int8_t *from, int8_t *to) {
    for (int k = 0; k < TILE_VALUES; k += TILE_ROW_VALUES)
        row_to_interleaved(from + k, to + k);
}

/* ---- quantise, dequantise ---- */

static inline __m256i codes_nearest(__m256 x, __m256 inverse) {
    const __m256 magic = _mm256_set1_ps(MAGIC);
    return _mm256_sub_epi32(_mm256_castps_si256(_mm256_fmadd_ps(x, inverse, magic)), _mm256_castps_si256(magic));
}

/*
 * The instructions of AVX2 round as the thread's control word says. From here on they round up; `factor` goes through,
 * so that no product with it is formed before.
 */
static inline unsigned round_up_from_here(__m256 *factor) {
    unsigned before = _mm_getcsr(), up = (before & ~(unsigned)_MM_ROUND_MASK) | _MM_ROUND_UP;
    __asm__ volatile("vldmxcsr %1" : "+x"(*factor) : "m"(up));
    return before;
}

/* And from here on as before: what is stored at `results` was computed. */
static inline void round_as_before(unsigned before, const void *results) {
    __asm__ volatile("vldmxcsr %0" : : "m"(before), "r"(results) : "memory");
}

/* Between the two: the ceiling of a product that is not rounded. */
static inline __m256i codes_keep_rise(__m256 x, __m256 inverse) {
    return _mm256_sign_epi32(codes_nearest(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), inverse),
                             _mm256_castps_si256(x));
}

/* 32 codes as bytes. */
static inline __m256i quantise_32(const float *v, __m256 inverse, int keep) {
    __m256i c[4];
    for (int i = 0; i < 4; i++) {
        __m256 x = _mm256_load_ps(v + 8 * i);
        c[i] = keep ? codes_keep_rise(x, inverse) : codes_nearest(x, inverse);
    }
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static void quantise(const float *v, tile_order order, const tile_quantise *how, tile_codes *codes) {
    quantiser_mode mode = how->c->mode;
    if (how->c->wide || (mode != QUANTISE_NEAREST && mode != QUANTISE_KEEP_RISE)) {
        quantise_generic(v, order, how, codes);
        return;
    }
    _Alignas(32) int8_t places[TILE_VALUES];
    int8_t *to = order == TILE_LINEAR ? codes->narrow : places;
    __m256 inverse = _mm256_set1_ps(how->c->inverse);
    if (mode == QUANTISE_NEAREST) {
        for (int i = 0; i < TILE_VALUES; i += 32)
            _mm256_store_si256((__m256i *)(to + i), quantise_32(v + i, inverse, 0));
    } else {
        unsigned before = round_up_from_here(&inverse);
        for (int i = 0; i < TILE_VALUES; i += 32)
            _mm256_store_si256((__m256i *)(to + i), quantise_32(v + i, inverse, 1));
        round_as_before(before, to);
    }
    if (order == TILE_INTERLEAVED)
        linear_of_interleaved(places, codes->narrow);
}

/* Eight codes. */
static inline __m256i load_integers(const int8_t *q) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)q));
}

static inline __m256 values_nearest(__m256i q, __m256 step) {
    return _mm256_mul_ps(_mm256_cvtepi32_ps(q), step);
}

static inline __m256 values_keep_rise(__m256i q, __m256 half_step) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i twice = _mm256_add_epi32(q, q);
    twice = _mm256_add_epi32(twice, _mm256_cmpgt_epi32(q, zero)); /* less 1 where positive */
    twice = _mm256_sub_epi32(twice, _mm256_cmpgt_epi32(zero, q));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(twice), half_step);
}

static void dequantise(const tile_codes *codes, tile_order order, const tile_quantise *how, float *v) {
    quantiser_mode mode = how->c->mode;
    if (how->c->wide || mode == QUANTISE_GRID) {
        dequantise_generic(codes, order, how, v);
        return;
    }
    int8_t places[TILE_VALUES];
    const int8_t *q = codes->narrow;
    if (order == TILE_INTERLEAVED) {
        interleaved_of_linear(q, places);
        q = places;
    }
    __m256 step = _mm256_set1_ps(how->c->step), half_step = _mm256_set1_ps(0.5f * how->c->step);
    if (mode == QUANTISE_KEEP_RISE) {
#pragma GCC unroll 4
        for (int i = 0; i < TILE_VALUES; i += 8)
            _mm256_store_ps(v + i, values_keep_rise(load_integers(q + i), half_step));
    } else {
#pragma GCC unroll 4
        for (int i = 0; i < TILE_VALUES; i += 8)
            _mm256_store_ps(v + i, values_nearest(load_integers(q + i), step));
    }
}

/* ---- residuals of narrow codes: 32 registers, eight for each row k ---- */

static inline __m256i load_codes(const int8_t *q) {
    return _mm256_loadu_si256((const __m256i *)q);
}

static inline __m256i fold(__m256i d) {
    __m256i negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), d);
    return _mm256_xor_si256(d, _mm256_and_si256(negative, _mm256_set1_epi8(0x7f)));
}

/*
 * Collects in *over where a difference or a sum of bytes leaves a byte: there the saturated result is not the plain
 * one.
 */
static inline void note_overflow(__m256i *over, __m256i plain, __m256i saturated) {
    *over = _mm256_or_si256(*over, _mm256_xor_si256(plain, saturated));
}

static inline int has_overflow(__m256i over) {
    return !_mm256_testz_si256(over, over);
}

/*
 * For _mm256_shuffle_epi8: byte `first` of every lane to byte `to` of its eight, byte `second` to byte to + 4, else 0.
 */
static inline __m256i two_of_lane(int first, int second, int to) {
    uint64_t places = (uint64_t)first << 8 * to | (uint64_t)second << 8 * (to + 4);
    uint64_t next_lane = places + (0x0000000800000008u << 8 * to);
    uint64_t others = ~(0x000000ff000000ffu << 8 * to) & 0x8080808080808080u;
    return _mm256_broadcastsi128_si256(_mm_set_epi64x((int64_t)(next_lane | others), (int64_t)(places | others)));
}

/* The sampled columns as 32-bit words, row 0 in the low bytes, so that what a difference carries is counted too. */
static int prediction_pays(const int8_t *q, const tile_padding *padding) {
    if (!padding->all_valid)
        return prediction_pays_generic(q, padding);
    enum { FIRST = SAMPLED_COLUMN, SECOND = OTHER_SAMPLED_COLUMN, BYTES = TILE_VALUES / SAMPLED_SHARE };
    const __m256i bias = _mm256_set1_epi32((int)COLUMN_BIAS), left = two_of_lane(FIRST - 1, SECOND - 1, 0);
    _Alignas(32) uint8_t direct[BYTES], predicted[BYTES];
    for (int i = 0; i < TILE_ROW_VALUES; i += 32) {
        __m256i u = _mm256_shuffle_epi8(load_codes(q + i), two_of_lane(FIRST, SECOND, 0));
        for (int k = 1; k < TILE_ROWS; k++)
            u = _mm256_or_si256(
                u, _mm256_shuffle_epi8(load_codes(q + k * TILE_ROW_VALUES + i), two_of_lane(FIRST, SECOND, k)));
        __m256i from = _mm256_or_si256(_mm256_slli_epi32(u, 8), _mm256_shuffle_epi8(load_codes(q + i), left));
        __m256i e = _mm256_sub_epi32(_mm256_xor_si256(u, bias), _mm256_xor_si256(from, bias));
        __m256i d = _mm256_xor_si256(_mm256_add_epi32(e, bias), bias);
        _mm256_store_si256((__m256i *)(direct + i), fold(u));
        _mm256_store_si256((__m256i *)(predicted + i), fold(d));
    }
    return fewer_bits(count_bits(predicted, BYTES), count_bits(direct, BYTES));
}

/* Each byte's left neighbour; `before` holds the 32 bytes in front of x. */
static inline __m256i left_of(__m256i before, __m256i x) {
    return _mm256_alignr_epi8(x, _mm256_permute2x128_si256(before, x, 0x21), 15);
}

/* All bytes, or all but the first of each lane. */
static inline __m256i not_firsts(int chained) {
    return _mm256_set1_epi64x(chained ? -1 : ~(int64_t)0xff);
}

static void fold_predicted(const int8_t *q, int chained, uint8_t *f) {
    const __m256i mask = not_firsts(chained);
    __m256i over = _mm256_setzero_si256(), before = _mm256_set1_epi8(q[0]); /* lane 0's first: to itself */
    for (int i = 0; i < TILE_ROW_VALUES; i += 32) {
        __m256i x = load_codes(q + i), left = left_of(before, x), d = _mm256_and_si256(_mm256_sub_epi8(x, left), mask);
        note_overflow(&over, d, _mm256_and_si256(_mm256_subs_epi8(x, left), mask));
        _mm256_storeu_si256((__m256i *)(f + i), fold(d));
        before = x;
    }
    for (int i = TILE_ROW_VALUES; i < TILE_VALUES; i += 32) {
        __m256i x = load_codes(q + i), above = load_codes(q + i - TILE_ROW_VALUES), d = _mm256_sub_epi8(x, above);
        if (i < TILE_VALUES - TILE_ROW_VALUES) /* the last row has no row to carry into */
            note_overflow(&over, d, _mm256_subs_epi8(x, above));
        _mm256_storeu_si256((__m256i *)(f + i), fold(d));
    }
    if (has_overflow(over))
        fold_predicted_generic(q, chained, f);
}

/* Sums of bytes from the start of each lane, or of all that were added before too. */
static inline __m256i prefix_sums(__m256i x, int chained, __m256i *carry) {
    const __m256i last_of_lane = _mm256_set_epi64x(0x0707070707070707, -1, 0x0707070707070707, -1);
    x = _mm256_add_epi8(x, _mm256_slli_epi64(x, 8));
    x = _mm256_add_epi8(x, _mm256_slli_epi64(x, 16));
    x = _mm256_add_epi8(x, _mm256_slli_epi64(x, 32));
    if (!chained)
        return x;
    x = _mm256_add_epi8(x, _mm256_shuffle_epi8(x, last_of_lane));
    x = _mm256_add_epi8(x, _mm256_shuffle_epi8(_mm256_permute2x128_si256(x, x, 0x08), _mm256_set1_epi8(15)));
    x = _mm256_add_epi8(x, *carry);
    *carry = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(x, 0xff), _mm256_set1_epi8(7));
    return x;
}

/* Takes back what was added bytewise to all rows but row 0, whose codes are in `row`. */
static void take_back(int8_t *q, const int8_t *row) {
    for (int i = TILE_VALUES - 1; i >= TILE_ROW_VALUES; i--)
        q[i] = (int8_t)(q[i] - (i < 2 * TILE_ROW_VALUES ? row : q)[i - TILE_ROW_VALUES]);
}

static void unpredict(int8_t *q, int chained) {
    _Alignas(32) int8_t row[TILE_ROW_VALUES];
    __m256i over = _mm256_setzero_si256(), carry = _mm256_setzero_si256();
    for (int i = 0; i < TILE_ROW_VALUES; i += 32) {
        __m256i d = load_codes(q + i), sum = prefix_sums(d, chained, &carry);
        /* a sum leaves a byte if the code less the residual does: that spares the code to the left */
        note_overflow(&over, _mm256_sub_epi8(sum, d), _mm256_subs_epi8(sum, d));
        _mm256_store_si256((__m256i *)(row + i), sum);
        for (int k = 1; k < TILE_ROWS; k++) {
            int8_t *at = q + k * TILE_ROW_VALUES + i;
            __m256i more = load_codes(at), above = sum;
            sum = _mm256_add_epi8(above, more);
            if (k < TILE_ROWS - 1) /* the last row has no row to carry into */
                note_overflow(&over, sum, _mm256_adds_epi8(above, more));
            _mm256_storeu_si256((__m256i *)at, sum);
        }
    }
    if (has_overflow(over)) {
        take_back(q, row);
        unpredict_generic(q, chained);
    } else {
        memcpy(q, row, sizeof row);
    }
}

DEFINE_TILE_KERNELS(comet_tile_avx2);
