// SPDX-License-Identifier: Apache-2.0
// Decompressing eb and zvc: one warp a tile at a time, eight warps a block. Decoded values go through an epilogue to
// the tensor.
#ifndef COMET_CODEC_CUDA_EB_DECOMPRESS_CUH
#define COMET_CODEC_CUDA_EB_DECOMPRESS_CUH

#include "codec/cuda/eb/eb_restore.cuh"
#include "codec/cuda/eb/eb_stream.cuh"

// Blocks on a multiprocessor.
enum { DECOMPRESS_FAST_BLOCKS = 5, DECOMPRESS_ANY_BLOCKS = 3 };

struct DecompressShared {
    alignas(16) u8 stage[GROUP_TILES][STAGE_BYTES];
    alignas(16) u32 columns[GROUP_TILES][64];
    u64 payload_bytes;
    u32 status;
    float bound;
    u32 dtype; // of the stream
    union {
        quantiser_class first; // class 0; of a block that knows no others
        quantiser q;           // open_stream
    };
};

// ---- any tile, as patterns of the output ----

template <int REACH, int DTYPE>
__device__ __forceinline__ void narrow_patterns(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                                u32 (&u)[8], u32 *exchange, u32 (&p)[8][4]) {
    u32 w[8];
    exchange_back<REACH>(u, lane, exchange, w);
    restore<REACH, DTYPE>(restorer, tile, s, lane, p, [&](int a, int e, const ChannelNumbers &n, u64 index) {
        return restorer.of_code(code_at(w[word_of<REACH>(a, e)], byte_of<REACH>(a, e)), n, index);
    });
}

// Codes of 16 bits, through shared memory.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool wide_patterns(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                              u8 *stage, u32 at, u32 size, const TileHead &head, u32 *columns,
                                              u32 (&p)[8][4]) {
    u16 *codes = (u16 *)stage;
    if (!decode_wide<REACH>(stage, at, size, head, lane, columns, codes))
        return false;
    if (HOW == RESTORE_FAST) {
#pragma unroll
        for (int a = 0; a < 8; a++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int q = (int16_t)codes[tile_index<REACH>(lane, a, e)];
                p[a][e] = decoded_pattern<DTYPE>(__fmul_rn(__int2float_rn(q), restorer.c.step));
            }
        return true;
    }
    restore<REACH, DTYPE>(restorer, tile, s, lane, p, [&](int a, int e, const ChannelNumbers &n, u64 index) {
        return restorer.of_code((int16_t)codes[tile_index<REACH>(lane, a, e)], n, index);
    });
    return true;
}

template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool exact_patterns(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                               const u8 *from, u32 entry, u32 *row, u32 (&p)[8][4]) {
    const Geometry &g = restorer.args.geometry;
    const u32 kind = entry >> ENTRY_KIND_SHIFT, size = entry & ENTRY_SIZE_MASK;
    const u32 value_bytes = restorer.dtype == COMET_F32 ? 4 : 2;
    const bool inner = tile < g.inner;
    if (exact_bytes<REACH>(g, s, inner, lane, kind, size, value_bytes, from) != size)
        return false;
    const u8 *values = from + (kind == KIND_SPARSE ? BITMAP_BYTES : 0);
    clear_patterns(p); // a row at a time is filled in: a compiler may take what was never set for anything
#pragma unroll 1
    for (u32 k = 0; k < 4; k++) {
        read_exact_row<REACH>(g, s, inner, lane, k, kind, value_bytes, from, values, row);
        unstage_row<REACH>(row, lane, k, p);
    }
    if (HOW == RESTORE_FAST)
        return true;
    restore<REACH, DTYPE>(restorer, tile, s, lane, p, [&](int a, int e, const ChannelNumbers &n, u64 index) {
        return restorer.of_pattern(p[a][e], n, index);
    });
    return true;
}

// Where a tile was found, and where it is decoded.
struct TileSource {
    const u8 *from; // its bytes
    u32 entry;
    bool is_stageable;
    uint4 unit;   // first_unit of one that is
    u8 *stage;    // STAGE_BYTES of shared memory of the warp's own
    u32 *columns; // 64 words of it
};

// What is known of a tile before its codes are decoded.
enum TileForm { FORM_BAD, FORM_NARROW, FORM_OTHER };

