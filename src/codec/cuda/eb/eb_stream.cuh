// SPDX-License-Identifier: Apache-2.0
// Decompressing: the stream, its header and table, and a tile brought into shared memory.
#ifndef COMET_CODEC_CUDA_EB_STREAM_CUH
#define COMET_CODEC_CUDA_EB_STREAM_CUH

#include "codec/cuda/eb/eb_args.cuh"
#include "codec/cuda/tile/decode.cuh"
#include "codec/cuda/tile/exact.cuh"

struct StreamView {
    const u8 *table, *payload;
    u64 payload_bytes;
    u32 status; // comet_status
};

// Which bits of a header's word must be as expected. With an epilogue the stream's dtype is its own affair; a checksum
// is only the CPU's to verify.
__device__ __forceinline__ u32 header_mask(const DecompressArgs &args, u32 i) {
    if (i == CUDA_HEADER_WORD_BOUND || i == CUDA_HEADER_WORD_BYTES || i == CUDA_HEADER_WORD_BYTES + 1 ||
        (i == CUDA_HEADER_WORD_CHECKSUM && (args.flags & STREAM_CHECKSUM)))
        return 0;
    return i == 1 && args.any_dtype ? 0x00ffffffu : ~0u;
}

// What it means that words of the header differ: magic and reserved words are never otherwise, the version is another
// format's, and the rest is what the caller's tensor and parameters say.
static __device__ __noinline__ u32 header_problem(u32 difference) {
    const u32 never = 1u << 0 | 1u << CUDA_HEADER_WORD_CHECKSUM | 0xfu << 12;
    u32 differs = __ballot_sync(ALL_LANES, difference != 0), version = __shfl_sync(ALL_LANES, difference, 1) & 0xffffu;
    u32 first = differs & (0u - differs);
    if (first & never)
        return COMET_ERROR_CORRUPT;
    return first == 2 && version ? COMET_ERROR_VERSION : COMET_ERROR_MISMATCH;
}

// Whether a stream can have this bound: the encoder writes no other, and no proof covers its steps.
__device__ __forceinline__ bool bound_is_valid(const DecompressArgs &args, float bound) {
    if (bound == 0.0f)
        return __float_as_uint(bound) == 0;
    return bound >= 0x1p-100f && bound <= 0x1p100f && (args.header.words[1] >> 16 & 0xff) == COMET_CODEC_EB;
}

// Checks the header against what is expected; every warp does, since none may trust it.
__device__ __forceinline__ u32 check_header(const DecompressArgs &args, u32 word, u32 lane, float &bound, u32 &dtype) {
    u32 difference = (word ^ args.header.words[lane]) & header_mask(args, lane);
    bound = __uint_as_float(__shfl_sync(ALL_LANES, word, CUDA_HEADER_WORD_BOUND));
    dtype = args.any_dtype ? __shfl_sync(ALL_LANES, word, 1) >> 24 : args.dtype;
    if (__any_sync(ALL_LANES, difference))
        return header_problem(difference);
    return bound_is_valid(args, bound) && dtype <= COMET_BF16 ? COMET_OK : COMET_ERROR_CORRUPT;
}

__device__ __forceinline__ u64 stream_start(const DecompressArgs &args) {
    return args.result ? args.result->start : args.start ? *args.start : 0;
}

// Whether header and table of a stream that starts there lie inside the slot.
__device__ __forceinline__ bool has_table(const DecompressArgs &args, u64 start) {
    return start % 256 == 0 && start <= args.last_start && args.has_room;
}

