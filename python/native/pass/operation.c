/* SPDX-License-Identifier: Apache-2.0 */
#include "pass/operation.h"

#include "pass/norm.h"
#include "pass/tell.h"
#include "torch/module_parts.h"

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
static int end(frame *f, const operation_call *call, PyObject *returned) {
    const int failed = returned == NULL;
    int result = 0;
    if (f->waiting) {
        entry *e = f->waiting;
        if (!failed)
            result = save_waiting(f, call);
        f->waiting = NULL;
        entry_release(e);
    }
    if (f->observer && tell_operation(f, call, result ? NULL : returned))
        result = -1;
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
    if (end(f, call, result))
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

/* What is known of PyTorch's functions (ops.py): function -> (operation, position of the weight, window or None). */
static PyObject *known;

PyObject *operation_set_known(PyObject *module, PyObject *table) {
    (void)module;
    if (!PyDict_Check(table))
        return PyErr_Format(PyExc_TypeError, "a dict is wanted");
    return object_keep(&known, table);
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

/*
 * a * b, where one has an extent of 1, or none, in dimensions that make up MANY values of the other: a gate for each
 * map (squeeze-excite), a factor for each channel. The gradient of a factor is a sum over these, linear in what is
 * scaled.
 */
static int is_scaled_by(const tensor_view *v, const tensor_view *factors) {
    enum { MANY = 16 };
    const int skipped = v->ndim - factors->ndim;
    if (skipped < 0 || factors->count * MANY > v->count)
        return 0;
    for (int i = 0; i < factors->ndim; i++)
        if (factors->shape[i] != 1 && factors->shape[i] != v->shape[skipped + i])
            return 0;
    return 1;
}

static int describe_scaling(PyObject *args, PyObject *kwargs, operation_call *call) {
    tensor_view views[2];
    PyObject *both[2];
    if (PyTuple_Size(args) != 2 || (kwargs && PyDict_Size(kwargs)))
        return 1;
    for (int i = 0; i < 2; i++) {
        both[i] = PyTuple_GetItem(args, i);
        if (!torch_is_tensor(both[i]))
            return 1;
        const int unreadable = view_read_any(both[i], &views[i]);
        if (unreadable)
            return unreadable;
    }
    const int greater = views[1].count > views[0].count;
    if (!is_scaled_by(&views[greater], &views[!greater]))
        return 1;
    call->input = both[greater];
    call->weight = torch_is_plain(both[!greater]) ? NULL : both[!greater];
    return 0;
}

/* 0: the call is described. 1: it is none that we know after all. -1: exception. */
static int describe(PyObject *found, PyObject *args, PyObject *kwargs, operation_call *call) {
    const Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GetItem(found, 1));
    PyObject *find = PyTuple_GetItem(found, 2), *weight;
    *call = (operation_call){.op = (operation)PyLong_AsLong(PyTuple_GetItem(found, 0)), .args = args, .kwargs = kwargs};
    if (call->op == OP_SCALE)
        return describe_scaling(args, kwargs, call);
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
    call.source = function;
    return run(f, &call, function, args, kwargs);
}

/* What PyTorch calls in place of every function while the frame is on its stack of modes, with (function, types, args,
 * kwargs). */
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

/* One for each module, whatever sessions it belongs to: which pass it is in the thread knows. */
typedef struct leaf {
    PyObject_HEAD operation op;
    PyObject *module;    /* a weak reference: the module may have us */
    PyTypeObject *type;  /* of the module, borrowed: another one is another module to us */
    PyObject *find;      /* how to find a pool's window, or NULL */
    PyObject *before;    /* what is in our place outside of passes, or NULL */
    Py_ssize_t in_place; /* how many passes want us there */
} leaf;

/* Leaf(operation, module, how to find a window or None) */
static PyObject *leaf_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    int op;
    PyObject *module, *find;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "iOO", &op, &module, &find))
        return NULL;
    leaf *l = object_new(type);
    if (!l)
        return NULL;
    l->op = (operation)op;
    l->type = Py_TYPE(module);
    l->module = PyWeakref_NewRef(module, NULL);
    if (find != Py_None) {
        Py_INCREF(find);
        l->find = find;
    }
    if (!l->module)
        Py_CLEAR(l);
    return (PyObject *)l;
}

static int leaf_traverse(PyObject *self, visitproc visit, void *arg) {
    const leaf *l = (const leaf *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(l->module);
    Py_VISIT(l->find);
    Py_VISIT(l->before);
    return 0;
}

static int leaf_clear(PyObject *self) {
    leaf *l = (leaf *)self;
    Py_CLEAR(l->module);
    Py_CLEAR(l->find);
    Py_CLEAR(l->before);
    return 0;
}

static void leaf_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    leaf_clear(self);
    object_free(self);
}

/* ---- its call ---- */

