// SPDX-License-Identifier: Apache-2.0
// Compressing with eb and zvc: one warp a tile, one block a group of eight tiles, one launch a tensor.
//
// A block looks at its tiles, quantises and plans. It then claims space with one atomic addition, hides that addition's
// latency behind the packing of its bytes in shared memory, and writes them out. What the last block does,
// eb_records.cuh tells.
//
// The kernel itself does groups of eight tiles that are as they should be: no padding, every value within reach of
// 8-bit codes. compress_mixed does any other, from the start; written into the same function, that would cost the
// common case its registers.
#ifndef COMET_CODEC_CUDA_EB_COMPRESS_CUH
#define COMET_CODEC_CUDA_EB_COMPRESS_CUH

#include "codec/cuda/eb/eb_group.cuh"

// Blocks on a multiprocessor.
template <int DTYPE, int QUANT> constexpr int compress_blocks() {
    return QUANT != QUANTISE_FAST ? 3 : DTYPE == COMET_F32 ? 5 : 4;
}

// ---- a group's tiles ----

// Looks on while a tensor is compressed: observe(tile, s, lane, v, real) gets every tile's values, scaled and shifted
// by a grid; some tiles come twice.
struct NoObserver {
    __device__ __forceinline__ void operator()(u32, const TileStart &, u32, const float (&)[8][4], u32) const {}
};

// How a tile is quantised.
struct NarrowClass {
    u32 index; // NO_CLASS: not to narrow codes
    float inverse;
};

enum { NO_CLASS = QUANTISER_CLASSES };

// The first narrow class of a dtype that reaches so far; one that the stream does not have reaches nowhere.
template <int DTYPE> __device__ __forceinline__ NarrowClass narrow_class(const quantiser &q, u32 magnitude) {
    constexpr int COUNT = DTYPE == COMET_F32 ? 1 : DTYPE == COMET_F16 ? 2 : 3;
    NarrowClass c = {NO_CLASS, 0.0f};
#pragma unroll
    for (int i = COUNT - 1; i >= 0; i--)
        if (magnitude <= q.classes[i].reach && q.classes[i].reach)
            c.index = i, c.inverse = q.classes[i].inverse;
    return c;
}

// Finishes a tile's sums while the tile is planned.
template <int REACH> struct SumsAside {
    TileSums<REACH, float> sums;
    u32 lane;
    TileStats &stats;
    Survey survey;

    __device__ __forceinline__ SumsAside(const TileSums<REACH, float> &s, u32 l, TileStats &t)
        : sums(s), lane(l), stats(t) {}
    template <int POINT> __device__ __forceinline__ void at() {
        if (POINT == 0)
            sums.template next<2>();
        if (POINT == 1)
            sums.template next<1>();
        if (POINT == 2) {
            survey.sum = (double)sums.end();
            keep_stats(survey, lane, stats);
        }
    }
};

// A tile without padding, rounded to nearest. ENTRY_LEFT: it is one for compress_any.
template <int REACH, int DTYPE>
__device__ __forceinline__ void compress_nearest(const CompressArgs &args, CompressShared &shared, u32 tile, u32 lane,
                                                 u32 warp, TilePlan &plan) {
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    u32 p[8][4], u[8];
    float v[8][4];
    load_inner<REACH, DTYPE>(args.x, args.geometry, tile, s, lane, p);
    if (warp == WARP_OF_RECORD && lane == 0) // while the tile is on its way
        shared.range_known = range_so_far(&args.workspace->totals);
#pragma unroll
    for (int i = 0; i < 32; i++)
        v[i / 4][i % 4] = float_of_pattern<DTYPE>(p[i / 4][i % 4]);
    const Range range = DTYPE == COMET_F32 ? range_of(v) : range_of_halves<DTYPE>(p);
    const u32 magnitude = magnitude_of(range);
    const NarrowClass c =
        args.bound_is_known ? narrow_class<DTYPE>(args.q, magnitude) : narrow_class<DTYPE>(shared.q, magnitude);
    plan.entry = ENTRY_LEFT;
    if (!sums_fit_f32(magnitude) || c.index == NO_CLASS)
        return;
    SumsAside<REACH> aside(plain_sums<REACH>(v, lane), lane, shared.stats[warp]);
    survey_plain(v, range, aside.survey);
    aside.sums.template next<8>();
    codes_nearest<REACH>(v, c.inverse, lane, shared.planes[warp], u);
    aside.sums.template next<4>();
    plan_narrow<REACH, false>(args.geometry, s, lane, u, c.index, shared.planes[warp], shared.columns[warp], plan,
                              aside);
}

