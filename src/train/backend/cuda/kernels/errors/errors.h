/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the errors of a few kept channels do to gradients (train/backend/errors.h): its calls as launches. All pointers
 * are the device's, sums are made in an order that shapes alone decide, and no launch asks the host anything.
 *
 * What a call reads is a few neighbouring channels of each pixel: the memory's units that they lie in, 32 bytes each,
 * whatever the dtype. A pixel (row) of a tensor is so one unit, or two where channels lie across two of them; what is
 * kept, and errors, are 4 bytes a value. With R rows and W (2 to 8) channels:
 *
 *     keep    reads 32 R, writes 4 W R
 *     norm    reads (64 + 4 W) R for the sums, the same for the error, which writes 4 W R; a SiLU behind it: + 4 W R
 *     silu    reads (64 + 4 W) R, writes 4 W R
 *     scale   reads (64 + 4 W) R
 *     layer   reads (32 + 4 W) R of the errors and 32 to 64 bytes a row of the other side, at each tap, of which all
 *             but the first come from the cache, where an image or two of them fit
 */
#ifndef COMET_TRAIN_CUDA_KERNELS_ERRORS_H
#define COMET_TRAIN_CUDA_KERNELS_ERRORS_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* At most so many channels are kept, and so many sums of a layer are wanted. */
enum { COMET_CUDA_ERRORS_WIDTH = 8, COMET_CUDA_ERRORS_SUMS = 512 };

/* Of each call that has one: sums of blocks, before they are added. */
enum { COMET_CUDA_ERRORS_WORKSPACE = 1 << 18 };

typedef enum comet_cuda_errors_act {
    COMET_CUDA_ERRORS_NOTHING,
    COMET_CUDA_ERRORS_RELU,
    COMET_CUDA_ERRORS_SILU
} comet_cuda_errors_act;

/* Kept channels first .. first + width - 1, and what is made of them: act(gamma v + beta) times a factor. */
typedef struct comet_cuda_errors_operand {
    const float *values; /* rows x width */
    int first, width;
    const float *gamma, *beta; /* by channel of the tensor; NULL: v itself */
    comet_cuda_errors_act act;
    const float *factors; /* images x width; NULL: 1 */
} comet_cuda_errors_operand;

/* scale and shift may be NULL: 1 and 0. */
typedef struct comet_cuda_errors_keep {
    comet_dtype dtype;
    const void *values;
    const float *scale, *shift;
    int64_t rows, channels;
    int first, width;
    float *kept;
} comet_cuda_errors_keep;

cudaError_t comet_cuda_launch_errors_keep(const comet_cuda_errors_keep *job, cudaStream_t queue);

/* sums[(tap * count + i) * others + j]: set, not added to. */
typedef struct comet_cuda_errors_layer {
    comet_dtype dtype;
    const void *x, *dy;
    int64_t images;
    int x_size[2], dy_size[2], x_channels, dy_channels;
    int kernel[2], padding[2], stride, groups;
    comet_cuda_errors_operand of; /* x is compared with this; or its values are the errors, of dy */
    int is_exact;                 /* the former */
    int count, other, others;
    double *workspace, *sums;
} comet_cuda_errors_layer;

cudaError_t comet_cuda_launch_errors_layer(const comet_cuda_errors_layer *job, cudaStream_t queue);

typedef struct comet_cuda_errors_norm {
    comet_dtype dtype;
    const void *x, *dy;
    int64_t channels, first_row, rows, all_rows; /* rows: of the part */
    const float *scale, *shift, *gamma, *beta;
    int normalised, relu;
    const uint8_t *mask;
    const float *kept;
    int first, width, kept_normalised;
    const float *curve;
    double *totals, *workspace;
    double *scale_errors; /* by kept channel: set when sums are made; NULL: not wanted */
    float *error;
} comet_cuda_errors_norm;

cudaError_t comet_cuda_launch_errors_norm_sums(const comet_cuda_errors_norm *job, cudaStream_t queue);
cudaError_t comet_cuda_launch_errors_norm(const comet_cuda_errors_norm *job, cudaStream_t queue);

typedef struct comet_cuda_errors_silu {
    comet_dtype dtype;
    const void *x, *dy;
    int64_t rows, channels;
    comet_cuda_errors_operand exact;
    float sign, *curve;
} comet_cuda_errors_silu;

cudaError_t comet_cuda_launch_errors_silu(const comet_cuda_errors_silu *job, cudaStream_t queue);

typedef struct comet_cuda_errors_scale {
    comet_dtype dtype;
    const void *x, *factors, *dy;
    int64_t images, pixels, channels;
    comet_cuda_errors_operand exact;
    float *error;
} comet_cuda_errors_scale;

cudaError_t comet_cuda_launch_errors_scale(const comet_cuda_errors_scale *job, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
