// SPDX-License-Identifier: Apache-2.0
// Decompressing eb and zvc: one warp a tile at a time, eight warps a block. Decoded values go through an epilogue to the tensor.
#ifndef COMET_CODEC_CUDA_EB_DECOMPRESS_CUH
#define COMET_CODEC_CUDA_EB_DECOMPRESS_CUH

#include "codec/cuda/eb_args.cuh"
#include "codec/cuda/tile_decode.cuh"
#include "codec/cuda/tile_exact.cuh"

// How the kernel turns codes into values: code times step alone, or whatever flags and epilogue say.
enum Restore { RESTORE_FAST, RESTORE_ANY };

// Blocks on a multiprocessor.
enum { DECOMPRESS_FAST_BLOCKS = 5, DECOMPRESS_ANY_BLOCKS = 3 };

enum { SWEEP_ROW = 64 }; // rows up to this long are written in order of memory: see store_sweep

struct DecompressShared {
    alignas(16) u8 stage[GROUP_TILES][STAGE_BYTES];
    alignas(16) u32 columns[GROUP_TILES][64];
    u64 payload_bytes;
    u32 status;
    float bound;
    u32 dtype; // of the stream
    union {
        quantiser_class first; // class 0; of a block that knows no others
        quantiser q;           // open_stream
    };
};

// ---- where the stream is ----

struct StreamView {
    const u8 *table, *payload;
    u64 payload_bytes;
    u32 status; // comet_status
};

// Which bits of a header's word must be as expected. With an epilogue the stream's dtype is its own affair; a checksum is
// only the CPU's to verify.
__device__ __forceinline__ u32 header_mask(const DecompressArgs &args, u32 i) {
    if (i == CUDA_HEADER_WORD_BOUND || i == CUDA_HEADER_WORD_BYTES || i == CUDA_HEADER_WORD_BYTES + 1 ||
        (i == CUDA_HEADER_WORD_CHECKSUM && (args.flags & STREAM_CHECKSUM)))
        return 0;
    return i == 1 && args.any_dtype ? 0x00ffffffu : ~0u;
}

// What it means that words of the header differ: magic and reserved words are never otherwise, the version is another
// format's, and the rest is what the caller's tensor and parameters say.
static __device__ __noinline__ u32 header_problem(u32 difference) {
    const u32 never = 1u << 0 | 1u << CUDA_HEADER_WORD_CHECKSUM | 0xfu << 12;
    u32 differs = __ballot_sync(ALL_LANES, difference != 0), version = __shfl_sync(ALL_LANES, difference, 1) & 0xffffu;
    u32 first = differs & (0u - differs);
    if (first & never)
        return COMET_ERROR_CORRUPT;
    return first == 2 && version ? COMET_ERROR_VERSION : COMET_ERROR_MISMATCH;
}

// Whether a stream can have this bound: the encoder writes no other, and no proof covers its steps.
__device__ __forceinline__ bool bound_is_valid(const DecompressArgs &args, float bound) {
    if (bound == 0.0f)
        return __float_as_uint(bound) == 0;
    return bound >= 0x1p-100f && bound <= 0x1p100f && (args.header.words[1] >> 16 & 0xff) == COMET_CODEC_EB;
}

// Checks the header against what is expected; every warp does, since none may trust it.
__device__ __forceinline__ u32 check_header(const DecompressArgs &args, u32 word, u32 lane, float &bound, u32 &dtype) {
    u32 difference = (word ^ args.header.words[lane]) & header_mask(args, lane);
    bound = __uint_as_float(__shfl_sync(ALL_LANES, word, CUDA_HEADER_WORD_BOUND));
    dtype = args.any_dtype ? __shfl_sync(ALL_LANES, word, 1) >> 24 : args.dtype;
    if (__any_sync(ALL_LANES, difference))
        return header_problem(difference);
    return bound_is_valid(args, bound) && dtype <= COMET_BF16 ? COMET_OK : COMET_ERROR_CORRUPT;
}

__device__ __forceinline__ u64 stream_start(const DecompressArgs &args) {
    return args.result ? args.result->start : args.start ? *args.start : 0;
}

// Whether header and table of a stream that starts there lie inside the slot.
__device__ __forceinline__ bool has_table(const DecompressArgs &args, u64 start) {
    return start % 256 == 0 && start <= args.last_start && args.has_room;
}

