// SPDX-License-Identifier: Apache-2.0
// Tiles stored exactly, raw or sparse: docs/format.md, 'Sparse and raw tiles'. Not the common case, so a row of 256
// values at a time, through shared memory into the order of the format.
#ifndef COMET_CODEC_CUDA_TILE_EXACT_CUH
#define COMET_CODEC_CUDA_TILE_EXACT_CUH

#include "codec/cuda/eb/tile_values.cuh"

enum { KIND_CODES = 0, KIND_SPARSE = 1, KIND_RAW = 2, ENTRY_KIND_SHIFT = 13, ENTRY_SIZE_MASK = 0x1fff };
enum { BITMAP_BYTES = 128 };

// Which kind is smaller, as an entry of the table. `marked`: patterns that are not 0; `count`: values that are not
// padding.
__device__ __forceinline__ u32 exact_entry(u32 marked, u32 count, u32 value_bytes, bool zeros_are_empty) {
    u32 raw = count * value_bytes, sparse = BITMAP_BYTES + marked * value_bytes;
    if (marked == 0 && zeros_are_empty)
        return 0;
    return sparse < raw ? sparse | KIND_SPARSE << ENTRY_KIND_SHIFT : raw | KIND_RAW << ENTRY_KIND_SHIFT;
}

// Puts row k of the thread's values in order of the format into row[256]; marks padding in `holes` (8 words of bits).
template <int REACH>
__device__ __forceinline__ void stage_row(const u32 (&p)[8][4], u32 real, u32 lane, u32 k, u32 *row, u32 *holes) {
    if (lane < 8)
        holes[lane] = 0;
    __syncwarp();
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            u32 i = tile_index<REACH>(lane, a, e);
            if (i >> 8 == k) {
                row[i & 255] = p[a][e];
                if (!(real >> (4 * a + e) & 1))
                    atomicOr(&holes[i >> 5 & 7], 1u << (i & 31));
            }
        }
    __syncwarp();
}

__device__ __forceinline__ void put_bytes(u8 *to, u32 v, u32 bytes) {
    for (u32 b = 0; b < bytes; b++)
        to[b] = (u8)(v >> 8 * b);
}

__device__ __forceinline__ u32 get_bytes(const u8 *from, u32 bytes) {
    u32 v = 0;
    for (u32 b = 0; b < bytes; b++)
        v |= (u32)from[b] << 8 * b;
    return v;
}

// Writes the tile at `to`. row: 256 words, holes: 8 words of the warp's own shared memory.
template <int REACH>
__device__ __forceinline__ void write_exact(const u32 (&p)[8][4], u32 real, u32 lane, u32 kind, u32 value_bytes,
                                            u32 *row, u32 *holes, u8 *to) {
    u8 *values = to + (kind == KIND_SPARSE ? BITMAP_BYTES : 0);
    u32 before = (1u << lane) - 1;
#pragma unroll 1
    for (u32 k = 0; k < 4; k++) {
        stage_row<REACH>(p, real, lane, k, row, holes);
#pragma unroll 1
        for (u32 j = 0; j < 8; j++) {
            u32 v = row[32 * j + lane];
            u32 marked = __ballot_sync(ALL_LANES, v != 0), kept = kind == KIND_SPARSE ? marked : ~holes[j];
            if (kind == KIND_SPARSE && lane < 4)
                to[32 * k + 4 * j + lane] = (u8)(marked >> 8 * lane);
            if (kept >> lane & 1)
                put_bytes(values + value_bytes * __popc(kept & before), v, value_bytes);
            values += value_bytes * __popc(kept);
        }
        __syncwarp();
    }
}

// ---- reading ----

// How many values are not padding in 32 of a row: what raw tiles hold of it. index of the first: 256 k + 32 j.
template <int REACH>
__device__ __forceinline__ u32 real_ballot(const Geometry &g, const TileStart &s, bool inner, u32 lane, u32 k, u32 j) {
    if (inner)
        return ~0u;
    u32 real = real_bytes<REACH>(g, s, 4 * j + (lane >> 3), lane & 7);
    return __ballot_sync(ALL_LANES, real >> 8 * k & 1);
}

// The bytes an exact tile must have for what its bitmap says; ~0 if it is shorter than its bitmap.
template <int REACH>
__device__ __forceinline__ u32 exact_bytes(const Geometry &g, const TileStart &s, bool inner, u32 lane, u32 kind,
                                           u32 size, u32 value_bytes, const u8 *from) {
    u32 count = 0;
    if (kind == KIND_SPARSE) {
        if (size < BITMAP_BYTES)
            return ~0u;
        count = __reduce_add_sync(ALL_LANES, (u32)__popc(get_bytes(from + 4 * lane, 4)));
        return BITMAP_BYTES + count * value_bytes;
    }
    if (inner)
        return 1024 * value_bytes;
#pragma unroll 1
    for (u32 i = 0; i < 32; i++)
        count += __popc(real_ballot<REACH>(g, s, inner, lane, i >> 3, i & 7));
    return count * value_bytes;
}

// Row k of an exact tile into row[256]; `values` moves on behind its values.
template <int REACH>
__device__ __forceinline__ void read_exact_row(const Geometry &g, const TileStart &s, bool inner, u32 lane, u32 k,
                                               u32 kind, u32 value_bytes, const u8 *tile, const u8 *&values, u32 *row) {
    u32 before = (1u << lane) - 1;
#pragma unroll 1
    for (u32 j = 0; j < 8; j++) {
        u32 kept =
            kind == KIND_SPARSE ? get_bytes(tile + 32 * k + 4 * j, 4) : real_ballot<REACH>(g, s, inner, lane, k, j);
        u32 v = 0;
        if (kept >> lane & 1)
            v = get_bytes(values + value_bytes * __popc(kept & before), value_bytes);
        row[32 * j + lane] = v;
        values += value_bytes * __popc(kept);
    }
    __syncwarp();
}

// Takes row k of the thread's values out of row[256].
template <int REACH> __device__ __forceinline__ void unstage_row(const u32 *row, u32 lane, u32 k, u32 (&p)[8][4]) {
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            u32 i = tile_index<REACH>(lane, a, e);
            if (i >> 8 == k)
                p[a][e] = row[i & 255];
        }
    __syncwarp();
}

#endif
