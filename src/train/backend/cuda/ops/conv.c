/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions. cuDNN takes activations and filters as they lie in memory, but for few channels: where they are no
 * multiple of 16 bytes, as those of images, rows of zeros are put behind them, since kernels for tensor cores want it
 * so; or, with a stride, blocks of pixels become the pixels (conv_blocks.h). Gradients of filters go into the
 * parameter's array at once where they are fp32 and not added; else into scratch memory, and from there in fp32.
 */
#include "train/backend/cuda/ops/conv.h"

#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/backend/cuda/cudnn/cudnn.h"
#include "train/backend/cuda/kernels/conv/conv_bias.h"
#include "train/backend/cuda/kernels/conv/conv_channels.h"
#include "train/backend/cuda/ops/conv_blocks.h"

typedef struct conv_state {
    const comet_allocator *allocator;
    comet_cudnn_conv conv; /* as cuDNN computes it, but for x's gradient if is_blocked */
    int channels;          /* of x; less than the above if it is padded */
    int is_blocked;        /* y and the filter's gradient are computed over `blocks` */
    comet_cuda_conv_blocks blocks;
    comet_cudnn_conv by_input; /* for x's gradient: padded at most */
    comet_cudnn *cudnn;
    const comet_cudnn_plan *plans[COMET_CUDNN_WAYS]; /* NULL: not needed */
    comet_cudnn_run runs[COMET_CUDNN_WAYS];
    void *late; /* scratch memory of a gradient that nobody asks for in training */
} conv_state;

/* Hands out parts of scratch memory; with no memory, counts what it takes. */
typedef struct scratch_cursor {
    char *memory;
    size_t bytes;
} scratch_cursor;

static void *take(scratch_cursor *s, size_t bytes) {
    void *at = s->memory ? s->memory + s->bytes : NULL;
    s->bytes += (bytes + 255) / 256 * 256;
    return bytes > 0 ? at : NULL;
}

/* ---- shapes ---- */

static int padded_channels(const comet_op_call *call, int channels) {
    const int unit = 16 / (int)comet_dtype_size(call->backend->dtype);
    return call->node->as.conv.groups > 1 ? channels : (channels + unit - 1) / unit * unit;
}

static comet_cudnn_conv conv_of(const comet_op_call *call, comet_cudnn_way way) {
    const comet_shape *x = comet_value_shape(call->graph, call->node->input[0]);
    const comet_conv2d *c = &call->node->as.conv;
    return (comet_cudnn_conv){.way = way,
                              .dtype = call->backend->dtype,
                              .batch = call->batch,
                              .height = x->height,
                              .width = x->width,
                              .channels = padded_channels(call, x->channels),
                              .out = c->out,
                              .kernel = c->kernel,
                              .kernel_width = c->kernel_width,
                              .stride = c->stride,
                              .padding = c->padding,
                              .padding_width = c->padding_width,
                              .groups = c->groups};
}

static int is_padded(const conv_state *s) {
    return s->channels != s->conv.channels;
}

static int is_by_input(comet_cudnn_way way) {
    return way == COMET_CUDNN_BY_INPUT || way == COMET_CUDNN_ADD_INPUT;
}

static const comet_cudnn_conv *computed(const conv_state *s, comet_cudnn_way way) {
    return is_by_input(way) ? &s->by_input : &s->conv;
}

static size_t padded_bytes(const conv_state *s, comet_cudnn_way way, int tensor) {
    return is_padded(s) ? comet_cudnn_tensor_bytes(computed(s, way), tensor) : 0;
}

/* Rows of channels: pixels of x or y, or places of the filter. */
static int64_t rows_of(const conv_state *s, int tensor) {
    int64_t e[4];
    comet_cudnn_extents(&s->by_input, tensor, e);
    return e[0] * e[2] * e[3];
}

/* ---- plans ---- */

static comet_status make_plan(conv_state *s, comet_cudnn_way way) {
    comet_cudnn_conv conv = *computed(s, way);
    conv.way = way;
    return comet_cudnn_plan_for(s->cudnn, &conv, &s->plans[way]);
}

