// SPDX-License-Identifier: Apache-2.0
// The kernels of eb and zvc by dtype: one file each, so that they compile side by side.
#ifndef COMET_CODEC_CUDA_EB_LAUNCH_H
#define COMET_CODEC_CUDA_EB_LAUNCH_H

#include "codec/cuda/eb/eb_args.cuh"
#include "codec/cuda/runtime.h"

extern "C" { // names that start with comet_

// By the dtype of the tensor. Reaches and modes go together as grid_reach_of and plain_reach_of (MODE_ANY) say. Where
// channels come last and are no multiple of 4 any mode becomes MODE_ANY.
cudaError_t comet_eb_launch_compress_f32(Reach reach, Mode mode, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_compress_f16(Reach reach, Mode mode, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_compress_bf16(Reach reach, Mode mode, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_survey_f32(Reach reach, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_survey_f16(Reach reach, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_survey_bf16(Reach reach, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_decompress_f32(Reach reach, Mode mode, const DecompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_decompress_f16(Reach reach, Mode mode, const DecompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_decompress_bf16(Reach reach, Mode mode, const DecompressArgs &args, cudaStream_t queue);

// Where every tile is stored exactly: zvc; compressing, also eb with a bound of 0. The tensor's dtype is the stream's.
cudaError_t comet_exact_launch_compress(Reach reach, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_exact_launch_decompress(Reach reach, const DecompressArgs &args, cudaStream_t queue);
}

// Calls CASE(reach) for the reach at hand of a tensor on a grid: grid_reach_of.
#define EB_FOR_GRID_REACH(reach, CASE)                                                                                 \
    switch (reach) {                                                                                                   \
    case REACH_SWEEP:                                                                                                  \
        return CASE(REACH_SWEEP);                                                                                      \
    case REACH_FLAT:                                                                                                   \
        return CASE(REACH_FLAT);                                                                                       \
    case REACH_ROW4:                                                                                                   \
        return CASE(REACH_ROW4);                                                                                       \
    case REACH_ROW1:                                                                                                   \
        return CASE(REACH_ROW1);                                                                                       \
    case REACH_LAST4:                                                                                                  \
        return CASE(REACH_LAST4);                                                                                      \
    default:                                                                                                           \
        return CASE(REACH_LAST1);                                                                                      \
    }

// The same of kernels that go value by value: plain_reach_of.
#define EB_FOR_PLAIN_REACH(reach, CASE)                                                                                \
    return reach == REACH_FLAT ? CASE(REACH_FLAT) : reach == REACH_ROW1 ? CASE(REACH_ROW1) : CASE(REACH_LAST1)

// The kernel KERNEL<reach, dtype, mode> of those there are.
#define EB_MODE_CASE(KERNEL, dtype, reach, mode) launch(KERNEL<reach, dtype, mode>, blocks, BLOCK_THREADS, queue, args)
#define EB_FOR_MODE(KERNEL, dtype, reach, mode)                                                                        \
    (mode == MODE_NEAREST ? EB_MODE_CASE(KERNEL, dtype, reach, MODE_NEAREST)                                           \
     : mode == MODE_KEEP  ? EB_MODE_CASE(KERNEL, dtype, reach, MODE_KEEP)                                              \
                          : EB_MODE_CASE(KERNEL, dtype, reach, MODE_GRID))
#define EB_FOR_EVERY_MODE(KERNEL, dtype, reach, mode)                                                                  \
    (mode == MODE_ANY ? EB_MODE_CASE(KERNEL, dtype, reach, MODE_ANY) : EB_FOR_MODE(KERNEL, dtype, reach, mode))
#define EB_FOR_REACH_AND_MODE(KERNEL, dtype, reach, mode)                                                              \
    switch (reach) {                                                                                                   \
    case REACH_FLAT:                                                                                                   \
        return EB_FOR_EVERY_MODE(KERNEL, dtype, REACH_FLAT, mode);                                                     \
    case REACH_ROW4:                                                                                                   \
        return EB_FOR_MODE(KERNEL, dtype, REACH_ROW4, mode);                                                           \
    case REACH_ROW2:                                                                                                   \
        return mode == MODE_NEAREST ? EB_MODE_CASE(KERNEL, dtype, REACH_ROW2, MODE_NEAREST)                            \
                                    : EB_MODE_CASE(KERNEL, dtype, REACH_ROW2, MODE_KEEP);                              \
    case REACH_ROW1:                                                                                                   \
        return EB_FOR_EVERY_MODE(KERNEL, dtype, REACH_ROW1, mode);                                                     \
    case REACH_LAST4:                                                                                                  \
        return EB_FOR_MODE(KERNEL, dtype, REACH_LAST4, mode);                                                          \
    case REACH_SWEEP:                                                                                                  \
        return EB_MODE_CASE(KERNEL, dtype, REACH_SWEEP, MODE_GRID);                                                    \
    default:                                                                                                           \
        return EB_MODE_CASE(KERNEL, dtype, REACH_LAST1, MODE_ANY);                                                     \
    }

static inline u64 eb_payload_start(u64 groups) {
    return (STREAM_HEADER_BYTES + GROUP_BYTES * groups + 15) / 16 * 16;
}

// Where the stream to be decoded lies; a->groups is known.
static inline void eb_set_slot(DecompressArgs *a, const comet_cuda_slot &slot) {
    a->base = (const u8 *)slot.base;
    a->capacity = slot.capacity;
    a->table_end = STREAM_HEADER_BYTES + GROUP_BYTES * a->groups;
    a->has_room = a->capacity >= a->table_end;
    a->last_start = a->has_room ? a->capacity - a->table_end : 0;
    a->start = slot.start;
    a->result = slot.result;
}

// As many blocks as the current device runs at once, `each` on a multiprocessor.
static inline u64 eb_resident_blocks(int each) {
    return (u64)comet_cuda_multiprocessors() * (u64)each;
}

static inline u64 eb_greatest_divisor(u64 a, u64 b) {
    while (b) {
        u64 rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Blocks that go over groups: as many as run at once, more where one would have more than MOST_ROUNDS groups; where
// channels come last, such that a warp finds the same ones in all of its tiles. An empty tensor has one.
static inline u64 eb_walk_blocks(u64 groups, Reach reach, u64 channels, int each) {
    u64 resident = eb_resident_blocks(each), least = (groups + MOST_ROUNDS - 1) / MOST_ROUNDS;
    u64 blocks = resident > least ? resident : least;
    if (groups <= blocks)
        return groups ? groups : 1;
    if (!reach_is_last(reach))
        return blocks;
    u64 period = channels / eb_greatest_divisor(channels, 32 * GROUP_TILES);
    blocks = blocks / period * period;
    if (blocks < least || blocks == 0)
        blocks = (least + period - 1) / period * period;
    return blocks < groups ? blocks : groups;
}

// The same for a kernel that decompresses, with the step from tile to tile.
static inline dim3 eb_walk(DecompressArgs &args, Reach reach, int each) {
    const u64 blocks = eb_walk_blocks(args.groups, reach, args.geometry.channels, each);
    args.geometry.walk = walk_step(args.geometry, blocks * GROUP_TILES);
    return dim3((unsigned)blocks);
}

// A block a group; an empty tensor has no group, but its header and result are still written.
static inline dim3 eb_blocks(u64 groups) {
    return dim3((unsigned)(groups ? groups : 1));
}

#endif