// Decodes a tile as far as its form goes: narrow codes to u (biased), everything else to p.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ TileForm decode_tile(Restorer<DTYPE> &restorer, const quantiser &q, const TileSource &source,
                                                u32 tile, const TileStart &s, u32 lane, u32 (&u)[8], u32 (&p)[8][4]) {
    const u32 size = source.entry & ENTRY_SIZE_MASK;
    restorer.c = q.classes[0];
    restorer.dtype = q.dtype;
    if (source.entry >> ENTRY_KIND_SHIFT)
        return exact_patterns<REACH, DTYPE, HOW>(restorer, tile, s, lane, source.from, source.entry,
                                                 (u32 *)source.stage, p)
                   ? FORM_OTHER
                   : FORM_BAD;
    if (size == 0) { // zeros, whether the stream has a class 0 or not
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = SIGN_BITS;
        return FORM_NARROW;
    }
    if (size > LARGEST_CODE_TILE)
        return FORM_BAD;
    u32 at = stage_bytes(source.from, size, lane, source.stage);
    TileHead head = tile_head(source.stage[at]);
    restorer.c = q.classes[head.class_index];
    if (restorer.c.step == 0.0f) // a class the stream does not have
        return FORM_BAD;
    if (restorer.c.wide)
        return wide_patterns<REACH, DTYPE, HOW>(restorer, tile, s, lane, source.stage, at, size, head, source.columns,
                                                p)
                   ? FORM_OTHER
                   : FORM_BAD;
    bool good = decode_narrow<REACH>(source.stage, at, size, head, lane, source.columns, u);
    __syncwarp(); // the stage has been read
    return good ? FORM_NARROW : FORM_BAD;
}

// ---- the kernel ----

// Any tile. False: it is not valid.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool restore_any(const DecompressArgs &args, const quantiser &q, const TileSource &source,
                                            u32 tile, u32 lane) {
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    Restorer<DTYPE> restorer = {args, {}, 0};
    u32 u[8], p[8][4];
    TileForm form = decode_tile<REACH, DTYPE, HOW>(restorer, q, source, tile, s, lane, u, p);
    if (form == FORM_NARROW)
        narrow_patterns<REACH, DTYPE>(restorer, tile, s, lane, u, (u32 *)source.stage, p);
    if (form != FORM_BAD)
        store_patterns<REACH, DTYPE>(args.y, args.geometry, tile, s, lane, p);
    return form != FORM_BAD;
}

// A stageable tile; `first`: class 0. False: its codes are not narrow, or it is not valid.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool restore_common(const DecompressArgs &args, float bound, u32 dtype,
                                               const quantiser_class &first, const TileSource &source, u32 tile,
                                               u32 lane) {
    const u32 size = source.entry & ENTRY_SIZE_MASK;
    u32 u[8];
    Restorer<DTYPE> restorer = {args, first, dtype};
    if (size) {
        u32 at = stage_tile(source.from, size, source.unit, lane, source.stage);
        TileHead head =
            tile_head(__reduce_max_sync(ALL_LANES, source.stage[at])); // so that branches on it are the warp's
        if (head.class_index)
            restorer.c = quantiser_step_of(bound, (comet_dtype)dtype, args.flags, head.class_index);
        if (restorer.c.wide || restorer.c.step == 0.0f ||
            !decode_narrow<REACH>(source.stage, at, size, head, lane, source.columns, u))
            return false;
        __syncwarp(); // the stage has been read
    } else {          // zeros, whether the stream has a class 0 or not
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = SIGN_BITS;
    }
    return store_codes<REACH, DTYPE, HOW>(restorer, tile, tile_start<REACH>(args.geometry, tile), lane, u,
                                          source.stage);
}

// What every block finds out first. False: nothing can be decoded, and the status word says why.
__device__ __forceinline__ bool open_stream(const DecompressArgs &args, DecompressShared &shared, StreamView &view) {
    const u32 lane = threadIdx.x & 31;
    float bound;
    u32 dtype;
    view = view_stream(args, stream_start(args), lane, bound, dtype);
    if (threadIdx.x == 0) {
        shared.status = view.status;
        if (view.status == COMET_OK)
            quantiser_of(bound, (comet_dtype)dtype, args.flags, &shared.q);
        else
            *args.status = (int32_t)view.status;
    }
    __syncthreads();
    return shared.status == COMET_OK;
}

// Calls decode(tile, source) for every tile of this warp; returns a bit for each of which that said false (MOST_ROUNDS
// at most). The next tile's bytes, and the row of the table of the one after it, are asked for before a tile is
// decoded.
template <class Decode>
__device__ __forceinline__ u64 for_tiles(const DecompressArgs &args, DecompressShared &shared, const StreamView &view,
                                         Decode decode) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 tiles = args.geometry.tiles, stride = gridDim.x * GROUP_TILES;
    u32 tile = blockIdx.x * GROUP_TILES + warp;
    u64 left = 0, bit = 1;
    if (tile >= tiles)
        return left;
    const u8 *limit = view.payload + view.payload_bytes;
    TileBytes bytes = find_tile(view.payload, view.payload_bytes, read_row(view.table, tile, lane), tile, lane);
    bool stageable = is_stageable(bytes, limit);
    uint4 unit = stageable ? first_unit(bytes, lane) : uint4{};
    TableRow row = {};
    if (tile + stride < tiles)
        row = read_row(view.table, tile + stride, lane);
    for (; tile < tiles; tile += stride, bit <<= 1) {
        const TileSource source = {bytes.from, bytes.entry, stageable, unit, shared.stage[warp], shared.columns[warp]};
        if (tile + stride < tiles) {
            bytes = find_tile(view.payload, view.payload_bytes, row, tile + stride, lane);
            stageable = is_stageable(bytes, limit);
            unit = stageable ? first_unit(bytes, lane) : uint4{};
            if (tile + 2 * stride < tiles)
                row = read_row(view.table, tile + 2 * stride, lane);
        }
        if (!decode(tile, source))
            left |= bit;
        __syncwarp(); // the stage is used again
    }
    return left;
}

