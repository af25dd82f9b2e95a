// SPDX-License-Identifier: Apache-2.0
// The backward pass of a batch normalisation, from a stream of u or from x: first the sums dbeta and dgamma, then dx.
// Both passes go over tiles as the codec does, a warp a tile. Behind an addend the first pass makes and writes dz, too.
#ifndef COMET_CODEC_CUDA_NORM_BACKWARD_CUH
#define COMET_CODEC_CUDA_NORM_BACKWARD_CUH

#include "codec/cuda/norm/norm_rows.cuh"

// dx is made from the last tile on: what the sums read last is still in the L2 cache then.
template <int PASS> using NormTiles = WalkTiles<PASS == NORM_DX>;

// ---- common tiles ----

// A warp on its way over tiles.
template <int REACH, int DTYPE, int FROM, int PASS> struct NormWalk {
    static constexpr bool AHEAD = norm_asks_ahead(REACH, DTYPE, FROM),
                          SIDES = norm_reads_sides(REACH, DTYPE, FROM, PASS);
    typedef NormBackwardShared<REACH, AHEAD> Shared;
    typedef WalkPlace<REACH, DTYPE == COMET_F32, PASS == NORM_DX> Place;
    typedef typename Place::Start Start;
    const NormArgs<PASS> &args;
    Shared &shared;
    u32 lane;
    float *table;
    float2 sums[NORM_SETS<REACH>]; // where channels come last: of all its tiles
    NormMask<REACH, DTYPE> mask;   // NORM_MASKED_SUMS
    Place place;

    __device__ __forceinline__ NormWalk(const NormArgs<PASS> &a, Shared &s, u32 first)
        : args(a), shared(s), place(a.codec.geometry, first) {
        lane = threadIdx.x & 31;
        table = shared.tables[threadIdx.x >> 5];
#pragma unroll
        for (int i = 0; i < NORM_SETS<REACH>; i++)
            sums[i] = make_float2(0.0f, 0.0f);
    }

    // False: the tile has padding, another form or many maps, or is not valid. It waits for a loop of its own, so that
    // what it needs costs the others no registers.
    __device__ __forceinline__ bool common(u32 tile, const TileSource &from) {
        const Geometry &g = args.codec.geometry;
        const ChannelMap &map = args.codec.channel_map;
        const Start s = place.go_to(g, tile);
        NormSource<REACH, DTYPE, FROM> source;
        Form form = FORM_GRID;
        TileMaps maps;
        TileSource y = {};
        if constexpr (PASS == NORM_MASKED_SUMS)
            y = mask.find(args, shared, tile, lane);
        if (tile >= g.inner)
            return false;
        if constexpr (AHEAD)
            load_ahead<DTYPE>(args.dy, g, tile, s, lane, shared.ahead[threadIdx.x >> 5]);
        else if constexpr (FROM == NORM_FROM_STREAM)
            ask_for_tile<REACH, DTYPE>(args.dy, g, tile, s, lane);
        if constexpr (!reach_is_last(REACH))
            if ((PASS != NORM_DX && REACH != REACH_FLAT && !norm_has_units(g, map)) ||
                !norm_make_tables<REACH, FROM, PASS>(args, shared.codec.q.classes[0], s, lane, table, maps))
                return false;
        bool good = true;
        if constexpr (PASS == NORM_MASKED_SUMS)
            good = mask.read(args, shared, y, tile, s, lane);
        if constexpr (FROM == NORM_FROM_STREAM) // other warps' loads are on their way meanwhile
            good = good && norm_decode<REACH>(shared.codec.q, from, lane, source.words, form);
        if constexpr (AHEAD)
            await_copies();
        if (!good)
            return false;
        u32 dy[8][PIECE_WORDS<DTYPE>];
        if constexpr (FROM == NORM_FROM_X)
            load_packed<REACH, DTYPE, PASS == NORM_DX ? LOAD_ONCE : LOAD_AGAIN>(args.x, g, tile, s, lane, source.x);
        if constexpr (AHEAD)
            take_ahead<DTYPE>(shared.ahead[threadIdx.x >> 5], lane, dy);
        else
            load_packed<REACH, DTYPE, NORM_DY_LOADS<PASS>>(args.dy, g, tile, s, lane, dy);
        if constexpr (PASS == NORM_MASKED_SUMS) {
            mask.apply(dy);
            store_packed<REACH, DTYPE>(args.dz, g, tile, s, lane, dy);
        }
        if (FROM == NORM_FROM_X || form == FORM_GRID)
            pass<FORM_GRID>(tile, s, maps, source, dy);
        else
            pass<FORM_FAR>(tile, s, maps, source, dy);
        return true;
    }

    template <int FORM>
    __device__ __forceinline__ void pass(u32 tile, const Start &s, const TileMaps &maps,
                                         const NormSource<REACH, DTYPE, FROM> &source,
                                         u32 (&dy)[8][PIECE_WORDS<DTYPE>]) {
        if constexpr (SIDES && FORM == FORM_GRID)
            keep_sides(source.words, dy);
        if constexpr (REACH == REACH_FLAT)
            sweep<FORM>(tile, maps, source, dy);
        else if constexpr (PASS == NORM_DX)
            write<FORM>(tile, s, maps, source, dy);
        else if constexpr (reach_is_last(REACH))
            add<FORM>(tile, s, maps, source, dy);
        else
            add_maps<FORM>(tile, s, maps, source, dy);
    }

    // dy of what is off becomes 0.
    __device__ __forceinline__ void keep_sides(const u32 (&words)[8], u32 (&dy)[8][PIECE_WORDS<DTYPE>]) const {
        u32 on[8];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float4 n[2], others[2];
            read_table(table, lane, h, n);
            read_table(table + table_words(REACH), lane, h, others);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int e = 2 * h + i % 2, word = e + 4 * (i / 2);
                on[word] = norm_near(words[word]) * __float_as_uint(others[i % 2].w) + __float_as_uint(n[i % 2].w);
            }
        }
        norm_keep_pairs<REACH>(on, dy);
    }

    // w and dz of a value.
    template <int FORM>
    __device__ __forceinline__ float2 value(const NormSource<REACH, DTYPE, FROM> &source,
                                            const u32 (&dy)[8][PIECE_WORDS<DTYPE>], int a, int e,
                                            const float4 &n) const {
        constexpr bool IS_KEPT = PASS == NORM_MASKED_SUMS || (SIDES && FORM == FORM_GRID); // dy is dz by now
        const float w = __fmaf_rn(source.template at<FORM>(a, e), n.x, n.y);
        return make_float2(w, !IS_KEPT && w <= n.z ? 0.0f : packed_value<DTYPE>(dy, a, e));
    }

    template <int FORM>
    __device__ __forceinline__ void add(u32 tile, const Start &s, const TileMaps &maps,
                                        const NormSource<REACH, DTYPE, FROM> &source,
                                        const u32 (&dy)[8][PIECE_WORDS<DTYPE>]) {
        for_numbers<REACH, 1>(
            args.codec.geometry, args.codec.channel_map, maps, table, tile, s, lane,
            [&](int a, int e, const float4 &n, const float4 &, u64) {
                const float2 v = value<FORM>(source, dy, a, e, n);
                norm_count(sums[e % NORM_SETS<REACH>], v.y, v.x);
            },
            [](int, int, u64) {});
    }

    template <int FORM>
    __device__ __forceinline__ void add_maps(u32 tile, const Start &s, const TileMaps &maps,
                                             const NormSource<REACH, DTYPE, FROM> &source,
                                             const u32 (&dy)[8][PIECE_WORDS<DTYPE>]) {
        const ChannelMap &channels = args.codec.channel_map;
        NormUnits<REACH> units;
        float sign = 1.0f;
        u32 map = 0;
        for_numbers<REACH, 1>(
            args.codec.geometry, channels, maps, table, tile, s, lane,
            [&](int a, int e, const float4 &n, const float4 &, u64) {
                const float2 v = value<FORM>(source, dy, a, e, n);
                norm_count(units.piece, v.y, v.x);
                sign = n.w;
            },
            [&](int a, int e, u64 index) {
                if (!maps.is_one && (a % 4 == 0 || !channels.has_bands))
                    map = channels.by_inner(maps.skip + (u32)(index - maps.first));
                units.take(norm_unit<REACH>(a, e), a % 4, map, sign);
            });
        norm_put_units<REACH>(args, maps, tile, lane, units);
    }

    template <int FORM>
    __device__ __forceinline__ void write(u32 tile, const Start &s, const TileMaps &maps,
                                          const NormSource<REACH, DTYPE, FROM> &source,
                                          u32 (&dy)[8][PIECE_WORDS<DTYPE>]) {
        u32 p[8][PIECE_WORDS<DTYPE>];
        for_numbers<REACH, 2, 4>(
            args.codec.geometry, args.codec.channel_map, maps, table, tile, s, lane,
            [&](int a, int e, const float4 &n, const float4 &k, u64) { // k: of dz, of w, constant
                if constexpr (SIDES && FORM == FORM_GRID) {
                    // what is the same for a channel is made once
                    const float of_code = __fmul_rn(k.y, n.x), rest = __fmaf_rn(k.y, n.y, k.z);
                    const float dz = packed_value<DTYPE>(dy, a, e);
                    put_packed<REACH, DTYPE>(
                        p, a, e, __fmaf_rn(k.x, dz, __fmaf_rn(source.template at<FORM>(a, e), of_code, rest)));
                } else {
                    const float2 v = value<FORM>(source, dy, a, e, n);
                    put_packed<REACH, DTYPE>(p, a, e, __fmaf_rn(k.x, v.y, __fmaf_rn(k.y, v.x, k.z)));
                }
            },
            [&](int a, int e, u64 index) { store_piece<REACH, DTYPE>(args.dx, index, e, p[a]); });
    }

    // The same where values come in the order of memory.
    template <int FORM>
    __device__ __forceinline__ void sweep(u32 tile, const TileMaps &maps, const NormSource<REACH, DTYPE, FROM> &source,
                                          const u32 (&dy)[8][PIECE_WORDS<DTYPE>]) {
        NormQuad<DTYPE, FROM> quads[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
#pragma unroll
            for (int i = 0; i < PIECE_WORDS<DTYPE>; i++) {
                quads[j].dy[i] = dy[j][i];
                if constexpr (FROM == NORM_FROM_X)
                    quads[j].m[i] = source.x[j][i];
            }
            if constexpr (FROM == NORM_FROM_STREAM)
                quads[j].m[0] = source.words[j];
        }
        if (PASS == NORM_MASKED_SUMS)
            __syncwarp(); // dz is written
        const FlatQuads order = {maps.first, maps.skip};
        const NormSweep<DTYPE, FROM, PASS, FlatQuads> walk = {
            args, shared.codec.stage[threadIdx.x >> 5], table, order, lane, maps.count};
        walk.template pass<FORM>(tile, quads);
    }
};

