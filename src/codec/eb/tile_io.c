/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/eb/tile_io.h"

#include <string.h>

#include "base/access.h"
#include "base/bits.h"
#include "base/tensor_check.h"

static const float largest_f16 = 65504.0f;

/* The product of the extents behind the channel dimension. */
static int64_t channel_stride_of(const comet_tensor *t) {
    if (t->layout != COMET_NCHW || t->ndim < 3 || comet_tensor_count(t) == 0)
        return 1;
    return comet_shape_count(t->ndim - 2, t->shape + 2);
}

void comet_tile_io_init(tile_io *io, const comet_tensor *tensor, const tile_geometry *geometry,
                        const tile_kernels *kernels, const comet_codec_grid *grid) {
    *io = (tile_io){.tensor = tensor,
                    .geometry = *geometry,
                    .kernels = kernels,
                    .grid = grid,
                    .contiguous = comet_tensor_is_contiguous(tensor),
                    .channel_stride = channel_stride_of(tensor)};
}

/* A row of a segment: where it lies in the tensor and the buffer, and how much of it is not padding. */
typedef struct segment_row {
    int64_t first;
    int at, count;
} segment_row;

static inline segment_row row_of(const tile_io *io, const tile_map *map, int segment, int k) {
    const tile_segment *s = &map->segments[segment];
    int64_t first = s->first + k * map->stride;
    return (segment_row){first, s->at + k * TILE_ROW_VALUES, comet_segment_valid(&io->geometry, s, first)};
}

static inline void prefetch_lines(const char *from, int64_t bytes, int for_write) {
    enum { LINE = 64 };
    for (int64_t at = 0; at < bytes; at += LINE)
        if (for_write)
            __builtin_prefetch(from + at, 1, 2);
        else
            __builtin_prefetch(from + at, 0, 2);
}

void comet_tile_prefetch(const tile_io *io, const tile_map *map, int for_write) {
    enum { LONG_ROW = 256 }; /* bytes; shorter rows are read nearly in order, and processors see that */
    int64_t size = (int64_t)comet_dtype_size(io->tensor->dtype);
    if (!io->contiguous || map->valid != TILE_VALUES || map->stride * size < LONG_ROW)
        return;
    for (const tile_segment *s = map->segments; s < map->segments + map->count; s++)
        for (int k = 0; k < TILE_ROWS; k++)
            prefetch_lines((const char *)io->tensor->data + (s->first + k * map->stride) * size, s->count * size,
                           for_write);
}

static void load_row(const tile_io *io, segment_row r, float *values) {
    const comet_tensor *t = io->tensor;
    size_t size = comet_dtype_size(t->dtype);
    if (r.count == 0)
        return;
    if (io->contiguous)
        io->kernels->to_f32(t->dtype, (const char *)t->data + r.first * (int64_t)size, r.count, values + r.at);
    else
        comet_access_load(t, r.first, r.count, values + r.at);
}

static void add_piece(tile_channels *channels, int at, int64_t count, int64_t channel) {
    channels->pieces[channels->count++] =
        (channel_piece){.at = (int16_t)at, .count = (int16_t)count, .channel = (int32_t)channel};
}

/* Values of channels c, c + 1, ... around. */
static void add_consecutive(tile_channels *channels, int64_t all, segment_row r, int64_t c) {
    for (int done = 0; done < r.count; c = 0) {
        int64_t count = comet_min_i64(r.count - done, all - c);
        add_piece(channels, r.at + done, count, c);
        done += (int)count;
    }
}

/* A place in the run of a channel: its channel, and how many values are left of the run. */
typedef struct channel_place {
    int64_t channel, left;
} channel_place;

static inline channel_place advance(const tile_io *io, channel_place p, int64_t by) {
    p.left -= by;
    while (p.left <= 0) {
        p.left += io->channel_stride;
        p.channel = p.channel + 1 < io->grid->channels ? p.channel + 1 : 0;
    }
    return p;
}

static void add_runs(const tile_io *io, tile_channels *channels, segment_row r, channel_place p) {
    for (int done = 0; done < r.count;) {
        int64_t count = comet_min_i64(r.count - done, p.left);
        add_piece(channels, r.at + done, count, p.channel);
        done += (int)count;
        p = advance(io, p, count);
    }
}

