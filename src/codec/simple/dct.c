/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dct: JPEG-ACT (Evans, Liu, Aamodt, ISCA 2020) as a baseline: 8-bit codes, an 8 x 8 cosine transform, a coarse
 * division and one bit for each zero (docs/codecs.md, section 5). Maps smaller than 8 x 8 keep the 8-bit codes.
 *
 * Body with a transform:  f32 maximum[channels] | u64 offset[chunks] | u64 mask[blocks] | i8 value[]
 * Body without:           f32 maximum[channels] | i8 code[count]
 */
#include <stdatomic.h>

#include "base/fail.h"
#include "codec/simple/dct_block.h"
#include "codec/simple/dct_codes.h"

enum {
    SIDE = 8,
    CHUNK = 128,              /* blocks that share an entry in the table of offsets */
    CHUNK_BYTES = CHUNK * 64, /* of values, at most */
    BATCH = 8,                /* chunks a worker packs before the workers' results are put together */
    STRIP = 16                /* neighbouring blocks of a chunk handled at a time */
};

typedef struct dct_shape {
    codec_maps maps;
    int64_t count;
    int transform;
    int64_t rows, width, block_cols, blocks, chunks;
    size_t offsets_at, masks_at, rest_at; /* rest: values or codes */
} dct_shape;

typedef struct dct_work {
    codec_view view;
    dct_shape s;
    dct_table table;
    uint8_t *to;         /* compressing: the body */
    const uint8_t *from; /* decompressing: the body */
    size_t value_bytes;  /* decompressing: behind the masks */
    unsigned workers;
    int64_t first_chunk; /* compressing: of the batch */
    uint8_t *buffers;    /* compressing: BATCH * CHUNK_BYTES for each worker, */
    size_t *sizes;       /* and what it has there, */
    size_t *places;      /* and where among the values it belongs */
    comet_isa isa;
    atomic_int corrupt;
} dct_work;

/* Blocks b .. b + count - 1 of block row `row` and block column `col`: side by side, or (NHWC) of `count` channels. */
typedef struct dct_strip {
    int64_t row, col, channel, count;
} dct_strip;

static comet_status dct_check(const comet_tensor *tensor, const comet_codec_params *params) {
    (void)tensor;
    COMET_REQUIRE(params->dct_table == 0 || params->dct_table == 1, "params->dct_table is %d: it must be 0 or 1",
                  (int)params->dct_table);
    return COMET_OK;
}

static dct_shape shape_of(const comet_tensor *tensor) {
    dct_shape s = {.count = comet_tensor_count(tensor)};
    if (s.count == 0)
        return s; /* the body is empty; its channels could be more than fit anywhere */
    s.maps = comet_maps_of(tensor);
    s.transform = s.maps.has_maps && s.maps.height >= SIDE && s.maps.width >= SIDE;
    if (s.transform) {
        s.width = s.maps.width;
        s.rows = s.maps.outer * s.maps.height;
        s.block_cols = comet_div_up(s.width, SIDE);
        s.blocks = comet_div_up(s.rows, SIDE) * s.block_cols * s.maps.inner;
        s.chunks = comet_div_up(s.blocks, CHUNK);
    }
    s.offsets_at = (size_t)s.maps.channels * 4;
    s.masks_at = s.offsets_at + (size_t)s.chunks * 8;
    s.rest_at = s.masks_at + (size_t)s.blocks * 8;
    return s;
}

static size_t bound_of(const dct_shape *s) {
    return s->rest_at + (size_t)(s->transform ? s->blocks * 64 : s->count);
}

static size_t dct_bound(const comet_tensor *tensor, const comet_codec_params *params) {
    (void)params;
    dct_shape s = shape_of(tensor);
    return bound_of(&s);
}

/* The tables of maxima and, when these are done, the packing use the same memory. */
static size_t dct_workspace(const comet_tensor *tensor, const comet_codec_params *params, unsigned threads) {
    (void)params;
    dct_shape s = shape_of(tensor);
    if (s.count == 0)
        return 0;
    size_t maxima = comet_dct_maxima_workspace(&s.maps, s.count, threads);
    size_t packing = s.transform ? threads * (BATCH * CHUNK_BYTES + 2 * sizeof(size_t)) : 0;
    return maxima > packing ? maxima : packing;
}

