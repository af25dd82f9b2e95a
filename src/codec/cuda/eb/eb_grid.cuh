// SPDX-License-Identifier: Apache-2.0
// Compressing on a grid: from the values of a tile to a plan of its bytes.
#ifndef COMET_CODEC_CUDA_EB_GRID_CUH
#define COMET_CODEC_CUDA_EB_GRID_CUH

#include "codec/cuda/eb/eb_group.cuh"
#include "codec/cuda/tile/sweep.cuh"

// ---- numbers of channels ----

// The two narrow classes of a grid, which have the same step; the second one reaches further. 0: there are none.
struct GridClasses {
    float step, inverse;
    u32 reach, far_reach;

    __device__ __forceinline__ GridClasses(const quantiser &q) {
        step = q.classes[0].step, inverse = q.classes[0].inverse;
        reach = q.classes[0].reach, far_reach = q.classes[1].reach;
    }
    // Whether one of them takes a magnitude that is not 0, and which.
    __device__ __forceinline__ bool take(u32 magnitude) const {
        return magnitude <= far_reach;
    }
    __device__ __forceinline__ u32 index(u32 magnitude) const {
        return magnitude > reach;
    }
};

// A channel's scale, shift, threshold and slope.
__device__ __forceinline__ float4 grid_entries(const CompressArgs &args, u32 channel) {
    const GridTables &t = args.grid;
    const float threshold = __ldg(t.threshold + channel);
    if (args.grid_is_whole) { // the common case: no test for each
        forget_uses(channel); // or both ways become one, with the tests
        return make_float4(__ldg(t.scale + channel), __ldg(t.shift + channel), threshold, __ldg(t.slope + channel));
    }
    return make_float4(t.scale ? __ldg(t.scale + channel) : 1.0f, t.shift ? __ldg(t.shift + channel) : 0.0f, threshold,
                       t.slope ? __ldg(t.slope + channel) : 1.0f);
}

// What quantising needs of a channel.
__device__ __forceinline__ float4 grid_numbers(const GridClasses &c, const float4 &entries) {
    const float edge = grid_edge(entries.z, entries.w, 128.0f * c.step);
    // the edge's code, which is an integer in quantiser_grid and here stays in the float that is needed
    return make_float4(entries.x, entries.y, edge, __fadd_rn(__fmaf_rn(edge, c.inverse, MAGIC), 128.0f));
}

// Statistics, which few ask for: the values are found and loaded again, as the common way has no registers for them,
// nor for where they lie. False: their sums do not fit fp32.
template <int REACH, int DTYPE>
__device__ __forceinline__ bool grid_stats(const CompressArgs &args, CompressShared &shared, float *table) {
    const u32 thread = thread_number(), lane = thread & 31, warp = warp_number(thread);
    const u32 tile = group_of_block() * GROUP_TILES + warp;
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    u32 w[8][PIECE_WORDS<DTYPE>], on = 0;
    float v[8][4];
    TileMaps maps;
    load_packed<REACH, DTYPE>(args.x, args.geometry, tile, s, lane, w);
    note_range(args, shared, lane, warp);
    __syncwarp(); // the common way has read its table
    make_table<REACH>(args.geometry, args.channel_map, s, lane, table, maps,
                      [&](u32 channel) { return grid_entries(args, channel); });
    for_numbers<REACH, 1>(
        args.geometry, args.channel_map, maps, table, tile, s, lane,
        [&](int a, int e, const float4 &n, const float4 &, u64) {
            float y = __fmaf_rn(n.x, packed_value<DTYPE>(w, a, e), n.y);
            v[a][e] = y;
            on += n.z != n.z ? y > 0.0f : n.w < 0.0f ? y < n.z : y > n.z;
        },
        [](int, int, u64) {});
    const Range range = range_of_values(v);
    if (!sums_fit_f32(magnitude_of(range)))
        return false;
    Survey survey;
    survey_plain(v, range, survey);
    survey.sum = (double)plain_sums<REACH>(v, lane).rest();
    survey.positive = __reduce_add_sync(ALL_LANES, on);
    keep_stats(survey, lane, shared.stats[warp]);
    return true;
}

