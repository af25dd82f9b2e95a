/* SPDX-License-Identifier: Apache-2.0 */
#include "control/collect.h"

#include <comet/cuda_use_stats.h>
#include <stdlib.h>
#include <string.h>

#include "control/control.h"
#include "pass/norm.h"

/* ---- memory ---- */

static void *grown(void *array, int32_t before, int32_t after, size_t size) {
    if (after <= before)
        return array;
    char *room = realloc(array, (size_t)after * size);
    if (room)
        memset(room + (size_t)before * size, 0, (size_t)(after - before) * size);
    else
        PyErr_NoMemory();
    return room;
}

/* On failure the old array is still there, and its size. */
#define GROW(array, before, after)                                                                                     \
    do {                                                                                                               \
        void *room = grown(array, before, after, sizeof *(array));                                                     \
        if ((after) > (before) && !room)                                                                               \
            return -1;                                                                                                 \
        (array) = room;                                                                                                \
    } while (0)

int collect_set_layers(collect *c, int32_t layers, int32_t norms) {
    GROW(c->outputs, c->layer_count, layers);
    GROW(c->inputs, c->layer_count, layers);
    GROW(c->norms, c->norm_count, norms);
    for (int32_t i = c->layer_count; i < layers; i++)
        c->outputs[i] = c->inputs[i] = (comet_stats_layer)COMET_STATS_LAYER_INIT;
    for (int32_t i = c->norm_count; i < norms; i++)
        c->norms[i] = (comet_stats_norm)COMET_STATS_NORM_INIT;
    c->layer_count = layers > c->layer_count ? layers : c->layer_count;
    c->norm_count = norms > c->norm_count ? norms : c->norm_count;
    return 0;
}

int collect_set_tensors(collect *c, int32_t tensors) {
    GROW(c->tensors, c->tensor_count, tensors);
    for (int32_t i = 0; i < tensors; i++) /* others than before, maybe */
        c->tensors[i] = (comet_stats_tensor)COMET_STATS_TENSOR_INIT;
    c->tensor_count = tensors > c->tensor_count ? tensors : c->tensor_count;
    return 0;
}

void collect_begin(collect *c) {
    for (int32_t i = 0; i < c->layer_count; i++)
        c->outputs[i] = c->inputs[i] = (comet_stats_layer)COMET_STATS_LAYER_INIT;
    for (int32_t i = 0; i < c->norm_count; i++)
        c->norms[i] = (comet_stats_norm)COMET_STATS_NORM_INIT;
    for (int32_t i = 0; i < c->tensor_count; i++)
        c->tensors[i] = (comet_stats_tensor)COMET_STATS_TENSOR_INIT;
    for (size_t i = 0; i < c->chunk_count; i++)
        c->chunks[i].used = 0;
    c->record_count = 0;
    c->diverged = 0;
    c->round++;
}

void collect_free(collect *c) {
    for (size_t i = 0; i < c->chunk_count; i++) {
        Py_CLEAR(c->chunks[i].device_bytes);
        Py_CLEAR(c->chunks[i].host_bytes);
    }
    Py_CLEAR(c->scratch);
    free(c->chunks), free(c->records), free(c->workspace);
    free(c->outputs), free(c->inputs), free(c->norms), free(c->tensors);
    *c = (collect){0};
}

/* ---- records ---- */

enum { CHUNK_BYTES = 1 << 20, RECORD_ALIGNMENT = 256 };

static record_chunk *new_chunk(collect *c, comet_device device, size_t bytes) {
    record_chunk *chunks = realloc(c->chunks, (c->chunk_count + 1) * sizeof *chunks);
    if (!chunks) {
        PyErr_NoMemory();
        return NULL;
    }
    c->chunks = chunks;
    record_chunk *made = &chunks[c->chunk_count];
    *made = (record_chunk){.device = device.index, .bytes = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES};
    made->device_bytes = torch_empty(&(int64_t){(int64_t)made->bytes}, 1, COMET_U8, device);
    made->host_bytes = made->device_bytes ? torch_pinned((int64_t)made->bytes) : NULL;
    if (!made->host_bytes) {
        Py_CLEAR(made->device_bytes);
        return NULL;
    }
    made->device_data = view_data(made->device_bytes), made->host_data = view_data(made->host_bytes);
    c->chunk_count++;
    return made;
}

