/* SPDX-License-Identifier: Apache-2.0 */
#include "hold/entry.h"

#include <math.h>
#include <stdlib.h>

#include "hold/budget.h"
#include "hold/footprint.h"

/* ---- life ---- */

entry *entry_new(session *s, site *at, const form *how, const tensor_view *view, const comet_tensor *memory,
                 PyObject *raw) {
    entry *e = calloc(1, sizeof *e);
    if (!e) {
        PyErr_NoMemory();
        return NULL;
    }
    Py_INCREF(s);
    Py_XINCREF(raw);
    e->owner = s;
    e->references = 1;
    e->raw = raw;
    e->view = *view;
    e->memory = *memory;
    e->site = at;
    e->order = at->order;
    e->form = how;
    e->epilogue = (comet_cuda_epilogue)COMET_CUDA_EPILOGUE_INIT;
    return e;
}

entry *entry_share(entry *e) {
    e->references++;
    return e;
}

static void free_entry(entry *e) {
    session *s = e->owner;
    if (e->source)
        entry_release(e->source);
    Py_CLEAR(e->raw);
    for (int i = 0; i < ENTRY_OBJECTS; i++)
        Py_CLEAR(e->objects[i]);
    free(e);
    Py_DECREF(s);
}

/*
 * The device may still read what is let go of before it was settled (a pass that failed, a graph that nobody wanted):
 * PyTorch is told, as a tensor may come from another queue, on which its memory would be free at once.
 */
static void note_use(const entry *e) {
    if (e->raw)
        torch_used_by(e->raw, e->view.device, e->queue);
    for (int i = 0; i < ENTRY_OBJECTS; i++)
        if (e->objects[i])
            torch_used_by(e->objects[i], e->view.device, e->queue);
}

void entry_release(entry *e) {
    if (--e->references > 0)
        return;
    session *s = e->owner;
    if (s->read == e)
        session_drop_read(s);
    alias_remove(e);
    budget_unlist(e);
    /* The store tells the owner of a stream once (entry_settled). If that is still to come this is freed then: at once,
     * but where another thread waits for the stream, or is about to make it anew. */
    const int is_told = !e->held || e->source || comet_device_entry_state(e->held) != 0;
    Py_INCREF(s); /* the store is the session's: it must not go while it tells the last of its owners */
    if (!is_told)
        note_use(e);
    if (e->held)
        comet_device_store_release(e->store, e->held);
    if (is_told)
        free_entry(e);
    Py_DECREF(s);
}

/* ---- saving ---- */

static void choose_bound(const entry *e, role r, comet_codec_params *params) {
    const site *at = e->site;
    const double bound = at->set_bound > 0 ? at->set_bound : e->form->bounds[r];
    params->bound = bound;
    params->bound_kind = COMET_BOUND_ABSOLUTE;
    params->stats_kind = COMET_STATS_NONE;
    if (e->grid.channels) /* in units of a channel's deviation */
        return;
    /* They take an eighth to a fifth of the time, but without them a tensor whose scale has changed is not noticed. */
    params->stats_kind = COMET_STATS_EXACT;
    if (e->rms > 0)
        params->bound = bound * e->rms;
    else if (at->rms > 0)
        params->bound = bound * at->rms;
    else
        params->bound_kind = COMET_BOUND_RELATIVE;
}

/* A codec without a bound does not keep zeros apart: of a ReLU's result it would lose the mask, all that it needs. */
static int is_mask(const entry *e, role r) {
    const comet_codec codec = e->form->codec.codec;
    return r == ROLE_BITS || r == ROLE_NOISE ||
           (r == ROLE_RELU && e->form->kind == FORM_CODEC && codec != COMET_CODEC_EB && codec != COMET_CODEC_ZVC &&
            codec != COMET_CODEC_RAW);
}

/*
 * How large a stream is that was never there is asked of the device first: with next to no room it is made twice.
 * The host waits for it in such a step anyway. Room for a guess would be several times as large as the stream, and the
 * next ones would not fit behind it.
 */
static size_t expected_bytes(const site *at) {
    enum { ASKS = 1 };
    return at->bytes ? (size_t)((double)at->bytes * (1 + at->margin)) + 1024 : ASKS;
}

void entry_params(entry *e, role r, comet_codec_params *params, size_t *expected) {
    const site *at = e->site;
    budget_list(e);
    *params = e->form->codec;
    *expected = 0;
    if (is_mask(e, r)) {
        params->codec = COMET_CODEC_MASK;
        return;
    }
    if (e->form->kind == FORM_LOSSLESS)
        params->codec = COMET_CODEC_ZVC;
    if (params->codec == COMET_CODEC_EB) {
        if (e->grid.channels)
            params->grid = &e->grid;
        else
            params->keep_mask = r == ROLE_RELU;
        choose_bound(e, r, params);
    }
    *expected = expected_bytes(at);
}