/* ---- strips: from the tensor to blocks of codes, and back ---- */

COMET_INLINE dct_strip strip_at(const dct_shape *s, int64_t block, int64_t end) {
    int64_t place = block / s->maps.inner;
    dct_strip t = {.row = place / s->block_cols, .col = place % s->block_cols, .channel = block % s->maps.inner};
    int64_t left = s->maps.inner == 1 ? s->block_cols - t.col : s->maps.inner - t.channel;
    t.count = comet_min_i64(comet_min_i64(left, end - block), STRIP);
    return t;
}

COMET_INLINE float maximum_of(const uint8_t *body, int64_t channel) {
    return comet_float_of(comet_read_u32(body + 4 * channel));
}

/* NCHW: the maximum of the channel that a row of values belongs to. */
COMET_INLINE float row_maximum(const dct_work *w, const uint8_t *body, int64_t row) {
    return maximum_of(body, row * w->s.width / w->s.maps.channel_run % w->s.maps.channels);
}

/* Rows and columns behind the edge repeat the last ones. */
COMET_INLINE void load_rows(const dct_work *w, const dct_strip *t, int8_t blocks[STRIP][64]) {
    float buffer[STRIP * SIDE];
    int8_t line[STRIP * SIDE];
    int64_t x = t->col * SIDE, n = comet_min_i64(t->count * SIDE, w->s.width - x);
    for (int64_t y = 0; y < SIDE; y++) {
        int64_t row = comet_min_i64(t->row * SIDE + y, w->s.rows - 1);
        const float *values = comet_view_read(&w->view, row * w->s.width + x, n, buffer);
        comet_dct_codes(values, n, row_maximum(w, w->to, row), line);
        memset(line + n, line[n - 1], (size_t)(t->count * SIDE - n));
        for (int64_t b = 0; b < t->count; b++)
            memcpy(&blocks[b][y * SIDE], line + b * SIDE, SIDE);
    }
}

COMET_INLINE void store_rows(const dct_work *w, const dct_strip *t, int8_t blocks[STRIP][64]) {
    float buffer[STRIP * SIDE];
    int8_t line[STRIP * SIDE];
    int64_t x = t->col * SIDE, n = comet_min_i64(t->count * SIDE, w->s.width - x);
    for (int64_t y = 0; y < SIDE && t->row * SIDE + y < w->s.rows; y++) {
        int64_t row = t->row * SIDE + y, first = row * w->s.width + x;
        for (int64_t b = 0; b < t->count; b++)
            memcpy(line + b * SIDE, &blocks[b][y * SIDE], SIDE);
        float *values = comet_view_target(&w->view, first, buffer);
        comet_dct_values(line, n, row_maximum(w, w->from, row), values);
        comet_view_write(&w->view, first, n, values);
    }
}

COMET_INLINE int64_t pixel_at(const dct_work *w, const dct_strip *t, int64_t row, int64_t x) {
    return (row * w->s.width + x) * w->s.maps.inner + t->channel;
}

COMET_INLINE void load_pixels(const dct_work *w, const dct_strip *t, int8_t blocks[STRIP][64]) {
    float buffer[STRIP];
    int8_t line[STRIP];
    for (int64_t i = 0; i < 64; i++) {
        int64_t row = comet_min_i64(t->row * SIDE + i / SIDE, w->s.rows - 1);
        int64_t x = comet_min_i64(t->col * SIDE + i % SIDE, w->s.width - 1);
        const float *values = comet_view_read(&w->view, pixel_at(w, t, row, x), t->count, buffer);
        comet_dct_codes_across(values, t->count, w->to + 4 * t->channel, line);
        for (int64_t b = 0; b < t->count; b++)
            blocks[b][i] = line[b];
    }
}