// Finds the stream and checks its header, of which each lane gets a word; bound and dtype are the stream's.
__device__ __forceinline__ StreamView view_stream(const DecompressArgs &args, u64 start, u32 lane, float &bound,
                                                  u32 &dtype) {
    StreamView v = {};
    const u32 written = args.result ? (u32)args.result->status : (u32)COMET_OK;
    const u8 *stream = args.base + start;
    bound = 0.0f, dtype = args.dtype;
    if (written != COMET_OK || !has_table(args, start)) {
        v.status = written != COMET_OK ? written : (u32)COMET_ERROR_CORRUPT;
        return v;
    }
    const u32 word = __ldg((const u32 *)stream + lane);
    const u64 bytes = __shfl_sync(ALL_LANES, word, CUDA_HEADER_WORD_BYTES) |
                      (u64)__shfl_sync(ALL_LANES, word, CUDA_HEADER_WORD_BYTES + 1) << 32;
    v.status = check_header(args, word, lane, bound, dtype);
    if (bytes < args.table_end || bytes > args.capacity - start)
        v.status = COMET_ERROR_CORRUPT;
    v.table = stream + STREAM_HEADER_BYTES;
    v.payload = stream + args.table_end;
    v.payload_bytes = bytes - args.table_end;
    return v;
}

// A tile's row of the table, as it comes from memory: lanes 0-7 have an entry each.
struct TableRow {
    u64 offset;
    u32 entries;
};

__device__ __forceinline__ TableRow read_row(const u8 *table, u32 tile, u32 lane) {
    const u8 *row = table + GROUP_BYTES * (u64)(tile / GROUP_TILES);
    TableRow r;
    r.entries = __ldg((const u16 *)(row + 8) + (lane & 7));
    r.offset = __ldg((const unsigned long long *)row);
    return r;
}

// Where a tile's bytes are; from is NULL if that is outside the stream.
struct TileBytes {
    const u8 *from;
    u32 entry;
};

__device__ __forceinline__ TileBytes find_tile(const u8 *payload, u64 payload_bytes, const TableRow &row, u32 tile,
                                               u32 lane) {
    const u32 which = tile % GROUP_TILES;
    u32 before = __reduce_add_sync(ALL_LANES, lane < which ? row.entries & ENTRY_SIZE_MASK : 0);
    TileBytes t;
    t.entry = __shfl_sync(ALL_LANES, row.entries, which);
    u32 behind = before + (t.entry & ENTRY_SIZE_MASK);
    bool inside = row.offset <= payload_bytes && behind <= payload_bytes - row.offset;
    t.from = inside && t.entry >> ENTRY_KIND_SHIFT <= KIND_RAW ? payload + row.offset + before : NULL;
    return t;
}

// Bytes are staged in units of 16, starting with the unit they start in. Whether all of a tile's units lie before the
// limit:
__device__ __forceinline__ bool has_whole_units(const u8 *from, u32 size, const u8 *limit) {
    return (const u8 *)((u64)(from + size + 15) & ~15ull) <= limit;
}

// Whether a tile is one of codes whose units are all whole.
__device__ __forceinline__ bool is_stageable(const TileBytes &t, const u8 *limit) {
    u32 size = t.entry & ENTRY_SIZE_MASK;
    return t.from && t.entry >> ENTRY_KIND_SHIFT == KIND_CODES && size <= LARGEST_CODE_TILE &&
           has_whole_units(t.from, size, limit);
}

// This lane's first unit of such a tile, asked for before it is needed.
__device__ __forceinline__ uint4 first_unit(const TileBytes &t, u32 lane) {
    u32 skew = (u32)(u64)t.from & 15, size = t.entry & ENTRY_SIZE_MASK;
    return 16 * lane < skew + size ? __ldg((const uint4 *)(t.from - skew) + lane) : make_uint4(0, 0, 0, 0);
}

// Puts `size` bytes into the stage, of which `unit` has this lane's first; returns where they start there.
__device__ __forceinline__ u32 stage_tile(const u8 *from, u32 size, uint4 unit, u32 lane, u8 *stage) {
    u32 skew = (u32)(u64)from & 15;
    ((uint4 *)stage)[lane] = unit;
#pragma unroll 1
    for (u32 i = lane + 32; 16 * i < skew + size; i += 32)
        ((uint4 *)stage)[i] = __ldg((const uint4 *)(from - skew) + i);
    __syncwarp();
    return skew;
}

// The same byte by byte, for what lies at the very end of a slot.
__device__ __forceinline__ u32 stage_bytes(const u8 *from, u32 size, u32 lane, u8 *stage) {
#pragma unroll 1
    for (u32 i = lane; i < size; i += 32)
        stage[i] = from[i];
    __syncwarp();
    return 0;
}

#endif
