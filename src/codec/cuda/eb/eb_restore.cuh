// SPDX-License-Identifier: Apache-2.0
// Decompressing: biased codes, this lane's columns, to values, through the epilogue, and these to the tensor.
#ifndef COMET_CODEC_CUDA_EB_RESTORE_CUH
#define COMET_CODEC_CUDA_EB_RESTORE_CUH

#include "codec/cuda/eb/eb_args.cuh"
#include "codec/cuda/tile/decode.cuh"
#include "codec/cuda/tile/sweep.cuh"

enum { SWEEP_ROW = 64 }; // rows up to this long are written in order of memory: see store_sweep

// ---- codes to numbers ----

// Byte `byte` of a word in the bits of a float, whose upper bits are given; SHIFT: where the byte is to be, 8 or 16.
template <int SHIFT> __device__ __forceinline__ float float_around(u32 word, int byte, u32 upper) {
    constexpr u32 OTHERS = SHIFT == 8 ? 0x7504 : 0x7044, STEP = 1u << SHIFT / 2;
    const u32 bits = byte == 0   ? permute<OTHERS>(word, upper)
                     : byte == 1 ? permute<OTHERS + STEP>(word, upper)
                     : byte == 2 ? permute<OTHERS + 2 * STEP>(word, upper)
                                 : permute<OTHERS + 3 * STEP>(word, upper);
    return __uint_as_float(bits);
}

// Upper bits that the compiler does not know: the instruction above has room for one constant, which shall be the byte
// that is picked, one of four.
static __constant__ u32 COARSE_BITS = 0x47000000u, FINE_BITS = 0x43000000u;

// 2^15 + 128 + code, of a biased one.
__device__ __forceinline__ float coarse_float(u32 word, int byte) {
    return float_around<8>(word, byte, COARSE_BITS);
}

// 128 + a byte that is below 128.
__device__ __forceinline__ float fine_float(u32 word, int byte) {
    return float_around<16>(word, byte, FINE_BITS);
}

// Code + 192, of a biased one, where codes are seldom: it costs others no register.
__device__ __forceinline__ float far_float(u32 word, int byte) {
    return __fadd_rn(float_around<8>(word, byte, 0x47000000u), QUANTISER_GRID_BIAS - 32896.0f);
}

// fp16 is clamped to its largest number, between the exact value and the code's: see docs/format.md.
template <int DTYPE> __device__ __forceinline__ float clamped(float v) {
    return DTYPE == COMET_F16 ? fminf(fmaxf(v, -65504.0f), 65504.0f) : v;
}

// How the codes of a tile become values.
enum Form {
    FORM_PLAIN,  // code * step
    FORM_SIGNED, // keep-mask, some are negative
    FORM_MASK,   // keep-mask, none is
    FORM_GRID,   // on a grid, codes of up to 64
    FORM_FAR     // on a grid, others
};

// What turns codes into values. Words have a bias of their own: prepare() goes first.
template <int MODE> struct Painter {
    float step, zero;
    Form form;

    __device__ __forceinline__ Painter(float s, u32 class_index, const u32 (&u)[8]) : step(s) {
        form = FORM_PLAIN;
        zero = __fmul_rn(-32896.0f, step); // of 9 bits and 15 at most: exact
        if (MODE == MODE_KEEP) {
            u32 all = u[0];
#pragma unroll
            for (int m = 1; m < 8; m++)
                all &= u[m];
            form = __all_sync(ALL_LANES, (all & SIGN_BITS) == SIGN_BITS) ? FORM_MASK : FORM_SIGNED;
            if (form == FORM_MASK)
                zero = __fmul_rn(-128.5f, step); // exact, too
        }
        if (MODE == MODE_GRID)
            form = class_index == 0 ? FORM_GRID : FORM_FAR;
    }

    __device__ __forceinline__ u32 prepare(u32 word) const {
        if (MODE == MODE_GRID)
            return form == FORM_GRID ? word - 0x40404040u : word;
        if (MODE == MODE_KEEP)
            return form == FORM_MASK ? word ^ SIGN_BITS : word;
        return word;
    }

    // base: of the channel's grid.
    template <int FORM> __device__ __forceinline__ float value(u32 word, int byte, float base) const {
        if (FORM == FORM_GRID)
            return __fmaf_rn(fine_float(word, byte), step, base);
        if (FORM == FORM_FAR)
            return __fmaf_rn(far_float(word, byte), step, base);
        if (FORM == FORM_MASK)
            return fmaxf(__fmaf_rn(fine_float(word, byte), step, zero), 0.0f);
        float v = __fmaf_rn(coarse_float(word, byte), step, zero);
        if (FORM == FORM_SIGNED) // half a step towards 0, where it is not 0
            v = v == 0.0f ? v : __fsub_rn(v, copysignf(__fmul_rn(0.5f, step), v));
        return v;
    }
};

