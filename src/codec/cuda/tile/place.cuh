// SPDX-License-Identifier: Apache-2.0
// Where a tile's values lie: docs/format.md, section 2, as a warp sees it. A thread holds 32 of a tile's values; which
// ones depends on how the tensor is reached (enum Reach), chosen such that a warp's loads and stores are wide and side
// by side.
#ifndef COMET_CODEC_CUDA_TILE_PLACE_CUH
#define COMET_CODEC_CUDA_TILE_PLACE_CUH

#include "codec/cuda/device.cuh"
#include "codec/cuda/divide.cuh"

extern "C" {
#include "codec/eb/geometry.h"
}

// n / divisor and the remainder for any n, divisor > 1.
struct DivideLong {
    u64 reciprocal; // floor(2^64 / divisor)
    u32 divisor;
    __device__ __forceinline__ u64 operator()(u64 n, u32 *remainder) const {
        u64 q = __umul64hi(n, reciprocal); // the quotient, or one less
        u64 r = n - q * divisor;
        bool more = r >= divisor;
        *remainder = (u32)(more ? r - divisor : r);
        return q + more;
    }
};

static inline DivideLong divide_long_by(u32 divisor) {
    DivideLong d = {divisor > 1 ? ~0ull / divisor : 0, divisor};
    if (divisor > 1 && (divisor & (divisor - 1)) == 0) // 2^64 is a multiple of it
        d.reciprocal++;
    return d;
}

// From one tile of a warp to its next, where channels come last: a multiple of C lanes further on. See WalkPlace.
struct WalkStep {
    u32 columns; // in its band
    u32 index;   // in the tensor,
    u32 carry;   // and more where the band ends
};

struct Geometry {
    u64 positions;
    u32 tiles;
    u32 inner;    // tiles before this one hold no padding
    u32 is_small; // columns and lanes can be counted in 31 bits
    u32 channels, row;
    u64 stride;                         // values from one row to the next: row * channels
    DivideAboveOne by_channels, by_row; // for C = 1 the former is not used
    DivideLong long_by_channels, long_by_row;
    WalkStep walk;
};

// How a thread's values v[8][4] map to the tile. `lane` is the thread's number in its warp; k, l, m as in the format.
enum Reach {
    REACH_FLAT,  // C = 1, S = 8: v[j][e] is the value 128 j + 4 lane + e of 1,024 side by side
    REACH_ROW4,  // C = 1, S a multiple of 4: v[4 i + k][e] is row k, column 4 (lane + 32 i) + e of 256
    REACH_ROW2,  // the same with S even, read two by two
    REACH_ROW1,  // the same with any S, one by one
    REACH_LAST4, // C a multiple of 4, values can be counted in 32 bits: v[4 i + k][e]: row k, m = lane / 8 + 4 i,
                 // l = 4 (lane mod 8) + e
    REACH_LAST1, // any C: v[m][k] of lane l = lane
    REACH_SWEEP  // C = 1, short rows, on a grid: in the order of memory, see sweep.cuh; else as REACH_ROW1
};

constexpr __host__ __device__ bool reach_is_row(int reach) {
    return reach == REACH_ROW4 || reach == REACH_ROW2 || reach == REACH_ROW1;
}

constexpr __host__ __device__ bool reach_is_last(int reach) {
    return reach == REACH_LAST4 || reach == REACH_LAST1;
}

// How many values a thread reads or writes at once.
constexpr __host__ __device__ int reach_width(int reach) {
    return reach == REACH_ROW2 ? 2 : reach == REACH_ROW1 || reach == REACH_LAST1 ? 1 : 4;
}

// Rows and channels longer than this are not reached on a device (a tile's own columns are counted in 32 bits), nor are
// more tiles.
constexpr int64_t LONGEST_ROW = 1ll << 28, MOST_TILES = 1ll << 31;

// Up to so many, values can be counted in 32 bits.
constexpr int64_t MOST_NEAR_TILES = 1ll << 22;

static inline Reach reach_of(const tile_geometry *g) {
    if (g->channels > 1)
        return g->channels % 4 == 0 && g->tiles <= MOST_NEAR_TILES ? REACH_LAST4 : REACH_LAST1;
    if (g->row == 8)
        return REACH_FLAT;
    return g->row % 4 == 0 ? REACH_ROW4 : g->row % 2 == 0 ? REACH_ROW2 : REACH_ROW1;
}

// The same for kernels that go value by value, to which only the order matters in which the format adds values up.
static inline Reach plain_reach_of(const tile_geometry *g) {
    return g->channels > 1 ? REACH_LAST1 : g->row == 8 ? REACH_FLAT : REACH_ROW1;
}

