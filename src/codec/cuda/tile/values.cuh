// SPDX-License-Identifier: Apache-2.0
// A tile's values in and out of a tensor: 32 a thread, v[8][4], ordered as enum Reach says.
#ifndef COMET_CODEC_CUDA_TILE_VALUES_CUH
#define COMET_CODEC_CUDA_TILE_VALUES_CUH

#include "codec/cuda/tile/place.cuh"

// ---- patterns of a dtype ----

template <int DTYPE> struct Pattern { typedef u16 Word; };
template <> struct Pattern<COMET_F32> { typedef u32 Word; };

template <int DTYPE> __device__ __forceinline__ float float_of_pattern(u32 p) {
    return DTYPE == COMET_F32 ? __uint_as_float(p) : DTYPE == COMET_BF16 ? float_of_bf16(p) : float_of_f16(p);
}

// The same with every bit of a NaN kept.
template <int DTYPE> __device__ __forceinline__ float exact_float_of_pattern(u32 p) {
    if (DTYPE == COMET_F16 && (p & 0x7fffu) > 0x7c00u)
        return __uint_as_float((p & 0x8000u) << 16 | 0x7f800000u | (p & 0x3ffu) << 13);
    return float_of_pattern<DTYPE>(p);
}

// Rounded to nearest even; decoded_pattern clamps fp16 first.
template <int DTYPE> __device__ __forceinline__ u32 pattern_of_float(float v) {
    return DTYPE == COMET_F32 ? __float_as_uint(v) : DTYPE == COMET_BF16 ? bf16_of_float(v) : f16_of_float(v);
}

__device__ __forceinline__ void unpack(uint4 q, u32 *p) {
    p[0] = q.x, p[1] = q.y, p[2] = q.z, p[3] = q.w;
}
__device__ __forceinline__ void unpack(uint2 q, u32 *p, int) { // four patterns of 16 bits
    p[0] = q.x & 0xffff, p[1] = q.x >> 16, p[2] = q.y & 0xffff, p[3] = q.y >> 16;
}

template <int DTYPE> __device__ __forceinline__ void read4(const void *from, u32 *p) {
    if (DTYPE == COMET_F32)
        unpack(__ldcs((const uint4 *)from), p);
    else
        unpack(__ldcs((const uint2 *)from), p, 0);
}

// How memory is read: what is read again soon, or once, and need not stay in a cache; or what the same kernel has
// written, for which the way over the read-only cache is not defined.
enum Loads { LOAD_AGAIN, LOAD_ONCE, LOAD_WRITTEN };

template <int LOADS, class T> __device__ __forceinline__ T load_wide(const T *from) {
    if constexpr (LOADS == LOAD_WRITTEN)
        return *from;
    else
        return LOADS == LOAD_ONCE ? __ldcs(from) : __ldg(from);
}

// The same of less than a piece: its neighbours are read, too.
template <int LOADS, class T> __device__ __forceinline__ T load_narrow(const T *from) {
    constexpr int HOW = LOADS == LOAD_ONCE ? (int)LOAD_AGAIN : LOADS;
    return load_wide<HOW>(from);
}

template <int DTYPE, int LOADS = LOAD_AGAIN> __device__ __forceinline__ void read2(const void *from, u32 *p) {
    if (DTYPE == COMET_F32) {
        uint2 q = load_narrow<LOADS>((const uint2 *)from);
        p[0] = q.x, p[1] = q.y;
    } else {
        u32 q = load_narrow<LOADS>((const u32 *)from);
        p[0] = q & 0xffff, p[1] = q >> 16;
    }
}

template <int DTYPE, int LOADS = LOAD_AGAIN> __device__ __forceinline__ u32 read1(const void *from) {
    return load_narrow<LOADS>((const typename Pattern<DTYPE>::Word *)from);
}

// ---- loading ----

// The patterns of this thread's values of a tile without padding.
template <int REACH, int DTYPE>
__device__ __forceinline__ void load_inner(const void *tensor, const Geometry &g, u32 tile, const TileStart &s,
                                           u32 lane, u32 (&p)[8][4]) {
    constexpr int WIDTH = reach_width(REACH);
    const typename Pattern<DTYPE>::Word *x = (const typename Pattern<DTYPE>::Word *)tensor;
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64) {
        if (WIDTH == 4)
            read4<DTYPE>(x + index, p[a]);
        else if (WIDTH == 2)
            read2<DTYPE>(x + index, p[a] + e);
        else
            p[a][e] = read1<DTYPE>(x + index);
    });
}