// A tile without padding, in any mode. ENTRY_LEFT: it is one for compress_any.
template <int REACH, int DTYPE, int QUANT, class Observer>
__device__ __forceinline__ void compress_common(const CompressArgs &args, CompressShared &shared, u32 tile, u32 lane,
                                                u32 warp, TilePlan &plan, const Observer &observe) {
    if (QUANT == QUANTISE_FAST) {
        compress_nearest<REACH, DTYPE>(args, shared, tile, lane, warp, plan);
        return;
    }
    const bool has_grid = quantise_has_grid<QUANT>(args);
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    u32 p[8][4], u[8];
    float v[8][4];
    load_inner<REACH, DTYPE>(args.x, args.geometry, tile, s, lane, p);
    if (warp == WARP_OF_RECORD && lane == 0) // while the tile is on its way
        shared.range_known = range_so_far(&args.workspace->totals);
    const quantiser &q = quantiser_in(args, shared);
    values_of<REACH, DTYPE, QUANT>(args, tile, s, lane, p, ~0u, v);
    observe(tile, s, lane, v, ~0u);
    const Range range = range_of(v);
    const u32 magnitude = magnitude_of(range), class_index = class_of(q, magnitude);
    plan.entry = ENTRY_LEFT;
    if (!sums_fit_f32(magnitude) || class_index == QUANTISER_CLASSES || q.classes[class_index].wide)
        return;
    Survey survey;
    survey_plain(v, range, survey);
    survey.sum = (double)plain_sums<REACH>(v, lane).rest();
    if (has_grid)
        survey.positive = count_on<REACH>(args, v, tile, s, lane, ~0u);
    keep_stats(survey, lane, shared.stats[warp]);
    narrow_codes<REACH, QUANT>(args, q.classes[class_index], v, tile, s, lane, ~0u, shared.planes[warp], u);
    plan_narrow<REACH, false>(args.geometry, s, lane, u, class_index, shared.planes[warp], shared.columns[warp], plan,
                              NoAside());
}

// Any tile.
template <int REACH, int DTYPE, int QUANT, class Observer>
__device__ __forceinline__ void compress_any(const CompressArgs &args, CompressShared &shared, u32 tile, u32 lane,
                                             u32 warp, TilePlan &plan, const Observer &observe) {
    const bool has_grid = quantise_has_grid<QUANT>(args);
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    u32 p[8][4], u[8], real;
    float v[8][4];
    Survey survey;
    load_patterns<REACH, DTYPE>(args.x, args.geometry, tile, s, lane, p, real);
    values_of<REACH, DTYPE, QUANT>(args, tile, s, lane, p, real, v);
    observe(tile, s, lane, v, real);
    survey_careful<REACH>(v, real, lane, survey);
    if (has_grid)
        survey.positive = count_on<REACH>(args, v, tile, s, lane, real);
    keep_stats(survey, lane, shared.stats[warp]);
    const quantiser &q = quantiser_in(args, shared);
    const u32 class_index = class_of(q, survey.magnitude), value_bytes = args.dtype == COMET_F32 ? 4 : 2;
    bool exact = class_index == QUANTISER_CLASSES;
    if (!exact) {
        const quantiser_class &c = q.classes[class_index];
        if (c.wide) {
            plan_wide_codes<REACH, QUANT>(args, shared, c, class_index, v, tile, s, lane, warp, real, plan);
        } else {
            narrow_codes<REACH, QUANT>(args, c, v, tile, s, lane, real, shared.planes[warp], u);
            plan_narrow<REACH, true>(args.geometry, s, lane, u, class_index, shared.planes[warp], shared.columns[warp],
                                     plan, NoAside());
        }
        u32 count = __reduce_add_sync(ALL_LANES, (u32)__popc(real)); // a code tile must be smaller than the raw one
        exact = plan.entry != 0 && plan.entry >= count * value_bytes;
    }
    if (exact) {
        plan.wide = false;
        plan.entry = plan_exact<REACH, DTYPE, QUANT>(args, tile, s, lane);
    }
}

// ---- a group ----