template <int REACH, int DTYPE, int FROM, int PASS>
using NormWay = std::conditional_t<REACH == REACH_SWEEP, NormRows<DTYPE, FROM, PASS>,
                                   NormWalk<REACH == REACH_SWEEP ? REACH_ROW1 : REACH, DTYPE, FROM, PASS>>;

// ---- rare tiles ----

template <int DTYPE> struct NormRareWrite {
    const NormBackwardArgs &args;

    __device__ __forceinline__ void next() const {}
    __device__ __forceinline__ void end() const {}
    __device__ __forceinline__ void value(const RarePlace &place, u32 channel, float w, float dz) const {
        const float4 c = __ldg(args.sums.coefficients + channel);
        const float dx = __fmaf_rn(c.x, dz, __fmaf_rn(c.y, w, c.z));
        ((typename Pattern<DTYPE>::Word *)args.dx)[place.index] =
            (typename Pattern<DTYPE>::Word)pattern_of_float<DTYPE>(dx);
    }
};

// `on`: see NormRare.
template <int REACH, int DTYPE, int FROM, int PASS>
__device__ __forceinline__ bool norm_rare_tile(const NormArgs<PASS> &args, const quantiser &q, const TileSource &source,
                                               u32 tile, u32 lane, u32 on, float2 &sum) {
    if constexpr (PASS == NORM_DX) {
        NormRareWrite<DTYPE> visit = {args};
        return norm_visit<REACH, DTYPE, FROM, PASS>(args, q, source, tile, lane, on, visit);
    } else if constexpr (reach_is_last(REACH)) {
        NormRareLanes visit = {sum};
        const bool good = norm_visit<REACH, DTYPE, FROM, PASS>(args, q, source, tile, lane, on, visit);
        sum = visit.sum;
        return good;
    } else {
        const TileStart s = tile_start<REACH>(args.codec.geometry, tile);
        const TileMaps maps = tile_maps<REACH>(args.codec.geometry, args.codec.channel_map, s);
        float2 *to = args.sums.partial + (u64)tile * args.sums.slots;
        for (u32 i = lane; i < maps.count; i += 32)
            to[i] = make_float2(0.0f, 0.0f);
        __syncwarp();
        NormRareMaps visit = {args.codec.channel_map, maps, to, {}, 0};
        const bool good = norm_visit<REACH, DTYPE, FROM, PASS>(args, q, source, tile, lane, on, visit);
        __syncwarp();
        for (u32 i = lane; i < maps.count; i += 32) // of u, not of w
            if (__ldg(args.tables.gamma + channel_of_map(args.codec.channel_map, maps, i)) < 0.0f)
                to[i].y = -to[i].y;
        return good;
    }
}