// The same as they lie in memory: two values of 16 bits a word.
template <int DTYPE> constexpr int PIECE_WORDS = DTYPE == COMET_F32 ? 4 : 2;

template <int REACH, int DTYPE, int LOADS>
__device__ __forceinline__ void load_piece(const void *tensor, u64 index, int e, u32 (&w)[PIECE_WORDS<DTYPE>]) {
    typedef typename Pattern<DTYPE>::Word Word;
    constexpr int WIDTH = reach_width(REACH);
    constexpr bool IS_HALF = DTYPE != COMET_F32;
    const Word *x = (const Word *)tensor + index;
    if constexpr (WIDTH == 4 && IS_HALF) {
        uint2 q = load_wide<LOADS>((const uint2 *)x);
        w[0] = q.x, w[1] = q.y;
    } else if constexpr (WIDTH == 2 && IS_HALF) {
        w[e / 2] = load_narrow<LOADS>((const u32 *)x);
    } else if constexpr (IS_HALF) {
        u32 q = load_narrow<LOADS>(x);
        w[e / 2] = e % 2 ? w[e / 2] | q << 16 : q;
    } else if constexpr (WIDTH == 4) {
        unpack(load_wide<LOADS>((const uint4 *)x), w);
    } else if constexpr (WIDTH == 2) {
        read2<DTYPE, LOADS>(x, w + e);
    } else {
        w[e] = read1<DTYPE, LOADS>(x);
    }
}

template <int REACH, int DTYPE, int LOADS = LOAD_ONCE, class Start>
__device__ __forceinline__ void load_packed(const void *tensor, const Geometry &g, u32 tile, const Start &s, u32 lane,
                                            u32 (&w)[8][PIECE_WORDS<DTYPE>]) {
    for_pieces<REACH>(g, tile, s, lane,
                      [&](int a, int e, u64 index, u64) { load_piece<REACH, DTYPE, LOADS>(tensor, index, e, w[a]); });
}

// The same by pointers: where channels come last (REACH_LAST4) one multiplication leads from a row to another.
template <int REACH, int DTYPE, int LOADS = LOAD_ONCE>
__device__ __forceinline__ void load_tile(const void *tensor, const Geometry &g, u32 tile, const TileStart &s, u32 lane,
                                          u32 (&w)[8][PIECE_WORDS<DTYPE>]) {
    typedef typename Pattern<DTYPE>::Word Word;
    if constexpr (REACH == REACH_LAST4) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const Word *row = (const Word *)tensor + last_index(g, s, lane, i);
            u32 stride = (u32)g.stride;
            forget_uses(stride); // or both bands share the products, and each sum takes two instructions
#pragma unroll
            for (int k = 0; k < 4; k++)
                load_piece<REACH, DTYPE, LOADS>(row, (u64)stride * k, 0, w[4 * i + k]);
        }
    } else {
        load_packed<REACH, DTYPE, LOADS>(tensor, g, tile, s, lane, w);
    }
}

// The same of a tile with padding, which is 0.
template <int REACH, int DTYPE, int LOADS = LOAD_ONCE>
__device__ __forceinline__ void load_padded(const void *tensor, const Geometry &g, u32 tile, const TileStart &s,
                                            u32 lane, u32 (&w)[8][PIECE_WORDS<DTYPE>]) {
    typedef typename Pattern<DTYPE>::Word Word;
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64 position) {
        if (REACH == REACH_LAST4) { // channels of one position
#pragma unroll
            for (int i = 0; i < PIECE_WORDS<DTYPE>; i++)
                w[a][i] = 0;
            if (position < g.positions)
                load_piece<REACH, DTYPE, LOADS>(tensor, index, e, w[a]);
            return;
        }
        constexpr int STEP = reach_is_last(REACH) ? 0 : 1; // side by side are channels of one position, or positions
#pragma unroll
        for (int i = 0; i < reach_width(REACH); i++) {
            const u32 p =
                position + STEP * i < g.positions ? (u32)load_narrow<LOADS>((const Word *)tensor + index + i) : 0;
            u32 &word = w[a][DTYPE == COMET_F32 ? e + i : (e + i) / 2];
            word = DTYPE != COMET_F32 && (e + i) % 2 ? word | p << 16 : p;
        }
    });
}

