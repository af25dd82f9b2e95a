/* SPDX-License-Identifier: Apache-2.0 */
#include "frame.h"

#include <string.h>

#include "entry.h"
#include "held.h"

PyTypeObject *frame_type;

PyObject *frame_new(session *s, PyObject *names) {
    frame *f = object_new(frame_type);
    if (!f)
        return NULL;
    Py_INCREF(s);
    Py_INCREF(names);
    f->session = s;
    f->names = names;
    f->form = &s->forms[0];
    session_drop_read(s);
    return (PyObject *)f;
}

static void drop_vectors(frame *f) {
    while (f->vector_count > 0)
        Py_CLEAR(f->vectors[--f->vector_count]);
}

static void frame_dealloc(PyObject *self) {
    frame *f = (frame *)self;
    drop_vectors(f);
    if (f->waiting)
        entry_release(f->waiting);
    Py_CLEAR(f->norm);
    Py_CLEAR(f->names);
    Py_CLEAR(f->session);
    object_free(self);
}

/* ---- which tensor of an operation this is ---- */

static int is_floating(const tensor_view *v) {
    return v->dtype == COMET_F32 || v->dtype == COMET_F16 || v->dtype == COMET_BF16;
}

/* `other` has the same extents, or the same with two dimensions exchanged, or all but the last of it folded into one. */
static int has_extents_of(const tensor_view *v, const tensor_view *other) {
    if (v->ndim == other->ndim) {
        int equal = 1, turned = v->ndim == 2 && v->shape[0] == other->shape[1] && v->shape[1] == other->shape[0];
        for (int i = 0; i < v->ndim; i++)
            equal = equal && v->shape[i] == other->shape[i];
        return equal || turned;
    }
    return 0;
}

/*
 * The input of a layer, and not its weight. Casts of both (autocast makes them inside the operation) have other memory
 * than the arguments: extents must tell. Where they cannot, the tensor is kept as it is.
 */
static int is_input_of_layer(const frame *f, const tensor_view *v) {
    tensor_view input, weight;
    if (view_read(f->input, &input) || input.count != v->count)
        return 0;
    if (v->data == input.data)
        return 1;
    void *memory = f->weight ? view_data(f->weight) : NULL;
    if (!f->weight || !memory || v->data == memory || view_read_any(f->weight, &weight))
        return 0;
    return v->dtype != input.dtype && !has_extents_of(v, &weight);
}

/* The user's own, which is alive as long as he likes: holding it once more would save nothing. */
static int is_users(const frame *f, const tensor_view *v) {
    return view_data(f->input) == v->data && torch_is_leaf(f->input);
}

static int is_large(const frame *f, const tensor_view *v) {
    return v->bytes >= f->session->least_bytes;
}

static int counts_like_input(const frame *f, const tensor_view *v) {
    tensor_view input;
    return view_read(f->input, &input) == 0 && input.count == v->count;
}

static role role_in(const frame *f, const tensor_view *v) {
    if (f->form->kind == FORM_UNTOUCHED || !is_large(f, v))
        return ROLE_NONE;
    if (!is_floating(v))
        return f->op == OP_MAX_POOL && v->dtype == VIEW_I64 ? ROLE_INDICES
               : f->op == OP_DROPOUT && v->dtype == VIEW_BOOL ? ROLE_BITS
                                                              : ROLE_NONE;
    switch (f->op) {
    case OP_LAYER:
        return is_input_of_layer(f, v) && !is_users(f, v) ? ROLE_VALUE : ROLE_NONE;
    case OP_RELU:
        return counts_like_input(f, v) ? ROLE_RELU : ROLE_NONE;
    case OP_CURVE:
        return counts_like_input(f, v) && !is_users(f, v) ? ROLE_CURVE : ROLE_NONE;
    case OP_BATCH_NORM:
        return counts_like_input(f, v) && !is_users(f, v) ? ROLE_NORM : ROLE_NONE;
    case OP_ROW_NORM:
        return counts_like_input(f, v) && !is_users(f, v) ? ROLE_ROW_NORM : ROLE_NONE;
    case OP_AVERAGE:
    case OP_MAX_POOL:
        return counts_like_input(f, v) && !is_users(f, v) ? ROLE_SHAPE : ROLE_NONE;
    case OP_DROPOUT:
        return v->device.kind == COMET_CPU && counts_like_input(f, v) ? ROLE_NOISE : ROLE_NONE;
    case OP_NONE:
        break;
    }
    return ROLE_NONE;
}