// The tiles of a warp that `left` has a bit for; what they add to its lanes' sums. A function of its own, so that it
// costs the others no registers.
template <int REACH, int DTYPE, int FROM, int PASS>
__device__ __noinline__ float2 norm_rest(const NormArgs<PASS> &args, NormShared &shared, NormTiles<PASS> tiles,
                                         u64 left) {
    const u32 lane = threadIdx.x & 31;
    float2 sum = make_float2(0.0f, 0.0f);
    for (u32 number = 0; left; number++, left >>= 1) {
        if (!(left & 1))
            continue;
        const u32 tile = tiles.tile(number);
        TileSource source = {};
        u32 on = ~0u;
        bool good = true;
        if constexpr (PASS == NORM_MASKED_SUMS)
            good = norm_rare_mask<REACH, DTYPE>(args, shared, tile, lane, on);
        if (FROM == NORM_FROM_STREAM)
            source = find_again(shared.codec.view, shared.codec, tile);
        good = good && (FROM == NORM_FROM_X || source.from);
        good = good && norm_rare_tile<REACH, DTYPE, FROM, PASS>(args, shared.codec.q, source, tile, lane, on, sum);
        if (!good && lane == 0)
            *args.codec.status = COMET_ERROR_CORRUPT;
        __syncwarp(); // the stage is used again
    }
    return sum;
}

