// SPDX-License-Identifier: Apache-2.0
// The backward pass of a batch normalisation: numbers of channels, and the values of a tile.
//
// All is done with w, which is u with the sign of gamma: a channel is on above its threshold then, and no rounding
// changes.
#ifndef COMET_CODEC_CUDA_NORM_VALUES_CUH
#define COMET_CODEC_CUDA_NORM_VALUES_CUH

#include "codec/cuda/eb/eb_decompress.cuh"
#include "codec/cuda/norm/norm_args.cuh"

// Numbers of a channel: w = fma(m, scale, shift), m being 2 q + 1 of a code q, or x; dx = fma(of_dz, dz, fma(of_w, w,
// constant)).
enum NormNumber { NORM_SCALE, NORM_SHIFT, NORM_THRESHOLD, NORM_OF_DZ, NORM_OF_W, NORM_CONSTANT, NORM_NUMBERS };

struct NormBackwardShared {
    DecompressShared codec;
    // Of the channels of each warp's 32 lanes, which stay the same from tile to tile where channels come last. Kept
    // here: they are not needed while a tile is decoded.
    alignas(16) float numbers[NORM_NUMBERS][BLOCK_THREADS];
    float2 sums[BLOCK_THREADS];
};

// ---- numbers of channels ----

template <int FROM, int PASS>
__device__ __forceinline__ void norm_numbers(const NormBackwardArgs &args, const quantiser_class &c, u32 channel,
                                             float (&n)[NORM_NUMBERS]) {
    const NormTables &t = args.tables;
    float sign = __ldg(t.gamma + channel) < 0.0f ? -1.0f : 1.0f, threshold = __ldg(t.threshold + channel);
    float scale = FROM == NORM_FROM_X ? __ldg(t.scale + channel) : __fmul_rn(0.5f, c.step);
    float shift = FROM == NORM_FROM_X ? __ldg(t.shift + channel) : quantiser_grid(&c, threshold, 1.0f).remainder;
    n[NORM_SCALE] = __fmul_rn(sign, scale);
    n[NORM_SHIFT] = __fmul_rn(sign, shift);
    n[NORM_THRESHOLD] = __fmul_rn(sign, threshold);
    if (PASS == NORM_DX) {
        float4 k = __ldg(args.sums.coefficients + channel);
        n[NORM_OF_DZ] = k.x, n[NORM_OF_W] = k.y, n[NORM_CONSTANT] = k.z;
    }
}

// Those of a thread's channels.
template <int REACH, int FROM, int PASS> struct NormBackwardFew {
    static constexpr int COUNT = PASS == NORM_DX ? NORM_NUMBERS : NORM_OF_DZ;
    float of[NORM_SETS<REACH>][NORM_NUMBERS];

    __device__ __forceinline__ void load(const NormBackwardArgs &args, const NormBackwardShared &shared,
                                         const NormSets<REACH> &sets, u32 lane) {
        const u32 first = threadIdx.x & ~31u;
#pragma unroll
        for (int i = 0; i < COUNT && REACH == REACH_LAST4; i++) {
            float4 q = ((const float4 *)(shared.numbers[i] + first))[lane & 7];
            of[0][i] = q.x, of[NORM_SETS<REACH> / 4][i] = q.y;
            of[NORM_SETS<REACH> / 2][i] = q.z, of[NORM_SETS<REACH> - 1][i] = q.w;
        }
#pragma unroll
        for (int i = 0; i < COUNT && REACH == REACH_LAST1; i++)
            of[0][i] = shared.numbers[i][threadIdx.x];
        if (!reach_is_last(REACH))
            norm_numbers<FROM, PASS>(args, shared.codec.q.classes[0], sets.channel[0], of[0]);
    }
    __device__ __forceinline__ float operator()(int number, int c) const {
        return of[c][number];
    }
};

// This thread's lane of the tile, as its warp's number in the table says.
template <int REACH, int FROM, int PASS>
__device__ __forceinline__ void norm_keep_numbers(const NormBackwardArgs &args, NormBackwardShared &shared, u32 tile,
                                                  u32 lane) {
    const Geometry &g = args.codec.geometry;
    if (!reach_is_last(REACH) || tile >= g.tiles)
        return;
    float n[NORM_NUMBERS];
    u32 channel = lane_start<REACH>(g, tile_start<REACH>(g, tile), lane).channel;
    norm_numbers<FROM, PASS>(args, shared.codec.q.classes[0], channel, n);
#pragma unroll
    for (int i = 0; i < (PASS == NORM_DX ? NORM_NUMBERS : NORM_OF_DZ); i++)
        shared.numbers[i][threadIdx.x] = n[i];
    __syncwarp();
}

// ---- codes to m ----

