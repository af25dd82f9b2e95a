// SPDX-License-Identifier: Apache-2.0
// Decompressing eb and zvc: eight warps a block, each of which goes over tiles. Decoded values go through an epilogue to
// the tensor. Each mode of the quantiser has a kernel of its own; what it does not do itself, restore_rest does.
#ifndef COMET_CODEC_CUDA_EB_DECOMPRESS_CUH
#define COMET_CODEC_CUDA_EB_DECOMPRESS_CUH

#include "codec/cuda/eb/eb_restore_rare.cuh"

struct DecompressShared {
    alignas(16) u8 stage[GROUP_TILES][STAGE_BYTES];
    alignas(16) u32 columns[GROUP_TILES][64];
    u32 status;
    quantiser q; // open_stream
};

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

// ---- the way over tiles ----

// The tiles of a warp, from the first or from the last one on.
template <bool FROM_LAST> struct WalkTiles {
    u32 first, stride, rounds;

    __device__ __forceinline__ explicit WalkTiles(u32 tiles) {
        first = blockIdx.x * GROUP_TILES + (threadIdx.x >> 5);
        stride = gridDim.x * GROUP_TILES;
        rounds = first < tiles ? (tiles - first - 1) / stride + 1 : 0;
    }
    __device__ __forceinline__ u32 tile(u32 round) const {
        return first + (FROM_LAST ? rounds - 1 - round : round) * stride;
    }
};

__device__ __forceinline__ TileSource source_of(const StreamView &view, DecompressShared &shared,
                                                const TileBytes &bytes) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    TileSource source = {bytes.from, bytes.entry, false, {}, shared.stage[warp], shared.columns[warp]};
    source.is_stageable = is_stageable(bytes, view.payload + view.payload_bytes);
    if (source.is_stageable)
        source.unit = first_unit(bytes, lane);
    return source;
}

// Calls decode(tile, source) for every tile of this warp; returns a bit for each of which that said false (MOST_ROUNDS
// at most). The next tile's row of the table is asked for before a tile is decoded; asking for its bytes, too, takes
// more registers than it is worth.
template <bool FROM_LAST, class Decode>
__device__ __forceinline__ u64 for_tiles(DecompressShared &shared, const StreamView &view,
                                         const WalkTiles<FROM_LAST> &tiles, Decode decode) {
    const u32 lane = threadIdx.x & 31;
    u64 left = 0;
    if (tiles.rounds == 0)
        return left;
    TableRow row = read_row(view.table, tiles.tile(0), lane);
    for (u32 round = 0; round < tiles.rounds; round++) {
        const u32 tile = tiles.tile(round);
        const TileSource source = source_of(view, shared, find_tile(view.payload, view.payload_bytes, row, tile, lane));
        if (round + 1 < tiles.rounds)
            row = read_row(view.table, tiles.tile(round + 1), lane);
        if (!decode(tile, source))
            left |= (u64)1 << round;
        __syncwarp(); // the stage is used again
    }
    return left;
}

// A tile of a warp once more, which `left` of for_tiles has a bit for.
__device__ __forceinline__ TileSource find_again(const StreamView &view, DecompressShared &shared, u32 tile) {
    const u32 lane = threadIdx.x & 31;
    const TableRow row = read_row(view.table, tile, lane);
    return source_of(view, shared, find_tile(view.payload, view.payload_bytes, row, tile, lane));
}

// ---- a tile ----

