/* SPDX-License-Identifier: Apache-2.0 */
/* ReLU, SiLU, sigmoid and sums of two. */
#include "train/backend/cuda/kernels/activation.h"
#include "train/backend/cuda/base/backend_cuda.h"

static int64_t count_of(const comet_op_call *call) {
    return comet_cuda_count(call, call->node->output);
}

static comet_status relu_forward(const comet_op_call *call) {
    return comet_cuda_relu_forward(call->x[0], call->y, call->mask, count_of(call), call->backend->dtype,
                                   comet_cuda_queue(call));
}

static comet_status relu_backward(const comet_op_call *call) {
    if (!call->dx[0])
        return COMET_OK;
    return comet_cuda_relu_backward(call->y, call->mask, call->dy, call->dx[0], count_of(call), call->backend->dtype,
                                    comet_cuda_queue(call));
}

static comet_status silu_forward(const comet_op_call *call) {
    return comet_cuda_silu_forward(call->x[0], call->y, count_of(call), call->backend->dtype, comet_cuda_queue(call));
}

static comet_status silu_backward(const comet_op_call *call) {
    if (!call->dx[0])
        return COMET_OK;
    return comet_cuda_silu_backward(call->x[0], call->dy, call->dx[0], count_of(call), call->backend->dtype,
                                    comet_cuda_queue(call));
}

static comet_status sigmoid_forward(const comet_op_call *call) {
    return comet_cuda_sigmoid_forward(call->x[0], call->y, count_of(call), call->backend->dtype,
                                      comet_cuda_queue(call));
}

static comet_status sigmoid_backward(const comet_op_call *call) {
    if (!call->dx[0])
        return COMET_OK;
    return comet_cuda_sigmoid_backward(call->y, call->dy, call->dx[0], count_of(call), call->backend->dtype,
                                       comet_cuda_queue(call));
}

comet_status comet_cuda_add(comet_backend *backend, void *sum, const void *a, const void *b, int64_t count) {
    return comet_cuda_add_values(a, b, sum, count, backend->dtype, ((comet_backend_cuda *)backend)->queue);
}

static comet_status add_forward(const comet_op_call *call) {
    return comet_cuda_add(call->backend, call->y, call->x[0], call->x[1], count_of(call));
}

const comet_op_kernel comet_cuda_relu = {.forward = relu_forward, .backward = relu_backward};
const comet_op_kernel comet_cuda_silu = {.forward = silu_forward, .backward = silu_backward};
const comet_op_kernel comet_cuda_sigmoid = {.forward = sigmoid_forward, .backward = sigmoid_backward};
const comet_op_kernel comet_cuda_add_op = {.forward = add_forward}; /* its gradients are its output's */
