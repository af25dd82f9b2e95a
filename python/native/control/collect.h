/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is seen of tensors, layers and batch norms in one iteration (comet/use_stats.h), for a controller. On a CPU it
 * is added up at once. On a GPU each call leaves a record, which is on its way to page-locked memory when the call
 * returns: collect_fold adds the records up, when the device has come that far.
 */
#ifndef LIBCOMET_COLLECT_H
#define LIBCOMET_COLLECT_H

#include "hold/entry.h"

/* Memory for records, on a device and on the host, kept for the next time. */
typedef struct record_chunk {
    PyObject *device_bytes, *host_bytes;
    unsigned char *device_data, *host_data;
    int32_t device;
    size_t bytes, used;
} record_chunk;

/* A record, and what it will be added to. */
typedef struct seen_record {
    enum { SEEN_TENSOR, SEEN_LAYER_OUTPUT, SEEN_LAYER_INPUT, SEEN_NORM } kind;
    int32_t index;
    const void *host;
    size_t bytes;
} seen_record;

typedef struct collect {
    /* By layer: what backward shows (dY), and what forward shows (x). Two, because each call counts as a batch. */
    comet_stats_layer *outputs, *inputs;
    comet_stats_norm *norms;
    comet_stats_tensor *tensors; /* by tensor of the controller */
    int32_t layer_count, norm_count, tensor_count;
    record_chunk *chunks;
    seen_record *records;
    size_t chunk_count, record_count, record_room;
    PyObject *scratch; /* of the last call on a GPU */
    void *workspace;   /* for calls on a CPU */
    size_t workspace_bytes;
    int acgc;          /* what acgc alone needs is wanted, too */
    uint32_t round;    /* how often collect_begin was called */
    uint64_t calls;    /* of libcomet's see functions */
    uint64_t diverged; /* of these, with something that is not finite */
} collect;

/* Nothing has been seen. */
void collect_begin(collect *c);
void collect_free(collect *c);

/* Room for so many. -1: exception. */
int collect_set_layers(collect *c, int32_t layers, int32_t norms);
int collect_set_tensors(collect *c, int32_t tensors);

/*
 * `x`, `dy`: tensors, or tuples where only the shape is read. `geometry`: kernel, stride, padding, dilation (down,
 * right each), groups. -1: exception.
 */
int collect_see_layer(session *s, int32_t layer, uint32_t what, PyObject *x, PyObject *dy, PyObject *weights,
                      const int32_t *geometry);

/* A batch norm of PyTorch's: x comes back with an error that is one of u. */
int collect_see_norm(session *s, int32_t norm, PyObject *x, PyObject *dy, PyObject *scale, PyObject *shift,
                     PyObject *gamma, PyObject *beta);

/* A fused one (pass/norm.h). `gradient` is behind the ReLU, or, where there is an add before it, the add's. */
int collect_see_fused(session *s, int32_t norm, PyObject *layer, PyObject *gradient);

/* Sees how alike the errors of a controller's tensor are when it is stored, and what the codec said of it when it is
 * read. */
extern const stored_watch collect_watch;

/* Adds up the records. The device has written them. -1: exception. */
int collect_fold(collect *c);

/* All gradients were `scale` times too large. */
void collect_unscale(collect *c, double scale);

#endif