// Calls run(std::integral_constant<int, FORM>) for the form at hand.
template <int MODE, class Run> __device__ __forceinline__ void with_form(Form form, Run run) {
    if (MODE == MODE_NEAREST)
        run(std::integral_constant<int, FORM_PLAIN>());
    else if (form == (MODE == MODE_KEEP ? FORM_MASK : FORM_GRID))
        run(std::integral_constant < int, MODE == MODE_KEEP ? FORM_MASK : FORM_GRID > ());
    else
        run(std::integral_constant < int, MODE == MODE_KEEP ? FORM_SIGNED : FORM_FAR > ());
}

// ---- the epilogue ----

// y = act(scale * x + shift + add); numbers of the channel: {base of the grid, scale, shift, 0}.
template <int DTYPE> struct Epilogue {
    typedef typename Pattern<DTYPE>::Word Word;
    const DecompressArgs &args;
    const Word *add;

    __device__ __forceinline__ explicit Epilogue(const DecompressArgs &a)
        : args(a), add(from_here_on((const Word *)a.add)) {}

    __device__ __forceinline__ float operator()(float x, const float4 &n, u64 index) const {
        if (args.scale || args.shift)
            x = __fmaf_rn(n.y, x, n.z);
        if (add)
            x = __fadd_rn(x, float_of_pattern<DTYPE>(add[index]));
        if (args.relu)
            x = not_below(x, 0.0f);
        return x;
    }
};

__device__ __forceinline__ float4 restore_numbers(const DecompressArgs &args, const quantiser_class &c, u32 channel) {
    float4 n = make_float4(0.0f, 1.0f, 0.0f, 0.0f);
    if ((args.flags & STREAM_GRID) && c.step != 0.0f)
        n.x = quantiser_grid(&c, __ldg(args.grid.threshold + channel),
                             args.grid.slope ? __ldg(args.grid.slope + channel) : 1.0f)
                  .base;
    if (args.scale)
        n.y = __ldg(args.scale + channel);
    if (args.shift)
        n.z = __ldg(args.shift + channel);
    return n;
}

// ---- from lanes to threads ----

// The inverse of exchange_codes: this lane's biased codes u[m] to words for the thread's own values.
template <int REACH> __device__ __forceinline__ void exchange_back(u32 (&u)[8], u32 lane, u32 *exchange, u32 (&w)[8]) {
    uint4 *units = (uint4 *)exchange;
    if (REACH == REACH_LAST1) {
#pragma unroll
        for (int m = 0; m < 8; m++)
            w[m] = u[m];
    } else if (REACH == REACH_LAST4) {
#pragma unroll
        for (int m = 0; m < 8; m++)
            exchange[32 * m + lane] = u[m];
        __syncwarp();
        unpack(units[lane], w);
        unpack(units[lane + 32], w + 4);
    } else if (REACH == REACH_FLAT) {
        transpose_bytes(u[0], u[1], u[2], u[3]);
        transpose_bytes(u[4], u[5], u[6], u[7]);
        const u32 pair = unit_place(2 * lane);
        units[pair] = make_uint4(u[0], u[4], u[1], u[5]);
        units[pair ^ 1] = make_uint4(u[2], u[6], u[3], u[7]);
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[j] = exchange[FlatQuads::place(32 * j + lane)];
    } else {
        const u32 pair = unit_place(2 * lane), unit = unit_place(lane);
        units[pair] = make_uint4(u[0], u[1], u[2], u[3]);
        units[pair ^ 1] = make_uint4(u[4], u[5], u[6], u[7]);
        __syncwarp();
        unpack(units[unit], w);
        unpack(units[unit + 32], w + 4);
    }
}