// Finds the stream and checks its header, of which each lane gets a word; bound and dtype are the stream's.
__device__ __forceinline__ StreamView view_stream(const DecompressArgs &args, u64 start, u32 lane, float &bound,
                                                  u32 &dtype) {
    StreamView v = {};
    const u32 written = args.result ? (u32)args.result->status : (u32)COMET_OK;
    const u8 *stream = args.base + start;
    bound = 0.0f, dtype = args.dtype;
    if (written != COMET_OK || !has_table(args, start)) {
        v.status = written != COMET_OK ? written : (u32)COMET_ERROR_CORRUPT;
        return v;
    }
    const u32 word = __ldg((const u32 *)stream + lane);
    const u64 bytes = __shfl_sync(ALL_LANES, word, CUDA_HEADER_WORD_BYTES) |
                      (u64)__shfl_sync(ALL_LANES, word, CUDA_HEADER_WORD_BYTES + 1) << 32;
    v.status = check_header(args, word, lane, bound, dtype);
    if (bytes < args.table_end || bytes > args.capacity - start)
        v.status = COMET_ERROR_CORRUPT;
    v.table = stream + STREAM_HEADER_BYTES;
    v.payload = stream + args.table_end;
    v.payload_bytes = bytes - args.table_end;
    return v;
}

// A tile's row of the table, as it comes from memory: lanes 0-7 have an entry each.
struct TableRow {
    u64 offset;
    u32 entries;
};

__device__ __forceinline__ TableRow read_row(const u8 *table, u32 tile, u32 lane) {
    const u8 *row = table + GROUP_BYTES * (u64)(tile / GROUP_TILES);
    TableRow r;
    r.entries = __ldg((const u16 *)(row + 8) + (lane & 7));
    r.offset = __ldg((const unsigned long long *)row);
    return r;
}

// Where a tile's bytes are; from is NULL if that is outside the stream.
struct TileBytes {
    const u8 *from;
    u32 entry;
};

__device__ __forceinline__ TileBytes find_tile(const u8 *payload, u64 payload_bytes, const TableRow &row, u32 tile,
                                               u32 lane) {
    const u32 which = tile % GROUP_TILES;
    u32 before = __reduce_add_sync(ALL_LANES, lane < which ? row.entries & ENTRY_SIZE_MASK : 0);
    TileBytes t;
    t.entry = __shfl_sync(ALL_LANES, row.entries, which);
    u32 behind = before + (t.entry & ENTRY_SIZE_MASK);
    bool inside = row.offset <= payload_bytes && behind <= payload_bytes - row.offset;
    t.from = inside && t.entry >> ENTRY_KIND_SHIFT <= KIND_RAW ? payload + row.offset + before : NULL;
    return t;
}

// Bytes are staged in units of 16, starting with the unit they start in. Whether all of a tile's units lie before the limit:
__device__ __forceinline__ bool has_whole_units(const u8 *from, u32 size, const u8 *limit) {
    return (const u8 *)((u64)(from + size + 15) & ~15ull) <= limit;
}

// Whether a tile is one of codes whose units are all whole.
__device__ __forceinline__ bool is_stageable(const TileBytes &t, const u8 *limit) {
    u32 size = t.entry & ENTRY_SIZE_MASK;
    return t.from && t.entry >> ENTRY_KIND_SHIFT == KIND_CODES && size <= LARGEST_CODE_TILE &&
           has_whole_units(t.from, size, limit);
}

// This lane's first unit of such a tile, asked for before it is needed.
__device__ __forceinline__ uint4 first_unit(const TileBytes &t, u32 lane) {
    u32 skew = (u32)(u64)t.from & 15, size = t.entry & ENTRY_SIZE_MASK;
    return 16 * lane < skew + size ? __ldg((const uint4 *)(t.from - skew) + lane) : make_uint4(0, 0, 0, 0);
}

// Puts `size` bytes into the stage, of which `unit` has this lane's first; returns where they start there.
__device__ __forceinline__ u32 stage_tile(const u8 *from, u32 size, uint4 unit, u32 lane, u8 *stage) {
    u32 skew = (u32)(u64)from & 15;
    ((uint4 *)stage)[lane] = unit;
#pragma unroll 1
    for (u32 i = lane + 32; 16 * i < skew + size; i += 32)
        ((uint4 *)stage)[i] = __ldg((const uint4 *)(from - skew) + i);
    __syncwarp();
    return skew;
}

