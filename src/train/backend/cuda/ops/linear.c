/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers: y = x W^T + bias. What lies row by row is its own transpose column by column: y is out x batch there,
 * W in x out, x in x batch.
 */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/cublaslt/cublaslt.h"
#include "train/backend/cuda/kernels/sums.h"

enum { FORWARD, BY_WEIGHT, BY_INPUT, PRODUCTS };

typedef struct linear_state {
    const comet_allocator *allocator;
    comet_product *products[PRODUCTS]; /* the last two only for training, and NULL where nobody wants them */
} linear_state;

static const comet_parameter *parameter(const comet_op_call *call, int place) {
    return comet_node_parameter(call->graph, call->node, place);
}

static int64_t extent(const comet_op_call *call, comet_value v) {
    return comet_value_shape(call->graph, v)->channels;
}

/* ---- products ---- */

static comet_product_shape shape_of(const comet_op_call *call, int product) {
    const comet_dtype dtype = call->backend->dtype;
    const int64_t in = extent(call, call->node->input[0]), out = extent(call, call->node->output);
    const int bias = parameter(call, COMET_PARAMETER_BIAS) != NULL;
    if (product == FORWARD) /* W^T x */
        return (comet_product_shape){out, call->batch, in, 1, 0, dtype, bias};
    if (product == BY_WEIGHT) /* x dy^T */
        return (comet_product_shape){in, out, call->batch, 0, 1, COMET_F32, 0};
    return (comet_product_shape){in, call->batch, out, 0, 0, dtype, 0}; /* W dy */
}

static int is_wanted(const comet_op_call *call, int product) {
    return product == FORWARD || !(call->unwanted & (product == BY_WEIGHT ? COMET_BY_WEIGHT : COMET_BY_INPUT));
}

static void linear_forget(void *state) {
    linear_state *s = state;
    if (!s)
        return;
    for (int i = 0; i < PRODUCTS; i++)
        comet_product_free(s->products[i]);
    comet_memory_give(s->allocator, s, sizeof *s);
}

static comet_status linear_prepare(const comet_op_call *call, void **state) {
    comet_backend_cuda *b = comet_cuda_backend(call);
    linear_state *s = comet_memory_take(b->allocator, sizeof *s);
    comet_status status = COMET_OK;
    if (!s)
        return COMET_ERROR_MEMORY;
    memset(s, 0, sizeof *s);
    s->allocator = b->allocator;
    for (int i = 0; i < (call->training ? PRODUCTS : BY_WEIGHT) && status == COMET_OK; i++) {
        if (!is_wanted(call, i))
            continue;
        const comet_product_shape shape = shape_of(call, i);
        status = comet_product_new(b->cublaslt, &shape, &s->products[i]);
    }
    if (status != COMET_OK) {
        linear_forget(s);
        return status;
    }
    *state = s;
    return COMET_OK;
}

static size_t workspace_of(const comet_product *product) {
    return product ? comet_product_workspace(product) : 0;
}

/* Each product needs it when the one before is done. */
static size_t linear_scratch(const comet_op_call *call, int backward) {
    const linear_state *s = call->state;
    if (!backward)
        return comet_product_workspace(s->products[FORWARD]);
    const size_t weight = workspace_of(s->products[BY_WEIGHT]), input = workspace_of(s->products[BY_INPUT]);
    return weight > input ? weight : input;
}

/* ---- runs ---- */

static comet_status linear_forward(const comet_op_call *call) {
    const linear_state *s = call->state;
    const comet_backend_cuda *b = comet_cuda_backend(call);
    const comet_parameter *bias = parameter(call, COMET_PARAMETER_BIAS);
    const comet_product_call c = {.a = comet_cuda_weights(b, parameter(call, COMET_PARAMETER_WEIGHT)),
                                  .b = call->x[0],
                                  .bias = bias ? comet_cuda_weights(b, bias) : NULL,
                                  .d = call->y,
                                  .workspace = call->scratch};
    return comet_product_run(s->products[FORWARD], &c);
}

static comet_status backward_bias(const comet_op_call *call) {
    const comet_parameter *bias = parameter(call, COMET_PARAMETER_BIAS);
    if (!bias || call->unwanted & COMET_BY_BIAS)
        return COMET_OK;
    return comet_cuda_status(comet_cuda_launch_sum_rows(bias->gradient, call->dy, call->batch, bias->count,
                                                        call->accumulate, call->backend->dtype,
                                                        comet_cuda_queue(call)));
}

/* dx may lie over x, so it comes last. */
static comet_status linear_backward(const comet_op_call *call) {
    const linear_state *s = call->state;
    const comet_parameter *weight = parameter(call, COMET_PARAMETER_WEIGHT);
    const comet_product_call by_weight = {.a = call->x[0],
                                          .b = call->dy,
                                          .d = weight->gradient,
                                          .workspace = call->scratch,
                                          .beta = call->accumulate ? 1 : 0};
    const comet_product_call by_input = {.a = comet_cuda_weights(comet_cuda_backend(call), weight),
                                         .b = call->dy,
                                         .d = call->dx[0],
                                         .workspace = call->scratch};
    if (is_wanted(call, BY_WEIGHT))
        COMET_TRY(comet_product_run(s->products[BY_WEIGHT], &by_weight));
    COMET_TRY(backward_bias(call));
    return call->dx[0] ? comet_product_run(s->products[BY_INPUT], &by_input) : COMET_OK;
}

const comet_op_kernel comet_cuda_linear = {.prepare = linear_prepare,
                                           .forget = linear_forget,
                                           .scratch = linear_scratch,
                                           .forward = linear_forward,
                                           .backward = linear_backward};
