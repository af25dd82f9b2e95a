/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcomet._native: what runs for every tensor that autograd saves, in C. It is built against CPython's limited API
 * alone. PyTorch is reached through the objects that libcomet.torch hands over once (torch_api.h): no header and no
 * library of PyTorch is needed, so one module serves every version of it.
 *
 *   torch_api     what is called of PyTorch, and how a tensor becomes a comet_tensor
 *   module_parts  what a module of PyTorch is made of
 *   session       options, one device store for each device, what is known of each place in the network
 *   footprint     how far the host may be ahead of a GPU
 *   budget        what of it is where, under a limit for the GPU's memory
 *   entry         a tensor that is held: by a stream, or as it is until that is certain
 *   alias         finds the entry of a tensor that another operation has saved already
 *   operation     which operation is running: modules and functions that are known
 *   frame         one forward pass: what of it is saved, and how
 *   held          what autograd keeps in place of a tensor, and how the tensor comes back
 *   norm          batch norm and what follows it in one call, and its backward pass
 *   collect       statistics of the training, in iterations of which a controller wants them
 *   control       a controller, which sets the bounds of sites
 *
 * Everything runs under the interpreter's lock, which is the device stores' lock too. It is let go only while a call
 * waits for the device.
 */
#ifndef LIBCOMET_NATIVE_H
#define LIBCOMET_NATIVE_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>

#include <comet/comet.h>
#include <comet/device_store.h>
#include <comet/indices.h>
#include <stdint.h>

/* ---- errors ---- */

/* A Python exception for a status that is not COMET_OK: "what: why". Returns -1. */
int raise_status(comet_status status, const char *what);

/* ---- types of the module, made when it is loaded ---- */

extern PyTypeObject *session_type, *frame_type, *held_type, *kept_type, *norm_type;

int session_make_type(PyObject *module);
int frame_make_type(PyObject *module);
int held_make_types(PyObject *module);
int norm_make_type(PyObject *module);

/* An instance with all fields zero. */
void *object_new(PyTypeObject *type);
/* Frees an instance of one of these types, whose fields are cleared. */
void object_free(PyObject *self);

#endif
