// SPDX-License-Identifier: Apache-2.0
// The backward pass of a batch normalisation: the way through tiles, of both passes, and the sums dbeta and dgamma.
#ifndef COMET_CODEC_CUDA_NORM_SUMS_CUH
#define COMET_CODEC_CUDA_NORM_SUMS_CUH

#include "codec/cuda/norm/norm_values.cuh"

// ---- sums over the maps of a tile ----

// Which maps a tile touches, and how they lie in it. For C = 1.
struct NormMaps {
    u64 first; // index of its least value
    u32 skip;  // values of the first map that lie before it
    u32 span;  // from the least index to the greatest, both counted
    u32 count; // of maps
};

template <int REACH>
__device__ __forceinline__ NormMaps norm_maps(const Geometry &g, const ChannelMap &map, const TileStart &s) {
    NormMaps m;
    m.first = s.position + s.column;
    m.skip = 0;
    if (map.by_inner.divisor > 1)
        map.long_by_inner(m.first, &m.skip);
    u64 last = REACH == REACH_FLAT ? m.first + 1023 : column_position(g, s, 255) + 3 * (u64)g.row;
    u64 end = g.positions - 1; // padding is behind the tensor's end
    m.span = (u32)((last < end ? last : end) - m.first) + 1;
    m.count = map.by_inner(m.skip + m.span - 1) + 1;
    return m;
}

__device__ __forceinline__ float norm_warp_sum(float v) {
#pragma unroll
    for (int d = 16; d; d /= 2)
        v = __fadd_rn(v, __shfl_xor_sync(ALL_LANES, v, d));
    return v;
}

// Few maps: each in turn, the others' values left out.
template <int REACH>
__device__ __forceinline__ void norm_sum_few(const NormBackwardArgs &args, const NormMaps &maps, u32 tile,
                                             const TileStart &s, u32 lane, const float (&v)[8][4], float *sums) {
    const DecompressArgs &codec = args.codec;
#pragma unroll 1
    for (u32 map = 0; map < maps.count; map++) {
        float sum = 0.0f;
        for_pieces<REACH>(codec.geometry, tile, s, lane, [&](int a, int e, u64 index, u64) {
#pragma unroll
            for (int i = 0; i < reach_width(REACH); i++)
                if (index + i - maps.first < maps.span &&
                    codec.channel_map.by_inner(maps.skip + (u32)(index + i - maps.first)) == map)
                    sum = __fadd_rn(sum, v[a][e + i]);
        });
        sum = norm_warp_sum(sum);
        if (lane == 0)
            sums[2 * map] = sum;
    }
}

enum { NORM_WINDOW = STAGE_BYTES / 4 };

// Many: values in order of memory through shared memory, a window at a time; a lane adds up a map.
template <int REACH>
__device__ __forceinline__ void norm_sum_many(const NormBackwardArgs &args, const NormMaps &maps, u32 tile,
                                              const TileStart &s, u32 lane, const float (&v)[8][4], float *window,
                                              float *sums) {
    const DecompressArgs &codec = args.codec;
    const Divide &by_inner = codec.channel_map.by_inner;
#pragma unroll 1
    for (u32 begin = 0; begin < maps.span; begin += NORM_WINDOW) {
        const u32 end = min(begin + NORM_WINDOW, maps.span);
        for (u32 i = lane; i < NORM_WINDOW; i += 32)
            window[i] = 0.0f;
        __syncwarp();
        for_pieces<REACH>(codec.geometry, tile, s, lane, [&](int a, int e, u64 index, u64) {
#pragma unroll
            for (int i = 0; i < reach_width(REACH); i++) {
                u64 at = index + i - maps.first;
                if (at >= begin && at < end)
                    window[(u32)at - begin] = v[a][e + i];
            }
        });
        __syncwarp();
        const u32 last = by_inner(maps.skip + end - 1);
        for (u32 map = by_inner(maps.skip + begin) + lane; map <= last; map += 32) {
            u32 start = map * by_inner.divisor, from = max(start > maps.skip ? start - maps.skip : 0u, begin);
            u32 to = min(start + by_inner.divisor - maps.skip, end);
            float sum = begin && start < maps.skip + begin ? sums[2 * map] : 0.0f; // began in the window before
            for (u32 i = from; i < to; i++)
                sum = __fadd_rn(sum, window[i - begin]);
            sums[2 * map] = sum;
        }
        __syncwarp();
    }
}

