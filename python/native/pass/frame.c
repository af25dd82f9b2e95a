/* SPDX-License-Identifier: Apache-2.0 */
#include "pass/frame.h"

#include <stdlib.h>
#include <string.h>

#include "hold/entry.h"
#include "hold/held.h"
#include "pass/norm.h"
#include "pass/operation.h"

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

void frame_drop_vectors(frame *f) {
    Py_CLEAR(f->vectors[0]);
    Py_CLEAR(f->vectors[1]);
}

static void frame_dealloc(PyObject *self) {
    frame *f = (frame *)self;
    frame_drop_vectors(f);
    if (f->waiting)
        entry_release(f->waiting);
    if (f->noted)
        entry_release(f->noted);
    Py_CLEAR(f->noted_raw);
    Py_CLEAR(f->observer);
    if (!f->is_part && !f->is_dry)
        session_learn_pass(f->session, f->sites, f->site_count);
    free(f->sites);
    Py_CLEAR(f->norm);
    Py_CLEAR(f->calls);
    Py_CLEAR(f->names);
    Py_CLEAR(f->session);
    object_free(self);
}

/* ---- which tensor of an operation this is ---- */

/* Views of the operation's arguments, read once; NULL: none that we know. */
static const tensor_view *input_of(frame *f) {
    if (f->input_state == VIEW_UNREAD)
        f->input_state = view_read(f->now.input, &f->input_view) == 0 ? VIEW_READ : VIEW_NONE;
    return f->input_state == VIEW_READ ? &f->input_view : NULL;
}

static const tensor_view *weight_of(frame *f) {
    if (f->weight_state == VIEW_UNREAD)
        f->weight_state = f->now.weight && view_read_any(f->now.weight, &f->weight_view) == 0 ? VIEW_READ : VIEW_NONE;
    return f->weight_state == VIEW_READ ? &f->weight_view : NULL;
}

static int is_floating(const tensor_view *v) {
    return v->dtype == COMET_F32 || v->dtype == COMET_F16 || v->dtype == COMET_BF16;
}

/* `other` has the same extents, or the same with two dimensions exchanged. */
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
static int is_input_of_layer(frame *f, const tensor_view *v) {
    const tensor_view *input, *weight;
    if (f->is_input) /* PyTorch hands out the same object for a tensor as long as that lives */
        return 1;
    input = input_of(f);
    if (!input || input->count != v->count)
        return 0;
    if (v->data == input->data)
        return 1;
    weight = weight_of(f);
    return weight && v->data != weight->data && v->dtype != input->dtype && !has_extents_of(v, weight);
}

/* The user's own, or a parameter's: alive as long as he likes. Holding it once more would save nothing. */
static int is_users(frame *f, const tensor_view *v) {
    const tensor_view *input;
    if (f->is_input)
        return torch_is_leaf(f->now.input) || torch_is_of_parameter(f->now.input);
    input = input_of(f);
    return input && input->data == v->data && (torch_is_leaf(f->now.input) || torch_is_of_parameter(f->now.input));
}

static int is_large(const frame *f, const tensor_view *v) {
    return v->bytes >= f->session->least_bytes && v->count > 0;
}

static int counts_like_input(frame *f, const tensor_view *v) {
    const tensor_view *input = f->is_input ? v : input_of(f);
    return input && input->count == v->count;
}

