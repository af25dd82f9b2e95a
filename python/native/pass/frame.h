/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One forward pass in one thread. libcomet.torch says which operation is about to run (begin, end); autograd's hook
 * (pack) is called in between, once for every tensor that the operation saves.
 */
#ifndef LIBCOMET_FRAME_H
#define LIBCOMET_FRAME_H

#include "hold/session.h"

/* The numbers are libcomet.torch's too (ops.py). */
typedef enum operation {
    OP_NONE,
    OP_LAYER,      /* a convolution or linear layer: input, weight */
    OP_RELU,       /* */
    OP_CURVE,      /* SiLU, GELU */
    OP_BATCH_NORM, /* input; running mean, running variance, weight, bias */
    OP_ROW_NORM,   /* layer norm, group norm */
    OP_AVERAGE,    /* average pooling */
    OP_MAX_POOL,   /* */
    OP_DROPOUT,    /* */
    OP_SCALE       /* a product of a tensor, the input, and of factors for many of its values each */
} operation;

/* One call of it. */
typedef struct operation_call {
    operation op;
    PyObject *input, *weight, *args, *kwargs;
    PyObject *source; /* the function that was called, or the module */
    int is_training;  /* a batch norm's statistics are the batch's */
    comet_pool_window window;
} operation_call;

struct entry;

typedef struct frame {
    PyObject_HEAD session *session;
    PyObject *names; /* a dict: id(parameter) -> name */
    const form *form;
    operation_call now;                  /* what is running; references are the caller's */
    int is_input;                        /* the tensor that is being saved is its input: the same object */
    tensor_view input_view, weight_view; /* read when they are first wanted */
    enum { VIEW_UNREAD, VIEW_READ, VIEW_NONE } input_state, weight_state;
    /* a batch norm's: its input waits for the statistics, which are saved after it */
    struct entry *waiting;
    PyObject *vectors[2];
    struct frame *outer; /* of this thread: a pass within a pass */
    int saw_function;
    int is_dry;          /* nothing is held: the pass will be done again when backward comes to it (recompute.py) */
    int is_part;         /* of a pass, done again: its sites are not where the pass begins and ends */
    PyObject *observer;  /* called for every known operation that has run (tell.h); NULL: nobody watches */
    struct entry *noted; /* what the operation holds its input in, while somebody watches; a reference */
    tensor_view noted_view;
    PyObject *noted_raw; /* of a curve: its input as it is saved. One that works in place has written over its own */
    PyObject *norm;      /* what a fused batch norm left: autograd gets it in place of the token that it saves */
    /* where in the network */
    site **sites; /* what was held so far, in order */
    size_t site_count, site_room;
    const void *owner;
    PyObject *calls; /* a dict: how often a parameter was used in this pass */
    uint32_t use;
} frame;

/* What is known of the next tensor that is held. NULL with an exception. */
site *frame_site(frame *f, role r, const tensor_view *view);

/* The operation that runs has this parameter. -1: exception. */
int frame_enter_owner(frame *f, PyObject *parameter);

/* Statistics of a batch norm that is over. */
void frame_drop_vectors(frame *f);

/* names: a dict from id(parameter) to a name. */
PyObject *frame_new(session *s, PyObject *names);

#endif
