/* SPDX-License-Identifier: Apache-2.0 */
/* pool: k x k averages of each map; decoded by repeating them (docs/codecs.md, section 3). */
#include "base/fail.h"
#include "codec/simple/maps.h"
#include "codec/simple/runs.h"

enum { MAX_BLOCK = 64, SEGMENT = 4096 }; /* SEGMENT: values of a row handled at a time, at least MAX_BLOCK */

typedef struct pool_shape {
    codec_maps maps;
    int64_t block, height, width; /* of the pooled maps */
    int64_t rows;                 /* outer * height */
    size_t bytes;
} pool_shape;

typedef struct pool_work {
    codec_view view;
    pool_shape s;
    uint8_t *to;         /* compressing */
    const uint8_t *from; /* decompressing */
    unsigned workers;
    comet_isa isa;
} pool_work;

/*
 * A part of one pooled row: its pixels x .. x_end - 1 and values c .. c + channels - 1 of each. In the input that is
 * one run a row if the part holds whole pixels, else one run a pixel (`step` pixels a run; x_end is then x + 1).
 */
typedef struct pool_part {
    int64_t x, x_end;       /* pooled pixels */
    int64_t in_x, in_end;   /* pixels of the input, */
    int64_t step;           /* in runs of so many */
    int64_t in_y, in_y_end; /* and its rows */
    int64_t map_first, row; /* the first value of the map; the pooled row */
    int64_t c, channels;
} pool_part;

static comet_status pool_check(const comet_tensor *tensor, const comet_codec_params *params) {
    COMET_REQUIRE(params->pool_block >= 1 && params->pool_block <= MAX_BLOCK,
                  "params->pool_block is %d: it must be 1 to %d", (int)params->pool_block, MAX_BLOCK);
    if (!comet_maps_exist(tensor->layout, tensor->ndim))
        return comet_fail(COMET_ERROR_UNSUPPORTED,
                          "tensor has no maps to pool: its layout must be NCHW or NHWC, with enough dimensions");
    return COMET_OK;
}

static pool_shape shape_of(const comet_tensor *tensor, int64_t block) {
    pool_shape s = {.block = block};
    if (comet_tensor_count(tensor) == 0)
        return s;
    s.maps = comet_maps_of(tensor);
    s.height = comet_div_up(s.maps.height, block);
    s.width = comet_div_up(s.maps.width, block);
    s.rows = s.maps.outer * s.height;
    s.bytes = (size_t)(s.rows * s.width * s.maps.inner) * comet_dtype_size(tensor->dtype);
    return s;
}

static size_t pool_bound(const comet_tensor *tensor, const comet_codec_params *params) {
    return shape_of(tensor, params->pool_block).bytes;
}

/* Where the part's values of input row y, pixel x start. */
static inline int64_t input_at(const pool_work *w, const pool_part *p, int64_t y, int64_t x) {
    return p->map_first + (y * w->s.maps.width + x) * w->s.maps.inner + p->c;
}

static inline size_t pooled_at(const pool_work *w, const pool_part *p, int64_t x) {
    return (size_t)((p->row * w->s.width + x) * w->s.maps.inner + p->c) * w->view.size;
}

/* Adds one row of `blocks` whole blocks of k single values; the first row of a block starts its sum. */
COMET_INLINE void add_blocks(const float *in, int64_t k, int64_t blocks, int start, float *sums) {
    for (int64_t b = 0; b < blocks; b++) {
        float sum = start ? in[b * k] : sums[b] + in[b * k];
        for (int64_t i = 1; i < k; i++)
            sum += in[b * k + i];
        sums[b] = sum;
    }
}

/* The same with the block's size known to the compiler where it is common. */
COMET_INLINE void add_row(const float *in, int64_t k, int64_t blocks, int start, float *sums) {
    switch (k) {
    case 2:
        add_blocks(in, 2, blocks, start, sums);
        break;
    case 4:
        add_blocks(in, 4, blocks, start, sums);
        break;
    case 8:
        add_blocks(in, 8, blocks, start, sums);
        break;
    default:
        add_blocks(in, k, blocks, start, sums);
    }
}

COMET_INLINE void add_pixel(const float *in, int64_t channels, int start, float *sums) {
    if (start)
        memcpy(sums, in, (size_t)channels * sizeof *sums);
    else
        for (int64_t c = 0; c < channels; c++)
            sums[c] += in[c];
}

