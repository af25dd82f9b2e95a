// SPDX-License-Identifier: Apache-2.0
// The backward pass of a batch normalisation, from a stream of u or from x: first the sums dbeta and dgamma, then dx.
// Both passes go over tiles as the codec does, a warp a tile.
//
// All is done with w, which is u with the sign of gamma: a channel is on above its threshold then, and no rounding
// changes.
#ifndef COMET_CODEC_CUDA_NORM_BACKWARD_CUH
#define COMET_CODEC_CUDA_NORM_BACKWARD_CUH

#include "codec/cuda/eb_decompress.cuh"
#include "codec/cuda/norm_args.cuh"

// Numbers of a channel: w = fma(m, scale, shift), m being 2 q + 1 of a code q, or x; dx = fma(of_dz, dz, fma(of_w, w,
// constant)).
enum NormNumber { NORM_SCALE, NORM_SHIFT, NORM_THRESHOLD, NORM_OF_DZ, NORM_OF_W, NORM_CONSTANT, NORM_NUMBERS };

struct NormBackwardShared {
    DecompressShared codec;
    // Of the channels of each warp's 32 lanes, which stay the same from tile to tile where channels come last. Kept
    // here: they are not needed while a tile is decoded.
    alignas(16) float numbers[NORM_NUMBERS][BLOCK_THREADS];
    float2 sums[BLOCK_THREADS];
};

// ---- numbers of channels ----

template <int FROM, int PASS>
__device__ __forceinline__ void norm_numbers(const NormBackwardArgs &args, const quantiser_class &c, u32 channel,
                                             float (&n)[NORM_NUMBERS]) {
    const NormTables &t = args.tables;
    float sign = __ldg(t.gamma + channel) < 0.0f ? -1.0f : 1.0f, threshold = __ldg(t.threshold + channel);
    float scale = FROM == NORM_FROM_X ? __ldg(t.scale + channel) : __fmul_rn(0.5f, c.step);
    float shift = FROM == NORM_FROM_X ? __ldg(t.shift + channel) : quantiser_grid(&c, threshold, 1.0f).remainder;
    n[NORM_SCALE] = __fmul_rn(sign, scale);
    n[NORM_SHIFT] = __fmul_rn(sign, shift);
    n[NORM_THRESHOLD] = __fmul_rn(sign, threshold);
    if (PASS == NORM_DX) {
        float4 k = __ldg(args.sums.coefficients + channel);
        n[NORM_OF_DZ] = k.x, n[NORM_OF_W] = k.y, n[NORM_CONSTANT] = k.z;
    }
}

// Those of a thread's channels.
template <int REACH, int FROM, int PASS> struct NormBackwardFew {
    static constexpr int COUNT = PASS == NORM_DX ? NORM_NUMBERS : NORM_OF_DZ;
    float of[NORM_SETS<REACH>][NORM_NUMBERS];

    __device__ __forceinline__ void load(const NormBackwardArgs &args, const NormBackwardShared &shared,
                                         const NormSets<REACH> &sets, u32 lane) {
        const u32 first = threadIdx.x & ~31u;
#pragma unroll
        for (int i = 0; i < COUNT && REACH == REACH_LAST4; i++) {
            float4 q = ((const float4 *)(shared.numbers[i] + first))[lane & 7];
            of[0][i] = q.x, of[NORM_SETS<REACH> / 4][i] = q.y;
            of[NORM_SETS<REACH> / 2][i] = q.z, of[NORM_SETS<REACH> - 1][i] = q.w;
        }
#pragma unroll
        for (int i = 0; i < COUNT && REACH == REACH_LAST1; i++)
            of[0][i] = shared.numbers[i][threadIdx.x];
        if (!reach_is_last(REACH))
            norm_numbers<FROM, PASS>(args, shared.codec.q.classes[0], sets.channel[0], of[0]);
    }
    __device__ __forceinline__ float operator()(int number, int c) const {
        return of[c][number];
    }
};

