// SPDX-License-Identifier: Apache-2.0
// Tiles stored exactly, raw or sparse: docs/format.md, 'Sparse and raw tiles'. Not the common case, so a row of 256
// values at a time, through shared memory into the order of the format.
#ifndef COMET_CODEC_CUDA_TILE_EXACT_CUH
#define COMET_CODEC_CUDA_TILE_EXACT_CUH

#include "codec/cuda/tile/values.cuh"

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

#endif
