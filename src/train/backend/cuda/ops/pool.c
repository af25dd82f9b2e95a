/* SPDX-License-Identifier: Apache-2.0 */
/* Max pooling, average pooling with windows of one size, and adaptive. */
#include "train/backend/cuda/kernels/maps/pool.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/graph/op.h"

static comet_cuda_pool pool_of(const comet_op_call *call) {
    const comet_shape *in = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    comet_cuda_pool p = {.dtype = call->backend->dtype,
                         .batch = call->batch,
                         .channels = in->channels,
                         .height = in->height,
                         .width = in->width,
                         .out_height = out->height,
                         .out_width = out->width,
                         .adaptive = call->node->kind == COMET_OP_ADAPTIVE_POOL};
    if (p.adaptive)
        return p;
    p.kernel = call->node->as.pool.kernel;
    p.stride = call->node->as.pool.stride;
    p.padding = call->node->as.pool.padding;
    p.count_padding = call->node->as.pool.count_padding;
    p.bits = comet_op_argmax_bits(p.kernel);
    return p;
}

static comet_status max_forward(const comet_op_call *call) {
    const comet_cuda_pool p = pool_of(call);
    return comet_cuda_status(comet_cuda_launch_max_pool(&p, call->x[0], call->y, call->side, comet_cuda_queue(call)));
}

static comet_status max_backward(const comet_op_call *call) {
    const comet_cuda_pool p = pool_of(call);
    if (!call->dx[0])
        return COMET_OK;
    return comet_cuda_status(
        comet_cuda_launch_max_pool_back(&p, call->dy, call->side, call->dx[0], comet_cuda_queue(call)));
}

static size_t average_scratch(const comet_op_call *call, int backward) {
    const comet_cuda_pool p = pool_of(call);
    return backward ? 0 : comet_cuda_average_pool_bytes(&p);
}

static comet_status average_forward(const comet_op_call *call) {
    const comet_cuda_pool p = pool_of(call);
    return comet_cuda_status(
        comet_cuda_launch_average_pool(&p, call->x[0], call->y, call->scratch, comet_cuda_queue(call)));
}

static comet_status average_backward(const comet_op_call *call) {
    const comet_cuda_pool p = pool_of(call);
    if (!call->dx[0])
        return COMET_OK;
    return comet_cuda_status(comet_cuda_launch_average_pool_back(&p, call->dy, call->dx[0], comet_cuda_queue(call)));
}

const comet_op_kernel comet_cuda_max_pool = {.forward = max_forward, .backward = max_backward};
const comet_op_kernel comet_cuda_average_pool = {
    .scratch = average_scratch, .forward = average_forward, .backward = average_backward};
const comet_op_kernel comet_cuda_adaptive_pool = {
    .scratch = average_scratch, .forward = average_forward, .backward = average_backward};