// Asks for a tile's lines of memory, in which eight threads each have their pieces, while there is other work to do.
template <int REACH, int DTYPE, class Start>
__device__ __forceinline__ void ask_for_tile(const void *tensor, const Geometry &g, u32 tile, const Start &s,
                                             u32 lane) {
    if ((lane & 7) == 0)
        for_pieces<REACH>(g, tile, s, lane, [&](int, int e, u64 index, u64) {
            if (e == 0)
                ask_for_line((const typename Pattern<DTYPE>::Word *)tensor + index);
        });
}

// A tile of 16-bit values on its way to shared memory, where channels come last: pairs of words.
enum { AHEAD_PAIRS = 256 };

template <int DTYPE, class Start>
__device__ __forceinline__ void load_ahead(const void *tensor, const Geometry &g, u32 tile, const Start &s, u32 lane,
                                           uint2 *ahead) {
    for_pieces<REACH_LAST4>(g, tile, s, lane, [&](int a, int, u64 index, u64) {
        copy_ahead(ahead + 32 * a + lane, (const typename Pattern<DTYPE>::Word *)tensor + index);
    });
}

// What load_packed would have found, after await_copies.
template <int DTYPE>
__device__ __forceinline__ void take_ahead(const uint2 *ahead, u32 lane, u32 (&w)[8][PIECE_WORDS<DTYPE>]) {
#pragma unroll
    for (int a = 0; a < 8; a++) {
        const uint2 q = ahead[32 * a + lane];
        w[a][0] = q.x, w[a][1] = q.y;
    }
}

// Value e of a piece of four.
template <int DTYPE> __device__ __forceinline__ float piece_value(const u32 (&w)[PIECE_WORDS<DTYPE>], int e) {
    if constexpr (DTYPE == COMET_F32)
        return __uint_as_float(w[e]);
    else if constexpr (DTYPE == COMET_BF16)
        return __uint_as_float(e % 2 ? w[e / 2] & 0xffff0000u : w[e / 2] << 16);
    else
        return e % 2 ? float_of_upper_f16(w[e / 2]) : float_of_f16(w[e / 2]);
}

template <int DTYPE>
__device__ __forceinline__ float packed_value(const u32 (&w)[8][PIECE_WORDS<DTYPE>], int a, int e) {
    return piece_value<DTYPE>(w[a], e);
}

// Of any tile; 0 for padding, which `real` (bit 4 a + e) leaves out.
template <int REACH, int DTYPE>
__device__ __forceinline__ void load_patterns(const void *tensor, const Geometry &g, u32 tile, const TileStart &s,
                                              u32 lane, u32 (&p)[8][4], u32 &real) {
    const typename Pattern<DTYPE>::Word *x = (const typename Pattern<DTYPE>::Word *)tensor;
    constexpr int WIDTH = reach_width(REACH);
    real = ~0u;
    if (tile < g.inner) {
        load_inner<REACH, DTYPE>(tensor, g, tile, s, lane, p);
        return;
    }
    real = 0;
    // side by side are channels of one position, or positions
    constexpr int STEP = reach_is_last(REACH) ? 0 : 1;
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64 position) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            bool is_real = position + STEP * i < g.positions;
            p[a][e + i] = is_real ? read1<DTYPE>(x + index + i) : 0;
            real |= (u32)is_real << (4 * a + e + i);
        }
    });
}

// ---- storing ----

template <int DTYPE> __device__ __forceinline__ void write4(void *to, const u32 *p) {
    if (DTYPE == COMET_F32)
        __stcs((uint4 *)to, make_uint4(p[0], p[1], p[2], p[3]));
    else
        __stcs((uint2 *)to, make_uint2(p[0] | p[1] << 16, p[2] | p[3] << 16));
}

template <int DTYPE> __device__ __forceinline__ void write2(void *to, const u32 *p) {
    if (DTYPE == COMET_F32)
        *(uint2 *)to = make_uint2(p[0], p[1]);
    else
        *(u32 *)to = p[0] | p[1] << 16;
}

