/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which operation is running: that is how a frame knows what is being saved. There are two ways to learn it.
 *
 * A *leaf* is a module whose forward is one known operation (nn.Conv2d, nn.ReLU, ...). While a pass runs, leaves are in
 * the place that PyTorch has for a compiled call of a module, and are called in its stead. That is nearly free.
 * Functions that are called otherwise (F.relu in a forward) are seen as a *mode* of torch functions, which takes a few
 * microseconds for every function of PyTorch that is called. So the mode is on in the first pass, and stays on only if
 * it was needed.
 */
#ifndef LIBCOMET_OPERATION_H
#define LIBCOMET_OPERATION_H

#include "pass/frame.h"

extern PyTypeObject *leaf_type;

int operation_make_type(PyObject *module);

PyObject *operation_set_known(PyObject *module, PyObject *table);

/* Methods of a frame. */
PyObject *operation_torch_function(PyObject *self, PyObject *arguments);
PyObject *operation_enter(PyObject *self, PyObject *leaves);
PyObject *operation_exit(PyObject *self, PyObject *leaves);

#endif
