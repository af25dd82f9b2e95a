// SPDX-License-Identifier: Apache-2.0
// The kernels of eb and zvc by dtype: one file each, so that they compile side by side.
#ifndef COMET_CODEC_CUDA_EB_LAUNCH_H
#define COMET_CODEC_CUDA_EB_LAUNCH_H

#include "codec/cuda/eb_args.cuh"

extern "C" { // names that start with comet_

// `any`: the general kernel (other modes than rounding to nearest; an epilogue). dtype: of the tensor.
cudaError_t comet_eb_launch_compress_f32(Reach reach, bool any, const CompressArgs &args, cudaStream_t stream);
cudaError_t comet_eb_launch_compress_f16(Reach reach, bool any, const CompressArgs &args, cudaStream_t stream);
cudaError_t comet_eb_launch_compress_bf16(Reach reach, bool any, const CompressArgs &args, cudaStream_t stream);
cudaError_t comet_eb_launch_survey_f32(Reach reach, const CompressArgs &args, cudaStream_t stream);
cudaError_t comet_eb_launch_survey_f16(Reach reach, const CompressArgs &args, cudaStream_t stream);
cudaError_t comet_eb_launch_survey_bf16(Reach reach, const CompressArgs &args, cudaStream_t stream);
cudaError_t comet_eb_launch_decompress_f32(Reach reach, bool any, const DecompressArgs &args, cudaStream_t stream);
cudaError_t comet_eb_launch_decompress_f16(Reach reach, bool any, const DecompressArgs &args, cudaStream_t stream);
cudaError_t comet_eb_launch_decompress_bf16(Reach reach, bool any, const DecompressArgs &args, cudaStream_t stream);
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

// A block a group, at most `most`; an empty tensor has no group, but its header and result are still written.
static inline dim3 eb_blocks(u64 groups, u64 most) {
    u64 blocks = groups < most ? groups : most;
    return dim3((unsigned)(blocks ? blocks : 1));
}

// As many blocks as the current device runs at once, `each` on a multiprocessor.
static inline u64 eb_resident_blocks(int each) {
    int device = 0, multiprocessors = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        multiprocessors = 1; // the launch will say what is wrong
    return (u64)multiprocessors * (u64)each;
}

// The blocks of a launch: as many as run at once, more where a block would have more than MOST_ROUNDS groups.
static inline dim3 eb_grid_of(u64 groups, int each) {
    u64 resident = eb_resident_blocks(each), least = (groups + MOST_ROUNDS - 1) / MOST_ROUNDS;
    return eb_blocks(groups, resident > least ? resident : least);
}

#endif
