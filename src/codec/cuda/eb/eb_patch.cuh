// SPDX-License-Identifier: Apache-2.0
// Compressing: a tile of maps on a grid that may have padding. Each lane loads its own columns of the tile, so that
// nothing has to be exchanged. A tensor has few such tiles, at its end, but a small one is waited for until they are
// done.
#ifndef COMET_CODEC_CUDA_EB_PATCH_CUH
#define COMET_CODEC_CUDA_EB_PATCH_CUH

#include "codec/cuda/eb/eb_grid.cuh"

// Where a warp's scratch holds what: values of some columns of each lane, then tables, then codes of all columns.
enum { PATCH_COLUMNS = 4, PATCH_VALUES = 0, PATCH_CODES = SCRATCH_WORDS - 256 };

static_assert(PATCH_VALUES + 32 * 4 * PATCH_COLUMNS <= SCRATCH_TABLE && SCRATCH_TABLE + TABLE_WORDS <= PATCH_CODES,
              "a patch fits into the scratch");

// A lane's way through its columns. Short code rather than fast code where nothing is waited for.
template <int DTYPE, class Observer> struct GridPatch {
    typedef typename Pattern<DTYPE>::Word Word;
    const CompressArgs &args;
    const Observer &observe;
    const TileStart &s;
    const TileMaps &maps;
    u32 *scratch; // has numbers of channels in its table
    float inverse;
    u32 lane, count; // count: values from the start of the tile's band on

    // From that start; padding lies at `count` and behind it.
    __device__ __forceinline__ u32 offset(u32 column, u32 row) const {
        const u32 at = s.column + 8 * lane + column;
        return rows_on(args.geometry, at, args.geometry.by_row(at)) + row * args.geometry.row;
    }

    // Values of columns `first` .. to shared memory.
    __device__ __forceinline__ void load(u32 first) const {
        const Word *x = (const Word *)args.x + s.position;
        u32 p[4 * PATCH_COLUMNS]; // all are on their way together
#pragma unroll
        for (u32 i = 0; i < 4 * PATCH_COLUMNS; i++) {
            const u32 at = offset(first + i / 4, i % 4);
            p[i] = at < count ? read1<DTYPE, Observer::LOADS>(x + at) : 0;
        }
#pragma unroll
        for (u32 i = 0; i < 4 * PATCH_COLUMNS; i++)
            scratch[PATCH_VALUES + 32 * i + lane] = p[i];
    }

    // Biased codes of a loaded column to shared memory; its values are added to the magnitude.
    __device__ __forceinline__ void quantise(u32 column, Magnitude &magnitude) const {
        const float4 *table = (const float4 *)(scratch + SCRATCH_TABLE);
        u32 word = SIGN_BITS;
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 at = offset(column, k);
            if (at >= count)
                continue;
            const u32 map = maps.is_one ? 0 : args.channel_map.by_inner(maps.skip + at - s.column);
            const float4 n = table[map];
            const u32 x = scratch[PATCH_VALUES + 32 * (4 * (column % PATCH_COLUMNS) + k) + lane];
            const float y = __fmaf_rn(n.x, float_of_pattern<DTYPE>(x), n.y);
            const u32 code = __float_as_uint(__fmaf_rd(__fsub_rn(y, n.z), inverse, n.w));
            magnitude.add(__float_as_uint(y), 0);
            word = choose(0xffu << 8 * k, code << 8 * k, word);
            observe.value(s.position + at, channel_of_map(args.channel_map, maps, map), y);
        }
        scratch[PATCH_CODES + 32 * column + lane] = word;
    }

    // All columns. The greatest magnitude, or 1.
    __device__ __forceinline__ u32 quantise_all() const {
        Magnitude magnitude;
#pragma unroll 1
        for (u32 column = 0; column < 8; column++) {
            if (column % PATCH_COLUMNS == 0)
                load(column);
            quantise(column, magnitude);
        }
        return magnitude.of_warp();
    }
};

// ENTRY_LEFT: the tile is one for compress_rare.
template <int REACH, int DTYPE, class Observer>
__device__ __forceinline__ void compress_patch(const CompressArgs &args, CompressShared &shared, const GridClasses &c,
                                               u32 tile, u32 lane, u32 warp, TilePlan &plan, const Observer &observe) {
    const Geometry &g = args.geometry;
    const TileStart s = tile_start<REACH>(g, tile);
    const u64 left = g.positions - s.position;
    u32 u[8], *scratch = shared.scratch[warp];
    TileMaps maps;
    if (!make_table<REACH>(g, args.channel_map, s, lane, (float *)(scratch + SCRATCH_TABLE), maps,
                           [&](u32 channel) { return grid_numbers(c, grid_entries(args, channel)); }))
        return;
    const GridPatch<DTYPE, Observer> patch = {args,    observe,   s,    maps,
                                              scratch, c.inverse, lane, (u32)(left < 0xffffffffu ? left : 0xffffffffu)};
    const u32 magnitude = patch.quantise_all();
    if (!c.take(magnitude))
        return;
#pragma unroll
    for (int m = 0; m < 8; m++)
        u[m] = scratch[PATCH_CODES + 32 * m + lane]; // a lane's own
    __syncwarp();                                    // they have been read
    plan_padded<REACH>(args, tile, s, c.index(magnitude), lane, u, scratch, plan);
}

#endif