// Where the byte of v[a][e] is in the words of exchange_back.
template <int REACH> __device__ __forceinline__ constexpr int word_of(int a, int e) {
    return REACH == REACH_FLAT || REACH == REACH_LAST1 ? a : (a & 4) + e;
}
template <int REACH> __device__ __forceinline__ constexpr int byte_of(int a, int e) {
    return REACH == REACH_FLAT || REACH == REACH_LAST1 ? e : a & 3;
}

// ---- two values of 16 bits at a time ----

// Whether values can be had in arithmetic of the type itself: in bf16 if code + 64 or the code of a kept mask has seven
// bits, in fp16 if 1152 * step is a number.
template <int DTYPE> __device__ __forceinline__ bool is_paired(float step, u32 class_index, Form form) {
    if (form == FORM_SIGNED)
        return false;
    return DTYPE == COMET_BF16 ? form == FORM_MASK || class_index < 3 : step <= 32.0f;
}

// Rows k and k + 1 (K: 0 or 2) of a word of codes as values. Every product and sum is a number of the type: exact.
template <int DTYPE, int FORM, int K> __device__ __forceinline__ u32 pair_of(u32 word, u32 step, u32 zero, u32 half) {
    constexpr u32 UPPER = DTYPE == COMET_BF16 ? 0x43434343u : 0x64646464u; // 128 or 1024 and the byte
    const u32 number = permute < K ? 0x4342 : 0x4140 > (word, UPPER);
    if (FORM == FORM_PLAIN)
        return fma_pair<DTYPE == COMET_BF16>(number, step, zero);
    constexpr u32 ONE = DTYPE == COMET_BF16 ? 0x3f803f80u : 0x3c003c00u;
    return fma_relu_pair<DTYPE == COMET_BF16>(fma_pair<DTYPE == COMET_BF16>(number, ONE, zero), step,
                                              half); // zero: minus the bias of codes
}

// Constants of values in pairs.
template <int DTYPE, int FORM> struct PairNumbers {
    u32 bias, step, zero, half;

    // bf16: 128 + code + 64, or 128 + code; fp16: 1024 + 128 + code
    __device__ __forceinline__ explicit PairNumbers(float s) {
        const float above = DTYPE == COMET_F16 ? 1152.0f : FORM == FORM_PLAIN ? 192.0f : 128.0f;
        bias = DTYPE == COMET_BF16 ? (FORM == FORM_PLAIN ? 0x40404040u : SIGN_BITS) : 0;
        step = twice(pattern_of_float<DTYPE>(s)), half = twice(pattern_of_float<DTYPE>(-0.5f * s));
        zero = twice(pattern_of_float<DTYPE>(FORM == FORM_PLAIN ? -above * s : -above));
    }
    template <int K> __device__ __forceinline__ u32 pair(u32 word) const {
        return pair_of<DTYPE, FORM, K>(word - bias, step, zero, half);
    }
};

template <int REACH, int DTYPE, int FORM>
__device__ __forceinline__ void paint_pairs(float step, const u32 (&words)[8], u32 (&out)[8][2]) {
    const PairNumbers<DTYPE, FORM> numbers(step);
    u32 pairs[8][2]; // of a word's rows 0, 1 and 2, 3 (REACH_FLAT: columns)
#pragma unroll
    for (int i = 0; i < 8; i++) {
        pairs[i][0] = numbers.template pair<0>(words[i]);
        pairs[i][1] = numbers.template pair<2>(words[i]);
    }
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const u32 x = pairs[word_of<REACH>(a, 2 * h)][byte_of<REACH>(a, 2 * h) / 2];
            const u32 y = pairs[word_of<REACH>(a, 2 * h + 1)][byte_of<REACH>(a, 2 * h + 1) / 2];
            out[a][h] = REACH == REACH_FLAT ? pairs[a][h] : a & 1 ? permute<0x7632>(x, y) : permute<0x5410>(x, y);
        }
}

