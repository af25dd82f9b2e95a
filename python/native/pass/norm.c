/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm, what is added to it, and the ReLU behind it in one call (comet/cuda_norm.h). The normalised value u is
 * held once; the output y, which the next layer saves, is rebuilt from it. Where something is added y has a stream of
 * its own, written by the same kernel. On a GPU alone: who gets None computes it in the usual way.
 */
#include "pass/norm.h"

#include <string.h>

#include "pass/tell.h"
#include "torch/module_parts.h"

PyTypeObject *norm_type;

static void norm_dealloc(PyObject *self) {
    norm_held *h = (norm_held *)self;
    entry *const all[] = {h->u, h->y, h->rebuilt};
    for (int i = 0; i < 3; i++)
        if (all[i])
            entry_release(all[i]);
    Py_CLEAR(h->tables);
    Py_CLEAR(h->weight);
    Py_CLEAR(h->bias);
    Py_CLEAR(h->observer);
    object_free(self);
}

/* ---- arguments ---- */

typedef struct call {
    frame *frame;
    const form *form;
    PyObject *x, *z;
    module_norm layer;
    int relu, is_curve; /* is_curve: what reads y is a SiLU or GELU */
    tensor_view x_view, z_view;
    comet_tensor x_memory, y_memory, z_memory;
    comet_device_store *store;
    void *queue;
    int64_t channels;
    float *gamma, *beta, *running_mean, *running_variance; /* of the layer, on the device */
} call;

/* fp32, of the length, side by side, and where kernels want it. */
static int is_vector(PyObject *tensor, int64_t channels, float **data) {
    *data = view_data(tensor);
    return (uintptr_t)*data % 16 == 0 && torch_bytes(tensor) == 4 * channels && torch_is_dense_f32(tensor) == 1;
}

static int is_map(PyObject *tensor, tensor_view *v, comet_tensor *memory) {
    return view_read(tensor, v) == 0 && v->device.kind == COMET_CUDA && torch_is_current(v->device) == 1 &&
           v->ndim >= 2 && v->dtype <= COMET_BF16 && v->count > 0 && (uintptr_t)v->data % 16 == 0 &&
           view_in_memory_order(v, ORDER_CHANNELS_SECOND, memory) && memory->layout != COMET_FLAT;
}

static int can_do(call *c) {
    if (c->form->kind != FORM_CODEC || c->form->codec.codec != COMET_CODEC_EB ||
        !is_map(c->x, &c->x_view, &c->x_memory) || c->x_view.bytes < c->frame->session->least_bytes)
        return 0;
    c->channels = c->x_view.shape[1];
    if (c->x_view.count <= c->channels) /* one value has no variance: PyTorch says so */
        return 0;
    if (c->z && (!is_map(c->z, &c->z_view, &c->z_memory) || !view_is_alike(&c->x_view, &c->z_view)))
        return 0;
    const module_norm *l = &c->layer;
    return is_vector(l->weight, c->channels, &c->gamma) && is_vector(l->bias, c->channels, &c->beta) &&
           is_vector(l->running_mean, c->channels, &c->running_mean) &&
           is_vector(l->running_variance, c->channels, &c->running_variance);
}

/* ---- forward ---- */

static norm_held *make_layer(const call *c) {
    enum { TABLES = 4 };
    const module_norm *l = &c->layer;
    norm_held *h = object_new(norm_type);
    const int64_t width = (c->channels + 3) / 4 * 4; /* each begins at a multiple of 16 bytes */
    float *at = h ? session_table(c->frame->session, c->x_view.device, c->queue, TABLES * sizeof *at * (size_t)width,
                                  &h->tables)
                  : NULL;
    if (!at) {
        Py_XDECREF(h);
        return NULL;
    }
    Py_INCREF(l->weight), Py_INCREF(l->bias);
    h->weight = l->weight, h->bias = l->bias;
    h->weight_version = torch_version(l->weight), h->bias_version = torch_version(l->bias);
    h->norm = (comet_cuda_norm)COMET_CUDA_NORM_INIT;
    h->norm.channels = c->channels;
    h->norm.mean = at, h->norm.inverse_std = at + width;
    h->norm.shift = at + 2 * width, h->norm.threshold = at + 3 * width;
    h->norm.gamma = c->gamma, h->norm.beta = c->beta;
    h->norm.relu = c->relu, h->norm.adds = c->z != NULL;
    return h;
}

