// SPDX-License-Identifier: Apache-2.0
// Compressing with eb: one warp a tile, one block a group of eight tiles, one launch a tensor.
//
// A block looks at its tiles, quantises and plans. It then claims space with one atomic addition, hides that addition's
// latency behind the packing of its bytes in shared memory, and writes them out. What the last block does,
// eb_records.cuh tells.
//
// The kernel itself does groups of eight tiles that are as they should be: no padding, every value within reach of
// 8-bit codes. compress_mixed does what is left of any other; written into the same function, that would cost the
// common case its registers. Each mode of the quantiser has a kernel of its own.
#ifndef COMET_CODEC_CUDA_EB_COMPRESS_CUH
#define COMET_CODEC_CUDA_EB_COMPRESS_CUH

#include "codec/cuda/eb/eb_patch.cuh"

constexpr int compress_blocks(int mode) { // on a multiprocessor
    return mode == MODE_ANY ? 3 : mode == MODE_GRID ? 4 : 5;
}

// ---- the narrow class of a tile ----

// How a tile is quantised.
struct NarrowClass {
    u32 index; // NO_CLASS: not to narrow codes
    float inverse;
};

enum { NO_CLASS = QUANTISER_CLASSES };

// The first narrow class of a dtype that reaches so far, which is not 0; one that the stream does not have reaches 0.
template <int DTYPE> __device__ __forceinline__ NarrowClass narrow_class(const quantiser &q, u32 magnitude) {
    constexpr u32 COUNT = DTYPE == COMET_F32 ? 1 : 4;
    NarrowClass c = {0, q.classes[0].inverse};
    if (magnitude <= q.classes[0].reach) // as most are: selecting among all would take longer
        return c;
#pragma unroll 1
    for (c.index = 1; c.index < COUNT; c.index++)
        if (magnitude <= q.classes[c.index].reach) {
            c.inverse = q.classes[c.index].inverse;
            return c;
        }
    c.index = NO_CLASS;
    return c;
}

template <int DTYPE>
__device__ __forceinline__ NarrowClass narrow_class_in(const CompressArgs &args, const CompressShared &shared,
                                                       u32 magnitude) {
    return args.bound_is_known ? narrow_class<DTYPE>(args.q, magnitude) : narrow_class<DTYPE>(shared.q, magnitude);
}

// ---- a tile without padding ----

// Statistics of a tile. False: it has padding, or its sums do not fit fp32.
template <int REACH, int DTYPE>
__device__ __forceinline__ bool value_stats(const CompressArgs &args, CompressShared &shared, u32 tile, u32 lane,
                                            u32 warp, const u32 (&w)[8][PIECE_WORDS<DTYPE>]) {
    note_range(args, shared, lane, warp);
    const Range range = range_of_packed<DTYPE>(w);
    if (tile >= args.geometry.inner || !sums_fit_f32(magnitude_of(range)))
        return false;
    float v[8][4];
#pragma unroll
    for (int i = 0; i < 32; i++)
        v[i / 4][i % 4] = packed_value<DTYPE>(w, i / 4, i % 4);
    Survey survey;
    survey_plain(v, range, survey);
    survey.sum = (double)plain_sums<REACH>(v, lane).rest();
    keep_stats(survey, lane, shared.stats[warp]);
    return true;
}

