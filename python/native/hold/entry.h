/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor that is held for the backward pass. */
#ifndef LIBCOMET_ENTRY_H
#define LIBCOMET_ENTRY_H

#include "hold/session.h"

enum { ENTRY_OBJECTS = 4 };

struct entry {
    session *owner; /* a reference */
    Py_ssize_t references;
    Py_ssize_t unread; /* of what autograd keeps: not asked for yet */
    comet_device_store *store;
    comet_device_entry *held; /* NULL: there is no stream, the tensor itself is kept */
    void *queue;              /* on which the stream is made */
    PyObject *raw;            /* the tensor itself: until its stream is certain, or for good */
    tensor_view view;         /* of the tensor as it was saved */
    comet_tensor memory;      /* the same in the order of memory */
    site *site;
    const form *form;
    double bound;            /* that it was held with, relative; 0: exact */
    double rms;              /* of its own values, where it had to be done again; 0: the site's */
    double absolute;         /* the same in the tensor's own units; 0: exact, or that is not how it was given */
    int by_channel;          /* the bound is in units of each channel's deviation, not of the tensor's rms */
    int keeps_mask, is_mask; /* is_mask: and nothing else */
    role role;
    uint32_t order; /* of its site in the pass */
    int is_spilled; /* its stream is on the host, or will be; among these: */
    entry *earlier, *later;
    entry *next;       /* among those that must be done again */
    uint32_t collects; /* statistics of it are wanted: collect.round; 0: none */
    size_t stored_bytes;
    comet_codec_stats stats; /* count 0: not known */
    /* What values go through when they come back. */
    comet_codec_grid grid;
    comet_cuda_epilogue epilogue;
    int has_epilogue;
    PyObject *objects[ENTRY_OBJECTS]; /* tensors that the two above point into */
    /* Of a batch norm's output, rebuilt from its input: that, and the layer. */
    entry *source;
    PyObject *(*rebuild)(entry *e); /* where the stream of the source could not be stored: from its tensor */
    comet_cuda_norm norm;
    long long versions[ENTRY_OBJECTS]; /* of the objects, where they must not change; 0: they may */
    double scale;                      /* of a mask that stood for numbers; 0: none */
    /* For aliases. */
    int is_listed;
    int64_t watch; /* of the storage */
};

/* One reference. NULL with an exception. */
entry *entry_new(session *s, site *at, const form *how, const tensor_view *view, const comet_tensor *memory,
                 PyObject *raw);
entry *entry_share(entry *e);
void entry_release(entry *e);

/* Compresses e->raw, with the parameters of its site and role. 0, also where there was no memory; -1: exception. */
int entry_save(entry *e, role r);

/* The same for a batch norm's input, whose statistics are known: one by channel. */
int entry_save_norm(entry *e, PyObject *inverse_deviation);

/* After every poll: what was held too coarsely, because its scale has changed since the last step, is done again. */
int session_redo(session *s);

/* Waits until it is known whether the stream is there. */
int entry_settle(entry *e);

/* A new tensor with the values, or the tensor itself. */
PyObject *entry_read(entry *e, const tensor_view *as);

/* What its site, and a budget, learn from this tensor when it is read. -1: exception. */
int entry_learn(entry *e);

/* Parameters of a save in this step; the grid is the entry's. */
void entry_params(entry *e, role r, comet_codec_params *params, size_t *expected);

/* comet_device_store_options.settled */
void entry_settled(void *context, void *owner, comet_device_entry *held, const comet_device_settled *how);

/* ---- aliases (alias.c) ---- */

/* The entry that holds this memory already, good enough for the role; NULL: none. */
entry *alias_find(session *s, const tensor_view *view, const form *how, role r);
void alias_add(entry *e, PyObject *tensor);
void alias_remove(entry *e);

#endif
