/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "budget.h"
#include "entry.h"
#include "footprint.h"
#include "frame.h"
#include "held.h"
#include "norm.h"

PyTypeObject *session_type;

/* ---- stores ---- */

static int device_number(comet_device device) {
    return device.kind == COMET_CPU ? 0 : 1 + device.index;
}

comet_device_store *session_store(session *s, comet_device device) {
    const int at = device_number(device);
    if (at >= SESSION_DEVICES) {
        PyErr_SetString(PyExc_RuntimeError, "libcomet: more than 16 GPUs in one process");
        return NULL;
    }
    if (s->stores[at])
        return s->stores[at];
    comet_device_store_options options = COMET_DEVICE_STORE_OPTIONS_INIT;
    options.device = device;
    if (device.kind == COMET_CUDA)
        options.memory = (comet_device_memory){torch_memory_take, torch_memory_give, (void *)(intptr_t)device.index};
    options.segment_bytes = s->segment_bytes;
    options.settled = entry_settled;
    options.settled_context = s;
    options.threads = s->threads;
    comet_status status = comet_device_store_new(&options, &s->stores[at]);
    if (status != COMET_OK) {
        s->stores[at] = NULL;
        raise_status(status, device.kind == COMET_CUDA ? "a store on the GPU" : "a store on the CPU");
    }
    return s->stores[at];
}

int session_poll_store(session *s, comet_device_store *store) {
    comet_status status = comet_device_store_poll(store);
    entry_free_late(s);
    if (status != COMET_OK)
        return raise_status(status, "the device store");
    return session_redo(s) || budget_spill(s) ? -1 : 0;
}

/*
 * The peak of a step, as far as it is ours: the streams that are held when backward comes to a tensor, and 4.5 tensors
 * like that one (gradients on both sides of a layer and along a shortcut, what is decoded, what libraries work in: seen
 * in ResNets). In convolutional networks it is reached when backward comes to the first, large layers, and by then most
 * streams are gone. So there is room at the end of forward, which is used in two ways: tensors may live on until their
 * streams have settled, and what backward needs first is not compressed at all.
 */
static const double peak_tensors = 4.5, forward_tensors = 4;

/* For the plan of a budget. */
static void keep_order(session *s, site *const *sites, size_t count) {
    site **copy = s->budget.bytes ? malloc(count * sizeof *copy + 1) : NULL;
    if (!copy)
        return; /* without the order there is no plan: all stays as frugal as it is */
    for (size_t i = 0; i < count; i++)
        copy[i] = sites[i];
    free(s->budget.sites);
    s->budget.sites = copy, s->budget.site_count = count;
}

void session_learn_pass(session *s, site *const *sites, size_t count) {
    size_t streams = 0, raw = 0, peak = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t here = streams + (size_t)(peak_tensors * (double)sites[i]->raw_bytes);
        sites[i]->streams_before = streams;
        sites[i]->follower = i + 1 < count ? sites[i + 1] : NULL;
        peak = here > peak ? here : peak;
        /* What is exact because backward begins with it must be the same in every run. */
        streams += sites[i]->read_bytes ? sites[i]->read_bytes : sites[i]->raw_bytes / 4;
    }
    const size_t room = peak > streams ? peak - streams : 0;
    for (size_t i = count; i-- > 0;) {
        raw += sites[i]->raw_bytes;
        sites[i]->raw_after = raw;
        sites[i]->was_passed = 1;
    }
    keep_order(s, sites, count);
    s->expected_peak = peak;
    s->head_room = s->head_bytes >= 0 ? (size_t)s->head_bytes : room < s->greatest ? room : s->greatest;
}

int session_is_head(session *s, site *at, comet_device device) {
    at->can_stay = 1;
    if (s->budget.bytes)
        return device.kind == COMET_CUDA && budget_place(s, at) == PLACE_AS_IT_IS;
    return device.kind == COMET_CUDA && at->was_passed && at->raw_after <= s->head_room;
}

/* Where nothing was measured: in forward a layer has its input, its output, that of the next one, a shortcut, and what
 * libraries work in. */
