/* SPDX-License-Identifier: Apache-2.0 */
/* The oneDNN backend's own parts. */
#ifndef COMET_TRAIN_ONEDNN_ONEDNN_H
#define COMET_TRAIN_ONEDNN_ONEDNN_H

#include "train/backend/backend.h"
#include "train/backend/cpu/space.h"
#include "train/backend/onednn/compat.h"

typedef struct comet_backend_onednn {
    comet_backend base; /* first: a comet_backend * is a pointer to this */
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_host_space space;
    unsigned count; /* of threads */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratchpads are ours */
} comet_backend_onednn;

/* To be called before anything that runs on oneDNN's threads, or is sized by their number. */
void comet_onednn_enter(const comet_backend_onednn *backend);

comet_status comet_onednn_status(dnnl_status_t status);

extern const comet_op_kernel comet_onednn_conv, comet_onednn_linear;

size_t comet_onednn_library_bytes(const comet_backend *backend, const comet_graph *g, int batch);
size_t comet_onednn_library_once(unsigned threads);
void comet_onednn_trim(comet_backend *backend);

/* 1: this convolution can be run. */
int comet_onednn_conv_supports(comet_backend *backend, const comet_graph *g, const comet_node *node, int batch,
                               int training);

#endif