int entry_save(entry *e, role r) {
    comet_device_save save = COMET_DEVICE_SAVE_INIT;
    comet_codec_params params;
    site *at = e->site;
    e->store = session_store(e->owner, e->view.device);
    if (!e->store || torch_queue(e->view.device, &save.queue))
        return -1;
    entry_params(e, r, &params, &save.expected_bytes);
    save.tensor = &e->memory;
    save.params = &params;
    save.owner = e;
    e->queue = save.queue;
    e->role = r;
    e->keeps_mask = params.keep_mask || params.codec == COMET_CODEC_MASK;
    e->is_mask = params.codec == COMET_CODEC_MASK;
    e->by_channel = e->grid.channels != 0;
    e->absolute = !e->by_channel && params.codec == COMET_CODEC_EB && params.bound_kind == COMET_BOUND_ABSOLUTE
                      ? params.bound
                      : 0;
    e->bound = e->form->kind == FORM_LOSSLESS ? 0 : at->set_bound > 0 ? at->set_bound : e->form->bounds[r];
    at->used_bound = e->bound;
    at->saves++;
    comet_status status = comet_device_store_save(e->store, &save, &e->held);
    /* Without memory, and where a batch norm's statistics are not finite, it stays as it is. */
    if (status == COMET_ERROR_MEMORY || (status == COMET_ERROR_ARGUMENT && e->by_channel)) {
        at->kept++;
        e->held = NULL;
        e->bound = 0;
        return 0;
    }
    if (status != COMET_OK)
        return raise_status(status, "compressing");
    const stored_watch *watch = e->owner->watch;
    return watch && watch->stored(e, NULL, 0) ? -1 : session_keep_lead(e->owner, e->store, at);
}

/*
 * On a grid that is scaled by 1 / deviation, so that the bound is in units of each channel's deviation, not of the
 * tensor's rms: that is what a batch norm's backward pass reads. Without a shift: neighbours predict the mean.
 */
int entry_save_norm(entry *e, PyObject *inverse_deviation) {
    const int channels_at = e->memory.layout == COMET_NHWC ? e->memory.ndim - 1 : 1;
    const int64_t channels = e->memory.shape[channels_at];
    PyObject *none = session_no_thresholds(e->owner, e->view.device, channels);
    PyObject *scale = none ? torch_float(inverse_deviation) : NULL;
    PyObject *deviation = scale ? torch_reciprocal(scale) : NULL;
    Py_XINCREF(none);
    e->objects[0] = scale, e->objects[1] = none, e->objects[2] = deviation;
    if (!deviation)
        return -1;
    e->grid.channels = channels;
    e->grid.scale = view_data(scale);
    e->grid.threshold = view_data(none);
    e->epilogue.channels = e->grid.channels;
    e->epilogue.scale = view_data(deviation);
    e->has_epilogue = 1;
    return entry_save(e, ROLE_NORM);
}

static double rms_of(const comet_codec_stats *stats) {
    const double rms = stats->nonzero > 0 ? sqrt(stats->sum_squares / (double)stats->nonzero) : 0;
    return isfinite(rms) ? rms : 0;
}

/*
 * The bound was set from the values of the last step. Where these are so much smaller that it is twice what it should
 * be, the tensor is held anew, with its own rms.
 */
static int is_too_coarse(const entry *e, const comet_codec_stats *stats) {
    const double rms = rms_of(stats);
    return e->absolute > 0 && rms > 0 && e->raw && e->absolute > 2 * e->bound * rms;
}

int session_redo(session *s) {
    int failed = 0;
    while (s->redo) {
        entry *e = s->redo;
        s->redo = e->next;
        e->next = NULL;
        if (!failed && e->references > 1) {
            comet_device_entry *before = e->held;
            e->held = NULL;
            e->site->misfits++;
            failed = entry_save(e, e->role);
            comet_device_store_release(e->store, before);
        }
        entry_release(e);
    }
    return failed;
}

void entry_settled(void *context, void *owner, comet_device_entry *held, const comet_device_settled *how) {
    entry *e = owner;
    site *at = e->site;
    (void)context, (void)held;
    if (e->references == 0) { /* released before it was settled */
        free_entry(e);
        return;
    }
    if (how->status != COMET_OK) {
        at->kept++;
        e->bound = 0;
        return; /* the tensor stays */
    }
    if (is_too_coarse(e, &how->result.stats)) {
        e->rms = rms_of(&how->result.stats);
        e->next = e->owner->redo;
        e->owner->redo = entry_share(e);
        return; /* the tensor is needed once more */
    }
    if (how->result.bytes) {
        at->bytes = e->stored_bytes = how->result.bytes;
        at->raw_total += (double)e->view.bytes;
        at->stored_total += (double)how->result.bytes;
        e->stats = how->result.stats;
    }
    Py_CLEAR(e->raw);
}

