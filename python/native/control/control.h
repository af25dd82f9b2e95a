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

/* Of an iteration: the error that was computed, of how many batches, and what the model says. Variances; 0: none. */
typedef struct control_measured {
    double variance, batches, predicted;
} control_measured;

typedef struct control_tensor {
    uint32_t kin; /* which sites: session.h */
    int32_t use_count;
    control_use uses[CONTROL_MOST_USES];
    int64_t count;
    /* What was observed last, for a control that is made anew. */
    int32_t is_observed;
    uint64_t observed; /* how often */
    double rms;
    comet_use_stats stats[CONTROL_MOST_USES]; /* their factors are of this iteration, and are forgotten then */
    control_measured measured[CONTROL_MOST_USES];
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

/* ---- control_measured.c ---- */

/* [(kin, use, variance, batches), ...] of gradients that were `scale` times too large. -1: exception. */
int control_read_measured(control *c, PyObject *list, double scale);
void control_set_factors(control *c, int32_t tensor, comet_use_stats *stats);
void control_forget_measured(control *c);
int control_has_uses_of(const control_tensor *t, const control_tensor *other);
/* What was measured of tensors that stay: `made` takes the place of c->control. */
void control_keep_factors(const control *c, const control_tensor *tensors, int32_t count, comet_control *made);
PyObject *control_take_measured(PyObject *self, PyObject *unused);
PyObject *control_factors(PyObject *self, PyObject *unused);

PyObject *control_momentum(PyObject *module, PyObject *args);

extern PyTypeObject *control_type;
int control_make_type(PyObject *module);

#endif
