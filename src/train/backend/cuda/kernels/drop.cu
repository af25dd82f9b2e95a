// SPDX-License-Identifier: Apache-2.0
// Dropout and stochastic depth. Value i of all samples has word i % 4 of counter i / 4, a sample word 0 of its own.
#include "train/backend/cuda/kernels/drop.h"

#include "train/backend/cuda/kernels/vectors.cuh"

constexpr u32 PURPOSE = 16u << 16; // train/backend/cpu/drop.c
constexpr int DROP_VALUES = 8;     // of a thread
constexpr int TOGETHER = 2;        // vectors of a thread, where a sample is dropped or kept whole

// base/philox.h, of counter `index`.
__device__ __forceinline__ void draw(const comet_cuda_drop &d, u64 index, u32 (&c)[4]) {
    c[0] = (u32)index, c[1] = d.step_at ? (u32)*d.step_at : d.step, c[2] = d.node,
    c[3] = PURPOSE | (u32)(index >> 32 & 0xffffu);
    u32 k0 = (u32)d.seed, k1 = (u32)(d.seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        u64 p0 = (u64)0xD2511F53u * c[0], p1 = (u64)0xCD9E8D57u * c[2];
        c[0] = (u32)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (u32)p1;
        c[2] = (u32)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (u32)p0;
    }
}

// IN_STEP: this rank's first value has word 0. Else each value draws on its own: a rank whose samples are odd in size.
template <comet_dtype D, bool IN_STEP>
__global__ static void __launch_bounds__(THREADS) dropout_kernel(comet_cuda_drop d, bool vectors) {
    const u64 at = thread_of_grid() * DROP_VALUES, count = (u64)d.count;
    if (at >= count)
        return;
    const u64 before = (u64)d.first_sample * (u64)d.sample_values + at;
    float x[DROP_VALUES];
    load_some<D, DROP_VALUES>(d.from, at, count - at, vectors, x);
    u32 words[4];
#pragma unroll
    for (int i = 0; i < DROP_VALUES; i++) {
        if (!IN_STEP || i % 4 == 0)
            draw(d, (before + i) / 4, words);
        u32 word = words[i % 4];
        if constexpr (!IN_STEP) {
            const u32 which = (u32)((before + i) % 4);
            word = which < 2 ? (which == 0 ? words[0] : words[1]) : (which == 2 ? words[2] : words[3]);
        }
        x[i] = word < d.limit ? 0.0f : x[i] * d.scale;
    }
    store_some<D, DROP_VALUES>(d.to, at, count - at, vectors, x);
}

// A block has a part of one sample.
template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS) stochastic_depth_kernel(comet_cuda_drop d, u32 parts, bool vectors) {
    constexpr int N = vector_values<D>;
    const u32 sample = blockIdx.x / parts, part = blockIdx.x - sample * parts;
    const u64 sample_values = (u64)d.sample_values, base = sample * sample_values;
    u32 words[4];
    draw(d, (u64)d.first_sample + sample, words);
    const bool dropped = words[0] < d.limit;
#pragma unroll
    for (int k = 0; k < TOGETHER; k++) {
        const u64 at = (((u64)part * TOGETHER + k) * THREADS + threadIdx.x) * N;
        if (at >= sample_values)
            return;
        float x[N] = {};
        if (!dropped)
            load_some<D, N>(d.from, base + at, sample_values - at, vectors, x);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = dropped ? 0.0f : x[i] * d.scale;
        store_some<D, N>(d.to, base + at, sample_values - at, vectors, x);
    }
}

cudaError_t comet_cuda_launch_dropout(const comet_cuda_drop *d, cudaStream_t queue) {
    const bool in_step = (u64)d->first_sample * (u64)d->sample_values % 4 == 0;
    return d->count == 0 ? cudaSuccess : with_dtype(d->dtype, [&](auto type) {
        return with_bool(in_step, [&](auto is_in_step) {
            return launch(dropout_kernel<decltype(type)::value, decltype(is_in_step)::value>,
                          blocks_for((u64)d->count, THREADS * DROP_VALUES), THREADS, queue, *d,
                          are_aligned(d->from, d->to));
        });
    });
}

cudaError_t comet_cuda_launch_stochastic_depth(const comet_cuda_drop *d, cudaStream_t queue) {
    return d->count == 0 ? cudaSuccess : with_dtype(d->dtype, [&](auto type) {
        constexpr comet_dtype D = decltype(type)::value;
        const u32 parts = blocks_for((u64)d->sample_values, TOGETHER * THREADS * vector_values<D>).x;
        const u64 samples = (u64)d->count / (u64)d->sample_values;
        return launch(stochastic_depth_kernel<D>, dim3((u32)(samples * parts)), THREADS, queue, *d, parts,
                      has_vectors(d->sample_values, vector_values<D>, d->from, d->to));
    });
}
