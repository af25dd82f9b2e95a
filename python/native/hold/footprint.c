/* SPDX-License-Identifier: Apache-2.0 */
#include "hold/footprint.h"

/* PyTorch's bytes now; less than 0: exception. */
static double allocated(const session *s) {
    PyObject *bytes = PyObject_CallFunctionObjArgs(s->footprint.allocated, NULL);
    const double value = bytes ? PyFloat_AsDouble(bytes) : -1;
    Py_XDECREF(bytes);
    return PyErr_Occurred() ? -1 : value;
}

int footprint_is_measured(const session *s, const comet_device_store *store) {
    return s->footprint.is_measuring && store == s->footprint.store;
}

int footprint_note_saved(session *s, const comet_device_store *store, site *at) {
    if (!footprint_is_measured(s, store) || at->is_part)
        return 0;
    at->footprint = allocated(s);
    return at->footprint < 0 ? -1 : 0;
}

int footprint_note_read(session *s, const comet_device_store *store, size_t to_come) {
    if (!footprint_is_measured(s, store))
        return 0;
    const double now = allocated(s);
    s->footprint.reads++;
    if (now + (double)to_come > s->footprint.peak)
        s->footprint.peak = now + (double)to_come;
    return now < 0 ? -1 : 0;
}

/* Until the next tensor is saved what it needs must be there, too. */
static size_t room_at(const site *at, double peak) {
    enum { NEAR = 4 }; /* a norm's result has a site of its own, which is not waited at */
    const site *next = at->follower;
    for (int i = 0; i < NEAR && next && next->footprint <= 0; i++)
        next = next->follower;
    const double here = at->footprint, there = next ? next->footprint : 0;
    const double room = peak - (there > here ? there : here);
    return room > (double)at->raw_bytes ? (size_t)room : at->raw_bytes;
}

/* ---- Python ---- */

PyObject *footprint_set(PyObject *self, PyObject *args) {
    session *s = (session *)self;
    int device;
    PyObject *function;
    if (!PyArg_ParseTuple(args, "iO", &device, &function))
        return NULL;
    s->footprint.store =
        session_store(s, device < 0 ? (comet_device){COMET_CPU, 0} : (comet_device){COMET_CUDA, device});
    if (!s->footprint.store)
        return NULL;
    return object_keep(&s->footprint.allocated, function);
}

/* Before a forward pass. What was measured counts once backward has been there. */
PyObject *footprint_measure(PyObject *self, PyObject *wanted) {
    session *s = (session *)self;
    footprint *f = &s->footprint;
    if (f->is_measuring && f->reads) {
        f->is_measuring = 0;
        for (site *at = s->first; at; at = at->next)
            if (at->footprint > 0)
                at->footprint_room = room_at(at, f->peak);
    }
    if (wanted == Py_True && f->allocated && !f->is_measuring) {
        f->is_measuring = 1;
        f->reads = 0;
        f->peak = 0;
        for (site *at = s->first; at; at = at->next)
            at->footprint = 0;
    }
    Py_RETURN_NONE;
}

void footprint_clear(session *s) {
    Py_CLEAR(s->footprint.allocated);
}
