/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressing with eb and zvc: tiles in chunks, chunks over threads, the payload in order.
 *
 * A worker encodes a chunk into a buffer of its own and then waits for its turn to learn where it goes: chunks take
 * about the same time, so that the wait is short, and the stream comes out the same whatever the number of threads. A
 * single worker writes to its place at once.
 */
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/parallel.h"
#include "codec/codec_impl.h"
#include "codec/eb/eb.h"
#include "codec/eb/eb_grid.h"
#include "codec/eb/eb_stats.h"
#include "codec/eb/exact_tile.h"
#include "codec/eb/tile_table.h"

enum { TILE_OUT_BYTES = TILE_EXACT_MAX + TILE_ENCODE_SLACK };
enum { CHUNK_TILES = 64, CHUNK_BYTES = CHUNK_TILES * TILE_EXACT_MAX };

typedef struct worker_state {
    _Alignas(64) stats_part stats;
    int64_t tiles_exact, tiles_wide;
    uint8_t *chunk; /* CHUNK_BYTES, NULL for a single worker */
} worker_state;

typedef struct compress_call {
    const codec_compress_job *job;
    tile_io io;
    quantiser quantiser;
    eb_grid grid;
    size_t value_bytes; /* of the decoded dtype */
    uint8_t *table, *payload;
    size_t payload_capacity;
    tile_sums *sums;
    worker_state *workers;
    unsigned worker_count;
    atomic_int_fast64_t next_chunk;
    atomic_int_fast64_t turn; /* the chunk whose place is the end of the payload so far */
    size_t payload_used;      /* guarded by turn */
    atomic_int status;
} compress_call;

/* A place to write tiles to, with its capacity. */
typedef struct tile_sink {
    uint8_t *bytes;
    size_t used, capacity;
} tile_sink;

static int64_t chunk_count(const compress_call *call) {
    return comet_div_up(call->io.geometry.tiles, CHUNK_TILES);
}

/* ---- one tile ---- */

static unsigned class_of(const quantiser *q, uint32_t magnitude) {
    unsigned c = 0;
    while (c < QUANTISER_CLASSES && (q->classes[c].reach == 0 || magnitude > q->classes[c].reach))
        c++;
    return c;
}

static void clear_padding(const tile_padding *padding, int wide, tile_codes *codes) {
    for (int i = 0; i < TILE_VALUES; i++)
        if (!(padding->valid[i / 8] >> i % 8 & 1)) {
            if (wide)
                codes->wide[i] = 0;
            else
                codes->narrow[i] = 0;
        }
}

static int encode_codes(const compress_call *call, int64_t tile, const tile_channels *channels,
                        const tile_padding *padding, const float *values, unsigned class_index, uint8_t *out) {
    _Alignas(64) tile_codes codes;
    tile_grid grid;
    const quantiser_class *c = &call->quantiser.classes[class_index];
    tile_quantise how = {.c = c, .seed = call->job->params->seed, .tile = (uint64_t)tile};
    if (c->mode == QUANTISE_GRID) {
        grid = comet_eb_grid_on(&call->grid, channels, class_index);
        how.grid = &grid;
    }
    const tile_kernels *kernels = call->io.kernels;
    kernels->quantise(values, comet_geometry_order(&call->io.geometry), &how, &codes);
    if (!padding->all_valid)
        clear_padding(padding, c->wide, &codes);
    int predicted;
    return kernels->encode(&codes, call->io.geometry.channels == 1, class_index, padding, out, &predicted);
}

/* Loads a tile and looks at it. `channels` is filled if there is a grid. */
static void survey_tile(const compress_call *call, const tile_map *map, float *values, tile_padding *padding,
                        tile_channels *channels, tile_survey *survey) {
    int has_grid = call->io.grid != NULL;
    if (has_grid)
        comet_tile_channels(&call->io, map, channels);
    comet_tile_load(&call->io, map, channels, values);
    comet_tile_padding(&call->io, map, padding);
    call->io.kernels->survey(values, comet_geometry_order(&call->io.geometry), comet_survey_order(&call->io.geometry),
                             padding, survey);
    if (call->grid.grid) /* not there yet while the bound is looked for */
        survey->positive = comet_eb_grid_count_on(&call->grid, &call->io, channels, values, survey->nonfinite > 0);
}

