/* SPDX-License-Identifier: Apache-2.0 */
/* Decompressing and inspecting eb and zvc. Nothing of the body is trusted. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/parallel.h"
#include "codec/eb/eb.h"
#include "codec/eb/eb_grid.h"
#include "codec/eb/exact_tile.h"
#include "codec/eb/tile_table.h"

enum { CHUNK_TILES = 64 };

/* The table and payload of a body, their sizes checked. */
typedef struct tile_source {
    tile_geometry geometry;
    const uint8_t *table, *payload;
    size_t payload_bytes;
} tile_source;

typedef struct decompress_call {
    tile_source source;
    tile_io io;
    quantiser quantiser;
    eb_grid grid;
    size_t value_bytes;
    atomic_int_fast64_t next_chunk;
    atomic_int status;
} decompress_call;

static comet_status source_init(tile_source *s, const stream_header *h, const uint8_t *body, size_t body_bytes) {
    if (!comet_geometry_make(h->count, h->wide_parameter, h->row, &s->geometry))
        return COMET_ERROR_CORRUPT;
    /* 24 bytes for 8 tiles: compared by division, since the number of tiles may be anything */
    if ((uint64_t)comet_div_up(s->geometry.tiles, TABLE_GROUP_TILES) > body_bytes / TABLE_GROUP_BYTES)
        return COMET_ERROR_CORRUPT;
    size_t table_bytes = comet_table_bytes(s->geometry.tiles);
    s->table = body;
    s->payload = body + table_bytes;
    s->payload_bytes = body_bytes - table_bytes;
    return COMET_OK;
}

/* Where a tile lies. `offset` runs along the tiles of a group: it is read anew at the first. 0 if it is outside. */
static int next_tile(const tile_source *s, int64_t tile, uint64_t *offset, const uint8_t **bytes, int *count,
                     int *kind) {
    const uint8_t *entry = comet_table_entry((uint8_t *)s->table, tile);
    if (tile % TABLE_GROUP_TILES == 0)
        *offset = comet_read_u64(entry - 8);
    uint16_t packed = comet_read_u16(entry);
    *count = packed & TABLE_SIZE_MASK;
    *kind = packed >> TABLE_SIZE_BITS;
    if (*offset > s->payload_bytes || s->payload_bytes - *offset < (uint64_t)*count || *kind > TILE_KIND_RAW)
        return 0;
    *bytes = s->payload + *offset;
    *offset += (uint64_t)*count;
    return 1;
}

/* ---- one tile ---- */

/* The tile with enough readable bytes behind it: itself, or a copy. */
static const uint8_t *with_slack(const decompress_call *call, const uint8_t *tile, int bytes, uint8_t *copy) {
    const uint8_t *end = call->source.payload + call->source.payload_bytes;
    if (end - tile - bytes >= TILE_DECODE_SLACK)
        return tile;
    memcpy(copy, tile, (size_t)bytes);
    memset(copy + bytes, 0, TILE_DECODE_SLACK);
    return copy;
}

static int decode_codes(const decompress_call *call, const tile_map *map, const uint8_t *tile, int bytes) {
    _Alignas(64) tile_codes codes;
    _Alignas(64) float values[TILE_VALUES];
    uint8_t copy[TILE_ENCODED_MAX + TILE_DECODE_SLACK];
    tile_channels channels;
    tile_grid grid;
    const tile_kernels *kernels = call->io.kernels;
    unsigned class_index = 0;
    if (bytes > TILE_ENCODED_MAX)
        return 0;
    if (bytes == 0)
        memset(&codes, 0, sizeof codes);
    else if (!kernels->decode(with_slack(call, tile, bytes, copy), bytes, call->io.geometry.channels == 1, &codes,
                              &class_index))
        return 0;
    const quantiser_class *c = &call->quantiser.classes[class_index];
    if (c->step == 0.0f) { /* a class the stream does not have; lossless streams have none, but may have empty tiles */
        if (bytes != 0)
            return 0;
        memset(values, 0, sizeof values);
    } else {
        tile_quantise how = {.c = c};
        if (c->mode == QUANTISE_GRID) {
            comet_tile_channels(&call->io, map, &channels);
            grid = comet_eb_grid_on(&call->grid, &channels, class_index);
            how.grid = &grid;
        }
        kernels->dequantise(&codes, comet_geometry_order(&call->io.geometry), &how, values);
    }
    comet_tile_store(&call->io, map, values);
    return 1;
}

