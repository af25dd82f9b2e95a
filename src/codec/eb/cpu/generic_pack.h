/* SPDX-License-Identifier: Apache-2.0 */
/* Planes to the bytes of a tile, and back. A part of tile_generic.h. */
#ifndef COMET_CODEC_CPU_GENERIC_PACK_H
#define COMET_CODEC_CPU_GENERIC_PACK_H

#include <string.h>

#include "base/bits.h"
#include "codec/eb/cpu/generic_residuals.h"

/* ---- pack ---- */

/* The planes of a tile that are there, in the order of the format. */
struct plane_list {
    const uint8_t *plane[PLANES];
    int n, sign; /* magnitude planes, and whether the sign's is there */
};
typedef struct plane_list plane_list;

static inline int is_single_bit(const uint8_t *column, uint32_t ballot) {
    unsigned byte = column[__builtin_ctz(ballot)];
    return (ballot & (ballot - 1)) == 0 && (byte & (byte - 1)) == 0;
}

static inline int flag_of(const uint8_t *column, uint32_t ballot) {
    if (ballot == 0)
        return COLUMN_EMPTY;
    if (is_single_bit(column, ballot))
        return COLUMN_SINGLE;
    return __builtin_popcount(ballot) >= FULL_FROM ? COLUMN_FULL : COLUMN_SOME;
}

/* Writes one column's data; returns what lies behind it. */
static inline uint8_t *pack_column(uint8_t *out, const uint8_t *column, uint32_t ballot, int flag) {
    switch (flag) {
    case COLUMN_SOME:
        column_compress(out, column, ballot);
        return out + __builtin_popcount(ballot);
    case COLUMN_FULL:
        memcpy(out, column, COLUMN_BYTES);
        return out + COLUMN_BYTES;
    case COLUMN_SINGLE:
        *out = (uint8_t)(8 * __builtin_ctz(ballot) + __builtin_ctz(column[__builtin_ctz(ballot)]));
        return out + 1;
    default:
        return out;
    }
}

/* Ballots and data of the planes at `out`, flags at `flags`; returns what lies behind. */
static uint8_t *pack_columns(const plane_list *list, uint8_t *flags, uint8_t *out) {
    uint32_t ballots[PLANES][COLUMNS];
    int planes = list->n + list->sign;
    for (int p = 0; p < planes; p++) {
        flags[p] = 0;
        for (int k = 0; k < COLUMNS; k++) {
            const uint8_t *column = list->plane[p] + k * COLUMN_BYTES;
            ballots[p][k] = column_ballot(column);
            int flag = flag_of(column, ballots[p][k]);
            flags[p] |= (uint8_t)(flag << 2 * k);
            if (flag == COLUMN_SOME) {
                comet_write_u32(out, ballots[p][k]);
                out += 4;
            }
        }
    }
    for (int p = 0; p < planes; p++)
        for (int k = 0; k < COLUMNS; k++)
            out = pack_column(out, list->plane[p] + k * COLUMN_BYTES, ballots[p][k], flags[p] >> 2 * k & 3);
    return out;
}

static uint32_t bits_used_bytes(const uint8_t *bytes) {
    uint64_t any = 0;
    for (int i = 0; i < TILE_VALUES; i += 8)
        any |= comet_read_u64(bytes + i);
    any |= any >> 32;
    any |= any >> 16;
    return (uint32_t)(any | any >> 8) & 0xffu;
}

static void split_wide(const uint16_t *f, uint8_t *low, uint8_t *high) {
    for (int i = 0; i < TILE_VALUES; i++) {
        low[i] = (uint8_t)f[i];
        high[i] = (uint8_t)(f[i] >> 8);
    }
}

static int encode_generic(const tile_codes *codes, int chained, unsigned class_index, const tile_padding *padding,
                          uint8_t *out, int *predicted) {
    _Alignas(64) tile_planes planes;
    _Alignas(64) uint8_t low[TILE_VALUES], high[TILE_VALUES];
    int wide = class_index == QUANTISER_WIDE;
    uint32_t used;
    if (wide) {
        uint16_t folded[TILE_VALUES];
        *predicted = residuals_wide(codes->wide, chained, padding, folded);
        split_wide(folded, low, high);
        used = bits_used_bytes(low) | bits_used_bytes(high) << 8;
        planes_of_bytes(low, planes);
        planes_of_bytes(high, planes + 8);
    } else {
        *predicted = residuals_narrow(codes->narrow, chained, padding, low);
        used = bits_used_bytes(low);
        planes_of_bytes(low, planes);
        used = (used & 0x7fu) | (used & 0x80u) << 8;
    }
    if (used == 0 && !*predicted && class_index == 0)
        return 0;
    plane_list list = {.n = (int)comet_bit_width(used & 0x7fffu), .sign = (int)(used >> SIGN_PLANE)};
    if (wide && list.n < HEAD_WIDE_PLANES)
        list.n = HEAD_WIDE_PLANES;
    for (int p = 0; p < list.n; p++)
        list.plane[p] = planes[p];
    if (list.sign)
        list.plane[list.n] = planes[wide ? SIGN_PLANE : 7];
    out[0] = (uint8_t)((unsigned)list.n | (list.sign ? HEAD_SIGN : 0u) | comet_head_of(class_index, *predicted));
    uint8_t *flags = out + 1, *next = flags + list.n + list.sign;
    if (*predicted)
        next = write_firsts(codes, wide, chained, next);
    return (int)(pack_columns(&list, flags, next) - out);
}