/* The tile's bytes at `out` (TILE_OUT_BYTES); returns how many. */
static int encode_tile(compress_call *call, worker_state *worker, int64_t tile, const tile_map *map, uint8_t *out,
                       int *kind) {
    _Alignas(64) float values[TILE_VALUES];
    tile_padding padding;
    tile_channels channels;
    tile_survey survey;
    survey_tile(call, map, values, &padding, &channels, &survey);
    comet_stats_part_add_tile(&worker->stats, &survey);
    call->sums[tile] = (tile_sums){survey.sum_abs, survey.sum_squares};

    unsigned class_index = class_of(&call->quantiser, survey.magnitude);
    if (class_index < QUANTISER_CLASSES) {
        int bytes = encode_codes(call, tile, &channels, &padding, values, class_index, out);
        if (bytes < map->valid * (int)call->value_bytes || bytes == 0) {
            worker->tiles_wide += call->quantiser.classes[class_index].wide;
            *kind = TILE_KIND_CODES;
            return bytes;
        }
    }
    comet_tile_load_patterns(&call->io, map, &channels, values);
    int bytes = comet_exact_encode(values, call->value_bytes, map->valid, &padding, !call->grid.grid, out, kind);
    worker->tiles_exact += *kind != TILE_KIND_CODES;
    return bytes;
}

/* ---- chunks ---- */

/* Encodes the chunk's tiles into the sink and fills the table, with offsets from the sink's start. */
static comet_status encode_chunk(compress_call *call, worker_state *worker, int64_t chunk, tile_sink *sink) {
    int64_t first = chunk * CHUNK_TILES, end = comet_min_i64(first + CHUNK_TILES, call->io.geometry.tiles);
    tile_map maps[2]; /* of this tile and of the next */
    comet_geometry_map(&call->io.geometry, first, &maps[0]);
    for (int64_t tile = first; tile < end; tile++) {
        uint8_t scratch[TILE_OUT_BYTES], *entry = comet_table_entry(call->table, tile);
        int has_room = sink->capacity - sink->used >= TILE_OUT_BYTES;
        uint8_t *out = has_room ? sink->bytes + sink->used : scratch;
        if (tile + 1 < call->io.geometry.tiles) {
            comet_geometry_map(&call->io.geometry, tile + 1, &maps[(tile + 1 - first) % 2]);
            comet_tile_prefetch(&call->io, &maps[(tile + 1 - first) % 2], 0);
        }
        int kind, bytes = encode_tile(call, worker, tile, &maps[(tile - first) % 2], out, &kind);
        if (sink->capacity - sink->used < (size_t)bytes)
            return COMET_ERROR_CAPACITY;
        if (!has_room)
            memcpy(sink->bytes + sink->used, scratch, (size_t)bytes);
        if (tile % TABLE_GROUP_TILES == 0)
            comet_write_u64(entry - 8, sink->used);
        comet_write_u16(entry, comet_table_pack(bytes, kind));
        sink->used += (size_t)bytes;
    }
    return COMET_OK;
}

static void move_offsets(compress_call *call, int64_t chunk, size_t by) {
    int64_t first = chunk * CHUNK_TILES, end = comet_min_i64(first + CHUNK_TILES, call->io.geometry.tiles);
    for (int64_t tile = first; tile < end; tile += TABLE_GROUP_TILES) {
        uint8_t *offset = comet_table_entry(call->table, tile) - 8;
        comet_write_u64(offset, comet_read_u64(offset) + by);
    }
}

/* Waits until all chunks before this one have their place, then takes `bytes` behind them. Returns where. */
static size_t take_place(compress_call *call, int64_t chunk, size_t bytes) {
    for (unsigned spins = 0; atomic_load_explicit(&call->turn, memory_order_acquire) != chunk; spins++)
        if (spins > 1000)
            sched_yield();
    size_t place = call->payload_used;
    call->payload_used += bytes;
    atomic_store_explicit(&call->turn, chunk + 1, memory_order_release);
    return place;
}

