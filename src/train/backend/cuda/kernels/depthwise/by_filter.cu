// SPDX-License-Identifier: Apache-2.0
// Depthwise by filter. Each block sums over its items, all of a filter's weights at once; then blocks' sums are added.
#include "train/backend/cuda/kernels/depthwise/walk.cuh"

template <int S> constexpr int FILTER_TOGETHER = S == 1 ? 4 : 2;

// dy[d] is the row of dy whose window began d steps ago.
template <int K, int S, int A, int T, int N, int DEPTH>
__device__ __forceinline__ void add_products(const float (&x)[N][2], const float (&dy)[DEPTH][T][2],
                                             float (&sums)[K][K][2]) {
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (A + S * d < K)
#pragma unroll
            for (int c = 0; c < T; c++)
#pragma unroll
                for (int j = 0; j < K; j++)
#pragma unroll
                    for (int k = 0; k < 2; k++) {
                        float &sum = sums[A + S * d < K ? A + S * d : 0][j][k];
                        sum = fmaf(x[c * S + j][k], dy[d][c][k], sum);
                    }
}

// All rows that one row of dy brings with it.
template <comet_dtype D, int K, int S, int T, int DEPTH>
__device__ __forceinline__ void multiply_rows(const u8 *from, const Walk &w, const float (&dy)[DEPTH][T][2],
                                              float (&sums)[K][K][2]) {
    constexpr int N = (T - 1) * S + K;
    float x[N][2];
    load_pixels<D, N>(from, w.pitch, x);
    add_products<K, S, 0, T, N, DEPTH>(x, dy, sums);
    if (S > 1) {
        load_pixels<D, N>(from + w.span * w.pitch, w.pitch, x);
        add_products<K, S, S - 1, T, N, DEPTH>(x, dy, sums);
    }
}

template <int T, int DEPTH> __device__ __forceinline__ void move_on(float (&dy)[DEPTH][T][2]) {
#pragma unroll
    for (int d = DEPTH - 1; d > 0; d--)
#pragma unroll
        for (int c = 0; c < T; c++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                dy[d][c][k] = dy[d - 1][c][k];
}

// Adds up the sums of all threads that have the same channels, in `shared`, one row of the filter after the other.
template <int K>
__device__ __forceinline__ void finish(const Walk &w, const Place &p, const float (&sums)[K][K][2], float *shared,
                                       float *partial) {
    const u32 threads = blockDim.x, row = w.pairs * (K * 2);
    partial += (u64)(p.part * w.tiles + p.tile) * (K * K) * w.channels;
#pragma unroll
    for (int i = 0; i < K; i++) {
        __syncthreads(); // what was there before has been read
#pragma unroll
        for (int j = 0; j < K * 2; j++)
            shared[(u32)j * threads + threadIdx.x] = sums[i][j / 2][j % 2];
        __syncthreads();
        for (u32 n = threadIdx.x; n < row; n += threads) {
            const u32 j = n / w.pairs, pair = n - j * w.pairs, channel = (p.chunk * w.pairs + pair) * 2 + j % 2;
            float sum = 0;
            for (u32 other = pair; other < threads; other += w.pairs)
                sum += shared[j * threads + other];
            if (channel < w.channels)
                partial[(u64)((u32)i * K + j / 2) * w.channels + channel] = sum;
        }
    }
}

template <comet_dtype D, int K, int S>
__global__ static void __launch_bounds__(MOST_THREADS, LEAST_BLOCKS<K>)
    filter_kernel(Walk w, Sources s, float *partial) {
    constexpr int T = FILTER_TOGETHER<S>, DEPTH = (K + S - 1) / S;
    static_assert(MOST_THREADS * K * 2 * sizeof(float) <= STAGES * STAGE_BYTES, "a row of sums of all threads");
    __shared__ __align__(16) u8 ring[STAGES * STAGE_BYTES];
    __shared__ u32 places[PIECES];
    const Place p = place_of(w);
    const u32 pair = p.pair * 2 * value_bytes<D>, across = w.groups * T;
    const u32 own = (p.image * (S * ROWS) * w.span + p.group * T * S) * w.pitch + pair;
    const u32 own_dy = (w.images * (S * ROWS) * w.span + p.image * ROWS * across + p.group * T) * w.pitch + pair;
    float sums[K][K][2] = {}, dy[DEPTH][T][2] = {};
    walk<D, S, T, true>(w, p, s, ring, places, [&](const u8 *stage, const Cursor &c) {
        const bool has = has_rows<S>(w, c.row(w) * S - w.up);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            move_on<T, DEPTH>(dy);
            load_pixels<D, T>(stage + own_dy + (u32)r * across * w.pitch, w.pitch, dy[0]);
            if (has)
                multiply_rows<D, K, S, T, DEPTH>(stage + own + (u32)(r * S) * w.span * w.pitch, w, dy, sums);
        }
    });
    finish<K>(w, p, sums, (float *)(void *)ring, partial);
}

