/* SPDX-License-Identifier: Apache-2.0 */
#include "torch/torch_api.h"

/* ---- names, kept for the life of the process ---- */

static struct {
    PyObject *tensor_type;
    PyObject *dtypes[3]; /* in the order of comet_dtype: fp32, fp16, bf16 */
    PyObject *uint8, *int64, *boolean;
    PyObject *empty_strided, *empty_like, *reciprocal, *current_stream, *memory_alloc, *memory_delete, *used_by;
    PyObject *storage_expired, *storage_free, *rescale, *full_nan, *is_grad_enabled, *pinned, *upload, *current_device;
    PyObject *cpu, *cuda; /* a device, and a list of devices */
} torch;

static struct {
    PyObject *data_ptr, *shape, *stride, *dtype, *version, *is_cuda, *is_cpu, *get_device, *detach, *contiguous,
        *as_strided, *untyped_storage, *weak_ref, *mul_, *device, *clone, *max, *item, *grad_fn, *requires_grad,
        *nbytes, *base, *to_float, *is_floating_point, *is_contiguous;
} name;

static int take(PyObject *from, const char *key, PyObject **to) {
    PyObject *value = PyDict_GetItemString(from, key); /* borrowed */
    if (!value) {
        PyErr_Format(PyExc_KeyError, "libcomet: PyTorch's %s was not handed over", key);
        return -1;
    }
    Py_INCREF(value);
    Py_XDECREF(*to);
    *to = value;
    return 0;
}

