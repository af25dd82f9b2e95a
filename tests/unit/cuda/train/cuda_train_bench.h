/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA backend without its libraries, for tests of what does without them; and one of the CPU beside it. */
#ifndef TESTS_CUDA_TRAIN_BENCH_H
#define TESTS_CUDA_TRAIN_BENCH_H

#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cuda/cuda_memory.h"
#include "support/cuda/device_memory.h"
#include "support/rng.h"
#include "train/backend/cpu/kernels.h"
#include "train/backend/cpu/space.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/base/space.h"

typedef struct train_bench {
    comet_backend_cuda cuda;
    comet_backend cpu;
    rng r;
} train_bench;

static inline train_bench *train_bench_new(comet_dtype dtype, uint64_t seed) {
    train_bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    cuda_must(cudaStreamCreateWithFlags(&b->cuda.queue, cudaStreamNonBlocking));
    assert_ok(comet_cuda_space_new(b->cuda.queue, NULL, &b->cuda.weights_stale, &b->cuda.space));
    b->cuda.base.space = b->cuda.space;
    b->cuda.base.dtype = dtype;
    b->cuda.base.device = (comet_device){COMET_CUDA, 0};
    b->cuda.options = (comet_backend_cuda_options){.dtype = dtype, .workspace_bytes = 1 << 20};
    comet_cpu_fill(&b->cpu);
    b->cpu.space = comet_host_space_plain();
    b->r = rng_seed(seed);
    return b;
}

static inline void train_bench_free(train_bench *b) {
    cuda_must(cudaStreamSynchronize(b->cuda.queue));
    comet_cuda_parts_free(&b->cuda);
    comet_cuda_space_free(b->cuda.space);
    cuda_must(cudaStreamDestroy(b->cuda.queue));
    free(b);
}

/* As many bytes as the device wrote when all that was issued is done. */
static inline void *train_read(const train_bench *b, const cuda_block *block) {
    cuda_must(cudaStreamSynchronize(b->cuda.queue));
    return cuda_block_read(block);
}

/* Values as the dtype has them, in that dtype and in fp32. */
typedef struct train_values {
    void *patterns;
    float *values;
    int64_t count;
    size_t bytes; /* of the patterns */
} train_values;

static inline train_values train_values_new(comet_dtype dtype, int64_t count) {
    const size_t bytes = (size_t)count * comet_dtype_size(dtype);
    return (train_values){take(bytes), take((size_t)count * sizeof(float)), count, bytes};
}

static inline void train_values_set(const train_values *v, comet_dtype dtype, int64_t i, double x) {
    set_value(dtype, v->patterns, i, (float)x);
    v->values[i] = value_at(dtype, v->patterns, i);
}

static inline void train_values_free(train_values *v) {
    free(v->patterns);
    free(v->values);
}

static inline int same_bits(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

#endif