static comet_status run_statistics(const call *c, norm_held *h, comet_codec_exec *exec) {
    comet_cuda_norm_batch batch = COMET_CUDA_NORM_BATCH_INIT;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_status status = comet_cuda_norm_workspace(&c->x_memory, &params, &h->workspace);
    if (status == COMET_OK)
        status = comet_device_store_exec(c->store, c->queue, h->workspace, exec);
    batch.norm = &h->norm;
    batch.channels = c->channels;
    batch.mean = (float *)h->norm.mean, batch.inverse_std = (float *)h->norm.inverse_std;
    batch.running_mean = c->running_mean, batch.running_variance = c->running_variance;
    batch.batches = c->layer.batches ? view_data(c->layer.batches) : NULL;
    batch.momentum = c->layer.momentum, batch.epsilon = c->layer.epsilon;
    return status == COMET_OK ? comet_cuda_norm_statistics(&batch, &c->x_memory, exec) : status;
}

static void remember_greatest(session *s, size_t bytes) {
    if (bytes > s->greatest)
        s->greatest = bytes;
}

static entry *new_entry(const call *c, PyObject *tensor, const tensor_view *v, const comet_tensor *memory, role r) {
    site *at = frame_site(c->frame, r, v);
    PyObject *raw = at ? torch_detach(tensor) : NULL;
    entry *e = raw ? entry_new(c->frame->session, at, c->form, v, memory, raw) : NULL;
    Py_XDECREF(raw);
    if (e) {
        e->store = c->store;
        remember_greatest(c->frame->session, v->bytes);
    }
    return e;
}

/* Room for a stream that the kernel writes. 1: there is no memory, the tensor stays. */
static int open_entry(const call *c, entry *e, role r, comet_codec_params *params, comet_cuda_slot *slot) {
    comet_device_save save = COMET_DEVICE_SAVE_INIT;
    entry_params(e, r, params, &save.expected_bytes);
    params->bound_kind = COMET_BOUND_ABSOLUTE; /* in the first step y's rms is not known: it is taken as 1 */
    save.tensor = &e->memory, save.params = params, save.queue = c->queue, save.owner = e;
    e->queue = c->queue;
    e->bound = e->site->set_bound > 0 ? e->site->set_bound : e->form->bounds[r];
    e->site->used_bound = e->bound;
    e->role = r;
    e->keeps_mask = params->keep_mask;
    e->by_channel = e->grid.channels != 0;
    e->absolute = e->by_channel ? 0 : params->bound;
    e->site->saves++;
    comet_status status = comet_device_store_open(c->store, &save, &e->held, slot);
    if (status == COMET_OK)
        return 0;
    e->held = NULL;
    e->bound = 0;
    e->site->kept++;
    return status == COMET_ERROR_MEMORY ? 1 : raise_status(status, "room for a batch norm");
}

static int close_entry(const call *c, entry *e, comet_status made) {
    if (!e || !e->held)
        return 0;
    if (made != COMET_OK) {
        comet_device_store_abandon(c->store, e->held);
        e->held = NULL;
        return 0;
    }
    comet_status status = comet_device_store_close(c->store, e->held);
    return status == COMET_OK ? 0 : raise_status(status, "a batch norm's stream");
}

