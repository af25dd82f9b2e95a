/* SPDX-License-Identifier: Apache-2.0 */
/* The threshold grid of a call: a table of channels for each class, and its spread over the values of a tile. */
#ifndef COMET_CODEC_EB_GRID_H
#define COMET_CODEC_EB_GRID_H

#include "codec/tile_io.h"

enum { GRID_CLASSES = 2 }; /* what is decoded is fp32, which has two classes */

typedef struct eb_grid {
    const comet_codec_grid *grid;
    grid_channel *channels[GRID_CLASSES];
} eb_grid;

size_t comet_eb_grid_bytes(const comet_codec_grid *grid); /* 0 for NULL */
void comet_eb_grid_init(eb_grid *eb, const comet_codec_grid *grid, const quantiser *q, void *memory);

/* One entry for each value of the tile's buffer. */
void comet_eb_grid_spread(const eb_grid *eb, const tile_io *io, const tile_map *map, unsigned class_index,
                          grid_channel values[TILE_VALUES]);

/* How many of the tile's values lie on the side where a ReLU is on (> 0 in a channel without a threshold). */
int comet_eb_grid_count_on(const eb_grid *eb, const tile_io *io, const tile_map *map, const float *values);

#endif
