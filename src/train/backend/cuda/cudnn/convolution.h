/* SPDX-License-Identifier: Apache-2.0 */
/* One convolution as cuDNN's graph of one operation. */
#ifndef COMET_TRAIN_CUDA_CUDNN_CONVOLUTION_H
#define COMET_TRAIN_CUDA_CUDNN_CONVOLUTION_H

#include "train/backend/cuda/cudnn/descriptors.h"

typedef enum comet_cudnn_way {
    COMET_CUDNN_FORWARD,   /* y of x and filter */
    COMET_CUDNN_BY_INPUT,  /* dx of filter and dy */
    COMET_CUDNN_BY_FILTER, /* dw of x and dy */
    COMET_CUDNN_ADD_INPUT, /* as BY_INPUT, added to what is in dx */
    COMET_CUDNN_WAYS
} comet_cudnn_way;

/*
 * Activations are NHWC, filters out x height x width x (channels / groups), all of one dtype; sums are fp32. Numbers
 * alone, of one type: two are the same if their bytes are, and text is made of them one by one.
 */
typedef struct comet_cudnn_conv {
    int32_t way, dtype;
    int32_t batch, height, width, channels; /* of x */
    int32_t out, kernel, kernel_width, stride, padding, padding_width, groups;
} comet_cudnn_conv;

enum { COMET_CUDNN_CONV_NUMBERS = 13 };

/* The three tensors, in every way in this order; gradients are in the place of what they are the gradient of. */
enum { COMET_CUDNN_X, COMET_CUDNN_W, COMET_CUDNN_Y, COMET_CUDNN_TENSORS };

/* How a variant pack calls one of them. */
static inline int64_t comet_cudnn_tensor_name(int tensor) {
    return tensor + 1;
}

/* Which of the three is written. */
static inline int comet_cudnn_result(const comet_cudnn_conv *conv) {
    return conv->way == COMET_CUDNN_FORWARD     ? COMET_CUDNN_Y
           : conv->way == COMET_CUDNN_BY_FILTER ? COMET_CUDNN_W
                                                : COMET_CUDNN_X;
}

/* Extents of one of the tensors, as cuDNN counts them: n, c, h, w or k, c, r, s. */
void comet_cudnn_extents(const comet_cudnn_conv *conv, int tensor, int64_t extents[4]);

size_t comet_cudnn_tensor_bytes(const comet_cudnn_conv *conv, int tensor);

/* The finished graph; descriptors are owned by `d`. */
cudnnBackendDescriptor_t comet_cudnn_conv_graph(comet_cudnn_descriptors *d, cudnnHandle_t handle,
                                                const comet_cudnn_conv *conv);

#endif
