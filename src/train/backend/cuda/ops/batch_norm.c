/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch norm whose input is there as it is. Streams of it are the holder's (cuda/holder.c), which uses the pieces
 * here.
 */
#include "train/backend/cuda/ops/batch_norm.h"

#include "base/fail.h"
#include "train/backend/cuda/kernels/activation.h"
#include "train/backend/cuda/kernels/norm_tables.h"

enum { TABLES = 4 };

static int64_t channels_of(const comet_op_call *call) {
    return comet_value_shape(call->graph, call->node->output)->channels;
}

static comet_parameter *parameter(const comet_op_call *call, int place) {
    return comet_node_parameter(call->graph, call->node, place);
}

/* ---- pieces ---- */

comet_tensor comet_cuda_tensor(const comet_op_call *call, comet_value v, const void *data) {
    const comet_shape *s = comet_value_shape(call->graph, v);
    comet_tensor t;
    comet_tensor_init_on(&t, call->backend->device, (void *)data, call->backend->dtype, COMET_NHWC, 4,
                         (int64_t[]){call->batch, s->height, s->width, s->channels});
    return t;
}

comet_codec_exec comet_cuda_exec(const comet_backend_cuda *b) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.queue = b->queue;
    exec.workspace = b->codec_workspace;
    exec.workspace_bytes = b->codec_workspace_bytes;
    return exec;
}

static comet_cuda_norm norm_in(const comet_op_call *call, float *tables) {
    const int64_t channels = channels_of(call);
    comet_cuda_norm norm = COMET_CUDA_NORM_INIT;
    norm.channels = channels;
    norm.inverse_std = tables;
    norm.shift = tables + channels;
    norm.mean = tables + 2 * channels;
    norm.threshold = tables + 3 * channels;
    norm.gamma = parameter(call, COMET_PARAMETER_WEIGHT)->value;
    norm.beta = parameter(call, COMET_PARAMETER_BIAS)->value;
    norm.relu = call->relu;
    return norm;
}

comet_cuda_norm comet_cuda_norm_of(const comet_op_call *call) {
    return norm_in(call, call->side);
}

comet_status comet_cuda_batch_statistics(const comet_op_call *call) {
    const comet_cuda_norm norm = comet_cuda_norm_of(call);
    const comet_tensor x = comet_cuda_tensor(call, call->node->input[0], call->x[0]);
    const comet_codec_exec exec = comet_cuda_exec(comet_cuda_backend(call));
    comet_cuda_norm_batch batch = COMET_CUDA_NORM_BATCH_INIT;
    batch.norm = &norm;
    batch.channels = norm.channels;
    batch.mean = (float *)norm.mean;
    batch.inverse_std = (float *)norm.inverse_std;
    batch.running_mean = parameter(call, COMET_PARAMETER_MEAN)->value;
    batch.running_variance = parameter(call, COMET_PARAMETER_VAR)->value;
    batch.momentum = (double)call->node->as.norm.momentum;
    batch.epsilon = (double)call->node->as.norm.epsilon;
    return comet_cuda_norm_statistics(&batch, &x, &exec);
}

comet_cuda_norm_gradients comet_cuda_norm_gradients_begin(const comet_op_call *call) {
    float *scratch = call->scratch;
    if (call->accumulate)
        return (comet_cuda_norm_gradients){scratch, scratch + channels_of(call)};
    return (comet_cuda_norm_gradients){parameter(call, COMET_PARAMETER_WEIGHT)->gradient,
                                       parameter(call, COMET_PARAMETER_BIAS)->gradient};
}

comet_status comet_cuda_norm_gradients_end(const comet_op_call *call, const comet_cuda_norm_gradients *made) {
    const int64_t channels = channels_of(call);
    const cudaStream_t queue = comet_cuda_queue(call);
    if (!call->accumulate)
        return COMET_OK;
    COMET_TRY(comet_cuda_add_to(parameter(call, COMET_PARAMETER_WEIGHT)->gradient, made->gamma, channels, queue));
    return comet_cuda_add_to(parameter(call, COMET_PARAMETER_BIAS)->gradient, made->beta, channels, queue);
}

/* ---- the op ---- */

/* What statistics and both passes need goes to the workspace that all share. */
static comet_status norm_prepare(const comet_op_call *call, void **state) {
    const comet_tensor x = comet_cuda_tensor(call, call->node->input[0], NULL);
    const comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    size_t bytes = 0;
    *state = NULL;
    COMET_TRY(comet_cuda_norm_workspace(&x, &params, &bytes));
    comet_cuda_want_workspace(comet_cuda_backend(call), bytes);
    return COMET_OK;
}

