/* SPDX-License-Identifier: Apache-2.0 */
/* The backend's table, its device, its libraries and what they share. */
#include "train/backend/cuda/base/backend_cuda.h"

#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "comet/cuda.h"
#include "comet/cuda_norm.h"
#include "train/backend/cuda/base/space.h"
#include "train/backend/cuda/cublaslt/cublaslt.h"
#include "train/backend/cuda/cudnn/cudnn.h"

enum { BUFFER_ALIGNMENT = 256 }; /* of streams */
enum { NORM_CHANNELS = 4 };      /* tables of a norm's channels are 16-byte aligned one behind the other */

/* ---- what is asked of it ---- */

static int supports(comet_backend *backend, const comet_graph *g, const comet_node *node, int batch, int training) {
    (void)batch, (void)training;
    if (!backend->kernels[node->kind])
        return 0;
    return node->kind != COMET_OP_BATCH_NORM || comet_value_shape(g, node->output)->channels % NORM_CHANNELS == 0;
}

static comet_status measure(comet_backend *backend, const comet_tensor *tensor, const comet_codec_params *codec,
                            size_t *most, size_t *workspace) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    comet_tensor t = *tensor;
    comet_codec_params params = *codec;
    size_t wanted = 0;
    t.device = backend->device;
    params.grid = NULL;
    *workspace = 0; /* all share the backend's */
    if (codec->grid) {
        COMET_TRY(comet_cuda_norm_max_bytes(&t, &params, most));
        COMET_TRY(comet_cuda_norm_workspace(&t, &params, &wanted));
    } else {
        COMET_TRY(comet_cuda_max_bytes(&t, &params, most));
        COMET_TRY(comet_cuda_workspace(&t, &params, &wanted));
    }
    comet_cuda_want_workspace(b, wanted);
    return COMET_OK;
}

/* A new one only when all that used the old one is done. */
static comet_status make_workspace(comet_backend_cuda *b) {
    if (b->codec_workspace_bytes >= b->codec_workspace_wanted)
        return COMET_OK;
    COMET_TRY(comet_cuda_status(cudaStreamSynchronize(b->queue)));
    (void)cudaFree(b->codec_workspace);
    b->codec_workspace = NULL;
    b->codec_workspace_bytes = 0;
    COMET_TRY(comet_cuda_status(cudaMalloc(&b->codec_workspace, b->codec_workspace_wanted)));
    b->codec_workspace_bytes = b->codec_workspace_wanted;
    return comet_cuda_workspace_init(b->codec_workspace, b->codec_workspace_bytes, b->queue);
}

static comet_status begin(comet_backend *backend, const comet_graph *g) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    COMET_TRY(comet_cuda_status(cudaSetDevice(b->options.device)));
    COMET_TRY(make_workspace(b));
    return comet_cuda_weights_begin(b, g);
}

static size_t library_bytes(const comet_backend *backend, const comet_graph *g, int batch) {
    const comet_backend_cuda *b = (const comet_backend_cuda *)backend;
    const size_t weights = comet_graph_static_bytes(g, 0) / sizeof(float) * comet_dtype_size(backend->dtype);
    const size_t images = (size_t)(comet_shape_count(*comet_value_shape(g, g->input)) * batch);
    return COMET_CUDA_SPACE_STAGE + b->codec_workspace_wanted + comet_cuda_batch_bytes_on_device(images) +
           (backend->dtype == COMET_F32 ? 0 : weights);
}

static comet_status mark(comet_backend *backend, int index) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    return comet_cuda_marks_set(&b->kept.marks, index, b->queue);
}

static comet_status read_marks(comet_backend *backend, int count, double *ms) {
    return comet_cuda_marks_read(&((comet_backend_cuda *)backend)->kept.marks, count, ms);
}

comet_status comet_backend_cuda_memory(int32_t device, size_t *free_bytes, size_t *total_bytes) {
    COMET_TRY(comet_cuda_check(device));
    COMET_TRY(comet_cuda_status(cudaSetDevice(device)));
    return comet_cuda_status(cudaMemGetInfo(free_bytes, total_bytes));
}

/* ---- making one ---- */

