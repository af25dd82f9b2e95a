/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions: depthwise ones of usual shapes by kernels of our own, all others through cuDNN (conv.c). cuDNN has
 * little for depthwise ones in NHWC, and they only move memory. The gradient of a filter is fp32 from the beginning.
 */
#include "train/backend/cuda/kernels/depthwise/depthwise.h"

#include "base/fail.h"
#include "train/backend/cuda/kernels/conv/conv_bias.h"
#include "train/backend/cuda/ops/conv.h"

static comet_cuda_depthwise depthwise_of(const comet_op_call *call) {
    const comet_shape *x = comet_value_shape(call->graph, call->node->input[0]),
                      *y = comet_value_shape(call->graph, call->node->output);
    const comet_conv2d *c = &call->node->as.conv;
    return (comet_cuda_depthwise){.dtype = call->backend->dtype,
                                  .batch = call->batch,
                                  .height = x->height,
                                  .width = x->width,
                                  .channels = x->channels,
                                  .out_height = y->height,
                                  .out_width = y->width,
                                  .kernel = c->kernel,
                                  .kernel_width = c->kernel_width,
                                  .stride = c->stride,
                                  .padding = c->padding,
                                  .padding_width = c->padding_width};
}

static const comet_parameter *bias_of(const comet_op_call *call) {
    return comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS);
}

/* NULL: there is none, or it is frozen. */
static const comet_parameter *trained_bias(const comet_op_call *call) {
    return call->unwanted & COMET_BY_BIAS ? NULL : bias_of(call);
}

static int64_t pixels_of(const comet_cuda_depthwise *c) {
    return (int64_t)c->batch * c->out_height * c->out_width;
}

static const void *weights_of(const comet_op_call *call) {
    return comet_cuda_weights(comet_cuda_backend(call),
                              comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT));
}

/* ---- the op; it has no state ---- */

/* Filter and bias one after the other, over each other. */
static size_t depthwise_scratch(const comet_op_call *call, int backward) {
    const comet_cuda_depthwise c = depthwise_of(call);
    if (!backward)
        return 0;
    const size_t filter = call->unwanted & COMET_BY_WEIGHT ? 0 : comet_cuda_depthwise_bytes(&c),
                 bias = trained_bias(call) ? comet_cuda_conv_bias_bytes(c.dtype, pixels_of(&c), c.channels) : 0;
    return filter > bias ? filter : bias;
}

static comet_status depthwise_forward(const comet_op_call *call) {
    const comet_cuda_depthwise c = depthwise_of(call);
    const comet_parameter *bias = bias_of(call);
    COMET_TRY(comet_cuda_status(
        comet_cuda_depthwise_forward(&c, call->x[0], weights_of(call), call->y, comet_cuda_queue(call))));
    return bias ? comet_cuda_conv_add_bias(call->y, bias->value, c.dtype, pixels_of(&c), c.channels,
                                           comet_cuda_queue(call))
                : COMET_OK;
}

static comet_status by_bias(const comet_op_call *call, const comet_cuda_depthwise *c) {
    const comet_parameter *bias = trained_bias(call);
    return bias ? comet_cuda_conv_sum_bias(bias->gradient, call->dy, c->dtype, pixels_of(c), c->channels,
                                           call->accumulate, call->scratch, comet_cuda_queue(call))
                : COMET_OK;
}

/* dx may lie over x: it comes last. */
static comet_status depthwise_backward(const comet_op_call *call) {
    const comet_cuda_depthwise c = depthwise_of(call);
    const comet_parameter *w = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT);
    COMET_TRY(by_bias(call, &c));
    if (!(call->unwanted & COMET_BY_WEIGHT))
        COMET_TRY(comet_cuda_status(comet_cuda_depthwise_by_filter(
            &c, call->x[0], call->dy, w->gradient, call->accumulate, call->scratch, comet_cuda_queue(call))));
    return call->dx[0] ? comet_cuda_status(comet_cuda_depthwise_by_input(&c, call->dy, weights_of(call), call->dx[0],
                                                                         comet_cuda_queue(call)))
                       : COMET_OK;
}

static const comet_op_kernel depthwise = {
    .scratch = depthwise_scratch, .forward = depthwise_forward, .backward = depthwise_backward};

/* ---- which of the two; the same for each call of a node ---- */

static const comet_op_kernel *kernel_of(const comet_op_call *call) {
    const comet_cuda_depthwise c = depthwise_of(call);
    const comet_conv2d *conv = &call->node->as.conv;
    return conv->groups == c.channels && conv->out == c.channels && comet_cuda_depthwise_takes(&c)
               ? &depthwise
               : &comet_cuda_conv_cudnn;
}

static comet_status conv_prepare(const comet_op_call *call, void **state) {
    const comet_op_kernel *kernel = kernel_of(call);
    *state = NULL;
    return kernel->prepare ? kernel->prepare(call, state) : COMET_OK;
}

static void conv_forget(void *state) {
    comet_cuda_conv_cudnn.forget(state); /* NULL: it is depthwise */
}

static size_t conv_scratch(const comet_op_call *call, int backward) {
    return kernel_of(call)->scratch(call, backward);
}

static comet_status conv_forward(const comet_op_call *call) {
    return kernel_of(call)->forward(call);
}

static comet_status conv_backward(const comet_op_call *call) {
    return kernel_of(call)->backward(call);
}

/* Inputs of depthwise ones have one use in all networks that we know: what few kernels add is not worth their loops. */
static int conv_can_add_dx(const comet_op_call *call) {
    const comet_op_kernel *kernel = kernel_of(call);
    return kernel->can_add_dx && kernel->can_add_dx(call);
}

const comet_op_kernel comet_cuda_conv = {.prepare = conv_prepare,
                                         .forget = conv_forget,
                                         .scratch = conv_scratch,
                                         .forward = conv_forward,
                                         .backward = conv_backward,
                                         .can_add_dx = conv_can_add_dx};