// The same byte by byte, for what lies at the very end of a slot.
__device__ __forceinline__ u32 stage_bytes(const u8 *from, u32 size, u32 lane, u8 *stage) {
#pragma unroll 1
    for (u32 i = lane; i < size; i += 32)
        stage[i] = from[i];
    __syncwarp();
    return 0;
}

// ---- values ----

// fp16 is clamped to its largest number, between the exact value and the code's: see docs/format.md.
template <int DTYPE> __device__ __forceinline__ u32 decoded_pattern(float v) {
    if (DTYPE == COMET_F16)
        v = fminf(fmaxf(v, -65504.0f), 65504.0f);
    return pattern_of_float<DTYPE>(v);
}

// Byte K of biased codes times the step. 2^15 + code + 128 is built in the bits of a float.
template <int DTYPE, int K> __device__ __forceinline__ float value_fast(u32 word, float step, float zero) {
    float f = __uint_as_float(permute<0x7504 | K << 4>(word, 0x47000000u));
    return __fmaf_rn(f, step, zero); // zero = -32896 * step, of 9 bits and 15 at most, is exact
}

// What is done to values of one channel: dequantising with its remainder, then the epilogue.
struct ChannelNumbers {
    float remainder, scale, shift;
};

// Codes and patterns to patterns of the output, in any mode and with any epilogue.
template <int DTYPE> struct Restorer {
    const DecompressArgs &args;
    quantiser_class c;
    u32 dtype; // of the stream

    __device__ __forceinline__ bool by_channel() const {
        return (args.flags & STREAM_GRID) || args.scale || args.shift;
    }

    __device__ __forceinline__ ChannelNumbers numbers(u32 channel) const {
        ChannelNumbers n = {0.0f, 1.0f, 0.0f};
        if ((args.flags & STREAM_GRID) && c.step != 0.0f)
            n.remainder = quantiser_grid(&c, __ldg(args.grid.threshold + channel), 1.0f).remainder;
        if (args.scale)
            n.scale = __ldg(args.scale + channel);
        if (args.shift)
            n.shift = __ldg(args.shift + channel);
        return n;
    }

    // y = act(scale * x + shift + add)
    __device__ __forceinline__ u32 finish(float x, const ChannelNumbers &n, u64 index) const {
        if (args.scale || args.shift)
            x = __fmaf_rn(n.scale, x, n.shift);
        if (args.add)
            x = __fadd_rn(x, float_of_pattern<DTYPE>(((const typename Pattern<DTYPE>::Word *)args.add)[index]));
        if (args.relu)
            x = x < 0.0f ? 0.0f : x; // a NaN stays
        return pattern_of_float<DTYPE>(x);
    }

    __device__ __forceinline__ u32 of_code(int q, const ChannelNumbers &n, u64 index) const {
        float x = value_of_code(q, c, n.remainder);
        if (dtype == COMET_F16)
            x = fminf(fmaxf(x, -65504.0f), 65504.0f);
        return finish(x, n, index);
    }

    // Of an exact tile: a pattern of the stream's dtype.
    __device__ __forceinline__ u32 of_pattern(u32 p, const ChannelNumbers &n, u64 index) const {
        if (dtype == DTYPE && !(args.scale || args.shift || args.add || args.relu))
            return p;
        float x = dtype == COMET_F32 ? __uint_as_float(p) : dtype == COMET_BF16 ? float_of_bf16(p) : float_of_f16(p);
        return finish(x, n, index);
    }
};

// Fills p[a][e] with make(a, e, numbers of its channel, its index).
template <int REACH, int DTYPE, class Make>
__device__ __forceinline__ void restore(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                        u32 (&p)[8][4], Make make) {
    constexpr int WIDTH = reach_width(REACH), STEP = reach_is_last(REACH) ? 0 : 1, FIXED = REACH == REACH_LAST4 ? 4 : 1;
    const Geometry &g = restorer.args.geometry;
    const TileChannels<REACH> channels(restorer.args.channel_map, g, s, lane);
    const bool by_channel = restorer.by_channel(), inner = tile < g.inner;
    ChannelNumbers fixed[FIXED]; // where a thread's channels stay the same
#pragma unroll
    for (int i = 0; i < FIXED; i++)
        fixed[i] =
            by_channel && reach_is_last(REACH) ? restorer.numbers(channels.of(i, 0)) : ChannelNumbers{0.0f, 1.0f, 0.0f};
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64 position) {
        ChannelNumbers n = fixed[0];
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            bool real = inner || position + STEP * i < g.positions;
            if (reach_is_last(REACH))
                n = fixed[REACH == REACH_LAST4 ? i : 0];
            else if (by_channel && real && (i == 0 || REACH == REACH_FLAT)) // a piece of a row lies in one map
                n = restorer.numbers(channels.of(e + i, index + i));
            p[a][e + i] = real ? make(a, e + i, n, index + i) : 0;
        }
    });
}