/* Exact mode holds what can be held without loss. */
static role role_of(const frame *f, const tensor_view *v) {
    const role r = role_in(f, v);
    const int lossy = r == ROLE_VALUE || r == ROLE_CURVE || r == ROLE_NORM || r == ROLE_ROW_NORM;
    return lossy && f->form->kind == FORM_LOSSLESS ? ROLE_NONE : r;
}

/* ---- holding it ---- */

static PyObject *name_of(const frame *f, role r) {
    static const char *const suffix[ROLES] = {[ROLE_VALUE] = "input",  [ROLE_RELU] = "relu",
                                              [ROLE_CURVE] = "curve",  [ROLE_NORM] = "input",
                                              [ROLE_ROW_NORM] = "input", [ROLE_BITS] = "dropout",
                                              [ROLE_NOISE] = "dropout"};
    PyObject *key = PyLong_FromVoidPtr((void *)f->owner);
    PyObject *name = key ? PyDict_GetItemWithError(f->names, key) : NULL; /* borrowed */
    Py_XDECREF(key);
    if (PyErr_Occurred())
        return NULL;
    const char *what = suffix[r] ? suffix[r] : "";
    const int behind = r != ROLE_VALUE && r != ROLE_NORM && r != ROLE_ROW_NORM;
    return name ? PyUnicode_FromFormat(behind ? "%U > %s" : "%U.%s", name, what) : PyUnicode_FromFormat("%s", what);
}

site *frame_site(frame *f, role r, const tensor_view *v) {
    site key;
    memset(&key, 0, sizeof key);
    key.key.owner = f->owner, key.key.use = f->use++, key.key.role = r, key.key.dtype = (uint32_t)v->dtype;
    key.key.count = v->count;
    const size_t before = f->session->site_count;
    site *at = session_site(f->session, &key, NULL);
    if (at && f->session->site_count != before) {
        at->name = name_of(f, r);
        at->raw_bytes = v->bytes;
        if (!at->name)
            return NULL;
    }
    return at;
}

static map_order order_of(operation op, int is_convolution) {
    return op == OP_BATCH_NORM || op == OP_MAX_POOL || op == OP_AVERAGE || is_convolution ? ORDER_CHANNELS_SECOND
                                                                                           : ORDER_CHANNELS_LAST;
}

static int is_aligned(const tensor_view *v) {
    return v->device.kind == COMET_CPU || (uintptr_t)v->data % 16 == 0;
}

/*
 * The tensor without its graph, and its memory as codecs want it. Views with gaps or repeated values are copied. NULL:
 * an exception.
 */
static PyObject *memory_of(const frame *f, PyObject *tensor, tensor_view *v, comet_tensor *memory, int *is_copy) {
    tensor_view weight;
    const int is_convolution = f->weight && view_read_any(f->weight, &weight) == 0 && weight.ndim > 2;
    const map_order order = order_of(f->op, is_convolution);
    *is_copy = !is_aligned(v) || !view_in_memory_order(v, order, memory);
    if (!*is_copy)
        return torch_detach(tensor);
    PyObject *detached = torch_detach(tensor), *copy = detached ? torch_clone(detached) : NULL;
    Py_XDECREF(detached);
    if (!copy || view_read(copy, v) || !view_in_memory_order(v, order, memory)) {
        if (copy && !PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "libcomet: a copy is not contiguous");
        Py_CLEAR(copy);
    }
    return copy;
}

static int save(frame *f, entry *e, role r) {
    if (r != ROLE_NORM)
        return entry_save(e, r);
    if (f->waiting) /* an operation saves one such tensor */
        return 0;
    f->waiting = entry_share(e); /* until `end` */
    return 0;
}

