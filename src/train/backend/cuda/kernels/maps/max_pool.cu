// SPDX-License-Identifier: Apache-2.0
// Max pooling. A thread has 8 channels of a pixel, whose places in their windows are whole bytes. Backward does not
// scatter: an input looks which of its windows chose it, and so there is an order of additions, the CPU's.
#include "train/backend/cuda/kernels/maps/pool.cuh"

constexpr int OCTET = 8;

// ---- places: `bits` bits each, 1, 2, 4, 8 or 16 ----

struct Places {
    u64 low, high;
};

__device__ __forceinline__ Places pack(const u32 (&place)[OCTET], int bits) {
    Places p = {0, 0};
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        if (i * bits < 64)
            p.low |= (u64)place[i] << i * bits;
        else
            p.high |= (u64)place[i] << (i * bits - 64);
    return p;
}

__device__ __forceinline__ u32 place_in(const Places &p, int i, int bits) {
    const u64 shifted = i * bits < 64 ? p.low >> i * bits : p.high >> (i * bits - 64);
    return (u32)shifted & ((1u << bits) - 1);
}

// The place of an octet's bytes, of which there are `bits` if it is whole.
__device__ __forceinline__ u64 places_at(const PoolMap &m, u64 pixel, int channel, int bits) {
    return pixel * (u64)((m.channels * bits + 7) / 8) + (u64)(channel / OCTET * bits);
}

template <bool VECTORS>
__device__ __forceinline__ void store_places(u8 *to, const Places &p, int bits, int channels_left) {
    if (!VECTORS) {
        const int bytes = min((channels_left * bits + 7) / 8, bits);
        for (int i = 0; i < bytes; i++)
            to[i] = (u8)(i < 8 ? p.low >> 8 * i : p.high >> 8 * (i - 8));
    } else if (bits == 1)
        *to = (u8)p.low;
    else if (bits == 2)
        *(u16 *)to = (u16)p.low;
    else if (bits == 4)
        *(u32 *)to = (u32)p.low;
    else if (bits == 8)
        *(u64 *)to = p.low;
    else
        *(ulonglong2 *)to = make_ulonglong2(p.low, p.high);
}

template <bool VECTORS> __device__ __forceinline__ Places load_places(const u8 *from, int bits, int channels_left) {
    Places p = {0, 0};
    if (!VECTORS) {
        const int bytes = min((channels_left * bits + 7) / 8, bits);
        for (int i = 0; i < bytes; i++)
            if (i < 8)
                p.low |= (u64)from[i] << 8 * i;
            else
                p.high |= (u64)from[i] << 8 * (i - 8);
    } else if (bits == 1)
        p.low = *from;
    else if (bits == 2)
        p.low = *(const u16 *)from;
    else if (bits == 4)
        p.low = *(const u32 *)from;
    else if (bits == 8)
        p.low = *(const u64 *)from;
    else {
        const ulonglong2 both = *(const ulonglong2 *)from;
        p.low = both.x, p.high = both.y;
    }
    return p;
}

// train/graph/op.c's number for kernels that are known.
template <int KERNEL> constexpr int known_bits = KERNEL == 2 ? 2 : 4;

// ---- kernels ----

struct Greatest {
    float best[OCTET];
    u32 place[OCTET];
};

// Of equal values the first counts, NaN always, as in PyTorch.
__device__ __forceinline__ void see(Greatest &g, const float (&x)[OCTET], u32 here, bool is_there) {
#pragma unroll
    for (int i = 0; i < OCTET; i++) {
        const bool more = is_there && (x[i] > g.best[i] || x[i] != x[i]);
        g.best[i] = more ? x[i] : g.best[i];
        g.place[i] = more ? here : g.place[i];
    }
}

// A window of K x K. A line's values are on their way together; what is outside is read within, and does not count.
template <comet_dtype D, int K>
__device__ __forceinline__ void see_window(const PoolMap &m, const PoolPlace &p, const void *x, int top, int left,
                                           Greatest &g) {
#pragma unroll
    for (int i = 0; i < K; i++) {
        float v[K][OCTET];
        const int row = min(max(top + i, 0), m.down.in - 1);
#pragma unroll
        for (int j = 0; j < K; j++)
            load_vector<D, OCTET>(x, input_at(m, p, row, min(max(left + j, 0), m.right.in - 1)), v[j]);
#pragma unroll
        for (int j = 0; j < K; j++)
            see(g, v[j], (u32)(i * K + j), row == top + i && (u32)(left + j) < (u32)m.right.in);
    }
}

template <comet_dtype D, bool VECTORS>
__device__ __forceinline__ void see_any_window(const PoolMap &m, const PoolPlace &p, const void *x, int top, int left,
                                               Greatest &g) {
    const Range rows = {max(top, 0), min(top + m.down.kernel, m.down.in)},
                columns = {max(left, 0), min(left + m.right.kernel, m.right.in)};
    for (int row = rows.from; row < rows.to; row++)
        for (int column = columns.from; column < columns.to; column++) {
            float v[OCTET];
            load_some<D, OCTET>(x, input_at(m, p, row, column), (u64)(m.channels - p.channel), VECTORS, v);
            see(g, v, (u32)((row - top) * m.right.kernel + column - left), true);
        }
}

