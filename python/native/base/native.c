/* SPDX-License-Identifier: Apache-2.0 */
#include "base/native.h"

/* ---- errors ---- */

int raise_status(comet_status status, const char *what) {
    const char *why = comet_last_error();
    PyObject *kind = status == COMET_ERROR_MEMORY ? PyExc_MemoryError : PyExc_RuntimeError;
    PyErr_Format(kind, "libcomet: %s: %s", what, *why ? why : comet_status_string(status));
    return -1;
}

/* ---- objects: with the limited API their memory is the type's to give and to take ---- */

void *object_new(PyTypeObject *type) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0);
}

void object_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

PyObject *object_keep(PyObject **place, PyObject *object) {
    PyObject *before = *place;
    Py_INCREF(object);
    *place = object;
    Py_XDECREF(before);
    Py_RETURN_NONE;
}
