// SPDX-License-Identifier: Apache-2.0
// Average pooling, with windows of one size or adaptive ones. The mean of a whole map is a sum that many threads share.
#include "train/backend/cuda/kernels/maps/map_sums.cuh"
#include "train/backend/cuda/kernels/maps/pool.cuh"

// As PyTorch: the divisor counts padding if asked, but never what ceil_mode adds behind it. An axis's part of it:
__device__ __forceinline__ int counted(const Axis &a, int output, Range window, int count_padding) {
    const int first = output * a.stride - a.padding;
    return count_padding ? min(first + a.kernel, a.in + a.padding) - first : window.to - window.from;
}

template <bool ADAPTIVE> __device__ __forceinline__ Range any_window(const Axis &a, int output) {
    return ADAPTIVE ? adaptive_window_of(a, output) : window_of(a, output);
}

template <bool ADAPTIVE> __device__ __forceinline__ Range any_outputs(const Axis &a, int input) {
    return ADAPTIVE ? adaptive_outputs_of(a, input) : outputs_of(a, input);
}

template <bool ADAPTIVE>
__device__ __forceinline__ int any_counted(const Axis &a, int output, Range window, int count_padding) {
    return ADAPTIVE ? window.to - window.from : counted(a, output, window, count_padding);
}

template <comet_dtype D, int N, bool ADAPTIVE>
__global__ static void __launch_bounds__(THREADS) average_pool_kernel(PoolMap m, const void *x, void *y) {
    const u32 item = (u32)thread_of_grid();
    if (item >= m.items)
        return;
    const PoolPlace p = pool_place_of<N>(m, item);
    const Range rows = any_window<ADAPTIVE>(m.down, p.row), columns = any_window<ADAPTIVE>(m.right, p.column);
    float sums[N] = {};
    for (int row = rows.from; row < rows.to; row++) {
        float line[N] = {};
        for (int column = columns.from; column < columns.to; column++) {
            float v[N];
            load_vector<D, N>(x, input_at(m, p, row, column), v);
#pragma unroll
            for (int i = 0; i < N; i++)
                line[i] += v[i];
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            sums[i] += line[i];
    }
    const float share = 1.0f / (float)(any_counted<ADAPTIVE>(m.down, p.row, rows, m.count_padding) *
                                       any_counted<ADAPTIVE>(m.right, p.column, columns, m.count_padding));
#pragma unroll
    for (int i = 0; i < N; i++)
        sums[i] *= share;
    store_vector<D, N>(y, (u64)item * N, sums);
}

// In the order of the windows, as on the CPU.
template <comet_dtype D, int N, bool ADAPTIVE>
__global__ static void __launch_bounds__(THREADS) average_pool_back_kernel(PoolMap m, const void *dy, void *dx) {
    const u32 item = (u32)thread_of_grid();
    if (item >= m.items)
        return;
    const PoolPlace p = pool_place_of<N>(m, item);
    const Range rows = any_outputs<ADAPTIVE>(m.down, p.row), columns = any_outputs<ADAPTIVE>(m.right, p.column);
    float sums[N] = {};
    for (int row = rows.from; row < rows.to; row++) {
        const int high = any_counted<ADAPTIVE>(m.down, row, any_window<ADAPTIVE>(m.down, row), m.count_padding);
        for (int column = columns.from; column < columns.to; column++) {
            const int wide =
                any_counted<ADAPTIVE>(m.right, column, any_window<ADAPTIVE>(m.right, column), m.count_padding);
            const float share = 1.0f / (float)(high * wide);
            float v[N];
            load_vector<D, N>(dy, output_pixel(m, p, row, column) * m.channels + p.channel, v);
#pragma unroll
            for (int i = 0; i < N; i++)
                sums[i] += v[i] * share;
        }
    }
    store_vector<D, N>(dx, (u64)item * N, sums);
}

// The mean of a whole map.
template <comet_dtype D, int N>
__global__ static void __launch_bounds__(THREADS)
    map_mean_kernel(MapSums m, const void *x, float share, float *partial, void *y) {
    constexpr u32 TOGETHER = 2 * MAP_TOGETHER;
    const MapPart p = map_part_of<N>(m);
    const u64 lines = THREADS / m.lanes;
    float sums[N] = {};
    if (p.channel < m.channels)
        for (u64 pixel = p.first + p.line; pixel < p.end; pixel += TOGETHER * lines) {
            float v[TOGETHER][N];
#pragma unroll
            for (u32 k = 0; k < TOGETHER; k++)
                load_vector<D, N>(x, map_value_at(m, p, pixel, k * lines), v[k]);
#pragma unroll
            for (u32 k = 1; k < TOGETHER; k++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    v[k][i] = pixel + k * lines < p.end ? v[k][i] : 0.0f;
#pragma unroll
            for (int i = 0; i < N; i++)
                sums[i] += (v[0][i] + v[1][i]) + (v[2][i] + v[3][i]);
        }
    finish_sums<D, N>(m, p, sums, share, partial, y);
}

// ---- host ----

static bool is_whole_map(const comet_cuda_pool *p) {
    return p->out_height == 1 && p->out_width == 1 &&
           (p->adaptive || (p->padding == 0 && p->kernel == p->height && p->kernel == p->width));
}

static MapSums sums_of(const comet_cuda_pool *p) {
    return map_sums_of(p->dtype, p->batch, (int64_t)p->height * p->width, p->channels);
}

size_t comet_cuda_average_pool_bytes(const comet_cuda_pool *pool) {
    return is_whole_map(pool) ? map_sums_bytes(sums_of(pool)) : 0;
}

// Calls run(dtype, values in a vector): 1 if rows of channels are not whole vectors.
template <class Run> static cudaError_t with_vectors(const comet_cuda_pool *p, Run run) {
    return with_dtype(p->dtype, [&](auto d) {
        constexpr int MOST = vector_values<decltype(d)::value>;
        return p->channels % MOST == 0 ? run(d, std::integral_constant<int, MOST>())
                                       : run(d, std::integral_constant<int, 1>());
    });
}

static cudaError_t launch_map_mean(const comet_cuda_pool *p, const void *x, void *y, float *scratch,
                                   cudaStream_t queue) {
    const MapSums m = sums_of(p);
    const float share = (float)(1.0 / (double)m.pixels);
    return with_vectors(p, [&](auto d, auto n) {
        constexpr comet_dtype D = decltype(d)::value;
        const cudaError_t error =
            launch(map_mean_kernel<D, decltype(n)::value>, map_blocks(m), THREADS, queue, m, x, share, scratch, y);
        return error != cudaSuccess ? error : launch_add_chunks<D>(m, scratch, share, y, queue);
    });
}

cudaError_t comet_cuda_launch_average_pool(const comet_cuda_pool *pool, const void *x, void *y, float *scratch,
                                           cudaStream_t queue) {
    if (!are_aligned(x, y))
        return cudaErrorMisalignedAddress;
    if (is_whole_map(pool))
        return launch_map_mean(pool, x, y, scratch, queue);
    return with_vectors(pool, [&](auto d, auto n) {
        return with_bool(pool->adaptive, [&](auto adaptive) {
            constexpr int N = decltype(n)::value;
            if (!can_pool(pool, N, false))
                return cudaErrorInvalidValue;
            const PoolMap m = pool_map_of(pool, N, false);
            return launch(average_pool_kernel<decltype(d)::value, N, decltype(adaptive)::value>,
                          blocks_for(m.items, THREADS), THREADS, queue, m, x, y);
        });
    });
}

cudaError_t comet_cuda_launch_average_pool_back(const comet_cuda_pool *pool, const void *dy, void *dx,
                                                cudaStream_t queue) {
    if (!are_aligned(dy, dx))
        return cudaErrorMisalignedAddress;
    return with_vectors(pool, [&](auto d, auto n) {
        return with_bool(pool->adaptive, [&](auto adaptive) {
            constexpr int N = decltype(n)::value;
            if (!can_pool(pool, N, true))
                return cudaErrorInvalidValue;
            const PoolMap m = pool_map_of(pool, N, true);
            return launch(average_pool_back_kernel<decltype(d)::value, N, decltype(adaptive)::value>,
                          blocks_for(m.items, THREADS), THREADS, queue, m, dy, dx);
        });
    });
}
