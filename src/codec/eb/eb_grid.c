/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/eb/eb_grid.h"

#include <math.h>

enum { TABLES = 2 + 3 * GRID_CLASSES, NUMBER_BYTES = 4 };

static const int classes[GRID_CLASSES] = {0, QUANTISER_WIDE};

size_t comet_eb_grid_bytes(const comet_codec_grid *grid) {
    return grid ? (size_t)grid->channels * TABLES * NUMBER_BYTES : 0;
}

static void *table(void *memory, const comet_codec_grid *grid, int index) {
    return (char *)memory + (size_t)index * (size_t)grid->channels * NUMBER_BYTES;
}

static float slope_of(const comet_codec_grid *grid, int64_t channel) {
    return grid->slope ? grid->slope[channel] : 1.0f;
}

void comet_eb_grid_init(eb_grid *eb, const comet_codec_grid *grid, const quantiser *q, void *memory) {
    *eb = (eb_grid){.grid = grid};
    if (!grid || grid->channels == 0)
        return;
    eb->on_edge = table(memory, grid, 0);
    eb->flip = table(memory, grid, 1);
    for (int64_t i = 0; i < grid->channels; i++) {
        float h = isnan(grid->threshold[i]) ? 0.0f : grid->threshold[i];
        eb->flip[i] = !isnan(grid->threshold[i]) && slope_of(grid, i) < 0.0f;
        eb->on_edge[i] = eb->flip[i] ? h : nextafterf(h, INFINITY);
    }
    for (int c = 0; c < GRID_CLASSES; c++) {
        eb->edge[c] = table(memory, grid, 2 + 3 * c);
        eb->code[c] = table(memory, grid, 3 + 3 * c);
        eb->base[c] = table(memory, grid, 4 + 3 * c);
        for (int64_t i = 0; i < grid->channels; i++) {
            grid_channel g = comet_quantiser_grid(&q->classes[classes[c]], grid->threshold[i], slope_of(grid, i));
            eb->edge[c][i] = g.edge;
            eb->code[c][i] = g.code;
            eb->base[c][i] = g.base;
        }
    }
}

static inline int is_nonfinite_on(const eb_grid *eb, float y, int32_t c) {
    return !isfinite(y) && ((y >= eb->on_edge[c]) ^ (int)eb->flip[c]);
}

/* Values that are not finite count as not there. */
static int count_nonfinite_on(const eb_grid *eb, const tile_channels *channels, const float *values) {
    int on = 0;
    for (int i = 0; i < TILE_VALUES && channels->by_lane; i++)
        on += is_nonfinite_on(eb, values[i], channels->lane[i % TILE_LANES]);
    for (const channel_piece *p = channels->pieces; p < channels->pieces + channels->count; p++)
        for (int i = 0; i < p->count; i++)
            on += is_nonfinite_on(eb, values[p->at + i], p->channel + (channels->consecutive ? i : 0));
    return on;
}

int comet_eb_grid_count_on(const eb_grid *eb, const tile_io *io, const tile_channels *channels, const float *values,
                           int has_nonfinite) {
    int on = io->kernels->count_upper(channels, eb->on_edge, eb->flip, values);
    return has_nonfinite ? on - count_nonfinite_on(eb, channels, values) : on;
}

tile_grid comet_eb_grid_on(const eb_grid *eb, const tile_channels *channels, unsigned class_index) {
    int c = class_index == QUANTISER_WIDE;
    return (tile_grid){.channels = channels, .edge = eb->edge[c], .code = eb->code[c], .base = eb->base[c]};
}
