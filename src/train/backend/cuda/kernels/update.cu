// SPDX-License-Identifier: Apache-2.0
// torch.optim.SGD and AdamW, operation by operation as train/backend/cpu/update.c: the same bits from the same
// gradients. A block has a chunk of one parameter; a second kernel adds up what chunks saw.
#include "train/backend/cuda/kernels/update.h"

#include "codec/cuda/values.cuh"
#include "train/backend/cuda/kernels/blocks.cuh"

constexpr int THREADS = 256;
constexpr int64_t CHUNK = COMET_CUDA_UPDATE_CHUNK;

// ---- values ----

struct numbers {
    float value, gradient, first, second;
};

// What is to be summed: the momentum, or what stands for it.
__device__ __forceinline__ float sgd(const comet_optimiser_rule &r, bool has_momentum, numbers &n) {
    float direction = n.gradient * r.scale + r.decay * n.value;
    if (!has_momentum) {
        n.value -= r.rate * direction;
        return direction;
    }
    n.first = r.momentum * n.first + direction;
    if (r.nesterov)
        direction += r.momentum * n.first;
    n.value -= r.rate * (r.nesterov ? direction : n.first);
    return n.first;
}

__device__ __forceinline__ float adamw(const comet_optimiser_rule &r, numbers &n) {
    const float g = n.gradient * r.scale;
    n.first = n.first * r.momentum + r.one_less * g;
    n.second = n.second * r.beta2 + r.other * g * g;
    n.value = n.value * r.decay - r.rate * (n.first / (sqrtf(n.second) / r.root + r.epsilon));
    return n.first;
}

__device__ __forceinline__ bool is_finite(float v) {
    return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u;
}

// ---- chunks ----

// What the threads of a block work on: N values at once.
struct chunk {
    float *value, *first, *second;
    const float *gradient;
    u8 *copy;
    u32 count;
};

struct seen {
    double sum;
    bool finite;
};

template <comet_dtype D> __device__ __forceinline__ chunk chunk_of(const comet_cuda_updated &p, int64_t at) {
    const int64_t left = p.count - at;
    return {p.value + at,
            p.state[0] ? p.state[0] + at : NULL,
            p.state[1] ? p.state[1] + at : NULL,
            p.gradient + at,
            p.copy ? (u8 *)p.copy + at * value_bytes<D> : NULL,
            (u32)(left < CHUNK ? left : CHUNK)};
}

template <int N> __device__ __forceinline__ void load(const float *from, u32 at, float (&x)[N]) {
    load_values<COMET_F32, N>(from, at, x);
}

template <int N> __device__ __forceinline__ void store(float *to, u32 at, const float (&x)[N]) {
    store_values<COMET_F32, N>(to, at, x);
}

template <comet_dtype D, comet_optimiser_kind KIND, int N>
__device__ __forceinline__ void update_at(const comet_optimiser_rule &r, const chunk &c, u32 at, bool wants_sum,
                                          seen &s) {
    float value[N], gradient[N], first[N] = {}, second[N] = {};
    load(c.value, at, value);
    load(c.gradient, at, gradient);
    if (c.first)
        load(c.first, at, first);
    if (KIND == COMET_ADAMW)
        load(c.second, at, second);
#pragma unroll
    for (int i = 0; i < N; i++) {
        numbers n = {value[i], gradient[i], first[i], second[i]};
        const float momentum = KIND == COMET_SGD ? sgd(r, c.first != NULL, n) : adamw(r, n);
        value[i] = n.value, first[i] = n.first, second[i] = n.second;
        s.finite = s.finite && is_finite(n.value) && is_finite(n.first) && is_finite(n.second);
        if (wants_sum)
            s.sum += (double)fabsf(momentum);
    }
    store(c.value, at, value);
    if (c.first)
        store(c.first, at, first);
    if (KIND == COMET_ADAMW)
        store(c.second, at, second);
    if (D != COMET_F32 && c.copy)
        store_values<D, N>(c.copy, at, value);
}

