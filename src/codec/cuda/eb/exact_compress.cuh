// SPDX-License-Identifier: Apache-2.0
// Compressing what is known to be stored exactly, zvc and eb with a bound of 0: as eb_compress.cuh, one warp a tile and
// one block a group, but a tile is read once, packed in shared memory from registers, and nothing is quantised.
#ifndef COMET_CODEC_CUDA_EXACT_COMPRESS_CUH
#define COMET_CODEC_CUDA_EXACT_COMPRESS_CUH

#include "codec/cuda/eb/eb_group.cuh"
#include "codec/cuda/eb/exact_order.cuh"

// Blocks on a multiprocessor.
enum { EXACT_COMPRESS_BLOCKS = 4 };

// A warp's own room: its tile in order, or before that a rare tile's values.
template <int BYTES>
constexpr u32 ROOM_BYTES = ORDER_BYTES<BYTES> > 4 * SCRATCH_WORDS ? ORDER_BYTES<BYTES> : 4 * SCRATCH_WORDS;

template <int BYTES> struct ExactShared : GroupShared {
    union {
        alignas(16) u8 room[GROUP_TILES][ROOM_BYTES<BYTES>]; // until every warp has its tile in order
        alignas(16) u8 out[GROUP_TILES * 1024 * BYTES];
        SummaryScratch summary; // when all else is done
    };
};

// ---- a tile ----

// A thread's values as they are reached: quad a is p[a] of load_patterns. Values of 16 bits stay two in a word, or
// registers would be short.
template <int BYTES> struct Reached {
    u32 w[QUADS][BYTES];

    __device__ __forceinline__ void pack(const u32 (&p)[8][4]) {
#pragma unroll
        for (int a = 0; a < QUADS; a++)
            pack_quad<BYTES>(p[a][0], p[a][1], p[a][2], p[a][3], w[a]);
    }
    __device__ __forceinline__ void unpack(u32 (&p)[8][4]) const {
#pragma unroll
        for (int a = 0; a < QUADS; a++)
            unpack_quad<BYTES>(w[a], p[a][0], p[a][1], p[a][2], p[a][3]);
    }
    __device__ __forceinline__ void unpack_again(u32 (&p)[8][4]) {
#pragma unroll
        for (int i = 0; i < QUADS * BYTES; i++)
            forget_uses(w[i / BYTES][i % BYTES]);
        unpack(p);
    }
};

template <int REACH, int BYTES>
__device__ __forceinline__ void load_reached(const CompressArgs &args, u32 tile, const TileStart &s, u32 lane,
                                             Reached<BYTES> &r) {
    u32 p[8][4];
    load_inner<REACH, DTYPE_OF_BYTES<BYTES>>(args.x, args.geometry, tile, s, lane, p);
    r.pack(p);
}

// Padding is 0.
template <int REACH, int BYTES>
__device__ __forceinline__ void load_exact_tile(const CompressArgs &args, bool inner, u32 tile, const TileStart &s,
                                                u32 lane, Reached<BYTES> &r) {
    const Geometry &g = args.geometry;
    if (!inner) {
        u32 p[8][4], real;
        load_patterns<any_row<REACH>, DTYPE_OF_BYTES<BYTES>>(args.x, g, tile, s, lane, p, real);
        r.pack(p);
    } else if (!reach_is_row(REACH) || g.row % 4 == 0) {
        load_reached<REACH>(args, tile, s, lane, r);
    } else if (g.row % 2 == 0) {
        load_reached<REACH_ROW2>(args, tile, s, lane, r);
    } else {
        load_reached<REACH_ROW1>(args, tile, s, lane, r);
    }
}

// Statistics of any tile, read again. A function of its own, so that it costs the others no registers.
template <int REACH, int DTYPE>
__device__ __noinline__ void survey_again(const CompressArgs &args, u32 tile, u32 lane, u32 *scratch,
                                          TileStats &stats) {
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    Survey survey;
    const u32 real = rare_load<REACH, DTYPE>(args, tile, s, lane, scratch, NoObserver());
    rare_survey<REACH, DTYPE>(args, scratch, s, lane, real, survey);
    keep_stats(survey, lane, stats);
    __syncwarp(); // the scratch has been read
}

template <int REACH, int DTYPE, int BYTES>
__device__ __forceinline__ void survey_exact(const CompressArgs &args, bool inner, u32 tile, u32 lane,
                                             const Reached<BYTES> &r, u32 *scratch, TileStats &stats) {
    u32 p[8][4];
    float v[8][4];
    r.unpack(p);
#pragma unroll
    for (int i = 0; i < 32; i++)
        v[i / 4][i % 4] = float_of_pattern<DTYPE>(p[i / 4][i % 4]);
    const Range range = range_of_packed<DTYPE>(r.w);
    if (!inner || !sums_fit_f32(magnitude_of(range))) {
        survey_again<REACH, DTYPE>(args, tile, lane, scratch, stats);
        return;
    }
    Survey survey;
    survey_plain(v, range, survey);
    survey.sum = (double)plain_sums<REACH>(v, lane).rest();
    keep_stats(survey, lane, stats);
}

// A branch for all tiles costs less than kernels of their own for fp16 and bf16.
template <int REACH, int BYTES>
__device__ __forceinline__ void survey_tile(const CompressArgs &args, bool inner, u32 tile, u32 lane,
                                            const Reached<BYTES> &r, u32 *scratch, TileStats &stats) {
    if constexpr (BYTES == 4)
        survey_exact<REACH, COMET_F32>(args, inner, tile, lane, r, scratch, stats);
    else if (args.dtype == COMET_F16)
        survey_exact<REACH, COMET_F16>(args, inner, tile, lane, r, scratch, stats);
    else
        survey_exact<REACH, COMET_BF16>(args, inner, tile, lane, r, scratch, stats);
}

