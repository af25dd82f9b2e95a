/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a network is computed, and where: a memory space, a table of kernels (one for each kind of op), the loss, the
 * update, and a holder for what backward needs of forward. Nobody else reads or writes an activation, a weight or a
 * gradient.
 *
 * A backend is asked what it supports, for the node and batch in question; the plan fails with a message if it does
 * not. Activations are NHWC, of the backend's dtype, as are their gradients; parameters are fp32, as in graph.h. Arrays
 * of a call are in the backend's space unless they are said to be the host's.
 */
#ifndef COMET_TRAIN_BACKEND_H
#define COMET_TRAIN_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "base/message.h"
#include "comet/threads.h"
#include "comet/use_stats.h"
#include "data/image/normalise.h"
#include "train/backend/errors.h"
#include "train/backend/holder.h"
#include "train/graph/op.h"
#include "train/optimiser/optimiser.h"

/* One call of an op. All memory is the caller's. */
struct comet_op_call {
    comet_backend *backend;
    const comet_graph *graph;
    const comet_node *node;
    int batch;
    int training; /* 0: evaluation (running statistics, nothing dropped, nothing left for a backward) */
    int relu;     /* a batch norm: the ReLU behind it is part of it */
    /*
     * A batch norm with a sum (comet_backend.fuses_sums): what is added to its output, before the ReLU; backward: where
     * its gradient goes, which may be dy.
     */
    const void *add;
    void *dadd;
    int normalised; /* a batch norm's backward: x[0] is not its input but that normalised */
    int accumulate; /* backward: gradients of parameters are added to what is there */
    int adds_dx;    /* backward: so is that of the first input, of a kernel that says it can */
    /*
     * COMET_BY_WEIGHT and so on: gradients that no backward of this node is asked for, as those of frozen parameters,
     * which have no memory; nothing is prepared for them. Without that of the weight x[0] may be NULL.
     */
    unsigned unwanted;
    void *state; /* what `prepare` made */

    const void *x[2]; /* forward: the inputs; backward: those that it needs */
    void *y;          /* forward: the output; backward: the output if it needs it */
    const void *dy;
    void *dx[2]; /* NULL: not wanted */
    void *side;  /* comet_op_side_bytes, or what the kernel's `side` says; NULL if nothing is kept */
    /* A bit for each value: was the ReLU on? Forward writes it, backward reads it; NULL: from y, or a norm's x. */
    uint8_t *mask;
    void *scratch;

    /* Of what is random: samples are counted over all ranks that train together, this one's from first_sample. */
    uint64_t seed, step;
    int64_t first_sample;
    /*
     * Forward: where an op that can tell at hardly any cost puts the rms of its output's non-zeros; may be NULL. Host.
     */
    double *rms;
};

typedef struct comet_op_kernel {
    /* Once for each node and batch; may be NULL. Of the call only what does not change from step to step is set. */
    comet_status (*prepare)(const comet_op_call *call, void **state);
    void (*forget)(void *state);
    size_t (*scratch)(const comet_op_call *call, int backward); /* bytes; NULL: none */
    size_t (*side)(const comet_op_call *call);                  /* NULL: comet_op_side_bytes */
    comet_status (*forward)(const comet_op_call *call);
    /* The same output once more, during backward: a batch norm takes its statistics from `side`. NULL: as forward. */
    comet_status (*forward_again)(const comet_op_call *call);
    comet_status (*backward)(const comet_op_call *call); /* dx and gradients of parameters */
    /* NULL, or 1: backward can add the gradient of the first input to what is there (comet_op_call.adds_dx). */
    int (*can_add_dx)(const comet_op_call *call);
} comet_op_kernel;

/* Softmax cross-entropy over a batch of logits: the mean over samples, labels smoothed. */
typedef struct comet_loss_call {
    comet_backend *backend;
    int batch, classes;
    const void *logits;
    const int32_t *labels; /* host */
    float smoothing;
    float gradient_scale; /* of dlogits, beside 1 / batch: 1, or 1 / (number of accumulated batches) */
    void *dlogits;        /* NULL: not wanted */
    double loss;          /* out: the mean */
    /*
     * Out: samples whose label is the greatest logit, is among the five greatest. Of equal logits the class of lower
     * index comes first. A sample with NaN among its logits is wrong: a network that diverged has no accuracy.
     */
    int top1, top5;
} comet_loss_call;

