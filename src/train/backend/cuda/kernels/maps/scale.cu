// SPDX-License-Identifier: Apache-2.0
// Channels times a factor of their sample's. Backward reads input and gradient once, for both gradients.
#include "train/backend/cuda/kernels/maps/scale.h"

#include "train/backend/cuda/kernels/maps/map_sums.cuh"

template <comet_dtype D, int N>
__global__ static void __launch_bounds__(THREADS)
    scale_kernel(const void *x, const void *factor, void *y, u32 items, Divide items_of_pixel, Divide pixels) {
    const u32 item = (u32)thread_of_grid();
    if (item >= items)
        return;
    const Parts pixel = parts_of(item, items_of_pixel);
    float v[N], f[N];
    load_vector<D, N>(x, (u64)item * N, v);
    load_vector<D, N>(factor, (u64)(pixels(pixel.of) * items_of_pixel.divisor + pixel.rest) * N, f);
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] *= f[i];
    store_vector<D, N>(y, (u64)item * N, v);
}

// What is wanted of the two gradients is not NULL.
struct ScaleBack {
    const void *x, *factor, *dy;
    void *dx, *dfactor;
    float *partial;
};

// One pixel: its part of the factor's gradient, and its own.
template <comet_dtype D, int N>
__device__ __forceinline__ void scale_pixel(const ScaleBack &s, u64 at, const float (&x)[N], float (&dy)[N],
                                            const float (&factor)[N], float (&sums)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        sums[i] = fmaf(x[i], dy[i], sums[i]);
    if (!s.dx)
        return;
#pragma unroll
    for (int i = 0; i < N; i++)
        dy[i] *= factor[i];
    store_vector<D, N>(s.dx, at, dy);
}

template <comet_dtype D, int N>
__global__ static void __launch_bounds__(THREADS) scale_back_kernel(MapSums m, ScaleBack s) {
    const MapPart p = map_part_of<N>(m);
    const u64 lines = THREADS / m.lanes;
    float sums[N] = {}, factor[N];
    if (p.channel < m.channels) {
        load_vector<D, N>(s.factor, p.sample * m.channels + p.channel, factor);
        for (u64 pixel = p.first + p.line; pixel < p.end; pixel += MAP_TOGETHER * lines) {
            float x[MAP_TOGETHER][N], dy[MAP_TOGETHER][N], some[N] = {};
#pragma unroll
            for (u32 k = 0; k < MAP_TOGETHER; k++) {
                const u64 at = map_value_at(m, p, pixel, k * lines);
                load_vector<D, N>(s.x, at, x[k]);
                load_vector<D, N>(s.dy, at, dy[k]);
            }
#pragma unroll
            for (u32 k = 0; k < MAP_TOGETHER; k++)
                if (pixel + k * lines < p.end)
                    scale_pixel<D, N>(s, map_value_at(m, p, pixel, k * lines), x[k], dy[k], factor, some);
#pragma unroll
            for (int i = 0; i < N; i++)
                sums[i] += some[i];
        }
    }
    if (s.dfactor)
        finish_sums<D, N>(m, p, sums, 1.0f, s.partial, s.dfactor);
}

// ---- host ----

size_t comet_cuda_scale_bytes(comet_dtype dtype, int64_t batch, int64_t pixels, int64_t channels) {
    return map_sums_bytes(map_sums_of(dtype, batch, pixels, channels));
}

// Calls run(dtype, values in a vector): 1 if rows of channels are not whole vectors.
template <class Run> static cudaError_t with_vectors(const comet_cuda_scale_job *j, Run run) {
    return with_dtype(j->dtype, [&](auto d) {
        constexpr int MOST = vector_values<decltype(d)::value>;
        return j->channels % MOST == 0 ? run(d, std::integral_constant<int, MOST>())
                                       : run(d, std::integral_constant<int, 1>());
    });
}

cudaError_t comet_cuda_launch_scale(const comet_cuda_scale_job *j, cudaStream_t queue) {
    if (!are_aligned(j->x, j->factor, j->y))
        return cudaErrorMisalignedAddress;
    return with_vectors(j, [&](auto d, auto n) {
        constexpr int N = decltype(n)::value;
        const u64 of_pixel = (u64)j->channels / N, items = (u64)j->batch * (u64)j->pixels * of_pixel;
        if (!can_count(items))
            return cudaErrorInvalidValue;
        return launch(scale_kernel<decltype(d)::value, N>, blocks_for(items, THREADS), THREADS, queue, j->x, j->factor,
                      j->y, (u32)items, divide_by((u32)of_pixel), divide_by((u32)j->pixels));
    });
}

cudaError_t comet_cuda_launch_scale_back(const comet_cuda_scale_job *j, cudaStream_t queue) {
    if (!are_aligned(j->x, j->factor, j->dy, j->dx, j->dfactor))
        return cudaErrorMisalignedAddress;
    const MapSums m = map_sums_of(j->dtype, j->batch, j->pixels, j->channels);
    const ScaleBack s = {j->x, j->factor, j->dy, j->dx, j->dfactor, j->scratch};
    return with_vectors(j, [&](auto d, auto n) {
        constexpr comet_dtype D = decltype(d)::value;
        const cudaError_t error = launch(scale_back_kernel<D, decltype(n)::value>, map_blocks(m), THREADS, queue, m, s);
        return error != cudaSuccess || !s.dfactor ? error : launch_add_chunks<D>(m, s.partial, 1.0f, s.dfactor, queue);
    });
}
