/* SPDX-License-Identifier: Apache-2.0 */
#include "hold/footprint.h"

enum { SHARES = 8 }; /* how finely room is taken up, and how much of it at first: one part */

/* PyTorch's bytes now, and the greatest number of them so far. -1: exception. */
static int ask(const session *s, double *now, double *peak) {
    PyObject *both = PyObject_CallFunctionObjArgs(s->footprint.ask, NULL);
    const int failed = !both || !PyArg_ParseTuple(both, "dd", now, peak);
    Py_XDECREF(both);
    return failed ? -1 : 0;
}

int footprint_is_measured(const session *s, const comet_device_store *store) {
    return s->footprint.is_measuring && store == s->footprint.store;
}

int footprint_is_to_come(const session *s, const comet_device_store *store) {
    return s->footprint.ask && store == s->footprint.store && s->footprint.shares == 0;
}

int footprint_note_saved(session *s, const comet_device_store *store, site *at) {
    if (!footprint_is_measured(s, store) || at->is_part)
        return 0;
    double peak;
    return ask(s, &at->footprint, &peak);
}

/* Until the next tensor is saved what it needs must be there, too. */
static size_t room_at(const site *at, double peak) {
    enum { NEAR = 4 }; /* a norm's result has a site of its own, which is not waited at */
    const site *next = at->follower;
    for (int i = 0; i < NEAR && next && next->footprint <= 0; i++)
        next = next->follower;
    const double here = at->footprint, there = next ? next->footprint : 0;
    const double room = peak - (there > here ? there : here);
    return room > 0 ? (size_t)room : 0;
}

size_t footprint_room(const session *s, const site *at) {
    return at->free_bytes / SHARES * (size_t)s->footprint.shares;
}

/* ---- reading ---- */

static void measure_read(footprint *f, double now, double peak, size_t to_come) {
    if (f->reads++ == 0)
        f->forward = peak;
    if (now + (double)to_come > f->peak)
        f->peak = now + (double)to_come;
}

/*
 * What libraries work in for the length of a call is not seen when tensors are saved and read. So room is taken up bit
 * by bit, as long as the forward pass stays below its own peak without, or below that of backward.
 */
static void grow(footprint *f, double peak) {
    const double rise = 1.01, limit = rise * (f->forward > f->peak ? f->forward : f->peak);
    if (peak > limit && f->shares > 1)
        f->shares /= 2;
    else if (peak <= limit)
        f->shares *= 2;
    f->is_growing = peak <= limit && f->shares < SHARES;
}

int footprint_note_read(session *s, const comet_device_store *store, size_t to_come) {
    footprint *f = &s->footprint;
    const int grows = f->is_growing && f->has_begun && store == f->store;
    double now, peak;
    if (!grows && !footprint_is_measured(s, store))
        return 0;
    if (ask(s, &now, &peak))
        return -1;
    if (f->is_measuring)
        measure_read(f, now, peak, to_come);
    else
        grow(f, peak);
    f->has_begun = 0;
    return 0;
}

static void end_measuring(session *s) {
    footprint *f = &s->footprint;
    f->is_measuring = 0;
    for (site *at = s->first; at; at = at->next)
        if (at->footprint > 0) {
            at->free_bytes = room_at(at, f->peak);
            at->is_measured = 1;
        }
    f->is_growing = f->shares = 1;
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
    return object_keep(&s->footprint.ask, function);
}

/* Before a forward pass. What was measured counts once backward has been there. */
PyObject *footprint_measure(PyObject *self, PyObject *wanted) {
    session *s = (session *)self;
    footprint *f = &s->footprint;
    if (f->is_measuring && f->reads)
        end_measuring(s);
    if (wanted == Py_True && f->ask && !f->is_measuring) {
        f->is_measuring = 1;
        f->reads = 0;
        f->peak = 0;
        for (site *at = s->first; at; at = at->next)
            at->footprint = 0;
    }
    f->has_begun = 1;
    Py_RETURN_NONE;
}

void footprint_clear(session *s) {
    Py_CLEAR(s->footprint.ask);
}
