/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 8 x 8 cosine transform of dct in integers, so that every machine gets the same coefficients: docs/codecs.md,
 * section 5, which also says why nothing here overflows. Blocks are stored [row][column], coefficients [horizontal
 * frequency][vertical frequency]: each pass works on columns and a transposition lies between the two.
 */
#ifndef COMET_CODEC_DCT_BLOCK_H
#define COMET_CODEC_DCT_BLOCK_H

#include "codec/simple/runs.h"

/* RN(2^13 * sqrt(2) * cos(i * pi / 16)); K4 is 2^13 */
enum { DCT_K1 = 11363, DCT_K2 = 10703, DCT_K3 = 9633, DCT_K4 = 8192, DCT_K5 = 6436, DCT_K6 = 4433, DCT_K7 = 2260 };

enum { DCT_LOW = 8 }; /* horizontal + vertical frequency below this is 'lower' */

/* The divisor of coefficient i: always 8, 16 or 32. */
COMET_INLINE int comet_dct_divisor(uint32_t table, int i) {
    if (table == 0 || i == 0)
        return 8;
    return i / 8 + i % 8 < DCT_LOW ? 32 : 16;
}

typedef struct dct_table {
    int16_t divisors[64];
    int16_t factors[64]; /* 32 / divisor */
} dct_table;

COMET_INLINE void comet_dct_table(uint32_t table, dct_table *t) {
    for (int i = 0; i < 64; i++) {
        t->divisors[i] = (int16_t)comet_dct_divisor(table, i);
        t->factors[i] = (int16_t)(32 / t->divisors[i]);
    }
}

/* Eight transforms side by side: to[8 u + i] = sum over y of M[u][y] * from[8 y + i]. */
COMET_INLINE void comet_dct_forward_pass(const int32_t *restrict from, int32_t *restrict to) {
    for (int i = 0; i < 8; i++) {
        int32_t s0 = from[i] + from[56 + i], d0 = from[i] - from[56 + i];
        int32_t s1 = from[8 + i] + from[48 + i], d1 = from[8 + i] - from[48 + i];
        int32_t s2 = from[16 + i] + from[40 + i], d2 = from[16 + i] - from[40 + i];
        int32_t s3 = from[24 + i] + from[32 + i], d3 = from[24 + i] - from[32 + i];
        int32_t a = s0 + s3, b = s1 + s2, c = s0 - s3, e = s1 - s2;
        to[i] = DCT_K4 * (a + b);
        to[32 + i] = DCT_K4 * (a - b);
        to[16 + i] = DCT_K2 * c + DCT_K6 * e;
        to[48 + i] = DCT_K6 * c - DCT_K2 * e;
        to[8 + i] = DCT_K1 * d0 + DCT_K3 * d1 + DCT_K5 * d2 + DCT_K7 * d3;
        to[24 + i] = DCT_K3 * d0 - DCT_K7 * d1 - DCT_K1 * d2 - DCT_K5 * d3;
        to[40 + i] = DCT_K5 * d0 - DCT_K1 * d1 + DCT_K7 * d2 + DCT_K3 * d3;
        to[56 + i] = DCT_K7 * d0 - DCT_K5 * d1 + DCT_K3 * d2 - DCT_K1 * d3;
    }
}

/* to[8 x + i] = sum over v of M[v][x] * from[8 v + i]. */
COMET_INLINE void comet_dct_inverse_pass(const int32_t *restrict from, int32_t *restrict to) {
    for (int i = 0; i < 8; i++) {
        int32_t p = DCT_K4 * (from[i] + from[32 + i]), q = DCT_K4 * (from[i] - from[32 + i]);
        int32_t c1 = from[8 + i], c2 = from[16 + i], c3 = from[24 + i], c5 = from[40 + i], c6 = from[48 + i],
                c7 = from[56 + i];
        int32_t r = DCT_K2 * c2 + DCT_K6 * c6, t = DCT_K6 * c2 - DCT_K2 * c6;
        int32_t e0 = p + r, e1 = q + t, e2 = q - t, e3 = p - r;
        int32_t o0 = DCT_K1 * c1 + DCT_K3 * c3 + DCT_K5 * c5 + DCT_K7 * c7;
        int32_t o1 = DCT_K3 * c1 - DCT_K7 * c3 - DCT_K1 * c5 - DCT_K5 * c7;
        int32_t o2 = DCT_K5 * c1 - DCT_K1 * c3 + DCT_K7 * c5 + DCT_K3 * c7;
        int32_t o3 = DCT_K7 * c1 - DCT_K5 * c3 + DCT_K3 * c5 - DCT_K1 * c7;
        to[i] = e0 + o0;
        to[8 + i] = e1 + o1;
        to[16 + i] = e2 + o2;
        to[24 + i] = e3 + o3;
        to[32 + i] = e3 - o3;
        to[40 + i] = e2 - o2;
        to[48 + i] = e1 - o1;
        to[56 + i] = e0 - o0;
    }
}

COMET_INLINE int32_t comet_dct_clamp(int32_t v, int32_t least, int32_t greatest) {
    v = v < least ? least : v;
    return v > greatest ? greatest : v;
}

/* values = floor((v + 2^8) / 2^9) inside int16, transposed. */
COMET_INLINE void comet_dct_turn(int32_t *restrict values, int32_t *restrict scratch) {
    for (int i = 0; i < 64; i++)
        scratch[i] = comet_dct_clamp((values[i] + (1 << 8)) >> 9, INT16_MIN, INT16_MAX);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            values[8 * j + i] = scratch[8 * i + j];
}

/* 64 codes to 64 quantised coefficients. */
COMET_INLINE void comet_dct_forward(const int8_t codes[64], const dct_table *table, int8_t coefficients[64]) {
    int32_t a[64], b[64];
    int16_t c[64];
    for (int i = 0; i < 64; i++)
        a[i] = codes[i];
    comet_dct_forward_pass(a, b);
    comet_dct_turn(b, a);
    comet_dct_forward_pass(b, a);
    for (int i = 0; i < 64; i++) /* towards zero by 2^23: the transform's scale, and 8 */
        c[i] = (int16_t)((a[i] + (a[i] >> 31 & ((1 << 23) - 1))) >> 23);
    for (int i = 0; i < 64; i++) { /* and by divisor / 8, which is 1, 2 or 4 */
        int sign = c[i] >> 15, magnitude = (c[i] ^ sign) - sign;
        coefficients[i] = (int8_t)((magnitude * table->factors[i] >> 2 ^ sign) - sign);
    }
}

/* And back: 64 coefficients, any int8, to 64 codes. */
COMET_INLINE void comet_dct_inverse(const int8_t coefficients[64], const dct_table *table, int8_t codes[64]) {
    int32_t a[64], b[64];
    for (int i = 0; i < 64; i++)
        a[i] = coefficients[i] * table->divisors[i];
    comet_dct_inverse_pass(a, b);
    comet_dct_turn(b, a);
    comet_dct_inverse_pass(b, a);
    for (int i = 0; i < 64; i++)
        codes[i] = (int8_t)comet_dct_clamp((a[i] + (1 << 19)) >> 20, INT8_MIN, INT8_MAX);
}

#endif