// Takes the values of a piece, rounded, in order of e. Two of 16 bits are packed by one instruction once the second is
// there.
template <int REACH, int DTYPE>
__device__ __forceinline__ void put_value(u32 (&w)[PIECE_WORDS<DTYPE>], int e, float v) {
    u32 &word = w[DTYPE == COMET_F32 ? e : e / 2];
    if (DTYPE == COMET_F32)
        word = __float_as_uint(v);
    else if (reach_width(REACH) == 1)
        word = e % 2 ? permute<0x5410>(word, pattern_of_float<DTYPE>(v)) : pattern_of_float<DTYPE>(v);
    else
        word = e % 2 ? pair_of_floats<DTYPE == COMET_BF16>(__uint_as_float(word), v) : __float_as_uint(v);
}

template <int REACH, int DTYPE>
__device__ __forceinline__ void put_packed(u32 (&w)[8][PIECE_WORDS<DTYPE>], int a, int e, float v) {
    put_value<REACH, DTYPE>(w[a], e, v);
}

// The same of values that are not to be below a floor, 0 or -Inf.
template <int REACH, int DTYPE>
__device__ __forceinline__ void put_value_clamped(u32 (&w)[PIECE_WORDS<DTYPE>], int e, float v, float floor) {
    constexpr bool BY_PAIRS = DTYPE != COMET_F32 && reach_width(REACH) > 1;
    put_value<REACH, DTYPE>(w, e, BY_PAIRS ? v : not_below(v, floor));
    if (BY_PAIRS && e % 2) {
        const u32 least = floor == 0.0f ? 0 : DTYPE == COMET_BF16 ? 0xff80ff80u : 0xfc00fc00u;
        w[e / 2] = max_pair<DTYPE == COMET_BF16>(w[e / 2], least);
    }
}

template <int REACH, int DTYPE>
__device__ __forceinline__ void put_clamped(u32 (&w)[8][PIECE_WORDS<DTYPE>], int a, int e, float v, float floor) {
    put_value_clamped<REACH, DTYPE>(w[a], e, v, floor);
}

// Writes a piece, whose first value is number e of four at an index of the tensor, packed as load_packed leaves it.
template <int REACH, int DTYPE>
__device__ __forceinline__ void store_piece(void *tensor, u64 index, int e, const u32 (&w)[PIECE_WORDS<DTYPE>]) {
    typedef typename Pattern<DTYPE>::Word Word;
    constexpr int WIDTH = reach_width(REACH);
    constexpr bool IS_HALF = DTYPE != COMET_F32;
    Word *y = (Word *)tensor + index;
    if constexpr (WIDTH == 4 && IS_HALF)
        __stcs((uint2 *)y, make_uint2(w[0], w[1]));
    else if constexpr (WIDTH == 2 && IS_HALF)
        *(u32 *)y = w[e / 2];
    else if constexpr (IS_HALF)
        *y = (Word)(w[e / 2] >> 16 * (e % 2));
    else if constexpr (WIDTH == 4)
        write4<DTYPE>(y, w);
    else if constexpr (WIDTH == 2)
        write2<DTYPE>(y, w + e);
    else
        *y = (Word)w[e];
}

// The values of a tile without padding.
template <int REACH, int DTYPE, class Start>
__device__ __forceinline__ void store_packed(void *tensor, const Geometry &g, u32 tile, const Start &s, u32 lane,
                                             const u32 (&w)[8][PIECE_WORDS<DTYPE>]) {
    for_pieces<REACH>(g, tile, s, lane,
                      [&](int a, int e, u64 index, u64) { store_piece<REACH, DTYPE>(tensor, index, e, w[a]); });
}

// Of a piece of four those values that `mine` has a bit for.
template <int DTYPE>
__device__ __forceinline__ void store_some(void *tensor, u64 index, const u32 (&w)[PIECE_WORDS<DTYPE>], u32 mine) {
    typedef typename Pattern<DTYPE>::Word Word;
    Word *y = (Word *)tensor + index;
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (mine >> e & 1)
            y[e] =
                (Word)(DTYPE == COMET_F32 ? w[e % PIECE_WORDS<DTYPE>] : w[e / 2 % PIECE_WORDS<DTYPE>] >> 16 * (e % 2));
}

