/* SPDX-License-Identifier: Apache-2.0 */
/* Between the checks of comet/cuda_norm.h (norm_cuda.c) and its kernels (norm.cu). Arguments are checked. */
#ifndef COMET_CODEC_CUDA_NORM_IMPL_H
#define COMET_CODEC_CUDA_NORM_IMPL_H

#include "codec/cuda/cuda_impl.h"
#include "comet/cuda_norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* With a slot: job.params has the layer's grid; job.tensor is x. Without: only tensor and queue are set. */
typedef struct norm_forward_job {
    const comet_cuda_norm *norm;
    cuda_compress_job codec;
    void *y;
    const void *add; /* NULL: nothing is added */
    int has_slot;
    int has_y_slot;            /* only with has_slot: */
    cuda_compress_job y_codec; /* tensor is y */
} norm_forward_job;

/* codec.tensor is dx. From x: of the codec's part, params, slot, header and status are not set. */
typedef struct norm_backward_job {
    const comet_cuda_norm *norm;
    cuda_decompress_job codec;
    const void *x, *dy; /* x: NULL if there is a slot */
    float *dgamma, *dbeta;
    void *dz;                    /* NULL: the mask is u's own. Else, from y: */
    const void *y;               /* NULL: there is a stream, */
    cuda_decompress_job y_codec; /* of which tensor, workspace and queue are not set */
} norm_backward_job;

/* batch->norm is NULL or a copy that is as long as this library knows it. */
typedef struct norm_statistics_job {
    const comet_cuda_norm_batch *batch;
    const comet_tensor *x;
    uint8_t *workspace;
    cudaStream_t queue;
} norm_statistics_job;

/* Whether kernels can count the tensor's maps. */
int comet_norm_is_supported(const comet_tensor *tensor);

/* Workspace of a forward pass that keeps the stream of u, and that of y. */
size_t comet_norm_forward_workspace(const comet_tensor *tensor, int keeps_y);

/* Workspace of a backward pass on the current device. */
size_t comet_norm_workspace(const comet_tensor *tensor);

/* Workspace of comet_norm_statistics on the current device; 0: the tensor is larger than it supports. */
size_t comet_norm_statistics_workspace(const comet_tensor *tensor);

cudaError_t comet_norm_prepare(const comet_cuda_norm *norm, cudaStream_t queue);
cudaError_t comet_norm_statistics(const norm_statistics_job *job);
cudaError_t comet_norm_forward(const norm_forward_job *job);
cudaError_t comet_norm_backward(const norm_backward_job *job);

#ifdef __cplusplus
}
#endif

#endif
