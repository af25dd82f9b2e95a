// SPDX-License-Identifier: Apache-2.0
// Any tile of any stream: padding, 16-bit codes, values stored as they are, and modes without a fast path. Values lie
// in shared memory in the order of the format; short code rather than fast code, as every kernel carries it along.
#ifndef COMET_CODEC_CUDA_EB_RARE_CUH
#define COMET_CODEC_CUDA_EB_RARE_CUH

#include "codec/cuda/eb/eb_codes.cuh"
#include "codec/cuda/tile/encode.cuh"
#include "codec/cuda/tile/rare.cuh"

// Looks on while a tensor is compressed on a grid, and sees its values scaled and shifted. at() is asked before a tile
// (PADDED: it may have padding, which is not shown) for something that gets each of a thread's values, and each piece
// behind them; numbers() gives what that needs of a channel (TABLES = 2: anything) whose slope is known; value() gets
// the values of rare tiles. Some tiles come twice. LOADS: how the tensor is read.
//
// Where values come in the order of memory quads() gives something that keeps a Quad of each four of them: load() is
// told where they lie, of() says what becomes of a value, and put() writes that of those that are `mine`.
template <int HOW> struct Unobserved {
    static constexpr int LOADS = HOW, TABLES = 1;
    struct Look {
        __device__ __forceinline__ void value(int, int, float, const float4 &) const {}
        __device__ __forceinline__ void piece(int, int, u64) const {}
    };
    template <int REACH, int DTYPE, bool PADDED>
    __device__ __forceinline__ Look at(const Geometry &, u32, const TileStart &, u32) const {
        return Look();
    }
    __device__ __forceinline__ void value(u64, u32, float) const {}
    __device__ __forceinline__ float2 numbers(u32, float) const {
        return {};
    }
    struct Quads {
        struct Quad {};
        __device__ __forceinline__ void load(Quad &, u64) const {}
        __device__ __forceinline__ float of(const Quad &, int, float, const float4 &) const {
            return 0.0f;
        }
        __device__ __forceinline__ void put(const float (&)[4], u64, u32) const {}
    };
    __device__ __forceinline__ Quads quads() const {
        return {};
    }
};
typedef Unobserved<LOAD_ONCE> NoObserver;

// ---- values in shared memory ----

// Puts the patterns that would be stored exactly into `values`, 0 for padding: those of the tensor, or of fp32 where a
// grid scales and shifts them. Bit j of the answer: the lane's j-th value is not padding. observe.value(index, channel,
// y) gets every value of a grid.
template <int REACH, int DTYPE, class Observer>
__device__ __forceinline__ u32 rare_load(const CompressArgs &args, u32 tile, const TileStart &s, u32 lane, u32 *values,
                                         const Observer &observe) {
    const Geometry &g = args.geometry;
    const GridTables &t = args.grid;
    const TileChannels<REACH> channels(args.channel_map, g, s, lane);
    u32 real = 0;
    (void)tile;
#pragma unroll 8 // loads are on their way together
    for (u32 j = 0; j < 32; j++) {
        const u32 i = rare_index<REACH>(j, lane);
        const RarePlace place = rare_place_of<REACH>(g, s, i);
        u32 p = 0;
        if (place.is_real) {
            p = read1<DTYPE, Observer::LOADS>((const typename Pattern<DTYPE>::Word *)args.x + place.index);
            real |= 1u << j;
            if (args.flags & STREAM_GRID) {
                const u32 channel = rare_channel<REACH>(channels, place);
                float x = exact_float_of_pattern<DTYPE>(p);
                if (t.scale || t.shift)
                    x = scaled(x, t.scale ? __ldg(t.scale + channel) : 1.0f, t.shift ? __ldg(t.shift + channel) : 0.0f);
                p = __float_as_uint(x);
                observe.value(place.index, channel, x);
            }
        }
        values[rare_place(i)] = p;
    }
    __syncwarp();
    return real;
}

template <int DTYPE> __device__ __forceinline__ float rare_float(const CompressArgs &args, u32 pattern) {
    return args.flags & STREAM_GRID ? __uint_as_float(pattern) : float_of_pattern<DTYPE>(pattern);
}