// A stageable tile. False: its codes are not narrow, it is not valid, or it has padding that is not stored here.
template <int REACH, int DTYPE, int MODE>
__device__ __forceinline__ bool restore_common(const DecompressArgs &args, DecompressShared &shared,
                                               const TileSource &source, u32 tile, u32 lane, float *table) {
    const u32 size = source.entry & ENTRY_SIZE_MASK;
    const Geometry &g = args.geometry;
    const TileStart s = tile_start<REACH>(g, tile);
    const quantiser &q = shared.q;
    TileMaps maps;
    u32 u[8], class_index = 0;
    if (!source.is_stageable || (tile >= g.inner && !stores_padding<REACH, MODE>(args)))
        return false;
    if constexpr (MODE == MODE_GRID && !reach_is_last(REACH))
        if (!make_table<REACH>(g, args.channel_map, s, lane, table, maps,
                               [&](u32 channel) { return restore_numbers(args, q.classes[0], channel); }))
            return false;
    if (size) {
        u32 at = stage_tile(source.from, size, source.unit, lane, source.stage);
        TileHead head =
            tile_head(__reduce_max_sync(ALL_LANES, source.stage[at])); // so that branches on it are the warp's
        class_index = head.class_index;
        if (head.wide || q.classes[class_index].step == 0.0f ||
            !decode_narrow<REACH>(source.stage, at, size, head, lane, source.columns, u))
            return false;
        __syncwarp(); // the stage has been read
    } else {          // zeros, whether the stream has a class 0 or not
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = SIGN_BITS;
    }
    return store_codes<REACH, DTYPE, MODE>(args, q.classes[class_index].step, class_index, maps, table, tile, s, lane,
                                           u, source.stage);
}

// The tiles that restore_common left. A function of its own, so that it costs the others no registers.
template <int REACH, int DTYPE>
__device__ __noinline__ void restore_rest(const DecompressArgs &args, DecompressShared &shared,
                                          const WalkTiles<true> &tiles, u64 left) {
    const u32 lane = threadIdx.x & 31;
    float bound;
    u32 dtype;
    const StreamView view = view_stream(args, stream_start(args), lane, bound, dtype);
    for (u32 round = 0; left; round++, left >>= 1) {
        if (!(left & 1))
            continue;
        const u32 tile = tiles.tile(round);
        const TileSource source = find_again(view, shared, tile);
        const TileStart s = tile_start<REACH>(args.geometry, tile);
        const RareStore<REACH, DTYPE> store = {args, dtype,
                                               TileChannels<REACH>(args.channel_map, args.geometry, s, lane)};
        if (!(source.from && visit_tile<REACH>(args.geometry, shared.q, source, tile, lane, store)) && lane == 0)
            *args.status = COMET_ERROR_CORRUPT;
        __syncwarp(); // the stage is used again
    }
}

// ---- the kernel ----

constexpr int decompress_blocks(int mode) { // on a multiprocessor
    return mode == MODE_ANY ? 3 : 4;
}

template <int REACH, int DTYPE, int MODE>
__device__ __forceinline__ void decompress_tiles(const DecompressArgs &args, DecompressShared &shared, float *table) {
    const u32 lane = threadIdx.x & 31;
    const Geometry &g = args.geometry;
    const WalkTiles<true> tiles(g.tiles); // the end of the tensor, which takes longer where it has padding, comes first
    StreamView view;
    TileMaps none;
    if (!open_stream(args, shared, view) || tiles.rounds == 0)
        return;
    u64 left = ~(u64)0 >> (64 - tiles.rounds);
    if (MODE == MODE_GRID && reach_is_last(REACH)) // a warp finds the same channels in all of its tiles
        make_table<REACH>(g, args.channel_map, tile_start<REACH>(g, tiles.first), lane, table, none,
                          [&](u32 channel) { return restore_numbers(args, shared.q.classes[0], channel); });
    if constexpr (MODE != MODE_ANY)
        left = for_tiles(shared, view, tiles, [&](u32 tile, const TileSource &source) {
            return restore_common<REACH, DTYPE, MODE>(args, shared, source, tile, lane, table);
        });
    if (left)
        restore_rest<REACH, DTYPE>(args, shared, tiles, left);
}

template <int REACH, int DTYPE, int MODE>
__global__ void __launch_bounds__(BLOCK_THREADS, decompress_blocks(MODE))
    eb_decompress_kernel(const __grid_constant__ DecompressArgs args) {
    __shared__ DecompressShared shared;
    __shared__ float4 tables[MODE == MODE_GRID ? GROUP_TILES * TABLE_WORDS / 4 : 1]; // numbers of channels
    const u32 warp = MODE == MODE_GRID ? threadIdx.x >> 5 : 0;
    decompress_tiles<REACH, DTYPE, MODE>(args, shared, (float *)tables + warp * TABLE_WORDS);
}

#endif