// ---- storing ----

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
            w[j] = exchange[(32 * j + lane) ^ ((j & 1) << 2)];
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

template <int DTYPE> __device__ __forceinline__ u32 pattern_fast(u32 word, int byte, float step, float zero) {
    float v = byte == 0   ? value_fast<DTYPE, 0>(word, step, zero)
              : byte == 1 ? value_fast<DTYPE, 1>(word, step, zero)
              : byte == 2 ? value_fast<DTYPE, 2>(word, step, zero)
                          : value_fast<DTYPE, 3>(word, step, zero);
    return decoded_pattern<DTYPE>(v);
}

__device__ __forceinline__ int code_at(u32 word, int byte) {
    return (int)(word >> 8 * byte & 0xff) - 128;
}

// Biased codes, this lane's columns u, as values where a thread's pieces lie.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ void store_pieces(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                             u32 (&u)[8], u32 *exchange) {
    u32 p[8][4], w[8];
    const float step = restorer.c.step, zero = __fmul_rn(-32896.0f, step);
    exchange_back<REACH>(u, lane, exchange, w);
    if (HOW == RESTORE_FAST) {
#pragma unroll
        for (int a = 0; a < 8; a++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                p[a][e] = pattern_fast<DTYPE>(w[word_of<REACH>(a, e)], byte_of<REACH>(a, e), step, zero);
    } else {
        restore<REACH, DTYPE>(restorer, tile, s, lane, p, [&](int a, int e, const ChannelNumbers &n, u64 index) {
            return restorer.of_code(code_at(w[word_of<REACH>(a, e)], byte_of<REACH>(a, e)), n, index);
        });
    }
    store_patterns<REACH, DTYPE>(restorer.args.y, restorer.args.geometry, tile, s, lane, p);
}

// Codes of short rows as bytes in order of memory; 0, which no biased code is, where a byte belongs to another tile.
template <int REACH>
__device__ __forceinline__ void stage_sweep(const Geometry &g, const TileStart &s, bool inner, u32 lane, u32 (&u)[8],
                                            u64 start, u8 *bytes) {
    constexpr int WIDTH = reach_width(REACH);
    transpose_bytes(u[0], u[1], u[2], u[3]); // words of rows, bytes of columns
    transpose_bytes(u[4], u[5], u[6], u[7]);
    u32 column = s.column + 8 * lane, bands = g.by_row(column), p = column - bands * g.row;
    u64 position = s.position + column + (u64)bands * 3 * g.row;
#pragma unroll
    for (int j = 0; j < 8; j += WIDTH) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            u64 at = position + (u64)k * g.row;
            u32 v = u[(j & 4) + k] >> 8 * (j & 3);
            u8 *to = bytes + (u32)(at - start);
            if (inner && WIDTH == 4)
                *(u32 *)to = v;
            else if (inner && WIDTH == 2)
                *(u16 *)to = (u16)v;
            else
#pragma unroll
                for (int i = 0; i < WIDTH; i++)
                    if (inner || at + i < g.positions)
                        to[i] = (u8)(v >> 8 * i);
        }
        p += WIDTH, position += WIDTH;
        if (p == g.row)
            p = 0, position += 3 * (u64)g.row;
    }
}

// Writes short rows in order of memory, so that stores fill whole sectors. False: a code that no encoder writes.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool store_sweep(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                            u32 (&u)[8], u8 *bytes) {
    constexpr u32 UNITS = (1024 + 6 * SWEEP_ROW + 16) / 16;
    typedef typename Pattern<DTYPE>::Word Word;
    const Geometry &g = restorer.args.geometry;
    const float step = restorer.c.step, zero = __fmul_rn(-32896.0f, step);
    u32 never = 0;
