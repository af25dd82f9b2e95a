/* SPDX-License-Identifier: Apache-2.0 */
/* comet/cuda_norm.h: arguments checked, the header made, the rest left to the kernels. Device memory is not read. */
#include <stdint.h>
#include <string.h>

#include "base/fp_environment.h"
#include "base/sized.h"
#include "base/tensor_check.h"
#include "codec/call.h"
#include "codec/cuda/norm/norm_impl.h"
#include "codec/cuda/runtime.h"

enum { ALIGN_MEMORY = 256, ALIGN_TENSOR = 16 };

/* NULL is aligned. */
static int is_aligned(const void *pointer, size_t alignment) {
    return (uintptr_t)pointer % alignment == 0;
}

/* ---- checks ---- */

static int take_norm(comet_cuda_norm *norm, const comet_cuda_norm *given) {
    static const comet_cuda_norm defaults = COMET_CUDA_NORM_INIT;
    if (!comet_sized_read(norm, sizeof *norm, given, &defaults) || norm->channels < 0)
        return 0;
    const void *const tables[] = {norm->inverse_std, norm->gamma, norm->beta, norm->shift, norm->threshold};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (!is_aligned(tables[i], ALIGN_TENSOR) || (!tables[i] && norm->channels))
            return 0;
    return 1;
}

/* The shape, as the passes need it. */
static comet_status check_shape(const comet_tensor *tensor) {
    comet_status status = comet_call_shape(tensor);
    if (status != COMET_OK)
        return status;
    int has_channels =
        tensor->layout == COMET_NHWC ? tensor->ndim >= 1 : tensor->layout == COMET_NCHW && tensor->ndim >= 3;
    if (!has_channels || tensor->dtype == COMET_U8 || comet_tensor_channels(tensor) > INT32_MAX)
        return COMET_ERROR_UNSUPPORTED;
    return COMET_OK;
}

