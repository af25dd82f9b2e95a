/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/eb/exact_tile.h"

#include <string.h>

enum { BITMAP_BYTES = TILE_VALUES / 8 };

/*
 * For each size of a pattern: mark those that are not 0 and count them, copy the marked ones side by side, spread them
 * out again. No branch depends on the data; both copies may touch one pattern behind the last.
 */
#define DEFINE_PATTERNS(type)                                                                                          \
    static int mark_##type(const type *patterns, uint8_t *bitmap) {                                                    \
        int marked = 0;                                                                                                \
        for (int i = 0; i < BITMAP_BYTES; i++) {                                                                       \
            unsigned bits = 0;                                                                                         \
            for (int j = 0; j < 8; j++)                                                                                \
                bits |= (unsigned)(patterns[8 * i + j] != 0) << j;                                                     \
            bitmap[i] = (uint8_t)bits;                                                                                 \
            marked += __builtin_popcount(bits);                                                                        \
        }                                                                                                              \
        return marked;                                                                                                 \
    }                                                                                                                  \
    static void compact_##type(const type *patterns, const uint8_t *bitmap, uint8_t *out) {                            \
        for (int i = 0; i < TILE_VALUES; i++) {                                                                        \
            memcpy(out, &patterns[i], sizeof(type));                                                                   \
            out += (size_t)(bitmap[i / 8] >> i % 8 & 1) * sizeof(type);                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void spread_##type(const uint8_t *in, const uint8_t *bitmap, type *patterns) {                              \
        for (int i = 0; i < TILE_VALUES; i++) {                                                                        \
            unsigned bit = bitmap[i / 8] >> i % 8 & 1;                                                                 \
            type pattern;                                                                                              \
            memcpy(&pattern, in, sizeof(type));                                                                        \
            patterns[i] = (type)(pattern & (type)-bit);                                                                \
            in += bit * sizeof(type);                                                                                  \
        }                                                                                                              \
    }

DEFINE_PATTERNS(uint32_t)
DEFINE_PATTERNS(uint16_t)
DEFINE_PATTERNS(uint8_t)

static int mark_nonzeros(const void *patterns, size_t size, uint8_t *bitmap) {
    return size == 4   ? mark_uint32_t(patterns, bitmap)
           : size == 2 ? mark_uint16_t(patterns, bitmap)
                       : mark_uint8_t(patterns, bitmap);
}

static void compact(const void *patterns, size_t size, const uint8_t *bitmap, uint8_t *out) {
    if (size == 4)
        compact_uint32_t(patterns, bitmap, out);
    else if (size == 2)
        compact_uint16_t(patterns, bitmap, out);
    else
        compact_uint8_t(patterns, bitmap, out);
}

/* `bytes` of patterns at `in`; copied first, since spreading reads one pattern more. */
static void spread(const uint8_t *in, int bytes, size_t size, const uint8_t *bitmap, void *patterns) {
    uint8_t copy[TILE_EXACT_MAX + 4];
    memcpy(copy, in, (size_t)bytes);
    memset(copy + bytes, 0, 4);
    if (size == 4)
        spread_uint32_t(copy, bitmap, patterns);
    else if (size == 2)
        spread_uint16_t(copy, bitmap, patterns);
    else
        spread_uint8_t(copy, bitmap, patterns);
}

int comet_exact_encode(const void *patterns, size_t size, int valid, const tile_padding *padding, int zeros_are_empty,
                       uint8_t *out, int *kind) {
    uint8_t bitmap[BITMAP_BYTES];
    int marked = mark_nonzeros(patterns, size, bitmap), raw = valid * (int)size;
    if (marked == 0 && zeros_are_empty) {
        *kind = TILE_KIND_CODES;
        return 0;
    }
    if (BITMAP_BYTES + marked * (int)size < raw) {
        *kind = TILE_KIND_SPARSE;
        memcpy(out, bitmap, BITMAP_BYTES);
        compact(patterns, size, bitmap, out + BITMAP_BYTES);
        return BITMAP_BYTES + marked * (int)size;
    }
    *kind = TILE_KIND_RAW;
    if (padding->all_valid)
        memcpy(out, patterns, (size_t)raw);
    else
        compact(patterns, size, padding->valid, out);
    return raw;
}

static int count_marked(const uint8_t *bitmap) {
    int marked = 0;
    for (int i = 0; i < BITMAP_BYTES; i++)
        marked += __builtin_popcount(bitmap[i]);
    return marked;
}

int comet_exact_decode(const uint8_t *tile, int bytes, int kind, size_t size, int valid, const tile_padding *padding,
                       void *patterns) {
    if (kind == TILE_KIND_RAW) {
        if (bytes != valid * (int)size)
            return 0;
        if (padding->all_valid)
            memcpy(patterns, tile, (size_t)bytes);
        else
            spread(tile, bytes, size, padding->valid, patterns);
        return 1;
    }
    if (bytes < BITMAP_BYTES || bytes != BITMAP_BYTES + count_marked(tile) * (int)size)
        return 0;
    spread(tile + BITMAP_BYTES, bytes - BITMAP_BYTES, size, tile, patterns);
    return 1;
}
