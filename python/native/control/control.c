/* SPDX-License-Identifier: Apache-2.0 */
#include "control/control.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *control_type;

/* ---- decisions ---- */

/* What a bound is in units of the tensor's rms. */
static double relative(comet_control_bound_value bound, double rms) {
    return bound.kind == COMET_BOUND_RELATIVE ? bound.value : rms > 0 ? bound.value / rms : 0;
}

/* (iteration, kin or -1, name, cause, limit, use, before, after, rms, tightness, loss) */
static void log_event(void *context, const comet_control_event *e) {
    control *c = context;
    const long long kin = e->tensor >= 0 && e->tensor < c->count ? (long long)c->tensors[e->tensor].kin : -1;
    PyObject *event = Py_BuildValue("LLsssiddddd", (long long)e->iteration, kin, e->name, e->text,
                                    comet_control_limit_text(e->limit), (int)e->use, relative(e->before, e->rms),
                                    relative(e->after, e->rms), e->rms, e->tightness, e->loss);
    if (!event || PyList_Append(c->events, event))
        PyErr_Clear(); /* a decision that nobody hears of */
    Py_XDECREF(event);
}

/* ---- life ---- */

static void forget_sites(control *c) {
    for (site *at = c->session->first; at; at = at->next)
        at->tensor = 0;
}

static PyObject *control_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *of, *given;
    const char *method;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!sO!", session_type, &of, &method, &PyDict_Type, &given))
        return NULL;
    const comet_control_methods *methods = comet_control_find(method);
    if (!methods)
        return PyErr_Format(PyExc_ValueError, "control: there is no controller '%s'", method);
    control *c = object_new(type);
    if (!c)
        return NULL;
    Py_INCREF(of);
    c->session = (session *)of;
    c->methods = methods;
    c->iteration = -1;
    c->options = (comet_control_options)COMET_CONTROL_OPTIONS_INIT;
    c->events = PyList_New(0);
    if (!c->events || control_read_options(&c->options, given)) {
        Py_DECREF(c);
        return NULL;
    }
    c->options.log = log_event, c->options.log_context = c;
    return (PyObject *)c;
}

static void control_dealloc(PyObject *self) {
    control *c = (control *)self;
    if (c->session) {
        if (c->session->collect == &c->seen)
            c->session->collect = NULL, c->session->watch = NULL;
        forget_sites(c);
    }
    comet_control_free(c->control);
    collect_free(&c->seen);
    free(c->tensors), free(c->of_kin);
    Py_CLEAR(c->events);
    Py_CLEAR(c->session);
    object_free(self);
}

/* ---- which tensors there are ---- */

/* ((kind, gradient, layer, norm), ...) */
static int read_uses(const control *c, PyObject *uses, control_tensor *t) {
    const Py_ssize_t count = PyTuple_Size(uses);
    if (count < 1 || count > CONTROL_MOST_USES) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "a tensor has 1 to %d uses", (int)CONTROL_MOST_USES);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int kind, gradient, layer, norm;
        if (!PyArg_ParseTuple(PyTuple_GetItem(uses, i), "iiii", &kind, &gradient, &layer, &norm))
            return -1;
        if (kind < 0 || kind >= COMET_USE_KINDS || layer >= c->seen.layer_count || norm >= c->seen.norm_count) {
            PyErr_SetString(PyExc_ValueError, "a use of what is not known");
            return -1;
        }
        t->uses[i] = (control_use){(comet_use_kind)kind, gradient, layer, norm};
    }
    t->use_count = (int32_t)count;
    return 0;
}

static const site *site_of(const control *c, uint32_t kin) {
    const site *at = c->session->first;
    while (at && at->number != kin)
        at = at->next;
    return at;
}

static int read_tensor(const control *c, PyObject *tuple, control_tensor *t) {
    unsigned kin;
    PyObject *uses;
    if (!PyArg_ParseTuple(tuple, "IO!", &kin, &PyTuple_Type, &uses))
        return -1;
    const site *at = site_of(c, kin);
    if (!at) {
        PyErr_Format(PyExc_ValueError, "there is no site %u", kin);
        return -1;
    }
    t->kin = kin;
    t->count = at->key.count;
    return read_uses(c, uses, t);
}

