/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One forward pass in one thread. libcomet.torch says which operation is about to run (begin, end); autograd's hook
 * (pack) is called in between, once for every tensor that the operation saves.
 */
#ifndef LIBCOMET_FRAME_H
#define LIBCOMET_FRAME_H

#include "session.h"

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
    OP_DROPOUT     /* */
} operation;

struct entry;

enum { FRAME_VECTORS = 4 };

typedef struct frame {
    PyObject_HEAD
    session *session;
    PyObject *names; /* a dict: id(parameter) -> name */
    /* the operation that is running; references are the caller's, who calls end before they go */
    operation op;
    const form *form;
    PyObject *input, *weight, *args, *kwargs;
    tensor_view input_view, weight_view; /* read when they are first wanted */
    enum { VIEW_UNREAD, VIEW_READ, VIEW_NONE } input_state, weight_state;
    comet_pool_window window;
    /* a batch norm's: its input waits for the statistics, which are saved after it */
    struct entry *waiting;
    PyObject *vectors[FRAME_VECTORS];
    int vector_count;
    PyObject *norm; /* what a fused batch norm left: autograd gets it in place of the token that it saves */
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

/* frame.norm: norm.c */
PyObject *norm_forward(PyObject *self, PyObject *args);

PyObject *frame_set_known(PyObject *module, PyObject *table);

/* What stands for a batch norm's held values among autograd's saved tensors: any one tensor. */
PyObject *frame_set_token(PyObject *module, PyObject *token);
PyObject *frame_token(void); /* a new reference */

/* names: a dict from id(parameter) to a name. */
PyObject *frame_new(session *s, PyObject *names);

#endif
