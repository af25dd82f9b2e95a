/* SPDX-License-Identifier: Apache-2.0 */
/* The threshold grid of a call: tables of its channels, and their spread over the values of a tile. */
#ifndef COMET_CODEC_EB_GRID_H
#define COMET_CODEC_EB_GRID_H

#include "codec/eb/tile_io.h"

enum { GRID_CLASSES = 2 }; /* what is decoded is fp32, whose narrow classes have one step, and the wide one */

/* One number for each channel. */
typedef struct eb_grid {
    const comet_codec_grid *grid; /* NULL: there is none */
    float *on_edge; /* the least value above the threshold, or the threshold; of 0 in a channel without one */
    uint32_t *flip; /* 1: a ReLU is on where the value is below on_edge; else it is where it is not */
    float *edge[GRID_CLASSES];
    int32_t *code[GRID_CLASSES];
    float *base[GRID_CLASSES];
} eb_grid;

size_t comet_eb_grid_bytes(const comet_codec_grid *grid); /* 0 for NULL */
void comet_eb_grid_init(eb_grid *eb, const comet_codec_grid *grid, const quantiser *q, void *memory);

/* How many of the tile's finite values lie on the side where a ReLU is on (> 0 in a channel without a threshold). */
int comet_eb_grid_count_on(const eb_grid *eb, const tile_io *io, const tile_channels *channels, const float *values,
                           int has_nonfinite);

/* The grid of a class on a tile. */
tile_grid comet_eb_grid_on(const eb_grid *eb, const tile_channels *channels, unsigned class_index);

#endif