static comet_status run_chunk(compress_call *call, worker_state *worker, int64_t chunk) {
    tile_sink sink = {worker->chunk, 0, CHUNK_BYTES};
    if (!worker->chunk) /* a single worker: nobody else moves payload_used */
        sink = (tile_sink){call->payload + call->payload_used, 0, call->payload_capacity - call->payload_used};
    comet_status status = encode_chunk(call, worker, chunk, &sink);
    size_t place = take_place(call, chunk, sink.used);
    if (status != COMET_OK)
        return status;
    if (worker->chunk) {
        if (place > call->payload_capacity || call->payload_capacity - place < sink.used)
            return COMET_ERROR_CAPACITY;
        memcpy(call->payload + place, sink.bytes, sink.used);
    }
    move_offsets(call, chunk, place);
    return COMET_OK;
}

static void compress_worker(void *context, unsigned index) {
    compress_call *call = context;
    int64_t chunks = chunk_count(call), chunk;
    while ((chunk = atomic_fetch_add(&call->next_chunk, 1)) < chunks) {
        comet_status status = run_chunk(call, &call->workers[index], chunk);
        if (status != COMET_OK)
            atomic_store(&call->status, (int)status);
    }
}

/* ---- the relative bound: a pass for the statistics alone ---- */

static void collect_tile(compress_call *call, worker_state *worker, int64_t tile) {
    _Alignas(64) float values[TILE_VALUES];
    tile_map map;
    tile_padding padding;
    tile_channels channels;
    tile_survey survey;
    comet_geometry_map(&call->io.geometry, tile, &map);
    survey_tile(call, &map, values, &padding, &channels, &survey);
    comet_stats_part_add_tile(&worker->stats, &survey);
    call->sums[tile] = (tile_sums){survey.sum_abs, survey.sum_squares};
}

static void survey_worker(void *context, unsigned index) {
    compress_call *call = context;
    int64_t tiles = call->io.geometry.tiles, chunks = chunk_count(call), chunk;
    while ((chunk = atomic_fetch_add(&call->next_chunk, 1)) < chunks)
        for (int64_t t = chunk * CHUNK_TILES; t < tiles && t < (chunk + 1) * CHUNK_TILES; t++)
            collect_tile(call, &call->workers[index], t);
}

static void workers_reset(compress_call *call) {
    for (unsigned i = 0; i < call->worker_count; i++)
        comet_stats_part_init(&call->workers[i].stats);
    atomic_store(&call->next_chunk, 0);
}

static void collect_stats(const compress_call *call, comet_codec_stats *stats) {
    stats_part all;
    comet_stats_part_init(&all);
    for (unsigned i = 0; i < call->worker_count; i++)
        comet_stats_part_merge(&all, &call->workers[i].stats);
    comet_stats_finish(&all, call->sums, call->io.geometry.tiles, call->job->header->count, stats);
}

static double absolute_bound(compress_call *call) {
    const comet_codec_params *params = call->job->params;
    if (params->codec == COMET_CODEC_ZVC)
        return 0.0;
    if (params->bound_kind == COMET_BOUND_ABSOLUTE)
        return params->bound;
    comet_codec_stats stats;
    workers_reset(call);
    comet_parallel(call->job->threads, call->worker_count, survey_worker, call);
    collect_stats(call, &stats);
    return params->bound * comet_stats_rms(&stats);
}

/* ---- the call ---- */

static unsigned worker_count_of(int64_t tiles, unsigned threads) {
    int64_t chunks = comet_div_up(tiles, CHUNK_TILES);
    return chunks < threads ? (chunks ? (unsigned)chunks : 1) : threads;
}

typedef struct workspace_layout {
    size_t sums, workers, grid, chunks, bytes;
} workspace_layout;

