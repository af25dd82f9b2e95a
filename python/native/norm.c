/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm, what is added to it, and the ReLU behind it in one call (comet/cuda_norm.h). The normalised value u is
 * held once; the output y, which the next layer saves, is rebuilt from it. Where something is added y has a stream of
 * its own, written by the same kernel. On a GPU alone: who gets None computes it in the usual way.
 */
#include <string.h>

#include "control.h"
#include "frame.h"

PyTypeObject *norm_type;

/* What backward needs. */
typedef struct norm_held {
    PyObject_HEAD entry *u, *y; /* y: where something is added and a ReLU follows */
    entry *rebuilt;             /* else: y, from the stream of u */
    comet_cuda_norm norm;
    PyObject *tables, *weight, *bias;
    long long weight_version, bias_version;
    PyObject *observer; /* observer(norm, gradient): called once, in backward; NULL: nobody */
} norm_held;

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
    PyObject *x, *z, *weight, *bias, *running_mean, *running_variance, *batches;
    int relu, is_curve; /* is_curve: what reads y is a SiLU or GELU */
    double momentum, epsilon;
    tensor_view x_view, z_view;
    comet_tensor x_memory, y_memory, z_memory;
    comet_device_store *store;
    void *queue;
    int64_t channels;
} call;

static int same_strides(const tensor_view *a, const tensor_view *b) {
    const size_t bytes = sizeof(int64_t) * (size_t)a->ndim;
    return a->ndim == b->ndim && a->dtype == b->dtype && !memcmp(a->shape, b->shape, bytes) &&
           !memcmp(a->strides, b->strides, bytes);
}

static int is_vector(PyObject *tensor, int64_t channels) {
    tensor_view v;
    return view_read_any(tensor, &v) == 0 && v.device.kind == COMET_CUDA && v.dtype == COMET_F32 && v.ndim == 1 &&
           v.shape[0] == channels && (v.strides[0] == 1 || channels == 1) && (uintptr_t)v.data % 16 == 0;
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
    if (c->z && (!is_map(c->z, &c->z_view, &c->z_memory) || !same_strides(&c->x_view, &c->z_view)))
        return 0;
    return is_vector(c->weight, c->channels) && is_vector(c->bias, c->channels) &&
           is_vector(c->running_mean, c->channels) && is_vector(c->running_variance, c->channels);
}

/* ---- forward ---- */

static norm_held *make_layer(const call *c) {
    enum { TABLES = 4 };
    norm_held *h = object_new(norm_type);
    const int64_t width = (c->channels + 3) / 4 * 4; /* each begins at a multiple of 16 bytes */
    PyObject *tables = h ? torch_empty((int64_t[]){TABLES, width}, 2, COMET_F32, c->x_view.device) : NULL;
    if (!tables) {
        Py_XDECREF(h);
        return NULL;
    }
    float *at = view_data(tables);
    h->tables = tables;
    Py_INCREF(c->weight), Py_INCREF(c->bias);
    h->weight = c->weight, h->bias = c->bias;
    h->weight_version = torch_version(c->weight), h->bias_version = torch_version(c->bias);
    h->norm = (comet_cuda_norm)COMET_CUDA_NORM_INIT;
    h->norm.channels = c->channels;
    h->norm.mean = at, h->norm.inverse_std = at + width;
    h->norm.shift = at + 2 * width, h->norm.threshold = at + 3 * width;
    h->norm.gamma = view_data(c->weight), h->norm.beta = view_data(c->bias);
    h->norm.relu = c->relu, h->norm.adds = c->z != NULL;
    return h;
}