/* 1: others use the input, too, so that there may be a gradient to add to. */
static int shares_input(const comet_op_call *call) {
    const comet_graph *g = call->graph;
    const comet_value x = call->node->input[0];
    int uses = 0;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].inputs; k++)
            uses += g->nodes[i].input[k] == x;
    return uses > 1;
}

/* A gradient by the network's input is not computed in training. */
static int wants_input(const comet_op_call *call) {
    return call->node->input[0] != call->graph->input && !(call->unwanted & COMET_BY_INPUT);
}

/* What adds to a gradient is not needed where it is refused. */
static comet_status make_plans(conv_state *s, const comet_op_call *call) {
    COMET_TRY(make_plan(s, COMET_CUDNN_FORWARD));
    if (!call->training)
        return COMET_OK;
    if (!(call->unwanted & COMET_BY_WEIGHT))
        COMET_TRY(make_plan(s, COMET_CUDNN_BY_FILTER));
    if (!wants_input(call))
        return COMET_OK;
    if (!is_padded(s) && shares_input(call)) {
        const comet_status status = make_plan(s, COMET_CUDNN_ADD_INPUT);
        if (status != COMET_OK && status != COMET_ERROR_UNSUPPORTED)
            return status;
    }
    return make_plan(s, COMET_CUDNN_BY_INPUT);
}

static int conv_can_add_dx(const comet_op_call *call) {
    return ((const conv_state *)call->state)->plans[COMET_CUDNN_ADD_INPUT] != NULL;
}

static void conv_forget(void *state) {
    conv_state *s = state;
    if (!s)
        return;
    for (int i = 0; i < COMET_CUDNN_WAYS; i++)
        comet_cudnn_run_clear(s->cudnn, &s->runs[i]);
    if (s->late)
        cudaFree(s->late);
    comet_memory_give(s->allocator, s, sizeof *s);
}

static comet_status conv_prepare(const comet_op_call *call, void **state) {
    const comet_backend_cuda *b = comet_cuda_backend(call);
    conv_state *s = comet_memory_take(b->allocator, sizeof *s);
    if (!s)
        return COMET_ERROR_MEMORY;
    memset(s, 0, sizeof *s);
    s->allocator = b->allocator;
    s->cudnn = b->cudnn;
    s->conv = s->by_input = conv_of(call, COMET_CUDNN_FORWARD);
    s->channels = comet_value_shape(call->graph, call->node->input[0])->channels;
    s->is_blocked = comet_cuda_conv_blocks_of(&s->by_input, s->channels, &s->blocks, &s->conv);
    comet_status status = make_plans(s, call);
    if (status != COMET_OK) {
        conv_forget(s);
        return status;
    }
    *state = s;
    return COMET_OK;
}

/* ---- scratch memory: parts in the order in which they are taken ---- */

typedef struct parts {
    void *x, *w, *workspace; /* those in the place of what is padded or converted; NULL: not needed */
} parts;

static size_t workspace_of(const conv_state *s, comet_cudnn_way way) {
    return s->plans[way] ? s->plans[way]->workspace : 0;
}

static parts forward_parts(const conv_state *s, scratch_cursor *scratch) {
    parts p;
    p.x = take(scratch, padded_bytes(s, COMET_CUDNN_FORWARD, COMET_CUDNN_X));
    p.w = take(scratch, padded_bytes(s, COMET_CUDNN_FORWARD, COMET_CUDNN_W));
    p.workspace = take(scratch, workspace_of(s, COMET_CUDNN_FORWARD));
    return p;
}

static int filter_is_apart(const conv_state *s, const comet_op_call *call) {
    return is_padded(s) || s->conv.dtype != COMET_F32 || call->accumulate;
}

static parts by_filter_parts(const conv_state *s, const comet_op_call *call, scratch_cursor *scratch) {
    parts p;
    p.x = take(scratch, padded_bytes(s, COMET_CUDNN_BY_FILTER, COMET_CUDNN_X));
    p.w = take(scratch, filter_is_apart(s, call) ? comet_cudnn_tensor_bytes(&s->conv, COMET_CUDNN_W) : 0);
    p.workspace = take(scratch, workspace_of(s, COMET_CUDNN_BY_FILTER));
    return p;
}

