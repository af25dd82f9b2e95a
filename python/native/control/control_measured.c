/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was measured of errors (docs/measured.md): libcomet.torch computes them for some tensors in turn; here they are
 * put beside what the model predicts for the same iteration, which makes a factor of each.
 */
#include <string.h>

#include "control/control.h"

static int read_one(control *c, PyObject *tuple, double squares) {
    unsigned kin;
    int use;
    double variance, batches;
    if (!PyArg_ParseTuple(tuple, "Iidd", &kin, &use, &variance, &batches))
        return -1;
    for (int32_t i = 0; i < c->count; i++)
        if (c->tensors[i].kin == kin && use >= 0 && use < c->tensors[i].use_count)
            c->tensors[i].measured[use] = (control_measured){variance / squares, batches, 0};
    return 0;
}

int control_read_measured(control *c, PyObject *list, double scale) {
    const Py_ssize_t count = PyList_Size(list);
    control_forget_measured(c);
    for (Py_ssize_t i = 0; i < count; i++)
        if (read_one(c, PyList_GetItem(list, i), scale * scale))
            return -1;
    return count < 0 ? -1 : 0;
}

/* How many batches the prediction is of. Graphs that are gone through twice are measured once, and have no factor. */
static double batches_of(const control *c, const control_use *u) {
    if (u->kind == COMET_USE_NORM_SCALE || u->kind == COMET_USE_NORM_INPUT)
        return u->norm >= 0 ? c->seen.norms[u->norm].batches : 0;
    return u->layer >= 0 ? c->seen.outputs[u->layer].batches : 0;
}

void control_set_factors(control *c, int32_t tensor, comet_use_stats *stats) {
    control_tensor *t = &c->tensors[tensor];
    const double bound = comet_stats_tensor_size(&c->seen.tensors[tensor], t->count).bound;
    for (int32_t i = 0; i < t->use_count; i++) {
        control_measured *m = &t->measured[i];
        const double sigma = comet_error_sensitivity(t->uses[i].kind, &stats[i]) * bound;
        if (!(m->variance > 0) || !(sigma > 0) || m->batches != batches_of(c, &t->uses[i]))
            continue;
        m->predicted = sigma * sigma;
        stats[i].factor = comet_error_factor(m->variance, m->predicted);
    }
}

void control_forget_measured(control *c) {
    for (int32_t i = 0; i < c->count; i++)
        for (int32_t u = 0; u < CONTROL_MOST_USES; u++) {
            c->tensors[i].measured[u] = (control_measured){0, 0, 0};
            c->tensors[i].stats[u].factor = 0; /* it counts once */
        }
}

/* ---- a control that is made anew ---- */

int control_has_uses_of(const control_tensor *t, const control_tensor *other) {
    return t->use_count == other->use_count &&
           memcmp(t->uses, other->uses, (size_t)t->use_count * sizeof *t->uses) == 0;
}

static void keep_factors(const comet_control *from, int32_t before, comet_control *to, int32_t tensor, int32_t uses) {
    for (int32_t u = 0; u < uses; u++) {
        int64_t times = 0;
        const double factor = comet_control_factor(from, before, u, &times);
        comet_control_set_factor(to, tensor, u, factor, times);
    }
}

void control_keep_factors(const control *c, const control_tensor *tensors, int32_t count, comet_control *made) {
    for (int32_t i = 0; i < count; i++)
        for (int32_t k = 0; k < c->count; k++)
            if (c->tensors[k].kin == tensors[i].kin && control_has_uses_of(&tensors[i], &c->tensors[k]))
                keep_factors(c->control, k, made, i, tensors[i].use_count);
}

/* ---- what it knows ---- */

static int append(PyObject *list, PyObject *one) {
    const int failed = !one || PyList_Append(list, one);
    Py_XDECREF(one);
    return failed;
}

/* take_measured() -> [(kin, use, its kind, predicted variance, measured variance, momentum), ...] of the last one. */
PyObject *control_take_measured(PyObject *self, PyObject *unused) {
    control *c = (control *)self;
    PyObject *list = PyList_New(0);
    int failed = !list;
    (void)unused;
    for (int32_t i = 0; i < c->count; i++)
        for (int32_t u = 0; !failed && u < c->tensors[i].use_count; u++) {
            const control_tensor *t = &c->tensors[i];
            const control_measured *m = &t->measured[u];
            if (m->predicted > 0)
                failed = append(list, Py_BuildValue("Iisddd", t->kin, (int)u, comet_use_name(t->uses[u].kind),
                                                    m->predicted, m->variance, t->stats[u].momentum));
        }
    control_forget_measured(c);
    if (failed)
        Py_CLEAR(list);
    return list;
}

/* factors() -> [(kin, use, its kind, factor, how often it was measured), ...] */
PyObject *control_factors(PyObject *self, PyObject *unused) {
    const control *c = (const control *)self;
    PyObject *list = PyList_New(0);
    int failed = !list;
    (void)unused;
    for (int32_t i = 0; i < c->count; i++)
        for (int32_t u = 0; !failed && u < c->tensors[i].use_count; u++) {
            int64_t times = 0;
            const double factor = comet_control_factor(c->control, i, u, &times);
            failed = append(list, Py_BuildValue("IisdL", c->tensors[i].kin, (int)u,
                                                comet_use_name(c->tensors[i].uses[u].kind), factor, (long long)times));
        }
    if (failed)
        Py_CLEAR(list);
    return list;
}
