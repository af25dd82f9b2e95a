// SPDX-License-Identifier: Apache-2.0
// The backward pass of a batch normalisation: the sums dbeta and dgamma.
#ifndef COMET_CODEC_CUDA_NORM_SUMS_CUH
#define COMET_CODEC_CUDA_NORM_SUMS_CUH

#include "codec/cuda/norm/norm_values.cuh"

// Sums are {sum dz, sum dz * w}.
__device__ __forceinline__ void norm_count(float2 &sum, float dz, float w) {
    sum.x = __fadd_rn(sum.x, dz);
    sum.y = __fmaf_rn(dz, w, sum.y);
}

__device__ __forceinline__ float2 norm_add(float2 a, float2 b) {
    return make_float2(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y));
}

__device__ __forceinline__ float2 norm_warp_sum(float2 v) {
#pragma unroll
    for (int d = 16; d; d /= 2)
        v = norm_add(v, make_float2(__shfl_xor_sync(ALL_LANES, v.x, d), __shfl_xor_sync(ALL_LANES, v.y, d)));
    return v;
}

// ---- channels last: sums of a thread over all its tiles ----

// Channels whose sums a thread has: four side by side, or one.
template <int REACH> constexpr int NORM_SETS = REACH == REACH_LAST4 ? 4 : 1;

// Of rare tiles a lane has its own channel's.
struct NormRareLanes {
    float2 sum;

    __device__ __forceinline__ void next() const {}
    __device__ __forceinline__ void end() const {}
    __device__ __forceinline__ void value(const RarePlace &, u32, float w, float dz) {
        norm_count(sum, dz, w);
    }
};

// The sums of lane l of each tile: l is the thread's number in the warp then.
template <int REACH>
__device__ __forceinline__ void norm_lane_sums(float2 (&sums)[NORM_SETS<REACH>], float2 rare, u32 lane, float2 *to) {
    if constexpr (REACH == REACH_LAST4) {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int d = 8; d <= 16; d *= 2)
                sums[i] = norm_add(sums[i], make_float2(__shfl_xor_sync(ALL_LANES, sums[i].x, d),
                                                        __shfl_xor_sync(ALL_LANES, sums[i].y, d)));
        if (lane < 8)
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[4 * lane + i] = sums[i];
        __syncwarp();
        to[lane] = norm_add(to[lane], rare);
    } else {
        to[lane] = norm_add(sums[0], rare);
    }
}

// Lane l of a block belongs to channel (256 b + l) mod C. Fewer channels than lanes: one sum for each of them.
template <class Shared> __device__ __forceinline__ void norm_put_block(const NormBackwardArgs &args, Shared &shared) {
    auto sum_of = [&](u32 i) { return shared.sums_of(i >> 5)[i & 31]; };
    const u32 channels = args.codec.geometry.channels, thread = threadIdx.x;
    if (channels > BLOCK_THREADS) {
        args.sums.partial[(u64)blockIdx.x * BLOCK_THREADS + thread] = sum_of(thread);
        return;
    }
    if (thread >= channels)
        return;
    u32 base;
    args.codec.geometry.long_by_channels((u64)blockIdx.x * BLOCK_THREADS, &base);
    float2 sum = make_float2(0.0f, 0.0f);
    for (u32 i = thread >= base ? thread - base : thread + channels - base; i < BLOCK_THREADS; i += channels)
        sum = norm_add(sum, sum_of(i));
    args.sums.partial[(u64)blockIdx.x * channels + thread] = sum;
}

// ---- maps: sums of each tile, {sum dz, sum dz * u} ----

// Units of a thread's values: columns of the four rows of a band, as wide as a piece. If maps have whole bands a unit
// lies in one map, else in up to two, the second of which has the last rows.
template <int REACH> constexpr int NORM_UNITS = 8 / reach_width(REACH);

template <int REACH> __device__ __forceinline__ constexpr int norm_unit(int a, int e) {
    return a / 4 * (4 / reach_width(REACH)) + e / reach_width(REACH);
}

// Whether bands lie in at most two maps each.
__device__ __forceinline__ bool norm_has_units(const Geometry &g, const ChannelMap &map) {
    return map.by_inner.divisor >= 4 * g.row;
}

// A thread's sums by unit, for the up to two maps that a unit touches.
template <int REACH> struct NormUnits {
    float2 sums[NORM_UNITS<REACH>][2], piece;
    u32 map[NORM_UNITS<REACH>]; // of the first part, counted from the tile's first

    __device__ __forceinline__ NormUnits() {
        piece = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int u = 0; u < NORM_UNITS<REACH>; u++)
#pragma unroll
            for (int part = 0; part < 2; part++)
                sums[u][part] = piece;
    }

    // A piece of unit u, row k, has been added to `piece`; it lies in map `at`.
    __device__ __forceinline__ void take(int u, int k, u32 at, float sign) {
        if (k == 0)
            map[u] = at;
        float2 &sum = sums[u][0], &second = sums[u][1];
        const bool is_second = k > 0 && at != map[u];
        piece.y = __fmul_rn(piece.y, sign); // of u, not of w
        if (is_second)
            second = norm_add(second, piece);
        else
            sum = norm_add(sum, piece);
        piece = make_float2(0.0f, 0.0f);
    }

    // The thread's sums for one map.
    __device__ __forceinline__ float2 of(u32 wanted) const {
        float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int u = 0; u < NORM_UNITS<REACH>; u++)
#pragma unroll
            for (int part = 0; part < 2; part++)
                if (map[u] + (u32)part == wanted)
                    sum = norm_add(sum, sums[u][part]);
        return sum;
    }
};

template <int REACH>
__device__ __forceinline__ void norm_put_units(const NormBackwardArgs &args, const TileMaps &maps, u32 tile, u32 lane,
                                               const NormUnits<REACH> &units) {
    float2 *to = args.sums.partial + (u64)tile * args.sums.slots;
#pragma unroll 1
    for (u32 map = 0; map < maps.count; map++) {
        const float2 sum = norm_warp_sum(units.of(map));
        if (lane == 0)
            to[map] = sum;
    }
}

// Of rare tiles: 32 values at a time, map by map, added to what is there.
struct NormRareMaps {
    const ChannelMap &channels;
    TileMaps maps;
    float2 *to, mine;
    u32 map; // of this lane's value; NO_MAP: it has none

    static constexpr u32 NO_MAP = ~0u;

    __device__ __forceinline__ void next() {
        map = NO_MAP;
    }
    __device__ __forceinline__ void value(const RarePlace &place, u32, float w, float dz) {
        map = maps.is_one ? 0 : channels.by_inner(maps.skip + (u32)(place.index - maps.first));
        mine = make_float2(dz, __fmul_rn(dz, w));
    }
    __device__ __forceinline__ void end() {
        u32 left = __ballot_sync(ALL_LANES, map != NO_MAP);
        while (left) {
            const u32 first = __shfl_sync(ALL_LANES, map, __ffs((int)left) - 1);
            const bool is_it = map == first;
            const float2 sum = norm_warp_sum(is_it ? mine : make_float2(0.0f, 0.0f));
            if ((threadIdx.x & 31) == 0)
                to[first] = norm_add(to[first], sum);
            left &= ~__ballot_sync(ALL_LANES, is_it);
        }
    }
};

#endif