// Of a tile with padding, which is left out.
template <int REACH, int DTYPE>
__device__ __forceinline__ void store_padded(void *tensor, const Geometry &g, u32 tile, const TileStart &s, u32 lane,
                                             const u32 (&w)[8][PIECE_WORDS<DTYPE>]) {
    typedef typename Pattern<DTYPE>::Word Word;
    constexpr int WIDTH = reach_width(REACH);
    constexpr int STEP = reach_is_last(REACH) ? 0 : 1; // side by side are channels of one position, or positions
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64 position) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            const u32 word = w[a][DTYPE == COMET_F32 ? e + i : (e + i) / 2];
            if (position + STEP * i < g.positions)
                ((Word *)tensor)[index + i] = (Word)(DTYPE == COMET_F32 || (e + i) % 2 == 0 ? word : word >> 16);
        }
    });
}

// Writes this thread's values but for padding.
template <int REACH, int DTYPE>
__device__ __forceinline__ void store_patterns(void *tensor, const Geometry &g, u32 tile, const TileStart &s, u32 lane,
                                               const u32 (&p)[8][4]) {
    typedef typename Pattern<DTYPE>::Word Word;
    constexpr int WIDTH = reach_width(REACH);
    constexpr int STEP = reach_is_last(REACH) ? 0 : 1;
    Word *y = (Word *)tensor;
    bool inner = tile < g.inner;
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64 position) {
        if (inner && WIDTH == 4)
            write4<DTYPE>(y + index, p[a]);
        else if (inner && WIDTH == 2)
            write2<DTYPE>(y + index, p[a] + e);
        else
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                if (inner || position + STEP * i < g.positions)
                    y[index + i] = (Word)p[a][e + i];
    });
}

// ---- channels ----

// Which channel the value at an index of the tensor has: index / inner mod channels.
struct ChannelMap {
    Divide by_inner, by_channels;
    DivideLong long_by_inner, long_by_channels;
    u32 channels;  // 1: always channel 0
    u32 is_near;   // indices inside a tile's reach can be counted in 31 bits
    u32 has_bands; // maps are bands of four rows
};

constexpr u64 FAR_MAP = 1u << 30; // maps of so many values are not near

static inline ChannelMap channel_map_of(u64 inner, u64 channels, const tile_geometry *g) {
    ChannelMap m = {};
    channels = channels ? channels : 1; // an empty tensor
    m.channels = (u32)channels;
    m.by_inner = divide_by((u32)inner);
    m.by_channels = divide_by(m.channels);
    m.long_by_inner = divide_long_by((u32)inner);
    m.long_by_channels = divide_long_by(m.channels);
    // a tile of C = 1 reaches over at most 33 bands of four rows
    m.has_bands = inner % (4 * (u64)g->row) == 0;
    m.is_near = inner < FAR_MAP && (u64)g->row < (1u << 22) && channels < (1u << 30);
    return m;
}

// Channels of a tile's values.
template <int REACH> struct TileChannels {
    const ChannelMap &map;
    u64 origin;        // index that the tile's others are counted from
    u32 rest, channel; // its place in the run of its channel
    u32 first;         // last-extent channels: of this thread's first value

    __device__ __forceinline__ TileChannels(const ChannelMap &m, const Geometry &g, const TileStart &s, u32 lane)
        : map(m) {
        origin = s.position, rest = 0, channel = 0, first = 0;
        if (reach_is_last(REACH)) {
            first = lane_start<REACH>(g, s, REACH == REACH_LAST4 ? 4 * (lane & 7) : lane).channel;
        } else if (map.channels > 1) {
            u64 run = map.by_inner.divisor > 1 ? map.long_by_inner(origin, &rest) : origin;
            map.long_by_channels(run, &channel);
        }
    }

    // Of v[a][e], which lies at `index` of the tensor.
    __device__ __forceinline__ u32 of(int e, u64 index) const {
        if (reach_is_last(REACH))
            return REACH == REACH_LAST4 ? first + e : first;
        if (map.channels == 1)
            return 0;
        if (map.is_near) {
            u32 run = channel + map.by_inner(rest + (u32)(index - origin));
            return run - map.by_channels(run) * map.channels;
        }
        u32 left;
        u64 run = map.by_inner.divisor > 1 ? map.long_by_inner(index, &left) : index;
        map.long_by_channels(run, &left);
        return left;
    }
};

#endif
