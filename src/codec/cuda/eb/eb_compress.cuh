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

#include "codec/cuda/eb/eb_group.cuh"
#include "codec/cuda/tile/sweep.cuh"

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

// What the totals say of the range, before the tile's own is added. By the warp that will write the group's record.
__device__ __forceinline__ void note_range(const CompressArgs &args, CompressShared &shared, u32 lane, u32 warp) {
    if (warp == WARP_OF_RECORD && lane == 0)
        shared.range_known = range_so_far(&args.workspace->totals);
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

// Codes of padding in a lane's words become `none`; real[m] gets 0xff where there is none. The tile's bytes if it were
// raw.
template <int REACH, int DTYPE>
__device__ __forceinline__ u32 drop_padding(const Geometry &g, u32 tile, const TileStart &s, u32 lane, u32 none,
                                            u32 (&u)[8], u32 (&real)[8]) {
    u32 bits = 0;
#pragma unroll
    for (int m = 0; m < 8; m++) {
        real[m] = tile < g.inner ? ~0u : real_bytes<REACH>(g, s, lane, m);
        u[m] = choose(real[m], u[m], none);
        bits += __popc(real[m]);
    }
    return __reduce_add_sync(ALL_LANES, bits) / 8 * (DTYPE == COMET_F32 ? 4 : 2);
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
    const u32 raw = drop_padding<REACH, DTYPE>(args.geometry, tile, s, lane, 0, low, real);
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
        const u32 raw = drop_padding<REACH, DTYPE>(args.geometry, tile, s, lane, SIGN_BITS, u, real);
        plan_narrow<REACH, true>(lane, u, real, c.index, scratch + SCRATCH_PLANES, scratch + SCRATCH_BALLOTS, plan);
        if (plan.entry >= raw) // a code tile must be smaller than the raw one
            plan.entry = ENTRY_LEFT;
    } else {
        plan_narrow<REACH, false>(lane, u, u, c.index, scratch + SCRATCH_PLANES, scratch + SCRATCH_BALLOTS, plan);
    }
}

// ---- a tile without padding, on a grid ----

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
template <int REACH, int DTYPE, int TABLES, class Look>
__device__ __forceinline__ u32 grid_codes(const CompressArgs &args, const TileMaps &maps, const float *table,
                                          float inverse, u32 tile, const TileStart &s, u32 lane,
                                          u32 (&w)[8][PIECE_WORDS<DTYPE>], u32 (&words)[8], Look look) {
    constexpr bool IN_ROW = reach_width(REACH) > 1; // which two values come one after the other
    constexpr int SIDE = TABLES == 2 ? 4 : 2;       // channels at a time: an observer is soon done with a piece
    u32 q[8][4], last = 0;
    Magnitude magnitude;
    for_numbers<REACH, TABLES, SIDE>(
        args.geometry, args.channel_map, maps, table, tile, s, lane,
        [&](int a, int e, const float4 &n, const float4 &others, u64) {
            const float y = __fmaf_rn(n.x, packed_value<DTYPE>(w, a, e), n.y);
            if ((IN_ROW ? e : a) % 2)
                magnitude.add(last, __float_as_uint(y));
            last = __float_as_uint(y);
            q[a][e] = __float_as_uint(__fmaf_rd(__fsub_rn(y, n.z), inverse, n.w));
            look.value(a, e, y, others);
        },
        [&](int a, int e, u64 index) { look.piece(a, e, index); });
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

// ENTRY_LEFT: the tile is one for compress_rare.
template <int REACH, int DTYPE, class Observer>
__device__ __forceinline__ void compress_grid(const CompressArgs &args, CompressShared &shared, const GridClasses &c,
                                              u32 tile, u32 lane, u32 warp, TilePlan &plan, const Observer &observe) {
    const Geometry &g = args.geometry;
    const TileStart s = tile_start<REACH>(g, tile);
    u32 w[8][PIECE_WORDS<DTYPE>], words[8], u[8], *scratch = shared.scratch[warp];
    float *table = (float *)(scratch + SCRATCH_TABLE);
    TileMaps maps;
    plan.entry = ENTRY_LEFT;
    load_tile<REACH, DTYPE>(args.x, g, tile, s, lane, w);
    const auto look = observe.template at<REACH, DTYPE>(g, tile, s, lane);
    if (!make_grid_tables<REACH>(args, c, s, lane, table, maps, observe))
        return;
    const u32 magnitude =
        grid_codes<REACH, DTYPE, Observer::TABLES>(args, maps, table, c.inverse, tile, s, lane, w, words, look);
    if (!c.take(magnitude))
        return;
    if (args.with_stats && !grid_stats<REACH, DTYPE>(args, shared, table))
        return;
    exchange_codes<REACH>(words, lane, scratch + SCRATCH_PLANES, u);
    plan_narrow<REACH, false>(lane, u, u, c.index(magnitude), scratch + SCRATCH_PLANES, scratch + SCRATCH_BALLOTS,
                              plan);
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

// ---- a group ----

// A tile without padding.
template <int REACH, int DTYPE, int MODE, class Observer>
__device__ __forceinline__ void compress_common(const CompressArgs &args, CompressShared &shared, const GridClasses &c,
                                                u32 tile, u32 lane, u32 warp, TilePlan &plan, const Observer &observe) {
    if constexpr (REACH == REACH_SWEEP)
        compress_swept<DTYPE>(args, shared, c, tile, lane, warp, plan, observe);
    else if constexpr (MODE == MODE_GRID)
        compress_grid<REACH, DTYPE>(args, shared, c, tile, lane, warp, plan, observe);
    else
        compress_values<REACH, DTYPE, MODE, false, Observer::LOADS>(args, shared, tile, lane, warp, plan);
}

// Any group; a tile that is planned stays as it is. Grids have no common way for padding and 16-bit codes: what is left
// of them, a few tiles at the end of a tensor mostly, goes value by value. A function of its own, so that it costs the
// others no registers.
template <int REACH, int DTYPE, int MODE, class Observer>
__device__ __noinline__ void compress_mixed(const CompressArgs &args, CompressShared &shared, Observer observe,
                                            TilePlan plan) {
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, group = group_of_block();
    const u32 tile = group * GROUP_TILES + warp;
    constexpr int RARE_REACH = REACH == REACH_SWEEP ? REACH_ROW1 : REACH;
    __syncthreads(); // entries have been read
    if constexpr (MODE == MODE_NEAREST || MODE == MODE_KEEP)
        if (plan.entry == ENTRY_LEFT && tile < args.geometry.tiles)
            compress_values<REACH, DTYPE, MODE, true, Observer::LOADS>(args, shared, tile, lane, warp, plan);
    if (plan.entry == ENTRY_LEFT) {
        plan.entry = 0;
        __syncwarp();
        if (tile < args.geometry.tiles)
            compress_rare<RARE_REACH, DTYPE>(args, shared, tile, lane, warp, plan, observe);
        else if (lane == 0)
            clear_stats(shared.stats[warp]);
    }
    if (lane == 0)
        shared.entry[warp] = plan.entry | (plan.wide ? (u32)ENTRY_WIDE : 0);
    __syncthreads();
    write_mixed<RARE_REACH, DTYPE, Observer::LOADS>(args, shared, group, thread, plan);
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
        compress_mixed<REACH, DTYPE, MODE>(args, shared, observe, plan);
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
        compress_mixed<REACH, DTYPE, MODE>(args, shared, observe, nothing);
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
