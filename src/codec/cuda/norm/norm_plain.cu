// SPDX-License-Identifier: Apache-2.0
// The forward pass of a batch normalisation without a stream: as fast as memory goes. And the tables that every pass
// reads.
#include "codec/cuda/norm/norm_launch.h"
#include "codec/cuda/values.cuh"

enum { NORM_PLAIN_THREADS = 256, NORM_PLAIN_UNROLL = 4 };

// One channel for many values.
struct NormPlain {
    float scale, shift, gamma, beta;

    __device__ __forceinline__ void take(const NormTables &t, u32 channel) {
        scale = __ldg(t.scale + channel), shift = __ldg(t.shift + channel);
        gamma = __ldg(t.gamma + channel), beta = __ldg(t.beta + channel);
    }
    template <bool ADDS> __device__ __forceinline__ float y(float x, float add, float floor) const {
        const float u = __fmaf_rn(scale, x, shift);
        return ADDS ? norm_y_added(u, gamma, beta, add, floor) : norm_y(u, gamma, beta, floor);
    }
};

// y of a vector; channel(i) gives the NormPlain of value i.
template <comet_dtype D, bool ADDS, class Channel>
__device__ __forceinline__ uint4 norm_vector(uint4 x, uint4 add, float floor, Channel channel) {
    const u32 from[4] = {x.x, x.y, x.z, x.w}, more[4] = {add.x, add.y, add.z, add.w};
    u32 to[4];
#pragma unroll
    for (int i = 0; i < vector_values<D>; i++) {
        const float z = ADDS ? float_of<D>(pattern_in<D>(more, i)) : 0.0f;
        put_pattern<D>(to, i,
                       pattern_for<D>(channel(i).template y<ADDS>(float_of<D>(pattern_in<D>(from, i)), z, floor)));
    }
    return make_uint4(to[0], to[1], to[2], to[3]);
}

// Channels last, a multiple of a vector: a thread's channels stay the same while it goes down the positions.
template <int DTYPE, bool ADDS>
__global__ void __launch_bounds__(NORM_PLAIN_THREADS) norm_striped_kernel(const __grid_constant__ NormPlainArgs args) {
    constexpr comet_dtype D = (comet_dtype)DTYPE;
    const u32 down = threadIdx.x / args.a_row, across = threadIdx.x - down * args.a_row;
    const u32 column = blockIdx.y * args.a_row + across;
    if (down >= args.a_step || column >= args.length)
        return;
    NormPlain channels[vector_values<D>];
#pragma unroll
    for (int i = 0; i < vector_values<D>; i++)
        channels[i].take(args.tables, vector_values<D> * column + i);
    auto channel = [&](int i) { return channels[i]; };
    const u64 first = (u64)blockIdx.x * args.a_walk, end = min(first + args.a_walk, args.rows);
    const u64 step = (u64)args.a_step * args.length;
    u64 row = first + down;
    u64 at = row * args.length + column;
    for (; row < end; row += NORM_PLAIN_UNROLL * args.a_step, at += NORM_PLAIN_UNROLL * step) {
        const uint4 *x = (const uint4 *)args.x + at, *add = (const uint4 *)args.add + at;
        uint4 v[NORM_PLAIN_UNROLL], z[NORM_PLAIN_UNROLL] = {};
#pragma unroll
        for (int i = 0; i < NORM_PLAIN_UNROLL; i++)
            if (row + i * args.a_step < end) {
                v[i] = __ldcs(x + i * step);
                if (ADDS)
                    z[i] = __ldcs(add + i * step);
            }
#pragma unroll
        for (int i = 0; i < NORM_PLAIN_UNROLL; i++)
            if (row + i * args.a_step < end)
                __stcs((uint4 *)args.y + at + i * step, norm_vector<D, ADDS>(v[i], z[i], args.tables.floor, channel));
    }
}

// Which channel a value has, counted from a block's first.
struct NormPlace {
    const ChannelMap &map;
    u32 rest, first;

    __device__ __forceinline__ NormPlace(const ChannelMap &m, u64 start) : map(m) {
        rest = first = 0;
        if (map.channels == 1)
            return;
        u64 run = map.by_inner.divisor > 1 ? map.long_by_inner(start, &rest) : start;
        map.long_by_channels(run, &first);
    }
    // Runs of one channel up to there. Where maps are not near, one is far longer than a block.
    __device__ __forceinline__ u32 run(u32 offset) const {
        return map.is_near ? map.by_inner(rest + offset) : rest + offset >= map.by_inner.divisor;
    }
    __device__ __forceinline__ u32 channel(u32 runs) const {
        if (map.channels == 1)
            return 0;
        u64 sum = (u64)first + runs;
        return map.is_near ? (u32)sum - map.by_channels((u32)sum) * map.channels
                           : (u32)(sum >= map.channels ? sum - map.channels : sum);
    }
};

// The channels of a vector's values where maps are not shorter than it: one, or two if a map ends in it.
template <u32 VALUES> struct NormRuns {
    NormPlain first, second;
    u32 room; // so many values have the first one

    __device__ __forceinline__ NormRuns(const NormTables &tables, const NormPlace &place, u32 at) {
        const u32 run = place.run(at), end = place.run(at + VALUES - 1);
        first.take(tables, place.channel(run));
        second = first, room = VALUES;
        if (place.map.channels > 1 && run != end) {
            second.take(tables, place.channel(end));
            room = (run + 1) * place.map.by_inner.divisor - place.rest - at;
        }
    }
    __device__ __forceinline__ NormPlain of(u32 value) const {
        return value < room ? first : second;
    }
};

