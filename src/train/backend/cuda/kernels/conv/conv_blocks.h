/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A convolution with strides as one without, over blocks of pixels. A block is as high and as wide as a stride, and its
 * pixels' channels lie behind each other as the channels of one pixel: line by line of the block, in each line pixel by
 * pixel. Zeros follow up to a number of channels that kernels for tensor cores like. The first block begins where the
 * first window does, in the padding; whatever of a block lies beyond the image is zero. A filter becomes blocks in the
 * same way, with zeros where it has no taps. Memory of the device.
 */
#ifndef COMET_TRAIN_CUDA_CONV_BLOCKS_H
#define COMET_TRAIN_CUDA_CONV_BLOCKS_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "comet/status.h"
#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_cuda_conv_blocks {
    int stride;                                       /* of the convolution: the height and the width of a block */
    int channels, block_channels;                     /* of a pixel; of a block, a multiple of 16 bytes */
    int batch, height, width, padding, padding_width; /* of x, in pixels */
    int rows, columns;                                /* and blocks of an image of it */
    int out, kernel, kernel_width;                    /* of the filter, in pixels */
    int block_kernel, block_kernel_width;             /* and in blocks */
} comet_cuda_conv_blocks;

/* x: batch * rows * columns blocks of values of the dtype. */
comet_status comet_cuda_conv_block_pixels(const comet_cuda_conv_blocks *b, void *blocks, const void *x,
                                          comet_dtype dtype, cudaStream_t queue);

/* The filter: out * block_kernel * block_kernel_width blocks. */
comet_status comet_cuda_conv_block_filter(const comet_cuda_conv_blocks *b, void *blocks, const void *filter,
                                          comet_dtype dtype, cudaStream_t queue);

/*
 * The filter's gradient in fp32, written or, if `accumulate` is not 0, added to, from one in blocks of the dtype. What
 * blocks have where there is no tap is not looked at.
 */
comet_status comet_cuda_conv_unblock_gradient(const comet_cuda_conv_blocks *b, float *gradient, const void *blocks,
                                              comet_dtype dtype, int accumulate, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
