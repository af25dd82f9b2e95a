// SPDX-License-Identifier: Apache-2.0
// Values of the dtypes in memory: several with one access, to fp32 and back.
#ifndef COMET_CODEC_CUDA_VALUES_CUH
#define COMET_CODEC_CUDA_VALUES_CUH

#include "codec/cuda/device.cuh"
#include "comet/tensor.h"

template <comet_dtype D> constexpr int value_bytes = D == COMET_F32 ? 4 : D == COMET_U8 ? 1 : 2;

// Values in 16 bytes.
template <comet_dtype D> constexpr int vector_values = 16 / value_bytes<D>;

template <comet_dtype D>
using pattern_of = std::conditional_t<D == COMET_F32, u32, std::conditional_t<D == COMET_U8, u8, u16>>;

template <comet_dtype D> __device__ __forceinline__ float float_of(u32 pattern) {
    if constexpr (D == COMET_F32)
        return __uint_as_float(pattern);
    else if constexpr (D == COMET_F16)
        return float_of_f16(pattern);
    else
        return float_of_bf16(pattern);
}

// A NaN's bits are not specified.
template <comet_dtype D> __device__ __forceinline__ u32 pattern_for(float v) {
    if constexpr (D == COMET_F32)
        return __float_as_uint(v);
    else if constexpr (D == COMET_F16)
        return f16_of_float(v);
    else
        return bf16_of_float(v);
}

// ---- 2, 4, 8 or 16 bytes, aligned to their size, as words (the first of two bytes alone: the lower half) ----

template <int BYTES> __device__ __forceinline__ void load_words(const void *from, u32 (&w)[(BYTES + 3) / 4]) {
    if constexpr (BYTES == 16) {
        uint4 v = *(const uint4 *)from;
        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else if constexpr (BYTES == 8) {
        uint2 v = *(const uint2 *)from;
        w[0] = v.x, w[1] = v.y;
    } else if constexpr (BYTES == 4) {
        w[0] = *(const u32 *)from;
    } else {
        w[0] = *(const u16 *)from;
    }
}

template <int BYTES> __device__ __forceinline__ void store_words(void *to, const u32 (&w)[(BYTES + 3) / 4]) {
    if constexpr (BYTES == 16)
        *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
    else if constexpr (BYTES == 8)
        *(uint2 *)to = make_uint2(w[0], w[1]);
    else if constexpr (BYTES == 4)
        *(u32 *)to = w[0];
    else
        *(u16 *)to = (u16)w[0];
}

// Value i of words that hold them side by side.
template <comet_dtype D> __device__ __forceinline__ u32 pattern_in(const u32 *w, int i) {
    if constexpr (D == COMET_F32)
        return w[i];
    else
        return w[i / 2] >> 16 * (i % 2) & 0xffffu;
}

template <comet_dtype D> __device__ __forceinline__ void put_pattern(u32 *w, int i, u32 pattern) {
    if constexpr (D == COMET_F32)
        w[i] = pattern;
    else
        w[i / 2] = i % 2 ? w[i / 2] | pattern << 16 : pattern;
}

// ---- values by their index in a tensor ----

template <comet_dtype D> __device__ __forceinline__ float load_value(const void *tensor, u64 at) {
    return float_of<D>(((const pattern_of<D> *)tensor)[at]);
}

template <comet_dtype D> __device__ __forceinline__ void store_value(void *tensor, u64 at, float v) {
    ((pattern_of<D> *)tensor)[at] = (pattern_of<D>)pattern_for<D>(v);
}

// N values of up to 16 bytes together; `at` is a multiple of N.
template <comet_dtype D, int N> __device__ __forceinline__ void load_values(const void *tensor, u64 at, float *x) {
    constexpr int BYTES = N * value_bytes<D>;
    u32 w[(BYTES + 3) / 4];
    load_words<BYTES>((const u8 *)tensor + at * value_bytes<D>, w);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = float_of<D>(pattern_in<D>(w, i));
}

template <comet_dtype D, int N> __device__ __forceinline__ void store_values(void *tensor, u64 at, const float *x) {
    constexpr int BYTES = N * value_bytes<D>;
    u32 w[(BYTES + 3) / 4];
#pragma unroll
    for (int i = 0; i < N; i++)
        put_pattern<D>(w, i, pattern_for<D>(x[i]));
    store_words<BYTES>((u8 *)tensor + at * value_bytes<D>, w);
}

// ---- host ----

// Calls run(std::integral_constant<comet_dtype, D>) for the dtype D of a tensor that is fp32, fp16 or bf16.
template <class Run> static inline cudaError_t with_dtype(comet_dtype dtype, Run run) {
    switch (dtype) {
    case COMET_F32:
        return run(std::integral_constant<comet_dtype, COMET_F32>());
    case COMET_F16:
        return run(std::integral_constant<comet_dtype, COMET_F16>());
    case COMET_BF16:
        return run(std::integral_constant<comet_dtype, COMET_BF16>());
    default:
        return cudaErrorInvalidValue;
    }
}

#endif