#pragma unroll
    for (int m = 0; m < 8; m++)
        never |= (u[m] - 0x01010101u) & ~u[m] & SIGN_BITS;
    if (__any_sync(ALL_LANES, never))
        return false;
    for (u32 i = lane; i < UNITS; i += 32)
        ((uint4 *)bytes)[i] = make_uint4(0, 0, 0, 0);
    __syncwarp();
    const u64 start = (s.position + s.column) & ~3ull, end = column_position(g, s, 255) + 3 * (u64)g.row;
    stage_sweep<REACH>(g, s, tile < g.inner, lane, u, start, bytes);
    __syncwarp();
    const TileChannels<REACH> channels(restorer.args.channel_map, g, s, lane);
    const u32 quads = (u32)((end - start) >> 2) + 1;
#pragma unroll 4
    for (u32 i = lane; i < quads; i += 32) {
        u32 v = ((const u32 *)bytes)[i], p[4];
        u64 index = start + 4 * i;
        if (v == 0)
            continue;
        if (HOW == RESTORE_FAST) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                p[e] = pattern_fast<DTYPE>(v, e, step, zero);
        } else {
            ChannelNumbers n = {0.0f, 1.0f, 0.0f};
            u32 known = ~0u;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 channel = restorer.by_channel() ? channels.of(e, index + e) : 0;
                if (restorer.by_channel() && channel != known && (v >> 8 * e & 0xff))
                    n = restorer.numbers(channel), known = channel;
                p[e] = v >> 8 * e & 0xff ? restorer.of_code(code_at(v, e), n, index + e) : 0;
            }
        }
        Word *to = (Word *)restorer.args.y + index;
        if (!((v - 0x01010101u) & ~v & SIGN_BITS))
            write4<DTYPE>(to, p);
        else
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (v >> 8 * e & 0xff)
                    to[e] = (Word)p[e];
    }
    return true;
}

// Writes long rows of any length value by value, neighbours side by side.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ void store_columns(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                              u32 (&u)[8], u32 *exchange) {
    typedef typename Pattern<DTYPE>::Word Word;
    const Geometry &g = restorer.args.geometry;
    const float step = restorer.c.step, zero = __fmul_rn(-32896.0f, step);
    const TileChannels<REACH> channels(restorer.args.channel_map, g, s, lane);
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
            if (tile >= g.inner && index >= g.positions)
                continue;
            u32 p;
            if (HOW == RESTORE_FAST) {
                p = pattern_fast<DTYPE>(word, k, step, zero);
            } else {
                ChannelNumbers n = {0.0f, 1.0f, 0.0f};
                if (restorer.by_channel())
                    n = restorer.numbers(channels.of(0, index));
                p = restorer.of_code(code_at(word, k), n, index);
            }
            ((Word *)restorer.args.y)[index] = (Word)p;
        }
    }
}

// Biased codes, this lane's columns u, as values to the tensor.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool store_codes(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                            u32 (&u)[8], u8 *stage) {
    const Geometry &g = restorer.args.geometry;
    if (reach_is_row(REACH) && g.row % 8 != 0 && g.row <= SWEEP_ROW)
        return store_sweep<REACH, DTYPE, HOW>(restorer, tile, s, lane, u, stage);
    if (REACH == REACH_ROW2 || REACH == REACH_ROW1)
        store_columns<REACH, DTYPE, HOW>(restorer, tile, s, lane, u, (u32 *)stage);
    else
        store_pieces<REACH, DTYPE, HOW>(restorer, tile, s, lane, u, (u32 *)stage);
    return true;
}

// ---- any tile, as patterns of the output ----

template <int REACH, int DTYPE>
__device__ __forceinline__ void narrow_patterns(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                                u32 (&u)[8], u32 *exchange, u32 (&p)[8][4]) {
    u32 w[8];
    exchange_back<REACH>(u, lane, exchange, w);
    restore<REACH, DTYPE>(restorer, tile, s, lane, p, [&](int a, int e, const ChannelNumbers &n, u64 index) {
        return restorer.of_code(code_at(w[word_of<REACH>(a, e)], byte_of<REACH>(a, e)), n, index);
    });
}