static int same_shape(const comet_tensor *a, const comet_tensor *b) {
    return a->dtype == b->dtype && a->layout == b->layout && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static comet_status check_tensor(const comet_tensor *tensor, const comet_cuda_norm *norm, int32_t device) {
    comet_status status = comet_tensor_check(tensor);
    if (status == COMET_OK)
        status = check_shape(tensor);
    if (status != COMET_OK)
        return status;
    if (tensor->device.kind != COMET_CUDA || !comet_tensor_is_contiguous(tensor))
        return COMET_ERROR_UNSUPPORTED;
    return tensor->device.index == device && is_aligned(tensor->data, ALIGN_TENSOR) &&
                   norm->channels == comet_tensor_channels(tensor)
               ? COMET_OK
               : COMET_ERROR_ARGUMENT;
}

/* The same shape and fit for kernels. */
static comet_status check_pair(const comet_tensor *a, const comet_tensor *b, const comet_cuda_norm *norm,
                               int32_t device) {
    comet_status status = check_tensor(a, norm, device);
    if (status == COMET_OK)
        status = check_tensor(b, norm, device);
    return status == COMET_OK && !same_shape(a, b) ? COMET_ERROR_ARGUMENT : status;
}

static int slot_is_valid(const comet_cuda_slot *slot) {
    return slot->base && is_aligned(slot->base, ALIGN_MEMORY) && is_aligned(slot->start, sizeof(uint64_t)) &&
           is_aligned(slot->result, ALIGN_TENSOR);
}

/* The caller's parameters with a grid; the grid's pointers are not followed. */
static comet_status take_params(comet_codec_params *p, const comet_codec_params *given, const comet_codec_grid *grid) {
    if (!comet_call_params(p, given))
        return COMET_ERROR_ARGUMENT;
    if (p->grid)
        return COMET_ERROR_ARGUMENT;
    if (p->codec != COMET_CODEC_EB || p->rounding != COMET_ROUND_NEAREST || p->keep_mask || p->checksum)
        return COMET_ERROR_UNSUPPORTED;
    p->grid = grid;
    return COMET_OK;
}

static comet_codec_grid grid_of(const comet_cuda_norm *norm) {
    return (comet_codec_grid){norm->channels, norm->inverse_std, norm->shift, norm->threshold, norm->gamma};
}

/* A grid for queries, which look at the pointers of none. */
static comet_codec_grid any_grid(const comet_tensor *tensor) {
    static const float number;
    return (comet_codec_grid){comet_tensor_channels(tensor), &number, &number, &number, &number};
}

static comet_status check_workspace(const comet_codec_exec *exec, size_t needed) {
    if (!exec->workspace || !is_aligned(exec->workspace, ALIGN_MEMORY))
        return COMET_ERROR_ARGUMENT;
    return exec->workspace_bytes >= needed ? COMET_OK : COMET_ERROR_CAPACITY;
}

/* ---- queries ---- */

comet_status comet_cuda_norm_grid(const comet_cuda_norm *norm, comet_codec_grid *grid) {
    comet_cuda_norm n;
    if (!take_norm(&n, norm) || !grid)
        return COMET_ERROR_ARGUMENT;
    *grid = grid_of(&n);
    return COMET_OK;
}

/* COMET_OK, and the parameters with a grid that is good for queries alone. */
static comet_status take_query(const comet_tensor *tensor, const comet_codec_params *params, const size_t *bytes,
                               comet_codec_params *p, comet_codec_grid *grid) {
    int32_t device;
    comet_status status = comet_cuda_current(&device);
    if (status != COMET_OK)
        return status;
    if (!bytes)
        return COMET_ERROR_ARGUMENT;
    status = check_shape(tensor);
    if (status != COMET_OK)
        return status;
    *grid = any_grid(tensor);
    return take_params(p, params, grid);
}

comet_status comet_cuda_norm_max_bytes(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    comet_codec_params p;
    comet_codec_grid grid;
    comet_status status = take_query(tensor, params, bytes, &p, &grid);
    return status == COMET_OK ? comet_cuda_max_bytes(tensor, &p, bytes) : status;
}

comet_status comet_cuda_norm_workspace(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    comet_codec_params p;
    comet_codec_grid grid;
    comet_status status = take_query(tensor, params, bytes, &p, &grid);
    if (status == COMET_OK)
        status = comet_cuda_workspace(tensor, &p, bytes);
    if (status != COMET_OK)
        return status;
    size_t backward = comet_norm_workspace(tensor);
    *bytes = *bytes > backward ? *bytes : backward;
    return COMET_OK;
}

/* ---- passes ---- */

comet_status comet_cuda_norm_prepare(const comet_cuda_norm *norm, void *queue) {
    int32_t device;
    comet_cuda_norm n;
    comet_status status = comet_cuda_current(&device);
    if (status != COMET_OK)
        return status;
    if (!take_norm(&n, norm) || (n.channels && !n.mean) || !is_aligned(n.mean, ALIGN_TENSOR))
        return COMET_ERROR_ARGUMENT;
    if (n.channels > INT32_MAX)
        return COMET_ERROR_UNSUPPORTED;
    return comet_cuda_status(comet_norm_prepare(&n, (cudaStream_t)queue));
}

/* The header without what only the device knows. */
static void make_header(const comet_tensor *tensor, const comet_codec_params *p, stream_header *fields,
                        cuda_header *header) {
    comet_call_header(tensor, p, fields);
    fields->flags = 0;
    comet_cuda_eb.describe(tensor, p, fields);
    fields->bound = 0.0f;
    fields->body_bytes = 0;
    comet_stream_header_write(fields, (uint8_t *)header->words);
}

/* What a stream adds to a forward pass. */
static comet_status add_slot(norm_forward_job *job, comet_codec_params *p, const comet_codec_params *params,
                             const comet_codec_grid *grid, const comet_codec_exec *exec, const comet_cuda_slot *slot) {
    if (!slot_is_valid(slot) || !slot->result)
        return COMET_ERROR_ARGUMENT;
    comet_status status = take_params(p, params, grid);
    size_t needed = 0;
    if (status == COMET_OK)
        status = comet_cuda_workspace(job->codec.tensor, p, &needed);
    if (status == COMET_OK)
        status = check_workspace(exec, needed);
    if (status != COMET_OK)
        return status;
    job->has_slot = 1;
    job->codec.params = p;
    job->codec.slot = *slot;
    job->codec.workspace = exec->workspace;
    make_header(job->codec.tensor, p, &job->codec.fields, &job->codec.header);
    return COMET_OK;
}

static comet_status forward(const comet_cuda_norm *norm, const comet_tensor *x, const comet_tensor *y,
                            const comet_codec_params *params, const comet_codec_exec *exec, const comet_cuda_slot *slot,
                            comet_cuda_result *host) {
    int32_t device;
    comet_cuda_norm n;
    comet_codec_exec e;
    comet_codec_params p;
    comet_status status = comet_cuda_current(&device);
    if (status != COMET_OK)
        return status;
    if (!take_norm(&n, norm) || !comet_call_exec(&e, exec))
        return COMET_ERROR_ARGUMENT;
    status = check_pair(x, y, &n, device);
    comet_codec_grid grid = grid_of(&n);
    norm_forward_job job = {.norm = &n, .codec = {.tensor = x, .queue = (cudaStream_t)e.queue}};
    if (status == COMET_OK && slot)
        status = add_slot(&job, &p, params, &grid, &e, slot);
    if (status != COMET_OK)
        return status;
    if (slot && x->data == y->data && comet_tensor_count(x))
        return COMET_ERROR_ARGUMENT; /* tiles that are stored exactly read x twice */
    job.y = y->data;
    cudaError_t error = comet_norm_forward(&job);
    if (error == cudaSuccess && slot && host)
        error = cudaMemcpyAsync(host, slot->result, sizeof *host, cudaMemcpyDeviceToHost, job.codec.queue);
    return comet_cuda_status(error);
}

comet_status comet_cuda_norm_forward(const comet_cuda_norm *norm, const comet_tensor *x, const comet_tensor *y,
                                     const comet_codec_params *params, const comet_codec_exec *exec,
                                     const comet_cuda_slot *slot, comet_cuda_result *host) {
    fenv_t callers; /* steps are computed from the bound on the host */
    comet_fp_enter(&callers);
    comet_status status = forward(norm, x, y, params, exec, slot, host);
    comet_fp_leave(&callers);
    return status;
}

/* Where u comes from: a stream, */
static comet_status take_slot(norm_backward_job *job, comet_codec_params *p, const comet_codec_params *params,
                              const comet_codec_grid *grid, const comet_cuda_slot *slot, int32_t *device_status) {
    size_t unused;
    if (!slot_is_valid(slot) || !device_status || !is_aligned(device_status, sizeof *device_status))
        return COMET_ERROR_ARGUMENT;
    comet_codec_params given;
    if (!comet_call_params(&given, params))
        return COMET_ERROR_ARGUMENT;
    given.bound = 0.0; /* not needed for decoding: may be anything */
    given.bound_kind = COMET_BOUND_ABSOLUTE;
    given.device_bound = NULL;
    given.device_stats = NULL;
    comet_status status = take_params(p, &given, grid);
    if (status == COMET_OK)
        status = comet_cuda_workspace(job->codec.tensor, p, &unused); /* for its checks */
    if (status != COMET_OK)
        return status;
    job->codec.params = p;
    job->codec.slot = *slot;
    job->codec.status = device_status;
    make_header(job->codec.tensor, p, &job->codec.fields, &job->codec.header);
    return COMET_OK;
}

/* or x. */
static comet_status take_x(norm_backward_job *job, const comet_tensor *x, int32_t device) {
    comet_status status = check_pair(job->codec.tensor, x, job->norm, device);
    job->x = status == COMET_OK ? x->data : NULL;
    return status;
}

comet_status comet_cuda_norm_backward(const comet_cuda_norm *norm, const comet_cuda_slot *slot, const comet_tensor *x,
                                      const comet_tensor *dy, const comet_tensor *dx, float *dgamma, float *dbeta,
                                      const comet_codec_params *params, const comet_codec_exec *exec, int32_t *status) {
    int32_t device;
    comet_cuda_norm n;
    comet_codec_exec e;
    comet_codec_params p;
    comet_status answer = comet_cuda_current(&device);
    if (answer != COMET_OK)
        return answer;
    if (!take_norm(&n, norm) || !comet_call_exec(&e, exec) || !slot == !x ||
        (n.channels && (!dgamma || !dbeta || !is_aligned(dgamma, sizeof *dgamma) || !is_aligned(dbeta, sizeof *dbeta))))
        return COMET_ERROR_ARGUMENT;
    answer = check_pair(dy, dx, &n, device);
    if (answer != COMET_OK)
        return answer;
    comet_codec_grid grid = grid_of(&n);
    norm_backward_job job = {.norm = &n,
                             .codec = {.tensor = dx, .workspace = e.workspace, .queue = (cudaStream_t)e.queue},
                             .dy = dy->data,
                             .dgamma = dgamma,
                             .dbeta = dbeta};
    answer = slot ? take_slot(&job, &p, params, &grid, slot, status) : take_x(&job, x, device);
    if (answer == COMET_OK && !comet_norm_is_supported(dx))
        answer = COMET_ERROR_UNSUPPORTED;
    if (answer == COMET_OK)
        answer = check_workspace(&e, comet_norm_workspace(dx));
    return answer == COMET_OK ? comet_cuda_status(comet_norm_backward(&job)) : answer;
}