COMET_INLINE void store_pixels(const dct_work *w, const dct_strip *t, int8_t blocks[STRIP][64]) {
    float buffer[STRIP];
    int8_t line[STRIP];
    for (int64_t i = 0; i < 64; i++) {
        int64_t row = t->row * SIDE + i / SIDE, x = t->col * SIDE + i % SIDE;
        if (row >= w->s.rows || x >= w->s.width)
            continue;
        for (int64_t b = 0; b < t->count; b++)
            line[b] = blocks[b][i];
        float *values = comet_view_target(&w->view, pixel_at(w, t, row, x), buffer);
        comet_dct_values_across(line, t->count, w->from + 4 * t->channel, values);
        comet_view_write(&w->view, pixel_at(w, t, row, x), t->count, values);
    }
}

/* ---- zero-value packing of a block ---- */

/* Bit i is set where byte i is not 0, eight bytes at a time: see pack_flags in mask.c for the product. */
COMET_INLINE uint64_t mask_of(const int8_t coefficients[64]) {
    uint64_t mask = 0, low = 0x7f7f7f7f7f7f7f7fu;
    for (int i = 0; i < 8; i++) {
        uint64_t v = comet_read_u64(coefficients + 8 * i);
        uint64_t nonzero = (((v & low) + low) | v) >> 7 & 0x0101010101010101u;
        mask |= (nonzero * 0x0102040810204080u >> 56) << 8 * i;
    }
    return mask;
}

COMET_INLINE uint8_t *pack_block(uint64_t mask, const int8_t coefficients[64], uint8_t *to) {
    for (; mask; mask &= mask - 1)
        *to++ = (uint8_t)coefficients[__builtin_ctzll(mask)];
    return to;
}

COMET_INLINE const uint8_t *unpack_block(uint64_t mask, const uint8_t *from, int8_t coefficients[64]) {
    memset(coefficients, 0, 64);
    for (; mask; mask &= mask - 1)
        coefficients[__builtin_ctzll(mask)] = (int8_t)*from++;
    return from;
}

/* ---- compressing ---- */

COMET_INLINE uint8_t *compress_chunk(const dct_work *w, int64_t chunk, uint8_t *to) {
    int8_t blocks[STRIP][64], coefficients[64];
    int64_t end = comet_min_i64((chunk + 1) * CHUNK, w->s.blocks);
    dct_strip t;
    for (int64_t block = chunk * CHUNK; block < end; block += t.count) {
        t = strip_at(&w->s, block, end);
        if (w->s.maps.inner == 1)
            load_rows(w, &t, blocks);
        else
            load_pixels(w, &t, blocks);
        for (int64_t b = 0; b < t.count; b++) {
            comet_dct_forward(blocks[b], &w->table, coefficients);
            uint64_t mask = mask_of(coefficients);
            comet_write_u64(w->to + w->s.masks_at + 8 * (block + b), mask);
            to = pack_block(mask, coefficients, to);
        }
    }
    return to;
}

/* A worker's chunks of the batch. */
COMET_INLINE void batch_share(const dct_work *w, unsigned worker, int64_t *first, int64_t *end) {
    *first = comet_min_i64(w->first_chunk + (int64_t)worker * BATCH, w->s.chunks);
    *end = comet_min_i64(*first + BATCH, w->s.chunks);
}

/* Packs into the worker's buffer; the offsets count from its start until place_share moves them. */
COMET_INLINE void pack_share(const dct_work *w, unsigned worker) {
    uint8_t *buffer = w->buffers + (size_t)worker * BATCH * CHUNK_BYTES, *to = buffer;
    int64_t chunk, end;
    for (batch_share(w, worker, &chunk, &end); chunk < end; chunk++) {
        comet_write_u64(w->to + w->s.offsets_at + 8 * chunk, (uint64_t)(to - buffer));
        to = compress_chunk(w, chunk, to);
    }
    w->sizes[worker] = (size_t)(to - buffer);
}

static void place_share(void *context, unsigned worker) {
    const dct_work *w = context;
    int64_t chunk, end;
    for (batch_share(w, worker, &chunk, &end); chunk < end; chunk++) {
        uint8_t *offset = w->to + w->s.offsets_at + 8 * chunk;
        comet_write_u64(offset, comet_read_u64(offset) + w->places[worker]);
    }
    memcpy(w->to + w->s.rest_at + w->places[worker], w->buffers + (size_t)worker * BATCH * CHUNK_BYTES,
           w->sizes[worker]);
}