static void norm_forget(void *state) {
    (void)state;
}

static size_t norm_side(const comet_op_call *call) {
    return (size_t)(TABLES * channels_of(call)) * sizeof(float);
}

/* Forward: the tables of an evaluation. Backward: gradients to be added, and tables without a threshold. */
static size_t norm_scratch(const comet_op_call *call, int backward) {
    return !backward && call->training ? 0 : (size_t)((backward ? TABLES + 2 : TABLES) * channels_of(call)) * sizeof(float);
}

static comet_status apply(const comet_op_call *call, const comet_cuda_norm *norm) {
    const comet_tensor x = comet_cuda_tensor(call, call->node->input[0], call->x[0]),
                       y = comet_cuda_tensor(call, call->node->output, call->y);
    const comet_codec_exec exec = comet_cuda_exec(comet_cuda_backend(call));
    COMET_TRY(comet_cuda_norm_forward(norm, &x, &y, NULL, &exec, NULL, NULL, NULL));
    if (!call->mask || !call->relu) /* y is 0 exactly where the ReLU is off: its signs are the mask */
        return COMET_OK;
    return comet_cuda_relu_forward(call->y, call->y, call->mask, comet_cuda_count(call, call->node->output),
                                   call->backend->dtype, comet_cuda_queue(call));
}

static comet_status running_tables(const comet_op_call *call, comet_cuda_norm *norm) {
    const cudaStream_t queue = comet_cuda_queue(call);
    *norm = norm_in(call, call->scratch);
    norm->mean = parameter(call, COMET_PARAMETER_MEAN)->value;
    COMET_TRY(comet_cuda_running_inverse(parameter(call, COMET_PARAMETER_VAR)->value,
                                         (double)call->node->as.norm.epsilon, norm->channels,
                                         (float *)norm->inverse_std, queue));
    return comet_cuda_norm_prepare(norm, queue);
}

static comet_status norm_forward(const comet_op_call *call) {
    comet_cuda_norm norm;
    if (call->training) {
        COMET_TRY(comet_cuda_batch_statistics(call));
        norm = comet_cuda_norm_of(call);
    } else
        COMET_TRY(running_tables(call, &norm));
    return apply(call, &norm);
}

static comet_status norm_forward_again(const comet_op_call *call) {
    const comet_cuda_norm norm = comet_cuda_norm_of(call);
    return apply(call, &norm);
}

/* With a mask beside it: what the ReLU lets through first, then a norm without one. */
static comet_status mask_gradient(const comet_op_call *call, comet_cuda_norm *norm) {
    const cudaStream_t queue = comet_cuda_queue(call);
    float *tables = (float *)call->scratch + 2 * channels_of(call);
    norm->relu = 0;
    norm->shift = tables;
    norm->threshold = tables + norm->channels;
    COMET_TRY(comet_cuda_norm_prepare(norm, queue));
    return comet_cuda_relu_backward(NULL, call->mask, call->dy, call->dx[0],
                                    comet_cuda_count(call, call->node->output), call->backend->dtype, queue);
}

static comet_status norm_backward(const comet_op_call *call) {
    const int masked = call->relu && call->mask;
    COMET_REQUIRE(call->dx[0] && !call->normalised, "%s: a norm's gradient needs its input and a place",
                  call->node->name);
    comet_cuda_norm norm = comet_cuda_norm_of(call);
    if (masked)
        COMET_TRY(mask_gradient(call, &norm));
    const comet_tensor x = comet_cuda_tensor(call, call->node->input[0], call->x[0]),
                       dx = comet_cuda_tensor(call, call->node->input[0], call->dx[0]),
                       dy = comet_cuda_tensor(call, call->node->output, masked ? call->dx[0] : call->dy);
    const comet_codec_exec exec = comet_cuda_exec(comet_cuda_backend(call));
    const comet_cuda_norm_gradients made = comet_cuda_norm_gradients_begin(call);
    COMET_TRY(comet_cuda_norm_backward(&norm, NULL, &x, &dy, &dx, made.gamma, made.beta, NULL, &exec, NULL, NULL));
    return comet_cuda_norm_gradients_end(call, &made);
}

const comet_op_kernel comet_cuda_batch_norm = {.prepare = norm_prepare,
                                               .forget = norm_forget,
                                               .scratch = norm_scratch,
                                               .side = norm_side,
                                               .forward = norm_forward,
                                               .forward_again = norm_forward_again,
                                               .backward = norm_backward};