/* y and the streams. */
static int run_forward(const call *c, norm_held *h) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    comet_codec_params params, y_params, plain = COMET_CODEC_PARAMS_INIT;
    comet_cuda_slot slot, y_slot;
    comet_cuda_norm_residual residual = COMET_CUDA_NORM_RESIDUAL_INIT;
    const role use = c->is_curve ? ROLE_CURVE : ROLE_NORM;
    int no_room = open_entry(c, h->u, use, &params, &slot), no_y_room = 1;
    if (no_room < 0)
        return -1;
    if (h->y && !no_room) {
        no_y_room = open_entry(c, h->y, ROLE_RELU, &y_params, &y_slot);
        if (no_y_room < 0) {
            close_entry(c, h->u, COMET_ERROR_MEMORY);
            return -1;
        }
    }
    plain.bound = params.bound;
    plain.stats_kind = COMET_STATS_NONE;
    residual.add = &c->z_memory;
    if (!no_y_room)
        residual.y_slot = &y_slot, residual.y_params = &y_params;
    /* Asked for last: until here another thread may have made the queue's workspace anew. */
    comet_status status = comet_device_store_exec(c->store, c->queue, h->workspace, &exec);
    if (status == COMET_OK)
        status = comet_cuda_norm_forward(&h->norm, &c->x_memory, &c->y_memory, no_room ? NULL : &plain, &exec,
                                         no_room ? NULL : &slot, NULL, c->z ? &residual : NULL);
    if (close_entry(c, h->u, status) || close_entry(c, h->y, status))
        return -1;
    return status == COMET_OK ? 0 : raise_status(status, "a batch norm");
}

/* y, where the stream of u could not be stored: from x. */
static PyObject *rebuild(entry *e) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    comet_tensor x = e->source->memory, y = e->memory;
    PyObject *tensor = torch_like(&e->view);
    if (!tensor || torch_queue(e->view.device, &exec.queue)) {
        Py_XDECREF(tensor);
        return NULL;
    }
    x.data = view_data(e->source->raw), y.data = view_data(tensor);
    comet_status status = comet_cuda_norm_forward(&e->norm, &x, &y, NULL, &exec, NULL, NULL, NULL);
    if (status != COMET_OK) {
        raise_status(status, "a batch norm");
        Py_CLEAR(tensor);
    }
    return tensor;
}

/* What reads y gets it from the stream of u. */
static int list_rebuilt(const call *c, norm_held *h, PyObject *y, const tensor_view *y_view) {
    entry *u = h->u;
    if (!u->held)
        return 0;
    entry *e = entry_new(c->frame->session, u->site, c->form, y_view, &c->y_memory, NULL);
    if (!e)
        return -1;
    e->store = c->store;
    e->held = comet_device_store_share(u->held);
    e->source = entry_share(u);
    e->rebuild = rebuild;
    e->norm = h->norm;
    e->grid = u->grid;
    e->bound = u->bound;
    e->keeps_mask = c->relu;
    e->has_epilogue = 1;
    e->epilogue.channels = c->channels;
    e->epilogue.scale = h->norm.gamma, e->epilogue.shift = h->norm.beta;
    e->epilogue.relu = c->relu;
    Py_INCREF(h->tables), Py_INCREF(h->weight), Py_INCREF(h->bias);
    e->objects[0] = h->tables, e->objects[1] = h->weight, e->objects[2] = h->bias;
    e->versions[1] = h->weight_version, e->versions[2] = h->bias_version;
    alias_add(e, y);
    h->rebuilt = e;
    return 0;
}

static int make_entries(const call *c, norm_held *h, PyObject *y, const tensor_view *y_view) {
    h->u = new_entry(c, c->x, &c->x_view, &c->x_memory, c->is_curve ? ROLE_CURVE : ROLE_NORM);
    if (!h->u)
        return -1;
    comet_cuda_norm_grid(&h->norm, &h->u->grid);
    Py_INCREF(h->tables), Py_INCREF(h->weight);
    h->u->objects[0] = h->tables, h->u->objects[1] = h->weight;
    if (!c->z || !c->relu)
        return 0;
    h->y = new_entry(c, y, y_view, &c->y_memory, ROLE_RELU);
    return h->y ? 0 : -1;
}

