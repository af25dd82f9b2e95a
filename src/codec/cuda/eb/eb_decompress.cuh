// SPDX-License-Identifier: Apache-2.0
// Decompressing eb and zvc: a warp a tile at a time, eight warps a block. Decoded values go through an epilogue to the
// tensor. Each mode of the quantiser has a kernel of its own; what it does not do itself, restore_rest does.
//
// fp32 waits for memory: many blocks, a tile for each warp, all of it asked for at once. 16-bit values wait for
// instructions: as many blocks as run at once, whose warps go over tiles and do once what is the same for all.
#ifndef COMET_CODEC_CUDA_EB_DECOMPRESS_CUH
#define COMET_CODEC_CUDA_EB_DECOMPRESS_CUH

#include "codec/cuda/eb/eb_walk.cuh"

constexpr __host__ __device__ bool decompress_walks(int dtype) {
    return dtype != COMET_F32;
}

constexpr __host__ __device__ int decompress_blocks(int dtype, int mode) { // on a multiprocessor
    return mode == MODE_ANY ? 3 : decompress_walks(dtype) ? 4 : 5;
}

// ---- a tile ----

// A stageable tile. False: its codes are not narrow, it is not valid, or it has padding that is not stored here.
// step(class) gives the step of a class. The table is there where channels come last and a warp walks.
template <int REACH, int DTYPE, int MODE, class Start, class Step>
__device__ __forceinline__ bool restore_common(const DecompressArgs &args, const quantiser_class &first,
                                               const TileSource &source, u32 tile, const Start &s, u32 lane,
                                               float *table, Step step) {
    TileMaps maps;
    u32 u[8], class_index = 0;
    float its_step = first.step;
    if constexpr (MODE == MODE_GRID && !(reach_is_last(REACH) && decompress_walks(DTYPE)))
        if (!make_table<REACH>(args.geometry, args.channel_map, s, lane, table, maps,
                               [&](u32 channel) { return restore_numbers(args, first, channel); }))
            return false;
    if (!narrow_codes<REACH>(source, lane, u, [&](const TileHead &head) {
            class_index = head.class_index;
            if (class_index)
                its_step = step(class_index);
            return its_step != 0.0f;
        }))
        return false;
    return store_codes<REACH, DTYPE, MODE>(args, its_step, class_index, maps, table, tile, s, lane, u, source.stage);
}

// Whether codes are all there is to values: no grid, no epilogue, the tensor's own dtype.
template <int DTYPE> __device__ __forceinline__ bool is_plain(const DecompressArgs &args, u32 dtype) {
    return dtype == DTYPE && !(args.flags & STREAM_GRID) && !(args.scale || args.shift || args.add || args.relu);
}

// Codes of any class, of a tile without padding. False: it is not valid.
template <int REACH, int DTYPE>
__device__ __forceinline__ bool restore_codes(const DecompressArgs &args, const quantiser &q, const TileSource &source,
                                              u32 tile, u32 lane) {
    const u16 *codes = (const u16 *)source.stage;
    u32 p[8][PIECE_WORDS<DTYPE>];
    quantiser_class c;
    if (!decode_codes<REACH>(q, source, lane, c))
        return false;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int code = (int16_t)codes[tile_index<REACH>(lane, i / 4, i % 4)];
        put_packed<REACH, DTYPE>(p, i / 4, i % 4, clamped<DTYPE>(value_of_code(code, c, 0.0f)));
    }
    store_packed<REACH, DTYPE>(args.y, args.geometry, tile, tile_start<REACH>(args.geometry, tile), lane, p);
    return true;
}

// The tiles that restore_common left. A function of its own, so that it costs the others no registers.
template <int REACH, int DTYPE>
__device__ __noinline__ void restore_rest(const DecompressArgs &args, DecompressShared &shared, WalkTiles<true> tiles,
                                          u64 left) {
    const u32 lane = threadIdx.x & 31;
    float bound;
    u32 dtype;
    const StreamView view = view_stream(args, stream_start(args), lane, bound, dtype);
    quantiser q;
    quantiser_of(bound, (comet_dtype)dtype, args.flags, &q);
    for (u32 number = 0; left; number++, left >>= 1) {
        if (!(left & 1))
            continue;
        const u32 tile = tiles.tile(number);
        const TileSource source = find_again(view, shared, tile);
        const TileStart s = tile_start<REACH>(args.geometry, tile);
        const RareStore<REACH, DTYPE> store = {args, dtype,
                                               TileChannels<REACH>(args.channel_map, args.geometry, s, lane)};
        bool good = source.from;
        if (good && tile < args.geometry.inner && source.entry >> ENTRY_KIND_SHIFT == KIND_CODES &&
            is_plain<DTYPE>(args, dtype))
            good = restore_codes<REACH, DTYPE>(args, q, source, tile, lane);
        else
            good = good && visit_tile<REACH>(args.geometry, q, source, tile, lane, store);
        if (!good && lane == 0)
            *args.status = COMET_ERROR_CORRUPT;
        __syncwarp(); // the stage is used again
    }
}