// Any group, from the start. A function of its own, so that it costs the others no registers.
template <int REACH, int DTYPE, int QUANT, class Observer>
__device__ __noinline__ void compress_mixed(const CompressArgs &args, CompressShared &shared, const Observer &observe) {
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, group = group_of_block();
    const u32 tile = group * GROUP_TILES + warp;
    TilePlan plan;
    plan.entry = ENTRY_LEFT;
    plan.wide = false;
    __syncthreads();                                          // the quantiser is there; entries have been read
    if (QUANT == QUANTISE_FAST && tile < args.geometry.inner) // the other modes are not worth the code
        compress_common<REACH, DTYPE, QUANT>(args, shared, tile, lane, warp, plan, observe);
    if (plan.entry == ENTRY_LEFT) {
        plan.entry = 0;
        if (tile < args.geometry.tiles)
            compress_any<REACH, DTYPE, QUANT>(args, shared, tile, lane, warp, plan, observe);
        else if (lane == 0)
            clear_stats(shared.stats[warp]);
    }
    if (lane == 0)
        shared.entry[warp] = plan.entry | (plan.wide ? (u32)ENTRY_WIDE : 0);
    __syncthreads();
    write_mixed<REACH, DTYPE, QUANT>(args, shared, group, thread, plan);
    end_group(args, shared, thread);
}

// A group of eight tiles without padding. False: compress_mixed has to do it.
template <int REACH, int DTYPE, int QUANT, class Observer>
__device__ __forceinline__ bool compress_whole(const CompressArgs &args, CompressShared &shared, u32 thread,
                                               const Observer &observe) {
    const u32 lane = thread & 31, warp = thread >> 5, group = group_of_block();
    TilePlan plan;
    plan.entry = 0;
    plan.wide = false;
    await_quantiser(args);
    compress_common<REACH, DTYPE, QUANT>(args, shared, group * GROUP_TILES + warp, lane, warp, plan, observe);
    if (lane == 0)
        shared.entry[warp] = plan.entry;
    __syncthreads();
    const GroupPlan g = group_plan(shared, lane, warp);
    if (__any_sync(ALL_LANES, g.entry == ENTRY_LEFT))
        return false;
    write_common<REACH>(args, shared, group, thread, plan, g);
    end_group(args, shared, thread);
    return true;
}

// What decides where the code goes is the same for a whole block, or the compiler would guard every exchange between
// lanes.
template <int REACH, int DTYPE, int QUANT, class Observer>
__device__ __forceinline__ void compress_group(const CompressArgs &args, CompressShared &shared,
                                               const Observer &observe) {
    const u32 thread = thread_number();
    if (!args.bound_is_known)
        find_quantiser(args, shared);
    if (group_of_block() * GROUP_TILES + GROUP_TILES <= args.geometry.inner &&
        compress_whole<REACH, DTYPE, QUANT>(args, shared, thread, observe))
        return;
    if (args.groups) {
        compress_mixed<REACH, DTYPE, QUANT>(args, shared, observe);
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
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 group = blockIdx.x, tile = group * GROUP_TILES + warp; // an empty tensor has a block and no group
    const Geometry &g = args.geometry;
    if (tile < g.tiles) {
        u32 p[8][4], real;
        float v[8][4];
        const TileStart s = tile_start<REACH>(g, tile);
        load_patterns<REACH, DTYPE>(args.x, g, tile, s, lane, p, real);
        values_of<REACH, DTYPE, QUANTISE_ANY>(args, tile, s, lane, p, real, v);
        Survey survey;
        survey_careful<REACH>(v, real, lane, survey);
        keep_stats(survey, lane, shared.stats[warp]);
    } else if (lane == 0) {
        clear_stats(shared.stats[warp]);
    }
    __syncthreads();
    if (warp == 0 && group < args.groups)
        write_record(shared.stats, 0, 0, make_uint2(0, 0), args.workspace, group, lane);
    if (!is_last_block(&args.workspace->totals, &shared.is_last))
        return;
    const uint2 range = range_so_far(&args.workspace->totals);
    summarise(args.workspace->records, (u32)args.groups, shared.summary);
    if (threadIdx.x == 0)
        stats_of(shared.summary.all, range, &args.workspace->totals, args.count, &args.workspace->own);
}

// ---- kernels ----

template <int REACH, int DTYPE>
__global__ void __launch_bounds__(BLOCK_THREADS, 3) eb_survey_kernel(const __grid_constant__ CompressArgs args) {
    __shared__ CompressShared shared;
    survey_group<REACH, DTYPE>(args, shared);
}

template <int REACH, int DTYPE, int QUANT>
__global__ void __launch_bounds__(BLOCK_THREADS, compress_blocks<DTYPE, QUANT>())
    eb_compress_kernel(const __grid_constant__ CompressArgs args) {
    __shared__ CompressShared shared;
    compress_group<REACH, DTYPE, QUANT>(args, shared, NoObserver());
}

#endif