// This thread's lane of the tile, as its warp's number in the table says.
template <int REACH, int FROM, int PASS>
__device__ __forceinline__ void norm_keep_numbers(const NormBackwardArgs &args, NormBackwardShared &shared, u32 tile,
                                                  u32 lane) {
    const Geometry &g = args.codec.geometry;
    if (!reach_is_last(REACH) || tile >= g.tiles)
        return;
    float n[NORM_NUMBERS];
    u32 channel = lane_start<REACH>(g, tile_start<REACH>(g, tile), lane).channel;
    norm_numbers<FROM, PASS>(args, shared.codec.q.classes[0], channel, n);
#pragma unroll
    for (int i = 0; i < (PASS == NORM_DX ? NORM_NUMBERS : NORM_OF_DZ); i++)
        shared.numbers[i][threadIdx.x] = n[i];
    __syncwarp();
}

// ---- codes to m ----

// 2 q + 1 of byte K of biased codes: 2^16 + 2 (q + 128) is built in the bits of a float.
template <int K> __device__ __forceinline__ float norm_odd(u32 word) {
    return __fadd_rn(__uint_as_float(permute<0x7604 | K << 4>(word, 0x47800000u)), -65791.0f);
}

__device__ __forceinline__ float norm_odd_at(u32 word, int byte) {
    return byte == 0   ? norm_odd<0>(word)
           : byte == 1 ? norm_odd<1>(word)
           : byte == 2 ? norm_odd<2>(word)
                       : norm_odd<3>(word);
}

// Narrow codes of a tile as words, one byte a value (word_of, byte_of). False: it is of another form, or not valid.
template <int REACH>
__device__ __forceinline__ bool norm_decode(const quantiser &q, const TileSource &source, u32 lane, u32 (&words)[8]) {
    const u32 size = source.entry & ENTRY_SIZE_MASK;
    u32 u[8];
    if (!source.is_stageable)
        return false;
    if (size) {
        u32 at = stage_tile(source.from, size, source.unit, lane, source.stage);
        TileHead head =
            tile_head(__reduce_max_sync(ALL_LANES, source.stage[at])); // so that branches on it are the warp's
        if (head.class_index != 0 || q.classes[0].step == 0.0f ||
            !decode_narrow<REACH>(source.stage, at, size, head, lane, source.columns, u))
            return false;
        __syncwarp(); // the stage has been read
    } else {
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = SIGN_BITS;
    }
    exchange_back<REACH>(u, lane, (u32 *)source.stage, words);
    return true;
}

// ---- any tile, value by value ----

// u of every value; false if the tile is not valid.
template <int REACH, int DTYPE, int FROM>
__device__ __forceinline__ bool norm_values(const NormBackwardArgs &args, const quantiser &q, const TileSource &source,
                                            u32 tile, const TileStart &s, u32 lane, float (&u)[8][4]) {
    const DecompressArgs &codec = args.codec;
    u32 p[8][4], real;
    if (FROM == NORM_FROM_STREAM) {
        Restorer<COMET_F32> restorer = {codec, {}};
        u32 codes[8];
        TileForm form = decode_tile<REACH, COMET_F32, RESTORE_ANY>(restorer, q, source, tile, s, lane, codes, p);
        if (form == FORM_NARROW)
            narrow_patterns<REACH, COMET_F32>(restorer, tile, s, lane, codes, (u32 *)source.stage, p);
        __syncwarp();
        if (form == FORM_BAD)
            return false;
#pragma unroll
        for (int i = 0; i < 32; i++)
            u[i / 4][i % 4] = __uint_as_float(p[i / 4][i % 4]);
        return true;
    }
    load_patterns<REACH, DTYPE>(args.x, codec.geometry, tile, s, lane, p, real);
    const TileChannels<REACH> channels(codec.channel_map, codec.geometry, s, lane);
    for_pieces<REACH>(codec.geometry, tile, s, lane, [&](int a, int e, u64 index, u64) {
#pragma unroll
        for (int i = 0; i < reach_width(REACH); i++) {
            bool is_real = real >> (4 * a + e + i) & 1;
            u32 channel = is_real ? channels.of(e + i, index + i) : 0;
            u[a][e + i] = is_real ? __fmaf_rn(__ldg(args.tables.scale + channel), float_of_pattern<DTYPE>(p[a][e + i]),
                                              __ldg(args.tables.shift + channel))
                                  : 0.0f;
        }
    });
    return true;
}