// Codes of a tile, whose values, scaled and shifted, `look` sees on the way, and their greatest magnitude, or 1.
// PADDED: there may be padding, the code of which is anything.
template <int REACH, int DTYPE, int TABLES, bool PADDED, class Look>
__device__ __forceinline__ u32 grid_codes(const CompressArgs &args, const TileMaps &maps, const float *table,
                                          float inverse, u32 tile, const TileStart &s, u32 lane,
                                          u32 (&w)[8][PIECE_WORDS<DTYPE>], u32 (&words)[8], Look look) {
    constexpr bool IN_ROW = reach_width(REACH) > 1; // which two values come one after the other
    constexpr int SIDE = TABLES == 2 ? 4 : 2;       // channels at a time: an observer is soon done with a piece
    u32 q[8][4], last = 0;
    Magnitude magnitude;
    for_numbers<REACH, TABLES, SIDE>(
        args.geometry, args.channel_map, maps, table, tile, s, lane,
        [&](int a, int e, const float4 &n, const float4 &others, u64 index) {
            const float y = __fmaf_rn(n.x, packed_value<DTYPE>(w, a, e), n.y);
            const u32 bits = PADDED && index >= args.count ? 0 : __float_as_uint(y); // 0 has no part in it
            if ((IN_ROW ? e : a) % 2)
                magnitude.add(last, bits);
            last = bits;
            q[a][e] = __float_as_uint(__fmaf_rd(__fsub_rn(y, n.z), inverse, n.w));
            look.value(a, e, y, others);
        },
        [&](int a, int e, u64 index) {
            if (!PADDED || index < args.count)
                look.piece(a, e, index);
        });
    pack_words<REACH>(words, [&](int a0, int e0, int a1, int e1, int a2, int e2, int a3, int e3) {
        return pack_bytes(q[a0][e0], q[a1][e1], q[a2][e2], q[a3][e3]);
    });
    return magnitude.of_warp();
}

// What an observer needs of a tile's maps.
template <int REACH, class Observer>
__device__ __forceinline__ void fill_others(const CompressArgs &args, const TileStart &s, u32 lane, float *others,
                                            const TileMaps &maps, const Observer &observe) {
    fill_table<REACH>(args.geometry, args.channel_map, s, lane, others, maps, [&](u32 channel) {
        const float2 n = observe.numbers(channel, grid_entries(args, channel).w);
        return make_float4(n.x, n.y, 0.0f, 0.0f);
    });
}

// Numbers of a tile's channels, and behind them what an observer needs. False: there are too many maps.
template <int REACH, class Observer>
__device__ __forceinline__ bool make_grid_tables(const CompressArgs &args, const GridClasses &c, const TileStart &s,
                                                 u32 lane, float *table, TileMaps &maps, const Observer &observe) {
    const Geometry &g = args.geometry;
    const ChannelMap &map = args.channel_map;
    float *others = table + table_words(REACH);
    if constexpr (reach_is_last(REACH)) {
        // REACH_LAST4: those of a lane whose channel follows from that of the thread's own values
        const u32 first = REACH == REACH_LAST4 ? 4 * (lane & 7) : lane, on = REACH == REACH_LAST4 ? lane >> 3 : 0;
        const u32 channel = lane_start<REACH>(g, s, first).channel + on;
        const float4 entries = grid_entries(args, channel);
        const float2 other = observe.numbers(channel, entries.w);
        put_lane_numbers(table, first + on, grid_numbers(c, entries)); // now that all are on their way
        if (Observer::TABLES == 2)
            put_lane_pair(others, first + on, other);
        __syncwarp();
        return true;
    } else {
        if (!make_table<REACH>(g, map, s, lane, table, maps,
                               [&](u32 channel) { return grid_numbers(c, grid_entries(args, channel)); }))
            return false;
        if (Observer::TABLES == 2)
            fill_others<REACH>(args, s, lane, others, maps, observe);
        return true;
    }
}

