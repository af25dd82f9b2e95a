/* SPDX-License-Identifier: Apache-2.0 */
/* The two kinds of convolutions, between which depthwise.c decides. */
#ifndef COMET_TRAIN_CUDA_CONV_H
#define COMET_TRAIN_CUDA_CONV_H

#include "train/backend/cuda/base/backend_cuda.h"

/* Any convolution, through cuDNN. */
extern const comet_op_kernel comet_cuda_conv_cudnn;

#endif
