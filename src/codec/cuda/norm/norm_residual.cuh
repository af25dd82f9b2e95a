// SPDX-License-Identifier: Apache-2.0
// The forward pass of a batch normalisation that adds a tensor before the ReLU, or keeps a stream of y beside that of
// u (residual_keeps_y: where it does so itself). A kernel of its own, so that others pay for neither.
#ifndef COMET_CODEC_CUDA_NORM_RESIDUAL_CUH
#define COMET_CODEC_CUDA_NORM_RESIDUAL_CUH

#include "codec/cuda/norm/norm_forward.cuh"

// Writes y of a tile without padding.
template <int REACH, int DTYPE> struct ResidualLook {
    void *y;
    float floor;
    u32 add[8][PIECE_WORDS<DTYPE>];
    mutable u32 w[8][PIECE_WORDS<DTYPE>];

    // others: {gamma, beta, 0, 0}
    __device__ __forceinline__ void value(int a, int e, float u, const float4 &others) const {
        const float v = __fadd_rn(__fmaf_rn(others.x, u, others.y), packed_value<DTYPE>(add, a, e));
        put_clamped<REACH, DTYPE>(w, a, e, v, floor);
    }
    __device__ __forceinline__ void piece(int a, int e, u64 index) const {
        store_piece<REACH, DTYPE>(y, index, e, w[a]);
    }
};

// -0, which changes nothing that it is added to, as often as a word has room for it.
template <int DTYPE> constexpr u32 NOTHING_TO_ADD = DTYPE == COMET_F32 ? 0x80000000u : 0x80008000u;

// The same in the order of memory.
template <int DTYPE> struct ResidualQuads : NormQuads<DTYPE> {
    struct Quad {
        u32 add[PIECE_WORDS<DTYPE>];
    };
    const void *add;

    __device__ __forceinline__ void load(Quad &quad, u64 index) const {
#pragma unroll
        for (int i = 0; i < PIECE_WORDS<DTYPE>; i++)
            quad.add[i] = NOTHING_TO_ADD<DTYPE>;
        if (add)
            load_piece<REACH_FLAT, DTYPE, LOAD_ONCE>(add, index, 0, quad.add);
    }
    __device__ __forceinline__ float of(const Quad &quad, int e, float u, const float4 &others) const {
        return __fadd_rn(__fmaf_rn(others.x, u, others.y), piece_value<DTYPE>(quad.add, e));
    }
};

// The observer of compress_group.
template <int DTYPE> struct ResidualForward {
    static constexpr int LOADS = LOAD_ONCE, TABLES = 2;
    const NormResidualArgs &args;

    template <int REACH, int UNUSED, bool PADDED>
    __device__ __forceinline__ ResidualLook<REACH, DTYPE> at(const Geometry &g, u32 tile, const TileStart &s,
                                                             u32 lane) const {
        ResidualLook<REACH, DTYPE> look;
        look.y = args.forward.y, look.floor = args.forward.tables.floor;
        if (args.add && PADDED)
            load_padded<REACH, DTYPE>(args.add, g, tile, s, lane, look.add);
        else if (args.add)
            load_packed<REACH, DTYPE>(args.add, g, tile, s, lane, look.add);
        else
#pragma unroll
            for (int i = 0; i < 8 * PIECE_WORDS<DTYPE>; i++)
                look.add[i / PIECE_WORDS<DTYPE>][i % PIECE_WORDS<DTYPE>] = NOTHING_TO_ADD<DTYPE>;
        return look;
    }
    __device__ __forceinline__ float2 numbers(u32 channel, float gamma) const { // which is the grid's slope
        return make_float2(gamma, __ldg(args.forward.tables.beta + channel));
    }

    typedef ResidualQuads<DTYPE> Quads;
    __device__ __forceinline__ Quads quads() const {
        return {{args.forward.y, args.forward.tables.floor}, args.add};
    }

    __device__ __forceinline__ void value(u64 index, u32 channel, float u) const {
        typedef typename Pattern<DTYPE>::Word Word;
        const NormTables &t = args.forward.tables;
        const u32 add = args.add ? read1<DTYPE>((const Word *)args.add + index) : (u32)(Word)NOTHING_TO_ADD<DTYPE>;
        const float y =
            norm_y_added(u, __ldg(t.gamma + channel), __ldg(t.beta + channel), float_of_pattern<DTYPE>(add), t.floor);
        ((Word *)args.forward.y)[index] = (Word)pattern_of_float<DTYPE>(y);
    }
};

// Blocks on a multiprocessor.
template <int DTYPE> constexpr int residual_blocks() {
    return DTYPE == COMET_F32 ? 2 : 3;
}

template <int REACH, int DTYPE>
__global__ void __launch_bounds__(BLOCK_THREADS, residual_blocks<DTYPE>())
    norm_residual_kernel(const __grid_constant__ NormResidualArgs args) {
    __shared__ CompressShared shared;
    compress_group<REACH, DTYPE, REACH == REACH_LAST1 ? MODE_ANY : MODE_GRID>(args.forward.codec, shared,
                                                                              ResidualForward<DTYPE>{args});
    if constexpr (residual_keeps_y(REACH))
        if (args.keeps_y) {
            __syncthreads(); // y of the group is written, and what the block has in shared memory has been read
            compress_group<REACH, DTYPE, MODE_KEEP>(args.y, shared, Unobserved<LOAD_WRITTEN>());
        }
}

#endif