static void fill(comet_backend_cuda *b) {
    comet_backend *backend = &b->base;
    backend->name = "cuda";
    backend->alignment = BUFFER_ALIGNMENT;
    backend->fused_streams = 1;
    backend->fuses_sums = 1;
    backend->statistics = &comet_cuda_statistics;
    backend->errors = &comet_cuda_errors;
    backend->supports = supports;
    backend->images = comet_cuda_images;
    backend->images_ahead = comet_cuda_images_ahead;
    backend->loss = comet_cuda_loss_issue;
    backend->await_loss = comet_cuda_loss_await;
    backend->update = comet_cuda_update;
    backend->guard = comet_cuda_guard;
    backend->await_guard = comet_cuda_guard_await;
    backend->await_update = comet_cuda_update_await;
    backend->add = comet_cuda_add;
    backend->measure = measure;
    backend->holder_new = comet_cuda_holder_new;
    backend->begin = begin;
    backend->inputs = comet_cuda_inputs;
    backend->record = b->options.unrecorded ? NULL : comet_cuda_begin_record;
    backend->end_record = comet_cuda_end_record;
    backend->replay = comet_cuda_replay;
    backend->recording_free = comet_cuda_recording_free;
    backend->choices = comet_cuda_choices;
    backend->set_choices = comet_cuda_set_choices;
    backend->mark = mark;
    backend->read_marks = read_marks;
    backend->library_bytes = library_bytes;
    const comet_op_kernel **k = backend->kernels;
    k[COMET_OP_CONV] = &comet_cuda_conv;
    k[COMET_OP_LINEAR] = &comet_cuda_linear;
    k[COMET_OP_BATCH_NORM] = &comet_cuda_batch_norm;
    k[COMET_OP_RELU] = &comet_cuda_relu;
    k[COMET_OP_SILU] = &comet_cuda_silu;
    k[COMET_OP_SIGMOID] = &comet_cuda_sigmoid;
    k[COMET_OP_ADD] = &comet_cuda_add_op;
    k[COMET_OP_SCALE] = &comet_cuda_scale;
    k[COMET_OP_MAX_POOL] = &comet_cuda_max_pool;
    k[COMET_OP_AVERAGE_POOL] = &comet_cuda_average_pool;
    k[COMET_OP_ADAPTIVE_POOL] = &comet_cuda_adaptive_pool;
    k[COMET_OP_SHORTCUT] = &comet_cuda_shortcut;
    k[COMET_OP_FLATTEN] = &comet_cuda_flatten;
    k[COMET_OP_DROPOUT] = &comet_cuda_dropout;
    k[COMET_OP_STOCHASTIC_DEPTH] = &comet_cuda_stochastic_depth;
}

static void backend_free(comet_backend *backend) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    const comet_allocator *allocator = b->allocator;
    if (b->queue)
        (void)cudaStreamSynchronize(b->queue);
    comet_cuda_parts_free(b);
    comet_cublaslt_free(b->cublaslt);
    comet_cudnn_free(b->cudnn);
    (void)cudaFree(b->codec_workspace);
    comet_cuda_space_free(b->space);
    if (b->queue)
        (void)cudaStreamDestroy(b->queue);
    comet_threads_free(b->base.threads);
    comet_memory_give(allocator, b, sizeof *b);
}

static comet_status open_device(comet_backend_cuda *b, comet_message *message) {
    comet_status status = comet_cuda_check(b->options.device);
    if (status == COMET_OK)
        status = comet_cuda_status(cudaSetDevice(b->options.device));
    if (status == COMET_OK)
        status = comet_cuda_status(cudaStreamCreateWithFlags(&b->queue, cudaStreamNonBlocking));
    if (status == COMET_OK)
        status = comet_cuda_space_new(b->queue, b->allocator, &b->weights_stale, &b->space);
    b->base.space = b->space;
    return status == COMET_OK
               ? COMET_OK
               : comet_message_set(message, status, "GPU %d: %s", (int)b->options.device,
                                   comet_last_error()[0] ? comet_last_error() : comet_status_string(status));
}

static comet_status check(const comet_backend_cuda_options *o, comet_message *message) {
    if (o->device < 0)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "GPUs are counted from 0, not from %d", (int)o->device);
    if (o->dtype != COMET_F32 && o->dtype != COMET_BF16 && o->dtype != COMET_F16)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "activations are fp32, bf16 or fp16");
    return COMET_OK;
}

static comet_status make(comet_backend_cuda *b, comet_message *message) {
    comet_status status = check(&b->options, message);
    if (status == COMET_OK)
        status = open_device(b, message);
    if (status == COMET_OK)
        status = comet_cudnn_new(b, &b->cudnn, message);
    if (status == COMET_OK)
        status = comet_cublaslt_new(b, &b->cublaslt, message);
    if (status != COMET_OK)
        return status;
    status = comet_threads_new(b->options.threads, b->allocator, &b->base.threads);
    return status == COMET_OK ? COMET_OK : comet_message_memory(message);
}

comet_status comet_backend_cuda_new(const comet_backend_cuda_options *options, const comet_allocator *allocator,
                                    comet_backend **backend, comet_message *message) {
    comet_backend_cuda *b = comet_memory_take(allocator, sizeof *b);
    if (!b)
        return comet_message_memory(message);
    memset(b, 0, sizeof *b);
    b->allocator = comet_memory_hold(&b->allocator_copy, allocator);
    b->options = *options;
    if (!b->options.workspace_bytes)
        b->options.workspace_bytes = COMET_CUDA_WORKSPACE;
    b->base.device = (comet_device){COMET_CUDA, options->device};
    b->base.dtype = options->dtype;
    b->base.free = backend_free;
    fill(b);
    const comet_status status = make(b, message);
    if (status != COMET_OK) {
        backend_free(&b->base);
        return status;
    }
    *backend = &b->base;
    return COMET_OK;
}