template <int REACH>
__device__ __forceinline__ void norm_sum_maps(const NormBackwardArgs &args, u32 tile, const TileStart &s, u32 lane,
                                              const float (&v)[8][4], float *window, float *sums) {
    const NormMaps maps = norm_maps<REACH>(args.codec.geometry, args.codec.channel_map, s);
    if (maps.count <= 8)
        norm_sum_few<REACH>(args, maps, tile, s, lane, v, sums);
    else
        norm_sum_many<REACH>(args, maps, tile, s, lane, v, window, sums);
}

// ---- rare tiles: padding, wide codes, exact values, many maps ----

// Sums are {sum dz, sum dz * w}.
__device__ __forceinline__ void norm_count(float2 &sum, float dz, float w) {
    sum.x = __fadd_rn(sum.x, dz);
    sum.y = __fmaf_rn(dz, w, sum.y);
}

template <int REACH, int DTYPE, int FROM>
__device__ __forceinline__ bool norm_sums_rare(const NormBackwardArgs &args, const quantiser &q,
                                               const TileSource &source, u32 tile, u32 lane,
                                               float2 (&sums)[NORM_SETS<REACH>]) {
    const TileStart s = tile_start<REACH>(args.codec.geometry, tile);
    float u[8][4];
    if (!norm_values<REACH, DTYPE, FROM>(args, q, source, tile, s, lane, u))
        return false;
    if constexpr (reach_is_last(REACH)) {
        norm_gradients<REACH, DTYPE>(args, tile, s, lane, u, [&](int, int e, u32, float w, float dz) {
            norm_count(sums[REACH == REACH_LAST4 ? e : 0], dz, w);
        });
    } else {
        float dz[8][4] = {};
        float *to = (float *)(args.sums.partial + (u64)tile * args.sums.slots);
        norm_gradients<REACH, DTYPE>(args, tile, s, lane, u,
                                     [&](int a, int e, u32, float, float gradient) { dz[a][e] = gradient; });
        norm_sum_maps<REACH>(args, tile, s, lane, dz, (float *)source.stage, to);
#pragma unroll
        for (int i = 0; i < 32; i++)
            u[i / 4][i % 4] = __fmul_rn(u[i / 4][i % 4], dz[i / 4][i % 4]);
        norm_sum_maps<REACH>(args, tile, s, lane, u, (float *)source.stage, to + 1);
    }
    return true;
}

template <int REACH, int DTYPE, int FROM>
__device__ __forceinline__ bool norm_dx_rare(const NormBackwardArgs &args, const quantiser &q, const TileSource &source,
                                             u32 tile, u32 lane) {
    const TileStart s = tile_start<REACH>(args.codec.geometry, tile);
    float u[8][4];
    u32 p[8][4] = {};
    if (!norm_values<REACH, DTYPE, FROM>(args, q, source, tile, s, lane, u))
        return false;
    norm_gradients<REACH, DTYPE>(args, tile, s, lane, u, [&](int a, int e, u32 channel, float w, float dz) {
        float4 c = __ldg(args.sums.coefficients + channel);
        p[a][e] = pattern_of_float<DTYPE>(__fmaf_rn(c.x, dz, __fmaf_rn(c.y, w, c.z)));
    });
    store_patterns<REACH, DTYPE>(args.dx, args.codec.geometry, tile, s, lane, p);
    return true;
}

// ---- tiles without padding, of narrow codes or of x ----

// m of a thread's values: from words of codes, or from the patterns of x.
template <int REACH, int DTYPE, int FROM> struct NormSource {
    u32 words[FROM == NORM_FROM_STREAM ? 8 : 1];
    u32 p[FROM == NORM_FROM_X ? 8 : 1][4];

    __device__ __forceinline__ float operator()(int a, int e) const {
        if (FROM == NORM_FROM_STREAM)
            return norm_odd_at(words[word_of<REACH>(a, e)], byte_of<REACH>(a, e));
        return float_of_pattern<DTYPE>(p[FROM == NORM_FROM_X ? a : 0][e]);
    }
};

