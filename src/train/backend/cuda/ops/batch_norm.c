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
    norm.adds = call->add || call->dadd;
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

comet_status comet_cuda_norm_mask(const comet_op_call *call) {
    if (!call->mask || !call->relu) /* y is 0 exactly where the ReLU is off: its signs are the mask */
        return COMET_OK;
    return comet_cuda_relu_forward(call->y, call->y, call->mask, comet_cuda_count(call, call->node->output),
                                   call->backend->dtype, comet_cuda_queue(call));
}

/* ---- backward ---- */

/*
 * Where dgamma and dbeta are made: in the parameters' gradients, or beside them if they are to be added, or are wanted
 * for dx alone.
 */
typedef struct gradients {
    float *gamma, *beta;
} gradients;

static int is_wanted(const comet_op_call *call, unsigned which) {
    return !(call->unwanted & which);
}

static gradients gradients_begin(const comet_op_call *call) {
    gradients made = {call->scratch, (float *)call->scratch + channels_of(call)};
    if (!call->accumulate && is_wanted(call, COMET_BY_WEIGHT))
        made.gamma = parameter(call, COMET_PARAMETER_WEIGHT)->gradient;
    if (!call->accumulate && is_wanted(call, COMET_BY_BIAS))
        made.beta = parameter(call, COMET_PARAMETER_BIAS)->gradient;
    return made;
}

static comet_status gradients_end(const comet_op_call *call, const gradients *made) {
    const int64_t channels = channels_of(call);
    const cudaStream_t queue = comet_cuda_queue(call);
    if (call->accumulate && is_wanted(call, COMET_BY_WEIGHT))
        COMET_TRY(comet_cuda_add_to(parameter(call, COMET_PARAMETER_WEIGHT)->gradient, made->gamma, channels, queue));
    if (call->accumulate && is_wanted(call, COMET_BY_BIAS))
        COMET_TRY(comet_cuda_add_to(parameter(call, COMET_PARAMETER_BIAS)->gradient, made->beta, channels, queue));
    return COMET_OK;
}

comet_status comet_cuda_norm_unmask(comet_op_call *call) {
    void *masked = call->dadd ? call->dadd : call->dx[0];
    if (!call->mask || !call->relu)
        return COMET_OK;
    COMET_TRY(comet_cuda_relu_backward(NULL, call->mask, call->dy, masked, comet_cuda_count(call, call->node->output),
                                       call->backend->dtype, comet_cuda_queue(call)));
    call->dy = masked;
    call->relu = 0;
    return COMET_OK;
}

/* The tables' thresholds are of a norm with a ReLU: without one there are none. */
static comet_status take_threshold(const comet_op_call *call, comet_cuda_norm *norm) {
    if (norm->relu || norm->adds)
        return COMET_OK;
    norm->shift = (float *)call->scratch + 2 * norm->channels;
    norm->threshold = norm->shift + norm->channels;
    return comet_cuda_norm_prepare(norm, comet_cuda_queue(call));
}

/* What a sum adds to the backward pass; NULL without one. */
static const comet_cuda_norm_residual_back *residual_of(const comet_op_call *call, const comet_cuda_norm_source *from,
                                                        const comet_tensor *y, const comet_tensor *dz,
                                                        comet_cuda_norm_residual_back *residual) {
    if (!call->dadd)
        return NULL;
    *residual = (comet_cuda_norm_residual_back)COMET_CUDA_NORM_RESIDUAL_BACK_INIT;
    residual->dz = dz;
    if (call->relu && from->output) {
        residual->y_slot = from->output;
        residual->y_params = from->output_codec;
    } else if (call->relu)
        residual->y = y;
    return residual;
}

comet_status comet_cuda_norm_back(const comet_op_call *call, const comet_cuda_norm_source *from) {
    const comet_value in = call->node->input[0], out = call->node->output;
    const comet_tensor x = comet_cuda_tensor(call, in, call->x[0]), y = comet_cuda_tensor(call, out, call->y),
                       dx = comet_cuda_tensor(call, in, call->dx[0]), dy = comet_cuda_tensor(call, out, call->dy),
                       dz = comet_cuda_tensor(call, out, call->dadd);
    const comet_codec_exec exec = comet_cuda_exec(comet_cuda_backend(call));
    comet_cuda_norm norm = comet_cuda_norm_of(call);
    comet_cuda_norm_residual_back residual;
    COMET_REQUIRE(call->dx[0], "%s: a norm's gradient needs a place", call->node->name);
    COMET_TRY(take_threshold(call, &norm));
    const gradients made = gradients_begin(call);
    COMET_TRY(comet_cuda_norm_backward(&norm, from->stream, from->stream ? NULL : &x, &dy, &dx, made.gamma, made.beta,
                                       from->codec, &exec, from->status, residual_of(call, from, &y, &dz, &residual)));
    return gradients_end(call, &made);
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

/* Forward: the tables of an evaluation. Backward: gradients to be added, then tables without a threshold. */
static size_t norm_scratch(const comet_op_call *call, int backward) {
    return !backward && call->training ? 0
                                       : (size_t)((backward ? TABLES + 2 : TABLES) * channels_of(call)) * sizeof(float);
}

static comet_status apply(const comet_op_call *call, const comet_cuda_norm *norm) {
    const comet_tensor x = comet_cuda_tensor(call, call->node->input[0], call->x[0]),
                       y = comet_cuda_tensor(call, call->node->output, call->y),
                       add = comet_cuda_tensor(call, call->node->output, call->add);
    const comet_codec_exec exec = comet_cuda_exec(comet_cuda_backend(call));
    comet_cuda_norm_residual residual = COMET_CUDA_NORM_RESIDUAL_INIT;
    residual.add = &add;
    COMET_TRY(comet_cuda_norm_forward(norm, &x, &y, NULL, &exec, NULL, NULL, call->add ? &residual : NULL));
    return comet_cuda_norm_mask(call);
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

static comet_status norm_backward(const comet_op_call *given) {
    const comet_cuda_norm_source nothing_held = {0};
    comet_op_call call = *given;
    COMET_TRY(comet_cuda_norm_unmask(&call));
    return comet_cuda_norm_back(&call, &nothing_held);
}

const comet_op_kernel comet_cuda_batch_norm = {.prepare = norm_prepare,
                                               .forget = norm_forget,
                                               .scratch = norm_scratch,
                                               .side = norm_side,
                                               .forward = norm_forward,
                                               .forward_again = norm_forward_again,
                                               .backward = norm_backward};
