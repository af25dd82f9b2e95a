/* SPDX-License-Identifier: Apache-2.0 */
/* libcomet._native.Session: the Python object, made of all that the folders have. */
#include <stdlib.h>

#include "hold/budget.h"
#include "hold/footprint.h"
#include "hold/held.h"
#include "hold/session.h"
#include "pass/frame.h"
#include "pass/norm.h"

PyTypeObject *session_type;

/* ---- options ---- */

static int read_codec(form *to, const char *name, int parameter) {
    comet_codec codec;
    if (comet_codec_from_name(name, &codec) != COMET_OK) {
        PyErr_Format(PyExc_ValueError, "there is no codec '%s'", name);
        return -1;
    }
    to->codec = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    to->codec.codec = codec;
    if (parameter && codec == COMET_CODEC_GROUP)
        to->codec.group_bits = parameter;
    else if (parameter && codec == COMET_CODEC_POOL)
        to->codec.pool_block = parameter;
    return 0;
}

/* (kind, codec's name, its parameter or 0, a bound for each role) */
static int read_form(PyObject *tuple, form *to) {
    int kind, parameter;
    const char *codec;
    PyObject *bounds;
    if (!PyArg_ParseTuple(tuple, "isiO!", &kind, &codec, &parameter, &PyTuple_Type, &bounds))
        return -1;
    if (PyTuple_Size(bounds) != ROLES || kind < FORM_CODEC || kind > FORM_UNTOUCHED) {
        PyErr_Format(PyExc_ValueError, "%d bounds are wanted, and a kind of 0 to 2", (int)ROLES);
        return -1;
    }
    to->kind = kind;
    for (int i = 0; i < ROLES; i++)
        to->bounds[i] = PyFloat_AsDouble(PyTuple_GetItem(bounds, i));
    return PyErr_Occurred() ? -1 : read_codec(to, codec, parameter);
}

static int read_forms(session *s, PyObject *forms) {
    const Py_ssize_t count = PyTuple_Size(forms);
    if (count <= FORM_OF_BLOCKS || count > FORMS) {
        PyErr_Format(PyExc_ValueError, "%d to %d forms are wanted", FORM_OF_BLOCKS + 1, (int)FORMS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (read_form(PyTuple_GetItem(forms, i), &s->forms[i]))
            return -1;
    s->form_count = (int)count;
    return 0;
}

static PyObject *session_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {(char *)"forms",   (char *)"least_bytes", (char *)"lead_bytes", (char *)"segment_bytes",
                            (char *)"threads", (char *)"head_bytes",  (char *)"own_norms",  NULL};
    int threads = 1;
    long long head = -1;
    int own_norms = 0;
    PyObject *forms = NULL;
    Py_ssize_t least = 1 << 16, lead = 0, segment = 32 << 20;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!nnniLp", names, &PyTuple_Type, &forms, &least, &lead, &segment,
                                     &threads, &head, &own_norms))
        return NULL;
    session *s = object_new(type);
    if (!s)
        return NULL;
    s->last = &s->first;
    s->least_bytes = (size_t)least, s->lead_bytes = (size_t)lead, s->segment_bytes = (size_t)segment;
    s->head_bytes = head;
    s->own_norms = own_norms;
    comet_status status = COMET_OK;
    if (read_forms(s, forms) || (status = comet_threads_new((unsigned)threads, NULL, &s->threads)) != COMET_OK) {
        if (status != COMET_OK)
            raise_status(status, "threads");
        Py_DECREF(s);
        return NULL;
    }
    return (PyObject *)s;
}

static void session_dealloc(PyObject *self) {
    session *s = (session *)self;
    session_drop_read(s);
    Py_CLEAR(s->norms);
    for (int i = 0; i < SESSION_DEVICES; i++) {
        comet_device_store_free(s->stores[i]); /* entries hold a reference to the session: there are none */
        Py_CLEAR(s->no_thresholds[i]);
        Py_CLEAR(s->index_status[i]);
        Py_CLEAR(s->tables[i].tensor);
    }
    for (site *at = s->first, *next; at; at = next) {
        next = at->next;
        Py_XDECREF(at->name);
        free(at);
    }
    free(s->sites);
    free(s->aliases);
    budget_clear(s);
    footprint_clear(s);
    comet_threads_free(s->threads);
    object_free(self);
}

static PyObject *session_unpack(PyObject *self, PyObject *kept) {
    return held_unpack((session *)self, kept);
}

