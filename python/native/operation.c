/* SPDX-License-Identifier: Apache-2.0 */
#include "operation.h"

#include "entry.h"

PyTypeObject *leaf_type;

static _Thread_local frame *running; /* the innermost pass of this thread */

/* ---- running one ---- */

static int save_waiting(frame *f, const operation_call *call) {
    entry *e = f->waiting;
    if (f->form->codec.codec != COMET_CODEC_EB)
        return entry_save(e, ROLE_NORM);
    /* With running statistics there are none of the batch, and the tensor stays as it is. */
    if (!call->is_training || !f->vectors[0] || e->memory.layout == COMET_FLAT)
        return 0;
    return entry_save_norm(e, f->vectors[1]);
}

/* The operation has returned, or raised: then an exception is set, and stays. */
static int end(frame *f, const operation_call *call, int failed) {
    int result = 0;
    if (f->waiting) {
        entry *e = f->waiting;
        if (!failed)
            result = save_waiting(f, call);
        f->waiting = NULL;
        entry_release(e);
    }
    frame_drop_vectors(f);
    return result;
}

static PyObject *run(frame *f, const operation_call *call, PyObject *function, PyObject *args, PyObject *kwargs) {
    const operation_call outer = f->now;
    f->now = *call;
    f->input_state = f->weight_state = VIEW_UNREAD;
    PyObject *result = NULL;
    if (!call->weight || frame_enter_owner(f, call->weight) == 0)
        result = PyObject_Call(function, args, kwargs);
    if (end(f, call, result == NULL))
        Py_CLEAR(result);
    f->now = outer;
    f->input_state = f->weight_state = VIEW_UNREAD;
    return result;
}

/* (kernel, stride, padding, dilation), rows and columns each */
static int read_window(PyObject *pool, comet_pool_window *window) {
    *window = (comet_pool_window)COMET_POOL_WINDOW_INIT;
    int32_t *const to[] = {window->kernel, window->stride, window->padding, window->dilation};
    for (int i = 0; i < 8; i++)
        to[i / 2][i % 2] = (int32_t)PyLong_AsLong(PyTuple_GetItem(pool, i));
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- functions ---- */

/* What is known of PyTorch's functions (ops.py): function -> (operation, position of the weight, pool window or None). */
static PyObject *known;

PyObject *operation_set_known(PyObject *module, PyObject *table) {
    (void)module;
    if (!PyDict_Check(table))
        return PyErr_Format(PyExc_TypeError, "a dict is wanted");
    Py_INCREF(table);
    Py_XDECREF(known);
    known = table;
    Py_RETURN_NONE;
}

/* An argument by position or name; borrowed, NULL: it was not given. */
static PyObject *argument(PyObject *args, PyObject *kwargs, Py_ssize_t position, const char *name) {
    if (position < PyTuple_Size(args))
        return PyTuple_GetItem(args, position);
    return kwargs ? PyDict_GetItemString(kwargs, name) : NULL;
}

static int find_window(PyObject *find, PyObject *args, PyObject *kwargs, comet_pool_window *window) {
    PyObject *empty = kwargs ? NULL : PyDict_New();
    PyObject *pool = PyObject_CallFunctionObjArgs(find, args, kwargs ? kwargs : empty, NULL);
    Py_XDECREF(empty);
    const int failed = !pool || read_window(pool, window);
    Py_XDECREF(pool);
    return failed ? -1 : 0;
}

/* 0: the call is described. 1: it is none that we know after all. -1: exception. */
static int describe(PyObject *found, PyObject *args, PyObject *kwargs, operation_call *call) {
    const Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GetItem(found, 1));
    PyObject *find = PyTuple_GetItem(found, 2), *weight;
    *call = (operation_call){.op = (operation)PyLong_AsLong(PyTuple_GetItem(found, 0)), .args = args, .kwargs = kwargs};
    call->input = argument(args, kwargs, 0, "input");
    if (!call->input)
        return 1;
    weight = position > 0 ? argument(args, kwargs, position, "weight") : NULL;
    call->weight = weight == Py_None ? NULL : weight;
    if (call->op == OP_BATCH_NORM)
        call->is_training = argument(args, kwargs, 5, "training") == Py_True;
    return find == Py_None ? 0 : find_window(find, args, kwargs, &call->window);
}

static PyObject *run_function(frame *f, PyObject *function, PyObject *found, PyObject *args, PyObject *kwargs) {
    operation_call call;
    const int unknown = describe(found, args, kwargs, &call);
    if (unknown)
        return unknown < 0 ? NULL : PyObject_Call(function, args, kwargs);
    f->saw_function = 1;
    return run(f, &call, function, args, kwargs);
}

/* What PyTorch calls in place of every function while the frame is on its stack of modes: (function, types, args, kwargs)
 */
PyObject *operation_torch_function(PyObject *self, PyObject *arguments) {
    frame *f = (frame *)self;
    PyObject *function, *types, *args = NULL, *kwargs = NULL, *none = NULL, *result = NULL;
    if (!PyArg_ParseTuple(arguments, "OO|OO", &function, &types, &args, &kwargs))
        return NULL;
    if (!args && !(args = none = PyTuple_New(0)))
        return NULL;
    if (kwargs == Py_None)
        kwargs = NULL;
    /* Within a leaf it is known already. */
    PyObject *found = known && f->now.op == OP_NONE ? PyDict_GetItemWithError(known, function) : NULL;
    if (!PyErr_Occurred()) {
        const int follows = found ? torch_grad_is_enabled() : 0;
        if (follows > 0)
            result = run_function(f, function, found, args, kwargs);
        else if (follows == 0)
            result = PyObject_Call(function, args, kwargs);
    }
    Py_XDECREF(none);
    return result;
}

/* ---- leaves ---- */