// 2 q + 1 of byte K of biased codes: 2^16 + 2 (q + 128) is built in the bits of a float.
template <int K> __device__ __forceinline__ float norm_odd(u32 word) {
    return __fadd_rn(__uint_as_float(permute<0x7604 | K << 4>(word, 0x47800000u)), -65791.0f);
}

__device__ __forceinline__ float norm_odd_at(u32 word, int byte) {
    return byte == 0   ? norm_odd<0>(word)
           : byte == 1 ? norm_odd<1>(word)
           : byte == 2 ? norm_odd<2>(word)
                       : norm_odd<3>(word);
}

// Narrow codes of a tile as words, one byte a value (word_of, byte_of). False: it is of another form, or not valid.
template <int REACH>
__device__ __forceinline__ bool norm_decode(const quantiser &q, const TileSource &source, u32 lane, u32 (&words)[8]) {
    const u32 size = source.entry & ENTRY_SIZE_MASK;
    u32 u[8];
    if (!source.is_stageable)
        return false;
    if (size) {
        u32 at = stage_tile(source.from, size, source.unit, lane, source.stage);
        TileHead head =
            tile_head(__reduce_max_sync(ALL_LANES, source.stage[at])); // so that branches on it are the warp's
        if (head.class_index != 0 || q.classes[0].step == 0.0f ||
            !decode_narrow<REACH>(source.stage, at, size, head, lane, source.columns, u))
            return false;
        __syncwarp(); // the stage has been read
    } else {
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = SIGN_BITS;
    }
    exchange_back<REACH>(u, lane, (u32 *)source.stage, words);
    return true;
}

// ---- any tile, value by value ----

// u of every value; false if the tile is not valid.
template <int REACH, int DTYPE, int FROM>
__device__ __forceinline__ bool norm_values(const NormBackwardArgs &args, const quantiser &q, const TileSource &source,
                                            u32 tile, const TileStart &s, u32 lane, float (&u)[8][4]) {
    const DecompressArgs &codec = args.codec;
    u32 p[8][4], real;
    if (FROM == NORM_FROM_STREAM) {
        Restorer<COMET_F32> restorer = {codec, {}};
        u32 codes[8];
        TileForm form = decode_tile<REACH, COMET_F32, RESTORE_ANY>(restorer, q, source, tile, s, lane, codes, p);
        if (form == FORM_NARROW)
            narrow_patterns<REACH, COMET_F32>(restorer, tile, s, lane, codes, (u32 *)source.stage, p);
        __syncwarp();
        if (form == FORM_BAD)
            return false;
#pragma unroll
        for (int i = 0; i < 32; i++)
            u[i / 4][i % 4] = __uint_as_float(p[i / 4][i % 4]);
        return true;
    }
    load_patterns<REACH, DTYPE>(args.x, codec.geometry, tile, s, lane, p, real);
    const TileChannels<REACH> channels(codec.channel_map, codec.geometry, s, lane);
    for_pieces<REACH>(codec.geometry, tile, s, lane, [&](int a, int e, u64 index, u64) {
#pragma unroll
        for (int i = 0; i < reach_width(REACH); i++) {
            bool is_real = real >> (4 * a + e + i) & 1;
            u32 channel = is_real ? channels.of(e + i, index + i) : 0;
            u[a][e + i] = is_real ? __fmaf_rn(__ldg(args.tables.scale + channel), float_of_pattern<DTYPE>(p[a][e + i]),
                                              __ldg(args.tables.shift + channel))
                                  : 0.0f;
        }
    });
    return true;
}

// Calls visit(a, e, channel, w, dz) for every value that is not padding.
template <int REACH, int DTYPE, class Visit>
__device__ __forceinline__ void norm_gradients(const NormBackwardArgs &args, u32 tile, const TileStart &s, u32 lane,
                                               const float (&u)[8][4], Visit visit) {
    const DecompressArgs &codec = args.codec;
    u32 p[8][4], real;
    load_patterns<REACH, DTYPE>(args.dy, codec.geometry, tile, s, lane, p, real);
    const TileChannels<REACH> channels(codec.channel_map, codec.geometry, s, lane);
    for_pieces<REACH>(codec.geometry, tile, s, lane, [&](int a, int e, u64 index, u64) {
#pragma unroll
        for (int i = 0; i < reach_width(REACH); i++) {
            if (!(real >> (4 * a + e + i) & 1))
                continue;
            u32 channel = channels.of(e + i, index + i);
            float gamma = __ldg(args.tables.gamma + channel), value = u[a][e + i];
            bool is_off = norm_is_off(value, __ldg(args.tables.threshold + channel), gamma);
            visit(a, e + i, channel, gamma < 0.0f ? -value : value,
                  is_off ? 0.0f : float_of_pattern<DTYPE>(p[a][e + i]));
        }
    });
}

#endif
