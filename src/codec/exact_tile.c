/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/exact_tile.h"

#include <string.h>

enum { BITMAP_BYTES = TILE_VALUES / 8 };

static inline int is_marked(const uint8_t *bitmap, int i) {
    return bitmap[i / 8] >> i % 8 & 1;
}

/* Marks the patterns that are not 0; returns how many. Padding is 0. */
static int mark_nonzeros(const uint8_t *patterns, size_t size, uint8_t *bitmap) {
    static const uint8_t zero[4];
    int marked = 0;
    memset(bitmap, 0, BITMAP_BYTES);
    for (int i = 0; i < TILE_VALUES; i++) {
        int nonzero = memcmp(patterns + (size_t)i * size, zero, size) != 0;
        bitmap[i / 8] |= (uint8_t)(nonzero << i % 8);
        marked += nonzero;
    }
    return marked;
}

/* Copies the marked patterns side by side; returns what lies behind them. */
static uint8_t *compact(const uint8_t *patterns, size_t size, const uint8_t *bitmap, uint8_t *out) {
    for (int i = 0; i < TILE_VALUES; i++)
        if (is_marked(bitmap, i)) {
            memcpy(out, patterns + (size_t)i * size, size);
            out += size;
        }
    return out;
}

static void spread(const uint8_t *in, size_t size, const uint8_t *bitmap, uint8_t *patterns) {
    memset(patterns, 0, TILE_VALUES * size);
    for (int i = 0; i < TILE_VALUES; i++)
        if (is_marked(bitmap, i)) {
            memcpy(patterns + (size_t)i * size, in, size);
            in += size;
        }
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
        return (int)(compact(patterns, size, bitmap, out + BITMAP_BYTES) - out);
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
            spread(tile, size, padding->valid, patterns);
        return 1;
    }
    if (bytes < BITMAP_BYTES || bytes != BITMAP_BYTES + count_marked(tile) * (int)size)
        return 0;
    spread(tile + BITMAP_BYTES, size, tile, patterns);
    return 1;
}
