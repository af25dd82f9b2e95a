/* SPDX-License-Identifier: Apache-2.0 */
#include "torch/module_parts.h"

static PyObject *keys[MODULE_NAMES];

int module_make_keys(void) {
    static const char *const names[MODULE_NAMES] = {[MODULE_PLACE] = "_compiled_call_impl",
                                                    [MODULE_FORWARD] = "forward",
                                                    [MODULE_TRAINING] = "training",
                                                    [MODULE_PARAMETERS] = "_parameters",
                                                    [MODULE_BUFFERS] = "_buffers",
                                                    [MODULE_HOOKS] = "_forward_hooks",
                                                    [MODULE_HOOKS + 1] = "_forward_pre_hooks",
                                                    [MODULE_HOOKS + 2] = "_backward_hooks",
                                                    [MODULE_HOOKS + 3] = "_backward_pre_hooks",
                                                    [MODULE_WEIGHT] = "weight",
                                                    [MODULE_BIAS] = "bias",
                                                    [MODULE_RUNNING_MEAN] = "running_mean",
                                                    [MODULE_RUNNING_VARIANCE] = "running_var",
                                                    [MODULE_BATCHES] = "num_batches_tracked",
                                                    [MODULE_MOMENTUM] = "momentum",
                                                    [MODULE_EPSILON] = "eps",
                                                    [MODULE_DICT] = "__dict__"};
    for (int i = 0; i < MODULE_NAMES; i++)
        if (!keys[i] && !(keys[i] = PyUnicode_InternFromString(names[i])))
            return -1;
    return 0;
}

PyObject *module_key(module_name name) {
    return keys[name];
}

PyObject *module_dict(PyObject *module) {
    return PyObject_GetAttr(module, keys[MODULE_DICT]);
}

PyObject *module_forward(PyObject *module) {
    return PyObject_GetAttr(module, keys[MODULE_FORWARD]);
}

PyObject *module_item(PyObject *dict, module_name name) {
    return PyDict_GetItemWithError(dict, keys[name]);
}

/* ---- hooks ---- */

static PyObject *global_hooks;

PyObject *module_set_global_hooks(PyObject *module, PyObject *dicts) {
    (void)module;
    return object_keep(&global_hooks, dicts);
}

static int has_any(PyObject *dict) {
    return dict && PyDict_Check(dict) && PyDict_Size(dict) > 0;
}

int module_is_bare(PyObject *dict) {
    if (module_item(dict, MODULE_FORWARD))
        return 0;
    for (int name = MODULE_HOOKS; name < MODULE_HOOKS_END; name++)
        if (has_any(module_item(dict, (module_name)name)))
            return 0;
    for (Py_ssize_t i = 0; global_hooks && i < PyTuple_Size(global_hooks); i++)
        if (has_any(PyTuple_GetItem(global_hooks, i)))
            return 0;
    return 1;
}

/* ---- parameters and buffers ---- */

PyObject *module_registered(PyObject *dict, module_name where, module_name name) {
    PyObject *all = module_item(dict, where);
    PyObject *found = all && PyDict_Check(all) ? module_item(all, name) : NULL;
    return found == Py_None ? NULL : found;
}

int module_uses_batch(PyObject *dict) {
    return module_item(dict, MODULE_TRAINING) == Py_True ||
           !module_registered(dict, MODULE_BUFFERS, MODULE_RUNNING_MEAN);
}

static int read_number(PyObject *dict, module_name name, double *to) {
    PyObject *value = module_item(dict, name);
    if (!value || !(PyFloat_Check(value) || PyLong_Check(value)))
        return 0;
    *to = PyFloat_AsDouble(value);
    return 1;
}

int module_read_norm(PyObject *dict, module_norm *norm) {
    norm->weight = module_registered(dict, MODULE_PARAMETERS, MODULE_WEIGHT);
    norm->bias = module_registered(dict, MODULE_PARAMETERS, MODULE_BIAS);
    norm->running_mean = module_registered(dict, MODULE_BUFFERS, MODULE_RUNNING_MEAN);
    norm->running_variance = module_registered(dict, MODULE_BUFFERS, MODULE_RUNNING_VARIANCE);
    norm->batches = module_registered(dict, MODULE_BUFFERS, MODULE_BATCHES);
    return module_item(dict, MODULE_TRAINING) == Py_True && norm->weight && norm->bias && norm->running_mean &&
           norm->running_variance && read_number(dict, MODULE_MOMENTUM, &norm->momentum) &&
           read_number(dict, MODULE_EPSILON, &norm->epsilon);
}
