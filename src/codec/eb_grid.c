/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/eb_grid.h"

#include <math.h>

size_t comet_eb_grid_bytes(const comet_codec_grid *grid) {
    return grid ? (size_t)grid->channels * GRID_CLASSES * sizeof(grid_channel) : 0;
}

void comet_eb_grid_init(eb_grid *eb, const comet_codec_grid *grid, const quantiser *q, void *memory) {
    eb->grid = grid;
    if (!grid || grid->channels == 0)
        return;
    for (int c = 0; c < GRID_CLASSES; c++) {
        eb->channels[c] = (grid_channel *)memory + (size_t)c * (size_t)grid->channels;
        for (int64_t i = 0; i < grid->channels; i++)
            eb->channels[c][i] =
                comet_quantiser_grid(&q->classes[c], grid->threshold[i], grid->slope ? grid->slope[i] : 1.0f);
    }
}

void comet_eb_grid_spread(const eb_grid *eb, const tile_io *io, const tile_map *map, unsigned class_index,
                          grid_channel values[TILE_VALUES]) {
    int32_t channels[TILE_VALUES];
    comet_tile_channels(io, map, channels);
    for (int i = 0; i < TILE_VALUES; i++)
        values[i] = eb->channels[class_index][channels[i]];
}

static int is_on(float y, float threshold, float slope) {
    if (isnan(threshold))
        return y > 0.0f;
    return slope < 0.0f ? y < threshold : y > threshold;
}

int comet_eb_grid_count_on(const eb_grid *eb, const tile_io *io, const tile_map *map, const float *values) {
    int32_t channels[TILE_VALUES];
    tile_padding padding;
    comet_tile_channels(io, map, channels);
    comet_tile_padding(io, map, &padding);
    tile_order order = comet_geometry_order(&io->geometry);
    int on = 0;
    for (int i = 0; i < TILE_VALUES; i++) {
        int linear = comet_tile_linear_of(order, i);
        int valid = padding.all_valid || (padding.valid[linear / 8] >> linear % 8 & 1);
        float slope = eb->grid->slope ? eb->grid->slope[channels[i]] : 1.0f;
        on += valid && isfinite(values[i]) && is_on(values[i], eb->grid->threshold[channels[i]], slope);
    }
    return on;
}