static record_chunk *chunk_with(collect *c, comet_device device, size_t bytes) {
    for (size_t i = 0; i < c->chunk_count; i++)
        if (c->chunks[i].device == device.index && c->chunks[i].bytes - c->chunks[i].used >= bytes)
            return &c->chunks[i];
    return new_chunk(c, device, bytes);
}

/* The record counts when seen_at is called. */
static int take_record(collect *c, comet_device device, size_t bytes, comet_cuda_stats_slot *slot) {
    const size_t rounded = (bytes + RECORD_ALIGNMENT - 1) / RECORD_ALIGNMENT * RECORD_ALIGNMENT;
    if (c->record_count == c->record_room) {
        const size_t room = c->record_room ? 2 * c->record_room : 256;
        seen_record *records = realloc(c->records, room * sizeof *records);
        if (!records) {
            PyErr_NoMemory();
            return -1;
        }
        c->records = records, c->record_room = room;
    }
    record_chunk *chunk = chunk_with(c, device, rounded);
    if (!chunk)
        return -1;
    *slot = (comet_cuda_stats_slot){chunk->device_data + chunk->used, bytes, chunk->host_data + chunk->used};
    chunk->used += rounded;
    return 0;
}

static comet_status fold_one(collect *c, const seen_record *r) {
    switch (r->kind) {
    case SEEN_TENSOR: {
        comet_stats_tensor seen = COMET_STATS_TENSOR_INIT, *to = &c->tensors[r->index];
        comet_status status = comet_cuda_stats_fold_tensor(r->host, r->bytes, &seen);
        to->has_alike = seen.has_alike, to->all = seen.all, to->passed = seen.passed;
        return status;
    }
    case SEEN_LAYER_OUTPUT:
        return comet_cuda_stats_fold_layer(r->host, r->bytes, &c->outputs[r->index]);
    case SEEN_LAYER_INPUT:
        return comet_cuda_stats_fold_layer(r->host, r->bytes, &c->inputs[r->index]);
    default:
        return comet_cuda_stats_fold_norm(r->host, r->bytes, &c->norms[r->index]);
    }
}

/* What is not finite is the controller's to leave out; anything else is a mistake of ours. */
static int check(collect *c, comet_status status, const char *what) {
    c->calls++;
    if (status == COMET_ERROR_DIVERGED)
        c->diverged++;
    return status == COMET_OK || status == COMET_ERROR_DIVERGED ? 0 : raise_status(status, what);
}

int collect_fold(collect *c) {
    int failed = 0;
    for (size_t i = 0; i < c->record_count && !failed; i++) {
        comet_status status = fold_one(c, &c->records[i]);
        c->diverged += status == COMET_ERROR_DIVERGED;
        failed = status != COMET_OK && status != COMET_ERROR_DIVERGED ? raise_status(status, "statistics of a GPU") : 0;
    }
    c->record_count = 0;
    Py_CLEAR(c->scratch);
    return failed;
}

void collect_unscale(collect *c, double scale) {
    const double squares = scale * scale;
    for (int32_t i = 0; i < c->layer_count; i++) {
        c->outputs[i].gradient_squares /= squares;
        c->outputs[i].gradient_sizes /= scale;
    }
    for (int32_t i = 0; i < c->norm_count; i++) {
        c->norms[i].scale_squares /= squares;
        c->norms[i].own_gain /= squares, c->norms[i].common_gain /= squares;
        c->norms[i].acgc *= squares; /* it is multiplied with the sum of dX^2, which is that much smaller now */
    }
}

/* ---- one call ---- */

/*
 * Memory for one call, of PyTorch's: what is given back is used again in the order of the queue. The store's workspace
 * would not do: codecs leave that as the next codec wants to find it, statistics write anything.
 */
static int exec_of_gpu(collect *c, comet_device device, size_t bytes, comet_stats_exec *exec) {
    PyObject *scratch = torch_empty(&(int64_t){(int64_t)(bytes ? bytes : 1)}, 1, COMET_U8, device);
    if (!scratch || torch_queue(device, &exec->queue)) {
        Py_XDECREF(scratch);
        return -1;
    }
    Py_XDECREF(c->scratch);
    c->scratch = scratch;
    exec->workspace = view_data(scratch), exec->workspace_bytes = bytes;
    return 0;
}