#ifndef HAVE_ENCODE
static int encode(const tile_codes *codes, int chained, unsigned class_index, const tile_padding *padding, uint8_t *out,
                  int *predicted) {
    return encode_generic(codes, chained, class_index, padding, out, predicted);
}
#endif

/* ---- unpack ---- */

/* The bytes of data behind the ballots that the flags and ballots ask for. */
static int data_bytes(const uint8_t *flags, int planes, const uint8_t *ballots) {
    int bytes = 0;
    for (int c = 0; c < planes * COLUMNS; c++) {
        switch (flags[c / COLUMNS] >> 2 * (c % COLUMNS) & 3) {
        case COLUMN_SOME:
            bytes += __builtin_popcount(comet_read_u32(ballots));
            ballots += 4;
            break;
        case COLUMN_FULL:
            bytes += COLUMN_BYTES;
            break;
        case COLUMN_SINGLE:
            bytes++;
            break;
        default:
            break;
        }
    }
    return bytes;
}

static int count_ballots(const uint8_t *flags, int planes) {
    int ballots = 0;
    for (int p = 0; p < planes; p++)
        ballots += __builtin_popcount(flags[p] & ~(flags[p] >> 1) & 0x55u);
    return ballots;
}

static inline const uint8_t *unpack_column(uint8_t *column, const uint8_t *in, uint32_t ballot, int flag) {
    switch (flag) {
    case COLUMN_SOME:
        column_expand(column, in, ballot);
        return in + __builtin_popcount(ballot);
    case COLUMN_FULL:
        memcpy(column, in, COLUMN_BYTES);
        return in + COLUMN_BYTES;
    case COLUMN_SINGLE:
        memset(column, 0, COLUMN_BYTES);
        column[*in / 8] = (uint8_t)(1u << *in % 8);
        return in + 1;
    default:
        memset(column, 0, COLUMN_BYTES);
        return in;
    }
}

/* The columns of the planes, all sizes checked before. */
static void unpack_columns(const uint8_t *flags, int planes, const uint8_t *ballots, const uint8_t *data,
                           uint8_t *const *plane) {
    for (int p = 0; p < planes; p++)
        for (int k = 0; k < COLUMNS; k++) {
            int flag = flags[p] >> 2 * k & 3;
            uint32_t ballot = flag == COLUMN_SOME ? comet_read_u32(ballots) : 0;
            ballots += flag == COLUMN_SOME ? 4 : 0;
            data = unpack_column(plane[p] + k * COLUMN_BYTES, data, ballot, flag);
        }
}

static void codes_of_planes(const tile_planes planes, int wide, const int16_t *firsts, int chained, tile_codes *codes) {
    _Alignas(64) uint8_t low[TILE_VALUES], high[TILE_VALUES];
    bytes_of_planes(planes, low);
    if (!wide) {
        codes_of_residuals_narrow(low, firsts, chained, codes->narrow);
        return;
    }
    uint16_t folded[TILE_VALUES];
    bytes_of_planes(planes + 8, high);
    for (int i = 0; i < TILE_VALUES; i++)
        folded[i] = (uint16_t)(low[i] | high[i] << 8);
    codes_of_residuals_wide(folded, firsts, chained, codes->wide);
}

static int decode_generic(const uint8_t *tile, int bytes, int chained, tile_codes *codes, unsigned *class_index) {
    _Alignas(64) tile_planes planes;
    const uint8_t *end = tile + bytes;
    unsigned head = tile[0];
    int n = (int)(head & HEAD_PLANES), sign = !!(head & HEAD_SIGN), predicted = !!(head & HEAD_PREDICTED);
    int wide = comet_head_is_wide(head);
    *class_index = comet_head_class(head);
    if (*class_index == QUANTISER_CLASSES || bytes < 1 + n + sign)
        return 0;
    const uint8_t *flags = tile + 1, *next = flags + n + sign;
    int16_t firsts[TILE_LANES];
    if (predicted && !(next = read_firsts(next, end, wide, chained, firsts)))
        return 0;
    int ballots = 4 * count_ballots(flags, n + sign);
    if (end - next < ballots || end - next - ballots != data_bytes(flags, n + sign, next))
        return 0;
    int sign_at = wide ? SIGN_PLANE : 7;
    uint8_t *list[PLANES];
    for (int p = 0; p < n; p++)
        list[p] = planes[p];
    for (int p = n; p < sign_at + !sign; p++)
        memset(planes[p], 0, PLANE_BYTES);
    if (sign)
        list[n] = planes[sign_at];
    unpack_columns(flags, n + sign, next, next + ballots, list);
    codes_of_planes((const uint8_t(*)[PLANE_BYTES])planes, wide, predicted ? firsts : NULL, chained, codes);
    return 1;
}

#ifndef HAVE_DECODE
static int decode(const uint8_t *tile, int bytes, int chained, tile_codes *codes, unsigned *class_index) {
    return decode_generic(tile, bytes, chained, codes, class_index);
}
#endif

#endif