// Codes of 16 bits, through shared memory.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool wide_patterns(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                              u8 *stage, u32 at, u32 size, const TileHead &head, u32 *columns,
                                              u32 (&p)[8][4]) {
    u16 *codes = (u16 *)stage;
    if (!decode_wide<REACH>(stage, at, size, head, lane, columns, codes))
        return false;
    if (HOW == RESTORE_FAST) {
#pragma unroll
        for (int a = 0; a < 8; a++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int q = (int16_t)codes[tile_index<REACH>(lane, a, e)];
                p[a][e] = decoded_pattern<DTYPE>(__fmul_rn(__int2float_rn(q), restorer.c.step));
            }
        return true;
    }
    restore<REACH, DTYPE>(restorer, tile, s, lane, p, [&](int a, int e, const ChannelNumbers &n, u64 index) {
        return restorer.of_code((int16_t)codes[tile_index<REACH>(lane, a, e)], n, index);
    });
    return true;
}

template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool exact_patterns(const Restorer<DTYPE> &restorer, u32 tile, const TileStart &s, u32 lane,
                                               const u8 *from, u32 entry, u32 *row, u32 (&p)[8][4]) {
    const Geometry &g = restorer.args.geometry;
    const u32 kind = entry >> ENTRY_KIND_SHIFT, size = entry & ENTRY_SIZE_MASK;
    const u32 value_bytes = restorer.dtype == COMET_F32 ? 4 : 2;
    const bool inner = tile < g.inner;
    if (exact_bytes<REACH>(g, s, inner, lane, kind, size, value_bytes, from) != size)
        return false;
    const u8 *values = from + (kind == KIND_SPARSE ? BITMAP_BYTES : 0);
    clear_patterns(p); // a row at a time is filled in: a compiler may take what was never set for anything
#pragma unroll 1
    for (u32 k = 0; k < 4; k++) {
        read_exact_row<REACH>(g, s, inner, lane, k, kind, value_bytes, from, values, row);
        unstage_row<REACH>(row, lane, k, p);
    }
    if (HOW == RESTORE_FAST)
        return true;
    restore<REACH, DTYPE>(restorer, tile, s, lane, p, [&](int a, int e, const ChannelNumbers &n, u64 index) {
        return restorer.of_pattern(p[a][e], n, index);
    });
    return true;
}

// Where a tile was found, and where it is decoded.
struct TileSource {
    const u8 *from; // its bytes
    u32 entry;
    bool is_stageable;
    uint4 unit;   // first_unit of one that is
    u8 *stage;    // STAGE_BYTES of shared memory of the warp's own
    u32 *columns; // 64 words of it
};

// What is known of a tile before its codes are decoded.
enum TileForm { FORM_BAD, FORM_NARROW, FORM_OTHER };

// Decodes a tile as far as its form goes: narrow codes to u (biased), everything else to p.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ TileForm decode_tile(Restorer<DTYPE> &restorer, const quantiser &q, const TileSource &source,
                                                u32 tile, const TileStart &s, u32 lane, u32 (&u)[8], u32 (&p)[8][4]) {
    const u32 size = source.entry & ENTRY_SIZE_MASK;
    restorer.c = q.classes[0];
    restorer.dtype = q.dtype;
    if (source.entry >> ENTRY_KIND_SHIFT)
        return exact_patterns<REACH, DTYPE, HOW>(restorer, tile, s, lane, source.from, source.entry,
                                                 (u32 *)source.stage, p)
                   ? FORM_OTHER
                   : FORM_BAD;
    if (size == 0) { // zeros, whether the stream has a class 0 or not
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = SIGN_BITS;
        return FORM_NARROW;
    }
    if (size > LARGEST_CODE_TILE)
        return FORM_BAD;
    u32 at = stage_bytes(source.from, size, lane, source.stage);
    TileHead head = tile_head(source.stage[at]);
    restorer.c = q.classes[head.class_index];
    if (restorer.c.step == 0.0f) // a class the stream does not have
        return FORM_BAD;
    if (restorer.c.wide)
        return wide_patterns<REACH, DTYPE, HOW>(restorer, tile, s, lane, source.stage, at, size, head, source.columns,
                                                p)
                   ? FORM_OTHER
                   : FORM_BAD;
    bool good = decode_narrow<REACH>(source.stage, at, size, head, lane, source.columns, u);
    __syncwarp(); // the stage has been read
    return good ? FORM_NARROW : FORM_BAD;
}