// Calls visit(a, e, channel, w, dz) for every value that is not padding.
template <int REACH, int DTYPE, class Visit>
__device__ __forceinline__ void norm_gradients(const NormBackwardArgs &args, u32 tile, const TileStart &s, u32 lane,
                                               const float (&u)[8][4], Visit visit) {
    const DecompressArgs &codec = args.codec;
    u32 p[8][4], real;
    load_patterns<REACH, DTYPE>(args.dy, codec.geometry, tile, s, lane, p, real);
    const TileChannels<REACH> channels(codec.channel_map, codec.geometry, s, lane);
    for_pieces<REACH>(codec.geometry, tile, s, lane, [&](int a, int e, u64 index, u64) {
#pragma unroll
        for (int i = 0; i < reach_width(REACH); i++) {
            if (!(real >> (4 * a + e + i) & 1))
                continue;
            u32 channel = channels.of(e + i, index + i);
            float gamma = __ldg(args.tables.gamma + channel), value = u[a][e + i];
            bool is_off = norm_is_off(value, __ldg(args.tables.threshold + channel), gamma);
            visit(a, e + i, channel, gamma < 0.0f ? -value : value,
                  is_off ? 0.0f : float_of_pattern<DTYPE>(p[a][e + i]));
        }
    });
}

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

// ---- kernels ----

template <int N> __device__ __forceinline__ void norm_copy(float2 (&to)[N], const float2 (&from)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = from[i];
}

// The tiles of a warp that `left` has a bit for. A function of its own, so that it costs the others no registers.
template <int REACH, int DTYPE, int FROM, int PASS>
__device__ __noinline__ void norm_rest(const NormBackwardArgs &args, DecompressShared &shared, u64 left,
                                       float2 (&sums)[NORM_SETS<REACH>]) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    StreamView view = {};
    float bound;
    u32 dtype;
    if (FROM == NORM_FROM_STREAM)
        view = view_stream(args.codec, stream_start(args.codec), lane, bound, dtype);
    for (u32 tile = blockIdx.x * GROUP_TILES + warp; left; tile += gridDim.x * GROUP_TILES, left >>= 1) {
        if (!(left & 1))
            continue;
        TileBytes bytes = {NULL, 0};
        if (FROM == NORM_FROM_STREAM)
            bytes = find_tile(view.payload, view.payload_bytes, read_row(view.table, tile, lane), tile, lane);
        const TileSource source = {bytes.from, bytes.entry, false, {}, shared.stage[warp], shared.columns[warp]};
        bool good = FROM == NORM_FROM_X || bytes.from;
        if constexpr (PASS == NORM_DX)
            good = good && norm_dx_rare<REACH, DTYPE, FROM>(args, shared.q, source, tile, lane);
        else
            good = good && norm_sums_rare<REACH, DTYPE, FROM>(args, shared.q, source, tile, lane, sums);
        if (!good && lane == 0)
            *args.codec.status = COMET_ERROR_CORRUPT;
        __syncwarp(); // the stage is used again
    }
}

template <int REACH, int DTYPE, int FROM, int PASS>
__global__ void __launch_bounds__(BLOCK_THREADS, norm_backward_blocks(FROM))
    norm_backward_kernel(const __grid_constant__ NormBackwardArgs args) {
    __shared__ NormBackwardShared shared;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, first = blockIdx.x * GROUP_TILES + warp;
    StreamView view = {};
    if (FROM == NORM_FROM_STREAM && !open_stream(args.codec, shared.codec, view))
        return;
    norm_keep_numbers<REACH, FROM, PASS>(args, shared, first, lane);
    NormWalk<REACH, DTYPE, FROM, PASS> walk(args, shared);
    u64 left = 0;
    if (FROM == NORM_FROM_STREAM) {
        left = for_tiles(args.codec, shared.codec, view,
                         [&](u32 tile, const TileSource &source) { return walk.common(tile, source); });
    } else {
        const TileSource none = {};
        u64 bit = 1;
        for (u32 tile = first; tile < args.codec.geometry.tiles; tile += gridDim.x * GROUP_TILES, bit <<= 1)
            left |= walk.common(tile, none) ? 0 : bit;
    }
    if (left) {
        float2 sums[NORM_SETS<REACH>]; // a copy: its address is taken
        norm_copy(sums, walk.sums);
        norm_rest<REACH, DTYPE, FROM, PASS>(args, shared.codec, left, sums);
        norm_copy(walk.sums, sums);
    }
    if constexpr (PASS == NORM_SUMS && reach_is_last(REACH)) {
        norm_lane_sums<REACH>(walk.sums, lane, shared.sums + 32 * warp);
        __syncthreads();
        norm_put_block(args, shared.sums);
    }
}

#endif