// ---- all blocks' ----
//
// Blocks have a sum of each weight for each of their channels. Here a block has 8 of these, which are side by side, and
// 32 threads for each of them.

constexpr u32 SUMS = 8, ADDERS = THREADS / SUMS;

template <bool ADD>
__global__ static void __launch_bounds__(THREADS)
    add_parts(const float *partial, float *gradient, u32 parts, u32 count, u32 channels) {
    __shared__ float shared[THREADS];
    const u32 lane = threadIdx.x % SUMS, adder = threadIdx.x / SUMS, at = blockIdx.x * SUMS + lane;
    float sum = 0;
    if (at < count)
#pragma unroll 8
        for (u32 i = adder; i < parts; i += ADDERS)
            sum += partial[(u64)i * count + at];
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (adder != 0 || at >= count)
        return;
    for (u32 i = 1; i < ADDERS; i++)
        sum += shared[i * SUMS + lane];
    const u32 weight = at / channels, channel = at - weight * channels;
    float *to = gradient + (u64)channel * (count / channels) + weight;
    *to = ADD ? *to + sum : sum;
}

// ---- host ----

static Walk filter_walk(const comet_cuda_depthwise *c) {
    Task t = task_of(c);
    t.together = c->stride == 1 ? FILTER_TOGETHER<1> : FILTER_TOGETHER<2>;
    t.in = {c->height, c->width};
    t.out = {c->out_height, c->out_width};
    t.up = c->padding;
    t.left = c->padding_width;
    t.both = true;
    return walk_of(t);
}

size_t comet_cuda_depthwise_bytes(const comet_cuda_depthwise *c) {
    const Walk w = filter_walk(c);
    return sizeof(float) * w.parts * w.tiles * (size_t)(c->kernel * c->kernel) * w.channels;
}

cudaError_t comet_cuda_depthwise_by_filter(const comet_cuda_depthwise *c, const void *x, const void *dy,
                                           float *gradient, int accumulate, float *scratch, cudaStream_t queue) {
    if (!are_aligned(x, dy))
        return cudaErrorMisalignedAddress;
    const Walk w = filter_walk(c);
    const Sources s = {(const u8 *)x, (const u8 *)dy};
    const cudaError_t error = with_dtype(c->dtype, [&](auto d) {
        return with_shape(c->kernel, c->stride, [&](auto k, auto stride) {
            return launch(filter_kernel<decltype(d)::value, decltype(k)::value, decltype(stride)::value>, blocks_of(w),
                          threads_of(w), queue, w, s, scratch);
        });
    });
    if (error != cudaSuccess)
        return error;
    const u32 count = (u32)(c->kernel * c->kernel) * w.channels;
    return with_bool(accumulate != 0, [&](auto add) {
        return launch(add_parts<decltype(add)::value>, blocks_for(count, SUMS), THREADS, queue, scratch, gradient,
                      w.parts * w.tiles, count, w.channels);
    });
}