// ---- storing ----

// A thread's values, packed, to where they lie; padding is left out.
template <int REACH, int DTYPE, class Start>
__device__ __forceinline__ void store_pieces_of(void *y, const Geometry &g, u32 tile, const Start &s, u32 lane,
                                                const u32 (&p)[8][PIECE_WORDS<DTYPE>]) {
    if (tile < g.inner || !(REACH == REACH_LAST4 || REACH == REACH_FLAT))
        store_packed<REACH, DTYPE>(y, g, tile, s, lane, p);
    else
        store_padded<REACH, DTYPE>(y, g, tile, tile_start<REACH>(g, tile), lane, p);
}

// Values of a grid, through the epilogue; value(a, e, base).
template <int REACH, int DTYPE, class Start, class Value>
__device__ __forceinline__ void store_grid(const DecompressArgs &args, const TileMaps &maps, const float *table,
                                           u32 tile, const Start &s, u32 lane, Value value) {
    const Geometry &g = args.geometry;
    const float floor = args.relu ? 0.0f : -INFINITY;
    u32 p[8][PIECE_WORDS<DTYPE>];
    auto paint = [&](auto put) {
        for_numbers<REACH, 1>(
            g, args.channel_map, maps, table, tile, s, lane,
            [&](int a, int e, const float4 &n, const float4 &, u64 index) { put(a, e, value(a, e, n.x), n, index); },
            [](int, int, u64) {});
    };
    if (args.epilogue == EPILOGUE_NONE)
        paint([&](int a, int e, float v, const float4 &, u64) { put_packed<REACH, DTYPE>(p, a, e, v); });
    else if (args.epilogue == EPILOGUE_NORM)
        paint([&](int a, int e, float v, const float4 &n, u64) {
            put_clamped<REACH, DTYPE>(p, a, e, __fmaf_rn(n.y, v, n.z), floor);
        });
    else {
        const Epilogue<DTYPE> epilogue(args);
        paint([&](int a, int e, float v, const float4 &n, u64 index) {
            put_packed<REACH, DTYPE>(p, a, e, epilogue(v, n, index));
        });
    }
    store_pieces_of<REACH, DTYPE>(args.y, g, tile, s, lane, p);
}

// Codes as values where a thread's pieces lie.
template <int REACH, int DTYPE, int MODE, class Start>
__device__ __forceinline__ void store_pieces(const DecompressArgs &args, float step, u32 class_index,
                                             const TileMaps &maps, const float *table, u32 tile, const Start &s,
                                             u32 lane, u32 (&u)[8], u32 *exchange) {
    const Geometry &g = args.geometry;
    const Painter<MODE> painter(step, class_index, u);
    u32 w[8], p[8][PIECE_WORDS<DTYPE>];
    exchange_back<REACH>(u, lane, exchange, w);
    if constexpr (DTYPE != COMET_F32 && MODE != MODE_GRID && REACH != REACH_LAST1) {
        if (is_paired<DTYPE>(step, class_index, painter.form)) {
            paint_pairs<REACH, DTYPE, MODE == MODE_KEEP ? FORM_MASK : FORM_PLAIN>(step, w, p);
            store_pieces_of<REACH, DTYPE>(args.y, g, tile, s, lane, p);
            return;
        }
    }
    with_form<MODE>(painter.form, [&](auto form) {
        auto value = [&](int a, int e, float base) {
            const u32 word = painter.prepare(w[word_of<REACH>(a, e)]);
            return painter.template value<decltype(form)::value>(word, byte_of<REACH>(a, e), base);
        };
        if constexpr (MODE == MODE_GRID) {
            store_grid<REACH, DTYPE>(args, maps, table, tile, s, lane, value);
        } else {
#pragma unroll
            for (int i = 0; i < 32; i++)
                put_packed<REACH, DTYPE>(p, i / 4, i % 4, clamped<DTYPE>(value(i / 4, i % 4, 0.0f)));
            store_pieces_of<REACH, DTYPE>(args.y, g, tile, s, lane, p);
        }
    });
}

