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

/*
 * dgamma and dbeta where the call wants them: the parameters' gradients, or places in call->scratch that are added to
 * them by comet_cuda_norm_gradients_end.
 */
typedef struct comet_cuda_norm_gradients {
    float *gamma, *beta;
} comet_cuda_norm_gradients;

comet_cuda_norm_gradients comet_cuda_norm_gradients_begin(const comet_op_call *call);
comet_status comet_cuda_norm_gradients_end(const comet_op_call *call, const comet_cuda_norm_gradients *made);

#endif