// The optimiser's arrays lie one parameter behind the other, without gaps: not all are aligned.
__device__ __forceinline__ bool is_aligned(const chunk &c) {
    return (((uintptr_t)c.value | (uintptr_t)c.gradient | (uintptr_t)c.first | (uintptr_t)c.second) % 16 |
            (uintptr_t)c.copy % 8) == 0;
}

template <comet_dtype D, comet_optimiser_kind KIND>
__global__ static void __launch_bounds__(THREADS) update_kernel(comet_cuda_update_job job) {
    if (job.refused && *job.refused != 0)
        return;
    const int owner = job.owners[blockIdx.x];
    const comet_cuda_updated &p = job.parameters[owner];
    const comet_optimiser_rule r = job.rules[owner];
    const chunk c = chunk_of<D>(p, ((int64_t)blockIdx.x - p.first_chunk) * CHUNK);
    const u32 quads = is_aligned(c) ? c.count / 4 : 0;
    seen s = {0, true};
    for (u32 i = threadIdx.x; i < quads; i += THREADS)
        update_at<D, KIND, 4>(r, c, 4 * i, job.wants_means, s);
    for (u32 i = 4 * quads + threadIdx.x; i < c.count; i += THREADS)
        update_at<D, KIND, 1>(r, c, i, job.wants_means, s);
    const int finite = __syncthreads_and(s.finite);
    const double sum = job.wants_means ? sum_of_block<THREADS>(s.sum) : 0;
    if (threadIdx.x == 0)
        job.partial[blockIdx.x] = {sum, finite != 0};
}

// ---- parameters ----

__global__ static void __launch_bounds__(THREADS) result_kernel(comet_cuda_update_job job) {
    if (job.refused && *job.refused != 0)
        return;
    const comet_cuda_updated &p = job.parameters[blockIdx.x];
    double sum = 0;
    bool finite = true;
    for (int i = (int)threadIdx.x; i < p.chunks; i += THREADS) {
        const comet_cuda_update_chunk c = job.partial[p.first_chunk + i];
        sum += c.sum;
        finite = finite && c.finite;
    }
    const int all_finite = __syncthreads_and(finite);
    sum = sum_of_block<THREADS>(sum);
    if (threadIdx.x == 0)
        job.results[blockIdx.x] = {sum / (double)p.count, all_finite != 0};
}

cudaError_t comet_cuda_launch_update(const comet_cuda_update_job *job, comet_dtype dtype, cudaStream_t queue) {
    if (job->count == 0)
        return cudaSuccess;
    const cudaError_t error = with_dtype(dtype, [&](auto d) {
        constexpr comet_dtype D = decltype(d)::value;
        const auto kernel = job->kind == COMET_SGD ? update_kernel<D, COMET_SGD> : update_kernel<D, COMET_ADAMW>;
        return launch(kernel, dim3((unsigned)job->chunks), dim3(THREADS), queue, *job);
    });
    return error == cudaSuccess ? launch(result_kernel, dim3((unsigned)job->count), dim3(THREADS), queue, *job) : error;
}

// ---- copies ----

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS) narrow_kernel(const float *values, u64 count, void *copy) {
    constexpr int N = vector_values<D>;
    const u64 first = (u64)blockIdx.x * THREADS + threadIdx.x, step = (u64)gridDim.x * THREADS, vectors = count / N;
    for (u64 i = first; i < vectors; i += step) {
        float x[N];
#pragma unroll
        for (int k = 0; k < N; k += 4)
            load_values<COMET_F32, 4>(values, N * i + k, x + k);
        store_values<D, N>(copy, N * i, x);
    }
    for (u64 i = N * vectors + first; i < count; i += step)
        store_value<D>(copy, i, values[i]);
}

cudaError_t comet_cuda_launch_narrow(const float *values, int64_t count, void *copy, comet_dtype dtype,
                                     cudaStream_t queue) {
    const int64_t blocks = (count / 8 + THREADS) / THREADS;
    return with_dtype(dtype, [&](auto d) {
        return launch(narrow_kernel<decltype(d)::value>, dim3((unsigned)(blocks < 4096 ? blocks : 4096)), dim3(THREADS),
                      queue, values, (u64)count, copy);
    });
}
