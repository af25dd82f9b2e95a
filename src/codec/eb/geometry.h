/* SPDX-License-Identifier: Apache-2.0 */
/* How a tensor is cut into tiles: docs/format.md, section 2. */
#ifndef COMET_CODEC_GEOMETRY_H
#define COMET_CODEC_GEOMETRY_H

#include <stdint.h>

#include "comet/tensor.h"

enum { TILE_VALUES = 1024, TILE_ROWS = 4, TILE_ROW_VALUES = 256, TILE_LANES = 32, TILE_LANE_COLUMNS = 8 };

typedef struct tile_geometry {
    int64_t channels;  /* C: values side by side that belong to different channels */
    int64_t row;       /* S: positions in a row */
    int64_t positions; /* count / C */
    int64_t columns;   /* bands * S: the values of P */
    int64_t tiles;
} tile_geometry;

/* The geometry the encoder uses for a shape. */
tile_geometry comet_geometry_of(comet_layout layout, int32_t ndim, const int64_t *shape);

/* The geometry for a given C and S; 0 if they are not valid for `count` values. */
int comet_geometry_make(int64_t count, uint64_t channels, uint64_t row, tile_geometry *geometry);

/*
 * The order of values in a tile's buffer. Both have rows of 256 values, one for each k. LINEAR is the order of the
 * format, 8 l + m inside a row; it is the order of memory for C = 1. INTERLEAVED is 32 m + l, the order of memory for
 * C > 1.
 */
typedef enum tile_order { TILE_LINEAR, TILE_INTERLEAVED } tile_order;

static inline tile_order comet_geometry_order(const tile_geometry *g) {
    return g->channels == 1 ? TILE_LINEAR : TILE_INTERLEAVED;
}

/*
 * Values that lie side by side in the tensor and in the tile's buffer, once in each of the four rows: those of row k
 * start at index first + k * stride of the tensor (the map's stride) and at place at + 256 k of the buffer.
 */
typedef struct tile_segment {
    int64_t first;
    int32_t at, count;
} tile_segment;

enum { TILE_MAX_SEGMENTS = TILE_ROW_VALUES };

typedef struct tile_map {
    int64_t stride;
    int32_t count;   /* of segments */
    int32_t columns; /* in them: 256 but at the end of the tensor */
    int32_t valid;   /* values that are not padding */
    tile_segment segments[TILE_MAX_SEGMENTS];
} tile_map;

/*
 * Where the values of tile t lie. Segments hold columns inside the tensor; rows may still be padding if valid < 1,024.
 */
void comet_geometry_map(const tile_geometry *geometry, int64_t tile, tile_map *map);

/* How many values of a segment's row k are not padding. */
static inline int comet_segment_valid(const tile_geometry *g, const tile_segment *segment, int64_t first) {
    int64_t left = g->positions * g->channels - first;
    return left >= segment->count ? segment->count : left > 0 ? (int)left : 0;
}

#endif
