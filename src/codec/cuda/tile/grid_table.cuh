// SPDX-License-Identifier: Apache-2.0
// Numbers of channels that a tile's values need: made once by the lanes of a warp, kept in shared memory, and handed to
// every value of a thread.
#ifndef COMET_CODEC_CUDA_GRID_TABLE_CUH
#define COMET_CODEC_CUDA_GRID_TABLE_CUH

#include "codec/cuda/tile/values.cuh"

// Four numbers of each of a tile's 32 lanes, or of so many maps.
enum { TABLE_NUMBERS = 4, TABLE_MAPS = 64, TABLE_WORDS = TABLE_NUMBERS * TABLE_MAPS };

// From a table to a second one.
constexpr __host__ __device__ int table_words(int reach) {
    return reach_is_last(reach) ? 32 * TABLE_NUMBERS : (int)TABLE_WORDS;
}

// ---- the maps of a tile ----

// Which maps a tile touches, and how they lie in it. For C = 1.
struct TileMaps {
    u64 first;   // index of its least value
    u32 skip;    // values of the first map that lie before it
    u32 span;    // from the least index to the greatest, both counted
    u32 count;   // of maps
    bool is_one; // all values of the tensor have the same channel
    u32 channel; // of the first map
};

// The channel of the first map, and how much of it lies before the tile.
__device__ __forceinline__ void find_map(const Geometry &g, const ChannelMap &map, TileMaps &m) {
    m.skip = m.channel = 0;
    if (g.positions >> 31 == 0) { // one multiplication each
        const u32 first = (u32)m.first, run = map.by_inner(first);
        m.skip = first - run * map.by_inner.divisor;
        m.channel = run - map.by_channels(run) * map.channels;
        return;
    }
    u64 run = m.first;
    if (map.by_inner.divisor > 1)
        run = map.long_by_inner(m.first, &m.skip);
    if (!m.is_one)
        map.long_by_channels(run, &m.channel);
}

template <int REACH>
__device__ __forceinline__ TileMaps tile_maps(const Geometry &g, const ChannelMap &map, const TileStart &s) {
    TileMaps m;
    m.first = s.position + s.column;
    m.is_one = map.channels == 1;
    const u64 last = REACH == REACH_FLAT ? m.first + 1023 : column_position(g, s, 255) + 3 * (u64)g.row;
    find_map(g, map, m);
    u64 end = g.positions - 1; // padding is behind the tensor's end
    m.span = (u32)((last < end ? last : end) - m.first) + 1;
    m.count = m.is_one ? 1 : map.by_inner(m.skip + m.span - 1) + 1;
    return m;
}

__device__ __forceinline__ u32 channel_of_map(const ChannelMap &map, const TileMaps &m, u32 number) {
    u32 run = m.channel + number;
    return run - map.by_channels(run) * map.channels;
}

// ---- the table ----

// Four numbers of a lane's channel, where channels come last.
__device__ __forceinline__ void put_lane_numbers(float *table, u32 lane, const float4 &n) {
    table[lane] = n.x, table[32 + lane] = n.y, table[64 + lane] = n.z, table[96 + lane] = n.w;
}

// Two numbers, where no others are read.
__device__ __forceinline__ void put_lane_pair(float *table, u32 lane, const float2 &n) {
    table[lane] = n.x, table[32 + lane] = n.y;
}

// make(channel) gives four numbers. For tiles without padding whose maps are known; by the whole warp.
template <int REACH, class Make>
__device__ __forceinline__ void fill_table(const Geometry &g, const ChannelMap &map, const TileStart &s, u32 lane,
                                           float *table, const TileMaps &maps, Make make) {
    if (reach_is_last(REACH)) {
        float4 n = make(lane_start<REACH>(g, s, lane).channel);
        put_lane_numbers(table, lane, n);
    } else {
        for (u32 i = lane; i < maps.count; i += 32)
            ((float4 *)table)[i] = make(channel_of_map(map, maps, i));
    }
    __syncwarp();
}

// The same, which finds the maps. False: there are too many.
template <int REACH, class Make>
__device__ __forceinline__ bool make_table(const Geometry &g, const ChannelMap &map, const TileStart &s, u32 lane,
                                           float *table, TileMaps &maps, Make make) {
    if (!reach_is_last(REACH)) {
        maps = tile_maps<REACH>(g, map, s);
        if (maps.count > TABLE_MAPS || !map.is_near)
            return false;
    }
    fill_table<REACH>(g, map, s, lane, table, maps, make);
    return true;
}