static comet_cudnn_way way_by_input(const comet_op_call *call) {
    return call->adds_dx ? COMET_CUDNN_ADD_INPUT : COMET_CUDNN_BY_INPUT;
}

static parts by_input_parts(const conv_state *s, comet_cudnn_way way, scratch_cursor *scratch) {
    parts p;
    p.x = take(scratch, padded_bytes(s, way, COMET_CUDNN_X));
    p.w = take(scratch, padded_bytes(s, way, COMET_CUDNN_W));
    p.workspace = take(scratch, workspace_of(s, way));
    return p;
}

/* NULL: there is none, or it is frozen. */
static const comet_parameter *trained_bias(const comet_op_call *call) {
    return call->unwanted & COMET_BY_BIAS ? NULL : comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS);
}

static size_t bias_bytes(const conv_state *s, const comet_op_call *call) {
    return trained_bias(call) ? comet_cuda_conv_bias_bytes(call->backend->dtype, rows_of(s, COMET_CUDNN_Y), s->conv.out)
                              : 0;
}

/* One after the other, over each other. */
static size_t conv_scratch(const comet_op_call *call, int backward) {
    const conv_state *s = call->state;
    scratch_cursor counts[3] = {{NULL, 0}};
    if (!backward) {
        forward_parts(s, &counts[0]);
        return counts[0].bytes;
    }
    take(&counts[0], bias_bytes(s, call));
    if (s->plans[COMET_CUDNN_BY_FILTER])
        by_filter_parts(s, call, &counts[1]);
    if (s->plans[COMET_CUDNN_BY_INPUT])
        by_input_parts(s, way_by_input(call), &counts[2]);
    const size_t bytes = counts[0].bytes > counts[1].bytes ? counts[0].bytes : counts[1].bytes;
    return bytes > counts[2].bytes ? bytes : counts[2].bytes;
}

/* ---- running ---- */

static comet_status run(const comet_op_call *call, comet_cudnn_way way, const void *x, const void *w, const void *y,
                        void *workspace) {
    conv_state *s = call->state;
    void *const tensors[COMET_CUDNN_TENSORS] = {(void *)x, (void *)w, (void *)y};
    return comet_cudnn_execute(s->cudnn, s->plans[way], &s->runs[way], tensors, workspace);
}

static comet_status pad(const comet_op_call *call, int tensor, const void *values, void *room) {
    const conv_state *s = call->state;
    return comet_cuda_pad_channels(room, values, call->backend->dtype, rows_of(s, tensor), s->channels,
                                   s->by_input.channels, comet_cuda_queue(call));
}

static comet_status block(const comet_op_call *call, int tensor, const void *values, void *room) {
    const conv_state *s = call->state;
    const comet_dtype dtype = call->backend->dtype;
    return tensor == COMET_CUDNN_X
               ? comet_cuda_conv_block_pixels(&s->blocks, room, values, dtype, comet_cuda_queue(call))
               : comet_cuda_conv_block_filter(&s->blocks, room, values, dtype, comet_cuda_queue(call));
}

/* The tensor as cuDNN takes it: itself, or a copy at `room`, in blocks or padded. */
static comet_status bring(const comet_op_call *call, comet_cudnn_way way, int tensor, const void *values, void *room,
                          const void **taken) {
    const conv_state *s = call->state;
    *taken = room ? room : values;
    if (!room)
        return COMET_OK;
    return s->is_blocked && !is_by_input(way) ? block(call, tensor, values, room) : pad(call, tensor, values, room);
}

static const void *weights_of(const comet_op_call *call) {
    return comet_cuda_weights(comet_cuda_backend(call),
                              comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT));
}

static comet_status conv_forward(const comet_op_call *call) {
    const conv_state *s = call->state;
    const comet_parameter *bias = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS);
    scratch_cursor scratch = {call->scratch, 0};
    const parts p = forward_parts(s, &scratch);
    const void *x, *w;
    COMET_TRY(bring(call, COMET_CUDNN_FORWARD, COMET_CUDNN_X, call->x[0], p.x, &x));
    COMET_TRY(bring(call, COMET_CUDNN_FORWARD, COMET_CUDNN_W, weights_of(call), p.w, &w));
    COMET_TRY(run(call, COMET_CUDNN_FORWARD, x, w, call->y, p.workspace));
    return bias ? comet_cuda_conv_add_bias(call->y, bias->value, call->backend->dtype, rows_of(s, COMET_CUDNN_Y),
                                           s->conv.out, comet_cuda_queue(call))
                : COMET_OK;
}

