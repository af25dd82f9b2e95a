// SPDX-License-Identifier: Apache-2.0
// The backward pass of a batch normalisation where a tile's values come in the order of memory: quads, which lie in one
// map or two, and the rests that borders of maps cut off them.
#ifndef COMET_CODEC_CUDA_NORM_QUADS_CUH
#define COMET_CODEC_CUDA_NORM_QUADS_CUH

#include "codec/cuda/norm/norm_sums.cuh"
#include "codec/cuda/tile/sweep.cuh"

// Maps whose rests a lane has: a tile has TABLE_MAPS at most.
enum { NORM_RESTS = TABLE_MAPS / 32 };

// dz may lie where dy does: each value is read before it is written, by the same thread.
template <int PASS>
constexpr int NORM_DY_LOADS = PASS == NORM_MASKED_SUMS ? LOAD_WRITTEN
                              : PASS == NORM_DX        ? LOAD_ONCE
                                                       : LOAD_AGAIN;

// What four values are made of.
template <int DTYPE, int FROM> struct NormQuad {
    u32 m[FROM == NORM_FROM_STREAM ? 1 : PIECE_WORDS<DTYPE>]; // a word of codes, or x
    u32 dy[PIECE_WORDS<DTYPE>];

    // m of a value.
    template <int FORM> __device__ __forceinline__ float at(int e) const {
        if constexpr (FROM == NORM_FROM_X)
            return piece_value<DTYPE>(m, e);
        else
            return FORM == FORM_GRID ? fine_float(norm_near(m[0]), e) : far_float(m[0], e);
    }

    // w and dz of a value, if it is `mine`, else zeros; n: numbers of its channel.
    template <int FORM, int PASS> __device__ __forceinline__ float2 value(int e, const float4 &n, bool mine) const {
        const float w = __fmaf_rn(at<FORM>(e), n.x, n.y);
        const bool is_off = PASS != NORM_MASKED_SUMS && w <= n.z;
        // from codes w is a number in any case, and so is 0 * w
        return make_float2(FROM == NORM_FROM_STREAM || mine ? w : 0.0f,
                           is_off || !mine ? 0.0f : piece_value<DTYPE>(dy, e));
    }

    // The sums of the values that mine(e) is true for.
    template <int FORM, int PASS, class Mine> __device__ __forceinline__ float2 sum(const float4 &n, Mine mine) const {
        float2 all = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 v = value<FORM, PASS>(e, n, mine(e));
            norm_count(all, v.y, v.x);
        }
        return all;
    }

    // dx; k: {of dz, of w, constant, 0}
    template <int FORM, int PASS>
    __device__ __forceinline__ void dx(const float4 &n, const float4 &k, u32 (&out)[PIECE_WORDS<DTYPE>]) const {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 v = value<FORM, PASS>(e, n, true);
            put_value<REACH_FLAT, DTYPE>(out, e, __fmaf_rn(k.x, v.y, __fmaf_rn(k.y, v.x, k.z)));
        }
    }
};

// ---- from quads to maps ----

// Adds up sums of quads, first[..] up to end[0].
__device__ __forceinline__ float2 norm_add_run(float2 sum, const float2 *first, const float2 *end) {
#pragma unroll 1
    for (; first + 4 <= end; first += 4)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum = norm_add(sum, first[i]);
#pragma unroll
    for (int i = 0; i < 3; i++)
        if (first + i < end)
            sum = norm_add(sum, first[i]);
    return sum;
}

// The sum of a map's quads, partial[..], by 2^shift lanes, each of which adds up a run of them; `rest` is what its
// border cut off a quad, in the first of these lanes. All of them get the sum.
__device__ __forceinline__ float2 norm_map_sum(const float2 *partial, u32 begin, u32 end, u32 part, u32 shift,
                                               float2 rest) {
    const u32 first = (begin + 3) / 4, behind = (end + 3) / 4, count = behind > first ? behind - first : 0;
    const u32 run = (count + (1u << shift) - 1) >> shift, from = min(part * run, count);
    float2 sum = norm_add_run(rest, partial + first + from, partial + first + min(from + run, count));
#pragma unroll 1
    for (u32 d = 1; d < 1u << shift; d *= 2)
        sum = norm_add(sum, make_float2(__shfl_xor_sync(ALL_LANES, sum.x, d), __shfl_xor_sync(ALL_LANES, sum.y, d)));
    return sum;
}

