/* SPDX-License-Identifier: Apache-2.0 */
/* The backward pass of a batch norm, from its stream: comet/cuda_norm.h. */
#include "hold/footprint.h"
#include "pass/norm.h"

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
    if (find_source(b, h->u, &b->slot, &b->x, &of_u) || (h->y && find_source(b, h->y, &b->y_slot, &b->y, &of_y)))
        return -1;
    y_params.keep_mask = 1;
    residual.dz = &b->dz;
    if (h->y) {
        residual.y_slot = of_y ? &b->y_slot : NULL, residual.y = of_y ? NULL : &b->y;
        residual.y_params = &y_params;
    }
    comet_status status = comet_device_store_exec(h->u->store, b->queue, h->workspace, &exec);
    if (status == COMET_OK)
        status = comet_cuda_norm_backward(&h->norm, of_u ? &b->slot : NULL, of_u ? NULL : &b->x, &b->dy, &b->dx, dgamma,
                                          dbeta, &params, &exec, b->status, h->norm.adds ? &residual : NULL);
    return status == COMET_OK ? 0 : raise_status(status, "a batch norm's backward pass");
}

/* dy in the order of x: as it is, or a copy. */
static PyObject *in_order_of(PyObject *dy, const tensor_view *x) {
    tensor_view v;
    if (view_read_any(dy, &v) == 0 && view_is_alike(&v, x) && (uintptr_t)v.data % 16 == 0) {
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

PyObject *norm_backward(PyObject *self, PyObject *gradient) {
    norm_held *h = (norm_held *)self;
    back b = {.held = h};
    const int has_dz = h->norm.adds, new_dz = has_dz && h->norm.relu;
    PyObject *dy = NULL, *dx = NULL, *dz = NULL, *dgamma = NULL, *dbeta = NULL, *result = NULL;
    b.view = h->u->view;
    if (!is_unchanged(h) || torch_queue(b.view.device, &b.queue) || !(dy = in_order_of(gradient, &b.view)) ||
        !(dx = torch_same(dy)) || (new_dz && !(dz = torch_same(dy))) || !(dgamma = torch_same(h->weight)) ||
        !(dbeta = torch_same(h->bias)))
        goto done;
    if (has_dz && !new_dz) {
        Py_INCREF(dy);
        dz = dy; /* without a ReLU it is what came in */
    }
    b.dy = b.dx = b.dz = h->u->memory;
    b.dy.data = view_data(dy), b.dx.data = view_data(dx), b.dz.data = dz ? view_data(dz) : NULL;
    if (show_gradient(h, dz ? dz : dy, &b, view_data(dgamma), view_data(dbeta)) == 0 &&
        footprint_note_read(h->u->owner, h->u->store, 0) == 0)
        result = PyTuple_Pack(5, dx, dz ? dz : Py_None, dgamma, dbeta, Py_None);
done:
    Py_XDECREF(dy), Py_XDECREF(dx), Py_XDECREF(dz), Py_XDECREF(dgamma), Py_XDECREF(dbeta);
    return result;
}