static size_t lead_at(const session *s, const site *at) {
    const size_t taken = at->streams_before + s->head_room + (size_t)(forward_tensors * (double)at->raw_bytes);
    if (s->budget.bytes)
        return budget_lead(s, at);
    if (s->lead_bytes)
        return s->lead_bytes;
    if (!at->was_passed)
        return 2 * s->greatest;
    if (footprint_lead(s, at))
        return footprint_lead(s, at);
    const size_t room = s->expected_peak > taken ? s->expected_peak - taken : 0;
    return room > at->raw_bytes ? room : at->raw_bytes;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int session_await(session *s, comet_device_store *store, comet_device_entry *held) {
    const double start = now();
    comet_status status;
    comet_device_store_share(held); /* meanwhile another thread may let go of it */
    PyThreadState *thread = PyEval_SaveThread();
    status = comet_device_store_await(store, held);
    PyEval_RestoreThread(thread);
    comet_device_store_release(store, held);
    s->waited += now() - start;
    return status == COMET_OK ? 0 : raise_status(status, "waiting for the device");
}

int session_keep_lead(session *s, comet_device_store *store, site *at) {
    const size_t lead = lead_at(s, at);
    if (session_poll_store(s, store))
        return -1;
    while (comet_device_store_unsettled_bytes(store) > lead) {
        if (session_await(s, store, comet_device_store_oldest(store)) || session_poll_store(s, store))
            return -1;
    }
    return footprint_note_saved(s, store, at) || budget_note_saved(s, store, at) ? -1 : 0;
}

void session_drop_read(session *s) {
    PyObject *tensor = s->tensor;
    s->read = NULL;
    s->tensor = NULL;
    Py_XDECREF(tensor);
}

PyObject *session_no_thresholds(session *s, comet_device device, int64_t channels) {
    const int at = device_number(device);
    if (s->no_threshold_room[at] < channels) {
        int64_t room = 4096;
        while (room < channels)
            room *= 2;
        PyObject *table = torch_full_nan(room, device);
        if (!table)
            return NULL;
        Py_XDECREF(s->no_thresholds[at]); /* entries have references of their own */
        s->no_thresholds[at] = table;
        s->no_threshold_room[at] = room;
    }
    return s->no_thresholds[at];
}

/* PyTorch takes microseconds to make a tensor, and a network has dozens of such tables. */
void *session_table(session *s, comet_device device, void *queue, size_t bytes, PyObject **owner) {
    enum { CHUNK = 256 << 10, ALIGNMENT = 16 };
    table_chunk *chunk = &s->tables[device_number(device)];
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!chunk->tensor || chunk->queue != queue || chunk->left < bytes) {
        const int64_t size = bytes > CHUNK ? (int64_t)bytes : CHUNK;
        PyObject *tensor = torch_empty(&size, 1, COMET_U8, device), *before = chunk->tensor;
        if (!tensor)
            return NULL;
        *chunk = (table_chunk){tensor, queue, view_data(tensor), (size_t)size};
        Py_XDECREF(before);
    }
    void *table = chunk->at;
    chunk->at += bytes, chunk->left -= bytes;
    Py_INCREF(chunk->tensor);
    *owner = chunk->tensor;
    return table;
}

int32_t *session_index_status(session *s, comet_device device) {
    PyObject **word = &s->index_status[device_number(device)];
    if (*word)
        return view_data(*word);
    *word = torch_pinned(sizeof(int32_t));
    int32_t *status = *word ? view_data(*word) : NULL;
    if (status)
        *status = COMET_OK;
    return status;
}

int session_check_indices(const session *s, comet_device device) {
    PyObject *word = s->index_status[device_number(device)];
    const volatile int32_t *status = word ? view_data(word) : NULL;
    if (!status || *status == COMET_OK)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "libcomet: the indices of a max-pool are not of its windows: exclude that "
                                        "layer, gradients of this step are wrong");
    return -1;
}

/* ---- sites ---- */

