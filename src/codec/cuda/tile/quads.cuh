// SPDX-License-Identifier: Apache-2.0
// A tile of maps in the order of memory: four values side by side, a quad, at a time. A quad lies in one map, or the
// first of its values in one and the others in the next. What a map's border cuts off a quad is its *rest*; a tile has
// few of them, one for each map but the first, and lanes do them on their own.
#ifndef COMET_CODEC_CUDA_TILE_QUADS_CUH
#define COMET_CODEC_CUDA_TILE_QUADS_CUH

#include "codec/cuda/tile/grid_table.cuh"

// Maps of fewer values may end twice in a quad; a table has no room for so many either.
enum { QUAD_LEAST_MAP = 3 };

static_assert((1024 - 1) / QUAD_LEAST_MAP + 1 > TABLE_MAPS, "a tile with a table has no smaller maps");

// The map of a quad's first value, counted from the tile's first, and how many values from there on lie in it.
struct QuadMap {
    u32 map, room;
};

// at: values of the tile's first map before the quad, and of the tile.
__device__ __forceinline__ QuadMap quad_map(const ChannelMap &map, u32 at) {
    const u32 i = map.by_inner(at);
    return {i, (i + 1) * map.by_inner.divisor - at};
}

// Where a map begins in a tile, whose first map has `skip` values before it; 0: there, or before.
__device__ __forceinline__ u32 map_begin(const ChannelMap &map, u32 skip, u32 number) {
    return number ? number * map.by_inner.divisor - skip : 0;
}

// How many lanes, a power of two, each of so many maps gets; as a shift.
__device__ __forceinline__ u32 lanes_a_map(u32 maps) {
    return maps > 16 ? 0 : __clz((int)(maps - 1)) - 27;
}

// Calls run(std::integral_constant<int, T>) for T = 0 .. ROUNDS - 1.
template <int ROUNDS, int T = 0, class Run> __device__ __forceinline__ void for_rounds(Run run) {
    if constexpr (T < ROUNDS) {
        run(std::integral_constant<int, T>());
        for_rounds<ROUNDS, T + 1>(run);
    }
}

// Which of a tile's two ends a quad may lie at, where values of other tiles are among its own.
enum QuadEnd { END_NONE, END_FIRST, END_LAST };

// The quads of a tile of REACH_FLAT: all its values, and no others.
struct FlatQuads {
    enum { ROUNDS = 8 }; // quads of each lane
    u64 first;           // index of the first quad
    u32 skip;            // values of the first map before it

    static __device__ __forceinline__ constexpr QuadEnd end_of(int) {
        return END_NONE;
    }
    __device__ __forceinline__ u32 count() const {
        return 32 * ROUNDS;
    }
    template <QuadEnd END> __device__ __forceinline__ u32 mine(const Geometry &, u32) const {
        return 15;
    }
    // Where a quad's word of codes lies in a warp's stage.
    static __device__ __forceinline__ u32 place(u32 quad) {
        return quad ^ (quad >> 3 & 4);
    }
};

#endif