/* A lane is a channel of a group of columns, the same one in all of its rows. */
static void add_lanes(const tile_io *io, const tile_map *map, tile_channels *channels) {
    for (const tile_segment *s = map->segments; s < map->segments + map->count; s += TILE_LANE_COLUMNS) {
        int32_t c = (int32_t)(s->first % io->grid->channels); /* of the group's first column: s->at is a lane */
        for (int i = 0; i < s->count; i++)
            channels->lane[s->at + i] = c + i;
    }
}

void comet_tile_channels(const tile_io *io, const tile_map *map, tile_channels *channels) {
    int64_t stride = io->channel_stride;
    channels->by_lane = comet_geometry_order(&io->geometry) == TILE_INTERLEAVED && map->valid == TILE_VALUES &&
                        io->geometry.channels == io->grid->channels && stride == 1;
    channels->consecutive = stride == 1;
    channels->count = 0;
    if (channels->by_lane) {
        add_lanes(io, map, channels);
        return;
    }
    for (int s = 0; s < map->count; s++) {
        int64_t first = map->segments[s].first;
        channel_place p = {first / stride % io->grid->channels, stride - first % stride};
        for (int k = 0; k < TILE_ROWS; k++) {
            segment_row r = row_of(io, map, s, k);
            if (channels->consecutive)
                add_consecutive(channels, io->grid->channels, r, r.first % io->grid->channels);
            else
                add_runs(io, channels, r, p);
            p = advance(io, p, channels->consecutive ? 0 : map->stride);
        }
    }
}

void comet_tile_load(const tile_io *io, const tile_map *map, const tile_channels *channels, float *values) {
    int full = map->valid == TILE_VALUES;
    size_t size = comet_dtype_size(io->tensor->dtype);
    if (full && io->contiguous && size == 4) {
        io->kernels->gather(map, io->tensor->data, 4, values);
    } else if (full && io->contiguous && size == 2) {
        _Alignas(64) uint16_t patterns[TILE_VALUES];
        io->kernels->gather(map, io->tensor->data, 2, patterns);
        io->kernels->to_f32(io->tensor->dtype, patterns, TILE_VALUES, values);
    } else {
        if (!full)
            memset(values, 0, TILE_VALUES * sizeof *values);
        for (int s = 0; s < map->count; s++)
            for (int k = 0; k < TILE_ROWS; k++)
                load_row(io, row_of(io, map, s, k), values);
    }
    if (io->grid && (io->grid->scale || io->grid->shift))
        io->kernels->scale(channels, io->grid->scale, io->grid->shift, values);
}

/* Only fp16 and u8 can be decoded out of their range: everything else that large is stored exactly. */
static void clamp(comet_dtype dtype, const float *values, int count, float *clamped) {
    float most = dtype == COMET_F16 ? largest_f16 : 255.0f, least = dtype == COMET_F16 ? -largest_f16 : 0.0f;
    for (int i = 0; i < count; i++)
        clamped[i] = values[i] > most ? most : values[i] < least ? least : values[i];
}

static void store_row(const tile_io *io, segment_row r, const float *values) {
    const comet_tensor *t = io->tensor;
    size_t size = comet_dtype_size(t->dtype);
    float clamped[TILE_ROW_VALUES];
    const float *from = values + r.at;
    if (r.count == 0)
        return;
    if (t->dtype == COMET_F16 || t->dtype == COMET_U8) {
        clamp(t->dtype, from, r.count, clamped);
        from = clamped;
    }
    if (io->contiguous)
        io->kernels->of_f32(t->dtype, from, r.count, (char *)t->data + r.first * (int64_t)size);
    else
        comet_access_store(t, r.first, r.count, from);
}

void comet_tile_store(const tile_io *io, const tile_map *map, const float *values) {
    comet_dtype dtype = io->tensor->dtype;
    int full = map->valid == TILE_VALUES && io->contiguous;
    if (full && dtype == COMET_F32) {
        io->kernels->scatter(map, values, 4, io->tensor->data);
        return;
    }
    if (full && comet_dtype_size(dtype) == 2) {
        _Alignas(64) uint16_t patterns[TILE_VALUES];
        _Alignas(64) float clamped[TILE_VALUES];
        if (dtype == COMET_F16)
            clamp(dtype, values, TILE_VALUES, clamped);
        io->kernels->of_f32(dtype, dtype == COMET_F16 ? clamped : values, TILE_VALUES, patterns);
        io->kernels->scatter(map, patterns, 2, io->tensor->data);
        return;
    }
    for (int s = 0; s < map->count; s++)
        for (int k = 0; k < TILE_ROWS; k++)
            store_row(io, row_of(io, map, s, k), values);
}