// Numbers of the channel of the value at an index, where maps come last.
struct IndexNumbers {
    const ChannelMap &map;
    const TileMaps &maps;
    const float *table;

    __device__ __forceinline__ float4 operator()(u64 index) const {
        const u32 i = maps.is_one ? 0 : map.by_inner(maps.skip + (u32)(index - maps.first));
        return ((const float4 *)table)[i];
    }
};

// The value of one code, for the stores below.
template <int DTYPE, int MODE>
__device__ __forceinline__ u32 paint_one(const DecompressArgs &args, const Painter<MODE> &painter, u32 word, int byte,
                                         const IndexNumbers &numbers, u64 index) {
    float v = 0.0f;
    with_form<MODE>(painter.form, [&](auto form) {
        const float4 n = MODE == MODE_GRID ? numbers(index) : make_float4(0.0f, 1.0f, 0.0f, 0.0f);
        v = painter.template value<decltype(form)::value>(painter.prepare(word), byte, n.x);
        v = MODE == MODE_GRID ? Epilogue<DTYPE>(args)(v, n, index) : clamped<DTYPE>(v);
    });
    return pattern_of_float<DTYPE>(v);
}

// Four codes side by side as patterns, packed. Bytes that are not of this tile are codes of 0, or they would borrow
// from their neighbours.
template <int DTYPE, int MODE>
__device__ __forceinline__ void paint_quad(const Painter<MODE> &painter, bool is_paired, u32 word,
                                           u32 (&out)[PIECE_WORDS<DTYPE>]) {
    constexpr int FORM = MODE == MODE_KEEP ? FORM_MASK : FORM_PLAIN;
    if constexpr (DTYPE != COMET_F32)
        if (is_paired) {
            const PairNumbers<DTYPE, FORM> n(painter.step);
            out[0] = n.template pair<0>(word), out[1] = n.template pair<2>(word);
            return;
        }
    with_form<MODE>(painter.form, [&](auto form) {
        const u32 prepared = painter.prepare(word);
#pragma unroll
        for (int e = 0; e < 4; e++)
            put_value<REACH_FLAT, DTYPE>(
                out, e, clamped<DTYPE>(painter.template value<decltype(form)::value>(prepared, e, 0.0f)));
    });
}

// Codes of short rows as bytes in order of memory; 0, which no biased code is, where a byte belongs to another tile.
template <int REACH>
__device__ __forceinline__ void stage_sweep(const Geometry &g, const TileStart &s, u32 lane, u32 (&u)[8], u64 start,
                                            u8 *bytes) {
    constexpr int WIDTH = reach_width(REACH);
    transpose_bytes(u[0], u[1], u[2], u[3]); // words of rows, bytes of columns
    transpose_bytes(u[4], u[5], u[6], u[7]);
    u32 column = s.column + 8 * lane, bands = g.by_row(column), p = column - bands * g.row;
    u64 position = s.position + column + (u64)bands * 3 * g.row;
#pragma unroll
    for (int j = 0; j < 8; j += WIDTH) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            u32 v = u[(j & 4) + k] >> 8 * (j & 3);
            u8 *to = bytes + (u32)(position + (u64)k * g.row - start);
            if (WIDTH == 4)
                *(u32 *)to = v;
            else if (WIDTH == 2)
                *(u16 *)to = (u16)v;
            else
                *to = (u8)v;
        }
        p += WIDTH, position += WIDTH;
        if (p == g.row)
            p = 0, position += 3 * (u64)g.row;
    }
}

__device__ __forceinline__ bool has_zero_byte(u32 v) {
    return ((v - 0x01010101u) & ~v & SIGN_BITS) != 0;
}

// The top bits of bytes, side by side.
__device__ __forceinline__ u32 top_bits(u32 v) {
    return ((v & SIGN_BITS) >> 7) * 0x01020408u >> 24 & 15;
}