/* How to run on a device, or on the CPU. 1: another device is current, and it cannot be looked at. */
static int exec_of(session *s, collect *c, comet_device device, size_t bytes, comet_stats_exec *exec) {
    *exec = (comet_stats_exec)COMET_STATS_EXEC_INIT;
    const int is_current = torch_is_current(device);
    if (is_current <= 0)
        return is_current < 0 ? -1 : 1;
    if (device.kind == COMET_CUDA)
        return exec_of_gpu(c, device, bytes, exec);
    if (c->workspace_bytes < bytes) {
        const size_t rounded = (bytes + 63) / 64 * 64;
        void *room = aligned_alloc(64, rounded);
        if (!room) {
            PyErr_NoMemory();
            return -1;
        }
        free(c->workspace);
        c->workspace = room, c->workspace_bytes = rounded;
    }
    exec->threads = s->threads;
    exec->workspace = c->workspace, exec->workspace_bytes = c->workspace_bytes;
    return 0;
}

/*
 * A tensor as statistics read it: on a CPU in fp32, which may be a copy. The reference is the caller's to drop. 1: it
 * is none that can be read.
 */
static int map_of(PyObject *given, comet_tensor *t, PyObject **kept) {
    tensor_view v;
    *kept = NULL;
    int result = view_read_any(given, &v);
    if (result)
        return result;
    if (v.dtype > COMET_BF16 || v.ndim < 2 || v.ndim > 4 || v.count == 0)
        return 1;
    PyObject *tensor = v.device.kind == COMET_CPU ? torch_float(given) : (Py_INCREF(given), given);
    if (!tensor)
        return -1;
    if (tensor != given && view_read_any(tensor, &v)) {
        Py_DECREF(tensor);
        return -1;
    }
    *kept = tensor;
    *t = (comet_tensor){.data = v.data, .device = v.device, .dtype = (comet_dtype)v.dtype, .layout = COMET_NCHW};
    t->ndim = v.ndim;
    for (int i = 0; i < v.ndim; i++)
        t->shape[i] = v.shape[i], t->strides[i] = v.strides[i];
    return 0;
}