int entry_settle(entry *e) {
    while (e->held && comet_device_entry_state(e->held) == 0) {
        if (session_poll_store(e->owner, e->store))
            return -1;
        if (!e->held || comet_device_entry_state(e->held) != 0)
            break;
        if (session_await(e->owner, e->store, e->held))
            return -1;
    }
    return 0;
}

/* ---- reading ---- */

/*
 * What the site learns from this tensor: here, and not when it arrives, so that a run does not depend on how far the
 * host is ahead of the device.
 */
int entry_learn(entry *e) {
    if (e->collects && e->owner->watch)
        e->owner->watch->was_read(e);
    e->site->referenced += e->is_listed && !torch_storage_is_gone(e->watch);
    if (e->stats.nonzero > 0 && !e->grid.channels) {
        const double rms = rms_of(&e->stats);
        if (rms > 0)
            e->site->rms = rms;
    }
    e->stats.nonzero = 0;
    if (e->stored_bytes)
        e->site->read_bytes = e->stored_bytes;
    return budget_note_read(e);
}

static int is_unchanged(const entry *e) {
    for (int i = 0; i < ENTRY_OBJECTS; i++)
        if (e->versions[i] && torch_check_version(e->objects[i], e->versions[i]))
            return 0;
    return 1;
}

static PyObject *decode(entry *e, const tensor_view *as) {
    void *queue;
    tensor_view view = *as;
    const int on_cpu = view.device.kind == COMET_CPU;
    if (!is_unchanged(e) || torch_queue(view.device, &queue))
        return NULL;
    if (e->source && comet_device_entry_state(e->held) < 0)
        return e->rebuild(e);
    if (on_cpu && e->grid.channels)
        view.dtype = COMET_F32; /* as a grid decodes; rescaled behind it */
    PyObject *tensor = torch_like(&view);
    if (!tensor)
        return NULL;
    comet_tensor memory = e->memory;
    memory.data = view_data(tensor);
    if (view.dtype != e->view.dtype)
        memory.dtype = (comet_dtype)view.dtype;
    comet_status status =
        comet_device_store_load(e->store, e->held, queue, !on_cpu && e->has_epilogue ? &e->epilogue : NULL, &memory);
    if (status != COMET_OK) {
        raise_status(status, "decompressing");
        Py_CLEAR(tensor);
    } else if (on_cpu && e->has_epilogue) {
        PyObject *scaled = torch_rescale(tensor, e->objects[2], as->dtype);
        Py_DECREF(tensor);
        tensor = scaled;
    } else if (e->scale != 0) {
        PyObject *scale = PyFloat_FromDouble(e->scale);
        Py_XDECREF(scale ? torch_multiply(tensor, scale) : NULL);
        Py_XDECREF(scale);
        if (PyErr_Occurred())
            Py_CLEAR(tensor);
    }
    return tensor;
}

static int is_same_view(const tensor_view *a, const tensor_view *b) {
    if (a->ndim != b->ndim)
        return 0;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i] || a->strides[i] != b->strides[i])
            return 0;
    return 1;
}

PyObject *entry_read(entry *e, const tensor_view *as) {
    session *s = e->owner;
    if (entry_settle(e))
        return NULL;
    PyObject *tensor = NULL;
    if (e->raw) {
        if (torch_check_version(e->raw, e->view.version))
            return NULL;
        tensor = e->raw;
        Py_INCREF(tensor);
    } else if (s->read == e) {
        tensor = s->tensor;
        Py_INCREF(tensor);
    } else {
        session_drop_read(s); /* before the next one is made: two would be there at once */
        if (entry_learn(e))
            return NULL;
        e->site->loads++;
        tensor = decode(e, &e->view);
        if (!tensor || footprint_note_read(s, e->store, e->view.bytes)) {
            Py_XDECREF(tensor);
            return NULL;
        }
    }
    if (e->unread > 0 && !e->raw && s->read != e) { /* somebody else will want it soon */
        PyObject *other = s->tensor;                /* of another thread, while PyTorch had let go of the lock */
        Py_INCREF(tensor);
        s->read = e, s->tensor = tensor;
        Py_XDECREF(other);
    } else if (e->unread <= 0 && s->read == e) {
        session_drop_read(s);
    }
    if (is_same_view(as, &e->view))
        return tensor;
    PyObject *view = torch_as_strided(tensor, as);
    Py_DECREF(tensor);
    return view;
}