// Pieces of one half of a tile, or of all of it.
enum NormHalf { NORM_FIRST, NORM_SECOND, NORM_WHOLE };

template <int REACH, int HALF, class Visit>
__device__ __forceinline__ void norm_for_pieces(const Geometry &g, u32 tile, const TileStart &s, u32 lane,
                                                Visit visit) {
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64) {
        if (HALF == NORM_WHOLE || a / 4 == HALF)
            visit(a, e, index);
    });
}

template <int REACH, int DTYPE, int HALF>
__device__ __forceinline__ void norm_load_half(const void *tensor, const Geometry &g, u32 tile, const TileStart &s,
                                               u32 lane, u32 (&p)[8][4]) {
    const typename Pattern<DTYPE>::Word *x = (const typename Pattern<DTYPE>::Word *)tensor;
    norm_for_pieces<REACH, HALF>(g, tile, s, lane, [&](int a, int e, u64 index) {
        if (reach_width(REACH) == 4)
            read4<DTYPE>(x + index, p[a]);
        else if (reach_width(REACH) == 2)
            read2<DTYPE>(x + index, p[a] + e);
        else
            p[a][e] = read1<DTYPE>(x + index);
    });
}

template <int REACH, int DTYPE>
__device__ __forceinline__ void norm_store_piece(void *tensor, u64 index, int e, const u32 (&p)[4]) {
    typename Pattern<DTYPE>::Word *to = (typename Pattern<DTYPE>::Word *)tensor + index;
    if (reach_width(REACH) == 4)
        write4<DTYPE>(to, p);
    else if (reach_width(REACH) == 2)
        write2<DTYPE>(to, p + e);
    else
        *to = (typename Pattern<DTYPE>::Word)p[e];
}

// Calls visit(a, e, c, w, dz): c is the value's place among the thread's channels; and behind(a, e, index) after each
// piece.
template <int REACH, int DTYPE, int FROM, int PASS, int HALF, class Visit, class Behind>
__device__ __forceinline__ void
norm_for_values(const NormBackwardArgs &args, const NormBackwardShared &shared, NormSets<REACH> &sets,
                NormBackwardFew<REACH, FROM, PASS> &n, u32 tile, const TileStart &s, u32 lane,
                const NormSource<REACH, DTYPE, FROM> &source, const u32 (&dy)[8][4], Visit visit, Behind behind) {
    if (reach_is_last(REACH))
        n.load(args, shared, sets, lane);
    norm_for_pieces<REACH, HALF>(args.codec.geometry, tile, s, lane, [&](int a, int e, u64 index) {
        if (sets.turn(a, index))
            n.load(args, shared, sets, lane);
#pragma unroll
        for (int i = 0; i < reach_width(REACH); i++) {
            int c = sets.of(e + i);
            float w = __fmaf_rn(source(a, e + i), n(NORM_SCALE, c), n(NORM_SHIFT, c));
            visit(a, e + i, c, w, w <= n(NORM_THRESHOLD, c) ? 0.0f : float_of_pattern<DTYPE>(dy[a][e + i]));
        }
        behind(a, e, index);
    });
}

// ---- sums of a common tile's maps ----

// A thread's sums by unit, for the up to two maps that a unit touches.
template <int REACH> struct NormUnits {
    static constexpr int PARTS = REACH == REACH_FLAT ? 1 : 2;
    float2 sums[NORM_UNITS<REACH>][PARTS], piece;
    u32 map[NORM_UNITS<REACH>]; // of the first part, counted from the tile's first

    __device__ __forceinline__ NormUnits() {
        piece = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int u = 0; u < NORM_UNITS<REACH>; u++)
#pragma unroll
            for (int part = 0; part < PARTS; part++)
                sums[u][part] = piece;
    }

    // A piece of unit u, row k, has been added to `piece`; it lies in `at`.
    __device__ __forceinline__ void take(int u, int k, u32 at, float sign) {
        if (k == 0 || PARTS == 1)
            map[u] = at;
        float2 &sum = sums[u][0], &second = sums[u][PARTS - 1];
        const bool is_second = PARTS == 2 && k > 0 && at != map[u];
        piece.y = __fmul_rn(piece.y, sign);
        if (is_second)
            second = make_float2(__fadd_rn(second.x, piece.x), __fadd_rn(second.y, piece.y));
        else
            sum = make_float2(__fadd_rn(sum.x, piece.x), __fadd_rn(sum.y, piece.y));
        piece = make_float2(0.0f, 0.0f);
    }

    // The thread's sums for one map.
    __device__ __forceinline__ float2 of(u32 wanted) const {
        float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int u = 0; u < NORM_UNITS<REACH>; u++)