// ---- a tile a warp ----

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
    if (view.status != COMET_OK)
        *args.status = (int32_t)view.status;
}

// False: restore_rest is to do it.
template <int REACH, int DTYPE, int MODE>
__device__ __forceinline__ bool restore_one(const DecompressArgs &args, DecompressShared &shared, float *table,
                                            u32 tile, u32 lane, u32 warp) {
    const u64 start = stream_start(args);
    const u8 *stream = args.base + start, *payload = stream + args.table_end;
    TileSource source = {};
    u64 behind = 0;
    if (has_table(args, start) && tile < args.quick) { // while the header is checked, what the slot's end allows
        const u64 room = args.last_start - start;
        const TableRow row = read_row(stream + STREAM_HEADER_BYTES, tile, lane);
        source = code_source(shared, payload, whole_units(payload, room), row, warp, lane);
        behind = (u64)(source.from - payload) + source.entry;
    }
    if (warp == 0)
        check_stream(args, shared, start, lane);
    __syncthreads();
    if (shared.status != COMET_OK || !source.is_stageable || behind > shared.payload_bytes)
        return false;
    if constexpr (MODE == MODE_ANY)
        return false;
    else
        return restore_common<REACH, DTYPE, MODE>(
            args, shared.first, source, tile, tile_start<REACH>(args.geometry, tile), lane, table, [&](u32 index) {
                return quantiser_step(shared.bound, (comet_dtype)shared.dtype, shared.first.mode, (int)index);
            });
}

template <int REACH, int DTYPE, int MODE>
__device__ __forceinline__ void decompress_group(const DecompressArgs &args, DecompressShared &shared, float *table) {
    // the end of the tensor, which takes longer where it has padding, comes first
    const u32 thread = thread_number(), lane = thread & 31, warp = warp_number(thread);
    const u32 tile = (gridDim.x - 1 - blockIdx.x) * GROUP_TILES + warp;
    if (restore_one<REACH, DTYPE, MODE>(args, shared, table, tile, lane, warp) || tile >= args.geometry.tiles ||
        shared.status != COMET_OK)
        return;
    __syncwarp(); // the stage has been read
    WalkTiles<true> alone(0);
    alone.first = tile;
    restore_rest<REACH == REACH_SWEEP ? REACH_ROW1 : REACH, DTYPE>(args, shared, alone, 1);
}

// ---- many tiles a warp ----

template <int REACH, int DTYPE, int MODE>
__device__ __forceinline__ void decompress_walk(const DecompressArgs &args, DecompressShared &shared, float *table) {
    const u32 lane = threadIdx.x & 31;
    const Geometry &g = args.geometry;
    const WalkTiles<true> tiles(g.tiles); // the end first, as above
    const quantiser &q = shared.q;
    TileMaps none;
    if (!open_stream(args, shared) || !tiles.has_any())
        return;
    u64 left = ~(u64)0 >> (64 - tiles.count());
    if (MODE == MODE_GRID && reach_is_last(REACH)) // a warp finds the same channels in all of its tiles
        make_table<REACH>(g, args.channel_map, tile_start<REACH>(g, tiles.first), lane, table, none,
                          [&](u32 channel) { return restore_numbers(args, q.classes[0], channel); });
    WalkPlace<REACH, DTYPE == COMET_F32, true> place(g, tiles.begin());
    if constexpr (MODE != MODE_ANY)
        left = for_tiles(shared, tiles, [&](u32 tile, const TileSource &source) {
            const auto s = place.go_to(g, tile);
            return tile < args.quick &&
                   restore_common<REACH, DTYPE, MODE>(args, q.classes[0], source, tile, s, lane, table,
                                                      [&](u32 index) { return q.classes[index].step; });
        });
    if (left)
        restore_rest<REACH == REACH_SWEEP ? REACH_ROW1 : REACH, DTYPE>(args, shared, tiles, left);
}

// ---- the kernel ----

template <int REACH, int DTYPE, int MODE>
__global__ void __launch_bounds__(BLOCK_THREADS, decompress_blocks(DTYPE, MODE))
    eb_decompress_kernel(const __grid_constant__ DecompressArgs args) {
    __shared__ DecompressShared shared;
    __shared__ float4 tables[MODE == MODE_GRID ? GROUP_TILES * TABLE_WORDS / 4 : 1]; // numbers of channels
    float *table = (float *)tables + (MODE == MODE_GRID ? threadIdx.x >> 5 : 0) * TABLE_WORDS;
    if constexpr (decompress_walks(DTYPE))
        decompress_walk<REACH, DTYPE, MODE>(args, shared, table);
    else
        decompress_group<REACH, DTYPE, MODE>(args, shared, table);
}

#endif
