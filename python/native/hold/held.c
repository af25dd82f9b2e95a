/* SPDX-License-Identifier: Apache-2.0 */
#include "hold/held.h"

PyTypeObject *held_type, *kept_type;

/* A tensor in another form. */
typedef struct held {
    PyObject_HEAD entry *entry; /* NULL: only the shape is known, or the indices are below */
    int was_read;
    tensor_view view;
    PyObject *packed; /* indices */
    comet_pool_window window;
} held;

/* The tensor itself. */
typedef struct kept {
    PyObject_HEAD PyObject *tensor;
    long long version;
} kept;

static held *make(const tensor_view *view) {
    held *h = object_new(held_type);
    if (h)
        h->view = *view;
    return h;
}

PyObject *held_new(entry *e, const tensor_view *view) {
    held *h = make(view);
    if (h) {
        h->entry = entry_share(e);
        e->unread++;
    }
    return (PyObject *)h;
}

PyObject *held_shape(const tensor_view *view) {
    return (PyObject *)make(view);
}

PyObject *held_indices(PyObject *packed, const comet_pool_window *window, const tensor_view *view) {
    held *h = make(view);
    if (h) {
        Py_INCREF(packed);
        h->packed = packed;
        h->window = *window;
    }
    return (PyObject *)h;
}

void held_set_scale(PyObject *self, double scale) {
    ((held *)self)->entry->scale = scale;
}

PyObject *held_kept(PyObject *tensor) {
    kept *k = object_new(kept_type);
    if (!k)
        return NULL;
    k->tensor = torch_keep(tensor, &k->version);
    if (!k->tensor)
        Py_CLEAR(k);
    return (PyObject *)k;
}

static void held_dealloc(PyObject *self) {
    held *h = (held *)self;
    if (h->entry) {
        if (!h->was_read)
            h->entry->unread--;
        entry_release(h->entry);
    }
    Py_CLEAR(h->packed);
    object_free(self);
}

static void kept_dealloc(PyObject *self) {
    Py_CLEAR(((kept *)self)->tensor);
    object_free(self);
}

static PyObject *unpack_indices(const session *s, const held *h) {
    PyObject *tensor = torch_like(&h->view);
    void *queue;
    if (!tensor || torch_queue(h->view.device, &queue) || session_check_indices(s, h->view.device)) {
        Py_XDECREF(tensor);
        return NULL;
    }
    void *packed = view_data(h->packed), *indices = view_data(tensor);
    comet_status status = h->view.device.kind == COMET_CUDA
                              ? comet_cuda_indices_unpack(&h->window, packed, indices, queue)
                              : comet_indices_unpack(&h->window, packed, indices);
    if (status != COMET_OK) {
        raise_status(status, "unpacking the indices of a max-pool");
        Py_CLEAR(tensor);
    }
    return tensor;
}

static PyObject *unpack_held(const session *s, held *h) {
    if (h->packed)
        return unpack_indices(s, h);
    if (!h->entry)
        return torch_like(&h->view);
    if (!h->was_read) {
        h->was_read = 1;
        h->entry->unread--;
    }
    return entry_read(h->entry, &h->view);
}

static PyObject *the_token;

PyObject *held_set_token(PyObject *module, PyObject *token) {
    (void)module;
    return object_keep(&the_token, token);
}

int held_is_token(PyObject *tensor) {
    return tensor == the_token;
}

static PyObject *unpack_norm(session *s, PyObject *norm) {
    if (session_note_norm(s, norm))
        return NULL;
    Py_INCREF(the_token);
    return the_token;
}

static PyObject *unpack_kept(const kept *k) {
    if (torch_check_version(k->tensor, k->version))
        return NULL;
    Py_INCREF(k->tensor);
    return k->tensor;
}

PyObject *held_unpack(session *s, PyObject *object) {
    if (Py_TYPE(object) == kept_type)
        return unpack_kept((const kept *)object);
    if (Py_TYPE(object) == held_type)
        return unpack_held(s, (held *)object);
    if (Py_TYPE(object) == norm_type)
        return unpack_norm(s, object);
    return PyErr_Format(PyExc_TypeError, "not what pack returned");
}

int held_make_types(PyObject *module) {
    static PyType_Slot held_slots[] = {
        {Py_tp_dealloc, held_dealloc}, {Py_tp_doc, (void *)"A tensor that is held in another form."}, {0, NULL}};
    static PyType_Slot kept_slots[] = {
        {Py_tp_dealloc, kept_dealloc}, {Py_tp_doc, (void *)"A tensor that is kept as it is."}, {0, NULL}};
    static PyType_Spec held_spec = {"libcomet._native.Held", sizeof(held), 0, Py_TPFLAGS_DEFAULT, held_slots};
    static PyType_Spec kept_spec = {"libcomet._native.Kept", sizeof(kept), 0, Py_TPFLAGS_DEFAULT, kept_slots};
    held_type = (PyTypeObject *)PyType_FromSpec(&held_spec);
    kept_type = (PyTypeObject *)PyType_FromSpec(&kept_spec);
    return held_type && kept_type && !PyModule_AddObjectRef(module, "Held", (PyObject *)held_type) &&
                   !PyModule_AddObjectRef(module, "Kept", (PyObject *)kept_type)
               ? 0
               : -1;
}