// The sums of a tile's maps, {sum dz, sum dz * u}: each by as many lanes as there are for it, which add always in the
// same order. skip: see map_begin; span: values from the first quad on; rests: of this lane's maps, where it is the
// first lane of one.
__device__ __forceinline__ void norm_put_maps(const NormBackwardArgs &args, const float *table, u32 count, u32 skip,
                                              u32 span, u32 tile, u32 lane, const float2 *partial,
                                              const float2 (&rests)[NORM_RESTS]) {
    const ChannelMap &map = args.codec.channel_map;
    float2 *to = args.sums.partial + (u64)tile * args.sums.slots;
    const u32 shift = lanes_a_map(count), part = lane & ((1u << shift) - 1);
#pragma unroll
    for (u32 r = 0; r < NORM_RESTS; r++) {
        if (32 * r >= count)
            break;
        const u32 number = (lane >> shift) + 32 * r;
        const u32 begin = map_begin(map, skip, number), end = min(map_begin(map, skip, number + 1), span);
        float2 sum = norm_map_sum(partial, begin, number < count ? end : 0, part, shift, rests[r]);
        if (number < count && part == 0) {
            sum.y = __fmul_rn(sum.y, ((const float4 *)table)[number].w); // of u, not of w
            to[number] = sum;
        }
    }
}

// ---- a tile ----

