/* SPDX-License-Identifier: Apache-2.0 */
/* Values of 16-bit types, and the statistics of a tile. A part of tile_avx512.c. */
#ifndef COMET_CODEC_CPU_AVX512_VALUES_H
#define COMET_CODEC_CPU_AVX512_VALUES_H

#include <immintrin.h>

#include "codec/eb/cpu/tile_generic.h"

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

#endif
