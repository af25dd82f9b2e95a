// SPDX-License-Identifier: Apache-2.0
// Sums by channel over all pixels. Blocks share channels and pixels in a way that shapes and strides alone decide, and
// add up in a fixed order: the same tensors give the same bits.
//
// What is summed is said by a struct `Terms`:
//     SUMS, GREATEST                               so many sums, and so many maxima behind them
//     Channel channel(u32 channel)                 what is known of a channel
//     Place place(Channel, u64 pixel, u32 channel) where its values lie
//     Values load(Place)
//     void add(Channel, Values, float *)           adds the terms of one pixel to the sums
#ifndef COMET_CONTROL_CUDA_SUMS_CUH
#define COMET_CONTROL_CUDA_SUMS_CUH

#include "control/cuda/maps.cuh"

constexpr int SUMS_THREADS = 256;
constexpr int SUMS_TOGETHER = 4; // terms in fp32 before they go to fp64, as on the CPU
constexpr u32 SUMS_BLOCKS = 1024;
constexpr u64 SUMS_LEAST = 4 * SUMS_TOGETHER; // pixels of a thread, if there are as many

// ---- how the work is shared ----

// A block has `lanes` channels side by side, a power of 2, and SUMS_THREADS / lanes pixels.
struct SumsPlan {
    u64 pixels, a_chunk;
    u32 channels, lanes, tiles, chunks;
};