static int decode_exact(const decompress_call *call, const tile_map *map, const uint8_t *tile, int bytes, int kind) {
    _Alignas(64) uint8_t patterns[TILE_EXACT_MAX];
    tile_padding padding;
    comet_tile_padding(&call->io, map, &padding);
    if (!comet_exact_decode(tile, bytes, kind, call->value_bytes, map->valid, &padding, patterns))
        return 0;
    comet_tile_store_patterns(&call->io, map, patterns);
    return 1;
}

static int decode_chunk(const decompress_call *call, int64_t chunk) {
    int64_t first = chunk * CHUNK_TILES, end = comet_min_i64(first + CHUNK_TILES, call->source.geometry.tiles);
    uint64_t offset = 0;
    tile_map maps[2]; /* of this tile and of the next */
    comet_geometry_map(&call->source.geometry, first, &maps[0]);
    for (int64_t t = first; t < end; t++) {
        const uint8_t *tile;
        int bytes, kind;
        const tile_map *map = &maps[(t - first) % 2];
        if (!next_tile(&call->source, t, &offset, &tile, &bytes, &kind))
            return 0;
        if (t + 1 < call->source.geometry.tiles) {
            comet_geometry_map(&call->source.geometry, t + 1, &maps[(t + 1 - first) % 2]);
            comet_tile_prefetch(&call->io, &maps[(t + 1 - first) % 2], 1);
        }
        int ok =
            kind == TILE_KIND_CODES ? decode_codes(call, map, tile, bytes) : decode_exact(call, map, tile, bytes, kind);
        if (!ok)
            return 0;
    }
    return 1;
}

static void decompress_worker(void *context, unsigned index) {
    (void)index;
    decompress_call *call = context;
    int64_t chunks = comet_div_up(call->source.geometry.tiles, CHUNK_TILES), chunk;
    while (atomic_load(&call->status) == COMET_OK && (chunk = atomic_fetch_add(&call->next_chunk, 1)) < chunks)
        if (!decode_chunk(call, chunk))
            atomic_store(&call->status, COMET_ERROR_CORRUPT);
}

/* ---- the call ---- */

static comet_status check_header(const stream_header *h) {
    unsigned modes = h->flags & (STREAM_KEEP_MASK | STREAM_STOCHASTIC | STREAM_GRID);
    if (modes & (modes - 1u)) /* no two of them go together */
        return COMET_ERROR_CORRUPT;
    if ((modes & STREAM_GRID) && h->dtype != COMET_F32)
        return COMET_ERROR_CORRUPT;
    if (h->parameter != 0)
        return COMET_ERROR_CORRUPT;
    if (h->codec == COMET_CODEC_ZVC && (modes || h->bound != 0.0f))
        return COMET_ERROR_CORRUPT;
    /* a bound that the encoder never writes would give steps that the proofs do not cover */
    return comet_quantiser_bound(h->bound, h->dtype) == h->bound ? COMET_OK : COMET_ERROR_CORRUPT;
}

comet_status comet_eb_decompress(const codec_decompress_job *job) {
    decompress_call call = {.status = COMET_OK, .value_bytes = comet_dtype_size(job->header->dtype)};
    comet_status status = check_header(job->header);
    if (status == COMET_OK)
        status = source_init(&call.source, job->header, job->body, job->body_bytes);
    if (status != COMET_OK)
        return status;
    comet_tile_io_init(&call.io, job->tensor, &call.source.geometry, comet_tile_kernels(job->isa), job->grid);
    if (job->header->codec == COMET_CODEC_EB)
        comet_quantiser_init(&call.quantiser, job->header->bound, job->header->dtype, job->header->flags);
    comet_eb_grid_init(&call.grid, job->grid, &call.quantiser, job->workspace);
    comet_parallel(job->threads, comet_threads_count(job->threads), decompress_worker, &call);
    return (comet_status)call.status;
}

comet_status comet_eb_inspect(const stream_header *h, const uint8_t *body, size_t body_bytes, comet_codec_info *info) {
    tile_source source;
    comet_status status = check_header(h);
    if (status == COMET_OK)
        status = source_init(&source, h, body, body_bytes);
    if (status != COMET_OK)
        return status;
    info->tiles = source.geometry.tiles;
    uint64_t offset = 0;
    for (int64_t t = 0; t < source.geometry.tiles; t++) {
        const uint8_t *tile;
        int bytes, kind;
        if (!next_tile(&source, t, &offset, &tile, &bytes, &kind))
            return COMET_ERROR_CORRUPT;
        info->tiles_exact += kind != TILE_KIND_CODES;
        info->tiles_empty += bytes == 0;
        if (kind == TILE_KIND_CODES && bytes) {
            info->tiles_wide += comet_head_is_wide(tile[0]);
            info->tiles_predicted += (tile[0] & HEAD_PREDICTED) != 0;
        }
    }
    return COMET_OK;
}
