/* SPDX-License-Identifier: Apache-2.0 */
#include "hold/budget.h"

#include <stdlib.h>
#include <time.h>

#include "hold/entry.h"

/* Streams come back from the host this many sites before they are read: a few transfers, and a few layers' time. */
enum { SITES_AHEAD = 6 };

/* ---- places ---- */

static size_t segment_bytes_of(comet_device_store *store) {
    comet_device_store_stats stats = COMET_DEVICE_STORE_STATS_INIT;
    comet_device_store_get_stats(store, &stats);
    return stats.segment_bytes;
}

/* PyTorch's peak since the last call, which begins a new one. Less than 0: exception. */
static double probe(session *s) {
    PyObject *peak = PyObject_CallFunctionObjArgs(s->budget.probe, NULL);
    const double bytes = peak ? PyFloat_AsDouble(peak) : -1;
    Py_XDECREF(peak);
    return PyErr_Occurred() ? -1 : bytes;
}

static void begin_measuring(session *s) {
    if (s->budget.is_measuring)
        return;
    s->budget.is_measuring = 1;
    s->budget.last = NULL;
    if (probe(s) < 0)
        PyErr_Clear(); /* what was before counts as part of the first interval then */
}

place budget_place(session *s, site *at) {
    if (!s->budget.bytes || at->is_part) /* what is done again in backward is wanted at once */
        return PLACE_DEVICE;
    if (!at->is_planned)
        begin_measuring(s);
    return !at->is_planned || s->budget.is_frugal ? PLACE_HOST : at->place;
}

size_t budget_lead(const session *s, const site *at) {
    if (at->is_part)
        return at->raw_bytes;
    return at->is_planned && !s->budget.is_frugal ? at->lead : 0;
}

/* ---- to the host ---- */

static int goes_to_host(const entry *e) {
    return e->view.device.kind == COMET_CUDA && e->owner->budget.bytes && budget_place(e->owner, e->site) == PLACE_HOST;
}

void budget_list(entry *e) {
    budget *b = &e->owner->budget;
    if (e->is_spilled || !goes_to_host(e))
        return;
    e->is_spilled = 1;
    e->earlier = b->latest;
    e->later = NULL;
    *(b->latest ? &b->latest->later : &b->earliest) = e;
    b->latest = e;
    if (!b->waiting)
        b->waiting = e;
}

void budget_unlist(entry *e) {
    budget *b = &e->owner->budget;
    if (!e->is_spilled)
        return;
    if (b->waiting == e)
        b->waiting = e->later;
    *(e->earlier ? &e->earlier->later : &b->earliest) = e->later;
    *(e->later ? &e->later->earlier : &b->latest) = e->earlier;
    e->is_spilled = 0;
    e->earlier = e->later = NULL;
}

int budget_spill(session *s) {
    budget *b = &s->budget;
    while (b->waiting) {
        entry *e = b->waiting;
        const int state = e->held ? comet_device_entry_state(e->held) : -1;
        if (state == 0)
            return 0;
        b->waiting = e->later;
        if (state < 0) {
            budget_unlist(e); /* it is kept as it is */
            continue;
        }
        comet_status status = comet_device_store_spill(e->store, e->held);
        if (status != COMET_OK && status != COMET_ERROR_MEMORY) /* without host memory it stays where it is */
            return raise_status(status, "a stream's way to the host");
    }
    return 0;
}

/* Where copying is slower than the forward pass, that waits: streams on their way are on the device, too. */
static int await_copies(session *s, comet_device_store *store) {
    const struct timespec pause = {0, 20000};
    comet_device_store_stats stats = COMET_DEVICE_STORE_STATS_INIT;
    comet_device_store_get_stats(store, &stats);
    while (stats.spilling_bytes > s->budget.flight) {
        PyThreadState *thread = PyEval_SaveThread();
        nanosleep(&pause, NULL);
        PyEval_RestoreThread(thread);
        s->waited += 2e-5;
        if (session_poll_store(s, store))
            return -1;
        comet_device_store_get_stats(store, &stats);
    }
    return 0;
}

/* Those that backward will want next. */
static int fetch_ahead(entry *e) {
    void *queue;
    entry *at = e->is_spilled ? e->earlier : e->owner->budget.latest;
    if (!at || torch_queue(e->view.device, &queue))
        return PyErr_Occurred() ? -1 : 0;
    for (int looked = 0; at && looked < 4 * SITES_AHEAD; at = at->earlier, looked++) {
        if (at->order >= e->order || at->store != e->store || !at->held || comet_device_entry_state(at->held) != 1)
            continue;
        if (e->order - at->order > SITES_AHEAD)
            break;
        /* Without memory now, it is fetched when it is read. */
        comet_status status = comet_device_store_fetch(at->store, at->held, queue);
        if (status != COMET_OK && status != COMET_ERROR_MEMORY)
            return raise_status(status, "a stream's way back from the host");
    }
    return 0;
}

/* ---- what the network itself needs ---- */

/*
 * The peak since the last note, less what was held then. Of the two ends of the interval the one counts at which less
 * was held: the network's need is then not taken for less than it is. What a block that is done again holds meanwhile
 * counts as the network's.
 */
static int need_since(session *s, comet_device_store *store, int is_part, double *need) {
    budget *b = &s->budget;
    const double peak = probe(s), held = (double)segment_bytes_of(store);
    if (peak < 0)
        return -1;
    *need = peak - (b->last && b->last_held < held ? b->last_held : held);
    if (!is_part)
        b->last_held = held;
    b->peak = peak > b->peak ? peak : b->peak;
    return 0;
}

