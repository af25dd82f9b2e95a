// SPDX-License-Identifier: Apache-2.0
// Decompressing any tile of any stream: padding, 16-bit codes, values stored as they are. Value by value, in short
// code, as every kernel carries it along.
#ifndef COMET_CODEC_CUDA_EB_RESTORE_RARE_CUH
#define COMET_CODEC_CUDA_EB_RESTORE_RARE_CUH

#include "codec/cuda/eb/eb_restore.cuh"
#include "codec/cuda/eb/eb_source.cuh"
#include "codec/cuda/tile/rare.cuh"

// Calls visit.pattern(place, pattern) for every value of a tile stored exactly, in the order of rare_index. False: it
// is not valid.
template <int REACH, class Visit>
__device__ __forceinline__ bool visit_exact(const Geometry &g, const TileStart &s, bool inner, u32 lane,
                                            const TileSource &source, u32 value_bytes, Visit &&visit) {
    const u32 kind = source.entry >> ENTRY_KIND_SHIFT, size = source.entry & ENTRY_SIZE_MASK;
    if (exact_bytes<REACH>(g, s, inner, lane, kind, size, value_bytes, source.from) != size)
        return false;
    const u8 *values = source.from + (kind == KIND_SPARSE ? BITMAP_BYTES : 0);
    u32 kept = 0; // of values 32 lane and on, those that are stored
    if (kind == KIND_SPARSE)
        kept = get_bytes(source.from + 4 * lane, 4);
    else
#pragma unroll 1
        for (u32 j = 0; j < 32; j++) {
            const u32 real = real_ballot<REACH>(g, s, inner, lane, j >> 3, j & 7);
            kept = lane == j ? real : kept;
        }
    const u32 before = inclusive_sum(__popc(kept), lane) - __popc(kept);
#pragma unroll 1
    for (u32 j = 0; j < 32; j++) {
        const u32 i = rare_index<REACH>(j, lane), bits = __shfl_sync(ALL_LANES, kept, i >> 5);
        const u32 at = __shfl_sync(ALL_LANES, before, i >> 5) + __popc(bits & ((1u << (i & 31)) - 1));
        const RarePlace place = rare_place_of<REACH>(g, s, i);
        u32 p = 0;
        if (bits >> (i & 31) & 1)
            p = get_bytes(values + value_bytes * at, value_bytes);
        visit.next();
        if (place.is_real)
            visit.pattern(place, p);
        visit.end();
    }
    return true;
}

// The tile's codes as 16-bit numbers in the format's order, over the stage; `c` gets their class. False: it is not
// valid.
template <int REACH>
__device__ __forceinline__ bool decode_codes(const quantiser &q, const TileSource &source, u32 lane,
                                             quantiser_class &c) {
    const u32 size = source.entry & ENTRY_SIZE_MASK;
    u16 *codes = (u16 *)source.stage;
    u32 u[8], at = 0;
    TileHead head = tile_head(0);
    c = q.classes[0];
    if (size > LARGEST_CODE_TILE)
        return false;
    if (size) {
        at = source.is_stageable ? stage_tile(source.from, size, source.unit, lane, source.stage)
                                 : stage_bytes(source.from, size, lane, source.stage);
        head = tile_head(__reduce_max_sync(ALL_LANES, source.stage[at]));
        c = q.classes[head.wide ? (u32)QUANTISER_WIDE : head.class_index];
        if (c.step == 0.0f) // a class the stream does not have
            return false;
    }
    if (head.wide)
        return decode_wide<REACH>(source.stage, at, size, head, lane, source.columns, codes);
#pragma unroll
    for (int m = 0; m < 8; m++)
        u[m] = SIGN_BITS; // no bytes: zeros, whether the stream has a class 0 or not
    if (size && !decode_narrow<REACH>(source.stage, at, size, head, lane, source.columns, u))
        return false;
    __syncwarp(); // the stage has been read
#pragma unroll
    for (int m = 0; m < 8; m++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            codes[256 * k + 8 * lane + m] = (u16)((u[m] >> 8 * k & 0xff) - 128);
    __syncwarp();
    return true;
}

// Calls visit.pattern(place, pattern) or visit.code(place, code, class) for every value of a tile that is not padding,
// a value of each lane at a time, between visit.next() and visit.end(). False: the tile is not valid, and some values
// may have come.
template <int REACH, class Visit>
__device__ __forceinline__ bool visit_tile(const Geometry &g, const quantiser &q, const TileSource &source, u32 tile,
                                           u32 lane, Visit &&visit) {
    const TileStart s = tile_start<REACH>(g, tile);
    if (source.entry >> ENTRY_KIND_SHIFT)
        return visit_exact<REACH>(g, s, tile < g.inner, lane, source, q.dtype == COMET_F32 ? 4 : 2, visit);
    quantiser_class c;
    if (!decode_codes<REACH>(q, source, lane, c))
        return false;
#pragma unroll 2
    for (u32 j = 0; j < 32; j++) {
        const u32 i = rare_index<REACH>(j, lane);
        const RarePlace place = rare_place_of<REACH>(g, s, i);
        const int code = (int16_t)((const u16 *)source.stage)[i];
        visit.next();
        if (place.is_real)
            visit.code(place, code, c);
        visit.end();
    }
    __syncwarp(); // the stage is used again
    return true;
}

// Writes what it is told of, through the epilogue.
template <int REACH, int DTYPE> struct RareStore {
    const DecompressArgs &args;
    u32 dtype; // of the stream
    TileChannels<REACH> channels;

    __device__ __forceinline__ void next() const {}
    __device__ __forceinline__ void end() const {}
    __device__ __forceinline__ void put(const RarePlace &place, float x, const float4 &n) const {
        ((typename Pattern<DTYPE>::Word *)args.y)[place.index] =
            (typename Pattern<DTYPE>::Word)pattern_of_float<DTYPE>(Epilogue<DTYPE>(args)(x, n, place.index));
    }
    __device__ __forceinline__ float4 numbers(const RarePlace &place, const quantiser_class &c) const {
        const bool by_channel = (args.flags & STREAM_GRID) || args.scale || args.shift;
        return restore_numbers(args, c, by_channel ? rare_channel<REACH>(channels, place) : 0);
    }
    __device__ __forceinline__ void code(const RarePlace &place, int code, const quantiser_class &c) const {
        const float4 n = numbers(place, c);
        const float x = value_of_code(code, c, n.x);
        put(place, dtype == COMET_F16 ? clamped<COMET_F16>(x) : x, n);
    }
    __device__ __forceinline__ void pattern(const RarePlace &place, u32 p) const {
        if (dtype == DTYPE && !(args.scale || args.shift || args.add || args.relu)) {
            ((typename Pattern<DTYPE>::Word *)args.y)[place.index] = (typename Pattern<DTYPE>::Word)p;
            return;
        }
        const float x = dtype == COMET_F32    ? __uint_as_float(p)
                        : dtype == COMET_BF16 ? float_of_bf16(p)
                                              : float_of_f16(p);
        put(place, x, numbers(place, quantiser_class{}));
    }
};

#endif
