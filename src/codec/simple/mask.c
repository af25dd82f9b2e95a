/* SPDX-License-Identifier: Apache-2.0 */
/* mask: one bit a value, set where the value is greater than 0 (docs/codecs.md, section 2). */
#include "codec/simple/runs.h"

enum { UNIT = 2048 }; /* values handled at a time: a multiple of 8, so that no two workers share a byte */

typedef struct mask_work {
    codec_view view;
    uint8_t *to;         /* compressing */
    const uint8_t *from; /* decompressing */
    int64_t count;
    unsigned workers;
    comet_isa isa;
} mask_work;

static size_t mask_bytes(int64_t count) {
    return (size_t)comet_div_up(count, 8);
}

static size_t mask_bound(const comet_tensor *tensor, const comet_codec_params *params) {
    (void)params;
    return mask_bytes(comet_tensor_count(tensor));
}

/* flags[i] = value i > 0. A positive pattern is one of 1 .. infinity, read as an integer; NaN lies above. */
COMET_INLINE void find_positive(comet_dtype dtype, const void *patterns, int64_t n, uint8_t *flags) {
    const float *f = patterns;
    const uint16_t *h = patterns;
    const uint8_t *b = patterns;
    switch (dtype) {
    case COMET_F32:
        for (int64_t i = 0; i < n; i++)
            flags[i] = f[i] > 0.0f;
        break;
    case COMET_F16:
        for (int64_t i = 0; i < n; i++)
            flags[i] = (uint16_t)(h[i] - 1u) < 0x7c00u;
        break;
    case COMET_BF16:
        for (int64_t i = 0; i < n; i++)
            flags[i] = (uint16_t)(h[i] - 1u) < 0x7f80u;
        break;
    case COMET_U8:
        for (int64_t i = 0; i < n; i++)
            flags[i] = b[i] > 0;
        break;
    }
}

/* Eight flags a byte: the product moves the lowest bit of byte i to bit 56 + i. */
COMET_INLINE void pack_flags(const uint8_t *flags, int64_t bytes, uint8_t *to) {
    for (int64_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)((comet_read_u64(flags + 8 * i) * 0x0102040810204080u) >> 56);
}

/* One instance a type: the masks 1 << j are constants to the compiler. */
#define EXPAND(name, type)                                                                                             \
    COMET_INLINE void name(const uint8_t *from, int64_t n, type one, type *to) {                                       \
        for (int64_t i = 0; i < n / 8; i++)                                                                            \
            for (unsigned j = 0; j < 8; j++)                                                                           \
                to[8 * i + j] = from[i] & (1u << j) ? one : 0;                                                         \
        for (int64_t i = n / 8 * 8; i < n; i++)                                                                        \
            to[i] = from[i / 8] & (1u << i % 8) ? one : 0;                                                             \
    }

EXPAND(expand_f32, float)
EXPAND(expand_16, uint16_t)
EXPAND(expand_8, uint8_t)

COMET_INLINE void expand(comet_dtype dtype, const uint8_t *from, int64_t n, void *to) {
    switch (dtype) {
    case COMET_F32:
        expand_f32(from, n, 1.0f, to);
        break;
    case COMET_F16:
        expand_16(from, n, 0x3c00, to);
        break;
    case COMET_BF16:
        expand_16(from, n, 0x3f80, to);
        break;
    case COMET_U8:
        expand_8(from, n, 1, to);
        break;
    }
}

COMET_INLINE void compress_unit(const mask_work *w, int64_t first, int64_t n) {
    float buffer[UNIT];
    uint8_t flags[UNIT];
    memset(flags + n / 8 * 8, 0, (size_t)(UNIT - n / 8 * 8)); /* the bits behind the last value are 0 */
    find_positive(w->view.tensor->dtype, comet_view_bits(&w->view, first, n, buffer), n, flags);
    pack_flags(flags, comet_div_up(n, 8), w->to + first / 8);
}

COMET_INLINE void decompress_unit(const mask_work *w, int64_t first, int64_t n) {
    float buffer[UNIT];
    void *to = w->view.direct ? (void *)comet_view_at(&w->view, first) : buffer;
    expand(w->view.tensor->dtype, w->from + first / 8, n, to);
    if (!w->view.direct)
        comet_access_store_bits(w->view.tensor, first, n, buffer);
}

COMET_INLINE void run_share(const mask_work *w, unsigned worker) {
    int64_t unit, end;
    for (comet_share(comet_div_up(w->count, UNIT), w->workers, worker, &unit, &end); unit < end; unit++) {
        int64_t first = unit * UNIT, n = comet_min_i64(UNIT, w->count - first);
        if (w->to)
            compress_unit(w, first, n);
        else
            decompress_unit(w, first, n);
    }
}

static void run_any(void *context, unsigned worker) {
    run_share(context, worker);
}

COMET_FOR_AVX2 static void run_avx2(void *context, unsigned worker) {
    run_share(context, worker);
}

static void mask_run(mask_work *w, comet_threads *threads) {
    w->workers = comet_workers(threads, comet_div_up(w->count, UNIT));
    comet_parallel(threads, w->workers, w->isa >= COMET_ISA_AVX2 ? run_avx2 : run_any, w);
}

static comet_status mask_compress(const codec_compress_job *job) {
    size_t bytes = mask_bound(job->tensor, job->params);
    if (job->body_capacity < bytes)
        return COMET_ERROR_CAPACITY;
    mask_work w = {
        .view = comet_view_of(job->tensor), .to = job->body, .count = comet_tensor_count(job->tensor), .isa = job->isa};
    mask_run(&w, job->threads);
    job->header->body_bytes = bytes;
    return COMET_OK;
}

static comet_status mask_check_stream(const stream_header *h, const comet_tensor *tensor) {
    (void)tensor;
    int fits =
        comet_header_is_plain(h, 0) && !h->parameter && !h->wide_parameter && h->body_bytes == mask_bytes(h->count);
    return fits ? COMET_OK : COMET_ERROR_CORRUPT;
}

static comet_status mask_decompress(const codec_decompress_job *job) {
    const stream_header *h = job->header;
    if (h->count % 8 && job->body[job->body_bytes - 1] >> h->count % 8)
        return COMET_ERROR_CORRUPT; /* a bit behind the last value */
    mask_work w = {.view = comet_view_of(job->tensor), .from = job->body, .count = h->count, .isa = job->isa};
    mask_run(&w, job->threads);
    return COMET_OK;
}

const codec_vtable comet_codec_mask = {
    .name = "mask",
    .body_max_bytes = mask_bound,
    .compress = mask_compress,
    .check_stream = mask_check_stream,
    .decompress = mask_decompress,
};
