/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/cublaslt/cublaslt.h"

#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/backend/cuda/cublaslt/cublaslt_library.h"

enum { ALIGNMENT = 16 };                               /* of all matrices: what vector loads need */
static const size_t most_workspace = (size_t)32 << 20; /* more does not make it faster */

struct comet_cublaslt {
    const comet_backend_cuda *backend;
    comet_cublaslt_library library;
    cublasLtHandle_t handle;
};

struct comet_product {
    comet_cublaslt *lt;
    int has_bias;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    const void *bias; /* that the operation has */
};

/* ---- statuses and types ---- */

static comet_status status_of(const comet_cublaslt *lt, cublasStatus_t status) {
    const comet_status found = status == CUBLAS_STATUS_ALLOC_FAILED    ? COMET_ERROR_MEMORY
                               : status == CUBLAS_STATUS_NOT_SUPPORTED ? COMET_ERROR_UNSUPPORTED
                               : status == CUBLAS_STATUS_ARCH_MISMATCH ? COMET_ERROR_UNSUPPORTED
                               : status == CUBLAS_STATUS_INVALID_VALUE ? COMET_ERROR_ARGUMENT
                                                                       : COMET_ERROR_DEVICE;
    if (status == CUBLAS_STATUS_SUCCESS)
        return COMET_OK;
    return comet_fail(found, "cuBLASLt says: %s", lt->library.call.status_string(status));
}