// ---- the kernel ----

// Any tile. False: it is not valid.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool restore_any(const DecompressArgs &args, const quantiser &q, const TileSource &source,
                                            u32 tile, u32 lane) {
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    Restorer<DTYPE> restorer = {args, {}, 0};
    u32 u[8], p[8][4];
    TileForm form = decode_tile<REACH, DTYPE, HOW>(restorer, q, source, tile, s, lane, u, p);
    if (form == FORM_NARROW)
        narrow_patterns<REACH, DTYPE>(restorer, tile, s, lane, u, (u32 *)source.stage, p);
    if (form != FORM_BAD)
        store_patterns<REACH, DTYPE>(args.y, args.geometry, tile, s, lane, p);
    return form != FORM_BAD;
}

// A stageable tile; `first`: class 0. False: its codes are not narrow, or it is not valid.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool restore_common(const DecompressArgs &args, float bound, u32 dtype,
                                               const quantiser_class &first, const TileSource &source, u32 tile,
                                               u32 lane) {
    const u32 size = source.entry & ENTRY_SIZE_MASK;
    u32 u[8];
    Restorer<DTYPE> restorer = {args, first, dtype};
    if (size) {
        u32 at = stage_tile(source.from, size, source.unit, lane, source.stage);
        TileHead head =
            tile_head(__reduce_max_sync(ALL_LANES, source.stage[at])); // so that branches on it are the warp's
        if (head.class_index)
            restorer.c = quantiser_step_of(bound, (comet_dtype)dtype, args.flags, head.class_index);
        if (restorer.c.wide || restorer.c.step == 0.0f ||
            !decode_narrow<REACH>(source.stage, at, size, head, lane, source.columns, u))
            return false;
        __syncwarp(); // the stage has been read
    } else {          // zeros, whether the stream has a class 0 or not
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = SIGN_BITS;
    }
    return store_codes<REACH, DTYPE, HOW>(restorer, tile, tile_start<REACH>(args.geometry, tile), lane, u,
                                          source.stage);
}

// What every block finds out first. False: nothing can be decoded, and the status word says why.
__device__ __forceinline__ bool open_stream(const DecompressArgs &args, DecompressShared &shared, StreamView &view) {
    const u32 lane = threadIdx.x & 31;
    float bound;
    u32 dtype;
    view = view_stream(args, stream_start(args), lane, bound, dtype);
    if (threadIdx.x == 0) {
        shared.status = view.status;
        if (view.status == COMET_OK)
            quantiser_of(bound, (comet_dtype)dtype, args.flags, &shared.q);
        else
            *args.status = (int32_t)view.status;
    }
    __syncthreads();
    return shared.status == COMET_OK;
}

// Calls decode(tile, source) for every tile of this warp; returns a bit for each of which that said false (MOST_ROUNDS at most).
// The next tile's bytes, and the row of the table of the one after it, are asked for before a tile is decoded.
template <class Decode>
__device__ __forceinline__ u64 for_tiles(const DecompressArgs &args, DecompressShared &shared, const StreamView &view,
                                         Decode decode) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 tiles = args.geometry.tiles, stride = gridDim.x * GROUP_TILES;
    u32 tile = blockIdx.x * GROUP_TILES + warp;
    u64 left = 0, bit = 1;
    if (tile >= tiles)
        return left;
    const u8 *limit = view.payload + view.payload_bytes;
    TileBytes bytes = find_tile(view.payload, view.payload_bytes, read_row(view.table, tile, lane), tile, lane);
    bool stageable = is_stageable(bytes, limit);
    uint4 unit = stageable ? first_unit(bytes, lane) : uint4{};
    TableRow row = {};
    if (tile + stride < tiles)
        row = read_row(view.table, tile + stride, lane);
    for (; tile < tiles; tile += stride, bit <<= 1) {
        const TileSource source = {bytes.from, bytes.entry, stageable, unit, shared.stage[warp], shared.columns[warp]};
        if (tile + stride < tiles) {
            bytes = find_tile(view.payload, view.payload_bytes, row, tile + stride, lane);
            stageable = is_stageable(bytes, limit);
            unit = stageable ? first_unit(bytes, lane) : uint4{};
            if (tile + 2 * stride < tiles)
                row = read_row(view.table, tile + 2 * stride, lane);
        }
        if (!decode(tile, source))
            left |= bit;
        __syncwarp(); // the stage is used again
    }
    return left;
}