/* For a controller: how alike the errors will be, and who wants to see the gradient. */
static int collect_norm(const call *c, norm_held *h, PyObject *y) {
    const stored_watch *watch = c->frame->session->watch;
    if (watch && (watch->stored(h->u, h->norm.gamma, c->relu && !c->z) || (h->y && watch->stored(h->y, NULL, 0))))
        return -1;
    if (!c->frame->observer)
        return 0;
    PyObject *args = PyTuple_Pack(3, c->x, c->layer.weight, c->layer.bias);
    const operation_call as = {.op = OP_BATCH_NORM, .input = c->x, .weight = c->layer.weight, .args = args};
    const int failed = !args || tell_norm(c->frame, &as, y, h->u, (PyObject *)h);
    Py_XDECREF(args);
    return failed ? -1 : 0;
}

/* y alone: all will be made again when backward comes. */
static int run_dry(const call *c, const norm_held *h, const comet_codec_exec *exec) {
    comet_cuda_norm_residual residual = COMET_CUDA_NORM_RESIDUAL_INIT;
    residual.add = &c->z_memory;
    comet_status status =
        comet_cuda_norm_forward(&h->norm, &c->x_memory, &c->y_memory, NULL, exec, NULL, NULL, c->z ? &residual : NULL);
    return status == COMET_OK ? 0 : raise_status(status, "a batch norm");
}

static PyObject *forward(call *c) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    tensor_view y_view;
    norm_held *h = make_layer(c);
    PyObject *y = h ? torch_same(c->x) : NULL, *result = NULL;
    if (!y || view_read(y, &y_view) || !view_in_memory_order(&y_view, ORDER_CHANNELS_SECOND, &c->y_memory))
        goto done;
    comet_status status = run_statistics(c, h, &exec);
    if (status != COMET_OK) {
        raise_status(status, "a batch norm's statistics");
        goto done;
    }
    if (c->frame->is_dry) {
        if (run_dry(c, h, &exec) == 0) {
            Py_INCREF(y);
            result = y;
        }
        goto done;
    }
    if (make_entries(c, h, y, &y_view) || run_forward(c, h))
        goto done;
    if (h->y)
        alias_add(h->y, y);
    else if (!c->z && list_rebuilt(c, h, y, &y_view))
        goto done;
    if (collect_norm(c, h, y) || session_keep_lead(c->frame->session, c->store, h->u->site))
        goto done;
    Py_XDECREF(c->frame->norm);
    Py_INCREF(h);
    c->frame->norm = (PyObject *)h;
    Py_INCREF(y);
    result = y;
done:
    Py_XDECREF(y);
    Py_XDECREF(h);
    return result;
}

/* How autograd gets to follow it: apply(x, added or None, weight, bias, (y, session)) -> y (fuse.py). */
static PyObject *norm_function;

PyObject *norm_set_function(PyObject *module, PyObject *function) {
    (void)module;
    return object_keep(&norm_function, function);
}

static PyObject *follow(const call *c, PyObject *y) {
    PyObject *made = PyTuple_Pack(2, y, (PyObject *)c->frame->session);
    PyObject *result = made ? PyObject_CallFunctionObjArgs(norm_function, c->x, c->z ? c->z : Py_None, c->layer.weight,
                                                           c->layer.bias, made, NULL)
                            : NULL;
    Py_XDECREF(made);
    return result;
}

/* y, or NULL without an exception: it cannot be done here. */
static PyObject *run(call *c) {
    c->form = c->frame->form;
    if (!can_do(c) || PyErr_Occurred() || frame_enter_owner(c->frame, c->layer.weight))
        return NULL;
    c->store = session_store(c->frame->session, c->x_view.device);
    if (!c->store || torch_queue(c->x_view.device, &c->queue))
        return NULL;
    PyObject *y = forward(c), *followed = y ? follow(c, y) : NULL;
    Py_XDECREF(y);
    return followed;
}