COMET_INLINE void codes_share(const dct_work *w, unsigned worker) {
    float buffer[DCT_RUN];
    int8_t codes[DCT_RUN];
    int64_t first, end;
    comet_share(w->s.count, w->workers, worker, &first, &end);
    while (first < end) {
        dct_run run = comet_dct_run(&w->s.maps, first, end);
        const float *x = comet_view_read(&w->view, first, run.count, buffer);
        if (run.across)
            comet_dct_codes_across(x, run.count, w->to + 4 * run.channel, codes);
        else
            comet_dct_codes(x, run.count, maximum_of(w->to, run.channel), codes);
        memcpy(w->to + w->s.rest_at + first, codes, (size_t)run.count);
        first += run.count;
    }
}

/* ---- decompressing ---- */

COMET_INLINE void values_share(const dct_work *w, unsigned worker) {
    float buffer[DCT_RUN];
    int8_t codes[DCT_RUN];
    int64_t first, end;
    comet_share(w->s.count, w->workers, worker, &first, &end);
    while (first < end) {
        dct_run run = comet_dct_run(&w->s.maps, first, end);
        memcpy(codes, w->from + w->s.rest_at + first, (size_t)run.count);
        float *x = comet_view_target(&w->view, first, buffer);
        if (run.across)
            comet_dct_values_across(codes, run.count, w->from + 4 * run.channel, x);
        else
            comet_dct_values(codes, run.count, maximum_of(w->from, run.channel), x);
        comet_view_write(&w->view, first, run.count, x);
        first += run.count;
    }
}

/* The chunk's values, or NULL if the table, the masks and the size of the body do not agree on them. */
COMET_INLINE const uint8_t *chunk_values(const dct_work *w, int64_t chunk) {
    const uint8_t *offsets = w->from + w->s.offsets_at;
    uint64_t at = comet_read_u64(offsets + 8 * chunk), bytes = 0, next = w->value_bytes;
    if (chunk + 1 < w->s.chunks)
        next = comet_read_u64(offsets + 8 * (chunk + 1));
    int64_t end = comet_min_i64((chunk + 1) * CHUNK, w->s.blocks);
    for (int64_t block = chunk * CHUNK; block < end; block++)
        bytes += (uint64_t)__builtin_popcountll(comet_read_u64(w->from + w->s.masks_at + 8 * block));
    int valid = at <= w->value_bytes && bytes <= w->value_bytes - at && at + bytes == next && (chunk > 0 || at == 0);
    return valid ? w->from + w->s.rest_at + at : NULL;
}

COMET_INLINE int decompress_chunk(const dct_work *w, int64_t chunk) {
    int8_t blocks[STRIP][64], coefficients[64];
    int64_t end = comet_min_i64((chunk + 1) * CHUNK, w->s.blocks);
    const uint8_t *from = chunk_values(w, chunk);
    if (!from)
        return 0;
    dct_strip t;
    for (int64_t block = chunk * CHUNK; block < end; block += t.count) {
        t = strip_at(&w->s, block, end);
        for (int64_t b = 0; b < t.count; b++) {
            uint64_t mask = comet_read_u64(w->from + w->s.masks_at + 8 * (block + b));
            from = unpack_block(mask, from, coefficients);
            comet_dct_inverse(coefficients, &w->table, blocks[b]);
        }
        if (w->s.maps.inner == 1)
            store_rows(w, &t, blocks);
        else
            store_pixels(w, &t, blocks);
    }
    return 1;
}

COMET_INLINE void unpack_share(dct_work *w, unsigned worker) {
    int64_t chunk, end;
    for (comet_share(w->s.chunks, w->workers, worker, &chunk, &end); chunk < end; chunk++)
        if (!decompress_chunk(w, chunk))
            atomic_store(&w->corrupt, 1);
}

/* ---- the codec ---- */

COMET_INLINE void run_share(dct_work *w, unsigned worker) {
    if (w->to && w->s.transform)
        pack_share(w, worker);
    else if (w->to)
        codes_share(w, worker);
    else if (w->s.transform)
        unpack_share(w, worker);
    else
        values_share(w, worker);
}

static void run_any(void *context, unsigned worker) {
    run_share(context, worker);
}