// Any tile, from the start: what restore_common cannot do. A function of its own, so that it costs the others no registers.
template <int REACH, int DTYPE, int HOW>
__device__ __noinline__ void restore_rest(const DecompressArgs &args, DecompressShared &shared, u32 tile) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 status = shared.status;
    if (status == COMET_OK && tile < args.geometry.tiles) {
        quantiser q;
        quantiser_of(shared.bound, (comet_dtype)shared.dtype, args.flags, &q);
        const u8 *stream = args.base + stream_start(args);
        const TableRow row = read_row(stream + STREAM_HEADER_BYTES, tile, lane);
        const TileBytes bytes = find_tile(stream + args.table_end, shared.payload_bytes, row, tile, lane);
        const TileSource source = {bytes.from, bytes.entry, false, {}, shared.stage[warp], shared.columns[warp]};
        if (!(bytes.from && restore_any<REACH, DTYPE, HOW>(args, q, source, tile, lane)))
            status = COMET_ERROR_CORRUPT;
    }
    if (status != COMET_OK && lane == 0)
        *args.status = (int32_t)status;
}

// What one warp finds out for its block; it is there after the next barrier.
__device__ __forceinline__ void check_stream(const DecompressArgs &args, DecompressShared &shared, u64 start,
                                             u32 lane) {
    float bound;
    u32 dtype;
    const StreamView view = view_stream(args, start, lane, bound, dtype);
    if (lane != 0)
        return;
    shared.status = view.status;
    shared.payload_bytes = view.payload_bytes;
    shared.bound = bound;
    shared.dtype = dtype;
    shared.first = quantiser_step_of(bound, (comet_dtype)dtype, args.flags, 0);
}

// A tile a warp. False: restore_rest is to do it.
template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ bool restore_first(const DecompressArgs &args, DecompressShared &shared, u32 tile,
                                              u32 thread) {
    const u32 lane = thread & 31, warp = thread >> 5;
    const u64 start = stream_start(args);
    const u8 *stream = args.base + start, *payload = stream + args.table_end;
    TileSource source = {NULL, 0, false, {}, shared.stage[warp], shared.columns[warp]};
    u64 behind = 0;
    if (has_table(args, start) &&
        tile < args.geometry.tiles) { // while the header is checked, what the slot's end allows
        const u64 room = args.last_start - start;
        const TableRow row = read_row(stream + STREAM_HEADER_BYTES, tile, lane);
        const TileBytes bytes = find_tile(payload, room, row, tile, lane);
        source.from = bytes.from, source.entry = bytes.entry;
        source.is_stageable = is_stageable(bytes, payload + room);
        if (source.is_stageable)
            source.unit = first_unit(bytes, lane);
        behind = (u64)(bytes.from - payload) + (bytes.entry & ENTRY_SIZE_MASK);
    }
    if (warp == 0)
        check_stream(args, shared, start, lane);
    __syncthreads();
    if (shared.status != COMET_OK || !source.is_stageable || behind > shared.payload_bytes)
        return false;
    return restore_common<REACH, DTYPE, HOW>(args, shared.bound, shared.dtype, shared.first, source, tile, lane);
}

template <int REACH, int DTYPE, int HOW>
__device__ __forceinline__ void decompress_group(const DecompressArgs &args, DecompressShared &shared) {
    const u32 thread = thread_number(), tile = blockIdx.x * GROUP_TILES + (thread >> 5), tiles = args.geometry.tiles;
    if (!restore_first<REACH, DTYPE, HOW>(args, shared, tile, thread) && (tile < tiles || tiles == 0)) {
        __syncwarp();                                        // the stage has been read
        restore_rest<REACH, DTYPE, HOW>(args, shared, tile); // of an empty tensor, the header alone
    }
}

template <int REACH, int DTYPE, int HOW>
__global__ void __launch_bounds__(BLOCK_THREADS, HOW == RESTORE_FAST ? DECOMPRESS_FAST_BLOCKS : DECOMPRESS_ANY_BLOCKS)
    eb_decompress_kernel(const __grid_constant__ DecompressArgs args) {
    __shared__ DecompressShared shared;
    decompress_group<REACH, DTYPE, HOW>(args, shared);
}

#endif