// Numbers of two of the four channels of a thread where channels come last, 2 h and 2 h + 1.
__device__ __forceinline__ void read_table(const float *table, u32 lane, int h, float4 (&n)[2]) {
    const float2 *pairs = (const float2 *)table + 2 * (lane & 7) + h;
    const float2 x = pairs[0], y = pairs[16], z = pairs[32], w = pairs[48];
    n[0] = make_float4(x.x, y.x, z.x, w.x), n[1] = make_float4(x.y, y.y, z.y, w.y);
}

// Those of a lane of the tile.
__device__ __forceinline__ float4 lane_numbers(const float *table, u32 lane) {
    return make_float4(table[lane], table[32 + lane], table[64 + lane], table[96 + lane]);
}

// Channels come last: SIDE (2 or 4) of them at a time: few numbers in registers, or what becomes of a piece soon done.
template <int TABLES, int SIDE, class Start, class Visit, class Behind>
__device__ __forceinline__ void for_last_numbers(const Geometry &g, const float *table, u32 tile, const Start &s,
                                                 u32 lane, Visit visit, Behind behind) {
#pragma unroll
    for (int h = 0; h < 4 / SIDE; h++) {
        float4 n[SIDE / 2][2], others[SIDE / 2][2] = {};
#pragma unroll
        for (int i = 0; i < SIDE / 2; i++) {
            read_table(table, lane, h * SIDE / 2 + i, n[i]);
            if (TABLES == 2)
                read_table(table + table_words(REACH_LAST4), lane, h * SIDE / 2 + i, others[i]);
        }
        for_pieces<REACH_LAST4>(g, tile, s, lane, [&](int a, int e, u64 index, u64) {
#pragma unroll
            for (int i = 0; i < SIDE; i++)
                visit(a, SIDE * h + i, n[i / 2][i % 2], others[i / 2][i % 2], index + SIDE * h + i);
            if (SIDE == 4)
                behind(a, e, index);
        });
    }
    if (SIDE == 2)
        for_pieces<REACH_LAST4>(g, tile, s, lane, [&](int a, int e, u64 index, u64) { behind(a, e, index); });
}

// Calls visit(a, e, numbers, others, index) for every value of a thread, and behind(a, e, index) after each piece;
// others: of a second table behind the first (TABLES = 2).
template <int REACH, int TABLES, int SIDE = 2, class Start, class Visit, class Behind>
__device__ __forceinline__ void for_numbers(const Geometry &g, const ChannelMap &map, const TileMaps &maps,
                                            const float *table, u32 tile, const Start &s, u32 lane, Visit visit,
                                            Behind behind) {
    if constexpr (REACH == REACH_LAST4) {
        for_last_numbers<TABLES, SIDE>(g, table, tile, s, lane, visit, behind);
        return;
    }
    constexpr int WIDTH = reach_width(REACH);
    float4 n = {}, others = {};
    if (REACH == REACH_LAST1) {
        n = lane_numbers(table, lane);
        if (TABLES == 2)
            others = lane_numbers(table + table_words(REACH), lane);
    }
    auto read = [&](u32 i) {
        n = ((const float4 *)table)[i];
        if (TABLES == 2)
            others = ((const float4 *)(table + table_words(REACH)))[i];
    };
    auto turn = [&](u64 index) { read(map.by_inner(maps.skip + (u32)(index - maps.first))); };
    // values side by side may lie in two maps; the four rows of a band do not if maps are whole bands
    const bool is_split = REACH == REACH_FLAT && !maps.is_one && map.by_inner.divisor % 4 != 0;
    if (!reach_is_last(REACH))
        read(0);
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64) {
        if (!reach_is_last(REACH) && !maps.is_one && (REACH == REACH_FLAT || a % 4 == 0 || !map.has_bands))
            turn(index);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            if (REACH == REACH_FLAT && i > 0 && is_split)
                turn(index + i);
            visit(a, e + i, n, others, index + i);
        }
        behind(a, e, index);
    });
}

#endif
