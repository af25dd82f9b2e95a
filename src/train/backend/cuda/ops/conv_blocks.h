/* SPDX-License-Identifier: Apache-2.0 */
/* Which convolutions are computed over blocks of pixels, and what they are then. */
#ifndef COMET_TRAIN_CUDA_OPS_CONV_BLOCKS_H
#define COMET_TRAIN_CUDA_OPS_CONV_BLOCKS_H

#include "train/backend/cuda/cudnn/convolution.h"
#include "train/backend/cuda/kernels/conv/conv_blocks.h"

/*
 * Of a convolution with padded channels, of which x has `channels`: 1 if it shall be computed over blocks; `blocked` is
 * that convolution, with the same y, and `blocks` how x and filter come there. 0: it stays as it is.
 *
 * Blocks are for few channels, which are padded anyway, and for strides, with windows that leave no gaps; and they must
 * not take more products than padded channels do, zeros included. Where they take no more, as the 7x7 filters of
 * ResNets and the 11x11 ones of AlexNet, there is less to read, too, and cuDNN has kernels for tensor cores that need
 * no workspace; where they take more, as those of 3x3 in fp32, it has these for padded channels, too (the numbers are
 * in bench/results/cudnn.md).
 */
int comet_cuda_conv_blocks_of(const comet_cudnn_conv *padded, int channels, comet_cuda_conv_blocks *blocks,
                              comet_cudnn_conv *blocked);

#endif