// A tile whose values need 16-bit codes; value(a, e).
template <int REACH, int DTYPE, int MODE, class Value>
__device__ __forceinline__ void compress_wide(const CompressArgs &args, const quantiser_class &c, u32 tile,
                                              const TileStart &s, u32 lane, u32 *scratch, TilePlan &plan, Value value) {
    u32 words[2][8], low[8], high[8], real[8];
    auto code = [&](int a, int e) { return wide_code<DTYPE, MODE>(value(a, e), c.inverse); };
    pack_words<REACH>(words[0], [&](int a0, int e0, int a1, int e1, int a2, int e2, int a3, int e3) {
        return pack_bytes(code(a0, e0), code(a1, e1), code(a2, e2), code(a3, e3));
    });
    pack_words<REACH>(words[1], [&](int a0, int e0, int a1, int e1, int a2, int e2, int a3, int e3) {
        return pack_second_bytes(code(a0, e0), code(a1, e1), code(a2, e2), code(a3, e3));
    });
    exchange_codes<REACH>(words[0], lane, scratch + SCRATCH_PLANES, low);
    exchange_codes<REACH>(words[1], lane, scratch + SCRATCH_PLANES, high);
    const u32 raw = VALUE_BYTES<DTYPE> * drop_padding<REACH>(args.geometry, tile, s, lane, 0, low, real);
    plan_wide<REACH>(lane, low, high, real, {scratch + SCRATCH_PLANES, scratch + SCRATCH_HIGH},
                     scratch + SCRATCH_BALLOTS, plan);
    if (plan.entry >= raw) {
        plan.wide = false;
        plan.entry = ENTRY_LEFT;
    }
}

// Rounded to nearest, or with the mask kept. ENTRY_LEFT: the tile is one for compress_rare. PADDED: it may have some.
template <int REACH, int DTYPE, int MODE, bool PADDED, int LOADS>
__device__ __forceinline__ void compress_values(const CompressArgs &args, CompressShared &shared, u32 tile, u32 lane,
                                                u32 warp, TilePlan &plan) {
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    u32 w[8][PIECE_WORDS<DTYPE>], words[8], u[8], *scratch = shared.scratch[warp];
    if (PADDED && tile >= args.geometry.inner)
        load_padded<REACH, DTYPE, LOADS>(args.x, args.geometry, tile, s, lane, w);
    else
        load_tile<REACH, DTYPE, LOADS>(args.x, args.geometry, tile, s, lane, w);
    bool has_negative = true;
    const u32 magnitude = MODE == MODE_KEEP ? magnitude_of_mask<DTYPE>(w, has_negative) : magnitude_of_packed<DTYPE>(w);
    const NarrowClass c = narrow_class_in<DTYPE>(args, shared, magnitude);
    auto value = [&](int a, int e) { return packed_value<DTYPE>(w, a, e); };
    plan.entry = ENTRY_LEFT;
    const quantiser_class &wide = quantiser_in(args, shared).classes[QUANTISER_WIDE];
    const bool is_wide = PADDED && c.index == NO_CLASS && magnitude <= wide.reach;
    if (c.index == NO_CLASS && !is_wide)
        return;
    if (args.with_stats && !value_stats<REACH, DTYPE>(args, shared, tile, lane, warp, w))
        return;
    if constexpr (PADDED)
        if (is_wide) {
            compress_wide<REACH, DTYPE, MODE>(args, wide, tile, s, lane, scratch, plan, value);
            return;
        }
    if (MODE == MODE_KEEP && has_negative)
        codes_of<REACH>(
            value, [&](float x, float magic) { return code_bits_signed(x, c.inverse, magic); }, words);
    else
        codes_of<REACH>(
            value, [&](float x, float magic) { return code_bits<MODE>(x, c.inverse, magic); }, words);
    exchange_codes<REACH>(words, lane, scratch + SCRATCH_PLANES, u);
    if constexpr (PADDED) {
        u32 real[8];
        const u32 raw = VALUE_BYTES<DTYPE> * drop_padding<REACH>(args.geometry, tile, s, lane, SIGN_BITS, u, real);
        plan_narrow<REACH, true>(lane, u, real, c.index, scratch + SCRATCH_PLANES, scratch + SCRATCH_BALLOTS, plan);
        if (plan.entry >= raw) // a code tile must be smaller than the raw one
            plan.entry = ENTRY_LEFT;
    } else {
        plan_narrow<REACH, false>(lane, u, u, c.index, scratch + SCRATCH_PLANES, scratch + SCRATCH_BALLOTS, plan);
    }
}