static void keep_observed(control_tensor *to, const control_tensor *from) {
    if (!control_has_uses_of(to, from))
        return;
    to->is_observed = from->is_observed, to->observed = from->observed;
    to->rms = from->rms, to->bytes = from->bytes;
    memcpy(to->stats, from->stats, sizeof to->stats);
}

static control_tensor *read_tensors(const control *c, PyObject *list, int32_t *count) {
    const Py_ssize_t size = PyList_Size(list);
    control_tensor *tensors = size < 0 ? NULL : calloc((size_t)size + 1, sizeof *tensors);
    if (!tensors)
        return size < 0 ? NULL : (control_tensor *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < size; i++) {
        if (read_tensor(c, PyList_GetItem(list, i), &tensors[i])) {
            free(tensors);
            return NULL;
        }
        for (int32_t k = 0; k < c->count; k++)
            if (c->tensors[k].kin == tensors[i].kin)
                keep_observed(&tensors[i], &c->tensors[k]);
    }
    *count = (int32_t)size;
    return tensors;
}

static comet_status new_control(const control *c, const control_tensor *tensors, int32_t count, comet_control **made) {
    const size_t room = (size_t)count + 1;
    comet_control_tensor *list = calloc(room, sizeof *list);
    comet_control_use *uses = calloc(room * CONTROL_MOST_USES, sizeof *uses);
    comet_status status = list && uses ? COMET_OK : COMET_ERROR_MEMORY;
    for (int32_t i = 0; status == COMET_OK && i < count; i++) {
        const control_tensor *t = &tensors[i];
        const site *at = site_of(c, t->kin);
        comet_control_use *own = uses + (size_t)i * CONTROL_MOST_USES;
        const char *name = at && at->name ? PyUnicode_AsUTF8AndSize(at->name, NULL) : NULL;
        PyErr_Clear();
        for (int32_t u = 0; u < t->use_count; u++)
            own[u] = (comet_control_use){t->uses[u].kind, t->uses[u].gradient};
        list[i] = (comet_control_tensor){name ? name : "?", t->count, t->use_count, own};
    }
    if (status == COMET_OK)
        status = comet_control_new(c->methods, &c->options, list, count, made);
    free(list), free(uses);
    return status;
}

/* Which tensor a site belongs to, by kin. */
static int map_sites(control *c) {
    const size_t sites = c->session->site_count;
    if (sites > c->kin_count || !c->of_kin) {
        int32_t *of_kin = realloc(c->of_kin, (sites + 1) * sizeof *of_kin);
        if (!of_kin) {
            PyErr_NoMemory();
            return -1;
        }
        c->of_kin = of_kin, c->kin_count = sites;
    }
    memset(c->of_kin, 0, (c->kin_count + 1) * sizeof *c->of_kin);
    for (int32_t i = 0; i < c->count; i++)
        c->of_kin[c->tensors[i].kin] = i + 1;
    for (site *at = c->session->first; at; at = at->next) {
        at->tensor = c->of_kin[at->kin];
        if (!at->tensor)
            at->set_bound = 0;
    }
    return 0;
}

static int32_t gather_observations(control *c, comet_control_observation *all, int only_new) {
    int32_t count = 0;
    for (int32_t i = 0; i < c->count; i++) {
        const control_tensor *t = &c->tensors[i];
        if (only_new ? t->is_observed == 2 : t->is_observed)
            all[count++] = (comet_control_observation){
                .tensor = i, .size_count = 1, .rms = t->rms, .uses = t->stats, .sizes = &t->bytes};
    }
    return count;
}

static int tell(control *c, int64_t iteration, int only_new) {
    comet_control_observation *all = calloc((size_t)c->count + 1, sizeof *all);
    if (!all) {
        PyErr_NoMemory();
        return -1;
    }
    const int32_t count = gather_observations(c, all, only_new);
    comet_status status = count ? comet_control_observe(c->control, iteration, all, count) : COMET_OK;
    free(all);
    return status == COMET_OK ? count : raise_status(status, "the controller");
}

