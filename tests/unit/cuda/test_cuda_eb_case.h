/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of eb and zvc on a device share: trips, and what the CPU makes of them. To be included first. */
#ifndef COMET_TEST_CUDA_EB_CASE_H
#define COMET_TEST_CUDA_EB_CASE_H

#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "support/codec/trip_properties.h"
#include "support/cuda/cuda_jobs.h"
#include "support/effort.h"

static inline void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

/* Every how many of `count` things there is time for. */
static inline int64_t stride_for(int count) {
    int done = effort(count);
    return done < count ? count / done : 1;
}

static inline trip_spec spec_of(comet_dtype dtype, const test_shape *shape, trip_mode mode, value_kind values,
                                double bound) {
    return (trip_spec){.dtype = dtype, .shape = *shape, .values = values, .mode = mode, .scale = 1.0, .bound = bound};
}

/* Small maps on a grid, whose borders lie anywhere in a tile: of rows that are swept, and of such as are not. */
static const test_shape small_maps[] = {
    {COMET_NCHW, 4, {3, 12, 14, 14}}, {COMET_NCHW, 4, {4, 40, 7, 7}},    {COMET_NCHW, 4, {3, 70, 5, 5}},
    {COMET_NCHW, 4, {2, 5, 28, 28}},  {COMET_NCHW, 4, {2, 65, 5, 7}},    {COMET_NCHW, 4, {2, 9, 13, 17}},
    {COMET_NCHW, 4, {2, 3, 35, 35}},  {COMET_NCHW, 4, {4, 300, 3, 1}},   {COMET_NCHW, 4, {9, 300, 1, 1}},
    {COMET_NCHW, 4, {2, 80, 4, 4}},   {COMET_NCHW, 4, {2, 200, 2, 9}},   {COMET_NCHW, 4, {3, 5, 20, 20}},
    {COMET_NCHW, 4, {3, 1, 20, 14}},  {COMET_NCHW, 4, {1, 4, 30, 44}},   {COMET_NCHW, 4, {1, 4, 30, 43}},
    {COMET_NCHW, 4, {1, 4, 30, 45}},  {COMET_NCHW, 5, {2, 6, 3, 9, 10}}, {COMET_NCHW, 3, {8, 33, 15}},
};
enum { SMALL_MAPS = sizeof small_maps / sizeof *small_maps };

static inline unsigned char *on_cpu(const trip *t, const comet_codec_params *p, comet_codec_result *result) {
    size_t capacity;
    assert_ok(comet_codec_max_bytes(&t->input.view, p, &capacity));
    unsigned char *stream = take(capacity);
    assert_ok(comet_codec_compress(&t->input.view, p, NULL, stream, capacity, result));
    return stream;
}

static inline cuda_place place_for(const trip *t, const comet_codec_params *p) {
    cuda_place place = {.behind = 0};
    comet_tensor view = cuda_view(&t->spec.shape, t->spec.dtype, NULL);
    assert_ok(comet_cuda_max_bytes(&view, p, &place.capacity));
    return place;
}

#endif
