/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend's own parts, for all of src/train/backend/cuda. */
#ifndef COMET_TRAIN_CUDA_BACKEND_CUDA_H
#define COMET_TRAIN_CUDA_BACKEND_CUDA_H

#include <cuda_runtime.h>

#include "codec/cuda/runtime.h"
#include "train/backend/cuda.h"
#include "train/backend/cuda/base/batch_bytes.h"
#include "train/backend/cuda/base/late.h"
#include "train/backend/cuda/base/marks.h"
#include "train/backend/cuda/base/transfer.h"

typedef struct comet_cudnn comet_cudnn;       /* cudnn/cudnn.h: the library, a handle, plans that were made */
typedef struct comet_cublaslt comet_cublaslt; /* cublaslt/cublaslt.h: the same for products */

/* What comet_cuda_update works through, on the device: made once for a graph, and again when something of it moves. */
typedef struct comet_cuda_update_table {
    comet_cuda_upload entries;
    uint64_t made_of; /* a hash of all addresses and counts; 0: not made */
    int count;        /* trained parameters */
    int64_t chunks;
} comet_cuda_update_table;

/* What other files of this folder keep from call to call. All zero at first; comet_cuda_parts_free. */
typedef struct comet_cuda_kept {
    comet_cuda_batch_bytes batch_bytes;
    comet_cuda_marks marks;
    comet_cuda_upload labels, rules, words; /* words: comet_cuda_step_words */
    comet_cuda_upload squared;              /* what squares are summed of */
    comet_cuda_record loss, updated;
    comet_cuda_buffer samples, partial_sums, weights, refused; /* refused: int32_t, of the last guard */
    comet_cuda_update_table update;
    comet_cuda_late late;         /* statistics that are under way */
    comet_cuda_record norm_parts; /* of a batch norm that comes in parts: nobody else writes it */
    comet_cuda_buffer statistics_workspace, plain_weights;
} comet_cuda_kept;

/* What recorded kernels find of a step on the device. */
typedef struct comet_cuda_step_words {
    const uint8_t *bytes; /* of the batch */
    uint64_t step;
} comet_cuda_step_words;

typedef struct comet_backend_cuda {
    comet_backend base; /* first: a comet_backend * is a pointer to this */
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_backend_cuda_options options; /* nothing of it is 0 that stands for a default */
    cudaStream_t queue;                 /* all work of the device */
    comet_space *space;
    comet_cudnn *cudnn;
    comet_cublaslt *cublaslt;
    /* Of libcomet's codecs and norms: one for all, ready for the next call (comet_cuda_workspace_init). */
    void *codec_workspace;
    size_t codec_workspace_bytes, codec_workspace_wanted;
    /*
     * Trained parameters in the type of the activations, if that is not fp32: value by value in the same places as in
     * the graph's memory, which begins at `weights_of`. In kept.weights.
     */
    void *weights;
    const float *weights_of;
    int64_t weights_count;
    int weights_stale; /* 1: they must be made anew before the next step */
    int is_recording;
    comet_cuda_kept kept;
} comet_backend_cuda;

static inline comet_backend_cuda *comet_cuda_backend(const comet_op_call *call) {
    return (comet_backend_cuda *)call->backend;
}

static inline cudaStream_t comet_cuda_queue(const comet_op_call *call) {
    return comet_cuda_backend(call)->queue;
}

/* Values of a whole tensor of the batch. */
static inline int64_t comet_cuda_count(const comet_op_call *call, comet_value v) {
    return comet_shape_count(*comet_value_shape(call->graph, v)) * call->batch;
}

/* Somebody will need a workspace of that size from the next step on. */
static inline void comet_cuda_want_workspace(comet_backend_cuda *backend, size_t bytes) {
    if (backend->codec_workspace_wanted < bytes)
        backend->codec_workspace_wanted = bytes;
}

/* A trained parameter as products and convolutions take it: of the type of the activations. */
const void *comet_cuda_weights(const comet_backend_cuda *backend, const comet_parameter *parameter);

/* Before a step: makes weights anew if they are stale. */
comet_status comet_cuda_weights_begin(comet_backend_cuda *backend, const comet_graph *graph);

/* All of backend->kept, when nothing of it is under way any more. */
void comet_cuda_parts_free(comet_backend_cuda *backend);

/* While work is recorded: where it finds the step's words. Else NULL: they are passed by value. */
static inline const comet_cuda_step_words *comet_cuda_recorded_words(const comet_backend_cuda *backend) {
    return backend->is_recording ? (const comet_cuda_step_words *)backend->kept.words.device.memory : NULL;
}

/* ---- ops/: one for each kind of op ---- */

extern const comet_op_kernel comet_cuda_conv, comet_cuda_linear, comet_cuda_batch_norm, comet_cuda_relu,
    comet_cuda_silu, comet_cuda_sigmoid, comet_cuda_add_op, comet_cuda_scale, comet_cuda_max_pool,
    comet_cuda_average_pool, comet_cuda_adaptive_pool, comet_cuda_shortcut, comet_cuda_flatten, comet_cuda_dropout,
    comet_cuda_stochastic_depth;

/* ---- recording.c: work that is issued once and carried out again and again ---- */

comet_status comet_cuda_inputs(comet_backend *backend, const comet_step_inputs *inputs);
comet_status comet_cuda_begin_record(comet_backend *backend);
comet_status comet_cuda_end_record(comet_backend *backend, comet_status status, comet_recording **recording);
comet_status comet_cuda_replay(comet_backend *backend, const comet_recording *recording);
void comet_cuda_recording_free(comet_backend *backend, comet_recording *recording);

/* ---- what else a backend does ---- */

comet_status comet_cuda_images(const comet_images_call *call);
comet_status comet_cuda_images_ahead(comet_backend *backend, const uint8_t *bytes, int64_t count);

/*
 * Each is its two halves: what is issued to the queue, and waiting for the queue to fill in what the call gives out.
 * One may be under way at a time.
 */
comet_status comet_cuda_loss(comet_loss_call *call);
/* Labels to the device. COMET_ERROR_ARGUMENT: one is of no class. */
comet_status comet_cuda_labels(comet_backend_cuda *backend, const int32_t *labels, int count, int classes);
comet_status comet_cuda_loss_issue(comet_loss_call *call);
comet_status comet_cuda_loss_await(comet_loss_call *call);
comet_status comet_cuda_update(comet_update_call *call);
comet_status comet_cuda_update_issue(comet_update_call *call);
comet_status comet_cuda_update_await(comet_update_call *call);
size_t comet_cuda_choices(const comet_backend *backend, char *text, size_t room);
comet_status comet_cuda_set_choices(comet_backend *backend, const char *text);
comet_status comet_cuda_guard(comet_guard_call *call);
comet_status comet_cuda_guard_await(comet_guard_call *call);
comet_status comet_cuda_add(comet_backend *backend, void *sum, const void *a, const void *b, int64_t count);
comet_status comet_cuda_holder_new(comet_backend *backend, const comet_holder_options *options, comet_holder **holder);
extern const comet_backend_statistics comet_cuda_statistics;
extern const comet_backend_errors comet_cuda_errors;

#endif