// Writes short rows in order of memory, so that stores fill whole sectors. False: a code that no encoder writes.
template <int REACH, int DTYPE, int MODE>
__device__ __forceinline__ bool store_sweep(const DecompressArgs &args, float step, u32 class_index, const TileStart &s,
                                            u32 lane, u32 (&u)[8], u8 *bytes) {
    constexpr u32 UNITS = (1024 + 6 * SWEEP_ROW + 16) / 16;
    const Geometry &g = args.geometry;
    const Painter<MODE> painter(step, class_index, u);
    const bool paired = DTYPE != COMET_F32 && is_paired<DTYPE>(step, class_index, painter.form);
    bool never = false;
#pragma unroll
    for (int m = 0; m < 8; m++)
        never |= has_zero_byte(u[m]);
    if (__any_sync(ALL_LANES, never))
        return false;
    for (u32 i = lane; i < UNITS; i += 32)
        ((uint4 *)bytes)[i] = make_uint4(0, 0, 0, 0);
    __syncwarp();
    const u64 start = (s.position + s.column) & ~3ull, end = column_position(g, s, 255) + 3 * (u64)g.row;
    stage_sweep<REACH>(g, s, lane, u, start, bytes);
    __syncwarp();
    const u32 quads = (u32)((end - start) >> 2) + 1;
#pragma unroll 2
    for (u32 i = lane; i < quads; i += 32) {
        u32 v = ((const u32 *)bytes)[i], p[PIECE_WORDS<DTYPE>];
        u64 index = start + 4 * i;
        if (v == 0)
            continue;
        const u32 none = ~(((v & MAGNITUDE_BITS) + MAGNITUDE_BITS) | v) & SIGN_BITS; // bytes of another tile
        paint_quad<DTYPE, MODE>(painter, paired, v | none, p);
        if (none == 0)
            store_piece<REACH_FLAT, DTYPE>(args.y, index, 0, p);
        else
            store_some<DTYPE>(args.y, index, p, top_bits(~none));
    }
    return true;
}

// Writes long rows of any length value by value, neighbours side by side.
template <int REACH, int DTYPE, int MODE>
__device__ __forceinline__ void store_columns(const DecompressArgs &args, float step, u32 class_index,
                                              const IndexNumbers &numbers, const TileStart &s, u32 lane, u32 (&u)[8],
                                              u32 *exchange) {
    typedef typename Pattern<DTYPE>::Word Word;
    const Geometry &g = args.geometry;
    const Painter<MODE> painter(step, class_index, u);
#pragma unroll
    for (int m = 0; m < 8; m++)
        exchange[(8 * lane + m) ^ (lane >> 2 & 7)] = u[m];
    __syncwarp();
#pragma unroll 2
    for (u32 j = 0; j < 8; j++) {
        u32 column = 32 * j + lane, word = exchange[column ^ (column >> 5 & 7)];
        u64 position = column_position(g, s, column);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            u64 index = position + (u64)k * g.row;
            ((Word *)args.y)[index] = (Word)paint_one<DTYPE>(args, painter, word, k, numbers, index);
        }
    }
}

// Values of a grid in the order of memory, through the epilogue: finish(value, numbers, index).
template <int DTYPE, int FORM, bool CLAMPS, class Finish>
__device__ __forceinline__ void paint_swept(const DecompressArgs &args, const Painter<MODE_GRID> &painter,
                                            const SweptQuads &order, const float *table, u32 lane, const u32 *words,
                                            Finish finish) {
    const float floor = args.relu ? 0.0f : -INFINITY;
    const bool are_split = args.channel_map.by_inner.divisor % 4 != 0; // a map may end within a quad
    auto paint = [&](u32 number, u32 mine) {
        const u64 index = order.first + 4 * number;
        const u32 word = painter.prepare(words[SweptQuads::place(number)]);
        const QuadMap at = quad_map(args.channel_map, order.skip + 4 * number);
        float v[4];
        u32 p[PIECE_WORDS<DTYPE>];
        auto take = [&](u32 map, u32 from) {
            const float4 n = ((const float4 *)table)[map];
#pragma unroll
            for (int e = 0; e < 4; e++)
                if ((u32)e >= from)
                    v[e] = finish(painter.template value<FORM>(word, e, n.x), n, index + e);
        };
        take(at.map, 0);
        if (are_split)
            if (at.room < 4)
                take(at.map + 1, at.room);
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (CLAMPS)
                put_value_clamped<REACH_FLAT, DTYPE>(p, e, v[e], floor);
            else
                put_value<REACH_FLAT, DTYPE>(p, e, v[e]);
        put_quad<DTYPE>(args.y, index, p, mine);
    };
    const u32 begin = order.whole_from(args.geometry), end = order.whole_to();
#pragma unroll 2
    for (u32 number = begin + lane; number < end; number += 32)
        paint(number, 15);
#pragma unroll 1
    for (u32 i = lane; i < begin + order.quads - end; i += 32) { // both ends
        const u32 number = i < begin ? i : i - begin + end;
        paint(number, order.mine_of_any(args.geometry, number));
    }
}

