// SPDX-License-Identifier: Apache-2.0
// The mask of a ReLU behind an addend, for the backward pass: off the stream of y, whose zeros are exact, or off y.
#ifndef COMET_CODEC_CUDA_NORM_MASK_CUH
#define COMET_CODEC_CUDA_NORM_MASK_CUH

#include "codec/cuda/norm/norm_values.cuh"

// A NaN is never off.
__device__ __forceinline__ bool norm_is_on(float y) {
    return !(y <= 0.0f);
}

// Finds out of the stream of y what every warp needs; without one, that no tile will be found. False: nothing can be
// decoded, and the status word says why. By the whole block.
__device__ __forceinline__ bool norm_open_mask(const NormMaskedArgs &args, NormShared &shared) {
    const bool good = args.y || open_stream(args.y_codec, shared.codec);
    if (threadIdx.x == 0) {
        if (args.y) {
            shared.y_view = StreamView{};
            shared.y_view.whole_bytes = -1;
        } else {
            shared.y_q = shared.codec.q;
            shared.y_view = shared.codec.view;
        }
    }
    __syncthreads(); // the stream of u is opened next
    return good;
}

// The top bits of bytes: which of four biased codes are not 0.
__device__ __forceinline__ u32 norm_not_zero(u32 word) {
    const u32 code = word ^ SIGN_BITS;
    return code | ((code & ~SIGN_BITS) + ~SIGN_BITS);
}

// ---- common tiles ----

// Which of a lane's codes are not 0, where channels come last: bit m of byte k is of row k, column m. Without
// prediction any plane's bit says so. False: the tile is of another form, or not valid.
__device__ __forceinline__ bool norm_any_plane(const quantiser &q, const TileSource &source, u32 lane, u32 &any) {
    TileHead head;
    u32 w[8], first;
    any = 0;
    if (!narrow_planes<REACH_LAST4>(source, lane, head, w, first,
                                    [&](const TileHead &its) { return q.classes[its.class_index].step != 0.0f; }))
        return false;
    if (head.predicted) {
        codes_of_planes<REACH_LAST4>(w, head, first, lane);
#pragma unroll
        for (int m = 0; m < 8; m++)
            any |= (norm_not_zero(w[m]) & SIGN_BITS) >> (7 - m);
    } else {
#pragma unroll
        for (int b = 0; b < 8; b++)
            any |= w[b];
    }
    return true;
}

