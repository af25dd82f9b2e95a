/* SPDX-License-Identifier: Apache-2.0 */
/* What a product is for the stand-in for cuBLASLt: descriptors that were read, and a job for the stream. */
#ifndef COMET_EMULATION_CUBLASLT_MODEL_H
#define COMET_EMULATION_CUBLASLT_MODEL_H

#include "cublasLt.h"

struct cublaslt_operation {
    cublasComputeType_t compute;
    int32_t turn_a, turn_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
};

struct cublaslt_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t leading;
};

struct cublaslt_preference {
    uint64_t workspace;
    uint32_t alignment[4]; // of A, B, C, D
};

// Matrices are column by column.
struct cublaslt_matrix {
    cublaslt_layout layout;
    void *memory;
};

struct cublaslt_job {
    cublaslt_operation operation;
    cublaslt_matrix a, b, c, d;
    float alpha, beta;
    void *workspace;
    size_t workspace_bytes;
};

size_t cublaslt_bytes(const cublaslt_layout &layout); // from the first value to behind the last

// On the stream, also as often as a graph that captured it is launched.
cudaError_t cublaslt_issue(const cublaslt_job &job, cudaStream_t stream);

#endif
