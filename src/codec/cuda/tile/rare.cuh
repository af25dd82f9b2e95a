// SPDX-License-Identifier: Apache-2.0
// Values of a tile one by one: where each lies in the tensor and which channel it has. For tiles that are not common.
#ifndef COMET_CODEC_CUDA_TILE_RARE_CUH
#define COMET_CODEC_CUDA_TILE_RARE_CUH

#include "codec/cuda/tile/exact.cuh"
#include "codec/cuda/tile/values.cuh"

// Where value i of the format's order lies, such that neither neighbours nor lanes meet in a bank.
__device__ __forceinline__ u32 rare_place(u32 i) {
    return i ^ (i >> 5 & 7);
}

// The value that a lane loads as its j-th: neighbours in memory.
template <int REACH> __device__ __forceinline__ u32 rare_index(u32 j, u32 lane) {
    return reach_is_last(REACH) ? 256 * (j >> 3) + 8 * lane + (j & 7) : 32 * j + lane;
}

// Where value i of a tile lies in the tensor.
struct RarePlace {
    u64 index;
    u32 channel; // where channels come last
    bool is_real;
};

template <int REACH> __device__ __forceinline__ RarePlace rare_place_of(const Geometry &g, const TileStart &s, u32 i) {
    const LaneStart l = lane_start<REACH>(g, s, i >> 3 & 31);
    const u64 position = column_position(g, s, l.offset + (i & 7)) + (u64)(i >> 8) * g.row;
    return {position * (reach_is_last(REACH) ? g.channels : 1) + l.channel, l.channel, position < g.positions};
}

// The channel of a value, as a grid counts them.
template <int REACH>
__device__ __forceinline__ u32 rare_channel(const TileChannels<REACH> &channels, const RarePlace &place) {
    return reach_is_last(REACH) ? place.channel : channels.of(0, place.index);
}

#endif