#pragma unroll
            for (int part = 0; part < PARTS; part++)
                if (map[u] + (u32)part == wanted) {
                    sum.x = __fadd_rn(sum.x, sums[u][part].x);
                    sum.y = __fadd_rn(sum.y, sums[u][part].y);
                }
        return sum;
    }
};

template <int REACH>
__device__ __forceinline__ void norm_put_maps(const NormBackwardArgs &args, const NormMaps &maps, u32 tile, u32 lane,
                                              const NormUnits<REACH> &units) {
    float2 *to = args.sums.partial + (u64)tile * args.sums.slots;
#pragma unroll 1
    for (u32 map = 0; map < maps.count; map++) {
        float2 sum = units.of(map);
        sum = make_float2(norm_warp_sum(sum.x), norm_warp_sum(sum.y));
        if (lane == 0)
            to[map] = sum;
    }
}

// A warp on its way over tiles.
template <int REACH, int DTYPE, int FROM, int PASS> struct NormWalk {
    static constexpr int SETS = NORM_SETS<REACH>;
    typedef NormBackwardFew<REACH, FROM, PASS> Few;
    const NormBackwardArgs &args;
    NormBackwardShared &shared;
    u32 lane;
    float2 sums[SETS]; // where channels come last: of all its tiles

    __device__ __forceinline__ NormWalk(const NormBackwardArgs &a, NormBackwardShared &s) : args(a), shared(s) {
        lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < SETS; i++)
            sums[i] = make_float2(0.0f, 0.0f);
    }

    // False: the tile has padding, another form or many maps, or is not valid. It waits for a loop of its own, so that
    // what it needs costs the others no registers.
    __device__ __forceinline__ bool common(u32 tile, const TileSource &from) {
        const Geometry &g = args.codec.geometry;
        const TileStart s = tile_start<REACH>(g, tile);
        NormSets<REACH> sets(args.codec.channel_map, g, s, lane);
        NormSource<REACH, DTYPE, FROM> source;
        if (tile >= g.inner || !sets.few)
            return false;
        if constexpr (FROM == NORM_FROM_STREAM)
            if (!norm_decode<REACH>(shared.codec.q, from, lane,
                                    source.words)) // other warps' loads are on their way meanwhile
                return false;
        if constexpr (PASS == NORM_SUMS) {
            add(tile, s, sets, source);
        } else { // by halves: all of it takes too many registers
            write<NORM_FIRST>(tile, s, sets, source);
            write<NORM_SECOND>(tile, s, sets, source);
        }
        return true;
    }

    __device__ __forceinline__ void add(u32 tile, const TileStart &s, NormSets<REACH> &sets,
                                        NormSource<REACH, DTYPE, FROM> &source) {
        const Geometry &g = args.codec.geometry;
        u32 dy[8][4];
        if constexpr (FROM == NORM_FROM_X)
            norm_load_half<REACH, DTYPE, NORM_WHOLE>(args.x, g, tile, s, lane, source.p);
        norm_load_half<REACH, DTYPE, NORM_WHOLE>(args.dy, g, tile, s, lane, dy);
        if constexpr (reach_is_last(REACH)) {
            Few n;
            norm_for_values<REACH, DTYPE, FROM, PASS, NORM_WHOLE>(
                args, shared, sets, n, tile, s, lane, source, dy,
                [&](int, int, int c, float w, float dz) { norm_count(sums[c], dz, w); }, [](int, int, u64) {});
        } else {
            add_maps(tile, s, sets, source, dy);
        }
    }

    __device__ __forceinline__ void add_maps(u32 tile, const TileStart &s, NormSets<REACH> &sets,
                                             NormSource<REACH, DTYPE, FROM> &source, const u32 (&dy)[8][4]) {
        const ChannelMap &channels = args.codec.channel_map;
        const NormMaps maps = norm_maps<REACH>(args.codec.geometry, channels, s);
        NormUnits<REACH> units;
        Few n;
        u32 map = 0;
        norm_for_values<REACH, DTYPE, FROM, PASS, NORM_WHOLE>(
            args, shared, sets, n, tile, s, lane, source, dy,
            [&](int, int, int, float w, float dz) { norm_count(units.piece, dz, w); },
            [&](int a, int e, u64 index) {
                if (REACH == REACH_FLAT || a % 4 == 0 || !sets.is_whole)
                    map = channels.by_inner(maps.skip + (u32)(index - maps.first));
                float sign = __ldg(args.tables.gamma + sets.channel[0]) < 0.0f ? -1.0f : 1.0f; // of u, not of w
                units.take(norm_unit<REACH>(a, e), a % 4, map, sign);
            });
        norm_put_maps<REACH>(args, maps, tile, lane, units);
    }

    template <int HALF>
    __device__ __forceinline__ void write(u32 tile, const TileStart &s, NormSets<REACH> &sets,
                                          NormSource<REACH, DTYPE, FROM> &source) {
        const Geometry &g = args.codec.geometry;
        u32 dy[8][4], p[8][4];
        if constexpr (FROM == NORM_FROM_X)
            norm_load_half<REACH, DTYPE, HALF>(args.x, g, tile, s, lane, source.p);
        norm_load_half<REACH, DTYPE, HALF>(args.dy, g, tile, s, lane, dy);
        Few n;
        auto make = [&](int a, int e, int c, float w, float dz) {
            float rest = __fmaf_rn(n(NORM_OF_W, c), w, n(NORM_CONSTANT, c));
            p[a][e] = pattern_of_float<DTYPE>(__fmaf_rn(n(NORM_OF_DZ, c), dz, rest));
        };
        norm_for_values<REACH, DTYPE, FROM, PASS, HALF>(
            args, shared, sets, n, tile, s, lane, source, dy, make,
            [&](int a, int e, u64 index) { norm_store_piece<REACH, DTYPE>(args.dx, index, e, p[a]); });
    }
};

