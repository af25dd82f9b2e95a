/* SPDX-License-Identifier: Apache-2.0 */
/* What is called of PyTorch, and views of its tensors. */
#ifndef LIBCOMET_TORCH_API_H
#define LIBCOMET_TORCH_API_H

#include "base/native.h"

enum { VIEW_DIMS = 6 };

/* Types that a comet_tensor does not have. */
enum { VIEW_I64 = 100, VIEW_BOOL = 101, VIEW_OTHER = 102 };

/* A tensor of PyTorch as it is read once. */
typedef struct tensor_view {
    void *data;
    comet_device device;
    int dtype; /* comet_dtype, or VIEW_... */
    int ndim;
    int64_t shape[VIEW_DIMS], strides[VIEW_DIMS];
    int64_t count;
    size_t bytes; /* count times the size of a value */
    long version; /* PyTorch's, which changes when a tensor is written to in place */
} tensor_view;

/* How the values of a tensor lie in memory, as codecs see them. */
typedef enum map_order {
    ORDER_CHANNELS_SECOND, /* N C H W, N C L: what convolutions and batch norms read */
    ORDER_CHANNELS_LAST    /* B T C and B C: what linear layers read; N C H W stays what it is */
} map_order;

/* Called by libcomet.torch with a dict of PyTorch's functions and types. */
PyObject *torch_api_set(PyObject *module, PyObject *names);

/* 0: read. 1: not a tensor that can be held (a subclass, a device of another kind, more dimensions). -1: exception. */
int view_read(PyObject *tensor, tensor_view *view);

/* The same of a parameter, or any other subclass. */
int view_read_any(PyObject *tensor, tensor_view *view);

int torch_is_tensor(PyObject *object);
int torch_is_plain(PyObject *tensor); /* neither a parameter nor of any other subclass */

/* The same type, shape and strides. */
int view_is_alike(const tensor_view *a, const tensor_view *b);

/* The tensor's pointer; NULL with or without an exception if it has none. */
void *view_data(PyObject *tensor);

/*
 * The same memory as a contiguous comet_tensor, its dimensions in the order of memory. 0 if the values do not lie side
 * by side, each once.
 */
int view_in_memory_order(const tensor_view *view, map_order order, comet_tensor *tensor);

/* New references, or NULL with an exception. */
PyObject *torch_detach(PyObject *tensor);
PyObject *torch_clone(PyObject *tensor);       /* contiguous */
PyObject *torch_like(const tensor_view *view); /* empty, same shape and strides */
PyObject *torch_same(PyObject *tensor);        /* the same of a tensor without gaps: takes half the time */
PyObject *torch_empty(const int64_t *shape, int ndim, int dtype, comet_device device);
PyObject *torch_as_strided(PyObject *tensor, const tensor_view *view);
PyObject *torch_float(PyObject *tensor); /* fp32: itself, or a copy */
PyObject *torch_reciprocal(PyObject *tensor);
PyObject *torch_multiply(PyObject *tensor, PyObject *other);                /* in place */
PyObject *torch_rescale(PyObject *tensor, PyObject *by_channel, int dtype); /* in place, then of another type */
PyObject *torch_full_nan(int64_t count, comet_device device);
int torch_is_current(comet_device device);                                   /* 1, 0, or -1 and an exception */
PyObject *torch_pinned(int64_t bytes);                                       /* page-locked, of the host */
PyObject *torch_upload(const void *data, size_t bytes, comet_device device); /* in the order of the current queue */

/* Made by nobody: neither by an operation that autograd follows nor with requires_grad. */
int torch_is_leaf(PyObject *tensor);
int torch_is_floating(PyObject *tensor);
int torch_is_of_parameter(PyObject *tensor); /* a view of one */
int torch_is_dense_f32(PyObject *tensor);    /* contiguous, fp32, on a GPU: 1, 0, or -1 and an exception */
double torch_greatest(PyObject *tensor);     /* waits; for tensors of a CPU */
long long torch_version(PyObject *tensor);
/* -1 and PyTorch's own exception: it was written to in place since then. */
int torch_check_version(PyObject *tensor, long long version);
long long torch_bytes(PyObject *tensor); /* of its values; -1: not known */

/* What to keep of a tensor that stays as it is: not its graph, which would hold itself. And its version. */
PyObject *torch_keep(PyObject *tensor, long long *version);

/* 1, 0, or -1 and an exception. */
int torch_grad_is_enabled(void);

/* The queue that is current on a device; NULL on a CPU. -1 and an exception if that fails. */
int torch_queue(comet_device device, void **queue);

/* The tensor may be let go of: its memory stays until the queue is done with what it was given so far. */
void torch_used_by(PyObject *tensor, comet_device device, void *queue);

/* PyTorch's own memory of a GPU, as comet_device_memory wants it. `context` is the device's index. */
void *torch_memory_take(void *context, size_t bytes, void *queue);
void torch_memory_give(void *context, void *memory, size_t bytes, void *queue);

/* A weak reference to a tensor's storage (0: none); whether the storage is gone; end of the reference. */
int64_t torch_storage_watch(PyObject *tensor);
int torch_storage_is_gone(int64_t watch);
void torch_storage_forget(int64_t watch);

#endif
