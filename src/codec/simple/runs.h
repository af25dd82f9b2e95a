/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What raw, mask, pool, group and dct share: runs of a view without a copy where its memory allows, the shares of
 * workers, and the header fields that they leave 0. Their loops are compiled a second time for AVX2 (base/isa.h).
 */
#ifndef COMET_CODEC_RUNS_H
#define COMET_CODEC_RUNS_H

#include "base/access.h"
#include "base/bits.h"
#include "base/isa.h"
#include "base/parallel.h"
#include "codec/codec_impl.h"

/* A CPU view; `direct` is its memory if values can be used in place: row-major, no gaps, aligned for their type. */
typedef struct codec_view {
    const comet_tensor *tensor;
    char *direct;
    size_t size; /* bytes of a value */
} codec_view;

static inline codec_view comet_view_of(const comet_tensor *tensor) {
    codec_view v = {.tensor = tensor, .size = comet_dtype_size(tensor->dtype)};
    if (comet_tensor_is_contiguous(tensor) && (uintptr_t)tensor->data % v.size == 0)
        v.direct = tensor->data;
    return v;
}

static inline char *comet_view_at(const codec_view *v, int64_t first) {
    return v->direct + first * (int64_t)v->size;
}

/* Patterns first .. first + count - 1, in place or copied to `buffer`. */
static inline const void *comet_view_bits(const codec_view *v, int64_t first, int64_t count, void *buffer) {
    if (v->direct)
        return comet_view_at(v, first);
    comet_access_load_bits(v->tensor, first, count, buffer);
    return buffer;
}

/* The same as fp32. */
static inline const float *comet_view_read(const codec_view *v, int64_t first, int64_t count, float *buffer) {
    if (!v->direct) {
        comet_access_load(v->tensor, first, count, buffer);
        return buffer;
    }
    if (v->tensor->dtype == COMET_F32)
        return (const float *)(const void *)comet_view_at(v, first);
    comet_convert_to_f32(v->tensor->dtype, comet_view_at(v, first), count, buffer);
    return buffer;
}

/* Where to put fp32 values that belong at `first`: in place, or in `buffer`. comet_view_write ends it. */
static inline float *comet_view_target(const codec_view *v, int64_t first, float *buffer) {
    int in_place = v->direct && v->tensor->dtype == COMET_F32;
    return in_place ? (float *)(void *)comet_view_at(v, first) : buffer;
}

static inline void comet_view_write(const codec_view *v, int64_t first, int64_t count, const float *values) {
    if (!v->direct)
        comet_access_store(v->tensor, first, count, values);
    else if ((const char *)values != comet_view_at(v, first))
        comet_convert_of_f32(v->tensor->dtype, values, count, comet_view_at(v, first));
}

/*
 * Worker `worker` of `workers` does units *first .. *end - 1 of `total`. total <= 2^50, workers <= 2^12: no overflow.
 */
static inline void comet_share(int64_t total, unsigned workers, unsigned worker, int64_t *first, int64_t *end) {
    *first = total / workers * worker + total % workers * worker / workers;
    *end = total / workers * (worker + 1) + total % workers * (worker + 1) / workers;
}

/* As many workers as there are threads and units. */
static inline unsigned comet_workers(const comet_threads *threads, int64_t units) {
    unsigned count = comet_threads_count(threads);
    if (units < 1)
        return 1;
    return units < (int64_t)count ? (unsigned)units : count;
}

/* 1 if the fields that only eb and zvc use are 0 and no flag is set but the checksum's and those in `flags`. */
static inline int comet_header_is_plain(const stream_header *h, unsigned flags) {
    return h->bound == 0.0f && h->row == 0 && !(h->flags & ~(STREAM_CHECKSUM | flags));
}

#endif