// Any layout: values one after the other.
template <int DTYPE, bool ADDS>
__global__ void __launch_bounds__(NORM_PLAIN_THREADS) norm_linear_kernel(const __grid_constant__ NormPlainArgs args) {
    constexpr comet_dtype D = (comet_dtype)DTYPE;
    constexpr u32 VALUES = vector_values<D>, A_BLOCK = NORM_PLAIN_THREADS * NORM_PLAIN_UNROLL * VALUES;
    const u64 start = (u64)blockIdx.x * A_BLOCK;
    const NormPlace place(args.map, start);
    const float floor = args.tables.floor;
    const bool is_short = args.map.by_inner.divisor < VALUES && args.map.channels > 1;
    uint4 v[NORM_PLAIN_UNROLL], z[NORM_PLAIN_UNROLL] = {};
#pragma unroll
    for (u32 i = 0; i < NORM_PLAIN_UNROLL; i++) {
        u32 at = VALUES * (i * NORM_PLAIN_THREADS + threadIdx.x);
        if (start + at + VALUES <= args.count) {
            v[i] = __ldcs((const uint4 *)((const pattern_of<D> *)args.x + start + at));
            if (ADDS)
                z[i] = __ldcs((const uint4 *)((const pattern_of<D> *)args.add + start + at));
        }
    }
#pragma unroll
    for (u32 i = 0; i < NORM_PLAIN_UNROLL; i++) {
        const u32 at = VALUES * (i * NORM_PLAIN_THREADS + threadIdx.x);
        uint4 *y = (uint4 *)((pattern_of<D> *)args.y + start + at);
        NormPlain n;
        if (start + at + VALUES <= args.count && is_short) {
            __stcs(y, norm_vector<D, ADDS>(v[i], z[i], floor, [&](u32 e) {
                       n.take(args.tables, place.channel(place.run(at + e)));
                       return n;
                   }));
        } else if (start + at + VALUES <= args.count) {
            const NormRuns<VALUES> runs(args.tables, place, at);
            __stcs(y, norm_vector<D, ADDS>(v[i], z[i], floor, [&](u32 e) { return runs.of(e); }));
        } else {
            for (u32 e = 0; e < VALUES && start + at + e < args.count; e++) {
                n.take(args.tables, place.channel(place.run(at + e)));
                const float add = ADDS ? load_value<D>(args.add, start + at + e) : 0.0f;
                store_value<D>(args.y, start + at + e,
                               n.template y<ADDS>(load_value<D>(args.x, start + at + e), add, floor));
            }
        }
    }
}

// A thread a channel.
static __global__ void __launch_bounds__(NORM_PLAIN_THREADS)
    norm_prepare_kernel(const __grid_constant__ NormPrepareArgs args) {
    u32 c = blockIdx.x * NORM_PLAIN_THREADS + threadIdx.x;
    if (c < args.channels)
        norm_prepare(args, c, args.mean[c], args.inverse_std[c], args.gamma[c], args.beta[c]);
}

// ---- launching ----

// How threads lie on positions and vectors, and how far they go down.
static void set_stripes(NormPlainArgs *a, u32 *columns) {
    *columns = (a->length + NORM_PLAIN_THREADS - 1) / NORM_PLAIN_THREADS;
    a->a_row = (a->length + *columns - 1) / *columns;
    a->a_step = NORM_PLAIN_THREADS / a->a_row;
    u64 steps = (a->rows + a->a_step - 1) / a->a_step * *columns, share = steps / eb_resident_blocks(16);
    a->a_walk = a->a_step * (share < 1 ? 1 : share > 16 ? 16 : share);
}

static cudaError_t launch_striped(comet_dtype dtype, NormPlainArgs a, cudaStream_t queue) {
    u32 columns;
    set_stripes(&a, &columns);
    dim3 blocks((unsigned)((a.rows + a.a_walk - 1) / a.a_walk), columns), threads((a.a_row * a.a_step + 31) / 32 * 32);
    return with_dtype(dtype, [&](auto d) {
        return a.add ? launch(norm_striped_kernel<d.value, true>, blocks, threads, queue, a)
                     : launch(norm_striped_kernel<d.value, false>, blocks, threads, queue, a);
    });
}

cudaError_t comet_norm_launch_plain(comet_dtype dtype, const NormPlainArgs &args, cudaStream_t queue) {
    if (args.length)
        return launch_striped(dtype, args, queue);
    u64 values = (u64)NORM_PLAIN_THREADS * NORM_PLAIN_UNROLL * (16 / comet_dtype_size(dtype));
    dim3 blocks((unsigned)((args.count + values - 1) / values));
    return with_dtype(dtype, [&](auto d) {
        return args.add ? launch(norm_linear_kernel<d.value, true>, blocks, NORM_PLAIN_THREADS, queue, args)
                        : launch(norm_linear_kernel<d.value, false>, blocks, NORM_PLAIN_THREADS, queue, args);
    });
}

cudaError_t comet_norm_launch_prepare(const NormPrepareArgs &args, cudaStream_t queue) {
    dim3 blocks((args.channels + NORM_PLAIN_THREADS - 1) / NORM_PLAIN_THREADS);
    return launch(norm_prepare_kernel, blocks, NORM_PLAIN_THREADS, queue, args);
}
