// SPDX-License-Identifier: Apache-2.0
// Several neighbouring values of a tensor as fp32, and how kernels over whole tensors are shared out.
//
// An op's output may lie over one of its inputs: a thread reads all that it needs of a place before it writes there,
// and nothing here may be read through the cache that does not see writes.
#ifndef COMET_TRAIN_CUDA_VECTORS_CUH
#define COMET_TRAIN_CUDA_VECTORS_CUH

#include "codec/cuda/divide.cuh"
#include "codec/cuda/values.cuh"

constexpr u32 THREADS = 256;

// ---- device ----

// N values of any number of bytes together, 16 bytes an access; `at` is a multiple of N, the tensor aligned to these.
template <comet_dtype D, int N> __device__ __forceinline__ void load_vector(const void *tensor, u64 at, float (&x)[N]) {
    constexpr int STEP = N < vector_values<D> ? N : vector_values<D>;
#pragma unroll
    for (int k = 0; k < N; k += STEP)
        load_values<D, STEP>(tensor, at + k, x + k);
}

template <comet_dtype D, int N>
__device__ __forceinline__ void store_vector(void *tensor, u64 at, const float (&x)[N]) {
    constexpr int STEP = N < vector_values<D> ? N : vector_values<D>;
#pragma unroll
    for (int k = 0; k < N; k += STEP)
        store_values<D, STEP>(tensor, at + k, x + k);
}

// The first `left` of N values, one by one if they are not all there or not aligned; what is not there is 0.
template <comet_dtype D, int N>
__device__ __forceinline__ void load_some(const void *tensor, u64 at, u64 left, bool vectors, float (&x)[N]) {
    if (vectors && left >= N) {
        load_vector<D, N>(tensor, at, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = (u64)i < left ? load_value<D>(tensor, at + i) : 0.0f;
}

template <comet_dtype D, int N>
__device__ __forceinline__ void store_some(void *tensor, u64 at, u64 left, bool vectors, const float (&x)[N]) {
    if (vectors && left >= N) {
        store_vector<D, N>(tensor, at, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if ((u64)i < left)
            store_value<D>(tensor, at + i, x[i]);
}

// This thread's number in the grid.
__device__ __forceinline__ u64 thread_of_grid() {
    return (u64)blockIdx.x * THREADS + threadIdx.x;
}

// n / d and what is left, for n < 2^31.
struct Parts {
    u32 of, rest;
};

__device__ __forceinline__ Parts parts_of(u32 n, const Divide &d) {
    const u32 of = d(n);
    return {of, n - of * d.divisor};
}

// ---- host ----

// Items that threads can count with 31 bits: vectors of a tensor always, in practice.
static inline bool can_count(u64 items) {
    return items <= 0x7fffffffu - THREADS;
}

static inline dim3 blocks_for(u64 items, u64 per_block) {
    return dim3((u32)((items + per_block - 1) / per_block));
}

// NULL is aligned.
template <class... Pointers> static inline bool are_aligned(Pointers... pointers) {
    return ((0 | ... | (uintptr_t)pointers) & 15) == 0;
}

// Rows of so many channels can be read in vectors of N, which start at a vector in every row.
template <class... Pointers> static inline bool has_vectors(int64_t channels, int n, Pointers... pointers) {
    return channels % n == 0 && are_aligned(pointers...);
}

// Calls run(std::true_type()) or run(std::false_type()).
template <class Run> static inline cudaError_t with_bool(bool choice, Run run) {
    return choice ? run(std::true_type()) : run(std::false_type());
}

#endif