// ---- statistics ----

// How many of the finite values lie on the side where a ReLU is on.
template <int REACH>
__device__ __forceinline__ bool rare_is_on(const CompressArgs &args, const TileChannels<REACH> &channels,
                                           const RarePlace &place, float y) {
    const u32 channel = rare_channel<REACH>(channels, place);
    const float threshold = __ldg(args.grid.threshold + channel);
    const float slope = args.grid.slope ? __ldg(args.grid.slope + channel) : 1.0f;
    if (threshold != threshold)
        return y > 0.0f;
    return slope < 0.0f ? y < threshold : y > threshold;
}

template <int REACH, int DTYPE>
__device__ __forceinline__ void rare_sums(const CompressArgs &args, const u32 *values, u32 lane, Survey &s) {
    auto take = [&](int a, int e) {
        return rare_float<DTYPE>(args, values[rare_place(tile_index<REACH>(lane, a, e))]);
    };
    if (sums_fit_f32(s.magnitude)) {
        s.sum = (double)tile_sums<REACH, float>(lane, take).rest();
        return;
    }
    s.sum = tile_sums<REACH, double>(lane, [&](int a, int e) {
                float x = take(a, e);
                bool finite = (__float_as_uint(x) & 0x7fffffffu) <= LARGEST_FINITE;
                return finite ? (double)x : 0.0;
            }).rest();
}

// All that statistics need but for the sums; without them the greatest magnitude alone.
template <int REACH, int DTYPE>
__device__ __forceinline__ void rare_survey(const CompressArgs &args, const u32 *values, const TileStart &start,
                                            u32 lane, u32 real, Survey &s) {
    const TileChannels<REACH> channels(args.channel_map, args.geometry, start, lane);
    int least = 0x7fffffff, most = -0x7fffffff;
    u32 magnitude = 0, nonzero = 0, positive = 0, nonfinite = 0;
#pragma unroll 2
    for (u32 j = 0; j < 32; j++) {
        if (!(real >> j & 1))
            continue;
        const u32 i = rare_index<REACH>(j, lane);
        const float x = rare_float<DTYPE>(args, values[rare_place(i)]);
        const u32 bits = __float_as_uint(x) & 0x7fffffffu;
        magnitude = max(magnitude, bits);
        if (!args.with_stats)
            continue;
        if (bits > LARGEST_FINITE) {
            nonfinite++;
            continue;
        }
        nonzero += bits != 0;
        positive += args.flags & STREAM_GRID
                        ? rare_is_on<REACH>(args, channels, rare_place_of<REACH>(args.geometry, start, i), x)
                        : x > 0.0f;
        least = min(least, ordered(x));
        most = max(most, ordered(x));
    }
    s.magnitude = __reduce_max_sync(ALL_LANES, magnitude);
    if (!args.with_stats)
        return;
    s.least = __reduce_min_sync(ALL_LANES, least);
    s.most = __reduce_max_sync(ALL_LANES, most);
    s.nonzero = __reduce_add_sync(ALL_LANES, nonzero);
    s.positive = __reduce_add_sync(ALL_LANES, positive);
    s.nonfinite = __reduce_add_sync(ALL_LANES, nonfinite);
    rare_sums<REACH, DTYPE>(args, values, lane, s);
}

// ---- codes ----

// The code of a value.
__device__ __forceinline__ int rare_code(const CompressArgs &args, const quantiser_class &c, u32 channel, float x,
                                         float noise) {
    if (c.mode == QUANTISE_GRID) {
        const float slope = args.grid.slope ? __ldg(args.grid.slope + channel) : 1.0f;
        return code_grid(x, c.inverse, quantiser_grid(&c, __ldg(args.grid.threshold + channel), slope));
    }
    return c.mode == QUANTISE_NEAREST      ? code_nearest(x, c.inverse)
           : c.mode == QUANTISE_STOCHASTIC ? code_stochastic(x, c.inverse, noise)
           : c.mode == QUANTISE_KEEP_RISE  ? code_keep_rise(x, c.inverse)
                                           : code_keep_tread(x, c.inverse);
}

// Codes in the place of values, each lane its own; RARE_REAL beside them: not padding.
enum { RARE_REAL = 1 << 16 };