static uint64_t hash_key(const site *at) {
    const uint64_t parts[] = {(uint64_t)(uintptr_t)at->key.owner, at->key.use, at->key.role, at->key.dtype,
                              (uint64_t)at->key.count};
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        hash = (hash ^ parts[i]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
    return hash;
}

static int is_key(const site *a, const site *b) {
    return a->key.owner == b->key.owner && a->key.use == b->key.use && a->key.role == b->key.role &&
           a->key.dtype == b->key.dtype && a->key.count == b->key.count;
}

static site **site_slot(site **sites, size_t room, const site *key) {
    size_t at = (size_t)hash_key(key) & (room - 1);
    while (sites[at] && !is_key(sites[at], key))
        at = (at + 1) & (room - 1);
    return &sites[at];
}

static int grow_sites(session *s) {
    const size_t room = s->site_room ? 2 * s->site_room : 512;
    site **sites = calloc(room, sizeof *sites);
    if (!sites)
        return -1;
    for (site *at = s->first; at; at = at->next)
        *site_slot(sites, room, at) = at;
    free(s->sites);
    s->sites = sites, s->site_room = room;
    return 0;
}

/* The same place in the network, in a batch of another size. */
static uint32_t kin_of(const session *s, const site *made) {
    for (const site *at = s->first; at; at = at->next)
        if (at->key.owner == made->key.owner && at->key.use == made->key.use && at->key.role == made->key.role &&
            at->key.dtype == made->key.dtype)
            return at->number;
    return made->number;
}

site *session_site(session *s, const site *key, PyObject *name) {
    site **slot = NULL, *made = NULL;
    if ((s->site_room && 2 * s->site_count < s->site_room) || grow_sites(s) == 0)
        slot = site_slot(s->sites, s->site_room, key);
    if (slot && !*slot) {
        made = calloc(1, sizeof *made);
        if (made) {
            made->key = key->key;
            made->margin = 0.06;
            made->number = (uint32_t)s->site_count;
            made->kin = kin_of(s, made);
            Py_XINCREF(name);
            made->name = name;
            *slot = made;
            *s->last = made;
            s->last = &made->next;
            s->site_count++;
        }
    }
    if (!slot || !*slot)
        PyErr_NoMemory();
    return slot ? *slot : NULL;
}

/* ---- the Python object ---- */

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

PyObject *session_unpack(PyObject *self, PyObject *kept) {
    return held_unpack((session *)self, kept);
}

static PyObject *thread_key(void) {
    return PyLong_FromUnsignedLong(PyThread_get_thread_ident());
}

int session_note_norm(session *s, PyObject *norm) {
    PyObject *key = thread_key();
    int failed = !key || (!s->norms && !(s->norms = PyDict_New())) || PyDict_SetItem(s->norms, key, norm);
    Py_XDECREF(key);
    return failed ? -1 : 0;
}

/* The one that this thread has just unpacked; once. */
static PyObject *take_norm(session *s) {
    PyObject *key = thread_key(), *norm = key && s->norms ? PyDict_GetItemWithError(s->norms, key) : NULL;
    Py_XINCREF(norm);
    if (norm && PyDict_DelItem(s->norms, key))
        Py_CLEAR(norm);
    Py_XDECREF(key);
    if (!norm && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "libcomet: no batch norm was unpacked");
    return norm;
}

static PyObject *session_norm_backward(PyObject *self, PyObject *gradient) {
    PyObject *norm = take_norm((session *)self), *result = NULL;
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
        put_number(all, "shape_bytes", s->shape_bytes) || put_number(all, "index_bytes", s->index_bytes) ||
        put_number(all, "index_raw_bytes", s->index_raw_bytes)) {
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
         put_number(dict, "referenced", (double)at->referenced) || put_number(dict, "misfits", (double)at->misfits) ||
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
    {"begin_measuring", budget_begin_measuring, METH_NOARGS, "the next pass is frugal, and measured"},
    {"end_measuring", budget_end_measuring, METH_NOARGS, "end_measuring() -> the peak that was measured, or None"},
    {"held_bytes", budget_held_bytes, METH_NOARGS, "held_bytes() -> those of streams on the GPU of the budget"},
    {"measured", budget_measured, METH_NOARGS, "measured() -> the sites of the last pass, and what they need"},
    {"set_footprint", footprint_set, METH_VARARGS, "set_footprint(device, allocated): how to ask for PyTorch's bytes"},
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
