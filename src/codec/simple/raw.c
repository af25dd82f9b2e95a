/* SPDX-License-Identifier: Apache-2.0 */
/* raw: the values as they are, in logical order (docs/codecs.md, section 1). */
#include "codec/simple/runs.h"

enum { UNIT = 1 << 14 }; /* values a worker takes at least */

typedef struct raw_work {
    codec_view view;
    uint8_t *to;         /* compressing */
    const uint8_t *from; /* decompressing */
    int64_t count;
    unsigned workers;
} raw_work;

static size_t raw_bound(const comet_tensor *tensor, const comet_codec_params *params) {
    (void)params;
    return (size_t)comet_tensor_count(tensor) * comet_dtype_size(tensor->dtype);
}

static void raw_run(void *context, unsigned worker) {
    const raw_work *w = context;
    int64_t first, end;
    comet_share(comet_div_up(w->count, UNIT), w->workers, worker, &first, &end);
    first *= UNIT;
    int64_t n = comet_min_i64(end * UNIT, w->count) - first;
    if (n <= 0)
        return;
    size_t at = (size_t)first * w->view.size, bytes = (size_t)n * w->view.size;
    if (w->to && w->view.direct)
        memcpy(w->to + at, w->view.direct + at, bytes);
    else if (w->to)
        comet_access_load_bits(w->view.tensor, first, n, w->to + at);
    else if (w->view.direct)
        memcpy(w->view.direct + at, w->from + at, bytes);
    else
        comet_access_store_bits(w->view.tensor, first, n, w->from + at);
}

static void raw_copy(raw_work *w, comet_threads *threads) {
    w->workers = comet_workers(threads, comet_div_up(w->count, UNIT));
    comet_parallel(threads, w->workers, raw_run, w);
}

static comet_status raw_compress(const codec_compress_job *job) {
    size_t bytes = raw_bound(job->tensor, job->params);
    if (job->body_capacity < bytes)
        return COMET_ERROR_CAPACITY;
    raw_work w = {.view = comet_view_of(job->tensor), .to = job->body, .count = comet_tensor_count(job->tensor)};
    raw_copy(&w, job->threads);
    job->header->body_bytes = bytes;
    return COMET_OK;
}

static comet_status raw_check_stream(const stream_header *h, const comet_tensor *tensor) {
    int fits =
        comet_header_is_plain(h, 0) && !h->parameter && !h->wide_parameter && h->body_bytes == raw_bound(tensor, NULL);
    return fits ? COMET_OK : COMET_ERROR_CORRUPT;
}

static comet_status raw_decompress(const codec_decompress_job *job) {
    raw_work w = {.view = comet_view_of(job->tensor), .from = job->body, .count = job->header->count};
    raw_copy(&w, job->threads);
    return COMET_OK;
}

const codec_vtable comet_codec_raw = {
    .name = "raw",
    .body_max_bytes = raw_bound,
    .compress = raw_compress,
    .check_stream = raw_check_stream,
    .decompress = raw_decompress,
};
