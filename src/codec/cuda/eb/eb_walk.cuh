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
// at most). The next tile's row of the table is asked for before a tile is decoded; asking for its bytes, too, gains
// nothing.
template <bool FROM_LAST, class Decode>
__device__ __forceinline__ u64 for_tiles(DecompressShared &shared, const WalkTiles<FROM_LAST> &tiles, Decode decode) {
    const u32 lane = threadIdx.x & 31;
    const StreamView &view = shared.view;
    u64 &left = shared.left[threadIdx.x >> 5];
    if (tiles.rounds == 0)
        return 0;
    if (lane == 0)
        left = 0;
    TableRow row = read_row(view.table, tiles.tile(0), lane);
    for (u32 round = 0; round < tiles.rounds; round++) {
        const u32 tile = tiles.tile(round);
        const TileSource source = source_of(view, shared, find_tile(view.payload, view.payload_bytes, row, tile, lane));
        if (round + 1 < tiles.rounds)
            row = read_row(view.table, tiles.tile(round + 1), lane);
        if (!decode(tile, source) && lane == 0)
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

#endif
