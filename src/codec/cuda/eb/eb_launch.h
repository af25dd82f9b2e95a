// SPDX-License-Identifier: Apache-2.0
// The kernels of eb and zvc by dtype: one file each, so that they compile side by side.
#ifndef COMET_CODEC_CUDA_EB_LAUNCH_H
#define COMET_CODEC_CUDA_EB_LAUNCH_H

#include "codec/cuda/eb/eb_args.cuh"

extern "C" { // names that start with comet_

// `any`: the general kernel (other modes than rounding to nearest; an epilogue). dtype: of the tensor.
cudaError_t comet_eb_launch_compress_f32(Reach reach, bool any, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_compress_f16(Reach reach, bool any, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_compress_bf16(Reach reach, bool any, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_survey_f32(Reach reach, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_survey_f16(Reach reach, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_survey_bf16(Reach reach, const CompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_decompress_f32(Reach reach, bool any, const DecompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_decompress_f16(Reach reach, bool any, const DecompressArgs &args, cudaStream_t queue);
cudaError_t comet_eb_launch_decompress_bf16(Reach reach, bool any, const DecompressArgs &args, cudaStream_t queue);
}

// Calls CASE(reach) for the reach at hand.
#define EB_FOR_REACH(reach, CASE)                                                                                      \
    switch (reach) {                                                                                                   \
    case REACH_FLAT:                                                                                                   \
        return CASE(REACH_FLAT);                                                                                       \
    case REACH_ROW4:                                                                                                   \
        return CASE(REACH_ROW4);                                                                                       \
    case REACH_ROW2:                                                                                                   \
        return CASE(REACH_ROW2);                                                                                       \
    case REACH_ROW1:                                                                                                   \
        return CASE(REACH_ROW1);                                                                                       \
    case REACH_LAST4:                                                                                                  \
        return CASE(REACH_LAST4);                                                                                      \
    default:                                                                                                           \
        return CASE(REACH_LAST1);                                                                                      \
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

// A block a group; an empty tensor has no group, but its header and result are still written.
static inline dim3 eb_blocks(u64 groups) {
    return dim3((unsigned)(groups ? groups : 1));
}

#endif