/* Copies patterns between a buffer in INTERLEAVED order and one in LINEAR order. */
#define DEFINE_PERMUTE(type)                                                                                           \
    static void permute_##type(const type *from, type *to, int to_linear) {                                            \
        for (int k = 0; k < TILE_VALUES; k += TILE_ROW_VALUES)                                                         \
            for (int l = 0; l < TILE_LANES; l++)                                                                       \
                for (int m = 0; m < TILE_LANE_COLUMNS; m++) {                                                          \
                    int linear = k + l * TILE_LANE_COLUMNS + m, own = k + m * TILE_LANES + l;                          \
                    to[to_linear ? linear : own] = from[to_linear ? own : linear];                                     \
                }                                                                                                      \
    }

DEFINE_PERMUTE(uint32_t)
DEFINE_PERMUTE(uint16_t)
DEFINE_PERMUTE(uint8_t)

static void permute(size_t size, const void *from, void *to, int to_linear) {
    if (size == 4)
        permute_uint32_t(from, to, to_linear);
    else if (size == 2)
        permute_uint16_t(from, to, to_linear);
    else
        permute_uint8_t(from, to, to_linear);
}

static void load_row_patterns(const tile_io *io, segment_row r, size_t size, char *patterns) {
    if (io->contiguous)
        memcpy(patterns + (size_t)r.at * size, (const char *)io->tensor->data + r.first * (int64_t)size,
               (size_t)r.count * size);
    else
        comet_access_load_bits(io->tensor, r.first, r.count, patterns + (size_t)r.at * size);
}

static void store_row_patterns(const tile_io *io, segment_row r, size_t size, const char *patterns) {
    if (io->contiguous)
        memcpy((char *)io->tensor->data + r.first * (int64_t)size, patterns + (size_t)r.at * size,
               (size_t)r.count * size);
    else
        comet_access_store_bits(io->tensor, r.first, r.count, patterns + (size_t)r.at * size);
}

void comet_tile_load_patterns(const tile_io *io, const tile_map *map, const tile_channels *channels, void *patterns) {
    _Alignas(64) float buffer[TILE_VALUES];
    int linear = comet_geometry_order(&io->geometry) == TILE_LINEAR;
    char *to = linear ? patterns : (void *)buffer;
    size_t size = io->grid ? sizeof(float) : comet_dtype_size(io->tensor->dtype);
    if (io->grid || io->tensor->dtype == COMET_F32) {
        comet_tile_load(io, map, channels, (float *)(void *)to);
    } else {
        memset(to, 0, TILE_VALUES * size);
        for (int s = 0; s < map->count; s++)
            for (int k = 0; k < TILE_ROWS; k++)
                load_row_patterns(io, row_of(io, map, s, k), size, to);
    }
    if (!linear)
        permute(size, buffer, patterns, 1);
}

void comet_tile_store_patterns(const tile_io *io, const tile_map *map, const void *patterns) {
    _Alignas(64) float buffer[TILE_VALUES];
    size_t size = comet_dtype_size(io->tensor->dtype);
    const char *from = patterns;
    if (comet_geometry_order(&io->geometry) != TILE_LINEAR) {
        permute(size, patterns, buffer, 0);
        from = (const char *)buffer;
    }
    if (io->tensor->dtype == COMET_F32) {
        comet_tile_store(io, map, (const float *)(const void *)from);
        return;
    }
    for (int s = 0; s < map->count; s++)
        for (int k = 0; k < TILE_ROWS; k++)
            store_row_patterns(io, row_of(io, map, s, k), size, from);
}

void comet_tile_padding(const tile_io *io, const tile_map *map, tile_padding *padding) {
    padding->all_valid = map->valid == TILE_VALUES;
    if (padding->all_valid)
        return;
    tile_order order = comet_geometry_order(&io->geometry);
    memset(padding->valid, 0, sizeof padding->valid);
    for (int s = 0; s < map->count; s++)
        for (int k = 0; k < TILE_ROWS; k++) {
            segment_row r = row_of(io, map, s, k);
            for (int i = 0; i < r.count; i++) {
                int linear = comet_tile_linear_of(order, r.at + i);
                padding->valid[linear / 8] |= (uint8_t)(1u << linear % 8);
            }
        }
}