static PyObject *session_norm_backward(PyObject *self, PyObject *gradient) {
    PyObject *norm = session_take_norm((session *)self), *result = NULL;
    const int follows = norm ? torch_grad_is_enabled() : -1; /* create_graph=True */
    if (follows > 0)
        PyErr_SetString(PyExc_RuntimeError, "libcomet's batch norm cannot be differentiated twice: attach with "
                                            "own_norms=False, and libcomet.torch.unfuse(model) if it is fused");
    else if (follows == 0)
        result = norm_backward(norm, gradient);
    Py_XDECREF(norm);
    return result;
}

static PyObject *session_frame(PyObject *self, PyObject *names) {
    return frame_new((session *)self, names);
}

/* Settles what can be settled; what was decoded last is not wanted any more. */
static PyObject *session_poll(PyObject *self, PyObject *unused) {
    session *s = (session *)self;
    (void)unused;
    session_drop_read(s);
    for (int i = 0; i < SESSION_DEVICES; i++) {
        if (i > 0 && session_check_indices(s, (comet_device){COMET_CUDA, i - 1}))
            return NULL;
        if (!s->stores[i])
            continue;
        if (session_poll_store(s, s->stores[i]))
            return NULL;
        comet_status status = comet_device_store_health(s->stores[i]);
        if (status != COMET_OK) {
            raise_status(status, "the device store");
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static int put_number(PyObject *dict, const char *key, double value) {
    PyObject *number = PyFloat_FromDouble(value);
    int failed = !number || PyDict_SetItemString(dict, key, number);
    Py_XDECREF(number);
    return failed;
}

static int put_store(PyObject *dict, const comet_device_store_stats *t) {
    return put_number(dict, "entries", (double)t->entries) || put_number(dict, "unsettled", (double)t->unsettled) ||
           put_number(dict, "raw_bytes", (double)t->raw_bytes) ||
           put_number(dict, "stored_bytes", (double)t->stored_bytes) ||
           put_number(dict, "room_bytes", (double)t->room_bytes) || put_number(dict, "segments", (double)t->segments) ||
           put_number(dict, "segment_bytes", (double)t->segment_bytes) ||
           put_number(dict, "peak_segment_bytes", (double)t->peak_segment_bytes) ||
           put_number(dict, "workspace_bytes", (double)t->workspace_bytes) ||
           put_number(dict, "host_bytes", (double)t->host_bytes) ||
           put_number(dict, "peak_host_bytes", (double)t->peak_host_bytes) ||
           put_number(dict, "saves", (double)t->saves) || put_number(dict, "loads", (double)t->loads) ||
           put_number(dict, "misfits", (double)t->misfits) || put_number(dict, "refused", (double)t->refused) ||
           put_number(dict, "spills", (double)t->spills) || put_number(dict, "fetches", (double)t->fetches) ||
           put_number(dict, "waits", (double)t->waits) || put_number(dict, "queues_joined", (double)t->queues_joined);
}

/* "kept": [(tensors, bytes), ...] by reason; and sums of all but weights. */
static int put_kept(PyObject *dict, const kept_count *kept) {
    PyObject *list = PyList_New(0);
    double tensors = 0, bytes = 0;
    for (int i = 0; list && i < REASONS; i++) {
        tensors += i == REASON_WEIGHT ? 0 : (double)kept[i].tensors;
        bytes += i == REASON_WEIGHT ? 0 : kept[i].bytes;
        PyObject *row = Py_BuildValue("Kd", (unsigned long long)kept[i].tensors, kept[i].bytes);
        if (!row || PyList_Append(list, row))
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    const int failed = !list || PyDict_SetItemString(dict, "kept", list) || put_number(dict, "kept_tensors", tensors) ||
                       put_number(dict, "kept_bytes", bytes);
    Py_XDECREF(list);
    return failed;
}

/* A dict for each device: {-1: CPU, 0: GPU 0, ...}, and what is held without a store. */
static PyObject *session_stats(PyObject *self, PyObject *unused) {
    const session *s = (const session *)self;
    (void)unused;
    PyObject *all = PyDict_New();
    if (!all || put_kept(all, s->kept) || put_number(all, "waited_ms", 1e3 * s->waited) ||
        put_number(all, "footprint_shares", s->footprint.shares) || put_number(all, "shape_bytes", s->shape_bytes) ||
        put_number(all, "index_bytes", s->index_bytes) || put_number(all, "index_raw_bytes", s->index_raw_bytes)) {
        Py_XDECREF(all);
        return NULL;
    }
    for (int i = 0; i < SESSION_DEVICES; i++) {
        comet_device_store_stats stats = COMET_DEVICE_STORE_STATS_INIT;
        if (!s->stores[i])
            continue;
        comet_device_store_get_stats(s->stores[i], &stats);
        PyObject *one = PyDict_New(), *key = PyLong_FromLong(i - 1);
        int failed = !one || !key || put_store(one, &stats) || PyDict_SetItem(all, key, one);
        Py_XDECREF(one), Py_XDECREF(key);
        if (failed) {
            Py_DECREF(all);
            return NULL;
        }
    }
    return all;
}

static PyObject *describe_site(const site *at) {
    PyObject *dict = PyDict_New();
    if (dict &&
        (PyDict_SetItemString(dict, "name", at->name ? at->name : Py_None) || put_number(dict, "role", at->key.role) ||
         put_number(dict, "dtype", at->key.dtype) || put_number(dict, "count", (double)at->key.count) ||
         put_number(dict, "raw_bytes", (double)at->raw_bytes) || put_number(dict, "bytes", (double)at->bytes) ||
         put_number(dict, "rms", at->rms) || put_number(dict, "bound", at->used_bound) ||
         put_number(dict, "margin", at->margin) || put_number(dict, "saves", (double)at->saves) ||
         put_number(dict, "aliases", (double)at->aliases) || put_number(dict, "loads", (double)at->loads) ||
         put_number(dict, "referenced", (double)at->referenced) ||
         put_number(dict, "free_bytes", (double)at->free_bytes) || put_number(dict, "misfits", (double)at->misfits) ||
         put_number(dict, "kept", (double)at->kept) || put_number(dict, "heads", (double)at->heads) ||
         put_number(dict, "raw_total", at->raw_total) || put_number(dict, "stored_total", at->stored_total)))
        Py_CLEAR(dict);
    return dict;
}

static PyObject *session_sites(PyObject *self, PyObject *unused) {
    const session *s = (const session *)self;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (const site *at = s->first; list && at; at = at->next) {
        PyObject *one = describe_site(at);
        if (!one || PyList_Append(list, one))
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

static PyObject *session_reset_peak(PyObject *self, PyObject *unused) {
    session *s = (session *)self;
    (void)unused;
    for (int i = 0; i < SESSION_DEVICES; i++)
        if (s->stores[i])
            comet_device_store_reset_peak(s->stores[i]);
    Py_RETURN_NONE;
}

static PyObject *session_get_site_count(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(((session *)self)->site_count);
}

static PyGetSetDef session_attributes[] = {
    {"site_count", session_get_site_count, NULL, "how many sites are known", NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef session_methods[] = {
    {"frame", session_frame, METH_O, "frame(names) -> Frame: for one forward pass"},
    {"unpack", session_unpack, METH_O, "unpack(kept) -> tensor: the second of autograd's hooks"},
    {"norm_backward", session_norm_backward, METH_O, "norm_backward(dy): of the batch norm that was just unpacked"},
    {"poll", session_poll, METH_NOARGS, "poll(): settles what has arrived, without waiting"},
    {"stats", session_stats, METH_NOARGS, "stats() -> dict"},
    {"sites", session_sites, METH_NOARGS, "sites() -> list of dicts, in the order of the network"},
    {"set_budget", budget_set, METH_VARARGS, "set_budget(bytes, flight, device, probe)"},
    {"set_plan", budget_plan, METH_O, "set_plan([(site, place, lead), ...])"},
    {"begin_measuring", budget_begin_measuring, METH_O,
     "begin_measuring(forgets): the next pass is frugal, and measured; what the last one needed is forgotten or not"},
    {"end_measuring", budget_end_measuring, METH_NOARGS, "end_measuring() -> the peak that was measured, or None"},
    {"held_bytes", budget_held_bytes, METH_NOARGS, "held_bytes() -> those of streams on the GPU of the budget"},
    {"measured", budget_measured, METH_NOARGS, "measured() -> the sites of the last pass, and what they need"},
    {"set_footprint", footprint_set, METH_VARARGS, "set_footprint(device, ask): how to ask for PyTorch's bytes"},
    {"measure_footprint", footprint_measure, METH_O, "measure_footprint(whether the next pass is to be)"},
    {"reset_peak", session_reset_peak, METH_NOARGS, "reset_peak()"},
    {NULL, NULL, 0, NULL}};

int session_make_type(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_new, session_new},
                                  {Py_tp_dealloc, session_dealloc},
                                  {Py_tp_methods, session_methods},
                                  {Py_tp_getset, session_attributes},
                                  {Py_tp_doc, (void *)"Holds what autograd saves."},
                                  {0, NULL}};
    static PyType_Spec spec = {"libcomet._native.Session", sizeof(session), 0, Py_TPFLAGS_DEFAULT, slots};
    session_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return session_type ? PyModule_AddObjectRef(module, "Session", (PyObject *)session_type) : -1;
}
