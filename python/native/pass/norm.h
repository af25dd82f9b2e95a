/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm, what is added to it, and the ReLU behind it in one call (comet/cuda_norm.h). The normalised value u is
 * held once; the output y, which the next layer saves, is rebuilt from it. Where something is added y has a stream of
 * its own, written by the same kernel. On a GPU alone.
 */
#ifndef LIBCOMET_NORM_H
#define LIBCOMET_NORM_H

#include "hold/entry.h"
#include "pass/frame.h"

/* What backward needs. */
typedef struct norm_held {
    PyObject_HEAD entry *u, *y; /* y: where something is added and a ReLU follows */
    entry *rebuilt;             /* else: y, from the stream of u */
    comet_cuda_norm norm;
    PyObject *tables, *weight, *bias;
    long long weight_version, bias_version;
    size_t workspace;   /* bytes, of both passes */
    PyObject *observer; /* observer(norm, gradient): called once, in backward; NULL: nobody */
} norm_held;

/* The batch norm of a module with this dict. NULL without an exception: it is to be computed in the usual way. */
PyObject *norm_leaf(frame *f, PyObject *dict, PyObject *x);

/* Frame.norm(norm, activation or None, x, added or None, relu, curve) -> y, or None: in the usual way. */
PyObject *norm_forward(PyObject *self, PyObject *args);

/* Of a Norm: (dx, dz or None, dgamma, dbeta, None), as autograd wants them of the function (fuse.py). */
PyObject *norm_backward(PyObject *self, PyObject *gradient);

/* For statistics: u of a fused batch norm (None: its stream is not there), and what is known of the layer. */
PyObject *norm_values(PyObject *norm, comet_norm_pass *pass);

/* For libcomet.torch: how autograd gets to follow it. */
PyObject *norm_set_function(PyObject *module, PyObject *function);

#endif