// Of a warp on its way over tiles.
template <int REACH, int DTYPE> struct NormMask {
    TableRow row = {}; // of the next tile of the stream, asked for before it is needed
    // Which values are on, by word_of and byte_of: the top bit of a byte. In fp32 all in one word, the bits of the
    // m-th m places further down: registers are few.
    static constexpr bool IN_ONE = DTYPE == COMET_F32;
    u32 on[IN_ONE ? 1 : 8];

    __device__ __forceinline__ void start(const NormMaskedArgs &args, const NormShared &shared, u32 tile, u32 lane) {
        if (!args.y && tile < args.codec.geometry.tiles)
            row = read_row(shared.y_view.table, tile, lane);
    }

    // Where a tile of the stream is. To be called for every tile. It looks for one where there is no stream, too: the
    // compiler knows what all lanes have in common then.
    __device__ __forceinline__ TileSource find(const NormMaskedArgs &args, NormShared &shared, u32 tile, u32 lane) {
        const StreamView &view = shared.y_view;
        const u32 next = tile + gridDim.x * GROUP_TILES;
        const TileSource source =
            code_source(shared.codec, view.payload, view.whole_bytes, row, tile % GROUP_TILES, lane);
        if (!args.y && next < args.codec.geometry.tiles)
            row = read_row(view.table, next, lane);
        return source;
    }

    // False: the tile is of another form, or not valid.
    template <class Start>
    __device__ __forceinline__ bool read(const NormMaskedArgs &args, const NormShared &shared, const TileSource &source,
                                         u32 tile, const Start &s, u32 lane) {
        if (!args.y)
            return read_stream(shared.y_q, source, lane);
        u32 y[8][PIECE_WORDS<DTYPE>], flags[8] = {};
        load_packed<REACH, DTYPE>(args.y, args.codec.geometry, tile, s, lane, y);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int a = i / 4, e = i % 4;
            flags[word_of<REACH>(a, e)] |= (u32)norm_is_on(packed_value<DTYPE>(y, a, e))
                                           << (8 * byte_of<REACH>(a, e) + 7);
        }
        keep(flags);
        return true;
    }

    __device__ __forceinline__ bool read_stream(const quantiser &q, const TileSource &source, u32 lane) {
        u32 words[8];
        if constexpr (REACH == REACH_LAST4) {
            u32 any;
            if (!norm_any_plane(q, source, lane, any))
                return false;
            exchange_any(source, lane, any, words);
            keep(words);
            return true;
        }
        if (!norm_words<REACH>(source, lane, words,
                               [&](const TileHead &head) { return q.classes[head.class_index].step != 0.0f; }))
            return false;
        __syncwarp(); // the stage is used again
#pragma unroll
        for (int i = 0; i < 8; i++)
            words[i] = norm_not_zero(words[i]);
        keep(words);
        return true;
    }

    // Bits of lanes to those of this thread's values, the top ones of bytes.
    static __device__ __forceinline__ void exchange_any(const TileSource &source, u32 lane, u32 any, u32 (&words)[8]) {
        u32 *stage = (u32 *)source.stage, m[4];
        __syncwarp(); // it has been read
        stage[lane] = any;
        __syncwarp();
        unpack(((const uint4 *)stage)[lane & 7], m);
        __syncwarp(); // it is used again
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const u32 columns = m[e] >> (lane >> 3); // bits 0 and 4 of its bytes are this thread's
            words[e] = columns << 7, words[4 + e] = columns << 3;
        }
    }

    // The top bits of bytes.
    __device__ __forceinline__ void keep(const u32 (&flags)[8]) {
        on[0] = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (IN_ONE)
                on[0] |= (flags[i] & SIGN_BITS) >> i;
            else
                on[i] = flags[i];
    }

    // Values that are off become 0.
    __device__ __forceinline__ void apply(u32 (&w)[8][PIECE_WORDS<DTYPE>]) const {
        if constexpr (IN_ONE) {
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const int a = i / 4, e = i % 4, up = 24 - 8 * byte_of<REACH>(a, e) + word_of<REACH>(a, e);
                w[a][e] &= (u32)((int)(on[0] << up) >> 31);
            }
        } else {
            norm_keep_pairs<REACH>(on, w);
        }
    }
};

// ---- any tile, value by value ----

// Notes whether each of a lane's values is on: bit j of the j-th.
template <int DTYPE> struct NormRareMask {
    u32 on, bit;

    __device__ __forceinline__ void next() {}
    __device__ __forceinline__ void end() {
        bit <<= 1;
    }
    __device__ __forceinline__ void code(const RarePlace &, int code, const quantiser_class &) {
        on |= code ? bit : 0;
    }
    __device__ __forceinline__ void pattern(const RarePlace &, u32 p) {
        on |= norm_is_on(float_of_pattern<DTYPE>(p)) ? bit : 0;
    }
};

// False: the tile is not valid.
template <int REACH, int DTYPE>
__device__ __forceinline__ bool norm_rare_mask(const NormMaskedArgs &args, NormShared &shared, u32 tile, u32 lane,
                                               u32 &on) {
    const Geometry &g = args.codec.geometry;
    NormRareMask<DTYPE> mask = {0, 1};
    bool good = true;
    if (!args.y) {
        const TileSource source = find_again(shared.y_view, shared.codec, tile);
        good = source.from && visit_tile<REACH>(g, shared.y_q, source, tile, lane, mask);
    } else {
        const TileStart s = tile_start<REACH>(g, tile);
#pragma unroll 1
        for (u32 j = 0; j < 32; j++) {
            const RarePlace place = rare_place_of<REACH>(g, s, rare_index<REACH>(j, lane));
            if (place.is_real)
                mask.pattern(place, read1<DTYPE>((const typename Pattern<DTYPE>::Word *)args.y + place.index));
            mask.end();
        }
    }
    on = mask.on;
    __syncwarp(); // the stage is used again
    return good;
}

#endif
