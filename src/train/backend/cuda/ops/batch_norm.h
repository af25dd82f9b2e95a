/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norms over comet/cuda_norm.h: the pieces that the op and the holder share. A norm's side data are four tables
 * of its channels: 1 / sigma and the shift, as on the CPU, then the mean and the threshold of its ReLU.
 */
#ifndef COMET_TRAIN_CUDA_BATCH_NORM_H
#define COMET_TRAIN_CUDA_BATCH_NORM_H

#include "comet/cuda_norm.h"
#include "train/backend/cuda/base/backend_cuda.h"

/* The layer as libcomet knows it, with tables in call->side. */
comet_cuda_norm comet_cuda_norm_of(const comet_op_call *call);

/* A value of the batch in device memory. */
comet_tensor comet_cuda_tensor(const comet_op_call *call, comet_value v, const void *data);

/* How libcomet's calls are made: the backend's queue and workspace. */
comet_codec_exec comet_cuda_exec(const comet_backend_cuda *backend);

/* Of call->x[0], into call->side, and moves the running ones. */
comet_status comet_cuda_batch_statistics(const comet_op_call *call);

/* call->mask of a norm's output that is there, if one is wanted. */
comet_status comet_cuda_norm_mask(const comet_op_call *call);

/*
 * Backward with a mask: what the ReLU lets through first (into dadd, or dx's place), then a norm without one: `call` is
 * changed to that.
 */
comet_status comet_cuda_norm_unmask(comet_op_call *call);

/* What a backward pass reads: streams, or NULL where call->x[0] and call->y are there. */
typedef struct comet_cuda_norm_source {
    const comet_cuda_slot *stream; /* of the input */
    const comet_codec_params *codec;
    const comet_cuda_slot *output; /* with a sum and its ReLU: of the output */
    const comet_codec_params *output_codec;
    int32_t *status; /* of decoding */
} comet_cuda_norm_source;

comet_status comet_cuda_norm_back(const comet_op_call *call, const comet_cuda_norm_source *source);

#endif
