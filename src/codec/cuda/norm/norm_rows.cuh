// SPDX-License-Identifier: Apache-2.0
// The backward pass of a batch normalisation over short rows of maps: a tile's codes are put in the order of memory,
// and its values are swept over.
#ifndef COMET_CODEC_CUDA_NORM_ROWS_CUH
#define COMET_CODEC_CUDA_NORM_ROWS_CUH

#include "codec/cuda/norm/norm_mask.cuh"
#include "codec/cuda/norm/norm_quads.cuh"

static_assert(SweptQuads::CODES_AT % 16 == 0 && 2 * SweptQuads::CODES_AT <= STAGE_BYTES, "codes fit behind sums");

// A warp on its way over tiles.
template <int DTYPE, int FROM, int PASS> struct NormRows {
    typedef NormSweep<DTYPE, FROM, PASS, SweptQuads> Sweep;
    typedef NormBackwardShared<REACH_SWEEP, false> Shared;
    const NormArgs<PASS> &args;
    Shared &shared;
    u32 lane;
    float *table;
    NormMask<REACH_ROW1, DTYPE> mask; // NORM_MASKED_SUMS

    __device__ __forceinline__ NormRows(const NormArgs<PASS> &a, Shared &s, u32) : args(a), shared(s) {
        lane = threadIdx.x & 31;
        table = shared.tables[threadIdx.x >> 5];
    }

    __device__ __forceinline__ u8 *stage() const {
        return shared.codec.stage[threadIdx.x >> 5];
    }

    // False: as in NormWalk.
    __device__ __forceinline__ bool common(u32 tile, const TileSource &from) {
        const Geometry &g = args.codec.geometry;
        const TileStart s = tile_start<REACH_ROW1>(g, tile);
        TileMaps maps;
        TileSource y = {};
        Form form = FORM_GRID;
        if constexpr (PASS == NORM_MASKED_SUMS)
            y = mask.find(args, shared, tile, lane);
        if (tile >= g.inner ||
            !norm_make_tables<REACH_ROW1, FROM, PASS>(args, shared.codec.q.classes[0], s, lane, table, maps))
            return false;
        SweptQuads order(g, s);
        order.take(maps);
        if constexpr (FROM == NORM_FROM_STREAM)
            ask_for_dy(order);
        if constexpr (PASS == NORM_MASKED_SUMS)
            if (!make_dz(order, y))
                return false;
        if constexpr (FROM == NORM_FROM_STREAM)
            if (!put_codes(order, from, [&](const TileHead &head) { return norm_accepts(shared.codec.q, head, form); }))
                return false;
        const Sweep sweep = {args, stage(), table, order, lane, maps.count};
        typename Sweep::Quad quads[Sweep::ROUNDS];
#pragma unroll
        for (int t = 0; t < Sweep::ROUNDS; t++)
            if (t < SweptQuads::WHOLE_ROUNDS || 32 * t + lane < order.quads)
                sweep.load(32 * t + lane, quads[t]);
        if (FROM == NORM_FROM_X || form == FORM_GRID)
            sweep.template pass<FORM_GRID>(tile, quads);
        else
            sweep.template pass<FORM_FAR>(tile, quads);
        return true;
    }

    // dy is on its way to the cache while the stream is decoded.
    __device__ __forceinline__ void ask_for_dy(const SweptQuads &order) const {
        typedef typename Pattern<DTYPE>::Word Word;
        constexpr u32 A_LINE = 128 / sizeof(Word) / 4; // quads
        static_assert(SWEPT_QUADS <= 2 * 32 * A_LINE, "two lines a lane");
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            if ((lane + 32 * i) * A_LINE < order.quads)
                ask_for_line((const Word *)args.dy + order.first + (u64)(4 * A_LINE) * (lane + 32 * i));
    }

    // Decodes a tile to bytes in the order of memory.
    template <class Accept>
    __device__ __forceinline__ bool put_codes(const SweptQuads &order, const TileSource &source, Accept accept) {
        u32 u[8];
        if (!narrow_codes<REACH_ROW1>(source, lane, u, accept))
            return false;
        put_columns(args.codec.geometry, order, lane, u, stage() + SweptQuads::CODES_AT);
        return true;
    }

    // ---- dz ----

    // Reads y, or its codes, and makes dz of dy. False: the tile is of another form, or not valid.
    __device__ __forceinline__ bool make_dz(const SweptQuads &order, const TileSource &y) {
        enum { AT_ONCE = 3 }; // quads of a lane whose loads are on their way together
        if (!args.y && !put_codes(order, y, [&](const TileHead &head) {
                return shared.y_q.classes[head.class_index].step != 0.0f;
            }))
            return false;
#pragma unroll 1
        for (u32 number = lane; number - lane < order.quads; number += 32 * AT_ONCE) {
            u32 dy[AT_ONCE][PIECE_WORDS<DTYPE>], on[AT_ONCE];
#pragma unroll
            for (int t = 0; t < AT_ONCE; t++)
                if (number + 32 * t < order.quads)
                    load_dy(order, number + 32 * t, dy[t], on[t]);
#pragma unroll
            for (int t = 0; t < AT_ONCE; t++)
                if (number + 32 * t < order.quads)
                    put_dz(order, number + 32 * t, dy[t], on[t]);
        }
        __syncwarp(); // dz is written, and the stage has been read
        return true;
    }

    // dy of a quad, and which values are on: the top bits of bytes.
    __device__ __forceinline__ void load_dy(const SweptQuads &order, u32 number, u32 (&dy)[PIECE_WORDS<DTYPE>],
                                            u32 &on) const {
        const u64 index = order.first + 4 * number;
        load_piece<REACH_FLAT, DTYPE, LOAD_WRITTEN>(args.dy, index, 0, dy);
        if (!args.y) {
            on = norm_not_zero(((const u32 *)stage())[SweptQuads::place(number)]);
            return;
        }
        u32 y[PIECE_WORDS<DTYPE>];
        load_piece<REACH_FLAT, DTYPE, LOAD_ONCE>(args.y, index, 0, y);
        on = 0;
#pragma unroll
        for (int e = 0; e < 4; e++)
            on |= (u32)norm_is_on(piece_value<DTYPE>(y, e)) << (8 * e + 7);
    }

    __device__ __forceinline__ void put_dz(const SweptQuads &order, u32 number, u32 (&dy)[PIECE_WORDS<DTYPE>],
                                           u32 on) const {
#pragma unroll
        for (int i = 0; i < PIECE_WORDS<DTYPE>; i++)
            if constexpr (DTYPE == COMET_F32)
                dy[i] &= permute_by(on, on, 0x1111 * (8 | i));
            else
                dy[i] &= permute_by(on, on, 0x11 * (8 | 2 * i) + 0x1100 * (9 | 2 * i));
        put_quad<DTYPE>(args.dz, order.first + 4 * number, dy, order.mine_of_any(args.codec.geometry, number));
    }
};

#endif