/* Of `like`'s device and type, with this shape and no values. */
static int shape_of(PyObject *tuple, const comet_tensor *like, comet_tensor *t) {
    const Py_ssize_t count = PyTuple_Size(tuple);
    int64_t stride = 1;
    if (count < 2 || count > 4)
        return PyErr_Occurred() ? -1 : 1;
    *t = (comet_tensor){.device = like->device, .dtype = like->dtype, .layout = COMET_NCHW, .ndim = (int)count};
    for (Py_ssize_t i = count - 1; i >= 0; i--) {
        t->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        t->strides[i] = stride;
        stride *= t->shape[i];
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* A vector of fp32, one value a channel; NULL and an exception: it is none. */
static const float *table_of(PyObject *tensor, comet_device device) {
    tensor_view v;
    const int result = view_read_any(tensor, &v);
    if (result == 0 && v.dtype == COMET_F32 && v.device.kind == device.kind && v.device.index == device.index)
        return v.data;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "libcomet: a table of fp32 is wanted");
    return NULL;
}

/* ---- layers ---- */

static int run_layer(session *s, int32_t layer, const comet_layer_pass *pass, comet_device device) {
    collect *c = s->collect;
    const int is_output = (pass->what & COMET_STATS_OUTPUT) != 0;
    comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;
    comet_cuda_stats_slot slot;
    comet_stats_exec exec;
    comet_status status = device.kind == COMET_CUDA ? comet_cuda_stats_layer_needs(pass, &needs)
                                                    : comet_stats_layer_workspace(pass, &needs.workspace_bytes);
    if (status != COMET_OK)
        return check(c, status, "statistics of a layer");
    const int unable = exec_of(s, c, device, needs.workspace_bytes, &exec);
    if (unable)
        return unable;
    if (device.kind == COMET_CPU)
        return check(c, comet_stats_see_layer(pass, &exec, is_output ? &c->outputs[layer] : &c->inputs[layer]),
                     "statistics of a layer");
    if (take_record(c, device, needs.record_bytes, &slot))
        return -1;
    c->records[c->record_count++] =
        (seen_record){is_output ? SEEN_LAYER_OUTPUT : SEEN_LAYER_INPUT, layer, slot.host, slot.bytes};
    return check(c, comet_cuda_stats_see_layer(pass, &exec, &slot), "statistics of a layer");
}

int collect_see_layer(session *s, int32_t layer, uint32_t what, PyObject *x, PyObject *dy, PyObject *weights,
                      const int32_t *geometry) {
    comet_layer_pass pass = COMET_LAYER_PASS_INIT;
    comet_tensor input, gradient;
    PyObject *kept = NULL, *kept_weights = NULL, *seen = PyTuple_Check(x) ? dy : x;
    comet_tensor *of_seen = seen == x ? &input : &gradient, *other = seen == x ? &gradient : &input;
    int result = map_of(seen, of_seen, &kept);
    if (result == 0)
        result = shape_of(seen == x ? dy : x, of_seen, other);
    if (result == 0 && (what & COMET_STATS_COMMON)) { /* a copy in the order that they have in comet/use_stats.h */
        PyObject *full = torch_float(weights);
        kept_weights = full ? PyObject_CallMethod(full, "contiguous", NULL) : NULL;
        Py_XDECREF(full);
        pass.weights = kept_weights ? table_of(kept_weights, of_seen->device) : NULL;
        result = pass.weights ? 0 : -1;
    }
    if (result == 0) {
        int32_t *const to[] = {pass.kernel, pass.stride, pass.padding, pass.dilation};
        for (int i = 0; i < 8; i++)
            to[i / 2][i % 2] = geometry[i];
        pass.groups = geometry[8];
        pass.what = what, pass.input = &input, pass.gradient = &gradient;
        result = run_layer(s, layer, &pass, of_seen->device);
    }
    Py_XDECREF(kept), Py_XDECREF(kept_weights);
    return result < 0 ? -1 : 0;
}

/* ---- batch norms ---- */

static int run_norm(session *s, int32_t norm, const comet_norm_pass *pass, comet_device device) {
    collect *c = s->collect;
    comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;
    comet_cuda_stats_slot slot;
    comet_stats_exec exec;
    comet_status status = device.kind == COMET_CUDA ? comet_cuda_stats_norm_needs(pass, &needs)
                                                    : comet_stats_norm_workspace(pass, &needs.workspace_bytes);
    if (status != COMET_OK)
        return check(c, status, "statistics of a batch norm");
    const int unable = exec_of(s, c, device, needs.workspace_bytes, &exec);
    if (unable)
        return unable;
    if (device.kind == COMET_CPU)
        return check(c, comet_stats_see_norm(pass, &exec, &c->norms[norm]), "statistics of a batch norm");
    if (take_record(c, device, needs.record_bytes, &slot))
        return -1;
    c->records[c->record_count++] = (seen_record){SEEN_NORM, norm, slot.host, slot.bytes};
    return check(c, comet_cuda_stats_see_norm(pass, &exec, &slot), "statistics of a batch norm");
}

int collect_see_norm(session *s, int32_t norm, PyObject *x, PyObject *dy, PyObject *scale, PyObject *shift,
                     PyObject *gamma, PyObject *beta) {
    comet_norm_pass pass = COMET_NORM_PASS_INIT;
    comet_tensor values, gradient;
    PyObject *kept = NULL, *kept_gradient = NULL;
    int result = map_of(x, &values, &kept);
    if (result == 0)
        result = map_of(dy, &gradient, &kept_gradient);
    if (result == 0) {
        pass.values = &values, pass.gradient = &gradient;
        pass.scale = table_of(scale, values.device);
        pass.shift = pass.scale ? table_of(shift, values.device) : NULL;
        pass.gamma = pass.shift ? table_of(gamma, values.device) : NULL;
        pass.beta = pass.gamma ? table_of(beta, values.device) : NULL;
        pass.normalised = 1;
        pass.acgc = s->collect->acgc;
        result = pass.beta ? run_norm(s, norm, &pass, values.device) : -1;
    }
    Py_XDECREF(kept), Py_XDECREF(kept_gradient);
    return result < 0 ? -1 : 0;
}

int collect_see_fused(session *s, int32_t norm, PyObject *layer, PyObject *gradient) {
    comet_norm_pass pass = COMET_NORM_PASS_INIT;
    comet_tensor values, of_gradient;
    PyObject *kept = NULL, *kept_gradient = NULL;
    PyObject *u = norm_values(layer, &pass);
    int result = !u ? -1 : u == Py_None ? 1 : map_of(u, &values, &kept);
    if (result == 0)
        result = map_of(gradient, &of_gradient, &kept_gradient);
    if (result == 0) {
        pass.values = &values, pass.gradient = &of_gradient;
        pass.acgc = s->collect->acgc;
        result = run_norm(s, norm, &pass, values.device);
    }
    Py_XDECREF(u), Py_XDECREF(kept), Py_XDECREF(kept_gradient);
    return result < 0 ? -1 : 0;
}

/* ---- held tensors ---- */

/* What the codec will say, as far as neighbours need it: the bound. The rest is counted when the tensor is read. */
static comet_codec_record record_of(const entry *e, double bound) {
    comet_codec_record record = {.bytes = 1, .bound = bound, .tiles = 1};
    record.stats.count = record.stats.nonzero = e->view.count;
    record.stats.sum_squares = (double)e->view.count;
    return record;
}

static int run_tensor(entry *e, comet_tensor_pass *pass, const comet_codec_record *record) {
    collect *c = e->owner->collect;
    const comet_device device = e->view.device;
    const int32_t index = e->site->tensor - 1;
    comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;
    comet_cuda_stats_slot slot;
    comet_stats_exec exec;
    pass->result = record;
    comet_status status = device.kind == COMET_CUDA ? comet_cuda_stats_tensor_needs(pass, &needs)
                                                    : comet_stats_tensor_workspace(pass, &needs.workspace_bytes);
    if (status != COMET_OK)
        return check(c, status, "statistics of a tensor");
    const int unable = exec_of(e->owner, c, device, needs.workspace_bytes, &exec);
    if (unable)
        return unable < 0 ? -1 : 0;
    if (device.kind == COMET_CPU) {
        comet_stats_tensor seen = COMET_STATS_TENSOR_INIT, *to = &c->tensors[index];
        status = comet_stats_see_tensor(pass, &exec, &seen);
        to->has_alike = seen.has_alike, to->all = seen.all, to->passed = seen.passed;
        return check(c, status, "statistics of a tensor");
    }
    PyObject *on_device = torch_upload(record, sizeof *record, device);
    if (!on_device || take_record(c, device, needs.record_bytes, &slot)) {
        Py_XDECREF(on_device);
        return -1;
    }
    pass->result = view_data(on_device);
    c->records[c->record_count++] = (seen_record){SEEN_TENSOR, index, slot.host, slot.bytes};
    status = comet_cuda_stats_see_tensor(pass, &exec, &slot);
    Py_DECREF(on_device); /* in the order of the queue */
    return check(c, status, "statistics of a tensor");
}

static int see_stored(entry *e, const float *gamma, int relu) {
    const collect *c = e->owner->collect;
    comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
    comet_tensor values = e->memory;
    PyObject *kept = NULL;
    if (!c || e->site->tensor <= 0 || e->site->tensor > c->tensor_count || !e->raw || e->bound <= 0)
        return 0;
    const double bound = e->by_channel ? e->bound : e->absolute;
    e->collects = c->round;
    if (values.ndim < 2 ||
        !(bound > 0)) /* without a map there are no neighbours; in the first step no bound is known */
        return 0;
    if (values.device.kind == COMET_CPU && values.dtype != COMET_F32) {
        if (!(kept = torch_float(e->raw)))
            return -1;
        values.data = view_data(kept), values.dtype = COMET_F32;
    }
    const comet_codec_record record = record_of(e, bound);
    pass.values = &values;
    pass.grid = e->grid.channels ? &e->grid : NULL;
    pass.gamma = gamma, pass.relu = relu;
    const int result = run_tensor(e, &pass, &record);
    Py_XDECREF(kept);
    return result;
}

static void count_stored(entry *e) {
    collect *c = e->owner->collect;
    const int32_t index = e->site->tensor - 1;
    if (!c || e->collects != c->round || index < 0 || index >= c->tensor_count)
        return;
    comet_stats_tensor *t = &c->tensors[index];
    const double count = (double)e->view.count;
    e->collects = 0; /* once */
    if (!e->by_channel && e->stats.count == 0)
        return;
    /* Of a batch norm's input every channel has a deviation of 1 on its grid. */
    t->nonzero += e->by_channel ? count : (double)e->stats.nonzero;
    t->squares += e->by_channel ? count : e->stats.sum_squares;
    t->count += count;
    t->bytes += (double)e->stored_bytes;
    t->bound += e->by_channel ? e->bound : e->absolute;
    t->streams++;
}

const stored_watch collect_watch = {see_stored, count_stored};
