/* SPDX-License-Identifier: Apache-2.0 */
/* Values to narrow codes and back, and the two orders of a tile. A part of tile_avx512.c. */
#ifndef COMET_CODEC_CPU_AVX512_QUANTISE_H
#define COMET_CODEC_CPU_AVX512_QUANTISE_H

#include <immintrin.h>

#include "codec/eb/cpu/tile_generic.h"

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

/* Rounded up as it is added: the ceiling of a product that is not rounded. */
static inline __m512i codes_keep_rise(__m512 x, __m512 inverse) {
    __m512i code = _mm512_castps_si512(_mm512_fmadd_round_ps(_mm512_abs_ps(x), inverse, _mm512_set1_ps(MAGIC),
                                                             _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC));
    __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
    return _mm512_mask_sub_epi32(code, negative, _mm512_setzero_si512(), code);
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

#endif
