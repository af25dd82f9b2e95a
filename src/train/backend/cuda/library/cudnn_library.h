/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN 9, opened at run time. */
#ifndef COMET_TRAIN_CUDA_CUDNN_LIBRARY_H
#define COMET_TRAIN_CUDA_CUDNN_LIBRARY_H

#include <cudnn_graph.h>

#include "train/backend/cuda/library/library.h"

/* What is called of it: cudnn_graph.h says how. */
typedef struct comet_cudnn_functions {
    size_t (*version)(void);
    const char *(*error_string)(cudnnStatus_t status);
    void (*last_error)(char *text, size_t room);
    cudnnStatus_t (*create)(cudnnHandle_t *handle);
    cudnnStatus_t (*destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
    cudnnStatus_t (*make)(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor);
    cudnnStatus_t (*unmake)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values);
    cudnnStatus_t (*get)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *values);
    cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack);
} comet_cudnn_functions;

typedef struct comet_cudnn_library {
    comet_library library;
    comet_cudnn_functions call;
    size_t version; /* 91900: 9.19.0 */
} comet_cudnn_library;

/* COMET_ERROR_UNSUPPORTED: missing or older than 9.0; the message says which. It is closed then. */
comet_status comet_cudnn_library_open(const comet_library_loader *loader, comet_cudnn_library *library,
                                      comet_message *message);
void comet_cudnn_library_close(comet_cudnn_library *library);

#endif