static comet_status by_bias(const comet_op_call *call) {
    const conv_state *s = call->state;
    const comet_parameter *bias = trained_bias(call);
    return bias ? comet_cuda_conv_sum_bias(bias->gradient, call->dy, call->backend->dtype, rows_of(s, COMET_CUDNN_Y),
                                           s->conv.out, call->accumulate, call->scratch, comet_cuda_queue(call))
                : COMET_OK;
}

/* What cuDNN left in scratch memory to the parameter. */
static comet_status take_gradient(const comet_op_call *call, float *gradient, const void *values) {
    const conv_state *s = call->state;
    const comet_dtype dtype = call->backend->dtype;
    const int padded = s->conv.channels / s->conv.groups, channels = s->channels / s->conv.groups;
    return s->is_blocked ? comet_cuda_conv_unblock_gradient(&s->blocks, gradient, values, dtype, call->accumulate,
                                                            comet_cuda_queue(call))
                         : comet_cuda_take_gradient(gradient, values, dtype, rows_of(s, COMET_CUDNN_W), padded,
                                                    channels, call->accumulate, comet_cuda_queue(call));
}

static comet_status by_filter(const comet_op_call *call) {
    const conv_state *s = call->state;
    const comet_parameter *w = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT);
    scratch_cursor scratch = {call->scratch, 0};
    const parts p = by_filter_parts(s, call, &scratch);
    const void *x;
    COMET_TRY(bring(call, COMET_CUDNN_BY_FILTER, COMET_CUDNN_X, call->x[0], p.x, &x));
    COMET_TRY(run(call, COMET_CUDNN_BY_FILTER, x, p.w ? p.w : w->gradient, call->dy, p.workspace));
    return p.w ? take_gradient(call, w->gradient, p.w) : COMET_OK;
}

/* What was not planned is made when it is asked for the first time, with memory of its own. */
static comet_status make_late(conv_state *s) {
    scratch_cursor count = {NULL, 0};
    if (!s->plans[COMET_CUDNN_BY_INPUT])
        COMET_TRY(make_plan(s, COMET_CUDNN_BY_INPUT));
    by_input_parts(s, COMET_CUDNN_BY_INPUT, &count);
    return s->late || count.bytes == 0 ? COMET_OK : comet_cuda_status(cudaMalloc(&s->late, count.bytes));
}

static comet_status by_input(const comet_op_call *call) {
    conv_state *s = call->state;
    const int is_late = !wants_input(call);
    if (is_late)
        COMET_TRY(make_late(s));
    scratch_cursor scratch = {is_late ? s->late : call->scratch, 0};
    const parts p = by_input_parts(s, way_by_input(call), &scratch);
    const void *w;
    COMET_TRY(bring(call, way_by_input(call), COMET_CUDNN_W, weights_of(call), p.w, &w));
    COMET_TRY(run(call, way_by_input(call), p.x ? p.x : call->dx[0], w, call->dy, p.workspace));
    return p.x ? comet_cuda_cut_channels(call->dx[0], p.x, call->backend->dtype, rows_of(s, COMET_CUDNN_X),
                                         s->by_input.channels, s->channels, comet_cuda_queue(call))
               : COMET_OK;
}

/* dx may lie over x: it comes last. */
static comet_status conv_backward(const comet_op_call *call) {
    COMET_TRY(by_bias(call));
    if (!(call->unwanted & COMET_BY_WEIGHT))
        COMET_TRY(by_filter(call));
    return call->dx[0] ? by_input(call) : COMET_OK;
}

const comet_op_kernel comet_cuda_conv_cudnn = {.prepare = conv_prepare,
                                               .forget = conv_forget,
                                               .scratch = conv_scratch,
                                               .forward = conv_forward,
                                               .backward = conv_backward,
                                               .can_add_dx = conv_can_add_dx};