static int describe_leaf(const leaf *l, PyObject *module, PyObject *dict, operation_call *call) {
    call->source = module;
    call->weight = module_registered(dict, MODULE_PARAMETERS, MODULE_WEIGHT);
    call->is_training = call->op == OP_BATCH_NORM && module_uses_batch(dict);
    if (!l->find)
        return 0;
    PyObject *pool = PyObject_CallFunctionObjArgs(l->find, module, NULL);
    const int failed = !pool || read_window(pool, &call->window);
    Py_XDECREF(pool);
    return failed ? -1 : 0;
}

/* The module as a known operation. */
static PyObject *run_leaf(const leaf *l, PyObject *module, PyObject *dict, operation_call *call) {
    PyObject *result = NULL, *own;
    if (describe_leaf(l, module, dict, call))
        return NULL;
    if (call->is_training && running->session->own_norms)
        result = norm_leaf(running, dict, call->input);
    if (result || PyErr_Occurred())
        return result;
    if (l->before && l->before != Py_None) {
        own = l->before;
        Py_INCREF(own);
    } else {
        own = module_forward(module); /* without hooks nothing else is in a module's call */
    }
    result = own ? run(running, call, own, call->args, call->kwargs) : NULL;
    Py_XDECREF(own);
    return result;
}

static PyObject *call_plainly(const leaf *l, PyObject *module, PyObject *args, PyObject *kwargs) {
    PyObject *own = l->before && l->before != Py_None ? l->before : NULL;
    if (own)
        Py_INCREF(own);
    else
        own = PyObject_GetAttrString(module, "_call_impl");
    PyObject *result = own ? PyObject_Call(own, args, kwargs) : NULL;
    Py_XDECREF(own);
    return result;
}

static PyObject *leaf_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    const leaf *l = (const leaf *)self;
    operation_call call = {.op = l->op, .args = args, .kwargs = kwargs};
    PyObject *module = PyWeakref_GetObject(l->module), *dict = NULL, *result = NULL;
    if (!module || module == Py_None)
        return PyErr_Format(PyExc_ReferenceError, "libcomet: the module is gone");
    Py_INCREF(module);
    if (running && running->now.op == OP_NONE)
        call.input = argument(args, kwargs, 0, "input");
    const int follows = call.input ? torch_grad_is_enabled() : 0;
    if (follows > 0)
        dict = module_dict(module);
    if (dict && Py_TYPE(module) == l->type && module_is_bare(dict)) {
        result = run_leaf(l, module, dict, &call);
    } else if (!PyErr_Occurred()) {
        if (follows > 0)
            running->saw_function = 1; /* its functions are for the mode to see */
        result = call_plainly(l, module, args, kwargs);
    }
    Py_XDECREF(dict);
    Py_DECREF(module);
    return result;
}

/* ---- in the place of a module's call, while a pass runs ---- */

static int put(leaf *l) {
    PyObject *module = PyWeakref_GetObject(l->module);
    if (l->in_place++ > 0 || !module || module == Py_None)
        return 0;
    PyObject *dict = module_dict(module);
    if (!dict)
        return -1;
    PyObject *before = module_item(dict, MODULE_PLACE);
    Py_XINCREF(before);
    Py_XDECREF(l->before);
    l->before = before;
    const int failed = PyDict_SetItem(dict, module_key(MODULE_PLACE), (PyObject *)l);
    Py_DECREF(dict);
    return failed ? -1 : 0;
}

static int take_away(leaf *l) {
    PyObject *module = PyWeakref_GetObject(l->module);
    if (--l->in_place > 0 || !module || module == Py_None)
        return 0;
    PyObject *dict = module_dict(module);
    int failed = !dict;
    if (dict && module_item(dict, MODULE_PLACE) == (PyObject *)l) {
        failed = l->before ? PyDict_SetItem(dict, module_key(MODULE_PLACE), l->before)
                           : PyDict_DelItem(dict, module_key(MODULE_PLACE));
        Py_CLEAR(l->before);
    } /* else somebody has put something over us, who may call us: we stay what we are */
    Py_XDECREF(dict);
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
    Py_CLEAR(f->norm); /* after an exception somebody may keep the frame */
    if (for_all(leaves, take_away))
        return NULL;
    Py_RETURN_NONE;
}

int operation_make_type(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_new, leaf_new},
                                  {Py_tp_dealloc, leaf_dealloc},
                                  {Py_tp_traverse, leaf_traverse},
                                  {Py_tp_clear, leaf_clear},
                                  {Py_tp_call, leaf_call},
                                  {Py_tp_doc, (void *)"A module that is one operation."},
                                  {0, NULL}};
    static PyType_Spec spec = {"libcomet._native.Leaf", sizeof(leaf), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                               slots};
    leaf_type = module_make_keys() ? NULL : (PyTypeObject *)PyType_FromSpec(&spec);
    return leaf_type ? PyModule_AddObjectRef(module, "Leaf", (PyObject *)leaf_type) : -1;
}