/* Adds a run of input pixels x .. x + pixels - 1 of one row. */
COMET_INLINE void add_run(const pool_work *w, const pool_part *p, int64_t x, int64_t pixels, int first_row,
                          const float *in, float *sums) {
    int64_t k = w->s.block;
    if (w->s.maps.inner == 1) { /* then the run is the part's whole row */
        int64_t blocks = pixels / k, rest = pixels % k;
        add_row(in, k, blocks, first_row, sums);
        if (rest)
            add_blocks(in + blocks * k, rest, 1, first_row, sums + blocks);
        return;
    }
    sums += (x / k - p->x) * p->channels;
    int64_t phase = x % k;
    for (int64_t i = 0; i < pixels; i++, in += p->channels) {
        add_pixel(in, p->channels, first_row && phase == 0, sums);
        if (++phase == k) {
            phase = 0;
            sums += p->channels;
        }
    }
}

/* Sums to averages. A NaN becomes the one pattern: which NaN an addition gives differs between machines. */
COMET_INLINE void divide(float *sums, int64_t n, float count) {
    for (int64_t i = 0; i < n; i++) {
        float mean = sums[i] / count;
        sums[i] = mean == mean ? mean : comet_float_of(0x7fc00000u);
    }
}

COMET_INLINE void compress_part(const pool_work *w, const pool_part *p) {
    float in[SEGMENT], sums[SEGMENT];
    for (int64_t y = p->in_y; y < p->in_y_end; y++)
        for (int64_t x = p->in_x; x < p->in_end; x += p->step) {
            const float *run = comet_view_read(&w->view, input_at(w, p, y, x), p->step * p->channels, in);
            add_run(w, p, x, p->step, y == p->in_y, run, sums);
        }
    int64_t rows = p->in_y_end - p->in_y, last = p->x_end - p->x - 1;
    int64_t last_width = p->in_end - (p->x + last) * w->s.block;
    divide(sums, last * p->channels, (float)(rows * w->s.block));
    divide(sums + last * p->channels, p->channels, (float)(rows * last_width));
    comet_convert_of_f32(w->view.tensor->dtype, sums, (last + 1) * p->channels, in); /* body may be unaligned */
    memcpy(w->to + pooled_at(w, p, p->x), in, (size_t)((last + 1) * p->channels) * w->view.size);
}

/* Each of `n` patterns k times. Through memcpy: neither side need be aligned. */
#define REPEAT(name, type)                                                                                             \
    COMET_INLINE void name(const uint8_t *from, int64_t n, int64_t k, char *to) {                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type v;                                                                                                    \
            memcpy(&v, from + i * (int64_t)sizeof v, sizeof v);                                                        \
            for (int64_t j = 0; j < k; j++)                                                                            \
                memcpy(to + (i * k + j) * (int64_t)sizeof v, &v, sizeof v);                                            \
        }                                                                                                              \
    }

REPEAT(repeat_8, uint8_t)
REPEAT(repeat_16, uint16_t)
REPEAT(repeat_32, uint32_t)

COMET_INLINE void repeat(size_t size, const uint8_t *from, int64_t n, int64_t k, char *to) {
    if (size == 4)
        repeat_32(from, n, k, to);
    else if (size == 2)
        repeat_16(from, n, k, to);
    else
        repeat_8(from, n, k, to);
}

COMET_INLINE void repeat_single(size_t size, const uint8_t *from, int64_t n, int64_t k, char *to) {
    switch (k) {
    case 2:
        repeat(size, from, n, 2, to);
        break;
    case 4:
        repeat(size, from, n, 4, to);
        break;
    case 8:
        repeat(size, from, n, 8, to);
        break;
    default:
        repeat(size, from, n, k, to);
    }
}

/* The patterns of input pixels x .. x + pixels - 1. */
COMET_INLINE void expand_run(const pool_work *w, const pool_part *p, int64_t x, int64_t pixels, char *to) {
    int64_t k = w->s.block, size = (int64_t)w->view.size;
    if (w->s.maps.inner == 1) {
        const uint8_t *from = w->from + pooled_at(w, p, x / k);
        int64_t blocks = pixels / k;
        repeat_single(w->view.size, from, blocks, k, to);
        if (pixels % k)
            repeat(w->view.size, from + blocks * size, 1, pixels % k, to + blocks * k * size);
        return;
    }
    const uint8_t *from = w->from + pooled_at(w, p, x / k);
    size_t bytes = (size_t)(p->channels * size);
    int64_t phase = x % k;
    for (int64_t i = 0; i < pixels; i++, to += bytes) {
        memcpy(to, from, bytes);
        if (++phase == k) {
            phase = 0;
            from += w->s.maps.inner * size;
        }
    }
}

