/* SPDX-License-Identifier: Apache-2.0 */
/* What autograd keeps in place of a tensor. It goes when the graph does, in whichever thread that is. */
#ifndef LIBCOMET_HELD_H
#define LIBCOMET_HELD_H

#include "hold/entry.h"

/* Takes a reference of its own. All: new references, or NULL with an exception. */
PyObject *held_new(entry *e, const tensor_view *view);

/* A tensor of which only the shape will be read. */
PyObject *held_shape(const tensor_view *view);

/* Indices of a max-pool, packed. */
PyObject *held_indices(PyObject *packed, const comet_pool_window *window, const tensor_view *view);

/* Of a mask that stands for numbers: what it is multiplied with. */
void held_set_scale(PyObject *held, double scale);

/* The tensor itself; that nobody writes to it is checked when it comes back, as autograd does without hooks. */
PyObject *held_kept(PyObject *tensor);

PyObject *held_unpack(session *s, PyObject *kept);

/* What stands for a batch norm's held values among autograd's saved tensors: any one tensor. libcomet.torch sets it. */
PyObject *held_set_token(PyObject *module, PyObject *token);
int held_is_token(PyObject *tensor);

#endif