static inline Geometry device_geometry(const tile_geometry *g) {
    Geometry d = {};
    u64 whole_bands = (u64)g->positions / (4ull * (u64)g->row);
    d.positions = (u64)g->positions;
    d.tiles = (u32)g->tiles;
    d.inner = (u32)(whole_bands * (u64)g->row / 8 * (u64)g->channels / 32);
    d.is_small = g->tiles < (1 << 23);
    d.channels = (u32)g->channels;
    d.row = (u32)g->row;
    d.stride = (u64)g->row * (u64)g->channels;
    d.by_channels = divide_by_above_one(d.channels);
    d.by_row = divide_by_above_one(d.row);
    d.long_by_channels = divide_long_by(d.channels);
    d.long_by_row = divide_long_by(d.row);
    return d;
}

// The step of warps that go over tiles `tiles` apart.
static inline WalkStep walk_step(const Geometry &g, u64 tiles) {
    const u64 columns = 8 * (32 * tiles / g.channels), bands = columns / g.row, rest = columns % g.row;
    return {(u32)rest, (u32)((4 * bands * g.row + rest) * g.channels), (u32)(3 * g.stride)};
}

// ---- from a tile's columns to positions ----

// The column a tile starts with; P = 8 ((32 t) div C) for its first lane.
struct TileStart {
    u64 position; // of row 0 of the band that column lies in
    u32 column;   // p: its place in the band
    u32 channel;  // of the first lane
    static constexpr bool IS_FOUND = false;
};

template <int REACH> __device__ __forceinline__ TileStart tile_start(const Geometry &g, u32 tile) {
    TileStart s;
    s.channel = 0;
    if (REACH == REACH_FLAT) { // a band is 32 values
        s.position = 1024 * (u64)tile;
        s.column = 0;
        return s;
    }
    if (REACH == REACH_LAST4 || g.is_small) {
        u32 first = 256 * tile;
        if (reach_is_last(REACH)) {
            u32 groups = g.by_channels(32 * tile);
            s.channel = 32 * tile - groups * g.channels;
            first = 8 * groups;
        }
        u32 band = g.by_row(first);
        s.column = first - band * g.row;
        s.position = 4 * (u64)band * g.row;
        return s;
    }
    u64 first = 256 * (u64)tile;
    if (reach_is_last(REACH))
        first = 8 * g.long_by_channels(32 * (u64)tile, &s.channel);
    s.position = 4 * g.long_by_row(first, &s.column) * g.row;
    return s;
}

// How far behind its band's start a column lies that is `bands` bands further on.
__device__ __forceinline__ u32 rows_on(const Geometry &g, u32 column, u32 bands) {
    return column + bands * (3 * g.row);
}

// The position (row 0) of the column `offset` columns behind the tile's first.
__device__ __forceinline__ u64 column_position(const Geometry &g, const TileStart &s, u32 offset) {
    u32 column = s.column + offset;
    return s.position + rows_on(g, column, g.by_row(column));
}

// Where lane l of a tile starts: its channel, and how many columns its first column is behind the tile's.
struct LaneStart {
    u32 channel, offset;
};

template <int REACH> __device__ __forceinline__ LaneStart lane_start(const Geometry &g, const TileStart &s, u32 l) {
    if (!reach_is_last(REACH)) {
        LaneStart start = {0, 8 * l};
        return start;
    }
    u32 channel = s.channel + l, groups = g.by_channels(channel);
    LaneStart start = {channel - groups * g.channels, 8 * groups};
    return start;
}

// REACH_LAST4: column i of a thread's two, counted from the tile's first.
__device__ __forceinline__ u32 lane_column(const LaneStart &start, u32 lane, int i) {
    return start.offset + (lane >> 3) + 4 * i;
}

// REACH_LAST4: the index in the tensor of v[4 i][0].
__device__ __forceinline__ u32 last_index(const Geometry &g, const TileStart &s, u32 lane, int i) {
    const LaneStart start = lane_start<REACH_LAST4>(g, s, 4 * (lane & 7));
    return (u32)column_position(g, s, lane_column(start, lane, i)) * g.channels + start.channel;
}

// Where a thread's values are, REACH_LAST4.
struct FoundStart {
    u32 index[2]; // of v[0][0] and v[4][0] in the tensor
    static constexpr bool IS_FOUND = true;
};

