/* SPDX-License-Identifier: Apache-2.0 */
#include "base/access.h"

#include <string.h>

#include "base/bits.h"
#include "base/convert.h"

enum { CHUNK = 256 }; /* values converted at a time */

void comet_convert_to_f32(comet_dtype dtype, const void *patterns, int64_t count, float *values) {
    comet_loop_to_f32(dtype, patterns, count, values);
}

void comet_convert_of_f32(comet_dtype dtype, const float *values, int64_t count, void *patterns) {
    comet_loop_of_f32(dtype, values, count, patterns);
}

/*
 * A walk over the view: the offset of the current value and how many more lie `step` apart before the walk must turn.
 */
typedef struct walk {
    const comet_tensor *tensor;
    int64_t index[COMET_MAX_DIMS];
    int64_t offset;
    int64_t step;
} walk;

static void walk_start(walk *w, const comet_tensor *tensor, int64_t first) {
    w->tensor = tensor;
    w->offset = 0;
    w->step = tensor->ndim ? tensor->strides[tensor->ndim - 1] : 0;
    for (int32_t d = tensor->ndim - 1; d >= 0; d--) {
        w->index[d] = first % tensor->shape[d];
        first /= tensor->shape[d];
        w->offset += w->index[d] * tensor->strides[d];
    }
}

static int64_t walk_run(const walk *w, int64_t left) {
    int32_t last = w->tensor->ndim - 1;
    return last < 0 ? 1 : comet_min_i64(left, w->tensor->shape[last] - w->index[last]);
}

static void walk_advance(walk *w, int64_t count) {
    int32_t d = w->tensor->ndim - 1;
    if (d < 0)
        return;
    w->index[d] += count;
    w->offset += count * w->tensor->strides[d];
    while (d > 0 && w->index[d] == w->tensor->shape[d]) {
        w->offset -= w->index[d] * w->tensor->strides[d];
        w->index[d--] = 0;
        w->index[d]++;
        w->offset += w->tensor->strides[d];
    }
}

static void copy_strided(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count, size_t size) {
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, (size_t)count * size);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * to_step * (int64_t)size, from + i * from_step * (int64_t)size, size);
}

void comet_access_load_bits(const comet_tensor *tensor, int64_t first, int64_t count, void *patterns) {
    size_t size = comet_dtype_size(tensor->dtype);
    char *to = patterns;
    if (count <= 0)
        return;
    walk w;
    for (walk_start(&w, tensor, first); count > 0;) {
        int64_t run = walk_run(&w, count);
        copy_strided(to, 1, (const char *)tensor->data + w.offset * (int64_t)size, w.step, run, size);
        to += run * (int64_t)size;
        count -= run;
        walk_advance(&w, run);
    }
}

void comet_access_store_bits(const comet_tensor *tensor, int64_t first, int64_t count, const void *patterns) {
    size_t size = comet_dtype_size(tensor->dtype);
    const char *from = patterns;
    if (count <= 0)
        return;
    walk w;
    for (walk_start(&w, tensor, first); count > 0;) {
        int64_t run = walk_run(&w, count);
        copy_strided((char *)tensor->data + w.offset * (int64_t)size, w.step, from, 1, run, size);
        from += run * (int64_t)size;
        count -= run;
        walk_advance(&w, run);
    }
}

void comet_access_load(const comet_tensor *tensor, int64_t first, int64_t count, float *values) {
    if (tensor->dtype == COMET_F32) {
        comet_access_load_bits(tensor, first, count, values);
        return;
    }
    uint16_t patterns[CHUNK];
    for (int64_t done = 0; done < count;) {
        int64_t n = comet_min_i64(CHUNK, count - done);
        comet_access_load_bits(tensor, first + done, n, patterns);
        comet_convert_to_f32(tensor->dtype, patterns, n, values + done);
        done += n;
    }
}

void comet_access_store(const comet_tensor *tensor, int64_t first, int64_t count, const float *values) {
    if (tensor->dtype == COMET_F32) {
        comet_access_store_bits(tensor, first, count, values);
        return;
    }
    uint16_t patterns[CHUNK];
    for (int64_t done = 0; done < count;) {
        int64_t n = comet_min_i64(CHUNK, count - done);
        comet_convert_of_f32(tensor->dtype, values + done, n, patterns);
        comet_access_store_bits(tensor, first + done, n, patterns);
        done += n;
    }
}
