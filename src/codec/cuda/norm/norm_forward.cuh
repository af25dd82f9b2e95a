// SPDX-License-Identifier: Apache-2.0
// The forward pass of a batch normalisation that keeps a stream: each tile is normalised, written as y and compressed,
// all while its values are in registers.
#ifndef COMET_CODEC_CUDA_NORM_FORWARD_CUH
#define COMET_CODEC_CUDA_NORM_FORWARD_CUH

#include "codec/cuda/eb/eb_compress.cuh"
#include "codec/cuda/norm/norm_args.cuh"

// Writes y of a tile without padding.
template <int REACH, int DTYPE> struct NormLook {
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

// The same in the order of memory.
template <int DTYPE> struct NormQuads {
    struct Quad {};
    void *y;
    float floor;

    __device__ __forceinline__ void load(Quad &, u64) const {}
    __device__ __forceinline__ float of(const Quad &, int, float u, const float4 &others) const {
        return __fmaf_rn(others.x, u, others.y);
    }
    __device__ __forceinline__ void put(const float (&v)[4], u64 index, u32 mine) const {
        u32 w[PIECE_WORDS<DTYPE>];
#pragma unroll
        for (int e = 0; e < 4; e++)
            put_value_clamped<REACH_FLAT, DTYPE>(w, e, v[e], floor);
        put_quad<DTYPE>(y, index, w, mine);
    }
};

// The observer of compress_group.
template <int DTYPE> struct NormForward {
    static constexpr int LOADS = LOAD_ONCE, TABLES = 2;
    const NormForwardArgs &args;

    template <int REACH, int UNUSED, bool PADDED>
    __device__ __forceinline__ NormLook<REACH, DTYPE> at(const Geometry &, u32, const TileStart &, u32) const {
        return {args.y, args.tables.floor, {}};
    }
    __device__ __forceinline__ float2 numbers(u32 channel, float gamma) const { // which is the grid's slope
        return make_float2(gamma, __ldg(args.tables.beta + channel));
    }

    typedef NormQuads<DTYPE> Quads;
    __device__ __forceinline__ Quads quads() const {
        return {args.y, args.tables.floor};
    }

    __device__ __forceinline__ void value(u64 index, u32 channel, float u) const {
        const float y =
            norm_y(u, __ldg(args.tables.gamma + channel), __ldg(args.tables.beta + channel), args.tables.floor);
        ((typename Pattern<DTYPE>::Word *)args.y)[index] = (typename Pattern<DTYPE>::Word)pattern_of_float<DTYPE>(y);
    }
};

constexpr int norm_forward_blocks(int reach, int dtype) { // on a multiprocessor
    return reach == REACH_LAST4 && dtype != COMET_F32 ? 4 : 3;
}

template <int REACH, int DTYPE>
__global__ void __launch_bounds__(BLOCK_THREADS, norm_forward_blocks(REACH, DTYPE))
    norm_forward_kernel(const __grid_constant__ NormForwardArgs args) {
    __shared__ CompressShared shared;
    compress_group<REACH, DTYPE, REACH == REACH_LAST1 ? MODE_ANY : MODE_GRID>(args.codec, shared,
                                                                              NormForward<DTYPE>{args});
}

#endif
