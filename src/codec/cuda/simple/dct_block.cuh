// SPDX-License-Identifier: Apache-2.0
// dct: the transforms of codec/simple/dct_block.h, one row or column of a block a thread, and the work of a CUDA block
// on a chunk of 128 blocks. In a sweep 256 threads do 32 blocks: first (compressing; last when decompressing) a thread
// has a column of the tensor's values, then a row of coefficients of one vertical frequency.
#ifndef COMET_CODEC_CUDA_DCT_BLOCK_CUH
#define COMET_CODEC_CUDA_DCT_BLOCK_CUH

#include "codec/cuda/simple/dct_shape.cuh"

constexpr int DCT_THREADS = 256;
constexpr int DCT_SWEEP = DCT_THREADS / DCT_SIDE; // blocks
constexpr int DCT_SWEEPS = DCT_CHUNK / DCT_SWEEP;
constexpr int DCT_PITCH = 72; // of a block's 64 values between the two passes: no two threads of a warp meet in a bank

constexpr int K1 = 11363, K2 = 10703, K3 = 9633, K4 = 8192, K5 = 6436, K6 = 4433, K7 = 2260;

struct dct_chunk {
    u64 mask[DCT_CHUNK];
    u32 place[DCT_CHUNK]; // of a block's first value among those of the chunk
    u32 of_warps[DCT_CHUNK / 32];
    u32 values; // of the chunk
    u8 coefficient[DCT_CHUNK][64];
    alignas(16) int16_t turned[DCT_SWEEP][DCT_PITCH]; // [8 u + x]; wide loads take no bytes of what lies before
};

// ---- arithmetic ----

// to[u] = sum over y of M[u][y] from[y]
__device__ __forceinline__ void forward_pass(const int (&from)[8], int (&to)[8]) {
    int s0 = from[0] + from[7], d0 = from[0] - from[7], s1 = from[1] + from[6], d1 = from[1] - from[6];
    int s2 = from[2] + from[5], d2 = from[2] - from[5], s3 = from[3] + from[4], d3 = from[3] - from[4];
    int a = s0 + s3, b = s1 + s2, c = s0 - s3, e = s1 - s2;
    to[0] = K4 * (a + b);
    to[4] = K4 * (a - b);
    to[2] = K2 * c + K6 * e;
    to[6] = K6 * c - K2 * e;
    to[1] = K1 * d0 + K3 * d1 + K5 * d2 + K7 * d3;
    to[3] = K3 * d0 - K7 * d1 - K1 * d2 - K5 * d3;
    to[5] = K5 * d0 - K1 * d1 + K7 * d2 + K3 * d3;
    to[7] = K7 * d0 - K5 * d1 + K3 * d2 - K1 * d3;
}

// to[x] = sum over v of M[v][x] from[v]
__device__ __forceinline__ void inverse_pass(const int (&from)[8], int (&to)[8]) {
    int p = K4 * (from[0] + from[4]), q = K4 * (from[0] - from[4]);
    int r = K2 * from[2] + K6 * from[6], t = K6 * from[2] - K2 * from[6];
    int e0 = p + r, e1 = q + t, e2 = q - t, e3 = p - r;
    int o0 = K1 * from[1] + K3 * from[3] + K5 * from[5] + K7 * from[7];
    int o1 = K3 * from[1] - K7 * from[3] - K1 * from[5] - K5 * from[7];
    int o2 = K5 * from[1] - K1 * from[3] + K7 * from[5] + K3 * from[7];
    int o3 = K7 * from[1] - K5 * from[3] + K3 * from[5] - K1 * from[7];
    to[0] = e0 + o0, to[7] = e0 - o0;
    to[1] = e1 + o1, to[6] = e1 - o1;
    to[2] = e2 + o2, to[5] = e2 - o2;
    to[3] = e3 + o3, to[4] = e3 - o3;
}

__device__ __forceinline__ int16_t turn(int v) {
    return (int16_t)min(max((v + (1 << 8)) >> 9, -32768), 32767);
}

// The base-2 logarithm of the divisor of coefficient (u, v), which is 8, 16 or 32.
__device__ __forceinline__ int divisor_bits(u32 table, int u, int v) {
    if (table == 0 || u + v == 0)
        return 3;
    return u + v < 8 ? 5 : 4;
}

// s / (2^20 divisor), towards zero.
__device__ __forceinline__ int quantise(int s, int bits) {
    int whole = (s + (s >> 31 & ((1 << 23) - 1))) >> 23;
    return whole < 0 ? -(-whole >> (bits - 3)) : whole >> (bits - 3);
}

// ---- who does what in a sweep ----

// A thread's column of the tensor. Neighbouring threads have neighbouring memory: columns of a block and of the next
// one, or (NHWC) blocks of neighbouring channels.
struct dct_column {
    u32 in_sweep; // block of the sweep
    u32 x;        // column of the block
    bool there;   // not behind the last block
    u64 block_row, block_column, channel;
};

__device__ __forceinline__ dct_column column_of(const dct_shape &s, u64 first_block) {
    dct_column c;
    c.in_sweep = s.inner == 1 ? threadIdx.x / DCT_SIDE : threadIdx.x % DCT_SWEEP;
    c.x = s.inner == 1 ? threadIdx.x % DCT_SIDE : threadIdx.x / DCT_SWEEP;
    u64 block = first_block + c.in_sweep;
    c.there = block < s.blocks;
    quotient place = split(c.there ? block : s.blocks - 1, s.by_inner), row = split(place.of, s.by_columns);
    c.block_row = row.of, c.block_column = row.rest, c.channel = place.rest;
    return c;
}

// The channel of row y of the block, or of the last row if it lies behind that.
__device__ __forceinline__ u64 channel_of(const dct_shape &s, const dct_column &c, u32 y) {
    if (s.inner > 1)
        return c.channel;
    return split(divide(min(c.block_row * DCT_SIDE + y, s.rows - 1), s.by_channel_rows), s.by_channels).rest;
}

// ---- masks ----

// place and values from mask. The block's first 128 threads have a block each; all threads call it.
__device__ __forceinline__ void place_values(dct_chunk &k) {
    u32 i = threadIdx.x, lane = i % 32, mine = 0, sum = 0;
    if (i < DCT_CHUNK) {
        mine = sum = (u32)__popcll(k.mask[i]);
        for (int apart = 1; apart < 32; apart *= 2) {
            u32 before = __shfl_up_sync(ALL_LANES, sum, apart);
            sum += lane >= (u32)apart ? before : 0;
        }
        if (lane == 31)
            k.of_warps[i / 32] = sum;
    }
    __syncthreads();
    if (i < DCT_CHUNK) {
        for (u32 w = 0; w < i / 32; w++)
            sum += k.of_warps[w];
        k.place[i] = sum - mine;
        if (i == DCT_CHUNK - 1)
            k.values = sum;
    }
    __syncthreads();
}

// How many bits of the mask are set below bit i.
__device__ __forceinline__ u32 rank_of(u64 mask, u32 i) {
    return (u32)__popcll(mask & (((u64)1 << i) - 1));
}

#endif
