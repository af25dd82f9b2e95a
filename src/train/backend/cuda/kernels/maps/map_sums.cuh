// SPDX-License-Identifier: Apache-2.0
// Sums by channel over the pixels of each sample's map: the mean of a map, and the gradient of a factor that scales it.
// Shapes alone decide who adds what in which order. A map that too few blocks would share is cut into chunks, whose
// sums are added by a second kernel.
#ifndef COMET_TRAIN_CUDA_MAP_SUMS_CUH
#define COMET_TRAIN_CUDA_MAP_SUMS_CUH

#include "train/backend/cuda/kernels/vectors.cuh"

constexpr u64 MAP_BLOCKS = 1024; // enough for any device
constexpr u32 MAP_TOGETHER = 2;  // pixels that a thread has on their way

// A block has `lanes` vectors of channels side by side, a power of 2, and THREADS / lanes pixels.
struct MapSums {
    u64 samples, pixels, a_chunk;
    u32 channels, vectors, lanes, tiles, chunks;
};

static inline MapSums map_sums_of(comet_dtype dtype, int64_t samples, int64_t pixels, int64_t channels) {
    const int most = 16 / (int)comet_dtype_size(dtype), n = channels % most == 0 ? most : 1;
    MapSums m = {(u64)samples, (u64)pixels, 0, (u32)channels, (u32)(channels / n), 1, 0, 0};
    while (m.lanes < 32 && m.lanes < m.vectors)
        m.lanes *= 2;
    m.tiles = (m.vectors + m.lanes - 1) / m.lanes;
    const u64 least = 2 * MAP_TOGETHER * (THREADS / m.lanes), blocks = m.samples * m.tiles;
    u64 chunks = (MAP_BLOCKS + blocks - 1) / blocks, most_chunks = (m.pixels + least - 1) / least;
    chunks = chunks < most_chunks ? chunks : most_chunks;
    m.a_chunk = (m.pixels + chunks - 1) / chunks;
    m.chunks = (u32)((m.pixels + m.a_chunk - 1) / m.a_chunk);
    return m;
}

static inline size_t map_sums_bytes(const MapSums &m) {
    return m.chunks > 1 ? sizeof(float) * m.samples * m.chunks * m.channels : 0;
}

// A thread of these has this part of the work.
struct MapPart {
    u64 sample, first, end; // pixels
    u32 chunk, channel, line;
};

template <int N> __device__ __forceinline__ MapPart map_part_of(const MapSums &m) {
    const u32 above = blockIdx.x / m.tiles, tile = blockIdx.x - above * m.tiles, sample = above / m.chunks,
              chunk = above - sample * m.chunks, lane = threadIdx.x % m.lanes;
    const u64 first = chunk * m.a_chunk, end = first + m.a_chunk;
    return {sample, first, end < m.pixels ? end : m.pixels, chunk, (tile * m.lanes + lane) * N, threadIdx.x / m.lanes};
}

// Where a thread's value is so many pixels further on; behind its part's end: where it is without them, so that what is
// loaded together need not ask.
__device__ __forceinline__ u64 map_value_at(const MapSums &m, const MapPart &p, u64 pixel, u64 further) {
    return (p.sample * m.pixels + (pixel + further < p.end ? pixel + further : pixel)) * m.channels + p.channel;
}

// The sums of all lines, in the threads of line 0.
template <int N> __device__ __forceinline__ void add_lines(const MapSums &m, float (&sums)[N]) {
    __shared__ float shared[N][THREADS];
    const u32 t = threadIdx.x;
#pragma unroll
    for (int i = 0; i < N; i++)
        shared[i][t] = sums[i];
    for (u32 half = THREADS / 2; half >= m.lanes; half /= 2) {
        __syncthreads();
        if (t < half)
#pragma unroll
            for (int i = 0; i < N; i++)
                shared[i][t] = sums[i] = sums[i] + shared[i][t + half];
    }
}

// The whole block comes here, with sums of each thread's pixels.
template <comet_dtype D, int N>
__device__ __forceinline__ void finish_sums(const MapSums &m, const MapPart &p, float (&sums)[N], float factor,
                                            float *partial, void *to) {
    add_lines<N>(m, sums);
    if (p.line != 0 || p.channel >= m.channels)
        return;
    if (m.chunks > 1) {
#pragma unroll
        for (int i = 0; i < N; i++)
            partial[(p.sample * m.chunks + p.chunk) * m.channels + p.channel + i] = sums[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        sums[i] *= factor;
    store_vector<D, N>(to, p.sample * m.channels + p.channel, sums);
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    add_chunks_kernel(MapSums m, Divide channels, const float *partial, float factor, void *to) {
    const u32 at = (u32)thread_of_grid();
    if (at >= m.samples * m.channels)
        return;
    const Parts sample = parts_of(at, channels);
    float sum = 0;
    for (u32 k = 0; k < m.chunks; k++)
        sum += partial[(u64)(sample.of * m.chunks + k) * m.channels + sample.rest];
    store_value<D>(to, at, sum * factor);
}

// ---- host ----

static inline dim3 map_blocks(const MapSums &m) {
    return dim3((u32)(m.samples * m.chunks * m.tiles));
}

// What is left to do behind the kernel; nothing if maps are not cut.
template <comet_dtype D>
static inline cudaError_t launch_add_chunks(const MapSums &m, const float *partial, float factor, void *to,
                                            cudaStream_t queue) {
    if (m.chunks == 1)
        return cudaSuccess;
    if (!can_count(m.samples * m.channels))
        return cudaErrorInvalidValue;
    return launch(add_chunks_kernel<D>, blocks_for(m.samples * m.channels, THREADS), THREADS, queue, m,
                  divide_by(m.channels), partial, factor, to);
}

#endif
