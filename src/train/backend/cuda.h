/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend on a GPU (docs/cuda-trainer.md): cuDNN for convolutions, cuBLASLt for matrix products, our own kernels
 * for the rest, libcomet's for norms and streams. The two libraries are opened when a backend is made.
 */
#ifndef COMET_TRAIN_BACKEND_CUDA_H
#define COMET_TRAIN_BACKEND_CUDA_H

#include "base/message.h"
#include "train/backend/backend.h"

/* Opens shared libraries; tests have one of their own. */
typedef struct comet_library_loader {
    void *(*open)(const char *name); /* NULL: it is not there */
    void *(*symbol)(void *library, const char *name);
    void (*close)(void *library);
} comet_library_loader;

/* The most that one convolution or product may take unless told otherwise. */
#define COMET_CUDA_WORKSPACE ((size_t)256 << 20)

typedef struct comet_backend_cuda_options {
    int32_t device;
    comet_dtype dtype;                  /* of activations: COMET_F32 (products in TF32), COMET_BF16, COMET_F16 */
    int exact_products;                 /* fp32 alone: no TF32 */
    int deterministic;                  /* only plans whose results are the same in every run */
    int unrecorded;                     /* steps are issued anew each time */
    size_t workspace_bytes;             /* the most that one convolution or product may take; 0: COMET_CUDA_WORKSPACE */
    unsigned threads;                   /* of the host; 0: one per core */
    const comet_library_loader *loader; /* NULL: the system's */
} comet_backend_cuda_options;

/*
 * COMET_ERROR_NO_DEVICE, COMET_ERROR_DRIVER: as comet_cuda_check. COMET_ERROR_UNSUPPORTED: a library is missing or too
 * old. The message says what.
 */
comet_status comet_backend_cuda_new(const comet_backend_cuda_options *options, const comet_allocator *allocator,
                                    comet_backend **backend, comet_message *message);

/* What the driver says of a GPU's memory, in bytes. The first question makes the process's context there. */
comet_status comet_backend_cuda_memory(int32_t device, size_t *free_bytes, size_t *total_bytes);

#endif