// How a tile is stored.
struct ExactPlan {
    u32 entry;
    u32 kept;
    Places places;
};

template <int REACH, int BYTES>
__device__ __forceinline__ ExactPlan plan_exact_tile(const Geometry &g, bool inner, const TileStart &s, u32 lane,
                                                     const Ordered<BYTES> &o) {
    ExactPlan plan;
    plan.kept = marks_of(o);
    plan.places = places_of(plan.kept, lane);
    u32 real = ~0u, count = 1024;
    if (!inner) {
        real = real_in_order<REACH>(g, s, lane);
        count = __reduce_add_sync(ALL_LANES, (u32)__popc(real));
    }
    plan.entry = exact_entry(plan.places.count(), count, BYTES, true);
    if (plan.entry >> ENTRY_KIND_SHIFT == KIND_RAW) {
        plan.kept = real;
        plan.places = inner ? places_of_all(lane) : places_of(real, lane);
    }
    return plan;
}

// Puts a tile's bytes into shared memory.
template <int BYTES>
__device__ __forceinline__ void pack_exact(const ExactPlan &plan, const Ordered<BYTES> &o, u32 lane, u8 *to) {
    if (plan.entry == 0)
        return;
    if (plan.entry >> ENTRY_KIND_SHIFT == KIND_SPARSE) {
        write_bitmap(plan.kept, lane, to);
        to += BITMAP_BYTES;
    }
    for_kept<BYTES>(plan.places, plan.kept, to, [&](int a, int e, u8 *at) {
        if constexpr (BYTES == 4)
            *(u32 *)at = o.w[a][e];
        else
            *(u16 *)at = (u16)(o.w[a][e / 2] >> 16 * (e & 1));
    });
}

// ---- a group ----

// Claims space for a planned group, packs it and writes it out. By all warps.
template <int BYTES>
__device__ __forceinline__ void write_exact_group(const CompressArgs &args, ExactShared<BYTES> &shared, u32 group,
                                                  u32 thread, const ExactPlan &plan, const Ordered<BYTES> &o) {
    const u32 lane = thread & 31, warp = thread >> 5;
    const GroupPlan g = group_plan(shared, lane, warp);
    unsigned long long answer = 0;
    u64 start = 0;
    if (!args.with_stats && warp == WARP_OF_CLAIM)
        note_rare(args, shared, g, group, lane);
    if (thread == 32 * WARP_OF_CLAIM) { // the answer is used after the tile is packed
        answer = claim_room(&args.workspace->totals, g.room);
        start = stream_start(args);
    }
    if (args.with_stats && warp == WARP_OF_RECORD) {
        const u32 exact = __ballot_sync(ALL_LANES, lane < GROUP_TILES && g.entry >> ENTRY_KIND_SHIFT != KIND_CODES);
        write_record(shared.stats, __popc(exact), 0, shared.range_known, &args.workspace->totals, args.records + group,
                     lane);
    }
    pack_exact<BYTES>(plan, o, lane, shared.out + g.begin);
    if (thread < g.room - g.bytes)
        shared.out[g.bytes + thread] = 0;
    if (thread == 32 * WARP_OF_CLAIM)
        take_claim(args, shared, g.room, start, answer);
    __syncthreads();
    u8 *to = shared.to;
    if (to == NULL)
        return;
#pragma unroll 4
    for (u32 i = thread; 16 * i < g.room; i += BLOCK_THREADS)
        ((uint4 *)to)[i] = ((const uint4 *)shared.out)[i];
    if (warp == WARP_OF_TABLE)
        write_table(args.base + shared.start + STREAM_HEADER_BYTES, group, shared.offset, g.entry, lane);
}

// Compresses the block's group. A tile behind the last one is one of padding.
template <int REACH, int BYTES>
__device__ __forceinline__ void compress_exact(const CompressArgs &args, ExactShared<BYTES> &shared, u32 thread) {
    const u32 lane = thread & 31, warp = thread >> 5;
    const u32 group = group_of_block(), tile = group * GROUP_TILES + warp;
    const bool inner = group * GROUP_TILES + GROUP_TILES <= args.geometry.inner; // all eight
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    u32 p[8][4];
    Reached<BYTES> r;
    Ordered<BYTES> o;
    load_exact_tile<REACH>(args, inner, tile, s, lane, r);
    if (args.with_stats && warp == WARP_OF_RECORD && lane == 0) // while the tile is on its way
        shared.range_known = range_so_far(&args.workspace->totals);
    if (args.with_stats)
        survey_tile<REACH, BYTES>(args, inner, tile, lane, r, (u32 *)shared.room[warp], shared.stats[warp]);
    r.unpack_again(p);
    into_order<REACH, BYTES>(p, lane, shared.room[warp], o);
    const ExactPlan plan = plan_exact_tile<REACH, BYTES>(args.geometry, inner, s, lane, o);
    if (lane == 0)
        shared.entry[warp] = plan.entry;
    __syncthreads();
    write_exact_group<BYTES>(args, shared, group, thread, plan, o);
}

template <int REACH, int BYTES>
__global__ void __launch_bounds__(BLOCK_THREADS, EXACT_COMPRESS_BLOCKS)
    exact_compress_kernel(const __grid_constant__ CompressArgs args) {
    __shared__ ExactShared<BYTES> shared;
    const u32 thread = thread_number();
    u64 payload = 0;
    if (args.groups) {
        compress_exact<REACH, BYTES>(args, shared, thread);
        if (!is_last_group(args, shared, thread))
            return;
        payload = shared.payload;
    } else {
        if (thread == 0)
            shared.start = stream_start(args);
        __syncthreads();
    }
    finish(args, shared, payload);
}

#endif
