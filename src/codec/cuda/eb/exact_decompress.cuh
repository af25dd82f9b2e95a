// SPDX-License-Identifier: Apache-2.0
// Decompressing zvc: one warp a tile, which comes into shared memory in units of 16 bytes; the bitmap says where each
// thread's values lie in it.
#ifndef COMET_CODEC_CUDA_EXACT_DECOMPRESS_CUH
#define COMET_CODEC_CUDA_EXACT_DECOMPRESS_CUH

#include "codec/cuda/eb/eb_stream.cuh"
#include "codec/cuda/eb/exact_order.cuh"

// Blocks on a multiprocessor.
template <int BYTES> constexpr int EXACT_DECOMPRESS_BLOCKS = BYTES == 4 ? 4 : 5;

// The largest tile that can be valid: every value marked, which no encoder writes.
template <int BYTES> constexpr u32 LARGEST_EXACT_TILE = BITMAP_BYTES + 1024 * BYTES;

template <int BYTES> struct ExactStage {
    alignas(16) u8 tile[GROUP_TILES][ORDER_BYTES<BYTES>]; // as stored, then in order
    u64 payload_bytes;
    u32 status;
};

// Where a tile's bytes are found and how they get into the stage.
template <int BYTES> struct ExactSource {
    static constexpr int UNITS = (LARGEST_EXACT_TILE<BYTES> + 15 + 511) / 512; // of 16 bytes a lane
    static_assert(512 * (UNITS - 1) < ORDER_BYTES<BYTES>, "the stage holds a tile");
    const u8 *from; // NULL: the tile is not valid
    u32 entry;
    bool in_units; // all are whole, and values aligned
    uint4 unit[UNITS];

    __device__ __forceinline__ u32 size() const {
        return entry & ENTRY_SIZE_MASK;
    }
    __device__ __forceinline__ u32 skew() const {
        return (u32)(u64)from & 15;
    }

    // Asks for a tile of at most so many bytes of payload.
    __device__ __forceinline__ void ask(const TileBytes &bytes, const u8 *limit, u32 lane) {
        entry = bytes.entry;
        from = is_tile(bytes) && size() <= LARGEST_EXACT_TILE<BYTES> ? bytes.from : NULL;
        in_units = from && (u32)(u64)from % BYTES == 0 && has_whole_units(from, size(), limit);
        const u32 end = in_units ? skew() + size() : 0;
#pragma unroll
        for (int i = 0; i < UNITS; i++)
            if (16 * (lane + 32 * i) < end)
                unit[i] = __ldg((const uint4 *)(from - skew()) + lane + 32 * i);
    }

    // Brings it into the stage, and returns where it starts there.
    __device__ __forceinline__ u32 stage(u32 lane, u8 *to) const {
        if (!in_units)
            return from ? stage_bytes(from, size(), lane, to) : 0;
#pragma unroll
        for (int i = 0; i < UNITS; i++)
            if (16 * (lane + 32 * i) < skew() + size())
                ((uint4 *)to)[lane + 32 * i] = unit[i];
        __syncwarp();
        return skew();
    }
};

// Takes a thread's values out of a staged tile. False: the tile is not valid.
template <int REACH, int BYTES>
__device__ __forceinline__ bool unpack_exact(const Geometry &g, u32 entry, u32 tile, const TileStart &s, u32 lane,
                                             const u8 *from, Ordered<BYTES> &o) {
    const u32 kind = entry >> ENTRY_KIND_SHIFT, size = entry & ENTRY_SIZE_MASK;
    const u32 head = kind == KIND_SPARSE ? BITMAP_BYTES : 0;
    u32 kept = 0; // of zeros
    if (kind == KIND_SPARSE)
        kept = read_bitmap(from, lane);
    else if (kind == KIND_RAW)
        kept = tile < g.inner ? ~0u : real_in_order<REACH>(g, s, lane);
    const Places places = places_of(kept, lane);
    if (head + BYTES * places.count() != size)
        return false;
#pragma unroll
    for (int i = 0; i < QUADS * BYTES; i++)
        o.w[i / BYTES][i % BYTES] = 0;
    for_kept<BYTES>(places, kept, from + head, [&](int a, int e, const u8 *at) {
        if constexpr (BYTES == 4)
            o.w[a][e] = *(const u32 *)at;
        else
            o.w[a][e / 2] |= (u32) * (const u16 *)at << 16 * (e & 1);
    });
    return true;
}

