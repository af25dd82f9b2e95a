/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of cuBLASLt's enumerations that the stand-in knows: X(name, number). tests/emulation/numbers compares
 * them with cuBLASLt's own header where there is one.
 */
#ifndef COMET_EMULATION_CUBLASLT_NUMBERS_H
#define COMET_EMULATION_CUBLASLT_NUMBERS_H

#define NUMBERS_OF_cublasStatus_t(X)                                                                                   \
    X(CUBLAS_STATUS_SUCCESS, 0)                                                                                        \
    X(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                                                \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                                                   \
    X(CUBLAS_STATUS_INVALID_VALUE, 7)                                                                                  \
    X(CUBLAS_STATUS_ARCH_MISMATCH, 8)                                                                                  \
    X(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                                              \
    X(CUBLAS_STATUS_INTERNAL_ERROR, 14)                                                                                \
    X(CUBLAS_STATUS_NOT_SUPPORTED, 15)

#define NUMBERS_OF_cudaDataType_t(X)                                                                                   \
    X(CUDA_R_32F, 0)                                                                                                   \
    X(CUDA_R_16F, 2)                                                                                                   \
    X(CUDA_R_16BF, 14)

#define NUMBERS_OF_cublasComputeType_t(X)                                                                              \
    X(CUBLAS_COMPUTE_32F, 68)                                                                                          \
    X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)

#define NUMBERS_OF_cublasOperation_t(X)                                                                                \
    X(CUBLAS_OP_N, 0)                                                                                                  \
    X(CUBLAS_OP_T, 1)

#define NUMBERS_OF_cublasLtEpilogue_t(X)                                                                               \
    X(CUBLASLT_EPILOGUE_DEFAULT, 1)                                                                                    \
    X(CUBLASLT_EPILOGUE_BIAS, 4)

#define NUMBERS_OF_cublasLtMatmulDescAttributes_t(X)                                                                   \
    X(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 0)                                                                            \
    X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                                                  \
    X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                                                  \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                                                \
    X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)

#define NUMBERS_OF_cublasLtMatmulPreferenceAttributes_t(X)                                                             \
    X(CUBLASLT_MATMUL_PREF_SEARCH_MODE, 0)                                                                             \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                                                     \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                                                   \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                                                   \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                                                   \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

#define CUBLASLT_ENUMERATIONS(X)                                                                                       \
    X(cublasStatus_t)                                                                                                  \
    X(cudaDataType_t)                                                                                                  \
    X(cublasComputeType_t)                                                                                             \
    X(cublasOperation_t)                                                                                               \
    X(cublasLtEpilogue_t)                                                                                              \
    X(cublasLtMatmulDescAttributes_t)                                                                                  \
    X(cublasLtMatmulPreferenceAttributes_t)

#endif