// Where the tiles of a warp are that goes over them one after the other, FROM_LAST: from the last one on. Where
// channels come last (REACH_LAST4) and values have 16 bits that takes a few additions a tile. fp32 has no registers to
// spare for what is added to.
template <int REACH, bool IS_F32, bool FROM_LAST> struct WalkPlace {
    static constexpr bool STEPS = REACH == REACH_LAST4 && !IS_F32;
    typedef std::conditional_t<STEPS, FoundStart, TileStart> Start;
    u32 index;  // of v[0][0],
    u32 column; // and its place in its band

    // A step before the first tile.
    __device__ __forceinline__ WalkPlace(const Geometry &g, u32 first) {
        if (!STEPS)
            return;
        const u32 lane = threadIdx.x & 31;
        const TileStart s = tile_start<REACH>(g, first);
        const LaneStart start = lane_start<REACH>(g, s, 4 * (lane & 7));
        column = s.column + lane_column(start, lane, 0);
        column -= g.by_row(column) * g.row;
        index = (u32)column_position(g, s, lane_column(start, lane, 0)) * g.channels + start.channel;
        step<!FROM_LAST>(g);
    }

    // To be called for every tile.
    __device__ __forceinline__ Start go_to(const Geometry &g, u32 tile) {
        if constexpr (STEPS) {
            step<FROM_LAST>(g);
            const bool ends = column + 4 >= g.row; // rows have 8 columns or more
            return {{index, index + 4 * g.channels + (ends ? g.walk.carry : 0)}};
        } else {
            return tile_start<REACH>(g, tile);
        }
    }

    template <bool BACK> __device__ __forceinline__ void step(const Geometry &g) {
        const u32 to = BACK ? column - g.walk.columns : column + g.walk.columns;
        const bool ends = BACK ? column < g.walk.columns : to >= g.row;
        const u32 on = g.walk.index + (ends ? g.walk.carry : 0);
        column = !ends ? to : BACK ? to + g.row : to - g.row;
        index = BACK ? index - on : index + on;
    }
};

// Bytes of a word m of lane l (byte k: row k) that are values, 0xff each; padding is 0. For tiles that have padding.
template <int REACH> __device__ __forceinline__ u32 real_bytes(const Geometry &g, const TileStart &s, u32 l, u32 m) {
    const u32 column = s.column + lane_start<REACH>(g, s, l).offset + m, at = rows_on(g, column, g.by_row(column));
    const u64 left = g.positions - s.position; // a tile's own are counted in 32 bits
    const u32 end = (u32)(left < 0xffffffffu ? left : 0xffffffffu);
    u32 real = 0;
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (at + k * g.row < end)
            real |= 0xffu << 8 * k;
    return real;
}

// ---- a thread's values ----

// For v[a][e]: the index in the tensor of v[a][0] (or of v[a][e] where they are not side by side), and how many rows a
// counts. Calls `visit(a, e, index, position)` for every piece of reach_width values.
// Start: a TileStart, or a FoundStart, which does not know positions.
template <int REACH, class Start, class Visit>
__device__ __forceinline__ void for_pieces(const Geometry &g, u32 tile, const Start &s, u32 lane, Visit visit) {
    if constexpr (Start::IS_FOUND) {
#pragma unroll
        for (int a = 0; a < 8; a++)
            visit(a, 0, (u64)(s.index[a / 4] + a % 4 * (u32)g.stride), (u64)0);
    } else if (REACH == REACH_FLAT) {
        u64 at = 1024 * (u64)tile + 4 * lane;
#pragma unroll
        for (int j = 0; j < 8; j++)
            visit(j, 0, at + 128 * j, at + 128 * j);
    } else if (reach_is_row(REACH)) {
        constexpr int WIDTH = reach_width(REACH);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 column = s.column + 4 * (lane + 32 * i), bands = g.by_row(column), p = column - bands * g.row;
            u64 position = s.position + rows_on(g, column, bands);
#pragma unroll
            for (int e = 0; e < 4; e += WIDTH) {
#pragma unroll
                for (int k = 0; k < 4; k++)
                    visit(4 * i + k, e, position + (u64)k * g.row, position + (u64)k * g.row);
                p += WIDTH, position += WIDTH;
                if (WIDTH < 4 && p == g.row)
                    p = 0, position += 3 * (u64)g.row;
            }
        }
    } else if (REACH == REACH_LAST4) {
        LaneStart start = lane_start<REACH>(g, s, 4 * (lane & 7));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 position = (u32)column_position(g, s, lane_column(start, lane, i));
            u32 index = position * g.channels + start.channel;
#pragma unroll
            for (int k = 0; k < 4; k++)
                visit(4 * i + k, 0, (u64)(index + k * (u32)g.stride), (u64)(position + k * g.row));
        }
    } else {
        LaneStart start = lane_start<REACH>(g, s, lane);
#pragma unroll
        for (int m = 0; m < 8; m++) {
            u64 position = column_position(g, s, start.offset + m);
            u64 index = position * g.channels + start.channel;
#pragma unroll
            for (int k = 0; k < 4; k++)
                visit(m, k, index + k * g.stride, position + (u64)k * g.row);
        }
    }
}

// The tile's index i = 256 k + 8 l + m of v[a][e].
template <int REACH> __device__ __forceinline__ u32 tile_index(u32 lane, int a, int e) {
    if (REACH == REACH_FLAT) { // value r = 32 l + 8 k + m of the tile
        u32 r = 128 * a + 4 * lane + e;
        return (r & 24) << 5 | (r >> 5) << 3 | (r & 7);
    }
    if (reach_is_row(REACH))
        return 256 * (a & 3) + 4 * (lane + 32 * (a >> 2)) + e;
    if (REACH == REACH_LAST4)
        return 256 * (a & 3) + 8 * (4 * (lane & 7) + e) + (lane >> 3) + 4 * (a >> 2);
    return 256 * e + 8 * lane + a;
}

#endif
