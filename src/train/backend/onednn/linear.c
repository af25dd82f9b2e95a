/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers as plain matrix products: weights stay as they are (a reordered copy of VGG's first one would be 400
 * MB), and adding to a gradient is the product's own beta.
 */
#include "train/backend/cpu/kernels.h"
#include "train/backend/onednn/onednn.h"

static dnnl_dim_t extent(const comet_op_call *call, comet_value v) {
    return comet_value_shape(call->graph, v)->channels;
}

static comet_status linear_forward(const comet_op_call *call) {
    const dnnl_dim_t in = extent(call, call->node->input[0]), out = extent(call, call->node->output);
    const comet_parameter *w = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT);
    const comet_parameter *bias = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS);
    comet_onednn_enter((const comet_backend_onednn *)call->backend);
    dnnl_status_t status = dnnl_sgemm('N', 'T', call->batch, out, in, 1, call->x[0], in, w->value, in, 0, call->y, out);
    if (status == dnnl_success && bias)
        comet_cpu_add_bias(call->y, bias->value, call->batch, out);
    return comet_onednn_status(status);
}

static comet_status linear_backward(const comet_op_call *call) {
    const dnnl_dim_t in = extent(call, call->node->input[0]), out = extent(call, call->node->output);
    const comet_parameter *w = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT);
    const comet_parameter *bias = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS);
    const float beta = call->accumulate ? 1 : 0;
    comet_onednn_enter((const comet_backend_onednn *)call->backend);
    dnnl_status_t status = dnnl_success;
    if (!(call->unwanted & COMET_BY_WEIGHT))
        status = dnnl_sgemm('T', 'N', out, in, call->batch, 1, call->dy, out, call->x[0], in, beta, w->gradient, in);
    if (status == dnnl_success && call->dx[0])
        status = dnnl_sgemm('N', 'N', call->batch, in, out, 1, call->dy, out, w->value, in, 0, call->dx[0], in);
    if (status == dnnl_success && bias && !(call->unwanted & COMET_BY_BIAS))
        comet_cpu_sum_rows(bias->gradient, call->dy, call->batch, out, call->accumulate);
    return comet_onednn_status(status);
}

const comet_op_kernel comet_onednn_linear = {.forward = linear_forward, .backward = linear_backward};