static role role_in(frame *f, const tensor_view *v) {
    if (f->form->kind == FORM_UNTOUCHED || !is_large(f, v))
        return ROLE_NONE;
    if (!is_floating(v))
        return f->now.op == OP_MAX_POOL && v->dtype == VIEW_I64   ? ROLE_INDICES
               : f->now.op == OP_DROPOUT && v->dtype == VIEW_BOOL ? ROLE_BITS
                                                                  : ROLE_NONE;
    switch (f->now.op) {
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
    case OP_SCALE:
        return f->is_input && !is_users(f, v) ? ROLE_SCALED : ROLE_NONE;
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
static role role_of(frame *f, const tensor_view *v) {
    const role r = role_in(f, v);
    const int lossy = r == ROLE_VALUE || r == ROLE_CURVE || r == ROLE_NORM || r == ROLE_ROW_NORM || r == ROLE_SCALED;
    return lossy && f->form->kind == FORM_LOSSLESS ? ROLE_NONE : r;
}

/* ---- holding it ---- */

static PyObject *name_of(const frame *f, role r) {
    static const char *const suffix[ROLES] = {
        [ROLE_VALUE] = "input",    [ROLE_RELU] = "relu",     [ROLE_CURVE] = "curve",  [ROLE_NORM] = "input",
        [ROLE_ROW_NORM] = "input", [ROLE_SCALED] = "scaled", [ROLE_BITS] = "dropout", [ROLE_NOISE] = "dropout"};
    PyObject *key = PyLong_FromVoidPtr((void *)f->owner);
    PyObject *name = key ? PyDict_GetItemWithError(f->names, key) : NULL; /* borrowed */
    Py_XDECREF(key);
    if (PyErr_Occurred())
        return NULL;
    const char *what = suffix[r] ? suffix[r] : "";
    const int behind = r != ROLE_VALUE && r != ROLE_NORM && r != ROLE_ROW_NORM;
    return name ? PyUnicode_FromFormat(behind ? "%U > %s" : "%U.%s", name, what) : PyUnicode_FromFormat("%s", what);
}

static int note_site(frame *f, site *at) {
    if (f->site_count == f->site_room) {
        const size_t room = f->site_room ? 2 * f->site_room : 128;
        site **grown = realloc(f->sites, room * sizeof *grown);
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        f->sites = grown, f->site_room = room;
    }
    at->order = (uint32_t)f->site_count;
    f->sites[f->site_count++] = at;
    return 0;
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
    if (at)
        at->is_part = f->is_part;
    return at && note_site(f, at) == 0 ? at : NULL;
}

static map_order order_of(operation op, int is_convolution, int ndim) {
    return op == OP_BATCH_NORM || op == OP_MAX_POOL || op == OP_AVERAGE || is_convolution ||
                   (op == OP_SCALE && ndim > 3)
               ? ORDER_CHANNELS_SECOND
               : ORDER_CHANNELS_LAST;
}

static int is_convolution(frame *f) {
    const tensor_view *weight = f->now.op == OP_LAYER ? weight_of(f) : NULL;
    return weight && weight->ndim > 2;
}

static int is_aligned(const tensor_view *v) {
    return v->device.kind == COMET_CPU || (uintptr_t)v->data % 16 == 0;
}

/*
 * The tensor without its graph, and its memory as codecs want it. Views with gaps or repeated values are copied. NULL:
 * an exception.
 */
static PyObject *memory_of(frame *f, PyObject *tensor, tensor_view *v, comet_tensor *memory, int *is_copy) {
    const map_order order = order_of(f->now.op, is_convolution(f), v->ndim);
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

/* For who watches: what the operation holds. */
static void note(frame *f, entry *e, const tensor_view *v, PyObject *raw) {
    entry *before = f->noted;
    f->noted = f->observer ? entry_share(e) : NULL;
    f->noted_view = *v;
    if (before)
        entry_release(before);
    Py_CLEAR(f->noted_raw);
    if (f->noted && f->now.op == OP_CURVE && raw) {
        Py_INCREF(raw);
        f->noted_raw = raw;
    }
}

static PyObject *hold(frame *f, PyObject *tensor, tensor_view *v, role r) {
    session *s = f->session;
    comet_tensor memory;
    const int is_dense = view_in_memory_order(v, ORDER_CHANNELS_SECOND, &memory);
    entry *found = is_dense ? alias_find(s, v, f->form, r) : NULL;
    if (found) {
        found->site->aliases++;
        note(f, found, v, NULL);
        return held_new(found, v);
    }
    site *at = frame_site(f, r, v);
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
    note(f, e, v, e->raw);
    if (held && session_is_head(s, at, v->device))
        at->heads++;
    else if (held && save(f, e, r))
        Py_CLEAR(held);
    entry_release(e);
    return held;
}

/* The input of a block that will be done again: exactly as it is, in a lossless form if it is worth that. */
static PyObject *frame_hold(PyObject *self, PyObject *tensor) {
    frame *f = (frame *)self;
    tensor_view v;
    const int readable = view_read(tensor, &v);
    if (readable < 0)
        return NULL;
    if (readable > 0 || !is_floating(&v) || !is_large(f, &v) || torch_is_leaf(tensor) || torch_is_of_parameter(tensor))
        return PyErr_Occurred() ? NULL : held_kept(tensor);
    const form *outer = f->form;
    f->form = &f->session->forms[FORM_OF_BLOCKS];
    PyObject *held = hold(f, tensor, &v, ROLE_VALUE);
    f->form = outer;
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
    comet_pool_window window = f->now.window;
    size_t bytes;
    if (v->ndim != 4 || !window.kernel[0] || !view_in_memory_order(v, ORDER_CHANNELS_SECOND, &memory) ||
        memory.layout == COMET_FLAT || torch_is_current(v->device) != 1)
        return PyErr_Occurred() ? NULL : held_kept(tensor);
    const tensor_view *input = input_of(f);
    if (!input || input->ndim != 4)
        return PyErr_Occurred() ? NULL : held_kept(tensor);
    window.batch = v->shape[0], window.channels = v->shape[1];
    window.output[0] = v->shape[2], window.output[1] = v->shape[3];
    window.input[0] = input->shape[2], window.input[1] = input->shape[3];
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
    if (status == COMET_ERROR_ARGUMENT) { /* not the windows that we know of */
        held = held_kept(tensor);
    } else if (status == COMET_OK) {
        held = held_indices(packed, &window, v);
        f->session->index_bytes += (double)bytes, f->session->index_raw_bytes += (double)v->bytes;
    } else {
        raise_status(status, "packing the indices of a max-pool");
    }
    Py_DECREF(packed);
    return held;
}

/*
 * The last two vectors that a batch norm saves, with a value for each channel, are the batch's mean and 1 / deviation:
 * results are saved after arguments. (A part of PyTorch's interface that is as old as it: derivatives.yaml.)
 */
static void notice_vector(frame *f, PyObject *tensor) {
    const long long bytes = torch_bytes(tensor), channels = f->waiting->view.shape[1];
    if ((bytes != 4 * channels && bytes != 2 * channels) || !torch_is_floating(tensor))
        return;
    PyObject *first = f->vectors[0];
    Py_INCREF(tensor);
    f->vectors[0] = f->vectors[1], f->vectors[1] = tensor;
    Py_XDECREF(first);
}

static PyObject *keep(frame *f, PyObject *tensor, reason why, long long bytes) {
    kept_count *count = &f->session->kept[why];
    count->tensors++;
    count->bytes += bytes > 0 ? (double)bytes : 0;
    return held_kept(tensor);
}

/* Why a tensor that nothing is known of is kept, before its extents are read: most of them are small, or weights. */
static reason why_kept_unread(const frame *f, PyObject *tensor, long long bytes) {
    return f->now.op != OP_NONE && tensor == f->now.weight ? REASON_WEIGHT
           : bytes < (long long)f->session->least_bytes    ? REASON_SMALL
           : f->form->kind == FORM_UNTOUCHED               ? REASON_EXCLUDED
           : f->now.op == OP_NONE                          ? REASON_FUNCTION
                                                           : REASONS;
}

/* Why one is kept that a known function saves: it has no role. */
static reason why_kept(frame *f, const tensor_view *v) {
    const tensor_view *weight = weight_of(f);
    return weight && has_extents_of(v, weight) ? REASON_WEIGHT : is_users(f, v) ? REASON_USERS : REASON_EXACT;
}

static PyObject *frame_pack(PyObject *self, PyObject *tensor) {
    frame *f = (frame *)self;
    tensor_view v;
    if (f->norm && held_is_token(tensor)) {
        PyObject *norm = f->norm;
        f->norm = NULL;
        return norm;
    }
    if (f->waiting)
        notice_vector(f, tensor);
    const long long bytes = torch_bytes(tensor);
    reason why = why_kept_unread(f, tensor, bytes);
    if (why != REASONS)
        return PyErr_Occurred() ? NULL : keep(f, tensor, why, bytes);
    const int readable = view_read(tensor, &v);
    if (readable != 0)
        return readable < 0 ? NULL : keep(f, tensor, REASON_OTHER, bytes);
    f->is_input = tensor == f->now.input;
    const role r = role_of(f, &v);
    if (PyErr_Occurred())
        return NULL;
    switch (r) {
    case ROLE_SHAPE:
        f->session->shape_bytes += (double)v.bytes;
        return held_shape(&v);
    case ROLE_INDICES:
        return hold_indices(f, tensor, &v);
    case ROLE_NOISE:
        return hold_noise(f, tensor, &v);
    case ROLE_NONE:
        why = why_kept(f, &v);
        return PyErr_Occurred() ? NULL : keep(f, tensor, why, bytes);
    default:
        return hold(f, tensor, &v, r);
    }
}

/* ---- operations ---- */

/*
 * A parameter is a place in the network; so is each further use of it in the same pass. What is no parameter of the
 * model (a weight that is computed in every pass) is none: its address means nothing.
 */
int frame_enter_owner(frame *f, PyObject *parameter) {
    PyObject *key = PyLong_FromVoidPtr(parameter);
    const int is_known = key ? PyDict_Contains(f->names, key) : -1;
    if (is_known > 0) {
        PyObject *before = f->calls ? PyDict_GetItemWithError(f->calls, key) : NULL;
        const long calls = before ? PyLong_AsLong(before) + 1 : 0;
        PyObject *now = PyLong_FromLong(calls);
        if (now && (f->calls || (f->calls = PyDict_New())))
            PyDict_SetItem(f->calls, key, now);
        Py_XDECREF(now);
        f->owner = parameter;
        f->use = (uint32_t)calls << 16;
    }
    Py_XDECREF(key);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *frame_get_form(PyObject *self, void *unused) {
    const frame *f = (const frame *)self;
    (void)unused;
    return PyLong_FromSsize_t(f->form - f->session->forms);
}

/* The form of what is saved from now on. */
static int frame_set_form(PyObject *self, PyObject *value, void *unused) {
    frame *f = (frame *)self;
    (void)unused;
    const long number = value ? PyLong_AsLong(value) : -1;
    if (PyErr_Occurred())
        return -1;
    if (number < 0 || number >= f->session->form_count) {
        PyErr_Format(PyExc_IndexError, "there is no form %ld", number);
        return -1;
    }
    f->form = &f->session->forms[number];
    return 0;
}

/* Whether a known function ran outside of the modules that are watched: then the next pass needs the mode, too. */
static PyObject *frame_saw_function(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(((const frame *)self)->saw_function);
}

static int frame_set_observer(PyObject *self, PyObject *value, void *unused) {
    frame *f = (frame *)self;
    PyObject *before = f->observer;
    (void)unused;
    f->observer = value == Py_None ? NULL : value;
    Py_XINCREF(f->observer);
    Py_XDECREF(before);
    return 0;
}

static int frame_set_dry(PyObject *self, PyObject *value, void *unused) {
    (void)unused;
    ((frame *)self)->is_dry = value == Py_True;
    return 0;
}

static int frame_set_part(PyObject *self, PyObject *value, void *unused) {
    (void)unused;
    ((frame *)self)->is_part = value == Py_True;
    return 0;
}

static PyObject *frame_get_site_count(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(((const frame *)self)->site_count);
}

static PyGetSetDef frame_attributes[] = {
    {"dry", NULL, frame_set_dry, "nothing is held: what it makes will be made again", NULL},
    {"part", NULL, frame_set_part, "a part of another pass, done again", NULL},
    {"site_count", frame_get_site_count, NULL, "how many sites it has gone through", NULL},
    {"observer", NULL, frame_set_observer, "called for every known operation that has run, or None", NULL},
    {"saw_function", frame_saw_function, NULL, "whether a known function ran outside of watched modules", NULL},
    {"form", frame_get_form, frame_set_form, "the number of the form of what is saved from now on", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef frame_methods[] = {
    {"__torch_function__", operation_torch_function, METH_VARARGS, "while on PyTorch's stack of modes: every function"},
    {"enter", operation_enter, METH_O, "enter(leaves): the pass begins in this thread, those modules are watched"},
    {"exit", operation_exit, METH_O, "exit(leaves)"},
    {"pack", frame_pack, METH_O, "pack(tensor) -> what is kept: the first of autograd's hooks"},
    {"hold", frame_hold, METH_O, "hold(tensor) -> what is kept: exact, for a block that will be done again"},
    {"norm", norm_forward, METH_VARARGS,
     "norm(norm, activation or None, x, added or None, relu, curve) -> y, or None if it cannot be done here"},
    {NULL, NULL, 0, NULL}};

int frame_make_type(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_dealloc, frame_dealloc},
                                  {Py_tp_methods, frame_methods},
                                  {Py_tp_getset, frame_attributes},
                                  {Py_tp_doc, (void *)"One forward pass."},
                                  {0, NULL}};
    static PyType_Spec spec = {"libcomet._native.Frame", sizeof(frame), 0, Py_TPFLAGS_DEFAULT, slots};
    frame_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return frame_type ? PyModule_AddObjectRef(module, "Frame", (PyObject *)frame_type) : -1;
}