COMET_FOR_AVX2 static void run_avx2(void *context, unsigned worker) {
    run_share(context, worker);
}

static void run(dct_work *w, comet_threads *threads) {
    comet_parallel(threads, w->workers, w->isa >= COMET_ISA_AVX2 ? run_avx2 : run_any, w);
}

/* Batch by batch: the workers pack side by side, then their results move to where the ones before end. */
static comet_status compress_blocks(dct_work *w, const codec_compress_job *job) {
    unsigned threads = comet_threads_count(job->threads);
    size_t done = w->s.rest_at;
    w->sizes = (size_t *)(void *)job->workspace;
    w->places = w->sizes + threads;
    w->buffers = job->workspace + 2 * threads * sizeof(size_t);
    w->workers = comet_workers(job->threads, comet_div_up(w->s.chunks, BATCH));
    for (w->first_chunk = 0; w->first_chunk < w->s.chunks; w->first_chunk += (int64_t)w->workers * BATCH) {
        run(w, job->threads);
        for (unsigned i = 0; i < w->workers; i++) {
            w->places[i] = done - w->s.rest_at;
            done += w->sizes[i];
        }
        if (done > job->body_capacity)
            return COMET_ERROR_CAPACITY;
        comet_parallel(job->threads, w->workers, place_share, w);
    }
    job->header->body_bytes = done;
    return COMET_OK;
}

static comet_status dct_compress(const codec_compress_job *job) {
    job->header->parameter = (uint32_t)job->params->dct_table;
    job->header->body_bytes = 0;
    dct_work w = {.view = comet_view_of(job->tensor), .s = shape_of(job->tensor), .to = job->body, .isa = job->isa};
    if (w.s.count == 0)
        return COMET_OK;
    if (job->body_capacity < w.s.rest_at + (size_t)(w.s.transform ? 0 : w.s.count))
        return COMET_ERROR_CAPACITY;
    comet_dct_table(job->header->parameter, &w.table);
    comet_dct_maxima(&w.view, &w.s.maps, w.s.count, job->threads, job->isa, job->workspace, job->body);
    if (w.s.transform)
        return compress_blocks(&w, job);
    w.workers = comet_workers(job->threads, comet_div_up(w.s.count, DCT_RUN));
    run(&w, job->threads);
    job->header->body_bytes = bound_of(&w.s);
    return COMET_OK;
}

static int maxima_are_valid(const dct_shape *s, const uint8_t *body) {
    for (int64_t c = 0; c < s->maps.channels; c++)
        if (comet_read_u32(body + 4 * c) >= 0x7f800000u) /* negative, infinite or NaN */
            return 0;
    return 1;
}

static comet_status dct_check_stream(const stream_header *h, const comet_tensor *tensor) {
    dct_shape s = shape_of(tensor);
    int fits = comet_header_is_plain(h, 0) && !h->wide_parameter && h->parameter <= 1 && h->body_bytes >= s.rest_at &&
               (s.transform || h->body_bytes == bound_of(&s));
    return fits ? COMET_OK : COMET_ERROR_CORRUPT;
}

static comet_status dct_decompress(const codec_decompress_job *job) {
    const stream_header *h = job->header;
    dct_work w = {.view = comet_view_of(job->tensor), .s = shape_of(job->tensor), .from = job->body, .isa = job->isa};
    if (w.s.count == 0)
        return COMET_OK;
    if (!maxima_are_valid(&w.s, job->body))
        return COMET_ERROR_CORRUPT;
    w.value_bytes = job->body_bytes - w.s.rest_at;
    comet_dct_table(h->parameter, &w.table);
    w.workers = comet_workers(job->threads, w.s.transform ? w.s.chunks : comet_div_up(w.s.count, DCT_RUN));
    run(&w, job->threads);
    return atomic_load(&w.corrupt) ? COMET_ERROR_CORRUPT : COMET_OK;
}

const codec_vtable comet_codec_dct = {
    .name = "dct",
    .check = dct_check,
    .body_max_bytes = dct_bound,
    .workspace = dct_workspace,
    .compress = dct_compress,
    .check_stream = dct_check_stream,
    .decompress = dct_decompress,
};
