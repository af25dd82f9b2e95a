/* SPDX-License-Identifier: Apache-2.0 */
/* The table of tiles behind the header: docs/format.md, 'Table'. */
#ifndef COMET_CODEC_TILE_TABLE_H
#define COMET_CODEC_TILE_TABLE_H

#include <stddef.h>

#include "base/bits.h"

enum {
    TABLE_GROUP_TILES = 8,
    TABLE_GROUP_BYTES = 24,
    TABLE_SIZE_BITS = 13,
    TABLE_SIZE_MASK = (1 << TABLE_SIZE_BITS) - 1
};

static inline size_t comet_table_bytes(int64_t tiles) {
    return (size_t)comet_div_up(tiles, TABLE_GROUP_TILES) * TABLE_GROUP_BYTES;
}

static inline uint8_t *comet_table_entry(uint8_t *table, int64_t tile) {
    return table + tile / TABLE_GROUP_TILES * TABLE_GROUP_BYTES + 8 + tile % TABLE_GROUP_TILES * 2;
}

static inline uint16_t comet_table_pack(int bytes, int kind) {
    return (uint16_t)(bytes | kind << TABLE_SIZE_BITS);
}

#endif
