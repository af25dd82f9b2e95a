// SPDX-License-Identifier: Apache-2.0
// Batch normalisation beside the codec: what the kernels are called with, and the arithmetic of comet/cuda_norm.h.
#ifndef COMET_CODEC_CUDA_NORM_ARGS_CUH
#define COMET_CODEC_CUDA_NORM_ARGS_CUH

#include "codec/cuda/eb/eb_args.cuh"

enum NormFrom { NORM_FROM_STREAM, NORM_FROM_X };
enum NormPass { NORM_SUMS, NORM_DX };

// Blocks on a multiprocessor.
constexpr int norm_backward_blocks(int from) {
    return from == NORM_FROM_STREAM ? 3 : 2; // two tensors in flight
}

// A layer's tables, in device memory.
struct NormTables {
    const float *scale, *shift, *threshold, *gamma, *beta;
    float floor; // 0 with a ReLU, else -Inf: y is never below
};

struct NormForwardArgs {
    CompressArgs codec; // geometry and channel map without a stream too
    NormTables tables;
    void *y;
};

// Without a stream: every position is `length` vectors; a block walks down `a_walk` positions, `a_step` at a time,
// `a_row` vectors wide. Or, where that does not work out, values one after the other.
struct NormPlainArgs {
    const void *x;
    void *y;
    NormTables tables;
    u64 rows, a_walk;
    u32 length, a_row, a_step;
    u64 count;
    ChannelMap map;
};

struct NormPrepareArgs {
    const float *mean, *inverse_std, *gamma, *beta;
    float *shift, *threshold;
    u32 channels, relu;
};

// How the sums of a channel are put together from those of blocks (channels last) or tiles.
struct NormSums {
    float2 *partial;      // {sum dz, sum dz * w} where channels come last, else {sum dz, sum dz * u}
    float4 *coefficients; // of dx by channel: {of dz, of w, constant, 0}
    float *dgamma, *dbeta;
    u64 entries; // channels last: partial sums in all; number j belongs to channel j mod C
    u32 slots;   // else: sums of a tile, one for each map that it may touch,
    u32 a_map;   // and the most tiles that a map touches
    u64 samples;
    u32 channels;
    double count; // values of a channel
};

struct NormBackwardArgs {
    DecompressArgs codec; // geometry and channel map without a stream too
    NormTables tables;
    const void *x, *dy;
    void *dx;
    NormSums sums;
};

// ---- one channel ----

// An upper value is one above `edge`; a channel is on above it, or below if gamma is negative.
struct NormChannel {
    float scale, shift, threshold, gamma, beta;

    __device__ __forceinline__ bool has_threshold() const {
        return threshold == threshold;
    }
    __device__ __forceinline__ bool is_negative() const {
        return gamma < 0.0f && has_threshold();
    }
    __device__ __forceinline__ float edge() const {
        return !has_threshold() ? -INFINITY : is_negative() ? quantiser_number_before(threshold) : threshold;
    }
};

__device__ __forceinline__ NormChannel norm_channel(const NormTables &t, u32 channel) {
    NormChannel n = {__ldg(t.scale + channel), __ldg(t.shift + channel), __ldg(t.threshold + channel),
                     __ldg(t.gamma + channel), __ldg(t.beta + channel)};
    return n;
}

// Any u, NaN and infinities included.
__device__ __forceinline__ bool norm_is_off(float u, float threshold, float gamma) {
    return gamma < 0.0f ? u >= threshold : u <= threshold;
}

// Not below the floor; a NaN stays one.
__device__ __forceinline__ float norm_clamp(float y, float floor) {
#ifdef COMET_CUDA_EMULATION
    return y < floor ? floor : y;
#else
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(y), "f"(floor));
    return r;
#endif
}

__device__ __forceinline__ float norm_y(float u, const NormChannel &n, float floor) {
    float y = norm_clamp(__fmaf_rn(n.gamma, u, n.beta), floor);
    return norm_is_off(u, n.threshold, n.gamma) ? 0.0f : y;
}

// ---- the channels of a tile ----

// Channels whose numbers a thread has at hand: four side by side, or one; where maps come last, that of the piece it is
// at.
template <int REACH> constexpr int NORM_SETS = REACH == REACH_LAST4 ? 4 : 1;

// Units of a thread's values where maps come last: columns of the four rows of a band, as wide as a piece. If maps have
// whole bands a unit lies in one map, else in up to two, the second of which has the last rows.
template <int REACH>
constexpr int NORM_UNITS = reach_is_last(REACH)  ? 1
                           : REACH == REACH_FLAT ? 8
                                                 : 8 / reach_width(REACH);

template <int REACH> __device__ __forceinline__ constexpr int norm_unit(int a, int e) {
    return REACH == REACH_FLAT ? a : a / 4 * (4 / reach_width(REACH)) + e / reach_width(REACH);
}

// For tiles without padding.
template <int REACH> struct NormSets {
    bool few;      // else look up every value's channel
    bool is_whole; // units lie in one map
    u32 channel[NORM_SETS<REACH>];
    TileChannels<REACH> tile;

    __device__ __forceinline__ NormSets(const ChannelMap &map, const Geometry &g, const TileStart &s, u32 lane)
        : tile(map, g, s, lane) {
        few = is_whole = true;
        channel[0] = 0;
        if (reach_is_last(REACH)) {
#pragma unroll
            for (int i = 0; i < NORM_SETS<REACH>; i++)
                channel[i] = tile.first + i;
            return;
        }
        if (map.channels == 1)
            return;
        // a piece lies in one map, and a band in at most two
        few = map.is_near && (REACH == REACH_FLAT ? map.by_inner.divisor % 4 == 0 : map.by_inner.divisor >= 4 * g.row);
        is_whole = map.has_bands;
    }

    // Before a piece, in the order of for_pieces; true: there is another channel now.
    __device__ __forceinline__ bool turn(int a, u64 index) {
        if (reach_is_last(REACH) || !(REACH == REACH_FLAT || a % 4 == 0 || !is_whole))
            return false;
        channel[0] = tile.of(0, index);
        return true;
    }

    // Which of the channels a piece's value e has.
    __device__ __forceinline__ int of(int e) const {
        return REACH == REACH_LAST4 ? e : 0;
    }
};

// Loads of a thread's channels; `table` as far as its sets go.
template <int REACH>
__device__ __forceinline__ void norm_load(const float *table, const NormSets<REACH> &sets,
                                          float (&v)[NORM_SETS<REACH>]) {
    if constexpr (REACH == REACH_LAST4) {
        float4 q = __ldg((const float4 *)(table + sets.channel[0]));
        v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
    } else {
#pragma unroll
        for (int i = 0; i < NORM_SETS<REACH>; i++)
            v[i] = __ldg(table + sets.channel[i]);
    }
}

#endif