// Any tile, from the start: what restore_common cannot do. A function of its own, so that it costs the others no
// registers.
template <int REACH, int DTYPE, int HOW>
__device__ __noinline__ void restore_rest(const DecompressArgs &args, DecompressShared &shared, u32 tile) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 status = shared.status;
    if (status == COMET_OK && tile < args.geometry.tiles) {
        quantiser q;
        quantiser_of(shared.bound, (comet_dtype)shared.dtype, args.flags, &q);
        const u8 *stream = args.base + stream_start(args);
        const TableRow row = read_row(stream + STREAM_HEADER_BYTES, tile, lane);
        const TileBytes bytes = find_tile(stream + args.table_end, shared.payload_bytes, row, tile, lane);
        const TileSource source = {bytes.from, bytes.entry, false, {}, shared.stage[warp], shared.columns[warp]};
        if (!(bytes.from && restore_any<REACH, DTYPE, HOW>(args, q, source, tile, lane)))
            status = COMET_ERROR_CORRUPT;
    }
    if (status != COMET_OK && lane == 0)
        *args.status = (int32_t)status;
}

// What one warp finds out for its block; it is there after the next barrier.
__device__ __forceinline__ void check_stream(const DecompressArgs &args, DecompressShared &shared, u64 start,
                                             u32 lane) {
    float bound;
    u32 dtype;
    const StreamView view = view_stream(args, start, lane, bound, dtype);
    if (lane != 0)
        return;
    shared.status = view.status;
    shared.payload_bytes = view.payload_bytes;
    shared.bound = bound;
    shared.dtype = dtype;
    shared.first = quantiser_step_of(bound, (comet_dtype)dtype, args.flags, 0);
}

// A tile a warp. False: restore_rest is to do it.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool restore_first(const DecompressArgs &args, DecompressShared &shared, u32 tile,
                                              u32 thread) {
    const u32 lane = thread & 31, warp = thread >> 5;
    const u64 start = stream_start(args);
    const u8 *stream = args.base + start, *payload = stream + args.table_end;
    TileSource source = {NULL, 0, false, {}, shared.stage[warp], shared.columns[warp]};
    u64 behind = 0;
    if (has_table(args, start) &&
        tile < args.geometry.tiles) { // while the header is checked, what the slot's end allows
        const u64 room = args.last_start - start;
        const TableRow row = read_row(stream + STREAM_HEADER_BYTES, tile, lane);
        const TileBytes bytes = find_tile(payload, room, row, tile, lane);
        source.from = bytes.from, source.entry = bytes.entry;
        source.is_stageable = is_stageable(bytes, payload + room);
        if (source.is_stageable)
            source.unit = first_unit(bytes, lane);
        behind = (u64)(bytes.from - payload) + (bytes.entry & ENTRY_SIZE_MASK);
    }
    if (warp == 0)
        check_stream(args, shared, start, lane);
    __syncthreads();
    if (shared.status != COMET_OK || !source.is_stageable || behind > shared.payload_bytes)
        return false;
    return restore_common<REACH, DTYPE, HOW>(args, shared.bound, shared.dtype, shared.first, source, tile, lane);
}

template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ void decompress_group(const DecompressArgs &args, DecompressShared &shared) {
    const u32 thread = thread_number(), tile = blockIdx.x * GROUP_TILES + (thread >> 5), tiles = args.geometry.tiles;
    if (!restore_first<REACH, DTYPE, HOW>(args, shared, tile, thread) && (tile < tiles || tiles == 0)) {
        __syncwarp();                                        // the stage has been read
        restore_rest<REACH, DTYPE, HOW>(args, shared, tile); // of an empty tensor, the header alone
    }
}

template <int REACH, int DTYPE, int HOW>
__global__ void __launch_bounds__(BLOCK_THREADS, HOW == RESTORE_FAST ? DECOMPRESS_FAST_BLOCKS : DECOMPRESS_ANY_BLOCKS)
    eb_decompress_kernel(const __grid_constant__ DecompressArgs args) {
    __shared__ DecompressShared shared;
    decompress_group<REACH, DTYPE, HOW>(args, shared);
}

#endif