static int make_names(void) {
    struct {
        PyObject **to;
        const char *text;
    } const all[] = {{&name.data_ptr, "data_ptr"},
                     {&name.shape, "shape"},
                     {&name.stride, "stride"},
                     {&name.dtype, "dtype"},
                     {&name.version, "_version"},
                     {&name.is_cuda, "is_cuda"},
                     {&name.is_cpu, "is_cpu"},
                     {&name.get_device, "get_device"},
                     {&name.detach, "detach"},
                     {&name.contiguous, "contiguous"},
                     {&name.as_strided, "as_strided"},
                     {&name.untyped_storage, "untyped_storage"},
                     {&name.weak_ref, "_weak_ref"},
                     {&name.mul_, "mul_"},
                     {&name.device, "device"},
                     {&name.clone, "clone"},
                     {&name.max, "max"},
                     {&name.item, "item"},
                     {&name.grad_fn, "grad_fn"},
                     {&name.requires_grad, "requires_grad"},
                     {&name.nbytes, "nbytes"},
                     {&name.base, "_base"},
                     {&name.to_float, "float"},
                     {&name.is_floating_point, "is_floating_point"},
                     {&name.is_contiguous, "is_contiguous"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!*all[i].to && !(*all[i].to = PyUnicode_InternFromString(all[i].text)))
            return -1;
    return 0;
}

PyObject *torch_api_set(PyObject *module, PyObject *names) {
    (void)module;
    if (!PyDict_Check(names))
        return PyErr_Format(PyExc_TypeError, "a dict is wanted");
    if (make_names() || take(names, "Tensor", &torch.tensor_type) || take(names, "float32", &torch.dtypes[COMET_F32]) ||
        take(names, "float16", &torch.dtypes[COMET_F16]) || take(names, "bfloat16", &torch.dtypes[COMET_BF16]) ||
        take(names, "uint8", &torch.uint8) || take(names, "int64", &torch.int64) ||
        take(names, "bool", &torch.boolean) || take(names, "empty_strided", &torch.empty_strided) ||
        take(names, "empty_like", &torch.empty_like) || take(names, "reciprocal", &torch.reciprocal) ||
        take(names, "current_stream", &torch.current_stream) || take(names, "memory_alloc", &torch.memory_alloc) ||
        take(names, "memory_delete", &torch.memory_delete) || take(names, "storage_expired", &torch.storage_expired) ||
        take(names, "storage_free", &torch.storage_free) || take(names, "rescale", &torch.rescale) ||
        take(names, "full_nan", &torch.full_nan) || take(names, "is_grad_enabled", &torch.is_grad_enabled) ||
        take(names, "pinned", &torch.pinned) || take(names, "upload", &torch.upload) ||
        take(names, "used_by", &torch.used_by) || take(names, "current_device", &torch.current_device) ||
        take(names, "cpu", &torch.cpu) || take(names, "cuda", &torch.cuda))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- reading a tensor ---- */

static int read_long(PyObject *object, long long *value) { /* takes the reference */
    if (!object)
        return -1;
    *value = PyLong_AsLongLong(object);
    Py_DECREF(object);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* 1: more than VIEW_DIMS. */
static int read_extents(PyObject *tuple, int64_t *extents, int *count) { /* takes the reference */
    if (!tuple)
        return -1;
    Py_ssize_t size = PyTuple_Size(tuple);
    int result = size < 0 ? -1 : size > VIEW_DIMS ? 1 : 0;
    for (Py_ssize_t i = 0; result == 0 && i < size; i++) {
        extents[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (extents[i] == -1 && PyErr_Occurred())
            result = -1;
    }
    *count = (int)size;
    Py_DECREF(tuple);
    return result;
}

static int read_flag(PyObject *tensor, PyObject *flag) {
    PyObject *value = PyObject_GetAttr(tensor, flag);
    if (!value)
        return -1;
    int is_set = value == Py_True;
    Py_DECREF(value);
    return is_set;
}

static int read_device(PyObject *tensor, comet_device *device) {
    long long index = 0;
    int is_cuda = read_flag(tensor, name.is_cuda);
    if (is_cuda < 0)
        return -1;
    if (!is_cuda) {
        int is_cpu = read_flag(tensor, name.is_cpu);
        *device = (comet_device){COMET_CPU, 0};
        return is_cpu < 0 ? -1 : !is_cpu;
    }
    if (read_long(PyObject_CallMethodObjArgs(tensor, name.get_device, NULL), &index))
        return -1;
    *device = (comet_device){COMET_CUDA, (int32_t)index};
    return 0;
}

static int read_dtype(PyObject *tensor, int *dtype, size_t *size) {
    PyObject *value = PyObject_GetAttr(tensor, name.dtype);
    if (!value)
        return -1;
    *dtype = VIEW_OTHER, *size = 0;
    for (int i = 0; i < 3; i++)
        if (value == torch.dtypes[i])
            *dtype = i, *size = i == COMET_F32 ? 4 : 2;
    if (value == torch.boolean)
        *dtype = VIEW_BOOL, *size = 1;
    else if (value == torch.int64)
        *dtype = VIEW_I64, *size = 8;
    else if (value == torch.uint8)
        *dtype = COMET_U8, *size = 1;
    Py_DECREF(value);
    return 0;
}

void *view_data(PyObject *tensor) {
    PyObject *address = PyObject_CallMethodObjArgs(tensor, name.data_ptr, NULL);
    if (!address)
        return NULL;
    void *data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return data;
}

int view_read_any(PyObject *tensor, tensor_view *view) {
    int strides = 0, result;
    size_t size = 0;
    long long version = 0;
    if ((result = read_device(tensor, &view->device)) || (result = read_dtype(tensor, &view->dtype, &size)) ||
        (result = read_extents(PyObject_GetAttr(tensor, name.shape), view->shape, &view->ndim)) ||
        (result = read_extents(PyObject_CallMethodObjArgs(tensor, name.stride, NULL), view->strides, &strides)) ||
        (result = read_long(PyObject_GetAttr(tensor, name.version), &version)))
        return result;
    view->version = (long)version;
    view->count = 1;
    for (int i = 0; i < view->ndim; i++)
        view->count *= view->shape[i];
    view->bytes = (size_t)view->count * size;
    view->data = view_data(tensor);
    return PyErr_Occurred() ? -1 : 0;
}

int view_read(PyObject *tensor, tensor_view *view) {
    return torch_is_plain(tensor) ? view_read_any(tensor, view) : 1;
}

int torch_is_tensor(PyObject *object) {
    return PyObject_IsInstance(object, torch.tensor_type) == 1;
}

int torch_is_plain(PyObject *tensor) {
    return (PyObject *)Py_TYPE(tensor) == torch.tensor_type;
}

/* ---- calls ---- */

PyObject *torch_detach(PyObject *tensor) {
    return PyObject_CallMethodObjArgs(tensor, name.detach, NULL);
}

PyObject *torch_clone(PyObject *tensor) {
    PyObject *contiguous = PyObject_CallMethodObjArgs(tensor, name.contiguous, NULL);
    if (!contiguous || view_data(contiguous) != view_data(tensor))
        return contiguous;
    PyObject *copy = PyObject_CallMethodObjArgs(contiguous, name.clone, NULL); /* it only lay at an odd address */
    Py_DECREF(contiguous);
    return copy;
}

long long torch_version(PyObject *tensor) {
    long long version = -1;
    return read_long(PyObject_GetAttr(tensor, name.version), &version) ? -1 : version;
}

int torch_check_version(PyObject *tensor, long long version) {
    const long long now = torch_version(tensor);
    if (!PyErr_Occurred() && now != version)
        PyErr_Format(PyExc_RuntimeError,
                     "one of the variables needed for gradient computation has been modified by an inplace operation: "
                     "it is at version %lld; expected version %lld instead",
                     now, version);
    return PyErr_Occurred() ? -1 : 0;
}

long long torch_bytes(PyObject *tensor) {
    long long bytes = -1;
    if (read_long(PyObject_GetAttr(tensor, name.nbytes), &bytes)) {
        PyErr_Clear(); /* a sparse tensor, say */
        return -1;
    }
    return bytes;
}

PyObject *torch_keep(PyObject *tensor, long long *version) {
    *version = torch_version(tensor);
    if (PyErr_Occurred())
        return NULL;
    PyObject *maker = PyObject_GetAttr(tensor, name.grad_fn);
    Py_XDECREF(maker);
    if (!maker)
        return NULL;
    if (maker != Py_None)
        return torch_detach(tensor);
    Py_INCREF(tensor);
    return tensor;
}

int torch_is_leaf(PyObject *tensor) {
    PyObject *maker = PyObject_GetAttr(tensor, name.grad_fn);
    Py_XDECREF(maker);
    return maker == Py_None && read_flag(tensor, name.requires_grad) == 0;
}

int torch_is_floating(PyObject *tensor) {
    PyObject *answer = PyObject_CallMethodObjArgs(tensor, name.is_floating_point, NULL);
    Py_XDECREF(answer);
    if (!answer)
        PyErr_Clear();
    return answer == Py_True;
}

int torch_is_dense_f32(PyObject *tensor) {
    PyObject *dtype = PyObject_GetAttr(tensor, name.dtype);
    PyObject *answer = dtype ? PyObject_CallMethodObjArgs(tensor, name.is_contiguous, NULL) : NULL;
    const int is_so = answer == Py_True && dtype == torch.dtypes[COMET_F32] && read_flag(tensor, name.is_cuda) == 1;
    Py_XDECREF(dtype), Py_XDECREF(answer);
    return PyErr_Occurred() ? -1 : is_so;
}

int torch_is_of_parameter(PyObject *tensor) {
    PyObject *base = PyObject_GetAttr(tensor, name.base);
    if (!base) {
        PyErr_Clear();
        return 1;
    }
    int is_parameter = base != Py_None && (PyObject *)Py_TYPE(base) != torch.tensor_type;
    if (base != Py_None && !is_parameter) { /* a leaf that wants a gradient */
        PyObject *maker = PyObject_GetAttr(base, name.grad_fn);
        is_parameter = maker == Py_None && read_flag(base, name.requires_grad) == 1;
        Py_XDECREF(maker);
    }
    Py_DECREF(base);
    return is_parameter;
}

double torch_greatest(PyObject *tensor) {
    PyObject *greatest = PyObject_CallMethodObjArgs(tensor, name.max, NULL);
    PyObject *number = greatest ? PyObject_CallMethodObjArgs(greatest, name.item, NULL) : NULL;
    double value = number ? PyFloat_AsDouble(number) : -1;
    Py_XDECREF(greatest), Py_XDECREF(number);
    return value;
}

static PyObject *extents_tuple(const int64_t *extents, int count) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *value = PyLong_FromLongLong(extents[i]);
        if (!value || PyTuple_SetItem(tuple, i, value)) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

static PyObject *dtype_object(int dtype) { /* borrowed */
    return dtype == VIEW_I64    ? torch.int64
           : dtype == VIEW_BOOL ? torch.boolean
           : dtype == COMET_U8  ? torch.uint8
                                : torch.dtypes[dtype];
}

/* empty_strided(shape, strides, dtype=..., device=...); the dicts are made once for each type and device. */
static PyObject *arguments_for(int dtype, comet_device device) { /* borrowed */
    enum { DEVICES = 17, DTYPES = 6 };
    static PyObject *made[DEVICES][DTYPES];
    const int at = device.kind == COMET_CPU ? 0 : 1 + device.index;
    const int type = dtype == VIEW_I64 ? 4 : dtype == VIEW_BOOL ? 5 : dtype;
    if (at >= DEVICES || device.index < 0) {
        PyErr_SetString(PyExc_RuntimeError, "libcomet: more than 16 GPUs in one process");
        return NULL;
    }
    if (made[at][type])
        return made[at][type];
    PyObject *where = device.kind == COMET_CPU ? torch.cpu : PyList_GetItem(torch.cuda, device.index);
    PyObject *dict = where ? PyDict_New() : NULL;
    if (dict &&
        (PyDict_SetItemString(dict, "dtype", dtype_object(dtype)) || PyDict_SetItemString(dict, "device", where)))
        Py_CLEAR(dict);
    return made[at][type] = dict;
}

static PyObject *empty_strided(const int64_t *shape, const int64_t *strides, int ndim, int dtype, comet_device device) {
    PyObject *arguments = arguments_for(dtype, device), *result = NULL;
    PyObject *both = arguments ? PyTuple_New(2) : NULL;
    if (!both)
        return NULL;
    PyObject *first = extents_tuple(shape, ndim), *second = extents_tuple(strides, ndim);
    if (first && second) {
        PyTuple_SetItem(both, 0, first), PyTuple_SetItem(both, 1, second);
        result = PyObject_Call(torch.empty_strided, both, arguments);
    } else {
        Py_XDECREF(first), Py_XDECREF(second);
    }
    Py_DECREF(both);
    return result;
}

PyObject *torch_same(PyObject *tensor) {
    return PyObject_CallFunctionObjArgs(torch.empty_like, tensor, NULL);
}

PyObject *torch_like(const tensor_view *view) {
    return empty_strided(view->shape, view->strides, view->ndim, view->dtype, view->device);
}

PyObject *torch_empty(const int64_t *shape, int ndim, int dtype, comet_device device) {
    int64_t strides[VIEW_DIMS], stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= shape[i];
    }
    return empty_strided(shape, strides, ndim, dtype, device);
}

PyObject *torch_as_strided(PyObject *tensor, const tensor_view *view) {
    PyObject *shape = extents_tuple(view->shape, view->ndim), *strides = extents_tuple(view->strides, view->ndim);
    PyObject *result =
        shape && strides ? PyObject_CallMethodObjArgs(tensor, name.as_strided, shape, strides, NULL) : NULL;
    Py_XDECREF(shape), Py_XDECREF(strides);
    return result;
}

PyObject *torch_float(PyObject *tensor) {
    return PyObject_CallMethodObjArgs(tensor, name.to_float, NULL);
}

PyObject *torch_reciprocal(PyObject *tensor) {
    return PyObject_CallFunctionObjArgs(torch.reciprocal, tensor, NULL);
}

PyObject *torch_multiply(PyObject *tensor, PyObject *other) {
    return PyObject_CallMethodObjArgs(tensor, name.mul_, other, NULL);
}

PyObject *torch_rescale(PyObject *tensor, PyObject *by_channel, int dtype) {
    return PyObject_CallFunctionObjArgs(torch.rescale, tensor, by_channel, dtype_object(dtype), NULL);
}

PyObject *torch_full_nan(int64_t count, comet_device device) {
    PyObject *where = device.kind == COMET_CPU ? torch.cpu : PyList_GetItem(torch.cuda, device.index);
    return where ? PyObject_CallFunction(torch.full_nan, "LO", (long long)count, where) : NULL;
}

int torch_is_current(comet_device device) {
    if (device.kind == COMET_CPU)
        return 1;
    long long index = -1;
    return read_long(PyObject_CallFunctionObjArgs(torch.current_device, NULL), &index) ? -1 : index == device.index;
}

PyObject *torch_pinned(int64_t bytes) {
    return PyObject_CallFunction(torch.pinned, "L", (long long)bytes);
}

PyObject *torch_upload(const void *data, size_t bytes, comet_device device) {
    PyObject *where = device.kind == COMET_CPU ? torch.cpu : PyList_GetItem(torch.cuda, device.index);
    return where ? PyObject_CallFunction(torch.upload, "y#O", (const char *)data, (Py_ssize_t)bytes, where) : NULL;
}

int torch_grad_is_enabled(void) {
    PyObject *answer = PyObject_CallFunctionObjArgs(torch.is_grad_enabled, NULL);
    Py_XDECREF(answer);
    return answer ? answer == Py_True : -1;
}

int torch_queue(comet_device device, void **queue) {
    *queue = NULL;
    if (device.kind == COMET_CPU)
        return 0;
    PyObject *index = PyLong_FromLong(device.index);
    PyObject *address = index ? PyObject_CallFunctionObjArgs(torch.current_stream, index, NULL) : NULL;
    Py_XDECREF(index);
    if (!address)
        return -1;
    *queue = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- memory ---- */

/*
 * These may run while an exception is set (a tensor is released on the way out), which is put back. Out of memory is
 * not an error here: the caller keeps the tensor as it is.
 */
void *torch_memory_take(void *context, size_t bytes, void *queue) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *address = PyObject_CallFunction(torch.memory_alloc, "nnK", (Py_ssize_t)bytes,
                                              (Py_ssize_t)(intptr_t)context, (unsigned long long)(uintptr_t)queue);
    void *memory = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return memory;
}

void torch_memory_give(void *context, void *memory, size_t bytes, void *queue) {
    (void)context, (void)bytes, (void)queue;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = PyObject_CallFunction(torch.memory_delete, "K", (unsigned long long)(uintptr_t)memory);
    if (!done)
        PyErr_WriteUnraisable(torch.memory_delete);
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
}

void torch_used_by(PyObject *tensor, comet_device device, void *queue) {
    if (device.kind == COMET_CPU)
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done =
        PyObject_CallFunction(torch.used_by, "OiK", tensor, (int)device.index, (unsigned long long)(uintptr_t)queue);
    if (!done)
        PyErr_WriteUnraisable(torch.used_by);
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
}

/* ---- storages ---- */

int64_t torch_storage_watch(PyObject *tensor) {
    long long watch = 0;
    PyObject *storage = PyObject_CallMethodObjArgs(tensor, name.untyped_storage, NULL);
    PyObject *reference = storage ? PyObject_CallMethodObjArgs(storage, name.weak_ref, NULL) : NULL;
    Py_XDECREF(storage);
    if (!reference || read_long(reference, &watch)) {
        PyErr_Clear();
        return 0;
    }
    return watch;
}

static PyObject *storage_call(PyObject *function, int64_t watch) {
    PyObject *number = PyLong_FromLongLong(watch);
    PyObject *result = number ? PyObject_CallFunctionObjArgs(function, number, NULL) : NULL;
    Py_XDECREF(number);
    return result;
}

int torch_storage_is_gone(int64_t watch) {
    PyObject *answer = watch ? storage_call(torch.storage_expired, watch) : NULL;
    if (!answer) {
        PyErr_Clear();
        return 1;
    }
    int gone = answer != Py_False;
    Py_DECREF(answer);
    return gone;
}

void torch_storage_forget(int64_t watch) {
    if (!watch)
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(storage_call(torch.storage_free, watch));
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
}