static PyObject *hold(frame *f, PyObject *tensor, tensor_view *v, role r) {
    session *s = f->session;
    entry *found = alias_find(s, v, f->form, r);
    if (found) {
        found->site->aliases++;
        return held_new(found, v);
    }
    site *at = frame_site(f, r, v);
    comet_tensor memory;
    int is_copy;
    PyObject *raw = at ? memory_of(f, tensor, v, &memory, &is_copy) : NULL;
    if (!raw)
        return NULL;
    entry *e = entry_new(s, at, f->form, v, &memory, raw);
    Py_DECREF(raw);
    if (!e)
        return NULL;
    if (v->bytes > s->greatest)
        s->greatest = v->bytes;
    PyObject *held = held_new(e, v);
    if (held && !is_copy)
        alias_add(e, tensor);
    if (held && save(f, e, r))
        Py_CLEAR(held);
    entry_release(e);
    return held;
}

/* A float mask of a dropout: two values, of which one is 0. What the other is, is looked for. */
static PyObject *hold_noise(frame *f, PyObject *tensor, tensor_view *v) {
    const double scale = torch_greatest(tensor);
    if (PyErr_Occurred())
        return NULL;
    PyObject *held = hold(f, tensor, v, ROLE_NOISE);
    if (held && scale != 1)
        held_set_scale(held, scale);
    return held;
}

static PyObject *hold_indices(frame *f, PyObject *tensor, const tensor_view *v) {
    comet_tensor memory;
    comet_pool_window window = f->window;
    size_t bytes;
    if (v->ndim != 4 || !window.kernel[0] || !view_in_memory_order(v, ORDER_CHANNELS_SECOND, &memory) ||
        memory.layout == COMET_FLAT)
        return held_kept(tensor);
    tensor_view input;
    if (view_read(f->input, &input) || input.ndim != 4)
        return PyErr_Occurred() ? NULL : held_kept(tensor);
    window.batch = v->shape[0], window.channels = v->shape[1];
    window.output[0] = v->shape[2], window.output[1] = v->shape[3];
    window.input[0] = input.shape[2], window.input[1] = input.shape[3];
    window.layout = memory.layout;
    if (comet_indices_bytes(&window, &bytes) != COMET_OK)
        return held_kept(tensor); /* windows of more than 256 places, say */
    PyObject *packed = torch_empty(&(int64_t){(int64_t)bytes}, 1, COMET_U8, v->device);
    if (!packed)
        return NULL;
    comet_status status;
    if (v->device.kind == COMET_CUDA) {
        void *queue;
        int32_t *word = session_index_status(f->session, v->device);
        if (!word || torch_queue(v->device, &queue)) {
            Py_DECREF(packed);
            return NULL;
        }
        status = comet_cuda_indices_pack(&window, v->data, view_data(packed), word, queue);
    } else {
        status = comet_indices_pack(&window, v->data, view_data(packed));
    }
    PyObject *held = NULL;
    if (status == COMET_OK) {
        held = held_indices(packed, &window, v);
        f->session->index_bytes += (double)bytes, f->session->index_raw_bytes += (double)v->bytes;
    } else {
        raise_status(status, "packing the indices of a max-pool");
    }
    Py_DECREF(packed);
    return held;
}

/* Statistics of a batch norm are vectors with a value for each channel; those that the caller gave are not among them.
 */
static void notice_vector(frame *f, PyObject *tensor, const tensor_view *v) {
    tensor_view input;
    if (f->op != OP_BATCH_NORM || !f->waiting || v->ndim != 1 || v->dtype != COMET_F32 || v->version != 0 ||
        f->vector_count == FRAME_VECTORS || view_read(f->input, &input) || input.ndim < 2 ||
        input.shape[1] != v->shape[0])
        return;
    Py_INCREF(tensor);
    f->vectors[f->vector_count++] = tensor;
}

static PyObject *the_token;

PyObject *frame_set_token(PyObject *module, PyObject *token) {
    (void)module;
    Py_INCREF(token);
    Py_XDECREF(the_token);
    the_token = token;
    Py_RETURN_NONE;
}

