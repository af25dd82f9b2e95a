/* SPDX-License-Identifier: Apache-2.0 */
/* A tile unpacked to narrow codes. A part of tile_avx512.c. */
#ifndef COMET_CODEC_CPU_AVX512_UNPACK_H
#define COMET_CODEC_CPU_AVX512_UNPACK_H

#include "codec/eb/cpu/avx512_pack.h"

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
 * Codes from residuals, with the firsts in their places. Returns 0 if a sum leaves a byte, and so carries: the codes
 * are others then. (In row 0 a sum does if the code less the residual does: that spares the code to the left. The last
 * row has no row to carry into.)
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

static int decode(const uint8_t *tile, int bytes, int chained, tile_codes *codes, unsigned *class_index) {
    unsigned head = tile[0];
    if (comet_head_is_wide(head))
        return decode_generic(tile, bytes, chained, codes, class_index);
    _Alignas(64) uint8_t planes[8][PLANE_BYTES];
    column_set set;
    const uint8_t *end = tile + bytes;
    int n = (int)(head & HEAD_PLANES), sign = !!(head & HEAD_SIGN), predicted = !!(head & HEAD_PREDICTED);
    *class_index = comet_head_class(head);
    if (bytes < 1 + n + sign)
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

#endif