PyObject *norm_leaf(frame *f, PyObject *dict, PyObject *x) {
    call c;
    memset(&c, 0, sizeof c);
    c.frame = f, c.x = x;
    return module_read_norm(dict, &c.layer) ? run(&c) : NULL;
}

/* Both are called as they are, without hooks. */
static int are_bare(PyObject *norm, PyObject *activation, PyObject **dict) {
    *dict = module_dict(norm);
    PyObject *other = *dict && activation != Py_None ? module_dict(activation) : NULL;
    const int bare = *dict && module_is_bare(*dict) && (!other || module_is_bare(other));
    Py_XDECREF(other);
    return bare;
}

PyObject *norm_forward(PyObject *self, PyObject *args) {
    call c;
    PyObject *norm, *activation, *dict = NULL, *y = NULL;
    memset(&c, 0, sizeof c);
    c.frame = (frame *)self;
    if (!PyArg_ParseTuple(args, "OOOOpp", &norm, &activation, &c.x, &c.z, &c.relu, &c.is_curve))
        return NULL;
    c.z = c.z == Py_None ? NULL : c.z;
    if (torch_grad_is_enabled() == 1 && are_bare(norm, activation, &dict) && module_read_norm(dict, &c.layer))
        y = run(&c);
    Py_XDECREF(dict);
    if (y || PyErr_Occurred())
        return y;
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static int norm_set_observer(PyObject *self, PyObject *value, void *unused) {
    norm_held *h = (norm_held *)self;
    PyObject *before = h->observer;
    (void)unused;
    h->observer = value == Py_None ? NULL : value;
    Py_XINCREF(h->observer);
    Py_XDECREF(before);
    return 0;
}

/* u as it comes back, of the input's type; None: its stream is not there. */
static PyObject *norm_get_values(PyObject *self, void *unused) {
    comet_norm_pass pass = COMET_NORM_PASS_INIT;
    (void)unused;
    return norm_values(self, &pass);
}

/* Where in a tensor of bytes the batch's means and 1 / deviations are: both fp32, one a channel. */
static PyObject *norm_get_tables(PyObject *self, void *unused) {
    const norm_held *h = (const norm_held *)self;
    const char *begin = view_data(h->tables);
    (void)unused;
    if (!begin)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_RuntimeError, "libcomet: a batch norm without tables");
    return Py_BuildValue("OnnL", h->tables, (const char *)h->norm.mean - begin,
                         (const char *)h->norm.inverse_std - begin, (long long)h->norm.channels);
}

/* Whether the gradient is one that the ReLU's mask has yet to go over. */
static PyObject *norm_get_masks(PyObject *self, void *unused) {
    const norm_held *h = (const norm_held *)self;
    (void)unused;
    return PyBool_FromLong(h->norm.relu && !h->norm.adds);
}

static PyGetSetDef norm_attributes[] = {
    {"values", norm_get_values, NULL, "u, decoded; None: it is exact", NULL},
    {"tables", norm_get_tables, NULL, "(bytes, offset of means, of 1 / deviations, channels)", NULL},
    {"masks", norm_get_masks, NULL, "whether a ReLU is behind it, and no add before that", NULL},
    {"observer", NULL, norm_set_observer, "observer(norm, gradient): called once, in backward", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

int norm_make_type(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_dealloc, norm_dealloc},
                                  {Py_tp_getset, norm_attributes},
                                  {Py_tp_doc, (void *)"What the backward pass of a batch norm needs."},
                                  {0, NULL}};
    static PyType_Spec spec = {"libcomet._native.Norm", sizeof(norm_held), 0, Py_TPFLAGS_DEFAULT, slots};
    norm_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return norm_type ? PyModule_AddObjectRef(module, "Norm", (PyObject *)norm_type) : -1;
}
