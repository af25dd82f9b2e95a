/* SPDX-License-Identifier: Apache-2.0 */
/* Tells who watches a pass what has run. */
#include "pass/tell.h"

#include "hold/held.h"

/* A form whose bound is the session's, and so a controller's to set. */
static int is_controlled(const frame *f, const entry *e) {
    const form *own = &f->session->forms[0];
    const uint32_t r = e->site->key.role;
    return f->form == own && e->form == own && own->kind == FORM_CODEC && own->codec.codec == COMET_CODEC_EB &&
           (r == ROLE_VALUE || r == ROLE_RELU || r == ROLE_NORM);
}

/* The parameter and how often it was used before in this pass; None: it is none of the model's. */
static PyObject *node_of(const frame *f, const operation_call *call) {
    return call->weight && f->owner == call->weight
               ? Py_BuildValue("KI", (unsigned long long)(uintptr_t)f->owner, f->use >> 16)
               : Py_BuildValue("");
}

static PyObject *vectors_of(const frame *f, const operation_call *call) {
    return call->is_training && f->vectors[0] ? PyTuple_Pack(2, f->vectors[0], f->vectors[1]) : Py_BuildValue("");
}

int tell_norm(frame *f, const operation_call *call, PyObject *result, entry *e, PyObject *of) {
    PyObject *input = f->noted_raw ? f->noted_raw : call->input;
    PyObject *none = Py_BuildValue(""), *node = node_of(f, call), *vectors = vectors_of(f, call), *answer = NULL;
    if (none && node && vectors)
        answer = PyObject_CallFunction(f->observer, "iOOOOOOOiiOO", (int)call->op, call->source ? call->source : none,
                                       node, input, call->weight ? call->weight : none, call->args,
                                       call->kwargs ? call->kwargs : none, result, e ? (int)e->site->kin : -1,
                                       e ? is_controlled(f, e) : 0, vectors, of ? of : none);
    Py_XDECREF(none), Py_XDECREF(node), Py_XDECREF(vectors), Py_XDECREF(answer);
    return answer ? 0 : -1;
}

int tell_operation(frame *f, const operation_call *call, PyObject *result) {
    entry *noted = f->noted;
    PyObject *held = NULL;
    int failed = 0;
    f->noted = NULL;
    const int is_told = result && (call->op == OP_LAYER || call->op == OP_BATCH_NORM || call->op == OP_CURVE ||
                                   call->op == OP_ROW_NORM || call->op == OP_SCALE);
    if (is_told && noted && !(held = held_new(noted, &f->noted_view)))
        failed = -1;
    else if (is_told)
        failed = tell_norm(f, call, result, noted, held);
    Py_XDECREF(held);
    Py_CLEAR(f->noted_raw);
    if (noted)
        entry_release(noted);
    return failed;
}
