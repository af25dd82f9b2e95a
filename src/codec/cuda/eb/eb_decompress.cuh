// SPDX-License-Identifier: Apache-2.0
// Decompressing eb and zvc: one warp a tile, eight warps a block. Decoded values go through an epilogue to the tensor.
// Each mode of the quantiser has a kernel of its own; what it does not do itself, restore_rest does.
#ifndef COMET_CODEC_CUDA_EB_DECOMPRESS_CUH
#define COMET_CODEC_CUDA_EB_DECOMPRESS_CUH

#include "codec/cuda/eb/eb_restore_rare.cuh"

// Blocks on a multiprocessor.
constexpr int decompress_blocks(int mode) {
    return mode == MODE_ANY ? 3 : 5;
}

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

// ---- the kernel ----

// A stageable tile without padding; `first`: class 0. False: its codes are not narrow, or it is not valid.
template <int REACH, int DTYPE, int MODE>
__device__ __forceinline__ bool restore_common(const DecompressArgs &args, DecompressShared &shared,
                                               const TileSource &source, u32 tile, u32 lane, float *table) {
    const u32 size = source.entry & ENTRY_SIZE_MASK;
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    quantiser_class c = shared.first;
    TileMaps maps;
    u32 u[8], class_index = 0;
    if constexpr (MODE == MODE_GRID)
        if (!make_table<REACH>(args.geometry, args.channel_map, s, lane, table, maps,
                               [&](u32 channel) { return restore_numbers(args, c, channel); }))
            return false;
    if (size) {
        u32 at = stage_tile(source.from, size, source.unit, lane, source.stage);
        TileHead head =
            tile_head(__reduce_max_sync(ALL_LANES, source.stage[at])); // so that branches on it are the warp's
        class_index = head.class_index;
        if (class_index)
            c.step = quantiser_step(shared.bound, (comet_dtype)shared.dtype, c.mode, (int)class_index);
        if (head.wide || c.step == 0.0f || !decode_narrow<REACH>(source.stage, at, size, head, lane, source.columns, u))
            return false;
        __syncwarp(); // the stage has been read
    } else {          // zeros, whether the stream has a class 0 or not
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = SIGN_BITS;
    }
    return store_codes<REACH, DTYPE, MODE>(args, c, class_index, maps, table, tile, s, lane, u, source.stage);
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

// Any tile, from the start: what restore_common cannot do. A function of its own, so that it costs the others no
// registers.
template <int REACH, int DTYPE>
__device__ __noinline__ void restore_rest(const DecompressArgs &args, DecompressShared &shared, u32 tile) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 status = shared.status;
    if (status == COMET_OK && tile < args.geometry.tiles) {
        quantiser q;
        quantiser_of(shared.bound, (comet_dtype)shared.dtype, args.flags, &q);
        const u8 *stream = args.base + stream_start(args);
        const TableRow row = read_row(stream + STREAM_HEADER_BYTES, tile, lane);
        const TileBytes bytes = find_tile(stream + args.table_end, shared.payload_bytes, row, tile, lane);
        TileSource source = {bytes.from, bytes.entry, false, {}, shared.stage[warp], shared.columns[warp]};
        source.is_stageable = is_stageable(bytes, stream + args.table_end + shared.payload_bytes);
        if (source.is_stageable)
            source.unit = first_unit(bytes, lane);
        const TileStart s = tile_start<REACH>(args.geometry, tile);
        const RareStore<REACH, DTYPE> store = {args, shared.dtype,
                                               TileChannels<REACH>(args.channel_map, args.geometry, s, lane), q};
        if (!(bytes.from && visit_tile<REACH>(args.geometry, q, source, tile, lane, store)))
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
template <int REACH, int DTYPE, int MODE>
__device__ __forceinline__ bool restore_first(const DecompressArgs &args, DecompressShared &shared, float *tables,
                                              u32 tile, u32 thread) {
    const u32 lane = thread & 31, warp = thread >> 5;
    const u64 start = stream_start(args);
    const u8 *stream = args.base + start, *payload = stream + args.table_end;
    TileSource source = {NULL, 0, false, {}, shared.stage[warp], shared.columns[warp]};
    u64 behind = 0;
    const u32 tiles = stores_padding<REACH, MODE>(args) ? args.geometry.tiles : args.geometry.inner;
    if (has_table(args, start) && tile < tiles) { // while the header is checked, what the slot's end allows
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
    if constexpr (MODE == MODE_ANY)
        return false;
    else
        return restore_common<REACH, DTYPE, MODE>(args, shared, source, tile, lane, tables + warp * TABLE_WORDS);
}

template <int REACH, int DTYPE, int MODE>
__device__ __forceinline__ void decompress_group(const DecompressArgs &args, DecompressShared &shared, float *tables) {
    // the end of the tensor, which takes longer where it has padding, comes first
    const u32 thread = thread_number(), group = gridDim.x - 1 - blockIdx.x, tiles = args.geometry.tiles;
    const u32 tile = group * GROUP_TILES + (thread >> 5);
    if (!restore_first<REACH, DTYPE, MODE>(args, shared, tables, tile, thread) && (tile < tiles || tiles == 0)) {
        __syncwarp();                                   // the stage has been read
        restore_rest<REACH, DTYPE>(args, shared, tile); // of an empty tensor, the header alone
    }
}

template <int REACH, int DTYPE, int MODE>
__global__ void __launch_bounds__(BLOCK_THREADS, decompress_blocks(MODE))
    eb_decompress_kernel(const __grid_constant__ DecompressArgs args) {
    __shared__ DecompressShared shared;
    __shared__ float4 tables[MODE == MODE_GRID ? GROUP_TILES * TABLE_WORDS / 4 : 1]; // numbers of channels
    decompress_group<REACH, DTYPE, MODE>(args, shared, (float *)tables);
}

#endif
