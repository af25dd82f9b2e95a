/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/cudnn/convolution.h"

#include <string.h>

#include "comet/tensor.h"

_Static_assert(sizeof(comet_cudnn_conv) == COMET_CUDNN_CONV_NUMBERS * sizeof(int32_t), "no gaps, all of one type");

void comet_cudnn_extents(const comet_cudnn_conv *conv, int tensor, int64_t extents[4]) {
    const int64_t height = (conv->height + 2 * (int64_t)conv->padding - conv->kernel) / conv->stride + 1;
    const int64_t width = (conv->width + 2 * (int64_t)conv->padding_width - conv->kernel_width) / conv->stride + 1;
    const int64_t all[COMET_CUDNN_TENSORS][4] = {
        [COMET_CUDNN_X] = {conv->batch, conv->channels, conv->height, conv->width},
        [COMET_CUDNN_W] = {conv->out, conv->channels / conv->groups, conv->kernel, conv->kernel_width},
        [COMET_CUDNN_Y] = {conv->batch, conv->out, height, width},
    };
    memcpy(extents, all[tensor], sizeof all[tensor]);
}

size_t comet_cudnn_tensor_bytes(const comet_cudnn_conv *conv, int tensor) {
    int64_t e[4];
    comet_cudnn_extents(conv, tensor, e);
    return (size_t)(e[0] * e[1] * e[2] * e[3]) * comet_dtype_size((comet_dtype)conv->dtype);
}

static cudnnDataType_t data_type(int32_t dtype) {
    return dtype == COMET_F32 ? CUDNN_DATA_FLOAT : dtype == COMET_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

/* Channels last, and of filters those of the input. */
static cudnnBackendDescriptor_t make_tensor(comet_cudnn_descriptors *d, const comet_cudnn_conv *conv, int tensor) {
    int64_t e[4];
    comet_cudnn_extents(conv, tensor, e);
    const cudnnDataType_t type = data_type(conv->dtype);
    const int64_t strides[4] = {e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]};
    const int64_t name = comet_cudnn_tensor_name(tensor), alignment = 16;
    cudnnBackendDescriptor_t t = comet_cudnn_make(d, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    comet_cudnn_set(d, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    comet_cudnn_set(d, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, e);
    comet_cudnn_set(d, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    comet_cudnn_set(d, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    comet_cudnn_set(d, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    comet_cudnn_finish(d, "a tensor", t);
    return t;
}

static cudnnBackendDescriptor_t make_geometry(comet_cudnn_descriptors *d, const comet_cudnn_conv *conv) {
    const int64_t dimensions = 2, pads[2] = {conv->padding, conv->padding_width};
    const int64_t strides[2] = {conv->stride, conv->stride}, ones[2] = {1, 1};
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t g = comet_cudnn_make(d, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    comet_cudnn_set(d, g, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions);
    comet_cudnn_set(d, g, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    comet_cudnn_set(d, g, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    comet_cudnn_set(d, g, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    comet_cudnn_set(d, g, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    comet_cudnn_set(d, g, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
    comet_cudnn_set(d, g, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    comet_cudnn_finish(d, "a convolution", g);
    return g;
}

typedef struct way_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t geometry, tensors[COMET_CUDNN_TENSORS], alpha, beta;
} way_names;

static const way_names forward = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                  {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
static const way_names by_input = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                   {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
static const way_names by_filter = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

/* The ways differ in the names of their attributes, and in whether they add. */
static const struct {
    const way_names *names;
    float beta;
} ways[COMET_CUDNN_WAYS] = {[COMET_CUDNN_FORWARD] = {&forward, 0},
                            [COMET_CUDNN_BY_INPUT] = {&by_input, 0},
                            [COMET_CUDNN_BY_FILTER] = {&by_filter, 0},
                            [COMET_CUDNN_ADD_INPUT] = {&by_input, 1}};

static cudnnBackendDescriptor_t make_operation(comet_cudnn_descriptors *d, const comet_cudnn_conv *conv) {
    const way_names *names = ways[conv->way].names;
    const float alpha = 1, beta = ways[conv->way].beta;
    cudnnBackendDescriptor_t tensors[COMET_CUDNN_TENSORS];
    for (int i = 0; i < COMET_CUDNN_TENSORS; i++)
        tensors[i] = make_tensor(d, conv, i);
    cudnnBackendDescriptor_t geometry = make_geometry(d, conv), o = comet_cudnn_make(d, names->type);
    comet_cudnn_refer(d, o, names->geometry, geometry);
    for (int i = 0; i < COMET_CUDNN_TENSORS; i++)
        comet_cudnn_refer(d, o, names->tensors[i], tensors[i]);
    comet_cudnn_set(d, o, names->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    comet_cudnn_set(d, o, names->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    comet_cudnn_finish(d, "an operation", o);
    return o;
}

cudnnBackendDescriptor_t comet_cudnn_conv_graph(comet_cudnn_descriptors *d, cudnnHandle_t handle,
                                                const comet_cudnn_conv *conv) {
    cudnnBackendDescriptor_t operation = make_operation(d, conv);
    cudnnBackendDescriptor_t graph = comet_cudnn_make(d, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    comet_cudnn_refer(d, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    comet_cudnn_set(d, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    comet_cudnn_finish(d, "a graph", graph);
    return graph;
}