// Plans a tile that may have padding, whose codes are anything. ENTRY_LEFT: exact values take less.
template <int REACH>
__device__ __forceinline__ void plan_padded(const CompressArgs &args, u32 tile, const TileStart &s, u32 class_index,
                                            u32 lane, u32 (&u)[8], u32 *scratch, TilePlan &plan) {
    u32 real[8];
    const u32 values = drop_padding<REACH>(args.geometry, tile, s, lane, SIGN_BITS, u, real);
    plan_narrow<REACH, true>(lane, u, real, class_index, scratch + SCRATCH_PLANES, scratch + SCRATCH_BALLOTS, plan);
    if (plan.entry >= values * (args.dtype == COMET_F32 ? 4 : 2)) // a code tile must be smaller than the raw one
        plan.entry = ENTRY_LEFT;
}

// ENTRY_LEFT: the tile is one for compress_rare. PADDED: it may have padding, where channels come last.
template <int REACH, int DTYPE, bool PADDED, class Observer>
__device__ __forceinline__ void compress_grid(const CompressArgs &args, CompressShared &shared, const GridClasses &c,
                                              u32 tile, u32 lane, u32 warp, TilePlan &plan, const Observer &observe) {
    const Geometry &g = args.geometry;
    const TileStart s = tile_start<REACH>(g, tile);
    u32 w[8][PIECE_WORDS<DTYPE>], words[8], u[8], *scratch = shared.scratch[warp];
    float *table = (float *)(scratch + SCRATCH_TABLE);
    TileMaps maps;
    plan.entry = ENTRY_LEFT;
    if (PADDED)
        load_padded<REACH, DTYPE>(args.x, g, tile, s, lane, w);
    else
        load_tile<REACH, DTYPE>(args.x, g, tile, s, lane, w);
    const auto look = observe.template at<REACH, DTYPE, PADDED>(g, tile, s, lane);
    if (!make_grid_tables<REACH>(args, c, s, lane, table, maps, observe))
        return;
    const u32 magnitude =
        grid_codes<REACH, DTYPE, Observer::TABLES, PADDED>(args, maps, table, c.inverse, tile, s, lane, w, words, look);
    if (!c.take(magnitude))
        return;
    if (args.with_stats && !grid_stats<REACH, DTYPE>(args, shared, table))
        return;
    exchange_codes<REACH>(words, lane, scratch + SCRATCH_PLANES, u);
    if constexpr (PADDED) {
        plan_padded<REACH>(args, tile, s, c.index(magnitude), lane, u, scratch, plan);
    } else {
        plan_narrow<REACH, false>(lane, u, u, c.index(magnitude), scratch + SCRATCH_PLANES, scratch + SCRATCH_BALLOTS,
                                  plan);
    }
}

// ---- the same, in the order of memory ----

// Four values on their way to codes. Look: see Unobserved.
template <int DTYPE, class Look> struct GridQuad {
    u32 x[PIECE_WORDS<DTYPE>];
    typename Look::Quad seen;
    float u[4], out[4];
    u32 code[4];

    // Values from number `from` on, of one channel.
    __device__ __forceinline__ void take(const Look &look, const float *table, u32 map, float inverse, u32 from) {
        const float4 n = ((const float4 *)table)[map], others = ((const float4 *)(table + TABLE_WORDS))[map];
#pragma unroll
        for (int e = 0; e < 4; e++)
            if ((u32)e >= from) {
                u[e] = __fmaf_rn(n.x, piece_value<DTYPE>(x, e), n.y);
                code[e] = __float_as_uint(__fmaf_rd(__fsub_rn(u[e], n.z), inverse, n.w));
                out[e] = look.of(seen, e, u[e], others);
            }
    }
    __device__ __forceinline__ void add_to(Magnitude &magnitude, u32 mine) const {
        u32 bits[4]; // 0 has no part in the magnitude
#pragma unroll
        for (int e = 0; e < 4; e++)
            bits[e] = mine >> e & 1 ? __float_as_uint(u[e]) : 0;
        magnitude.add(bits[0], bits[1]);
        magnitude.add(bits[2], bits[3]);
    }
};

