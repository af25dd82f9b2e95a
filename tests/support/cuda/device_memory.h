/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory for tests, allocated to the byte, and values of any dtype. */
#ifndef TESTS_SUPPORT_CUDA_DEVICE_MEMORY_H
#define TESTS_SUPPORT_CUDA_DEVICE_MEMORY_H

#include "support/assert_ok.h"

#include <cuda_runtime.h>
#include <stdlib.h>

#include "base/half.h"
#include "comet/tensor.h"

enum { POISON = 0xA5 };

#define assert_cuda(call) assert_int_equal((call), cudaSuccess)

static const comet_dtype dtypes[] = {COMET_F32, COMET_F16, COMET_BF16};

static inline void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static inline void *device_take(size_t bytes, const void *from) {
    void *memory = NULL;
    assert_cuda(cudaMalloc(&memory, bytes ? bytes : 1));
    if (from)
        assert_cuda(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice));
    else
        assert_cuda(cudaMemset(memory, POISON, bytes));
    assert_cuda(cudaDeviceSynchronize()); /* non-blocking queues do not wait for it */
    return memory;
}

static inline void *device_read(const void *memory, size_t bytes) {
    void *copy = take(bytes);
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaMemcpy(copy, memory, bytes, cudaMemcpyDeviceToHost));
    return copy;
}

static inline float value_at(comet_dtype dtype, const void *values, int64_t i) {
    if (dtype == COMET_F32)
        return ((const float *)values)[i];
    uint16_t p = ((const uint16_t *)values)[i];
    return dtype == COMET_F16 ? comet_f16_to_f32(p) : comet_bf16_to_f32(p);
}

static inline void set_value(comet_dtype dtype, void *values, int64_t i, float v) {
    if (dtype == COMET_F32)
        ((float *)values)[i] = v;
    else
        ((uint16_t *)values)[i] = dtype == COMET_F16 ? comet_f16_of_f32(v) : comet_bf16_of_f32(v);
}

#endif
