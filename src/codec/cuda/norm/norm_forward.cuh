// SPDX-License-Identifier: Apache-2.0
// The forward pass of a batch normalisation that keeps a stream: each tile is normalised, written as y and compressed,
// all while its values are in registers.
#ifndef COMET_CODEC_CUDA_NORM_FORWARD_CUH
#define COMET_CODEC_CUDA_NORM_FORWARD_CUH

#include "codec/cuda/eb/eb_compress.cuh"
#include "codec/cuda/norm/norm_args.cuh"

// Writes y of a tile without padding.
template <int REACH, int DTYPE> struct NormLook {
    static constexpr int TABLES = 2;
    void *y;
    float floor;
    mutable u32 w[8][PIECE_WORDS<DTYPE>];

    // others: {gamma, beta, 0, 0}
    __device__ __forceinline__ void value(int a, int e, float u, const float4 &others) const {
        put_clamped<REACH, DTYPE>(w, a, e, __fmaf_rn(others.x, u, others.y), floor);
    }
    __device__ __forceinline__ void piece(int a, int e, u64 index) const {
        store_piece<REACH, DTYPE>(y, index, e, w[a]);
    }
};

// The observer of compress_group.
template <int DTYPE> struct NormForward {
    static constexpr int LOADS = LOAD_ONCE;
    const NormForwardArgs &args;

    template <int REACH, int UNUSED>
    __device__ __forceinline__ NormLook<REACH, DTYPE> at(const CompressArgs &codec, const TileStart &s, u32 lane,
                                                         float *table) const {
        TileMaps maps;
        make_table<REACH>(codec.geometry, codec.channel_map, s, lane, table, maps, [&](u32 channel) {
            return make_float4(__ldg(args.tables.gamma + channel), __ldg(args.tables.beta + channel), 0.0f, 0.0f);
        });
        return {args.y, args.tables.floor, {}};
    }

    __device__ __forceinline__ void value(u64 index, u32 channel, float u) const {
        const float y =
            norm_y(u, __ldg(args.tables.gamma + channel), __ldg(args.tables.beta + channel), args.tables.floor);
        ((typename Pattern<DTYPE>::Word *)args.y)[index] = (typename Pattern<DTYPE>::Word)pattern_of_float<DTYPE>(y);
    }
};

enum { NORM_FORWARD_BLOCKS = 3 }; // on a multiprocessor

template <int REACH, int DTYPE>
__global__ void __launch_bounds__(BLOCK_THREADS, NORM_FORWARD_BLOCKS)
    norm_forward_kernel(const __grid_constant__ NormForwardArgs args) {
    __shared__ CompressShared shared;
    compress_group<REACH, DTYPE, REACH == REACH_LAST1 ? MODE_ANY : MODE_GRID>(args.codec, shared,
                                                                              NormForward<DTYPE>{args});
}

#endif