// ---- a group ----

// A tile without padding.
template <int REACH, int DTYPE, int MODE, class Observer>
__device__ __forceinline__ void compress_common(const CompressArgs &args, CompressShared &shared, const GridClasses &c,
                                                u32 tile, u32 lane, u32 warp, TilePlan &plan, const Observer &observe) {
    if constexpr (REACH == REACH_SWEEP)
        compress_swept<DTYPE>(args, shared, c, tile, lane, warp, plan, observe);
    else if constexpr (MODE == MODE_GRID)
        compress_grid<REACH, DTYPE, false>(args, shared, c, tile, lane, warp, plan, observe);
    else
        compress_values<REACH, DTYPE, MODE, false, Observer::LOADS>(args, shared, tile, lane, warp, plan);
}

// How what is left of a group is reached: maps on a grid by lanes, whichever way common tiles are read.
constexpr __host__ __device__ int mixed_reach(int reach, int mode) {
    return mode != MODE_GRID || reach == REACH_FLAT || reach_is_last(reach) ? reach : REACH_ROW1;
}

// A tile of a grid in a group that has padding. ENTRY_LEFT: it is one for compress_rare, as are all whose statistics
// are asked for.
template <int REACH, int DTYPE, class Observer>
__device__ __forceinline__ void compress_padded(const CompressArgs &args, CompressShared &shared, u32 tile, u32 lane,
                                                u32 warp, TilePlan &plan, const Observer &observe) {
    const GridClasses c(quantiser_in(args, shared));
    if (args.with_stats)
        return;
    if constexpr (reach_is_last(REACH))
        compress_grid<REACH, DTYPE, true>(args, shared, c, tile, lane, warp, plan, observe);
    else
        compress_patch<REACH, DTYPE>(args, shared, c, tile, lane, warp, plan, observe);
}

// Any group; a tile that is planned stays as it is. Grids have no common way for 16-bit codes: what is left of them
// goes value by value. A function of its own, so that it costs the others no registers.
template <int REACH, int DTYPE, int MODE, class Observer>
__device__ __noinline__ void compress_mixed(const CompressArgs &args, CompressShared &shared, Observer observe,
                                            TilePlan plan) {
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, group = group_of_block();
    const u32 tile = group * GROUP_TILES + warp;
    __syncthreads(); // entries have been read
    if constexpr (MODE == MODE_NEAREST || MODE == MODE_KEEP)
        if (plan.entry == ENTRY_LEFT && tile < args.geometry.tiles)
            compress_values<REACH, DTYPE, MODE, true, Observer::LOADS>(args, shared, tile, lane, warp, plan);
    if constexpr (MODE == MODE_GRID)
        if ((group + 1) * GROUP_TILES > args.geometry.inner && tile < args.geometry.tiles)
            compress_padded<REACH, DTYPE>(args, shared, tile, lane, warp, plan, observe);
    if (plan.entry == ENTRY_LEFT) {
        plan.entry = 0;
        __syncwarp();
        if (tile < args.geometry.tiles)
            compress_rare<REACH, DTYPE>(args, shared, tile, lane, warp, plan, observe);
        else if (lane == 0)
            clear_stats(shared.stats[warp]);
    }
    if (lane == 0)
        shared.entry[warp] = plan.entry | (plan.wide ? (u32)ENTRY_WIDE : 0);
    __syncthreads();
    write_mixed<REACH, DTYPE, Observer::LOADS>(args, shared, group, thread, plan);
    end_group(args, shared, thread);
}

