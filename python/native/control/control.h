/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcomet._native.Control: a controller (comet/control.h) for the sites of a session, and what it must know of an
 * iteration (collect.h). libcomet.torch finds out which sites there are and what they are used for, and when an
 * iteration ends.
 */
#ifndef LIBCOMET_CONTROL_H
#define LIBCOMET_CONTROL_H

#include "control/collect.h"
#include "pass/frame.h"

enum { CONTROL_MOST_USES = 16 };

/* A use, and where what must be known of it is seen: numbers of layers and norms, -1: none. */
typedef struct control_use {
    comet_use_kind kind;
    int32_t gradient, layer, norm;
} control_use;

typedef struct control_tensor {
    uint32_t kin; /* which sites: session.h */
    int32_t use_count;
    control_use uses[CONTROL_MOST_USES];
    int64_t count;
    /* What was observed last, for a control that is made anew. */
    int32_t is_observed;
    uint64_t observed; /* how often */
    double rms;
    comet_use_stats stats[CONTROL_MOST_USES];
    comet_control_size bytes;
} control_tensor;

typedef struct control {
    PyObject_HEAD session *session; /* a reference */
    comet_control_options options;
    const comet_control_methods *methods;
    comet_control *control; /* NULL: nothing is known of the network yet */
    control_tensor *tensors;
    int32_t count;
    int32_t *of_kin; /* tensor + 1 of sites, by kin; 0: none */
    size_t kin_count;
    collect seen;
    PyObject *events; /* a list of tuples, which libcomet.torch takes away */
    int64_t iteration;
} control;

/* From a dict of names and numbers. -1: exception. */
int control_read_options(comet_control_options *to, PyObject *dict);

PyObject *control_momentum(PyObject *module, PyObject *args);

extern PyTypeObject *control_type;
int control_make_type(PyObject *module);

#endif
