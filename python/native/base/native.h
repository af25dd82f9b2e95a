/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcomet._native: what runs for every tensor that autograd saves, in C. It is built against CPython's limited API
 * alone. PyTorch is reached through the objects that libcomet.torch hands over once (torch_api.h): no header and no
 * library of PyTorch is needed, so one module serves every version of it.
 *
 * Folders, each of which uses only those before it:
 *
 *   base/      this header
 *   torch/     torch_api: what is called of PyTorch, and views of its tensors; view_order: how these become a
 *              comet_tensor; module_parts: what a module is made of
 *   hold/      what is held. session: options, stores, what is known of each place in the network; entry: a tensor that
 *              is held, by a stream or as it is until that is certain; alias: finds the entry of a tensor that another
 *              operation has saved; held: what autograd keeps in place of a tensor; budget: what of it is where, under
 *              a limit for the GPU's memory; footprint: how far the host may be ahead of a GPU
 *   pass/      a forward pass. operation: which operation is running; frame: what of it is saved, and how; norm: batch
 *              norm and what follows it in one call, and its backward pass; tell: who watches is told
 *   control/   collect: statistics of the training; control: a controller, which sets the bounds of sites
 *
 * session_object.c has the Python object of a session, module.c the module.
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

/* What libcomet.torch hands over, kept in place of what was there. Returns None. */
PyObject *object_keep(PyObject **place, PyObject *object);

#endif
