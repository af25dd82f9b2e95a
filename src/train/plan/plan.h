/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan: from a graph, a batch and the forms wanted, everything about a step's memory before the first step runs. What
 * is saved for backward and how, the life of every buffer, its place, and the peak.
 *
 * Times: forward of node i is at i, the loss at n, backward of node i at 2 n - i. A buffer lives from its first to its
 * last time, both included; two that live at the same time do not overlap.
 */
#ifndef COMET_TRAIN_PLAN_H
#define COMET_TRAIN_PLAN_H

#include "comet/store.h"
#include "train/backend/backend.h"

typedef struct comet_plan comet_plan;
typedef struct comet_learned comet_learned; /* learned.h */

typedef enum comet_saved_kind {
    COMET_SAVED_VALUE, /* a value, as it is or through the store */
    COMET_SAVED_NORM,  /* a batch norm's normalised input: from it come its ReLU's or SiLU's output and mask, too */
    COMET_SAVED_SIDE,  /* statistics of a batch norm, argmax of a max-pool: always kept */
    COMET_SAVED_MASK   /* a bit for each value of a ReLU's output: always kept */
} comet_saved_kind;

/*
 * How a saved tensor is held. COMET_FORM_KEEP without offload: in a buffer, where it was made. COMET_FORM_RECOMPUTE:
 * not at all; before the first backward that needs it, forward is run again from what is held. Else in the store.
 */
typedef struct comet_form {
    comet_store_form form;
    int offload;
    /* RECOMPUTE: at little cost, and from what is held anyway: no budget and no cut of the network makes it held */
    int always;
    int bytes; /* KEEP, of the network's input: as the bytes it came as, which are the caller's */
    int fixed; /* CODEC_EB: the bound was given for this tensor: no controller sets it */
    comet_codec_params codec;
} comet_form;

typedef struct comet_plan_entry {
    char name[COMET_NAME_BYTES]; /* of the node that made it */
    comet_saved_kind kind;
    int node;         /* that node; -1: the network's input */
    comet_op_kind op; /* its kind */
    /* 1: no trained parameter is before it, as with the network's input: it is not computed again. */
    int is_first;
    comet_value value; /* NORM: the batch norm's input */
    int uses;          /* ops that need it, all aliases together */
    int uses_conv;     /* of these, convolutions and linear layers: an error in it reaches their weights only */
    int has_relu;      /* NORM: on the grid of this ReLU's threshold */
    comet_shape shape; /* of a sample */
    size_t raw_bytes;
    size_t stored_bytes;  /* what it takes: exact if it is kept, else a guess */
    int is_estimate;      /* 1: a guess */
    size_t worst_bytes;   /* CODEC: the most that its streams can take */
    size_t scratch_bytes; /* CODEC: what saving or loading one takes beside it: the codec's workspace */
    comet_form form;
    int parts; /* 1, or streams of so many parts of the batch: a large NORM, which backward can take part by part */
    /*
     * Of a backend with fused streams: where the stream lies (a buffer; -1: none), and its room there; one that is
     * offloaded comes back to another.
     */
    int buffer, back_buffer;
    size_t capacity;
    int saved_at, last_at; /* times */
} comet_plan_entry;

typedef struct comet_plan_options {
    int batch;
    int training;   /* 0: evaluation */
    int accumulate; /* gradients of several batches will be added up */
    /*
     * Chooses entry->form (COMET_FORM_KEEP when called) of a VALUE or NORM entry. Of a NORM only COMET_CODEC_EB makes
     * one; with any other form the batch norm's input is an ordinary value, of which it is asked again. What is first
     * cannot be computed again: it is kept then. NULL: everything is kept.
     */
    void (*choose)(void *context, comet_plan_entry *entry);
    /* The most that steps have shown the entry's stream to take; 0: nothing is known. NULL: of none. */
    size_t (*seen)(void *context, const comet_plan_entry *entry);
    void *context;
    int input_bytes; /* the step is given the batch as bytes, which stay until it ends */
    /*
     * NULL, or a plan of the same graph, backend, batch and mode that was made without one: its prepared ops are used,
     * so that plans that differ in forms alone are made quickly. It must outlive this one, unless comet_plan_adopt is
     * called.
     */
    comet_plan *like;
} comet_plan_options;

typedef struct comet_plan_bytes {
    size_t static_bytes; /* parameters and their gradients */
    size_t buffer_bytes;
    size_t live_bytes;         /* the most that lives at one time: what buffers without gaps would take */
    size_t saved_raw_bytes;    /* all entries as they are */
    size_t saved_stored_bytes; /* and as they are held */
    /*
     * the store when it holds most: streams in whole pages, a reserve for those whose size is an estimate, the codec's
     * workspace
     */
    size_t store_bytes;
    /* the most that one stream and its workspace can take: with so much, the rest can be in the file */
    size_t worst_scratch_bytes;
    size_t peak_bytes; /* static + buffers + store */
} comet_plan_bytes;

/*
 * `graph` and `backend` must outlive the plan. COMET_ERROR_UNSUPPORTED: the backend cannot run a node; the message
 * names it.
 */
comet_status comet_plan_new(comet_graph *graph, comet_backend *backend, const comet_plan_options *options,
                            const comet_allocator *allocator, comet_plan **plan, comet_message *message);
void comet_plan_free(comet_plan *plan);

/* Takes the prepared ops over from options.like, which can then be freed, and nothing else. */
void comet_plan_adopt(comet_plan *plan);

const comet_graph *comet_plan_graph(const comet_plan *plan);

/* With the sizes that a run has learned; NULL: as the plan guesses them. */
comet_plan_bytes comet_plan_get_bytes(const comet_plan *plan, const comet_learned *learned);
int comet_plan_entries(const comet_plan *plan);
const comet_plan_entry *comet_plan_get_entry(const comet_plan *plan, int index);

/* 1: it is in the store while it is saved, in memory or in the file; 0: in a buffer. */
int comet_plan_in_store(const comet_plan_entry *entry);

/* The times of a step, 2 n + 1 (evaluation: n + 1), and what lives at one of them: buffers and streams. */
int comet_plan_times(const comet_plan *plan);
size_t comet_plan_bytes_at(const comet_plan *plan, const comet_learned *learned, int time);

/*
 * A choice for `choose`: every VALUE and NORM as COMET_CODEC_EB at *(const double *)context times its root mean square.
 */
void comet_plan_choose_eb(void *context, comet_plan_entry *entry);

#endif
