// SPDX-License-Identifier: Apache-2.0
// The stand-in's functions. Stricter than cuBLASLt: attributes that it does not know, matrices that do not fit each
// other or their memory, an algorithm for another product, addresses aligned less than was said, a workspace that is
// too small, and a result over what is still read are all errors.
#include <cstdio>
#include <cstring>
#include <set>

#include "cublaslt_model.h"
#include "stand_in.h"

struct cublasLtContext {
    int number;
};

namespace {

enum { MAGIC = 0x636f6d65, WORKSPACE = 3 * 1024, MOST_ALIGNMENT = 256 };

std::set<const void *> living; // handles and descriptors
size_t version = 130100;
bool breaks, refuses;
uint64_t runs;

bool lives(const void *object) {
    return object && living.count(object);
}

template <class T> cublasStatus_t make(T **object, const T &value) {
    if (!object)
        return CUBLAS_STATUS_INVALID_VALUE;
    *object = new T(value);
    living.insert(*object);
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> cublasStatus_t unmake(T *object) {
    if (!lives(object))
        return CUBLAS_STATUS_INVALID_VALUE;
    living.erase(object);
    delete object;
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> cublasStatus_t take(T *to, const void *value, size_t bytes) {
    if (!value || bytes != sizeof *to)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy((void *)to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

bool is_type(cudaDataType_t t) {
    return t == CUDA_R_32F || t == CUDA_R_16F || t == CUDA_R_16BF;
}

// ---- do matrices fit ----

struct problem {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c, d;
};

bool same(const cublaslt_layout &x, const cublaslt_layout &y) {
    return x.type == y.type && x.rows == y.rows && x.columns == y.columns && x.leading == y.leading;
}

cublasStatus_t check(const problem &p) {
    const void *all[] = {p.operation, p.a, p.b, p.c, p.d};
    for (const void *one : all)
        if (!lives(one))
            return CUBLAS_STATUS_INVALID_VALUE;
    const cublaslt_operation &o = *p.operation;
    const bool turned_a = o.turn_a == CUBLAS_OP_T, turned_b = o.turn_b == CUBLAS_OP_T;
    const uint64_t m = turned_a ? p.a->columns : p.a->rows, k = turned_a ? p.a->rows : p.a->columns;
    const uint64_t n = turned_b ? p.b->rows : p.b->columns, inner = turned_b ? p.b->columns : p.b->rows;
    if (k != inner || p.d->rows != m || p.d->columns != n || !same(*p.c, *p.d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p.a->type != p.b->type || (p.d->type != p.a->type && p.d->type != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a->type != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (o.epilogue == CUBLASLT_EPILOGUE_BIAS && (!o.bias || (uintptr_t)o.bias % 16 != 0))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

// ---- algorithms ----

uint64_t hash_with(uint64_t hash, uint64_t word) {
    return (hash ^ word) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

uint64_t hash_of(const problem &p) {
    const cublaslt_operation &o = *p.operation;
    uint64_t hash = hash_with(hash_with(hash_with(MAGIC, (uint64_t)o.compute), (uint64_t)o.turn_a), (uint64_t)o.turn_b);
    hash = hash_with(hash, (uint64_t)o.epilogue);
    const cublaslt_layout *all[] = {p.a, p.b, p.d};
    for (const cublaslt_layout *l : all)
        hash = hash_with(hash_with(hash_with(hash, l->rows), l->columns), (uint64_t)l->type);
    return hash;
}

// What an algorithm says of itself.
struct algorithm {
    uint64_t magic, problem, workspace;
    uint32_t alignment[4];
};
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "it is opaque");

// ---- memory ----

// The whole matrix is device memory, and begins where it was said to.
bool is_there(const void *memory, size_t bytes, uint32_t alignment) {
    cudaPointerAttributes first, last;
    return memory && (uintptr_t)memory % alignment == 0 && cudaPointerGetAttributes(&first, memory) == cudaSuccess &&
           cudaPointerGetAttributes(&last, (const char *)memory + bytes - 1) == cudaSuccess &&
           first.type == cudaMemoryTypeDevice && last.type == cudaMemoryTypeDevice;
}

bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    return (const char *)a < (const char *)b + b_bytes && (const char *)b < (const char *)a + a_bytes;
}

cublasStatus_t check_memory(const cublaslt_job &job, const algorithm &chosen) {
    const cublaslt_matrix *all[] = {&job.a, &job.b, &job.c, &job.d};
    const size_t d_bytes = cublaslt_bytes(job.d.layout);
    for (int i = 0; i < 4; i++)
        if (!is_there(all[i]->memory, cublaslt_bytes(all[i]->layout), chosen.alignment[i]))
            return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 2; i++)
        if (overlap(all[i]->memory, cublaslt_bytes(all[i]->layout), job.d.memory, d_bytes))
            return CUBLAS_STATUS_INVALID_VALUE;
    if (job.operation.epilogue == CUBLASLT_EPILOGUE_BIAS && !is_there(job.operation.bias, 1, 16))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (job.c.memory != job.d.memory || job.workspace_bytes < chosen.workspace)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (job.workspace_bytes && (!is_there(job.workspace, job.workspace_bytes, 16) ||
                                overlap(job.workspace, job.workspace_bytes, job.d.memory, d_bytes)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace

extern "C" {

size_t cublasLtGetVersion(void) {
    return version;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
#define TEXT(name, number)                                                                                             \
    case name:                                                                                                         \
        return #name;
        NUMBERS_OF_cublasStatus_t(TEXT)
#undef TEXT
    }
    return "unknown";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    return make(handle, cublasLtContext{1});
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return unmake(handle);
}

// ---- descriptors ----

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (scale != CUDA_R_32F || (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32))
        return CUBLAS_STATUS_INVALID_VALUE;
    return make(operation, cublaslt_operation{compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
    return unmake(operation);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
    if (!lives(o))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(&o->turn_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(&o->turn_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&o->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&o->bias, value, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
    if (!is_type(type) || rows < 1 || columns < 1 || leading < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    return make(layout, cublaslt_layout{type, rows, columns, leading});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return unmake(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    return make(preference, cublaslt_preference{0, {MOST_ALIGNMENT, MOST_ALIGNMENT, MOST_ALIGNMENT, MOST_ALIGNMENT}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return unmake(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                                    size_t bytes) {
    if (!lives(p))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(&p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return take(&p->alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return take(&p->alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return take(&p->alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return take(&p->alignment[3], value, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

// ---- products ----

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *count) {
    const problem p = {operation, a, b, c, d};
    if (!lives(handle) || !lives(preference) || wanted < 1 || !results || !count)
        return CUBLAS_STATUS_INVALID_VALUE;
    *count = 0;
    const cublasStatus_t status = check(p);
    if (status != CUBLAS_STATUS_SUCCESS || refuses)
        return status != CUBLAS_STATUS_SUCCESS ? status : CUBLAS_STATUS_NOT_SUPPORTED;
    algorithm chosen = {MAGIC, hash_of(p), preference->workspace < WORKSPACE ? 0u : (uint64_t)WORKSPACE, {}};
    memcpy(chosen.alignment, preference->alignment, sizeof chosen.alignment);
    memset(&results[0], 0, sizeof results[0]);
    memcpy(&results[0].algo, &chosen, sizeof chosen);
    results[0].workspaceSize = chosen.workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    const problem p = {operation, a_layout, b_layout, c_layout, d_layout};
    algorithm chosen;
    if (!lives(handle) || !alpha || !beta || !algo)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&chosen, algo, sizeof chosen);
    const cublasStatus_t status = check(p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (chosen.magic != MAGIC || chosen.problem != hash_of(p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const cublaslt_job job = {*operation,     {*a_layout, (void *)a}, {*b_layout, (void *)b}, {*c_layout, (void *)c},
                              {*d_layout, d}, *(const float *)alpha,  *(const float *)beta,   workspace,
                              workspace_bytes};
    const cublasStatus_t memory = check_memory(job, chosen);
    if (memory != CUBLAS_STATUS_SUCCESS || breaks)
        return memory != CUBLAS_STATUS_SUCCESS ? memory : CUBLAS_STATUS_EXECUTION_FAILED;
    runs++;
    return cublaslt_issue(job, stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

// ---- for tests ----

void comet_stand_in_cublaslt_set_version(size_t v) {
    version = v;
}

void comet_stand_in_cublaslt_refuse(int on) {
    refuses = on;
}

void comet_stand_in_cublaslt_break(int on) {
    breaks = on;
}

uint64_t comet_stand_in_cublaslt_runs(void) {
    return runs;
}

int comet_stand_in_cublaslt_objects(void) {
    return (int)living.size();
}

static void reset(void) {
    version = 130100;
    refuses = breaks = false;
}

#define FUNCTION(name)                                                                                                 \
    { #name, (void (*)(void))name }

static const comet_stand_in_function functions[] = {
    FUNCTION(cublasLtGetVersion),
    FUNCTION(cublasLtGetStatusString),
    FUNCTION(cublasLtCreate),
    FUNCTION(cublasLtDestroy),
    FUNCTION(cublasLtMatmulDescCreate),
    FUNCTION(cublasLtMatmulDescDestroy),
    FUNCTION(cublasLtMatmulDescSetAttribute),
    FUNCTION(cublasLtMatrixLayoutCreate),
    FUNCTION(cublasLtMatrixLayoutDestroy),
    FUNCTION(cublasLtMatmulPreferenceCreate),
    FUNCTION(cublasLtMatmulPreferenceDestroy),
    FUNCTION(cublasLtMatmulPreferenceSetAttribute),
    FUNCTION(cublasLtMatmulAlgoGetHeuristic),
    FUNCTION(cublasLtMatmul),
};

extern const comet_stand_in_library comet_stand_in_cublaslt_13 = {"libcublasLt.so.13", functions,
                                                                  sizeof functions / sizeof *functions, reset};
extern const comet_stand_in_library comet_stand_in_cublaslt_12 = {"libcublasLt.so.12", functions,
                                                                  sizeof functions / sizeof *functions, reset};
}
