// SPDX-License-Identifier: Apache-2.0
// Decompressing: what a block has in shared memory and finds out of the stream, and a warp's way over its tiles.
#ifndef COMET_CODEC_CUDA_EB_WALK_CUH
#define COMET_CODEC_CUDA_EB_WALK_CUH

#include "codec/cuda/eb/eb_restore_rare.cuh"

struct DecompressShared {
    alignas(16) u8 stage[GROUP_TILES][STAGE_BYTES];
    alignas(16) u32 columns[GROUP_TILES][64];
    StreamView view;       // open_stream: read when needed, as registers are few
    u64 left[GROUP_TILES]; // for_tiles
    u64 payload_bytes;
    u32 status;
    float bound;
    u32 dtype; // of the stream
    union {
        quantiser_class first; // class 0; of a block that knows no others
        quantiser q;           // open_stream
    };
};

// What every block finds out first. False: nothing can be decoded, and the status word says why.
__device__ __forceinline__ bool open_stream(const DecompressArgs &args, DecompressShared &shared) {
    const u32 lane = threadIdx.x & 31;
    float bound;
    u32 dtype;
    const StreamView view = view_stream(args, stream_start(args), lane, bound, dtype);
    if (threadIdx.x == 0) {
        shared.view = view;
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

// The tiles of a warp: first, first + stride and so on; FROM_LAST: from the last one on.
template <bool FROM_LAST> struct WalkTiles {
    u32 warp, first, stride, end;

    __device__ __forceinline__ explicit WalkTiles(u32 tiles) {
        warp = warp_number(threadIdx.x);
        first = blockIdx.x * GROUP_TILES + warp;
        stride = gridDim.x * GROUP_TILES;
        end = tiles;
    }
    __device__ __forceinline__ bool has_any() const {
        return first < end;
    }
    __device__ __forceinline__ u32 count() const {
        return has_any() ? (end - first - 1) / stride + 1 : 0;
    }
    __device__ __forceinline__ u32 tile(u32 number) const {
        return first + number * stride;
    }
    __device__ __forceinline__ u32 begin() const { // if there are any
        return FROM_LAST ? tile(count() - 1) : first;
    }
    // Whether there is one to come after a tile, which moves on to it.
    __device__ __forceinline__ bool advance(u32 &tile) const {
        const bool more = FROM_LAST ? tile != first : end - tile > stride;
        tile = FROM_LAST ? tile - stride : tile + stride;
        return more;
    }
};

// A warp's tile of codes whose units are whole, with its first ones on their way; of any other it says that it is not
// stageable.
__device__ __forceinline__ TileSource code_source(DecompressShared &shared, const u8 *payload, int64_t whole_bytes,
                                                  const TableRow &row, u32 warp, u32 lane) {
    const TileBytes bytes = find_tile<false>(payload, whole_bytes, row, RowShare(warp, lane));
    return {bytes.from,         bytes.entry,         bytes.is_inside, first_unit(bytes, lane),
            shared.stage[warp], shared.columns[warp]};
}

// Calls decode(tile, source) for every tile of this warp; returns a bit for each, by its number, of which that said
// false (MOST_ROUNDS at most). The next tile's row of the table is asked for before a tile is decoded; asking for its
// bytes, too, gains nothing.
template <bool FROM_LAST, class Decode>
__device__ __forceinline__ u64 for_tiles(DecompressShared &shared, const WalkTiles<FROM_LAST> &tiles, Decode decode) {
    const u32 lane = threadIdx.x & 31;
    const StreamView &view = shared.view;
    u64 &left = shared.left[tiles.warp];
    if (!tiles.has_any())
        return 0;
    if (lane == 0)
        left = 0;
    u32 next = tiles.begin();
    TableRow row = read_row(view.table, next, lane);
    for (bool more = true; more;) {
        const u32 tile = next;
        const TileSource source = code_source(shared, view.payload, view.whole_bytes, row, tiles.warp, lane);
        more = tiles.advance(next);
        if (more)
            row = read_row(view.table, next, lane);
        if (!decode(tile, source)) { // asked first, and of the warp: lanes are not told apart on the common way
            if (lane == 0)
                left |= (u64)1 << (tile - tiles.first) / tiles.stride;
        }
        __syncwarp(); // the stage is used again
    }
    return left;
}

// A tile of a warp once more, which `left` of for_tiles has a bit for; from is NULL if it is not valid.
__device__ __forceinline__ TileSource find_again(const StreamView &view, DecompressShared &shared, u32 tile) {
    const u32 lane = threadIdx.x & 31, warp = tile % GROUP_TILES;
    const TableRow row = read_row(view.table, tile, lane);
    TileSource source = code_source(shared, view.payload, view.whole_bytes, row, warp, lane);
    if (!source.is_stageable) {
        const TileBytes bytes = find_tile(view.payload, (int64_t)view.payload_bytes, row, RowShare(warp, lane));
        source.from = is_tile(bytes) ? bytes.from : NULL;
    }
    return source;
}

#endif
