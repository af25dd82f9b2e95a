// SPDX-License-Identifier: Apache-2.0
// Kept channels: who has which of them, and what is made of them.
#ifndef COMET_TRAIN_CUDA_ERRORS_OPERAND_CUH
#define COMET_TRAIN_CUDA_ERRORS_OPERAND_CUH

#include "train/backend/cuda/kernels/errors/errors.h"
#include "train/backend/cuda/kernels/sigmoid.cuh"
#include "train/backend/cuda/kernels/vectors.cuh"

// As a tensor of the dtype has it.
template <comet_dtype D> __device__ __forceinline__ float rounded(float v) {
    return float_of<D>(pattern_for<D>(v));
}

// Kept channel i, whose value is v, of that image: rounded wherever the trainer writes it to memory.
template <comet_dtype D>
__device__ __forceinline__ float rebuild(const comet_cuda_errors_operand &o, float v, u64 image, u32 i) {
    if (o.gamma) {
        v = fmaf(__ldg(o.gamma + o.first + i), v, __ldg(o.beta + o.first + i));
        if (o.act == COMET_CUDA_ERRORS_RELU)
            v = v <= 0 ? 0.0f : v;
        v = rounded<D>(v);
    } else if (o.act == COMET_CUDA_ERRORS_RELU)
        v = v <= 0 ? 0.0f : v;
    if (o.act == COMET_CUDA_ERRORS_SILU)
        v = rounded<D>(v * sigmoid<D>(v));
    return o.factors ? rounded<D>(v * o.factors[image * o.width + i]) : v;
}

// A thread's row and channel: neighbours have the channels of a row, then of the next one.
struct KeptPlace {
    u64 row;
    u32 line, lines, i;
    bool is_there;
};

template <u32 WIDE> __device__ __forceinline__ KeptPlace kept_place(u32 width, u64 rows) {
    const u32 lines = WIDE / width, line = threadIdx.x / width;
    const u64 row = (u64)blockIdx.x * lines + line;
    return {row, line, lines, threadIdx.x - line * width, line < lines && row < rows};
}

// ---- host ----

static inline bool is_width(int width) {
    return width > 0 && width <= COMET_CUDA_ERRORS_WIDTH;
}

// Blocks for a row a thread.
static inline dim3 blocks_of_rows(int64_t rows, int width) {
    return blocks_for((u64)rows, THREADS / (u32)width);
}

#endif
