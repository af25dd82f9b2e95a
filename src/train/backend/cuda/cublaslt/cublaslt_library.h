/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt 12 or 13, opened at run time. */
#ifndef COMET_TRAIN_CUDA_CUBLASLT_LIBRARY_H
#define COMET_TRAIN_CUDA_CUBLASLT_LIBRARY_H

#include <cublasLt.h>

#include "train/backend/cuda/library/library.h"

/* What is called of it: cublasLt.h says how. */
typedef struct comet_cublaslt_functions {
    size_t (*version)(void);
    const char *(*status_string)(cublasStatus_t status);
    cublasStatus_t (*create)(cublasLtHandle_t *handle);
    cublasStatus_t (*destroy)(cublasLtHandle_t handle);
    cublasStatus_t (*matmul)(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,
                             cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                             const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                             cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                             size_t workspace_bytes, cudaStream_t queue);
    cublasStatus_t (*heuristic)(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                cublasLtMatrixLayout_t a_layout, cublasLtMatrixLayout_t b_layout,
                                cublasLtMatrixLayout_t c_layout, cublasLtMatrixLayout_t d_layout,
                                cublasLtMatmulPreference_t preference, int wanted,
                                cublasLtMatmulHeuristicResult_t *results, int *count);
    cublasStatus_t (*operation_make)(cublasLtMatmulDesc_t *operation, cublasComputeType_t compute,
                                     cudaDataType_t scale);
    cublasStatus_t (*operation_free)(cublasLtMatmulDesc_t operation);
    cublasStatus_t (*operation_set)(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name,
                                    const void *value, size_t bytes);
    cublasStatus_t (*layout_make)(cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows, uint64_t columns,
                                  int64_t leading);
    cublasStatus_t (*layout_free)(cublasLtMatrixLayout_t layout);
    cublasStatus_t (*preference_make)(cublasLtMatmulPreference_t *preference);
    cublasStatus_t (*preference_free)(cublasLtMatmulPreference_t preference);
    cublasStatus_t (*preference_set)(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
                                     const void *value, size_t bytes);
} comet_cublaslt_functions;

typedef struct comet_cublaslt_library {
    comet_library library;
    comet_cublaslt_functions call;
} comet_cublaslt_library;

/* COMET_ERROR_UNSUPPORTED: missing or older than 12.0; the message says which. It is closed then. */
comet_status comet_cublaslt_library_open(const comet_library_loader *loader, comet_cublaslt_library *library,
                                         comet_message *message);
void comet_cublaslt_library_close(comet_cublaslt_library *library);

#endif