/* One update of all trained parameters of a graph from their gradients, which stay as they are. */
typedef struct comet_update_call {
    comet_backend *backend;
    /* 1: it is made only if the guard that was issued before allows it, and `await_update` fills in the rest. */
    int guarded;
    const comet_optimiser *optimiser;
    const comet_optimiser_step *step;
    comet_parameter *parameters; /* comet_graph_parameter(g, 0) */
    int count;
    float *state; /* comet_optimiser_bytes */
    /*
     * Host, of `count`, or NULL: of each parameter the mean of |momentum| (AdamW: of |first moment|; SGD without
     * momentum: of |gradient|, scaled and decayed) after the update; 0 where it is not trained.
     */
    double *means;
    /*
     * Out: the first parameter of which a value or some state is not finite now, which cannot be taken back; -1: none.
     */
    int broken;
} comet_update_call;

/*
 * Whether an update may be made, which the device finds out: the last loss and all values of `spans` must be finite,
 * and all that the holder was given must be held, and have been read without an error.
 */
typedef struct comet_guard_call {
    comet_backend *backend;
    comet_holder *holder; /* NULL: there is none */
    const comet_span *spans;
    int count;
    int first; /* out: the first span with a value that is not finite; -1: none */
} comet_guard_call;

/* Images as they come from the host, into the network's input. */
typedef struct comet_images_call {
    comet_backend *backend;
    const comet_normalisation *normalisation;
    const uint8_t *bytes; /* host: `count` images of `pixels` pixels, NHWC */
    int64_t count, batch, pixels;
    int channels;
    void *values; /* of `batch` images: those behind `count` are zero */
    int again;    /* 1: the bytes of the last call once more: what a device still has of them will do */
} comet_images_call;

/* What recorded work is given from the host: a step's batch, and its number. */
typedef struct comet_step_inputs {
    const uint8_t *bytes; /* of images; NULL: the network's input is there as values */
    int64_t byte_count;
    const int32_t *labels;
    int label_count, classes;
    uint64_t step;
} comet_step_inputs;

/* Work that was recorded, with the addresses and numbers that it was issued with. The backend's own. */
typedef struct comet_recording comet_recording;

/*
 * Statistics of uses (comet/use_stats.h) of tensors in the backend's space. Parameters, masks and the workspace are in
 * it, too; what is seen is the host's.
 */
typedef struct comet_backend_statistics {
    comet_status (*see_tensor)(comet_backend *backend, const comet_tensor_pass *pass, const comet_stats_exec *exec,
                               comet_stats_tensor *tensor);
    comet_status (*see_layer)(comet_backend *backend, const comet_layer_pass *pass, const comet_stats_exec *exec,
                              comet_stats_layer *layer);
    comet_status (*see_norm)(comet_backend *backend, const comet_norm_pass *pass, const comet_stats_exec *exec,
                             comet_stats_norm *norm);
    comet_status (*see_silu)(comet_backend *backend, const comet_silu_pass *pass, const comet_stats_exec *exec,
                             comet_stats_silu *silu);
    comet_status (*see_scale)(comet_backend *backend, const comet_scale_pass *pass, const comet_stats_exec *exec,
                              comet_stats_scale *scale);
    /* Of gradients: the sum of squares of each span is added to its place in `sums`. */
    comet_status (*squares)(comet_backend *backend, const comet_span *spans, int count, double *sums);
    /*
     * NULL: what is seen is there when a call returns. Else it is when this returns, and must have its place until
     * then; `keep` 0: nobody wants it any more. Calls that are recorded see each time the work is replayed. A call that
     * finds no room to be recorded says COMET_ERROR_MISMATCH: it will, when the same was issued and settled.
     */
    comet_status (*settle)(comet_backend *backend, int keep);
} comet_backend_statistics;

