/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products through cuBLASLt: the library and a handle, and products that were made ready once and are then
 * issued in every step. Matrices are as cuBLAS has them: column by column.
 */
#ifndef COMET_TRAIN_CUDA_CUBLASLT_H
#define COMET_TRAIN_CUDA_CUBLASLT_H

#include "train/backend/cuda/base/backend_cuda.h"

/*
 * For the current device, with the backend's options and allocator, which must outlive it. COMET_ERROR_UNSUPPORTED:
 * cuBLASLt is missing or too old, the message says which.
 */
comet_status comet_cublaslt_new(const comet_backend_cuda *backend, comet_cublaslt **lt, comet_message *message);

/* NULL is allowed. The queue has no more work of it. */
void comet_cublaslt_free(comet_cublaslt *lt);

/* D = A B + beta D, A being rows x inner and B inner x columns once they are transposed, if they are. */
typedef struct comet_product_shape {
    int64_t rows, columns, inner;
    int transpose_a, transpose_b;
    comet_dtype output; /* of D: the activations' type, as A and B, or fp32 */
    int bias;           /* 1: beta is 0, and a vector of D's type is added to each column */
} comet_product_shape;

typedef struct comet_product comet_product;

/* The algorithm is the first of cuBLASLt's heuristics. COMET_ERROR_UNSUPPORTED: it has none. */
comet_status comet_product_new(comet_cublaslt *lt, const comet_product_shape *shape, comet_product **product);
void comet_product_free(comet_product *product); /* NULL is allowed */

size_t comet_product_workspace(const comet_product *product); /* bytes */

/* Aligned to 16 bytes, all of them. Columns lie one behind the other, without gaps. */
typedef struct comet_product_call {
    const void *a, *b, *bias;
    void *d, *workspace;
    float beta;
} comet_product_call;

/* Issues it to the backend's queue. */
comet_status comet_product_run(comet_product *product, const comet_product_call *call);

#endif
