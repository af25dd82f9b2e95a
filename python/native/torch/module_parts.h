/* SPDX-License-Identifier: Apache-2.0 */
/* What a module of PyTorch is made of, read from its dict. References are borrowed unless a function says otherwise. */
#ifndef LIBCOMET_MODULE_PARTS_H
#define LIBCOMET_MODULE_PARTS_H

#include "base/native.h"

/* Keys of a module's dict. */
typedef enum module_name {
    MODULE_PLACE, /* where PyTorch has a compiled call of the module, and we have ours */
    MODULE_FORWARD,
    MODULE_TRAINING,
    MODULE_PARAMETERS,
    MODULE_BUFFERS,
    MODULE_HOOKS,
    MODULE_HOOKS_END = MODULE_HOOKS + 4,
    MODULE_WEIGHT = MODULE_HOOKS_END,
    MODULE_BIAS,
    MODULE_RUNNING_MEAN,
    MODULE_RUNNING_VARIANCE,
    MODULE_BATCHES,
    MODULE_MOMENTUM,
    MODULE_EPSILON,
    MODULE_DICT,
    MODULE_NAMES
} module_name;

int module_make_keys(void);
PyObject *module_key(module_name name);

PyObject *module_dict(PyObject *module);                 /* a new reference */
PyObject *module_forward(PyObject *module);              /* a new reference */
PyObject *module_item(PyObject *dict, module_name name); /* NULL: it is not there */

/* Nothing but its forward runs when it is called, and that is the one of its class. */
int module_is_bare(PyObject *dict);

/* A parameter or buffer as it is registered. What is computed whenever it is asked for is none. */
PyObject *module_registered(PyObject *dict, module_name where, module_name name);

/* A batch norm with statistics of the batch: in training, and where the module keeps none. */
int module_uses_batch(PyObject *dict);

typedef struct module_norm {
    PyObject *weight, *bias, *running_mean, *running_variance;
    PyObject *batches; /* NULL: not counted */
    double momentum, epsilon;
} module_norm;

/* 1: a batch norm in training that has all of these, and a momentum. 0: it has not. */
int module_read_norm(PyObject *dict, module_norm *norm);

/* For libcomet.torch: the dicts of hooks that all modules have (ops.py). */
PyObject *module_set_global_hooks(PyObject *module, PyObject *dicts);

#endif
