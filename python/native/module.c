/* SPDX-License-Identifier: Apache-2.0 */
#include "base/native.h"
#include "control/control.h"
#include "hold/held.h"
#include "pass/norm.h"
#include "pass/operation.h"
#include "torch/module_parts.h"
#include "torch/torch_api.h"

/* "" if GPU `device` can be used, else why not. */
static PyObject *gpu_obstacle(PyObject *module, PyObject *device) {
    (void)module;
    const long index = PyLong_AsLong(device);
    if (index == -1 && PyErr_Occurred())
        return NULL;
    const comet_status status = comet_cuda_check((int32_t)index);
    const char *why = comet_last_error();
    return PyUnicode_FromString(status == COMET_OK ? "" : *why ? why : comet_status_string(status));
}

static PyMethodDef functions[] = {
    {"set_torch", torch_api_set, METH_O, "set_torch(dict): what is called of PyTorch"},
    {"set_known", operation_set_known, METH_O, "set_known(dict): function -> (operation, weight, window)"},
    {"set_global_hooks", module_set_global_hooks, METH_O, "set_global_hooks(tuple of dicts)"},
    {"set_norm_function", norm_set_function, METH_O, "set_norm_function(apply): how autograd gets to follow a norm"},
    {"set_token", held_set_token, METH_O, "set_token(tensor): stands for a batch norm among saved tensors"},
    {"momentum", control_momentum, METH_VARARGS, "momentum('sgd' or 'adam', factor, updates) -> factor"},
    {"gpu_obstacle", gpu_obstacle, METH_O, "gpu_obstacle(index) -> why that GPU cannot be used, or ''"},
    {NULL, NULL, 0, NULL}};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC PyInit__native(void) {
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                     "libcomet._native",
                                     "libcomet for PyTorch: what runs for every saved tensor.",
                                     -1,
                                     functions,
                                     NULL,
                                     NULL,
                                     NULL,
                                     NULL};
    PyObject *module = PyModule_Create(&definition);
    if (module && (session_make_type(module) || frame_make_type(module) || held_make_types(module) ||
                   norm_make_type(module) || operation_make_type(module) || control_make_type(module) ||
                   PyModule_AddStringConstant(module, "version", comet_version_string())))
        Py_CLEAR(module);
    return module;
}