struct comet_backend {
    const char *name;
    comet_threads *threads;
    comet_space *space;
    comet_device device; /* where its space is */
    comet_dtype dtype;   /* of activations and of their gradients */
    /*
     * 1: kernels read and write streams themselves. Streams then lie in the plan's buffers (comet_held.memory), a batch
     * norm writes its output beside an input that is held, and its backward needs no buffer for what it reads.
     */
    int fused_streams;
    size_t alignment; /* of buffers; 0: COMET_ALIGNMENT is enough */
    int fuses_sums;   /* 1: batch norms add what a sum behind them adds */
    const comet_backend_statistics *statistics;
    const comet_backend_errors *errors; /* NULL: it measures none */
    /* 1: it can compute this node at this batch, forward and, if training, backward. */
    int (*supports)(comet_backend *backend, const comet_graph *g, const comet_node *node, int batch, int training);
    const comet_op_kernel *kernels[COMET_OP_KINDS]; /* NULL: unknown kind */
    comet_status (*images)(const comet_images_call *call);
    /*
     * NULL, or: the bytes of the next batch, which stay as they are until `images` is called for them, begin to come
     * over beside the work that was issued.
     */
    comet_status (*images_ahead)(comet_backend *backend, const uint8_t *bytes, int64_t count);
    comet_status (*loss)(comet_loss_call *call);
    /* NULL: what the loss gives out is there when it returns; else it is when this does. */
    comet_status (*await_loss)(comet_loss_call *call);
    comet_status (*update)(comet_update_call *call);
    /*
     * NULL, or: an update can be issued right behind a step's work, before the host knows what came of it. First the
     * guard, then the update, which is guarded; when all else of the step was awaited, both in the same order.
     */
    comet_status (*guard)(comet_guard_call *call);
    comet_status (*await_guard)(comet_guard_call *call);
    comet_status (*await_update)(comet_update_call *call);
    /* sum = a + b; sum may be a or b. */
    comet_status (*add)(comet_backend *backend, void *sum, const void *a, const void *b, int64_t count);
    /* The most that a stream of such a tensor can take, and what the codec takes beside it out of the plan's memory. */
    comet_status (*measure)(comet_backend *backend, const comet_tensor *tensor, const comet_codec_params *codec,
                            size_t *most, size_t *workspace);
    /* Holds what a plan does not keep in its buffers (holder.h). */
    comet_status (*holder_new)(comet_backend *backend, const comet_holder_options *options, comet_holder **holder);
    /* Before a step, with the graph's memory: what must be made ready of the weights. NULL: nothing. */
    comet_status (*begin)(comet_backend *backend, const comet_graph *g);
    /*
     * NULL, or: what is issued between `record` and `end_record` is not carried out, but kept, to be issued again and
     * again with one call. `inputs` comes before each: what the work reads of them is copied at once; images, labels
     * and the step's number in calls that are recorded are not looked at. `status`: of what was issued; if that did not
     * work, or recording did not, *recording is NULL and nothing has happened.
     */
    comet_status (*inputs)(comet_backend *backend, const comet_step_inputs *inputs);
    comet_status (*record)(comet_backend *backend);
    comet_status (*end_record)(comet_backend *backend, comet_status status, comet_recording **recording);
    /* COMET_ERROR_MISMATCH: memory has moved since, and it is of no use any more; nothing was issued. */
    comet_status (*replay)(comet_backend *backend, const comet_recording *recording);
    void (*recording_free)(comet_backend *backend, comet_recording *recording); /* NULL is allowed */
    /*
     * The device's clock, for measurements; NULL: the host's does as well. Marks are numbered from 0 and lie behind
     * what was issued so far; `read_marks` waits, and says how many ms after the first each was passed.
     */
    comet_status (*mark)(comet_backend *backend, int mark);
    comet_status (*read_marks)(comet_backend *backend, int count, double *ms);
    /*
     * NULL, or: which of several kernels were chosen, by measuring them, as text ended by a zero: the number of
     * characters without it, of which nothing is written if `room` is too small; 0: there is no such text. Who is given
     * it before anything is prepared chooses the same ones, and gives the same bits. COMET_ERROR_MISMATCH: it is of
     * another GPU or another version of a library, and of no use.
     */
    size_t (*choices)(const comet_backend *backend, char *text, size_t room);
    comet_status (*set_choices)(comet_backend *backend, const char *text);
    /* What the library takes for itself, in code, descriptions and packed matrices, at this batch: not less. */
    size_t (*library_bytes)(const comet_backend *backend, const comet_graph *g, int batch);
    size_t library_once; /* of these, what it takes but once, however many plans there are */
    /* NULL, or: the library gives back what it keeps of plans that are gone, in case they come again. */
    void (*trim)(comet_backend *backend);
    void (*free)(comet_backend *backend);
};

/*
 * oneDNN for convolutions and matrix products, our own code for the rest. `threads` is how many threads work (0: one
 * per core); backend->threads is a pool of the same ones, for the store too. COMET_ERROR_UNSUPPORTED: the oneDNN found
 * at run time is another major version than that compiled with.
 */
comet_status comet_backend_onednn_new(unsigned threads, const comet_allocator *allocator, comet_backend **backend);

/* Where a network is computed, and with what numbers. All zero: the CPU, in fp32. */
typedef struct comet_place {
    comet_device device;
    comet_dtype dtype;  /* of activations; a CPU has fp32 alone */
    int exact_products; /* a GPU's products of fp32 in fp32; else in TF32 */
    int deterministic;  /* of a GPU: only kernels that give the same bits in every run */
    int unrecorded;     /* of a GPU: every step is issued anew, none is recorded */
} comet_place;

/* "fp32", "tf32", "bf16", "fp16". */
const char *comet_place_numbers(const comet_place *place);

/* The backend for a place. */
comet_status comet_backend_new(const comet_place *place, unsigned threads, const comet_allocator *allocator,
                               comet_backend **backend, comet_message *message);

/* NULL is allowed. */
void comet_backend_free(comet_backend *backend);

#endif
