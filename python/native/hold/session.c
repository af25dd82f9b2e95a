/* SPDX-License-Identifier: Apache-2.0 */
#include "hold/session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hold/budget.h"
#include "hold/entry.h"
#include "hold/footprint.h"

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
static size_t lead_at(const session *s, const comet_device_store *store, const site *at) {
    const size_t taken = at->streams_before + s->head_room + (size_t)(forward_tensors * (double)at->raw_bytes);
    if (s->budget.bytes)
        return budget_lead(s, at);
    if (s->lead_bytes)
        return s->lead_bytes;
    if (!at->was_passed) /* its size is not known: what it does not need is free again only if nothing is behind it */
        return 0;
    if (footprint_is_measured(s, store) || footprint_is_to_come(s, store))
        return at->raw_bytes;
    if (at->is_measured)
        return footprint_room(s, at);
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
    const size_t lead = lead_at(s, store, at);
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

/* ---- the norm that a thread has unpacked ---- */

static PyObject *thread_key(void) {
    return PyLong_FromUnsignedLong(PyThread_get_thread_ident());
}

int session_note_norm(session *s, PyObject *norm) {
    PyObject *key = thread_key();
    int failed = !key || (!s->norms && !(s->norms = PyDict_New())) || PyDict_SetItem(s->norms, key, norm);
    Py_XDECREF(key);
    return failed ? -1 : 0;
}

PyObject *session_take_norm(session *s) {
    PyObject *key = thread_key(), *norm = key && s->norms ? PyDict_GetItemWithError(s->norms, key) : NULL;
    Py_XINCREF(norm);
    if (norm && PyDict_DelItem(s->norms, key))
        Py_CLEAR(norm);
    Py_XDECREF(key);
    if (!norm && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "libcomet: no batch norm was unpacked");
    return norm;
}