static void raise_to(double *value, double least) {
    *value = least > *value ? least : *value;
}

int budget_note_saved(session *s, comet_device_store *store, site *at) {
    double need;
    if (!s->budget.bytes || store != s->budget.store)
        return 0;
    if (await_copies(s, store))
        return -1;
    if (!s->budget.is_measuring)
        return 0;
    if (need_since(s, store, at->is_part, &need))
        return -1;
    if (!at->is_part)
        raise_to(&at->forward_need, need);
    else if (s->budget.last)
        raise_to(&s->budget.last->backward_need, need);
    if (!at->is_part)
        s->budget.last = at;
    return 0;
}

/* What happens from one read to the next belongs to the first of the two: its stream is still there. */
int budget_note_read(entry *e) {
    session *s = e->owner;
    double need;
    if (!s->budget.bytes || e->store != s->budget.store)
        return 0;
    if (s->budget.is_measuring) {
        if (need_since(s, e->store, e->site->is_part, &need))
            return -1;
        if (s->budget.last)
            raise_to(&s->budget.last->backward_need, need);
        if (!e->site->is_part)
            s->budget.last = e->site;
        e->site->was_measured = 1;
    }
    return fetch_ahead(e);
}

/* ---- Python ---- */

PyObject *budget_set(PyObject *self, PyObject *args) {
    session *s = (session *)self;
    Py_ssize_t bytes, flight;
    int device;
    PyObject *function;
    if (!PyArg_ParseTuple(args, "nniO", &bytes, &flight, &device, &function))
        return NULL;
    s->budget.store = session_store(s, (comet_device){COMET_CUDA, device});
    if (!s->budget.store)
        return NULL;
    s->budget.bytes = (size_t)bytes, s->budget.flight = (size_t)flight;
    return object_keep(&s->budget.probe, function);
}

static PyObject *forget_plan(session *s) {
    for (site *at = s->first; at; at = at->next) {
        at->is_planned = at->was_measured = 0;
        at->forward_need = at->backward_need = 0;
    }
    Py_RETURN_NONE;
}

/* A list of (number of the site, place, lead); other sites stay as they are. None: there is no plan any more. */
PyObject *budget_plan(PyObject *self, PyObject *plan) {
    session *s = (session *)self;
    if (plan == Py_None)
        return forget_plan(s);
    const Py_ssize_t count = PySequence_Size(plan);
    if (count < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t number, where, lead;
        PyObject *row = PySequence_GetItem(plan, i);
        const int read = row && PyArg_ParseTuple(row, "nnn", &number, &where, &lead);
        Py_XDECREF(row);
        if (!read)
            return NULL;
        site *at = s->first;
        while (at && at->number != (uint32_t)number)
            at = at->next;
        if (at)
            at->place = (place)where, at->lead = (size_t)lead, at->is_planned = 1;
    }
    Py_RETURN_NONE;
}

/* The next pass is frugal, and measured. What was measured before stays the least that is needed; but if `forgets` what
 * the sites of the last pass need is measured from nothing. */
PyObject *budget_begin_measuring(PyObject *self, PyObject *forgets) {
    session *s = (session *)self;
    s->budget.is_frugal = 1;
    for (site *at = s->first; at; at = at->next)
        at->was_measured = 0;
    for (size_t i = 0; forgets == Py_True && i < s->budget.site_count; i++)
        s->budget.sites[i]->forward_need = s->budget.sites[i]->backward_need = 0;
    begin_measuring(s);
    Py_RETURN_NONE;
}

/* The greatest peak that was measured, or None if nothing was. */
PyObject *budget_end_measuring(PyObject *self, PyObject *unused) {
    session *s = (session *)self;
    budget *b = &s->budget;
    double need;
    (void)unused;
    if (!b->is_measuring)
        Py_RETURN_NONE;
    if (need_since(s, b->store, 0, &need))
        return NULL;
    if (b->last)
        raise_to(&b->last->backward_need, need);
    PyObject *result = PyFloat_FromDouble(b->peak);
    b->peak = 0;
    b->is_measuring = b->is_frugal = 0;
    return result;
}

/* Bytes of streams on the device that the budget is for. */
PyObject *budget_held_bytes(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromSize_t(segment_bytes_of(((session *)self)->budget.store));
}

/* While passes are measured, the sites of the last forward pass, in order: (number, can stay as it is, raw, stream,
 * forward need, backward need, whether it was read while that was measured). */
PyObject *budget_measured(PyObject *self, PyObject *unused) {
    const session *s = (const session *)self;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && s->budget.is_measuring && i < s->budget.site_count; i++) {
        const site *at = s->budget.sites[i];
        const size_t bytes = at->bytes ? (size_t)((double)at->bytes * (1 + at->margin)) + 1024 : at->raw_bytes;
        PyObject *row = Py_BuildValue("Iinnddi", at->number, at->can_stay, (Py_ssize_t)at->raw_bytes, (Py_ssize_t)bytes,
                                      at->forward_need, at->backward_need, at->was_measured);
        if (!row || PyList_Append(list, row))
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

void budget_clear(session *s) {
    Py_CLEAR(s->budget.probe);
    free(s->budget.sites);
    s->budget.sites = NULL;
}