static inline int64_t distance(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

// Threads that are neighbours read neighbours: channels, if these are nearest in memory.
static inline SumsPlan plan_of(const comet_maps *m) {
    const int64_t step = distance(maps_of(m).step), pixels = comet_maps_pixels(m);
    SumsPlan p = {(u64)pixels, 0, (u32)m->channels, 1, 0, 0};
    if (pixels == 1 || distance(m->to_channel) < step)
        while (p.lanes < 32 && p.lanes < p.channels)
            p.lanes *= 2;
    p.tiles = (p.channels + p.lanes - 1) / p.lanes;
    const u64 least = SUMS_LEAST * (SUMS_THREADS / p.lanes), wanted = (p.pixels + least - 1) / least,
              most = SUMS_BLOCKS / p.tiles;
    p.chunks = (u32)(wanted < most ? wanted : most ? most : 1);
    p.a_chunk = (p.pixels + p.chunks - 1) / p.chunks;
    return p;
}

static inline size_t partial_bytes(const SumsPlan &p, int arrays) {
    return sizeof(double) * (size_t)arrays * p.channels * p.chunks;
}

// ---- kernels ----

__device__ __forceinline__ double greater(double a, double b) {
    return b > a ? b : a;
}

// The sums of threads that have the same channel, in the first of them.
template <class Terms, int ARRAYS>
__device__ __forceinline__ void add_lines(double (&shared)[ARRAYS][SUMS_THREADS], u32 lanes) {
    const u32 t = threadIdx.x;
    for (u32 half = SUMS_THREADS / 2; half >= lanes; half /= 2) {
        __syncthreads();
        if (t < half)
            for (int a = 0; a < ARRAYS; a++) {
                double here = shared[a][t], there = shared[a][t + half];
                shared[a][t] = a < Terms::SUMS ? here + there : greater(here, there);
            }
    }
    __syncthreads();
}

// Every `lines`-th pixel from `first` on. What is read together is on its way together.
template <class Terms, int ARRAYS>
__device__ __forceinline__ void add_pixels(const Terms &terms, u32 channel, u64 first, u64 end, u32 lines,
                                           double (&sums)[ARRAYS]) {
    const typename Terms::Channel c = terms.channel(channel);
    for (u64 at = first; at < end; at += (u64)SUMS_TOGETHER * lines) {
        typename Terms::Place place[SUMS_TOGETHER];
        typename Terms::Values v[SUMS_TOGETHER];
        float some[ARRAYS] = {};
#pragma unroll
        for (int t = 0; t < SUMS_TOGETHER; t++) // behind the end: the first again, which is not added
            place[t] = terms.place(c, at + (u64)t * lines < end ? at + (u64)t * lines : at, channel);
#pragma unroll
        for (int t = 0; t < SUMS_TOGETHER; t++)
            v[t] = terms.load(place[t]);
#pragma unroll
        for (int t = 0; t < SUMS_TOGETHER; t++)
            if (at + (u64)t * lines < end)
                terms.add(c, v[t], some);
#pragma unroll
        for (int a = 0; a < ARRAYS; a++)
            sums[a] = a < Terms::SUMS ? sums[a] + (double)some[a] : greater(sums[a], (double)some[a]);
    }
}

// partial: [array][channel][chunk]
template <class Terms>
static __global__ void __launch_bounds__(SUMS_THREADS) sums_kernel(Terms terms, SumsPlan p, double *partial) {
    constexpr int ARRAYS = Terms::SUMS + Terms::GREATEST;
    __shared__ double shared[ARRAYS][SUMS_THREADS];
    const u32 t = threadIdx.x, tile = blockIdx.x % p.tiles, chunk = blockIdx.x / p.tiles;
    const u32 channel = tile * p.lanes + t % p.lanes, line = t / p.lanes, lines = SUMS_THREADS / p.lanes;
    const u64 first = chunk * p.a_chunk, next = first + p.a_chunk, end = next < p.pixels ? next : p.pixels;
    double sums[ARRAYS] = {};
    if (channel < p.channels)
        add_pixels<Terms>(terms, channel, first + line, end, lines, sums);
    for (int a = 0; a < ARRAYS; a++)
        shared[a][t] = sums[a];
    add_lines<Terms>(shared, p.lanes);
    if (line == 0 && channel < p.channels)
        for (int a = 0; a < ARRAYS; a++)
            partial[((u64)a * p.channels + channel) * p.chunks + chunk] = shared[a][t];
}

// The same in every lane: a + b is b + a.
__device__ __forceinline__ double add_warp(double sum) {
    for (int distance = 16; distance; distance /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    return sum;
}

__device__ __forceinline__ double greatest_of_warp(double most) {
    for (int distance = 16; distance; distance /= 2)
        most = greater(most, __shfl_xor_sync(ALL_LANES, most, distance));
    return most;
}

struct TotalsArgs {
    const double *partial;
    double *to;
    u64 count, sums; // numbers in all; how many are sums, not maxima
    u32 chunks;
    bool adds; // to what is there
};

// A warp for each number.
static __global__ void __launch_bounds__(SUMS_THREADS) totals_kernel(TotalsArgs a) {
    const u32 lane = threadIdx.x % 32;
    const u64 i = (u64)blockIdx.x * (SUMS_THREADS / 32) + threadIdx.x / 32;
    if (i >= a.count)
        return;
    const bool is_sum = i < a.sums;
    const double *partial = a.partial + i * a.chunks;
    double all = 0;
    for (u32 chunk = lane; chunk < a.chunks; chunk += 32)
        all = is_sum ? all + partial[chunk] : greater(all, partial[chunk]);
    all = is_sum ? add_warp(all) : greatest_of_warp(all);
    if (a.adds)
        all = is_sum ? a.to[i] + all : greater(a.to[i], all);
    if (lane == 0)
        a.to[i] = all;
}

// ---- host ----

// Both: terms of all pixels, read as `maps` lies in memory, and their totals, written or added to `to`.
template <class Terms>
static inline cudaError_t launch_sums(const Terms &terms, const comet_maps *maps, double *to, bool adds,
                                      void *workspace, cudaStream_t queue) {
    const SumsPlan p = plan_of(maps);
    double *partial = (double *)workspace;
    const u64 arrays = Terms::SUMS + Terms::GREATEST;
    const TotalsArgs totals = {partial, to, arrays * p.channels, (u64)Terms::SUMS * p.channels, p.chunks, adds};
    cudaError_t error =
        launch(sums_kernel<Terms>, dim3(p.tiles * p.chunks), dim3(SUMS_THREADS), queue, terms, p, partial);
    if (error != cudaSuccess)
        return error;
    const u64 a_block = SUMS_THREADS / 32;
    return launch(totals_kernel, dim3((unsigned)((totals.count + a_block - 1) / a_block)), dim3(SUMS_THREADS), queue,
                  totals);
}

#endif