static comet_status run_statistics(const call *c, const norm_held *h, comet_codec_exec *exec) {
    comet_cuda_norm_batch batch = COMET_CUDA_NORM_BATCH_INIT;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    size_t bytes;
    comet_status status = comet_cuda_norm_workspace(&c->x_memory, &params, &bytes);
    if (status == COMET_OK)
        status = comet_device_store_exec(c->store, c->queue, bytes, exec);
    batch.norm = &h->norm;
    batch.channels = c->channels;
    batch.mean = (float *)h->norm.mean, batch.inverse_std = (float *)h->norm.inverse_std;
    batch.running_mean = view_data(c->running_mean), batch.running_variance = view_data(c->running_variance);
    batch.batches = c->batches ? view_data(c->batches) : NULL;
    batch.momentum = c->momentum, batch.epsilon = c->epsilon;
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
static int run_forward(const call *c, norm_held *h, const comet_codec_exec *exec) {
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
    comet_status status = comet_cuda_norm_forward(&h->norm, &c->x_memory, &c->y_memory, no_room ? NULL : &plain, exec,
                                                  no_room ? NULL : &slot, NULL, c->z ? &residual : NULL);
    if (close_entry(c, h->u, status) || close_entry(c, h->y, status))
        return -1;
    return status == COMET_OK ? 0 : raise_status(status, "a batch norm");
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
    if (c->frame->session->collect &&
        (collect_see_stored(h->u, h->norm.gamma, c->relu && !c->z) || (h->y && collect_see_stored(h->y, NULL, 0))))
        return -1;
    if (!c->frame->observer)
        return 0;
    PyObject *args = PyTuple_Pack(3, c->x, c->weight, c->bias);
    const operation_call as = {.op = OP_BATCH_NORM, .input = c->x, .weight = c->weight, .args = args};
    const int failed = !args || control_tell_fused(c->frame, &as, y, h->u, (PyObject *)h);
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
    PyObject *y = h ? torch_like(&c->x_view) : NULL, *result = NULL;
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
    if (make_entries(c, h, y, &y_view) || run_forward(c, h, &exec))
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

static PyObject *or_null(PyObject *object) {
    return object == Py_None ? NULL : object;
}

PyObject *norm_forward(PyObject *self, PyObject *args) {
    call c;
    memset(&c, 0, sizeof c);
    c.frame = (frame *)self;
    if (!PyArg_ParseTuple(args, "OOOOOOOppdd", &c.x, &c.z, &c.weight, &c.bias, &c.running_mean, &c.running_variance,
                          &c.batches, &c.relu, &c.is_curve, &c.momentum, &c.epsilon))
        return NULL;
    c.form = c.frame->form;
    c.z = or_null(c.z), c.batches = or_null(c.batches);
    const int possible = can_do(&c);
    if (PyErr_Occurred())
        return NULL;
    if (!possible)
        Py_RETURN_NONE;
    if (frame_enter_owner(c.frame, c.weight))
        return NULL;
    c.store = session_store(c.frame->session, c.x_view.device);
    if (!c.store || torch_queue(c.x_view.device, &c.queue))
        return NULL;
    return forward(&c);
}

PyObject *norm_rebuild(entry *e) {
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

/* ---- backward ---- */

static int is_unchanged(const norm_held *h) {
    return !torch_check_version(h->weight, h->weight_version) && !torch_check_version(h->bias, h->bias_version);
}

typedef struct back {
    norm_held *held;
    tensor_view view; /* of dy, dx and dz */
    comet_tensor dy, dx, dz;
    comet_cuda_slot slot, y_slot;
    comet_tensor x, y;
    int32_t *status;
    void *queue;
} back;

/* Where u is: its stream, or x itself. */
static int find_source(back *b, entry *e, comet_cuda_slot *slot, comet_tensor *tensor, int *is_stream) {
    if (entry_settle(e))
        return -1;
    *is_stream = e->raw == NULL;
    *tensor = e->memory;
    if (e->raw) {
        tensor->data = view_data(e->raw);
        return torch_check_version(e->raw, e->view.version); /* as autograd does for what it keeps */
    }
    e->site->loads++;
    if (entry_learn(e))
        return -1;
    comet_status status = comet_device_store_slot(e->store, e->held, b->queue, slot, &b->status);
    return status == COMET_OK ? 0 : raise_status(status, "a batch norm's stream");
}

static int run_backward(back *b, float *dgamma, float *dbeta) {
    norm_held *h = b->held;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT, y_params = COMET_CODEC_PARAMS_INIT;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    comet_cuda_norm_residual_back residual = COMET_CUDA_NORM_RESIDUAL_BACK_INIT;
    int of_u = 0, of_y = 0;
    size_t bytes;
    if (find_source(b, h->u, &b->slot, &b->x, &of_u) || (h->y && find_source(b, h->y, &b->y_slot, &b->y, &of_y)))
        return -1;
    y_params.keep_mask = 1;
    residual.dz = &b->dz;
    if (h->y) {
        residual.y_slot = of_y ? &b->y_slot : NULL, residual.y = of_y ? NULL : &b->y;
        residual.y_params = &y_params;
    }
    comet_status status = comet_cuda_norm_workspace(&b->dy, &params, &bytes);
    if (status == COMET_OK)
        status = comet_device_store_exec(h->u->store, b->queue, bytes, &exec);
    if (status == COMET_OK)
        status = comet_cuda_norm_backward(&h->norm, of_u ? &b->slot : NULL, of_u ? NULL : &b->x, &b->dy, &b->dx, dgamma,
                                          dbeta, &params, &exec, b->status, h->norm.adds ? &residual : NULL);
    return status == COMET_OK ? 0 : raise_status(status, "a batch norm's backward pass");
}

/* dy in the order of x: as it is, or a copy. */
static PyObject *in_order_of(PyObject *dy, const tensor_view *x) {
    tensor_view v;
    if (view_read_any(dy, &v) == 0 && same_strides(&v, x) && (uintptr_t)v.data % 16 == 0) {
        Py_INCREF(dy);
        return dy;
    }
    PyErr_Clear();
    PyObject *copy = torch_like(x);
    PyObject *done = copy ? PyObject_CallMethod(copy, "copy_", "O", dy) : NULL;
    Py_XDECREF(done);
    if (!done)
        Py_CLEAR(copy);
    return copy;
}

PyObject *norm_values(PyObject *norm, comet_norm_pass *pass) {
    const norm_held *h = (const norm_held *)norm;
    entry *e = h->u;
    void *queue;
    if (entry_settle(e))
        return NULL;
    if (e->raw || !e->held) /* exact: there is no error to foresee */
        return Py_BuildValue("");
    PyObject *u = torch_like(&e->view);
    if (!u || torch_queue(e->view.device, &queue)) {
        Py_XDECREF(u);
        return NULL;
    }
    comet_tensor memory = e->memory;
    memory.data = view_data(u);
    const comet_cuda_epilogue as_it_is = COMET_CUDA_EPILOGUE_INIT; /* of x's type: a grid alone makes fp32 */
    comet_status status = comet_device_store_load(e->store, e->held, queue, &as_it_is, &memory);
    if (status != COMET_OK) {
        raise_status(status, "decompressing a batch norm's input");
        Py_CLEAR(u);
    }
    pass->scale = h->norm.inverse_std, pass->gamma = h->norm.gamma, pass->beta = h->norm.beta;
    pass->relu = h->norm.relu && !h->norm.adds; /* behind an add the gradient is what the ReLU's mask has left of it */
    return u;
}

/* Backward, and then who watches gets the gradient at the norm's output: behind the add that is dz. */
static int show_gradient(norm_held *h, PyObject *gradient, back *b, float *dgamma, float *dbeta) {
    if (run_backward(b, dgamma, dbeta))
        return -1;
    PyObject *observer = h->observer;
    h->observer = NULL;
    PyObject *done = observer ? PyObject_CallFunctionObjArgs(observer, (PyObject *)h, gradient, NULL) : NULL;
    const int failed = observer && !done;
    Py_XDECREF(observer), Py_XDECREF(done);
    return failed ? -1 : 0;
}

static int norm_set_observer(PyObject *self, PyObject *value, void *unused) {
    norm_held *h = (norm_held *)self;
    PyObject *before = h->observer;
    (void)unused;
    h->observer = value == Py_None ? NULL : value;
    Py_XINCREF(h->observer);
    Py_XDECREF(before);
    return 0;
}

static PyGetSetDef norm_attributes[] = {
    {"observer", NULL, norm_set_observer, "observer(norm, gradient): called once, in backward", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

/* backward(dy) -> dx, dgamma, dbeta, dz or None */
static PyObject *norm_backward(PyObject *self, PyObject *gradient) {
    norm_held *h = (norm_held *)self;
    back b = {.held = h};
    const int has_dz = h->norm.adds, new_dz = has_dz && h->norm.relu;
    PyObject *dy = NULL, *dx = NULL, *dz = NULL, *dgamma = NULL, *dbeta = NULL, *result = NULL;
    b.view = h->u->view;
    if (!is_unchanged(h) || torch_queue(b.view.device, &b.queue) || !(dy = in_order_of(gradient, &b.view)) ||
        !(dx = torch_like(&b.view)) || (new_dz && !(dz = torch_like(&b.view))) ||
        !(dgamma = torch_empty(&h->norm.channels, 1, COMET_F32, b.view.device)) ||
        !(dbeta = torch_empty(&h->norm.channels, 1, COMET_F32, b.view.device)))
        goto done;
    if (has_dz && !new_dz) {
        Py_INCREF(dy);
        dz = dy; /* without a ReLU it is what came in */
    }
    b.dy = b.dx = b.dz = h->u->memory;
    b.dy.data = view_data(dy), b.dx.data = view_data(dx), b.dz.data = dz ? view_data(dz) : NULL;
    if (show_gradient(h, dz ? dz : dy, &b, view_data(dgamma), view_data(dbeta)) == 0)
        result = PyTuple_Pack(4, dx, dgamma, dbeta, dz ? dz : Py_None);
done:
    Py_XDECREF(dy), Py_XDECREF(dx), Py_XDECREF(dz), Py_XDECREF(dgamma), Py_XDECREF(dbeta);
    return result;
}

static PyMethodDef norm_methods[] = {
    {"backward", norm_backward, METH_O, "backward(dy) -> dx, dgamma, dbeta, dz or None"}, {NULL, NULL, 0, NULL}};

int norm_make_type(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_dealloc, norm_dealloc},
                                  {Py_tp_methods, norm_methods},
                                  {Py_tp_getset, norm_attributes},
                                  {Py_tp_doc, (void *)"What the backward pass of a batch norm needs."},
                                  {0, NULL}};
    static PyType_Spec spec = {"libcomet._native.Norm", sizeof(norm_held), 0, Py_TPFLAGS_DEFAULT, slots};
    norm_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return norm_type ? PyModule_AddObjectRef(module, "Norm", (PyObject *)norm_type) : -1;
}
