// SPDX-License-Identifier: Apache-2.0
// The backward pass of a batch normalisation where a tile's values come in the order of memory: quads, which lie in one
// map or two, and the rests that borders of maps cut off them.
#ifndef COMET_CODEC_CUDA_NORM_QUADS_CUH
#define COMET_CODEC_CUDA_NORM_QUADS_CUH

#include "codec/cuda/norm/norm_sums.cuh"
#include "codec/cuda/tile/quads.cuh"

// Maps whose rests a lane has: a tile has TABLE_MAPS at most.
enum { NORM_RESTS = TABLE_MAPS / 32 };

// What four values are made of.
template <int DTYPE, int FROM> struct NormQuad {
    u32 m[FROM == NORM_FROM_STREAM ? 1 : PIECE_WORDS<DTYPE>]; // a word of codes, or x
    u32 dy[PIECE_WORDS<DTYPE>];

    // m of a value.
    template <int FORM> __device__ __forceinline__ float at(int e) const {
        if constexpr (FROM == NORM_FROM_X)
            return piece_value<DTYPE>(m, e);
        else
            return FORM == FORM_GRID ? fine_float(m[0] - 0x40404040u, e)
                                     : __fadd_rn(coarse_float(m[0], e), QUANTISER_GRID_BIAS - 32896.0f);
    }

    // w and dz of a value, if it is `mine`, else zeros; n: numbers of its channel.
    template <int FORM, int PASS> __device__ __forceinline__ float2 value(int e, const float4 &n, bool mine) const {
        const float w = __fmaf_rn(at<FORM>(e), n.x, n.y);
        const bool is_off = PASS != NORM_MASKED_SUMS && w <= n.z;
        // from codes w is a number in any case, and so is 0 * w
        return make_float2(FROM == NORM_FROM_STREAM || mine ? w : 0.0f,
                           is_off || !mine ? 0.0f : piece_value<DTYPE>(dy, e));
    }

    // The sums of the values before `end`.
    template <int FORM, int PASS> __device__ __forceinline__ float2 sum_before(const float4 &n, u32 end) const {
        float2 all = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 v = value<FORM, PASS>(e, n, e == 0 || (u32)e < end);
            norm_count(all, v.y, v.x);
        }
        return all;
    }

    // The sums of the values from `begin` on, which is not the first.
    template <int FORM, int PASS> __device__ __forceinline__ float2 sum_from(const float4 &n, u32 begin) const {
        float2 all = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int e = 1; e < 4; e++) {
            const float2 v = value<FORM, PASS>(e, n, e == 3 || (u32)e >= begin);
            norm_count(all, v.y, v.x);
        }
        return all;
    }

    // dx; k: {of dz, of w, constant, 0}
    template <int FORM, int PASS>
    __device__ __forceinline__ void dx(const float4 &n, const float4 &k, u32 (&out)[PIECE_WORDS<DTYPE>]) const {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 v = value<FORM, PASS>(e, n, true);
            put_value<REACH_FLAT, DTYPE>(out, e, __fmaf_rn(k.x, v.y, __fmaf_rn(k.y, v.x, k.z)));
        }
    }
};

// ---- from quads to maps ----

// Adds up sums of quads, first[..] up to end[0].
__device__ __forceinline__ float2 norm_add_run(float2 sum, const float2 *first, const float2 *end) {
#pragma unroll 1
    for (; first + 4 <= end; first += 4)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum = norm_add(sum, first[i]);
#pragma unroll
    for (int i = 0; i < 3; i++)
        if (first + i < end)
            sum = norm_add(sum, first[i]);
    return sum;
}

// The sum of a map's quads, partial[..], by 2^shift lanes, each of which adds up a run of them; `rest` is what its
// border cut off a quad, in the first of these lanes. All of them get the sum.
__device__ __forceinline__ float2 norm_map_sum(const float2 *partial, u32 begin, u32 end, u32 part, u32 shift,
                                               float2 rest) {
    const u32 first = (begin + 3) / 4, behind = (end + 3) / 4, count = behind > first ? behind - first : 0;
    const u32 run = (count + (1u << shift) - 1) >> shift, from = min(part * run, count);
    float2 sum = norm_add_run(rest, partial + first + from, partial + first + min(from + run, count));
#pragma unroll 1
    for (u32 d = 1; d < 1u << shift; d *= 2)
        sum = norm_add(sum, make_float2(__shfl_xor_sync(ALL_LANES, sum.x, d), __shfl_xor_sync(ALL_LANES, sum.y, d)));
    return sum;
}

// The sums of a tile's maps, {sum dz, sum dz * u}: each by as many lanes as there are for it, which add always in the
// same order. skip: see map_begin; span: values from the first quad on; rests: of this lane's maps, where it is the
// first lane of one.
__device__ __forceinline__ void norm_put_maps(const NormBackwardArgs &args, const float *table, u32 count, u32 skip,
                                              u32 span, u32 tile, u32 lane, const float2 *partial,
                                              const float2 (&rests)[NORM_RESTS]) {
    const ChannelMap &map = args.codec.channel_map;
    float2 *to = args.sums.partial + (u64)tile * args.sums.slots;
    const u32 shift = lanes_a_map(count), part = lane & ((1u << shift) - 1);
#pragma unroll
    for (u32 r = 0; r < NORM_RESTS; r++) {
        if (32 * r >= count)
            break;
        const u32 number = (lane >> shift) + 32 * r;
        const u32 begin = map_begin(map, skip, number), end = min(map_begin(map, skip, number + 1), span);
        float2 sum = norm_map_sum(partial, begin, number < count ? end : 0, part, shift, rests[r]);
        if (number < count && part == 0) {
            sum.y = __fmul_rn(sum.y, ((const float4 *)table)[number].w); // of u, not of w
            to[number] = sum;
        }
    }
}

#endif