template <int REACH, int DTYPE>
__device__ __forceinline__ void rare_quantise(const CompressArgs &args, const quantiser_class &c, u32 *values, u32 tile,
                                              const TileStart &s, u32 lane) {
    const TileChannels<REACH> channels(args.channel_map, args.geometry, s, lane);
    const bool is_plain = tile < args.geometry.inner && c.mode != QUANTISE_GRID; // no place matters
    uint4 random = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (u32 j = 0; j < 32; j++) {
        const u32 i = 256 * (j >> 3) + 8 * lane + (j & 7);
        const RarePlace place = is_plain ? RarePlace{0, 0, true} : rare_place_of<REACH>(args.geometry, s, i);
        u32 *value = values + rare_place(i);
        if (c.mode == QUANTISE_STOCHASTIC && (j & 7) == 0)
            random = philox(make_uint4(tile, 0, 4 * lane + (j >> 3), 0), args.seed);
        const float x = rare_float<DTYPE>(args, *value), noise = noise_of(random.x & 0xffff, c.wide);
        const u32 channel = c.mode == QUANTISE_GRID && place.is_real ? rare_channel<REACH>(channels, place) : 0;
        const u32 code = (u32)rare_code(args, c, channel, x, noise) & 0xffff;
        *value = place.is_real ? code | RARE_REAL : 0;
        random.x >>= 16; // the next 16 bits
        if (j & 1)
            random = make_uint4(random.y, random.z, random.w, 0);
    }
}

// This lane's codes: byte k of low[m] and high[m] are those of row k, column m, and 0xff in real[m] if it is a value.
__device__ __forceinline__ void rare_codes(const u32 *values, u32 lane, u32 (&low)[8], u32 (&high)[8], u32 (&real)[8]) {
#pragma unroll
    for (int m = 0; m < 8; m++) {
        u32 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = values[rare_place(256 * k + 8 * lane + m)];
        const u32 a = permute<0x5140>(v[0], v[1]), b = permute<0x5140>(v[2], v[3]); // bytes 0, 0, 1, 1
        low[m] = permute<0x5410>(a, b);
        high[m] = permute<0x7632>(a, b);
        real[m] = 255 * (v[0] >> 16 | v[1] >> 16 << 8 | v[2] >> 16 << 16 | v[3] >> 16 << 24);
    }
}

// ---- exact tiles ----

// The entry of a tile that is stored as it is.
template <int REACH>
__device__ __forceinline__ u32 rare_exact_entry(const CompressArgs &args, const u32 *values, u32 lane, u32 real) {
    u32 marked = 0;
#pragma unroll 4
    for (u32 j = 0; j < 32; j++)
        marked += values[32 * j + lane] != 0; // in any order
    const u32 both = __reduce_add_sync(ALL_LANES, marked | (u32)__popc(real) << 16);
    return exact_entry(both & 0xffff, both >> 16, args.dtype == COMET_F32 ? 4 : 2, !(args.flags & STREAM_GRID));
}

// Writes such a tile at `to`.
template <int REACH>
__device__ __forceinline__ void rare_write_exact(const CompressArgs &args, const u32 *values, const TileStart &s,
                                                 bool inner, u32 lane, u32 kind, u8 *to) {
    const u32 value_bytes = args.dtype == COMET_F32 ? 4 : 2, before = (1u << lane) - 1;
    u8 *next = to + (kind == KIND_SPARSE ? BITMAP_BYTES : 0);
#pragma unroll 1
    for (u32 j = 0; j < 32; j++) {
        const u32 v = values[rare_place(32 * j + lane)], marked = __ballot_sync(ALL_LANES, v != 0);
        const u32 kept =
            kind == KIND_SPARSE ? marked : real_ballot<REACH>(args.geometry, s, inner, lane, j >> 3, j & 7);
        if (kind == KIND_SPARSE && lane < 4)
            to[4 * j + lane] = (u8)(marked >> 8 * lane);
        if (kept >> lane & 1)
            put_bytes(next + value_bytes * __popc(kept & before), v, value_bytes);
        next += value_bytes * __popc(kept);
    }
}

#endif
