/* SPDX-License-Identifier: Apache-2.0 */
/* A tile's values in and out of a tensor of any dtype and strides, with or without a grid's scale and shift. */
#ifndef COMET_CODEC_TILE_IO_H
#define COMET_CODEC_TILE_IO_H

#include "codec/eb/tile.h"

/* The tensor's side of a compress or decompress call; the same for all of its tiles. */
typedef struct tile_io {
    const comet_tensor *tensor;
    tile_geometry geometry;
    const tile_kernels *kernels;
    const comet_codec_grid *grid;
    int contiguous;
    int64_t channel_stride; /* grid: value i of the tensor has channel i / channel_stride mod channels */
} tile_io;

/* LINEAR index of the value at `place` of a buffer in the given order. */
static inline int comet_tile_linear_of(tile_order order, int place) {
    return order == TILE_LINEAR ? place : (place & ~255) | (place & 31) << 3 | (place >> 5 & 7);
}

void comet_tile_io_init(tile_io *io, const comet_tensor *tensor, const tile_geometry *geometry,
                        const tile_kernels *kernels, const comet_codec_grid *grid);

/*
 * Asks for the tile's memory, to be read (or written: for_write) soon. Rows lie too far apart for a processor to guess.
 */
void comet_tile_prefetch(const tile_io *io, const tile_map *map, int for_write);

/* Which channels the tile's values have, for a grid. */
void comet_tile_channels(const tile_io *io, const tile_map *map, tile_channels *channels);

/*
 * The tile's values in the geometry's order, scaled and shifted by a grid (channels: NULL without one). Padding is 0.
 */
void comet_tile_load(const tile_io *io, const tile_map *map, const tile_channels *channels, float *values);

/* Writes the values back, clamped to what the dtype holds; padding is left out. */
void comet_tile_store(const tile_io *io, const tile_map *map, const float *values);

/* Bit patterns of the dtype in LINEAR order; padding is 0. With a grid: of the fp32 values, as loaded. */
void comet_tile_load_patterns(const tile_io *io, const tile_map *map, const tile_channels *channels, void *patterns);
void comet_tile_store_patterns(const tile_io *io, const tile_map *map, const void *patterns);

/* Which values are padding. */
void comet_tile_padding(const tile_io *io, const tile_map *map, tile_padding *padding);

#endif