// ---- the kernel ----

template <int REACH, int DTYPE, int FROM, int PASS>
__global__ void __launch_bounds__(BLOCK_THREADS, norm_backward_blocks(REACH, DTYPE, FROM, PASS))
    norm_backward_kernel(const __grid_constant__ NormArgs<PASS> args) {
    __shared__ NormBackwardShared<REACH, norm_asks_ahead(REACH, DTYPE, FROM)> shared;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Geometry &g = args.codec.geometry;
    const NormTiles<PASS> tiles(g.tiles);
    TileMaps none_yet;
    if constexpr (PASS == NORM_MASKED_SUMS)
        if (!norm_open_mask(args, shared))
            return;
    if (FROM == NORM_FROM_STREAM && !open_stream(args.codec, shared.codec))
        return;
    if (reach_is_last(REACH) && tiles.has_any())
        norm_make_tables<REACH, FROM, PASS, norm_reads_sides(REACH, DTYPE, FROM, PASS)>(
            args, shared.codec.q.classes[0], tile_start<REACH>(g, tiles.first), lane, shared.tables[warp], none_yet);
    NormWay<REACH, DTYPE, FROM, PASS> walk(args, shared, tiles.begin());
    if constexpr (PASS == NORM_MASKED_SUMS)
        walk.mask.start(args, shared, tiles.first, lane);
    float2 rare = make_float2(0.0f, 0.0f);
    u64 left = 0;
    if (FROM == NORM_FROM_STREAM) {
        left = for_tiles(shared.codec, tiles,
                         [&](u32 tile, const TileSource &source) { return walk.common(tile, source); });
    } else {
        const TileSource none = {};
        u32 next = tiles.begin();
        for (bool more = tiles.has_any(); more;) {
            const u32 tile = next;
            more = tiles.advance(next);
            left |= walk.common(tile, none) ? 0 : (u64)1 << (tile - tiles.first) / tiles.stride;
            __syncwarp(); // the tables are used again
        }
    }
    if (left)
        rare = norm_rest < REACH == REACH_SWEEP ? REACH_ROW1 : REACH, DTYPE, FROM, PASS > (args, shared, tiles, left);
    if constexpr (PASS != NORM_DX && reach_is_last(REACH)) {
        norm_lane_sums<REACH>(walk.sums, rare, lane, shared.sums_of(warp));
        __syncthreads();
        norm_put_block(args, shared);
    }
}

#endif