static cudaDataType_t type_of(comet_dtype dtype) {
    return dtype == COMET_F32 ? CUDA_R_32F : dtype == COMET_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* ---- the library ---- */

void comet_cublaslt_free(comet_cublaslt *lt) {
    if (!lt)
        return;
    if (lt->handle)
        (void)lt->library.call.destroy(lt->handle);
    comet_cublaslt_library_close(&lt->library);
    comet_memory_give(lt->backend->allocator, lt, sizeof *lt);
}

comet_status comet_cublaslt_new(const comet_backend_cuda *backend, comet_cublaslt **result, comet_message *message) {
    comet_cublaslt *lt = comet_memory_take(backend->allocator, sizeof *lt);
    if (!lt)
        return comet_message_memory(message);
    memset(lt, 0, sizeof *lt);
    lt->backend = backend;
    comet_status status = comet_cublaslt_library_open(backend->options.loader, &lt->library, message);
    if (status == COMET_OK) {
        status = status_of(lt, lt->library.call.create(&lt->handle));
        if (status != COMET_OK)
            comet_message_set(message, status, "%s", comet_last_error());
    }
    if (status != COMET_OK) {
        comet_cublaslt_free(lt);
        return status;
    }
    *result = lt;
    return COMET_OK;
}

/* ---- products ---- */

void comet_product_free(comet_product *p) {
    if (!p)
        return;
    const comet_cublaslt_functions *call = &p->lt->library.call;
    cublasLtMatrixLayout_t const layouts[] = {p->a, p->b, p->d};
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            (void)call->layout_free(layouts[i]);
    if (p->operation)
        (void)call->operation_free(p->operation);
    comet_memory_give(p->lt->backend->allocator, p, sizeof *p);
}

static comet_status set(comet_product *p, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes) {
    return status_of(p->lt, p->lt->library.call.operation_set(p->operation, name, value, bytes));
}

static comet_status make_operation(comet_product *p, const comet_product_shape *s) {
    const comet_backend_cuda *b = p->lt->backend;
    const cublasComputeType_t compute =
        b->base.dtype == COMET_F32 && !b->options.exact_products ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const int32_t turn_a = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t turn_b = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = s->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    COMET_TRY(status_of(p->lt, p->lt->library.call.operation_make(&p->operation, compute, CUDA_R_32F)));
    COMET_TRY(set(p, CUBLASLT_MATMUL_DESC_TRANSA, &turn_a, sizeof turn_a));
    COMET_TRY(set(p, CUBLASLT_MATMUL_DESC_TRANSB, &turn_b, sizeof turn_b));
    return set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
}

/* A place of any device: the heuristics look at its alignment alone. */
static comet_status set_bias(comet_product *p, const void *bias) {
    if (!p->has_bias || p->bias == bias)
        return COMET_OK;
    COMET_TRY(set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    p->bias = bias;
    return COMET_OK;
}

static comet_status make_layout(comet_product *p, comet_dtype dtype, int64_t rows, int64_t columns,
                                cublasLtMatrixLayout_t *layout) {
    return status_of(p->lt,
                     p->lt->library.call.layout_make(layout, type_of(dtype), (uint64_t)rows, (uint64_t)columns, rows));
}

static comet_status make_layouts(comet_product *p, const comet_product_shape *s) {
    const comet_dtype dtype = p->lt->backend->base.dtype;
    const int64_t m = s->rows, n = s->columns, k = s->inner;
    COMET_TRY(make_layout(p, dtype, s->transpose_a ? k : m, s->transpose_a ? m : k, &p->a));
    COMET_TRY(make_layout(p, dtype, s->transpose_b ? n : k, s->transpose_b ? k : n, &p->b));
    return make_layout(p, s->output, m, n, &p->d);
}

static comet_status make_preference(const comet_cublaslt *lt, cublasLtMatmulPreference_t *preference) {
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const comet_cublaslt_functions *call = &lt->library.call;
    const size_t asked = lt->backend->options.workspace_bytes;
    const uint64_t workspace = asked < most_workspace ? asked : most_workspace;
    const uint32_t alignment = ALIGNMENT;
    COMET_TRY(status_of(lt, call->preference_make(preference)));
    COMET_TRY(status_of(
        lt, call->preference_set(*preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace)));
    for (int i = 0; i < 4; i++)
        COMET_TRY(status_of(lt, call->preference_set(*preference, aligned[i], &alignment, sizeof alignment)));
    return COMET_OK;
}

static comet_status ask(comet_product *p, cublasLtMatmulPreference_t preference) {
    const comet_cublaslt *lt = p->lt;
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    memset(&result, 0, sizeof result);
    COMET_TRY(status_of(lt, lt->library.call.heuristic(lt->handle, p->operation, p->a, p->b, p->d, p->d, preference, 1,
                                                       &result, &count)));
    if (count < 1)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "cuBLASLt has no algorithm for this product");
    COMET_TRY(status_of(lt, result.state));
    p->algorithm = result.algo;
    p->workspace_bytes = result.workspaceSize;
    return COMET_OK;
}

static comet_status choose(comet_product *p) {
    cublasLtMatmulPreference_t preference = NULL;
    comet_status status = make_preference(p->lt, &preference);
    if (status == COMET_OK)
        status = set_bias(p, (const void *)(uintptr_t)ALIGNMENT);
    if (status == COMET_OK)
        status = ask(p, preference);
    if (preference)
        (void)p->lt->library.call.preference_free(preference);
    return status;
}

comet_status comet_product_new(comet_cublaslt *lt, const comet_product_shape *shape, comet_product **product) {
    comet_product *p = comet_memory_take(lt->backend->allocator, sizeof *p);
    if (!p)
        return COMET_ERROR_MEMORY;
    memset(p, 0, sizeof *p);
    p->lt = lt;
    p->has_bias = shape->bias;
    comet_status status = make_operation(p, shape);
    if (status == COMET_OK)
        status = make_layouts(p, shape);
    if (status == COMET_OK)
        status = choose(p);
    if (status != COMET_OK) {
        comet_product_free(p);
        return status;
    }
    *product = p;
    return COMET_OK;
}

size_t comet_product_workspace(const comet_product *p) {
    return p->workspace_bytes;
}

comet_status comet_product_run(comet_product *p, const comet_product_call *c) {
    const comet_cublaslt *lt = p->lt;
    const float one = 1;
    COMET_TRY(set_bias(p, c->bias));
    return status_of(lt, lt->library.call.matmul(lt->handle, p->operation, &one, c->a, p->a, c->b, p->b, &c->beta, c->d,
                                                 p->d, c->d, p->d, &p->algorithm, c->workspace, p->workspace_bytes,
                                                 lt->backend->queue));
}