static workspace_layout layout_of(int64_t tiles, const comet_codec_grid *grid, unsigned workers) {
    workspace_layout w = {.sums = 0};
    w.workers = comet_align_up((size_t)tiles * sizeof(tile_sums), 64);
    w.grid = w.workers + workers * sizeof(worker_state);
    w.chunks = comet_align_up(w.grid + comet_eb_grid_bytes(grid), 64);
    w.bytes = w.chunks + (workers > 1 ? workers * (size_t)CHUNK_BYTES : 0);
    return w;
}

size_t comet_eb_workspace(const comet_tensor *tensor, const comet_codec_params *params, unsigned threads) {
    tile_geometry g = comet_geometry_of(tensor->layout, tensor->ndim, tensor->shape);
    return layout_of(g.tiles, params->grid, worker_count_of(g.tiles, threads)).bytes;
}

static unsigned flags_of(const comet_codec_params *p) {
    if (p->codec == COMET_CODEC_ZVC)
        return 0;
    return (p->keep_mask ? STREAM_KEEP_MASK : 0u) | (p->rounding == COMET_ROUND_STOCHASTIC ? STREAM_STOCHASTIC : 0u) |
           (p->grid ? STREAM_GRID : 0u);
}

static void call_init(compress_call *call, const codec_compress_job *job) {
    const comet_tensor *t = job->tensor;
    tile_geometry geometry = comet_geometry_of(t->layout, t->ndim, t->shape);
    unsigned workers = worker_count_of(geometry.tiles, comet_threads_count(job->threads));
    const comet_codec_grid *grid = job->params->codec == COMET_CODEC_EB ? job->params->grid : NULL;
    workspace_layout w = layout_of(geometry.tiles, grid, workers);
    *call = (compress_call){.job = job,
                            .sums = (tile_sums *)(void *)(job->workspace + w.sums),
                            .workers = (worker_state *)(void *)(job->workspace + w.workers),
                            .worker_count = workers,
                            .table = job->body,
                            .status = COMET_OK};
    comet_tile_io_init(&call->io, t, &geometry, comet_tile_kernels(job->isa), grid);
    for (unsigned i = 0; i < workers; i++)
        call->workers[i] =
            (worker_state){.chunk = workers > 1 ? job->workspace + w.chunks + i * (size_t)CHUNK_BYTES : NULL};
    job->header->flags = (uint16_t)(job->header->flags | flags_of(job->params));
    job->header->dtype = grid ? COMET_F32 : t->dtype;
    job->header->wide_parameter = (uint64_t)geometry.channels;
    job->header->row = (uint64_t)geometry.row;
    job->header->bound = comet_quantiser_bound(absolute_bound(call), job->header->dtype);
    call->value_bytes = comet_dtype_size(job->header->dtype);
    if (job->params->codec == COMET_CODEC_EB)
        comet_quantiser_init(&call->quantiser, job->header->bound, job->header->dtype, job->header->flags);
    comet_eb_grid_init(&call->grid, grid, &call->quantiser, job->workspace + w.grid);
}

comet_status comet_eb_compress(const codec_compress_job *job) {
    compress_call call;
    call_init(&call, job);
    int64_t tiles = call.io.geometry.tiles;
    size_t table_bytes = comet_table_bytes(tiles);
    if (job->body_capacity < table_bytes)
        return COMET_ERROR_CAPACITY;
    if (tiles) /* entries behind the last tile are 0 */
        memset(call.table + table_bytes - TABLE_GROUP_BYTES, 0, TABLE_GROUP_BYTES);
    call.payload = job->body + table_bytes;
    call.payload_capacity = job->body_capacity - table_bytes;
    workers_reset(&call);
    comet_parallel(job->threads, call.worker_count, compress_worker, &call);
    if (call.status != COMET_OK)
        return (comet_status)call.status;
    job->header->body_bytes = table_bytes + call.payload_used;
    job->result->tiles = tiles;
    for (unsigned i = 0; i < call.worker_count; i++) {
        job->result->tiles_exact += call.workers[i].tiles_exact;
        job->result->tiles_wide += call.workers[i].tiles_wide;
    }
    collect_stats(&call, &job->result->stats);
    return COMET_OK;
}