// Codes of a tile in the order of memory, and the greatest magnitude, or 1.
template <int DTYPE, class Look> struct GridSweep {
    typedef GridQuad<DTYPE, Look> Quad;
    const CompressArgs &args;
    const Look look;
    const SweptQuads &order;
    const float *table;
    float inverse;
    u32 *words;

    __device__ __forceinline__ void load(Quad &q, u32 number) const {
        load_piece<REACH_FLAT, DTYPE, LOAD_ONCE>(args.x, order.first + 4 * number, 0, q.x);
        look.load(q.seen, order.first + 4 * number);
    }
    __device__ __forceinline__ void use(Quad &q, u32 number, u32 mine, Magnitude &magnitude) const {
        const QuadMap at = quad_map(args.channel_map, order.skip + 4 * number);
        q.take(look, table, at.map, inverse, 0);
        if (at.room < 4)
            q.take(look, table, at.map + 1, inverse, at.room);
        q.add_to(magnitude, mine);
        words[number] = pack_bytes(q.code[0], q.code[1], q.code[2], q.code[3]);
        look.put(q.out, order.first + 4 * number, mine);
    }
    __device__ __forceinline__ u32 codes(Quad (&quads)[SweptQuads::ROUNDS], u32 lane) const {
        const Geometry &g = args.geometry;
        Magnitude magnitude;
        for_rounds<SweptQuads::ROUNDS>([&](auto round) {
            constexpr int T = decltype(round)::value;
            const u32 number = 32 * T + lane;
            if (T < SweptQuads::WHOLE_ROUNDS || number < order.quads)
                use(quads[T], number, order.template mine<SweptQuads::end_of(T)>(g, number), magnitude);
        });
#pragma unroll 1
        for (u32 number = 32 * SweptQuads::ROUNDS + lane; number < order.quads; number += 32) {
            Quad q;
            load(q, number);
            use(q, number, order.template mine<END_LAST>(g, number), magnitude);
        }
        return magnitude.of_warp();
    }
};

// As compress_grid.
template <int DTYPE, class Observer>
__device__ __forceinline__ void compress_swept(const CompressArgs &args, CompressShared &shared, const GridClasses &c,
                                               u32 tile, u32 lane, u32 warp, TilePlan &plan, const Observer &observe) {
    const Geometry &g = args.geometry;
    const TileStart s = tile_start<REACH_ROW1>(g, tile);
    u32 u[8], *scratch = shared.scratch[warp];
    float *table = (float *)(scratch + SCRATCH_TABLE);
    SweptQuads order(g, s);
    TileMaps maps;
    typename GridSweep<DTYPE, typename Observer::Quads>::Quad quads[SweptQuads::ROUNDS];
    plan.entry = ENTRY_LEFT;
    const GridSweep<DTYPE, typename Observer::Quads> sweep = {args,  observe.quads(), order,
                                                              table, c.inverse,       scratch + SCRATCH_PLANES};
#pragma unroll
    for (int t = 0; t < SweptQuads::ROUNDS; t++)
        if (t < SweptQuads::WHOLE_ROUNDS || 32 * t + lane < order.quads)
            sweep.load(quads[t], 32 * t + lane);
    if (!make_table<REACH_ROW1>(g, args.channel_map, s, lane, table, maps,
                                [&](u32 channel) { return grid_numbers(c, grid_entries(args, channel)); }))
        return;
    fill_others<REACH_ROW1>(args, s, lane, table + TABLE_WORDS, maps, observe);
    order.take(maps);
    const u32 magnitude = sweep.codes(quads, lane);
    if (!c.take(magnitude))
        return;
    take_columns(g, order, lane, (const u8 *)(scratch + SCRATCH_PLANES), u);
    if (args.with_stats && !grid_stats<REACH_ROW1, DTYPE>(args, shared, table))
        return;
    plan_narrow<REACH_ROW1, false>(lane, u, u, c.index(magnitude), scratch + SCRATCH_PLANES, scratch + SCRATCH_BALLOTS,
                                   plan);
}

#endif