/* make([(kin, ((kind, gradient, layer, norm), ...)), ...]): what was observed of tensors that stay is told again. */
static PyObject *control_make(PyObject *self, PyObject *list) {
    control *c = (control *)self;
    int32_t count = 0;
    comet_control *made = NULL;
    control_tensor *tensors = read_tensors(c, list, &count);
    if (!tensors)
        return NULL;
    comet_status status = new_control(c, tensors, count, &made);
    if (status != COMET_OK || collect_set_tensors(&c->seen, count)) {
        free(tensors);
        comet_control_free(made);
        if (status != COMET_OK)
            raise_status(status, "a controller");
        return NULL;
    }
    const int is_first = !c->control;
    control_keep_factors(c, tensors, count, made);
    comet_control_free(c->control);
    free(c->tensors);
    c->control = made, c->tensors = tensors, c->count = count;
    if (map_sites(c) || (!is_first && tell(c, c->iteration < 0 ? 0 : c->iteration, 0) < 0))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- an iteration ---- */

static PyObject *control_wants(PyObject *self, PyObject *number) {
    const control *c = (const control *)self;
    const long long iteration = PyLong_AsLongLong(number);
    if (PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(c->control && comet_control_wants(c->control, iteration));
}

static PyObject *control_set_layers(PyObject *self, PyObject *args) {
    control *c = (control *)self;
    int layers, norms;
    if (!PyArg_ParseTuple(args, "ii", &layers, &norms) || collect_set_layers(&c->seen, layers, norms))
        return NULL;
    Py_RETURN_NONE;
}

/* From now on it is looked at what is held, until `end`. */
static PyObject *control_begin(PyObject *self, PyObject *unused) {
    control *c = (control *)self;
    (void)unused;
    c->seen.acgc = c->control && (comet_control_needs(c->control) & COMET_NEEDS_ACGC);
    collect_begin(&c->seen);
    c->session->collect = &c->seen, c->session->watch = &collect_watch;
    Py_RETURN_NONE;
}

static PyObject *control_end(PyObject *self, PyObject *unused) {
    control *c = (control *)self;
    (void)unused;
    if (c->session->collect == &c->seen)
        c->session->collect = NULL, c->session->watch = NULL;
    Py_RETURN_NONE;
}

static int is_number(int32_t number, int32_t count) {
    if (number >= 0 && number < count)
        return 1;
    PyErr_SetString(PyExc_IndexError, "there is no such layer");
    return 0;
}

/* Graphs outlive the iteration in which they were made: what they show then is not looked at. */
static int is_collecting(const control *c) {
    return c->session->collect == &c->seen;
}

static PyObject *control_see_layer(PyObject *self, PyObject *args) {
    control *c = (control *)self;
    int layer;
    unsigned what;
    int32_t g[9];
    PyObject *x, *dy, *weights;
    if (!PyArg_ParseTuple(args, "iIOOO(iiiiiiiii)", &layer, &what, &x, &dy, &weights, &g[0], &g[1], &g[2], &g[3], &g[4],
                          &g[5], &g[6], &g[7], &g[8]) ||
        !is_number(layer, c->seen.layer_count))
        return NULL;
    if (is_collecting(c) && collect_see_layer(c->session, layer, what, x, dy, weights, g))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *control_see_norm(PyObject *self, PyObject *args) {
    control *c = (control *)self;
    int norm;
    PyObject *x, *dy, *scale, *shift, *gamma, *beta;
    if (!PyArg_ParseTuple(args, "iOOOOOO", &norm, &x, &dy, &scale, &shift, &gamma, &beta) ||
        !is_number(norm, c->seen.norm_count))
        return NULL;
    if (is_collecting(c) && collect_see_norm(c->session, norm, x, dy, scale, shift, gamma, beta))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *control_see_fused(PyObject *self, PyObject *args) {
    control *c = (control *)self;
    int norm;
    PyObject *layer, *gradient;
    if (!PyArg_ParseTuple(args, "iO!O", &norm, norm_type, &layer, &gradient) || !is_number(norm, c->seen.norm_count))
        return NULL;
    if (is_collecting(c) && collect_see_fused(c->session, norm, layer, gradient))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- its end ---- */

/* momentum(name of the optimizer's rule, its factor, updates) -> what the mean of |buffer| is multiplied with. */
PyObject *control_momentum(PyObject *module, PyObject *args) {
    const char *rule;
    double factor;
    long long updates;
    (void)module;
    if (!PyArg_ParseTuple(args, "sdL", &rule, &factor, &updates))
        return NULL;
    return PyFloat_FromDouble(strcmp(rule, "adam") == 0 ? comet_momentum_adam(1, factor, updates)
                                                        : comet_momentum_sgd(1, factor, updates));
}

static double number_at(PyObject *tuple, int32_t at) {
    return at >= 0 && at < (int32_t)PyTuple_Size(tuple) ? PyFloat_AsDouble(PyTuple_GetItem(tuple, at)) : 0;
}

static comet_status stats_of(const control *c, int32_t tensor, const control_use *u, double momentum, double squares,
                             comet_use_stats *stats) {
    comet_stats_use use = COMET_STATS_USE_INIT;
    comet_stats_layer before;
    use.kind = u->kind;
    use.tensor = &c->seen.tensors[tensor];
    use.norm = u->norm >= 0 ? &c->seen.norms[u->norm] : NULL;
    use.momentum = momentum;
    use.weight_gradient_squares = squares;
    if (u->layer >= 0 && u->kind == COMET_USE_NORM_INPUT) { /* both halves of what was seen of the layer */
        before = c->seen.inputs[u->layer];
        before.gradient_squares = c->seen.outputs[u->layer].gradient_squares;
        use.layer = &before;
    } else if (u->layer >= 0) {
        use.layer = &c->seen.outputs[u->layer];
    }
    return comet_stats_of_use(&use, stats);
}

/* 1: all of it was seen, and is finite. */
static int observe_tensor(const control *c, int32_t tensor, PyObject *momenta, PyObject *squares,
                          comet_use_stats *stats) {
    const control_tensor *t = &c->tensors[tensor];
    for (int32_t i = 0; i < t->use_count; i++) {
        const control_use *u = &t->uses[i];
        const double momentum = number_at(momenta, u->gradient), dw = number_at(squares, u->gradient);
        if (!(momentum >= 0) || !(dw >= 0) || /* of a parameter that the optimizer does not have, or not finite */
            stats_of(c, tensor, u, momentum, dw, &stats[i]) != COMET_OK)
            return 0;
    }
    return 1;
}

static void take_tensor(control *c, int32_t tensor, PyObject *momenta, PyObject *squares) {
    control_tensor *t = &c->tensors[tensor];
    comet_use_stats stats[CONTROL_MOST_USES];
    t->is_observed = t->is_observed != 0;
    if (!observe_tensor(c, tensor, momenta, squares, stats))
        return;
    control_set_factors(c, tensor, stats);
    memcpy(t->stats, stats, sizeof t->stats);
    t->rms = comet_stats_tensor_rms(&c->seen.tensors[tensor]);
    t->bytes = comet_stats_tensor_size(&c->seen.tensors[tensor], t->count);
    t->is_observed = 2; /* now */
    t->observed++;
}

/*
 * observe(iteration, momenta, squares of gradients, loss scale, measured) -> how many tensors were observed. The first
 * two are by gradient; measured: [(kin, use, variance, batches), ...].
 */
static PyObject *control_observe(PyObject *self, PyObject *args) {
    control *c = (control *)self;
    long long iteration;
    double scale;
    PyObject *momenta, *squares, *measured;
    if (!PyArg_ParseTuple(args, "LO!O!dO!", &iteration, &PyTuple_Type, &momenta, &PyTuple_Type, &squares, &scale,
                          &PyList_Type, &measured))
        return NULL;
    if (!c->control || collect_fold(&c->seen) || control_read_measured(c, measured, scale))
        return PyErr_Occurred() ? NULL : PyLong_FromLong(0);
    if (scale != 1)
        collect_unscale(&c->seen, scale);
    for (int32_t i = 0; i < c->count; i++)
        take_tensor(c, i, momenta, squares);
    if (PyErr_Occurred())
        return NULL;
    c->iteration = iteration;
    const int count = tell(c, iteration, 1);
    return count < 0 ? NULL : PyLong_FromLong(count);
}

/* step(iteration, loss, is it finite) -> 0: go on, 1: skip, 2: stop */
static PyObject *control_step(PyObject *self, PyObject *args) {
    control *c = (control *)self;
    long long iteration;
    double loss;
    int finite;
    if (!PyArg_ParseTuple(args, "Ldp", &iteration, &loss, &finite))
        return NULL;
    return PyLong_FromLong(c->control ? (long)comet_control_step(c->control, iteration, loss, finite) : 0);
}

/* Bounds for the next step. On a batch norm's grid values have a deviation of 1. */
static PyObject *control_apply(PyObject *self, PyObject *unused) {
    control *c = (control *)self;
    (void)unused;
    if (!c->control)
        Py_RETURN_NONE;
    if (c->kin_count != c->session->site_count && map_sites(c))
        return NULL;
    for (site *at = c->session->first; at; at = at->next)
        if (at->tensor && at->saves != at->seen_saves) {
            at->seen_saves = at->saves;
            comet_control_see_rms(c->control, at->tensor - 1, at->key.role == ROLE_NORM ? 1.0 : at->rms);
        }
    for (site *at = c->session->first; at; at = at->next) {
        if (!at->tensor)
            continue;
        const comet_control_bound_value bound = comet_control_bound(c->control, at->tensor - 1);
        const double set = relative(bound, at->key.role == ROLE_NORM ? 1.0 : at->rms);
        if (set > 0)
            at->set_bound = set;
    }
    Py_RETURN_NONE;
}

/* ---- what it knows ---- */

static PyObject *describe_use(const control_use *u, const comet_use_stats *s) {
    return Py_BuildValue("{s:s,s:i,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d,s:d}", "kind", comet_use_name(u->kind),
                         "gradient", (int)u->gradient, "derivative_squares", s->derivative_squares, "gradient_squares",
                         s->gradient_squares, "gradient_mean", s->gradient_mean, "positions", s->positions,
                         "error_gain", s->error_gain, "input_squares", s->input_squares, "momentum", s->momentum,
                         "acgc", s->acgc, "correction", s->correction, "sensitivity",
                         comet_error_sensitivity(u->kind, s));
}

static PyObject *describe_tensor(const control *c, int32_t tensor) {
    const control_tensor *t = &c->tensors[tensor];
    const site *at = site_of(c, t->kin);
    PyObject *uses = PyList_New(0), *result = NULL;
    for (int32_t i = 0; uses && i < t->use_count; i++) {
        PyObject *one = describe_use(&t->uses[i], &t->stats[i]);
        if (!one || PyList_Append(uses, one))
            Py_CLEAR(uses);
        Py_XDECREF(one);
    }
    const comet_control_bound_value bound = comet_control_bound(c->control, tensor);
    const double unit = at && at->key.role == ROLE_NORM ? 1.0 : at ? at->rms : 0;
    if (uses)
        result = Py_BuildValue("{s:I,s:O,s:d,s:d,s:d,s:K,s:O}", "kin", t->kin, "site",
                               at && at->name ? at->name : Py_None, "bound", relative(bound, unit), "absolute",
                               bound.kind == COMET_BOUND_ABSOLUTE ? bound.value : bound.value * unit, "rms", unit,
                               "observed", (unsigned long long)t->observed, "uses", uses);
    Py_XDECREF(uses);
    return result;
}

static PyObject *control_tensors(PyObject *self, PyObject *unused) {
    const control *c = (const control *)self;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (int32_t i = 0; list && i < c->count; i++) {
        PyObject *one = describe_tensor(c, i);
        if (!one || PyList_Append(list, one))
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

/* The decisions since the last call. */
static PyObject *control_take_events(PyObject *self, PyObject *unused) {
    control *c = (control *)self;
    (void)unused;
    PyObject *empty = PyList_New(0), *events = c->events;
    if (!empty)
        return NULL;
    c->events = empty;
    return events;
}

static PyObject *control_save(PyObject *self, PyObject *unused) {
    const control *c = (const control *)self;
    (void)unused;
    if (!c->control)
        Py_RETURN_NONE;
    const size_t bytes = comet_control_state_bytes(c->control);
    PyObject *state = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    comet_status status = state ? comet_control_save(c->control, PyBytes_AsString(state), bytes) : COMET_OK;
    if (status != COMET_OK) {
        raise_status(status, "the controller's state");
        Py_CLEAR(state);
    }
    return state;
}

static PyObject *control_load(PyObject *self, PyObject *state) {
    control *c = (control *)self;
    char *data;
    Py_ssize_t bytes;
    if (PyBytes_AsStringAndSize(state, &data, &bytes))
        return NULL;
    comet_status status = c->control ? comet_control_load(c->control, data, (size_t)bytes) : COMET_ERROR_MISMATCH;
    if (status != COMET_OK) {
        raise_status(status, "the controller's state");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *control_calls(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((control *)self)->seen.calls);
}

static PyObject *control_diverged(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((control *)self)->seen.diverged);
}

static PyObject *control_needs(PyObject *self, void *unused) {
    const control *c = (const control *)self;
    (void)unused;
    return PyLong_FromUnsignedLong(c->control ? comet_control_needs(c->control) : 0);
}

static PyGetSetDef control_attributes[] = {
    {"calls", control_calls, NULL, "how often something was looked at for statistics", NULL},
    {"diverged", control_diverged, NULL, "how often something was not finite, in this iteration", NULL},
    {"needs", control_needs, NULL, "COMET_NEEDS_... of the controller; 0: it is not made yet", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef control_methods[] = {
    {"set_layers", control_set_layers, METH_VARARGS, "set_layers(layers, norms): so many are known"},
    {"make", control_make, METH_O, "make([(kin, ((kind, gradient, layer, norm), ...)), ...])"},
    {"wants", control_wants, METH_O, "wants(iteration) -> bool"},
    {"begin", control_begin, METH_NOARGS, "begin(): statistics are collected from now on"},
    {"end", control_end, METH_NOARGS, "end(): no more"},
    {"see_layer", control_see_layer, METH_VARARGS, "see_layer(layer, what, x, dy, weights, geometry)"},
    {"see_norm", control_see_norm, METH_VARARGS, "see_norm(norm, x, dy, scale, shift, gamma, beta)"},
    {"see_fused", control_see_fused, METH_VARARGS, "see_fused(norm, Norm, gradient)"},
    {"observe", control_observe, METH_VARARGS,
     "observe(iteration, momenta, squares, scale, measured) -> tensors observed"},
    {"take_measured", control_take_measured, METH_NOARGS, "take_measured() -> what observe saw of errors"},
    {"factors", control_factors, METH_NOARGS, "factors() -> of all uses, and how often they were measured"},
    {"step", control_step, METH_VARARGS, "step(iteration, loss, finite) -> action"},
    {"apply", control_apply, METH_NOARGS, "apply(): the bounds of the next step"},
    {"tensors", control_tensors, METH_NOARGS, "tensors() -> list of dicts"},
    {"take_events", control_take_events, METH_NOARGS, "take_events() -> decisions since the last call"},
    {"save", control_save, METH_NOARGS, "save() -> bytes, or None"},
    {"load", control_load, METH_O, "load(bytes)"},
    {NULL, NULL, 0, NULL}};

int control_make_type(PyObject *module) {
    static PyType_Slot slots[] = {{Py_tp_new, control_new},
                                  {Py_tp_dealloc, control_dealloc},
                                  {Py_tp_methods, control_methods},
                                  {Py_tp_getset, control_attributes},
                                  {Py_tp_doc, (void *)"Sets the bounds of a session's sites."},
                                  {0, NULL}};
    static PyType_Spec spec = {"libcomet._native.Control", sizeof(control), 0, Py_TPFLAGS_DEFAULT, slots};
    control_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return control_type ? PyModule_AddObjectRef(module, "Control", (PyObject *)control_type) : -1;
}
