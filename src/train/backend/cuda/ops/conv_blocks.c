/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/ops/conv_blocks.h"

#include "comet/tensor.h"

/* Products for an output value. */
static int64_t products(const comet_cudnn_conv *c) {
    return (int64_t)c->kernel * c->kernel_width * c->channels;
}

static int32_t rounded(int32_t number, int32_t unit) {
    return (number + unit - 1) / unit * unit;
}

/*
 * Windows move by a block where they moved by a stride. They begin in the padding, which x's blocks have in them, and
 * the last one's end is the end of x.
 */
static comet_cudnn_conv over_blocks(const comet_cudnn_conv *c, int channels) {
    const int32_t s = c->stride, unit = 16 / (int32_t)comet_dtype_size((comet_dtype)c->dtype);
    comet_cudnn_conv b = *c;
    int64_t y[4];
    comet_cudnn_extents(c, COMET_CUDNN_Y, y);
    b.kernel = rounded(c->kernel, s) / s;
    b.kernel_width = rounded(c->kernel_width, s) / s;
    b.height = (int32_t)y[2] + b.kernel - 1;
    b.width = (int32_t)y[3] + b.kernel_width - 1;
    b.channels = rounded(s * s * channels, unit);
    b.stride = 1;
    b.padding = b.padding_width = 0;
    return b;
}

int comet_cuda_conv_blocks_of(const comet_cudnn_conv *padded, int channels, comet_cuda_conv_blocks *blocks,
                              comet_cudnn_conv *blocked) {
    const comet_cudnn_conv *c = padded;
    if (c->groups > 1 || c->stride < 2 || c->channels == channels || c->kernel < c->stride ||
        c->kernel_width < c->stride)
        return 0;
    const comet_cudnn_conv b = over_blocks(c, channels);
    if (products(&b) > products(c))
        return 0;
    *blocked = b;
    *blocks = (comet_cuda_conv_blocks){.stride = c->stride,
                                       .channels = channels,
                                       .block_channels = b.channels,
                                       .batch = c->batch,
                                       .height = c->height,
                                       .width = c->width,
                                       .padding = c->padding,
                                       .padding_width = c->padding_width,
                                       .rows = b.height,
                                       .columns = b.width,
                                       .out = c->out,
                                       .kernel = c->kernel,
                                       .kernel_width = c->kernel_width,
                                       .block_kernel = b.kernel,
                                       .block_kernel_width = b.kernel_width};
    return 1;
}