static PyObject *frame_pack(PyObject *self, PyObject *tensor) {
    frame *f = (frame *)self;
    tensor_view v;
    if (tensor == the_token && f->norm) {
        PyObject *norm = f->norm;
        f->norm = NULL;
        return norm;
    }
    const int readable = f->op != OP_NONE ? view_read(tensor, &v) : 1;
    if (readable < 0)
        return NULL;
    if (readable == 0) {
        const role r = role_of(f, &v);
        if (PyErr_Occurred())
            return NULL;
        if (r == ROLE_SHAPE) {
            f->session->shape_bytes += (double)v.bytes;
            return held_shape(&v);
        }
        if (r == ROLE_INDICES)
            return hold_indices(f, tensor, &v);
        if (r == ROLE_NOISE)
            return hold_noise(f, tensor, &v);
        if (r != ROLE_NONE)
            return hold(f, tensor, &v, r);
        notice_vector(f, tensor, &v);
        f->session->kept_bytes += (double)v.bytes;
    }
    f->session->kept_tensors++;
    return held_kept(tensor);
}

/* ---- operations ---- */

/* begin(operation, form, input, weight or None, pool or None) */
static PyObject *frame_begin(PyObject *self, PyObject *args) {
    frame *f = (frame *)self;
    int op, form;
    PyObject *input, *weight, *pool;
    if (!PyArg_ParseTuple(args, "iiOOO", &op, &form, &input, &weight, &pool))
        return NULL;
    if (form < 0 || form >= f->session->form_count)
        return PyErr_Format(PyExc_IndexError, "there is no form %d", form);
    f->op = (operation)op;
    f->form = &f->session->forms[form];
    f->input = input;
    f->weight = weight == Py_None ? NULL : weight;
    if (f->weight) {
        f->owner = weight;
        f->use = 0;
    }
    f->window = (comet_pool_window)COMET_POOL_WINDOW_INIT;
    f->window.kernel[0] = 0; /* unknown */
    if (pool != Py_None) {
        int32_t *const to[] = {f->window.kernel, f->window.stride, f->window.padding, f->window.dilation};
        for (int i = 0; i < 8; i++)
            to[i / 2][i % 2] = (int32_t)PyLong_AsLong(PyTuple_GetItem(pool, i));
        if (PyErr_Occurred())
            return NULL;
    }
    Py_RETURN_NONE;
}

static int save_waiting(frame *f) {
    entry *e = f->waiting;
    /* mean, 1 / deviation; in another order, or with more of them, it would be something that we do not know */
    const int known = f->vector_count == 2 && e->memory.layout != COMET_FLAT &&
                      f->form->codec.codec == COMET_CODEC_EB;
    return known ? entry_save_norm(e, f->vectors[1]) : entry_save(e, ROLE_ROW_NORM);
}

static PyObject *frame_end(PyObject *self, PyObject *failed) {
    frame *f = (frame *)self;
    int result = 0;
    if (f->waiting) {
        if (failed == Py_False)
            result = save_waiting(f);
        entry_release(f->waiting);
        f->waiting = NULL;
    }
    drop_vectors(f);
    f->op = OP_NONE;
    f->input = f->weight = NULL;
    if (result)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef frame_methods[] = {
    {"begin", frame_begin, METH_VARARGS, "begin(operation, form, input, weight, pool)"},
    {"end", frame_end, METH_O, "end(failed): the operation has returned, or raised"},
    {"pack", frame_pack, METH_O, "pack(tensor) -> what is kept: the first of autograd's hooks"},
    {"norm", norm_forward, METH_VARARGS,
     "norm(form, x, added, weight, bias, running_mean, running_var, batches, relu, curve, momentum, eps) -> y, "
     "or None if it cannot be done here"},
    {NULL, NULL, 0, NULL}};

int frame_make_type(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_dealloc, frame_dealloc},
                                  {Py_tp_methods, frame_methods},
                                  {Py_tp_doc, "One forward pass."},
                                  {0, NULL}};
    static PyType_Spec spec = {"libcomet._native.Frame", sizeof(frame), 0, Py_TPFLAGS_DEFAULT, slots};
    frame_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return frame_type ? PyModule_AddObjectRef(module, "Frame", (PyObject *)frame_type) : -1;
}
