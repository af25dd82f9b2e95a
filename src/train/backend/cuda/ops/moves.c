/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that move values: the shortcut without parameters, and a map as a vector in the order of NCHW. */
#include "train/backend/cuda/kernels/maps/moves.h"
#include "train/backend/cuda/base/backend_cuda.h"

/* ---- shortcut ---- */

static comet_cuda_shortcut_job job_of(const comet_op_call *call) {
    const comet_shape *in = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    return (comet_cuda_shortcut_job){.dtype = call->backend->dtype,
                                     .batch = call->batch,
                                     .height = in->height,
                                     .width = in->width,
                                     .channels = in->channels,
                                     .out_height = out->height,
                                     .out_width = out->width,
                                     .out_channels = out->channels,
                                     .stride = call->node->as.stride};
}

static comet_status shortcut_forward(const comet_op_call *call) {
    const comet_cuda_shortcut_job j = job_of(call);
    return comet_cuda_status(comet_cuda_launch_shortcut(&j, call->x[0], call->y, comet_cuda_queue(call)));
}

static comet_status shortcut_backward(const comet_op_call *call) {
    const comet_cuda_shortcut_job j = job_of(call);
    if (!call->dx[0])
        return COMET_OK;
    return comet_cuda_status(comet_cuda_launch_shortcut_back(&j, call->dy, call->dx[0], comet_cuda_queue(call)));
}

const comet_op_kernel comet_cuda_shortcut = {.forward = shortcut_forward, .backward = shortcut_backward};

/* ---- flatten ---- */

static comet_status move(const comet_op_call *call, const void *from, void *to, int backward) {
    const comet_shape *s = comet_value_shape(call->graph, call->node->input[0]);
    const int64_t pixels = (int64_t)s->height * s->width, channels = s->channels;
    const comet_dtype dtype = call->backend->dtype;
    cudaError_t error = cudaSuccess;
    if (pixels > 1 && channels > 1)
        error = comet_cuda_launch_transpose(dtype, from, to, call->batch, backward ? channels : pixels,
                                            backward ? pixels : channels, comet_cuda_queue(call));
    else if (from != to) /* both orders are the same */
        error = cudaMemcpyAsync(to, from, (size_t)(pixels * channels * call->batch) * comet_dtype_size(dtype),
                                cudaMemcpyDeviceToDevice, comet_cuda_queue(call));
    return comet_cuda_status(error);
}

static comet_status flatten_forward(const comet_op_call *call) {
    return move(call, call->x[0], call->y, 0);
}

static comet_status flatten_backward(const comet_op_call *call) {
    return call->dx[0] ? move(call, call->dy, call->dx[0], 1) : COMET_OK;
}

const comet_op_kernel comet_cuda_flatten = {.forward = flatten_forward, .backward = flatten_backward};
