/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/eb/eb_grid.h"

#include <math.h>

enum { TABLES = 3 + 2 * GRID_CLASSES, NUMBER_BYTES = 4 };

size_t comet_eb_grid_bytes(const comet_codec_grid *grid) {
    return grid ? (size_t)grid->channels * TABLES * NUMBER_BYTES : 0;
}

static void *table(void *memory, const comet_codec_grid *grid, int index) {
    return (char *)memory + (size_t)index * (size_t)grid->channels * NUMBER_BYTES;
}

void comet_eb_grid_init(eb_grid *eb, const comet_codec_grid *grid, const quantiser *q, void *memory) {
    *eb = (eb_grid){.grid = grid};
    if (!grid || grid->channels == 0)
        return;
    eb->edge = table(memory, grid, 0);
    eb->on_edge = table(memory, grid, 1);
    eb->flip = table(memory, grid, 2);
    for (int c = 0; c < GRID_CLASSES; c++) {
        eb->remainder[c] = table(memory, grid, 3 + 2 * c);
        eb->code[c] = table(memory, grid, 4 + 2 * c);
        for (int64_t i = 0; i < grid->channels; i++) {
            float slope = grid->slope ? grid->slope[i] : 1.0f;
            grid_channel g = comet_quantiser_grid(&q->classes[c], grid->threshold[i], slope);
            int has_threshold = !isnan(grid->threshold[i]);
            eb->edge[i] = g.edge;
            eb->on_edge[i] = has_threshold ? g.edge : 0.0f;
            eb->flip[i] = has_threshold && slope < 0.0f;
            eb->remainder[c][i] = g.remainder;
            eb->code[c][i] = g.code;
        }
    }
}

static inline int is_nonfinite_on(const eb_grid *eb, float y, int32_t c) {
    return !isfinite(y) && ((y > eb->on_edge[c]) ^ (int)eb->flip[c]);
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
    return (tile_grid){
        .channels = channels, .edge = eb->edge, .remainder = eb->remainder[class_index], .code = eb->code[class_index]};
}