template <int REACH, int BYTES>
__device__ __forceinline__ void store_exact(const DecompressArgs &args, u32 tile, const TileStart &s, u32 lane,
                                            const u32 (&p)[8][4]) {
    constexpr int DTYPE = DTYPE_OF_BYTES<BYTES>;
    const Geometry &g = args.geometry;
    if (!reach_is_row(REACH) || g.row % 4 == 0)
        store_patterns<REACH, DTYPE>(args.y, g, tile, s, lane, p);
    else if (g.row % 2 == 0)
        store_patterns<REACH_ROW2, DTYPE>(args.y, g, tile, s, lane, p);
    else
        store_patterns<REACH_ROW1, DTYPE>(args.y, g, tile, s, lane, p);
}

// Decodes a tile that was asked for. False: it is not valid.
template <int REACH, int BYTES>
__device__ __forceinline__ bool restore_exact(const DecompressArgs &args, const ExactSource<BYTES> &source, u32 tile,
                                              u32 lane, u8 *stage, u32 at) {
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    Ordered<BYTES> o;
    u32 p[8][4];
    if (!source.from || !unpack_exact<REACH, BYTES>(args.geometry, source.entry, tile, s, lane, stage + at, o))
        return false;
    __syncwarp(); // the stage has been read
    out_of_order<REACH, BYTES>(o, lane, stage, p);
    store_exact<REACH, BYTES>(args, tile, s, lane, p);
    return true;
}

// What one warp finds out for its block; it is there after the next barrier.
template <int BYTES>
__device__ __forceinline__ void check_exact_stream(const DecompressArgs &args, ExactStage<BYTES> &shared, u64 start,
                                                   u32 lane) {
    float bound;
    u32 dtype;
    const StreamView view = view_stream(args, start, lane, bound, dtype);
    if (lane == 0)
        shared.status = view.status, shared.payload_bytes = view.payload_bytes;
}

template <int REACH, int BYTES>
__device__ __forceinline__ void decompress_exact(const DecompressArgs &args, ExactStage<BYTES> &shared) {
    const u32 thread = thread_number(), lane = thread & 31, warp = thread >> 5;
    const u32 tile = blockIdx.x * GROUP_TILES + warp;
    const u64 start = stream_start(args);
    const u8 *stream = args.base + start, *payload = stream + args.table_end;
    ExactSource<BYTES> source;
    source.from = NULL;
    const bool is_there = tile < args.geometry.tiles;
    u64 behind = 0;
    u32 at = 0;
    if (has_table(args, start) && is_there) { // while the header is checked, what the slot's end allows
        const u64 room = args.last_start - start;
        const TileBytes bytes =
            find_tile(payload, (int64_t)room, read_row(stream + STREAM_HEADER_BYTES, tile, lane), RowShare(warp, lane));
        source.ask(bytes, payload + room, lane);
        behind = (u64)(bytes.from - payload) + (bytes.entry & ENTRY_SIZE_MASK);
    }
    if (warp == 0)
        check_exact_stream(args, shared, start, lane);
    if (source.from)
        at = source.stage(lane, shared.tile[warp]);
    __syncthreads();
    u32 status = shared.status;
    if (status == COMET_OK && is_there &&
        !(behind <= shared.payload_bytes &&
          restore_exact<REACH, BYTES>(args, source, tile, lane, shared.tile[warp], at)))
        status = COMET_ERROR_CORRUPT;
    if (status != COMET_OK && lane == 0)
        *args.status = (int32_t)status;
}

template <int REACH, int BYTES>
__global__ void __launch_bounds__(BLOCK_THREADS, EXACT_DECOMPRESS_BLOCKS<BYTES>)
    exact_decompress_kernel(const __grid_constant__ DecompressArgs args) {
    __shared__ ExactStage<BYTES> shared;
    decompress_exact<REACH, BYTES>(args, shared);
}

#endif