// ---- a block's sums, of last-extent channels ----

// The sums of lane l of each tile: l is the thread's number in the warp then.
template <int REACH>
__device__ __forceinline__ void norm_lane_sums(float2 (&sums)[NORM_SETS<REACH>], u32 lane, float2 *to) {
    if constexpr (REACH == REACH_LAST4) {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int d = 8; d <= 16; d *= 2) {
                sums[i].x = __fadd_rn(sums[i].x, __shfl_xor_sync(ALL_LANES, sums[i].x, d));
                sums[i].y = __fadd_rn(sums[i].y, __shfl_xor_sync(ALL_LANES, sums[i].y, d));
            }
        if (lane < 8)
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[4 * lane + i] = sums[i];
    } else {
        to[lane] = sums[0];
    }
}

// Lane l of a block belongs to channel (256 b + l) mod C. Fewer channels than lanes: one sum for each of them.
__device__ __forceinline__ void norm_put_block(const NormBackwardArgs &args, const float2 *sums) {
    const u32 channels = args.codec.geometry.channels, thread = threadIdx.x;
    if (channels > BLOCK_THREADS) {
        args.sums.partial[(u64)blockIdx.x * BLOCK_THREADS + thread] = sums[thread];
        return;
    }
    if (thread >= channels)
        return;
    u32 base;
    args.codec.geometry.long_by_channels((u64)blockIdx.x * BLOCK_THREADS, &base);
    float2 sum = make_float2(0.0f, 0.0f);
    for (u32 i = thread >= base ? thread - base : thread + channels - base; i < BLOCK_THREADS; i += channels) {
        sum.x = __fadd_rn(sum.x, sums[i].x);
        sum.y = __fadd_rn(sum.y, sums[i].y);
    }
    args.sums.partial[(u64)blockIdx.x * channels + thread] = sum;
}

#endif