/* A part's rows are all the same: expanded once, then copied. */
COMET_INLINE void decompress_part(const pool_work *w, const pool_part *p) {
    float buffer[SEGMENT];
    int64_t count = p->step * p->channels;
    for (int64_t x = p->in_x; x < p->in_end; x += p->step) {
        int64_t first = input_at(w, p, p->in_y, x);
        char *run = w->view.direct ? comet_view_at(&w->view, first) : (char *)buffer;
        expand_run(w, p, x, p->step, run);
        for (int64_t y = p->in_y + !!w->view.direct; y < p->in_y_end; y++) {
            int64_t at = input_at(w, p, y, x);
            if (w->view.direct)
                memcpy(comet_view_at(&w->view, at), run, (size_t)count * w->view.size);
            else
                comet_access_store_bits(w->view.tensor, at, count, run);
        }
    }
}

/* Does pooled row `row` in parts, none of which has more than SEGMENT values of input a row. */
COMET_INLINE void run_row(const pool_work *w, int64_t row) {
    const codec_maps *m = &w->s.maps;
    int64_t k = w->s.block, y = row % w->s.height, map = row / w->s.height;
    int whole = m->inner <= SEGMENT / k;
    int64_t pixels = whole ? SEGMENT / (k * m->inner) : 1, channels = whole ? m->inner : SEGMENT;
    pool_part p = {.in_y = y * k, .in_y_end = comet_min_i64(y * k + k, m->height), .row = row};
    p.map_first = map * m->height * m->width * m->inner;
    for (p.x = 0; p.x < w->s.width; p.x = p.x_end) {
        p.x_end = comet_min_i64(p.x + pixels, w->s.width);
        p.in_x = p.x * k;
        p.in_end = comet_min_i64(p.x_end * k, m->width);
        p.step = whole ? p.in_end - p.in_x : 1;
        for (p.c = 0; p.c < m->inner; p.c += p.channels) {
            p.channels = comet_min_i64(channels, m->inner - p.c);
            if (w->to)
                compress_part(w, &p);
            else
                decompress_part(w, &p);
        }
    }
}

COMET_INLINE void run_share(const pool_work *w, unsigned worker) {
    int64_t row, end;
    for (comet_share(w->s.rows, w->workers, worker, &row, &end); row < end; row++)
        run_row(w, row);
}

static void run_any(void *context, unsigned worker) {
    run_share(context, worker);
}

COMET_FOR_AVX2 static void run_avx2(void *context, unsigned worker) {
    run_share(context, worker);
}

static void pool_run(pool_work *w, comet_threads *threads) {
    w->workers = comet_workers(threads, w->s.rows);
    comet_parallel(threads, w->workers, w->isa >= COMET_ISA_AVX2 ? run_avx2 : run_any, w);
}

static comet_status pool_compress(const codec_compress_job *job) {
    pool_work w = {.view = comet_view_of(job->tensor),
                   .s = shape_of(job->tensor, job->params->pool_block),
                   .to = job->body,
                   .isa = job->isa};
    if (job->body_capacity < w.s.bytes)
        return COMET_ERROR_CAPACITY;
    pool_run(&w, job->threads);
    job->header->parameter = (uint32_t)job->params->pool_block;
    job->header->body_bytes = w.s.bytes;
    return COMET_OK;
}

static comet_status pool_check_stream(const stream_header *h, const comet_tensor *tensor) {
    int fits = comet_header_is_plain(h, 0) && !h->wide_parameter && h->parameter >= 1 && h->parameter <= MAX_BLOCK &&
               comet_maps_exist(h->layout, h->ndim) && h->body_bytes == shape_of(tensor, h->parameter).bytes;
    return fits ? COMET_OK : COMET_ERROR_CORRUPT;
}

static comet_status pool_decompress(const codec_decompress_job *job) {
    pool_work w = {.view = comet_view_of(job->tensor),
                   .s = shape_of(job->tensor, job->header->parameter),
                   .from = job->body,
                   .isa = job->isa};
    pool_run(&w, job->threads);
    return COMET_OK;
}

const codec_vtable comet_codec_pool = {
    .name = "pool",
    .check = pool_check,
    .body_max_bytes = pool_bound,
    .compress = pool_compress,
    .check_stream = pool_check_stream,
    .decompress = pool_decompress,
};