// K: of the kernel, 0: any.
template <comet_dtype D, int K, bool VECTORS>
__global__ static void __launch_bounds__(THREADS) max_pool_kernel(PoolMap m, const void *x, void *y, u8 *places) {
    const u32 item = (u32)thread_of_grid();
    if (item >= m.items)
        return;
    const PoolPlace p = pool_place_of<OCTET>(m, item);
    const int top = p.row * m.down.stride - m.down.padding, left = p.column * m.right.stride - m.right.padding;
    const u32 first = (u32)(max(-top, 0) * m.right.kernel + max(-left, 0));
    Greatest g;
#pragma unroll
    for (int i = 0; i < OCTET; i++) {
        g.best[i] = -INFINITY;
        g.place[i] = first;
    }
    if constexpr (K > 0)
        see_window<D, K>(m, p, x, top, left, g);
    else
        see_any_window<D, VECTORS>(m, p, x, top, left, g);
    const u64 pixel = output_pixel(m, p, p.row, p.column);
    const int channels_left = m.channels - p.channel, bits = K > 0 ? known_bits<K> : m.bits;
    store_some<D, OCTET>(y, pixel * m.channels + p.channel, (u64)channels_left, VECTORS, g.best);
    if (!places)
        return;
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        g.place[i] = i < channels_left ? g.place[i] : 0;
    store_places<VECTORS>(places + places_at(m, pixel, p.channel, bits), pack(g.place, bits), bits, channels_left);
}

template <comet_dtype D, int K, bool VECTORS>
__global__ static void __launch_bounds__(THREADS)
    max_pool_back_kernel(PoolMap m, const void *dy, const u8 *places, void *dx) {
    const u32 item = (u32)thread_of_grid();
    if (item >= m.items)
        return;
    const PoolPlace p = pool_place_of<OCTET>(m, item);
    const Range rows = outputs_of(m.down, p.row), columns = outputs_of(m.right, p.column);
    const int channels_left = m.channels - p.channel, bits = K > 0 ? known_bits<K> : m.bits;
    float sums[OCTET] = {};
    for (int row = rows.from; row < rows.to; row++)
        for (int column = columns.from; column < columns.to; column++) {
            const u64 pixel = output_pixel(m, p, row, column);
            const Places chosen =
                load_places<VECTORS>(places + places_at(m, pixel, p.channel, bits), bits, channels_left);
            float v[OCTET];
            load_some<D, OCTET>(dy, pixel * m.channels + p.channel, (u64)channels_left, VECTORS, v);
            const int down = p.row + m.down.padding - row * m.down.stride,
                      right = p.column + m.right.padding - column * m.right.stride;
            const u32 here = (u32)(down * (K > 0 ? K : m.right.kernel) + right);
#pragma unroll
            for (int i = 0; i < OCTET; i++)
                sums[i] += place_in(chosen, i, bits) == here ? v[i] : 0.0f;
        }
    store_some<D, OCTET>(dx, input_at(m, p, p.row, p.column), (u64)channels_left, VECTORS, sums);
}

// ---- host ----

// Calls run(dtype, kernel or 0, whether there are vectors).
template <class Run> static cudaError_t with_kernel(const comet_cuda_pool *p, bool vectors, Run run) {
    return with_dtype(p->dtype, [&](auto d) {
        if (!vectors)
            return run(d, std::integral_constant<int, 0>(), std::false_type());
        if (p->kernel == 2)
            return run(d, std::integral_constant<int, 2>(), std::true_type());
        if (p->kernel == 3)
            return run(d, std::integral_constant<int, 3>(), std::true_type());
        return run(d, std::integral_constant<int, 0>(), std::true_type());
    });
}

cudaError_t comet_cuda_launch_max_pool(const comet_cuda_pool *pool, const void *x, void *y, uint8_t *places,
                                       cudaStream_t queue) {
    if (!can_pool(pool, OCTET, false))
        return cudaErrorInvalidValue;
    const PoolMap m = pool_map_of(pool, OCTET, false);
    return with_kernel(pool, has_vectors(pool->channels, OCTET, x, y, places), [&](auto d, auto k, auto vectors) {
        auto kernel = max_pool_kernel<decltype(d)::value, decltype(k)::value, decltype(vectors)::value>;
        return launch(kernel, blocks_for(m.items, THREADS), THREADS, queue, m, x, y, places);
    });
}

cudaError_t comet_cuda_launch_max_pool_back(const comet_cuda_pool *pool, const void *dy, const uint8_t *places,
                                            void *dx, cudaStream_t queue) {
    if (!can_pool(pool, OCTET, true))
        return cudaErrorInvalidValue;
    const PoolMap m = pool_map_of(pool, OCTET, true);
    return with_kernel(pool, has_vectors(pool->channels, OCTET, dy, dx, places), [&](auto d, auto k, auto vectors) {
        auto kernel = max_pool_back_kernel<decltype(d)::value, decltype(k)::value, decltype(vectors)::value>;
        return launch(kernel, blocks_for(m.items, THREADS), THREADS, queue, m, dy, places, dx);
    });
}
