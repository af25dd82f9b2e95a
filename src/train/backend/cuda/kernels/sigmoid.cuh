// SPDX-License-Identifier: Apache-2.0
// The sigmoid of activations, and the slope of a SiLU: the same wherever a value is made again.
#ifndef COMET_TRAIN_CUDA_SIGMOID_CUH
#define COMET_TRAIN_CUDA_SIGMOID_CUH

#include "base/vector/math.h"
#include "codec/cuda/device.cuh"
#include "comet/tensor.h"

// In fp32 as on the CPU, to the bit. What is rounded to 16 bits needs no more than the hardware's own exponential, with
// which memory decides again; its error is 1/1000 of that rounding.
template <comet_dtype D> __device__ __forceinline__ float sigmoid(float x) {
#ifndef COMET_CUDA_EMULATION
    if constexpr (D != COMET_F32)
        return __fdividef(1.0f, 1.0f + __expf(-x));
#endif
    return comet_sigmoidf(x);
}

template <comet_dtype D> __device__ __forceinline__ float silu_slope(float x) {
    const float s = sigmoid<D>(x);
    return s * (1.0f + x * (1.0f - s));
}

#endif
