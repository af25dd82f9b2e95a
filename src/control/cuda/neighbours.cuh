// SPDX-License-Identifier: Apache-2.0
// Values and their neighbours at a few places of a map (control/collect/neighbours.h): a block for each offset.
#ifndef COMET_CONTROL_CUDA_NEIGHBOURS_CUH
#define COMET_CONTROL_CUDA_NEIGHBOURS_CUH

#include "control/cuda/sums.cuh"

extern "C" {
#include "control/collect/places.h"
}

constexpr int PLACES_THREADS = 256;

struct PlacesShape {
    int64_t pixels, height, width;
    u32 channels, places;
};

static inline PlacesShape places_shape_of(const comet_maps *m) {
    const int64_t pixels = comet_maps_pixels(m);
    return {pixels, m->height, m->width, (u32)m->channels, (u32)comet_places_of(pixels, m->channels)};
}

// Calls body(pixel, other pixel, channel) for the block's offset, all channels of all places; threads share them.
template <class Body> __device__ __forceinline__ void for_neighbours(const PlacesShape &s, Body body) {
    const comet_offset by = comet_offset_at((int)blockIdx.x);
    for (u64 i = threadIdx.x; i < (u64)s.places * s.channels; i += PLACES_THREADS) {
        const int64_t place = comet_place_at(s.pixels, (int)(i / s.channels));
        const int64_t other = comet_place_moved(s.height, s.width, place, by);
        if (other >= 0)
            body((u64)place, (u64)other, (u32)(i % s.channels));
    }
}

// The sum over the block, in its first thread.
static __device__ double add_block(double sum) {
    __shared__ double shared[PLACES_THREADS / 32];
    const u32 t = threadIdx.x;
    sum = add_warp(sum);
    __syncthreads(); // of the call before
    if (t % 32 == 0)
        shared[t / 32] = sum;
    __syncthreads();
    if (t == 0)
        for (int w = 1; w < PLACES_THREADS / 32; w++)
            sum += shared[w];
    return sum;
}

// `read`: float read(u64 pixel, u32 channel)
template <class Read>
static __global__ void __launch_bounds__(PLACES_THREADS) products_kernel(Read read, PlacesShape s, double *sums) {
    double sum = 0;
    for_neighbours(s, [&](u64 pixel, u64 other, u32 channel) {
        sum += (double)read(pixel, channel) * (double)read(other, channel);
    });
    sum = add_block(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

// ---- host ----

template <class Read>
static inline cudaError_t launch_products(const Read &read, const comet_maps *maps, double *sums, cudaStream_t queue) {
    return launch(products_kernel<Read>, dim3(COMET_STATS_OFFSETS), dim3(PLACES_THREADS), queue, read,
                  places_shape_of(maps), sums);
}

// ---- heads of records ----

template <class Head> static __global__ void head_kernel(Head head, Head *to) {
    *to = head;
}

template <class Head> static inline cudaError_t launch_head(const Head &head, Head *to, cudaStream_t queue) {
    return launch(head_kernel<Head>, dim3(1), dim3(1), queue, head, to);
}

#endif
