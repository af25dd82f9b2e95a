/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/eb/geometry.h"

#include "base/bits.h"
#include "base/tensor_check.h"

/* A shorter row leaves neighbours in a lane that are not neighbours in the map; fewer rows leave bands half empty. */
enum { LEAST_ROW = 8, LEAST_ROWS = 16, LEAST_POSITIONS = 32 };

static tile_geometry make(int64_t count, int64_t channels, int64_t row) {
    tile_geometry g = {.channels = channels, .row = row, .positions = count / channels};
    int64_t bands = comet_div_up(g.positions, TILE_ROWS * row);
    g.columns = bands * row;
    g.tiles = comet_div_up(comet_div_up(g.columns, TILE_LANE_COLUMNS) * channels, TILE_LANES);
    return g;
}

tile_geometry comet_geometry_of(comet_layout layout, int32_t ndim, const int64_t *shape) {
    int64_t count = comet_shape_count(ndim, shape);
    if (count == 0)
        return make(0, 1, LEAST_ROW);
    int32_t channel_dims = layout == COMET_NHWC && ndim >= 1 && count / shape[ndim - 1] >= LEAST_POSITIONS;
    if (layout == COMET_NHWC && !channel_dims)
        return make(count, 1, LEAST_ROW);
    int64_t channels = channel_dims ? shape[ndim - 1] : 1;
    int32_t row_dim = ndim - 1 - channel_dims;
    int64_t row = LEAST_ROW;
    if (layout != COMET_FLAT && row_dim >= 0 && shape[row_dim] >= LEAST_ROW &&
        count / channels / shape[row_dim] >= LEAST_ROWS)
        row = shape[row_dim];
    return make(count, channels, row);
}

int comet_geometry_make(int64_t count, uint64_t channels, uint64_t row, tile_geometry *geometry) {
    if (channels < 1 || channels > (uint64_t)COMET_MAX_COUNT || row < LEAST_ROW || row > (uint64_t)COMET_MAX_COUNT)
        return 0;
    if (count % (int64_t)channels != 0 || (row > LEAST_ROW && (int64_t)row > count / (int64_t)channels))
        return 0;
    *geometry = make(count, (int64_t)channels, (int64_t)row);
    return 1;
}

static void map_linear(const tile_geometry *g, int64_t tile, tile_map *map) {
    int64_t start = tile * TILE_ROW_VALUES, band = start / g->row, p = start % g->row;
    int32_t columns = (int32_t)comet_min_i64(TILE_ROW_VALUES, g->columns - start);
    int64_t first = band * TILE_ROWS * g->row + p;
    tile_segment *s = map->segments;
    int32_t at = (int32_t)comet_min_i64(g->row - p, columns);
    *s++ = (tile_segment){.first = first, .at = 0, .count = at};
    first += TILE_ROWS * g->row - p;
    for (; at + g->row <= columns; at += (int32_t)g->row, first += TILE_ROWS * g->row)
        *s++ = (tile_segment){.first = first, .at = at, .count = (int32_t)g->row};
    if (at < columns)
        *s++ = (tile_segment){.first = first, .at = at, .count = columns - at};
    map->columns = columns;
    map->count = (int32_t)(s - map->segments);
}

/*
 * The segments of one group of eight columns that starts at (band, p), for the channels c .. of lanes from `lane` on.
 */
static void map_group(const tile_geometry *g, int64_t column, int64_t c, int lane, int length, tile_map *map) {
    int64_t band = column / g->row, p = column % g->row;
    for (int m = 0; m < TILE_LANE_COLUMNS && column + m < g->columns; m++) {
        map->segments[map->count++] = (tile_segment){
            .first = (band * TILE_ROWS * g->row + p) * g->channels + c, .at = m * TILE_LANES + lane, .count = length};
        map->columns += length;
        if (++p == g->row) {
            p = 0;
            band++;
        }
    }
}

static void map_interleaved(const tile_geometry *g, int64_t tile, tile_map *map) {
    int64_t start = tile * TILE_LANES, group = start / g->channels, channel = start % g->channels;
    for (int lane = 0; lane < TILE_LANES && group * TILE_LANE_COLUMNS < g->columns; group++, channel = 0) {
        int length = (int)comet_min_i64(g->channels - channel, TILE_LANES - lane);
        map_group(g, group * TILE_LANE_COLUMNS, channel, lane, length, map);
        lane += length;
    }
}

static int32_t count_valid(const tile_geometry *g, const tile_map *map) {
    /* Segments ascend, so if the last one's last row is inside, all are. */
    const tile_segment *last = &map->segments[map->count - 1];
    if (map->columns == TILE_ROW_VALUES &&
        comet_segment_valid(g, last, last->first + (TILE_ROWS - 1) * map->stride) == last->count)
        return TILE_VALUES;
    int32_t valid = 0;
    for (int i = 0; i < map->count; i++)
        for (int k = 0; k < TILE_ROWS; k++)
            valid += comet_segment_valid(g, &map->segments[i], map->segments[i].first + k * map->stride);
    return valid;
}

void comet_geometry_map(const tile_geometry *g, int64_t tile, tile_map *map) {
    map->stride = g->row * g->channels;
    map->count = map->columns = 0;
    if (comet_geometry_order(g) == TILE_LINEAR)
        map_linear(g, tile, map);
    else
        map_interleaved(g, tile, map);
    map->valid = count_valid(g, map);
}
