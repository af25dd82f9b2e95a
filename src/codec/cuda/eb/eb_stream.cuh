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
    int64_t whole_bytes; // of these, in whole units
    u32 status;          // comet_status
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

// Bytes are staged in units of 16, starting with the unit they start in. How many of so many bytes lie before the end
// of the last whole unit; less than 0 if none do.
__device__ __forceinline__ int64_t whole_units(const u8 *payload, u64 bytes) {
    return (int64_t)((((u64)payload + bytes) & ~15ull) - (u64)payload);
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
    v.whole_bytes = whole_units(v.payload, v.payload_bytes);
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

// What a lane's entry of a row counts for its warp's tile, number `which` of the eight: the sum over lanes is the bytes
// before the tile, and above them, from bit 16 on, its entry.
struct RowShare {
    u32 bits, weight;

    __device__ __forceinline__ RowShare(u32 which, u32 lane) {
        bits = lane < which ? (u32)ENTRY_SIZE_MASK : 0xffffu;
        weight = lane < which ? 1 : lane == which ? 1u << 16 : 0;
    }
};

static_assert(((int)GROUP_TILES - 1) * (int)ENTRY_SIZE_MASK < 1 << 16,
              "what lies before a tile can be counted in 16 bits");

// Where a tile's bytes are.
struct TileBytes {
    const u8 *from;
    u32 entry;
    bool is_inside; // all of them are
};

// room: how many bytes there are behind `payload`. KINDS: the entry says a kind, too; else it is taken as a size alone,
// and what has another kind is not inside. Offsets may be anything; those that differences could not hold are outside.
template <bool KINDS = true>
__device__ __forceinline__ TileBytes find_tile(const u8 *payload, int64_t room, const TableRow &row,
                                               const RowShare &share) {
    const u32 both = __reduce_add_sync(ALL_LANES, (row.entries & share.bits) * share.weight);
    const u32 before = both & 0xffff, entry = both >> 16;
    const u32 size = KINDS ? entry & ENTRY_SIZE_MASK : entry;
    const bool is_near = (u32)(row.offset >> 32) < 1u << 30 && (KINDS || size <= LARGEST_CODE_TILE);
    return {payload + (row.offset + before), entry, is_near && room - (int64_t)row.offset >= (int64_t)(before + size)};
}

// Whether there may be a tile: `from` is where it is.
__device__ __forceinline__ bool is_tile(const TileBytes &t) {
    return t.is_inside && t.entry >> ENTRY_KIND_SHIFT <= KIND_RAW;
}

// Whether all of a tile's units lie before the limit:
__device__ __forceinline__ bool has_whole_units(const u8 *from, u32 size, const u8 *limit) {
    return (const u8 *)((u64)(from + size + 15) & ~15ull) <= limit;
}

static_assert(KIND_CODES == 0 && (int)LARGEST_CODE_TILE <= (int)ENTRY_SIZE_MASK, "the entry of codes is their size");

// This lane's first unit of a tile of codes, asked for before it is needed.
__device__ __forceinline__ uint4 first_unit(const TileBytes &t, u32 lane) {
    const u32 end = t.is_inside ? ((u32)(u64)t.from & 15) + t.entry : 0;
    const uint4 *unit = (const uint4 *)((u64)(t.from + 16 * lane) & ~15ull);
    return 16 * lane < end ? __ldg(unit) : make_uint4(0, 0, 0, 0);
}

// Puts `size` bytes into the stage, of which `unit` has this lane's first; returns where they start there.
__device__ __forceinline__ u32 stage_tile(const u8 *from, u32 size, uint4 unit, u32 lane, u8 *stage) {
    const u32 skew = (u32)(u64)from & 15;
    ((uint4 *)stage)[lane] = unit;
    if (15 + size > 32 * 16) // few do
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
