/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns packed and unpacked, bytes to planes of bits and back: what tile_generic.h builds on. A part of
 * tile_avx512.c.
 */
#ifndef COMET_CODEC_CPU_AVX512_PLANES_H
#define COMET_CODEC_CPU_AVX512_PLANES_H

#include <immintrin.h>
#include <stdint.h>

/* ---- columns ---- */

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

#endif