// A group of eight tiles without padding.
template <int REACH, int DTYPE, int MODE, class Observer>
__device__ __forceinline__ void compress_whole(const CompressArgs &args, CompressShared &shared, const GridClasses &c,
                                               u32 thread, const Observer &observe) {
    const u32 lane = thread & 31, warp = warp_number(thread), group = group_of_block();
    TilePlan plan;
    plan.entry = 0;
    plan.wide = false;
    compress_common<REACH, DTYPE, MODE>(args, shared, c, group * GROUP_TILES + warp, lane, warp, plan, observe);
    if (lane == 0)
        shared.entry[warp] = plan.entry;
    __syncthreads();
    const GroupPlan g = group_plan(shared, lane, warp);
    if (__any_sync(ALL_LANES, g.entry == ENTRY_LEFT)) {
        compress_mixed<mixed_reach(REACH, MODE), DTYPE, MODE>(args, shared, observe, plan);
        return;
    }
    write_common<REACH>(args, shared, group, thread, warp, plan, g);
    end_group(args, shared, thread);
}

// What decides where the code goes is the same for a whole block, or the compiler would guard every exchange between
// lanes.
template <int REACH, int DTYPE, int MODE, class Observer>
__device__ __forceinline__ void compress_group(const CompressArgs &args, CompressShared &shared,
                                               const Observer &observe) {
    const u32 thread = thread_number();
    GridClasses c(args.q);
    if (!args.bound_is_known) {
        find_quantiser(args, shared);
        __syncthreads();
        c = GridClasses(shared.q);
    }
    if constexpr (MODE != MODE_ANY)
        if (group_of_block() * GROUP_TILES + GROUP_TILES <= args.geometry.inner) {
            compress_whole<REACH, DTYPE, MODE>(args, shared, c, thread, observe);
            return;
        }
    if (args.groups) {
        TilePlan nothing = {};
        nothing.entry = ENTRY_LEFT;
        compress_mixed<mixed_reach(REACH, MODE), DTYPE, MODE>(args, shared, observe, nothing);
    } else {
        if (thread == 0)
            shared.start = stream_start(args);
        __syncthreads();
        finish(args, shared, 0);
    }
}

// ---- statistics alone, for a relative bound ----

template <int REACH, int DTYPE>
__device__ __forceinline__ void survey_group(const CompressArgs &args, CompressShared &shared) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = blockIdx.x;
    const u32 tile = group * GROUP_TILES + warp;
    if (tile < args.geometry.tiles) {
        const TileStart s = tile_start<REACH>(args.geometry, tile);
        Survey survey;
        const u32 real = rare_load<REACH, DTYPE>(args, tile, s, lane, shared.scratch[warp], NoObserver());
        rare_survey<REACH, DTYPE>(args, shared.scratch[warp], s, lane, real, survey);
        keep_stats(survey, lane, shared.stats[warp]);
    } else if (lane == 0) {
        clear_stats(shared.stats[warp]);
    }
    __syncthreads();
    if (warp == 0 && group < args.groups)
        write_record(shared.stats, 0, 0, make_uint2(0, 0), &args.workspace->totals, args.records + group, lane);
    if (!is_last_block(&args.workspace->totals, &shared.is_last))
        return;
    const uint2 range = range_so_far(&args.workspace->totals);
    summarise(args.records, (u32)args.groups, shared.summary);
    if (threadIdx.x == 0)
        stats_of(shared.summary.all, range, &args.workspace->totals, args.count, &args.workspace->own);
}

// ---- kernels ----

template <int REACH, int DTYPE>
__global__ void __launch_bounds__(BLOCK_THREADS, 3) eb_survey_kernel(const __grid_constant__ CompressArgs args) {
    __shared__ CompressShared shared;
    survey_group<REACH, DTYPE>(args, shared);
}

template <int REACH, int DTYPE, int MODE>
__global__ void __launch_bounds__(BLOCK_THREADS, compress_blocks(MODE))
    eb_compress_kernel(const __grid_constant__ CompressArgs args) {
    __shared__ CompressShared shared;
    compress_group<REACH, DTYPE, MODE>(args, shared, NoObserver());
}

#endif