// The quads of a tile without padding: Order is FlatQuads or SweptQuads.
template <int DTYPE, int FROM, int PASS, class Order> struct NormSweep {
    typedef NormQuad<DTYPE, FROM> Quad;
    enum { ROUNDS = Order::ROUNDS };
    static constexpr bool IS_SWEPT = std::is_same<Order, SweptQuads>::value;
    const NormArgs<PASS> &args;
    u8 *stage; // has the codes
    const float *table;
    const Order &order;
    u32 lane, maps; // how many maps there are

    // All but the codes, which take other ways.
    __device__ __forceinline__ void load(u32 number, Quad &q) const {
        const u64 index = order.first + 4 * number;
        if constexpr (FROM == NORM_FROM_X)
            load_piece<REACH_FLAT, DTYPE, PASS == NORM_DX ? LOAD_ONCE : LOAD_AGAIN>(args.x, index, 0, q.m);
        if constexpr (PASS == NORM_MASKED_SUMS)
            load_piece<REACH_FLAT, DTYPE, LOAD_WRITTEN>(args.dz, index, 0, q.dy);
        else
            load_piece<REACH_FLAT, DTYPE, NORM_DY_LOADS<PASS>>(args.dy, index, 0, q.dy);
    }
    __device__ __forceinline__ void load_codes(u32 number, Quad &q) const {
        if constexpr (FROM == NORM_FROM_STREAM)
            q.m[0] = ((const u32 *)stage)[Order::place(number)];
    }

    // Calls use(quad, number, mine) for every quad of this lane: those that are there, and the others of a tile that
    // has more. `mine`: see put_quad. The codes of swept quads are not there yet.
    template <class Use> __device__ __forceinline__ void for_quads(const Quad (&quads)[ROUNDS], Use use) const {
        const Geometry &g = args.codec.geometry;
        for_rounds<ROUNDS>([&](auto round) {
            constexpr int T = decltype(round)::value;
            const u32 number = 32 * T + lane;
            const bool is_there = T < SweptQuads::WHOLE_ROUNDS || number < order.count();
            Quad q = quads[T];
            if (IS_SWEPT && is_there)
                load_codes(number, q);
            if (IS_SWEPT && PASS != NORM_DX && T >= 4)
                __syncwarp(); // sums may take the place of these codes
            if (is_there)
                use(q, number, order.template mine<Order::end_of(T)>(g, number));
        });
        if constexpr (IS_SWEPT)
#pragma unroll 1
            for (u32 number = 32 * ROUNDS + lane; number - lane < order.count(); number += 32) {
                Quad q;
                if (number < order.count())
                    q = quad_again(number);
                __syncwarp();
                if (number < order.count())
                    use(q, number, order.template mine<END_LAST>(g, number));
            }
    }

    template <int FORM> __device__ __forceinline__ void pass(u32 tile, const Quad (&quads)[ROUNDS]) const {
        if constexpr (PASS == NORM_DX)
            write<FORM>(quads);
        else
            add<FORM>(tile, quads);
    }

    // The quad that the border of a map cuts, and which of its values are in that map.
    struct Rest {
        u32 quad, mine;
    };
    __device__ __forceinline__ Rest rest_of(u32 number) const {
        const u32 begin = map_begin(args.codec.channel_map, order.skip, number);
        Rest rest = {begin / 4, 0};
        if (number < maps && begin % 4)
            rest.mine = mine_of_any(rest.quad) & 15u << begin % 4;
        return rest;
    }
    __device__ __forceinline__ u32 mine_of_any(u32 quad) const {
        if constexpr (IS_SWEPT)
            return order.mine_of_any(args.codec.geometry, quad);
        else
            return 15;
    }
    __device__ __forceinline__ Quad quad_again(u32 number) const {
        Quad q;
        load(number, q);
        load_codes(number, q);
        return q;
    }

    template <int FORM> __device__ __forceinline__ void add(u32 tile, const Quad (&quads)[ROUNDS]) const {
        const ChannelMap &map = args.codec.channel_map;
        const float4 *numbers = (const float4 *)table;
        float2 *partial = (float2 *)stage, rests[NORM_RESTS] = {};
        const u32 shift = lanes_a_map(maps);
        if (map.by_inner.divisor % 4 != 0)
#pragma unroll
            for (u32 r = 0; r < NORM_RESTS; r++) {
                const u32 number = (lane >> shift) + 32 * r;
                const Rest rest = rest_of(number);
                if (rest.mine && (lane & ((1u << shift) - 1)) == 0)
                    rests[r] = quad_again(rest.quad).template sum<FORM, PASS>(
                        numbers[number], [&](int e) { return rest.mine >> e & 1; });
            }
        __syncwarp(); // codes have been read
        for_quads(quads, [&](const Quad &quad, u32 number, u32 mine) {
            const QuadMap q = quad_map(map, order.skip + 4 * number);
            partial[number] = quad.template sum<FORM, PASS>(
                numbers[q.map], [&](int e) { return (mine >> e & 1) && (e == 0 || (u32)e < q.room); });
        });
        __syncwarp();
        norm_put_maps(args, table, maps, order.skip, 4 * order.count(), tile, lane, partial, rests);
    }

    template <int FORM> __device__ __forceinline__ void write(const Quad (&quads)[ROUNDS]) const {
        const ChannelMap &map = args.codec.channel_map;
        const float4 *numbers = (const float4 *)table, *factors = (const float4 *)(table + TABLE_WORDS);
        const bool has_rests = map.by_inner.divisor % 4 != 0;
        u32 rests[NORM_RESTS][PIECE_WORDS<DTYPE>];
        if (has_rests)
#pragma unroll
            for (u32 r = 0; r < NORM_RESTS; r++) {
                const u32 number = lane + 32 * r;
                const Rest rest = rest_of(number);
                if (rest.mine)
                    quad_again(rest.quad).template dx<FORM, PASS>(numbers[number], factors[number], rests[r]);
            }
        __syncwarp(); // dx may lie where dy does
        for_quads(quads, [&](const Quad &quad, u32 number, u32 mine) {
            const u32 i = map.by_inner(order.skip + 4 * number);
            u32 p[PIECE_WORDS<DTYPE>];
            quad.template dx<FORM, PASS>(numbers[i], factors[i], p);
            put_quad<DTYPE>(args.dx, order.first + 4 * number, p, mine);
        });
        if (!has_rests)
            return;
        __syncwarp(); // rests come last
#pragma unroll
        for (u32 r = 0; r < NORM_RESTS; r++) {
            const Rest rest = rest_of(lane + 32 * r);
            if (rest.mine)
                store_some<DTYPE>(args.dx, order.first + 4 * rest.quad, rests[r], rest.mine);
        }
    }
};

#endif