typedef struct leaf {
    PyObject_HEAD
    operation op;
    PyObject *module, *own; /* own: what would be called without us */
    PyObject *before;       /* what is in our place outside of passes, or NULL */
    comet_pool_window window;
    int in_place; /* how many passes want us there */
} leaf;

/* Leaf(operation, module, window or None) */
static PyObject *leaf_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    int op;
    PyObject *module, *pool;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "iOO", &op, &module, &pool))
        return NULL;
    leaf *l = object_new(type);
    if (!l)
        return NULL;
    l->op = (operation)op;
    Py_INCREF(module);
    l->module = module;
    if (pool != Py_None && read_window(pool, &l->window)) {
        Py_DECREF(l);
        return NULL;
    }
    return (PyObject *)l;
}

static int leaf_traverse(PyObject *self, visitproc visit, void *arg) {
    const leaf *l = (const leaf *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(l->module);
    Py_VISIT(l->own);
    Py_VISIT(l->before);
    return 0;
}

static int leaf_clear(PyObject *self) {
    leaf *l = (leaf *)self;
    Py_CLEAR(l->module);
    Py_CLEAR(l->own);
    Py_CLEAR(l->before);
    return 0;
}

static void leaf_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    leaf_clear(self);
    object_free(self);
}

/* A parameter of the module as it is registered; borrowed. What is computed whenever it is asked for is none. */
static PyObject *parameter(const leaf *l, const char *name) {
    PyObject *all = PyObject_GetAttrString(l->module, "_parameters");
    PyObject *found = all && PyDict_Check(all) ? PyDict_GetItemString(all, name) : NULL;
    Py_XDECREF(all);
    PyErr_Clear();
    return found == Py_None ? NULL : found;
}

/* Statistics of the batch: in training, and where the module keeps none. */
static int uses_batch(const leaf *l) {
    PyObject *training = PyObject_GetAttrString(l->module, "training");
    int uses = training == Py_True;
    Py_XDECREF(training);
    if (!uses && !PyErr_Occurred()) {
        PyObject *buffers = PyObject_GetAttrString(l->module, "_buffers");
        PyObject *mean = buffers && PyDict_Check(buffers) ? PyDict_GetItemString(buffers, "running_mean") : NULL;
        uses = !mean || mean == Py_None;
        Py_XDECREF(buffers);
    }
    PyErr_Clear();
    return uses;
}

static PyObject *leaf_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    leaf *l = (leaf *)self;
    frame *f = running;
    operation_call call = {.op = l->op, .args = args, .kwargs = kwargs, .window = l->window};
    if (f && f->now.op == OP_NONE)
        call.input = argument(args, kwargs, 0, "input");
    const int follows = call.input ? torch_grad_is_enabled() : 0;
    PyObject *own = l->own, *result;
    if (follows < 0)
        return NULL;
    Py_INCREF(own); /* a pass of another thread may end meanwhile */
    if (follows) {
        call.weight = parameter(l, "weight");
        call.is_training = call.op == OP_BATCH_NORM && uses_batch(l);
        result = run(f, &call, own, args, kwargs);
    } else {
        result = PyObject_Call(own, args, kwargs);
    }
    Py_DECREF(own);
    return result;
}

static const char place[] = "_compiled_call_impl"; /* in the dict of a module */

static int put(leaf *l) {
    if (l->in_place++ > 0)
        return 0;
    PyObject *dict = PyObject_GetAttrString(l->module, "__dict__");
    if (!dict)
        return -1;
    PyObject *before = PyDict_GetItemString(dict, place);
    Py_XINCREF(before);
    l->before = before;
    if (before && before != Py_None) {
        Py_INCREF(before);
        l->own = before;
    } else {
        l->own = PyObject_GetAttrString(l->module, "_call_impl");
    }
    const int failed = !l->own || PyDict_SetItemString(dict, place, (PyObject *)l);
    Py_DECREF(dict);
    return failed ? -1 : 0;
}

static int take_away(leaf *l) {
    if (--l->in_place > 0)
        return 0;
    PyObject *dict = PyObject_GetAttrString(l->module, "__dict__");
    int failed = !dict;
    if (dict && PyDict_GetItemString(dict, place) == (PyObject *)l)
        failed = l->before ? PyDict_SetItemString(dict, place, l->before) : PyDict_DelItemString(dict, place);
    Py_XDECREF(dict);
    Py_CLEAR(l->before);
    Py_CLEAR(l->own);
    return failed ? -1 : 0;
}

static int for_all(PyObject *leaves, int (*what)(leaf *)) {
    int failed = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(leaves); i++) {
        PyObject *one = PyTuple_GetItem(leaves, i);
        if (Py_TYPE(one) == leaf_type)
            failed |= what((leaf *)one);
    }
    return failed;
}

PyObject *operation_enter(PyObject *self, PyObject *leaves) {
    frame *f = (frame *)self;
    f->outer = running;
    running = f;
    if (for_all(leaves, put))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *operation_exit(PyObject *self, PyObject *leaves) {
    frame *f = (frame *)self;
    running = f->outer;
    f->outer = NULL;
    if (for_all(leaves, take_away))
        return NULL;
    Py_RETURN_NONE;
}

int operation_make_type(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_new, leaf_new},         {Py_tp_dealloc, leaf_dealloc},
                                  {Py_tp_traverse, leaf_traverse}, {Py_tp_clear, leaf_clear},
                                  {Py_tp_call, leaf_call},       {Py_tp_doc, (void *)"A module that is one operation."},
                                  {0, NULL}};
    static PyType_Spec spec = {"libcomet._native.Leaf", sizeof(leaf), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                               slots};
    leaf_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return leaf_type ? PyModule_AddObjectRef(module, "Leaf", (PyObject *)leaf_type) : -1;
}
