// SPDX-License-Identifier: Apache-2.0
// Activations and sums. Memory decides: a thread has two vectors of 16 bytes, which are on their way together.
#include "train/backend/cuda/kernels/activation.h"

#include "codec/cuda/runtime.h"
#include "train/backend/cuda/kernels/sigmoid.cuh"
#include "train/backend/cuda/kernels/vectors.cuh"

constexpr int TOGETHER = 2; // vectors of a thread

// ---- functions ----

struct Relu {
    static constexpr bool BOTH = false;
    template <comet_dtype D> static __device__ __forceinline__ float of(float x, float) {
        return x <= 0 ? 0.0f : x; // NaN stays
    }
};

struct Silu {
    static constexpr bool BOTH = false;
    template <comet_dtype D> static __device__ __forceinline__ float of(float x, float) {
        return x * sigmoid<D>(x);
    }
};

struct Sigmoid {
    static constexpr bool BOTH = false;
    template <comet_dtype D> static __device__ __forceinline__ float of(float x, float) {
        return sigmoid<D>(x);
    }
};

struct Add {
    static constexpr bool BOTH = true;
    template <comet_dtype D> static __device__ __forceinline__ float of(float a, float b) {
        return a + b;
    }
};

struct ReluSlope {
    static constexpr bool BOTH = true;
    template <comet_dtype D> static __device__ __forceinline__ float of(float y, float dy) {
        return y <= 0 ? 0.0f : dy;
    }
};

struct SiluSlope {
    static constexpr bool BOTH = true;
    template <comet_dtype D> static __device__ __forceinline__ float of(float x, float dy) {
        return dy * silu_slope<D>(x);
    }
};

struct SigmoidSlope {
    static constexpr bool BOTH = true;
    template <comet_dtype D> static __device__ __forceinline__ float of(float y, float dy) {
        return dy * (y * (1.0f - y));
    }
};

// ---- kernels ----

// WHOLE: all vectors of the block are there; nothing then stands between their loads.
template <comet_dtype D, class Function, bool WHOLE>
__device__ __forceinline__ void apply(const void *a, const void *b, void *to, u64 first, u64 count, bool vectors) {
    constexpr int N = vector_values<D>, BOTH = Function::BOTH;
    float x[TOGETHER][N], z[BOTH ? TOGETHER : 1][N] = {};
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
        const u64 at = first + (u64)k * (THREADS * N), left = WHOLE ? N : at < count ? count - at : 0;
        load_some<D, N>(a, at, left, WHOLE || vectors, x[k]);
        if constexpr (BOTH)
            load_some<D, N>(b, at, left, WHOLE || vectors, z[k]);
    }
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
        const u64 at = first + (u64)k * (THREADS * N), left = WHOLE ? N : at < count ? count - at : 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            x[k][i] = Function::template of<D>(x[k][i], z[BOTH ? k : 0][i]);
        store_some<D, N>(to, at, left, WHOLE || vectors, x[k]);
    }
}

template <comet_dtype D, class Function>
__global__ static void __launch_bounds__(THREADS)
    function_kernel(const void *a, const void *b, void *to, u64 count, bool vectors) {
    constexpr u64 N = vector_values<D>, BLOCK = TOGETHER * THREADS * N;
    const u64 begin = blockIdx.x * BLOCK, first = begin + threadIdx.x * N;
    if (vectors && begin + BLOCK <= count)
        apply<D, Function, true>(a, b, to, first, count, true);
    else
        apply<D, Function, false>(a, b, to, first, count, vectors);
}

// A thread has the values of one byte.
template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    relu_mask_kernel(const void *x, void *y, u8 *mask, u64 count, bool vectors) {
    const u64 thread = thread_of_grid(), at = thread * 8;
    if (at >= count)
        return;
    const u64 left = count - at;
    float v[8];
    load_some<D, 8>(x, at, left, vectors, v);
    u32 byte = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        byte |= (u32) !(v[i] <= 0) << i; // what is not there is 0
        v[i] = v[i] <= 0 ? 0.0f : v[i];
    }
    store_some<D, 8>(y, at, left, vectors, v);
    mask[thread] = (u8)byte;
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    relu_unmask_kernel(const u8 *mask, const void *dy, void *dx, u64 count, bool vectors) {
    const u64 thread = thread_of_grid(), at = thread * 8;
    if (at >= count)
        return;
    const u64 left = count - at;
    const u32 byte = mask[thread];
    float v[8];
    load_some<D, 8>(dy, at, left, vectors, v);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = byte >> i & 1 ? v[i] : 0.0f;
    store_some<D, 8>(dx, at, left, vectors, v);
}

// ---- host ----

// `b` is not read where there is one input.
template <class Function>
static comet_status run(const void *a, const void *b, void *to, int64_t count, comet_dtype dtype, cudaStream_t queue) {
    if (count == 0)
        return COMET_OK;
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        constexpr comet_dtype D = decltype(d)::value;
        return launch(function_kernel<D, Function>, blocks_for((u64)count, TOGETHER * THREADS * vector_values<D>),
                      THREADS, queue, a, b, to, (u64)count, are_aligned(a, Function::BOTH ? b : NULL, to));
    }));
}

comet_status comet_cuda_relu_forward(const void *x, void *y, uint8_t *mask, int64_t count, comet_dtype dtype,
                                     cudaStream_t queue) {
    if (!mask || count == 0)
        return run<Relu>(x, NULL, y, count, dtype, queue);
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        return launch(relu_mask_kernel<decltype(d)::value>, blocks_for((u64)count, 8 * THREADS), THREADS, queue, x, y,
                      mask, (u64)count, are_aligned(x, y));
    }));
}

comet_status comet_cuda_relu_backward(const void *y, const uint8_t *mask, const void *dy, void *dx, int64_t count,
                                      comet_dtype dtype, cudaStream_t queue) {
    if (!mask || count == 0)
        return run<ReluSlope>(y, dy, dx, count, dtype, queue);
    return comet_cuda_status(with_dtype(dtype, [&](auto d) {
        return launch(relu_unmask_kernel<decltype(d)::value>, blocks_for((u64)count, 8 * THREADS), THREADS, queue, mask,
                      dy, dx, (u64)count, are_aligned(dy, dx));
    }));
}

comet_status comet_cuda_silu_forward(const void *x, void *y, int64_t count, comet_dtype dtype, cudaStream_t queue) {
    return run<Silu>(x, NULL, y, count, dtype, queue);
}

comet_status comet_cuda_silu_backward(const void *x, const void *dy, void *dx, int64_t count, comet_dtype dtype,
                                      cudaStream_t queue) {
    return run<SiluSlope>(x, dy, dx, count, dtype, queue);
}

comet_status comet_cuda_sigmoid_forward(const void *x, void *y, int64_t count, comet_dtype dtype, cudaStream_t queue) {
    return run<Sigmoid>(x, NULL, y, count, dtype, queue);
}

comet_status comet_cuda_sigmoid_backward(const void *y, const void *dy, void *dx, int64_t count, comet_dtype dtype,
                                         cudaStream_t queue) {
    return run<SigmoidSlope>(y, dy, dx, count, dtype, queue);
}

comet_status comet_cuda_add_values(const void *a, const void *b, void *sum, int64_t count, comet_dtype dtype,
                                   cudaStream_t queue) {
    return run<Add>(a, b, sum, count, dtype, queue);
}
