/* SPDX-License-Identifier: Apache-2.0 */
/* ReLU, SiLU, sigmoid and sums of two. */
#include "train/backend/cuda/kernels/elementwise.h"
#include "train/backend/cuda/base/backend_cuda.h"

static comet_status forward(const comet_op_call *call, comet_cuda_function function) {
    return comet_cuda_status(comet_cuda_launch_function(function, call->backend->dtype, call->x[0], call->x[1], call->y,
                                                        comet_cuda_count(call, call->node->output),
                                                        comet_cuda_queue(call)));
}

/* `of`: the input or the output, as the slope needs it. */
static comet_status backward(const comet_op_call *call, comet_cuda_function slope, const void *of) {
    if (!call->dx[0])
        return COMET_OK;
    return comet_cuda_status(comet_cuda_launch_function(slope, call->backend->dtype, of, call->dy, call->dx[0],
                                                        comet_cuda_count(call, call->node->output),
                                                        comet_cuda_queue(call)));
}

static comet_status relu_forward(const comet_op_call *call) {
    if (!call->mask)
        return forward(call, COMET_CUDA_RELU);
    return comet_cuda_status(comet_cuda_launch_relu_mask(call->backend->dtype, call->x[0], call->y, call->mask,
                                                         comet_cuda_count(call, call->node->output),
                                                         comet_cuda_queue(call)));
}

static comet_status relu_backward(const comet_op_call *call) {
    if (!call->mask || !call->dx[0])
        return backward(call, COMET_CUDA_RELU_SLOPE, call->y);
    return comet_cuda_status(comet_cuda_launch_relu_unmask(call->backend->dtype, call->mask, call->dy, call->dx[0],
                                                           comet_cuda_count(call, call->node->output),
                                                           comet_cuda_queue(call)));
}

static comet_status silu_forward(const comet_op_call *call) {
    return forward(call, COMET_CUDA_SILU);
}

static comet_status silu_backward(const comet_op_call *call) {
    return backward(call, COMET_CUDA_SILU_SLOPE, call->x[0]);
}

static comet_status sigmoid_forward(const comet_op_call *call) {
    return forward(call, COMET_CUDA_SIGMOID);
}

static comet_status sigmoid_backward(const comet_op_call *call) {
    return backward(call, COMET_CUDA_SIGMOID_SLOPE, call->y);
}

static comet_status add_forward(const comet_op_call *call) {
    return forward(call, COMET_CUDA_ADD);
}

comet_status comet_cuda_add(comet_backend *backend, void *sum, const void *a, const void *b, int64_t count) {
    return comet_cuda_status(comet_cuda_launch_function(COMET_CUDA_ADD, backend->dtype, a, b, sum, count,
                                                        ((comet_backend_cuda *)backend)->queue));
}

const comet_op_kernel comet_cuda_relu = {.forward = relu_forward, .backward = relu_backward};
const comet_op_kernel comet_cuda_silu = {.forward = silu_forward, .backward = silu_backward};
const comet_op_kernel comet_cuda_sigmoid = {.forward = sigmoid_forward, .backward = sigmoid_backward};
const comet_op_kernel comet_cuda_add_op = {.forward = add_forward}; /* its gradients are its output's */