// Whether all codes are at least -64 and below 64, which FORM_GRID relies on: an encoder writes no others.
__device__ __forceinline__ bool are_near(const u32 (&u)[8]) {
    u32 all = SIGN_BITS;
#pragma unroll
    for (int m = 0; m < 8; m++)
        all &= u[m] ^ u[m] << 1;
    return __all_sync(ALL_LANES, all == SIGN_BITS);
}

// Codes of a grid in the order of memory as values. False: a code that no encoder writes.
template <int DTYPE>
__device__ __forceinline__ bool store_swept(const DecompressArgs &args, float step, u32 class_index,
                                            const TileMaps &maps, const float *table, const TileStart &s, u32 lane,
                                            u32 (&u)[8], u8 *stage) {
    const Painter<MODE_GRID> painter(step, class_index, u);
    if (painter.form == FORM_GRID && !are_near(u))
        return false;
    SweptQuads order(args.geometry, s);
    order.take(maps);
    put_columns(args.geometry, order, lane, u, stage + SweptQuads::CODES_AT);
    with_form<MODE_GRID>(painter.form, [&](auto form) {
        constexpr int FORM = decltype(form)::value;
        const u32 *words = (const u32 *)stage;
        if (args.epilogue == EPILOGUE_NONE)
            paint_swept<DTYPE, FORM, false>(args, painter, order, table, lane, words,
                                            [](float v, const float4 &, u64) { return v; });
        else if (args.epilogue == EPILOGUE_NORM)
            paint_swept<DTYPE, FORM, true>(args, painter, order, table, lane, words,
                                           [](float v, const float4 &n, u64) { return __fmaf_rn(n.y, v, n.z); });
        else
            paint_swept<DTYPE, FORM, false>(args, painter, order, table, lane, words, Epilogue<DTYPE>(args));
    });
    return true;
}

// Biased codes, this lane's columns u, of a tile without padding as values to the tensor. False: they are not valid.
template <int REACH, int DTYPE, int MODE, class Start>
__device__ __forceinline__ bool store_codes(const DecompressArgs &args, float step, u32 class_index,
                                            const TileMaps &maps, const float *table, u32 tile, const Start &s,
                                            u32 lane, u32 (&u)[8], u8 *stage) {
    const Geometry &g = args.geometry;
    if constexpr (REACH == REACH_SWEEP)
        return store_swept<DTYPE>(args, step, class_index, maps, table, s, lane, u, stage);
    if constexpr (reach_is_row(REACH) && MODE != MODE_GRID)
        if (g.row % 8 != 0 && g.row <= SWEEP_ROW)
            return store_sweep<REACH, DTYPE, MODE>(args, step, class_index, s, lane, u, stage);
    if constexpr (REACH == REACH_ROW2 || REACH == REACH_ROW1) {
        const IndexNumbers numbers = {args.channel_map, maps, table};
        store_columns<REACH, DTYPE, MODE>(args, step, class_index, numbers, s, lane, u, (u32 *)stage);
        return true;
    }
    store_pieces<REACH, DTYPE, MODE>(args, step, class_index, maps, table, tile, s, lane, u, (u32 *)stage);
    return true;
}

#endif
