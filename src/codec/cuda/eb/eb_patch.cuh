// SPDX-License-Identifier: Apache-2.0
// Compressing: a tile of a grid that may have padding. Each lane loads its own columns of the tile, so that nothing has
// to be exchanged. A tensor has few such tiles, at its end, but a small one is waited for until they are done.
#ifndef COMET_CODEC_CUDA_EB_PATCH_CUH
#define COMET_CODEC_CUDA_EB_PATCH_CUH

#include "codec/cuda/eb/eb_grid.cuh"

// Where a warp's scratch holds what: values of some columns of each lane, then tables, then codes of all columns.
enum { PATCH_COLUMNS = 4, PATCH_VALUES = 0, PATCH_CODES = SCRATCH_WORDS - 256 };

static_assert(PATCH_VALUES + 32 * 4 * PATCH_COLUMNS <= SCRATCH_TABLE && SCRATCH_TABLE + TABLE_WORDS <= PATCH_CODES,
              "a patch fits into the scratch");

// A lane's way through its columns. Short code rather than fast code where nothing is waited for.
template <int REACH, int DTYPE, class Observer> struct GridPatch {
    typedef typename Pattern<DTYPE>::Word Word;
    const CompressArgs &args;
    const Observer &observe;
    const TileStart &s;
    const TileMaps &maps; // where channels do not come last
    u32 *scratch;         // has numbers of channels in its table
    float inverse;
    LaneStart start;
    u32 lane;

    __device__ __forceinline__ u64 position(u32 column, u32 row) const {
        return column_position(args.geometry, s, start.offset + column) + (u64)row * args.geometry.row;
    }
    __device__ __forceinline__ u64 index(u64 position) const {
        return reach_is_last(REACH) ? position * args.geometry.channels + start.channel : position;
    }
    __device__ __forceinline__ bool is_real(u64 position) const {
        return position < args.geometry.positions;
    }

    // Values of columns `first` .. to shared memory.
    __device__ __forceinline__ void load(u32 first) const {
        u32 x[4 * PATCH_COLUMNS]; // all are on their way together
#pragma unroll
        for (u32 i = 0; i < 4 * PATCH_COLUMNS; i++) {
            const u64 at = position(first + i / 4, i % 4);
            x[i] = is_real(at) ? read1<DTYPE, Observer::LOADS>((const Word *)args.x + index(at)) : 0;
        }
#pragma unroll
        for (u32 i = 0; i < 4 * PATCH_COLUMNS; i++)
            scratch[PATCH_VALUES + 32 * i + lane] = x[i];
    }

    // Numbers of the channel that a value has, and that channel.
    __device__ __forceinline__ float4 numbers(u64 position, u32 &channel) const {
        const float *table = (const float *)(scratch + SCRATCH_TABLE);
        channel = start.channel;
        if (reach_is_last(REACH))
            return lane_numbers(table, lane);
        const u32 map = maps.is_one ? 0 : args.channel_map.by_inner(maps.skip + (u32)(position - maps.first));
        channel = channel_of_map(args.channel_map, maps, map);
        return ((const float4 *)table)[map];
    }

    // Biased codes of a loaded column to shared memory, those of padding as 0. Which rows are real, a bit each.
    __device__ __forceinline__ u32 quantise(u32 column, Magnitude &magnitude) const {
        u32 word = SIGN_BITS, real = 0;
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u64 at = position(column, k);
            if (!is_real(at))
                continue;
            u32 channel;
            const float4 n = numbers(at, channel);
            const u32 x = scratch[PATCH_VALUES + 32 * (4 * (column % PATCH_COLUMNS) + k) + lane];
            const float y = __fmaf_rn(n.x, float_of_pattern<DTYPE>(x), n.y);
            const u32 code = __float_as_uint(__fmaf_rd(__fsub_rn(y, n.z), inverse, n.w));
            magnitude.add(__float_as_uint(y), 0);
            word = choose(0xffu << 8 * k, code << 8 * k, word);
            real |= 1u << k;
            observe.value(index(at), channel, y);
        }
        scratch[PATCH_CODES + 32 * column + lane] = word;
        return real;
    }

    // All columns. The greatest magnitude, or 1; `real`: four bits a column.
    __device__ __forceinline__ u32 quantise_all(u32 &real) const {
        Magnitude magnitude;
        real = 0;
#pragma unroll 1
        for (u32 column = 0; column < 8; column++) {
            if (column % PATCH_COLUMNS == 0)
                load(column);
            real |= quantise(column, magnitude) << 4 * column;
        }
        return magnitude.of_warp();
    }
};

// ENTRY_LEFT: the tile is one for compress_rare, as are all whose statistics are asked for.
template <int REACH, int DTYPE, class Observer>
__device__ __forceinline__ void compress_patch(const CompressArgs &args, CompressShared &shared, u32 tile, u32 lane,
                                               u32 warp, TilePlan &plan, const Observer &observe) {
    const Geometry &g = args.geometry;
    const GridClasses c(quantiser_in(args, shared));
    const TileStart s = tile_start<REACH>(g, tile);
    u32 u[8], real[8], is_real, *scratch = shared.scratch[warp];
    TileMaps maps;
    plan.entry = ENTRY_LEFT;
    if (args.with_stats ||
        !make_table<REACH>(g, args.channel_map, s, lane, (float *)(scratch + SCRATCH_TABLE), maps,
                           [&](u32 channel) { return grid_numbers(c, grid_entries(args, channel)); }))
        return;
    const GridPatch<REACH, DTYPE, Observer> patch = {
        args, observe, s, maps, scratch, c.inverse, lane_start<REACH>(g, s, lane), lane};
    const u32 magnitude = patch.quantise_all(is_real);
    if (!c.take(magnitude))
        return;
#pragma unroll
    for (int m = 0; m < 8; m++) { // a lane's own
        u[m] = scratch[PATCH_CODES + 32 * m + lane];
        real[m] = 255 * ((is_real >> 4 * m & 15) * 0x00204081u & 0x01010101u); // a byte for each bit
    }
    const u32 raw = __reduce_add_sync(ALL_LANES, (u32)__popc(is_real)) * (args.dtype == COMET_F32 ? 4 : 2);
    __syncwarp(); // the codes have been read
    plan_narrow<REACH, true>(lane, u, real, c.index(magnitude), scratch + SCRATCH_PLANES,
                            scratch + SCRATCH_BALLOTS, plan);
    if (plan.entry >= raw) // a code tile must be smaller than the raw one
        plan.entry = ENTRY_LEFT;
}

#endif
