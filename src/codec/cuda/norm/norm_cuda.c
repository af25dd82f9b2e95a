/* SPDX-License-Identifier: Apache-2.0 */
/* comet/cuda_norm.h: arguments checked, the header made, the rest left to the kernels. Device memory is not read. */
#include <float.h>
#include <stdint.h>
#include <string.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "base/tensor_check.h"
#include "codec/call.h"
#include "codec/cuda/arguments.h"
#include "codec/cuda/norm/norm_impl.h"
#include "codec/cuda/runtime.h"

/* ---- checks ---- */

static comet_status check_table(const float *table, int64_t channels, const char *name) {
    COMET_REQUIRE(table || !channels, "%s is NULL", name);
    return comet_cuda_check_aligned(table, COMET_CUDA_ALIGN_VALUES, name);
}

static comet_status take_norm(comet_cuda_norm *norm, const comet_cuda_norm *given) {
    static const comet_cuda_norm defaults = COMET_CUDA_NORM_INIT;
    COMET_TRY(comet_sized_read(norm, sizeof *norm, given, &defaults, "norm"));
    COMET_REQUIRE(norm->channels >= 0, "norm->channels is %lld: it must not be negative", (long long)norm->channels);
    COMET_TRY(check_table(norm->inverse_std, norm->channels, "norm->inverse_std"));
    COMET_TRY(check_table(norm->gamma, norm->channels, "norm->gamma"));
    COMET_TRY(check_table(norm->beta, norm->channels, "norm->beta"));
    COMET_TRY(check_table(norm->shift, norm->channels, "norm->shift"));
    return check_table(norm->threshold, norm->channels, "norm->threshold");
}

/* The shape, as the passes need it. */
static comet_status check_shape(const comet_tensor *tensor, const char *name) {
    COMET_TRY(comet_tensor_check_shape(tensor, name));
    int has_channels =
        tensor->layout == COMET_NHWC ? tensor->ndim >= 1 : tensor->layout == COMET_NCHW && tensor->ndim >= 3;
    if (!has_channels)
        return comet_fail(COMET_ERROR_UNSUPPORTED,
                          "%s has no channels: it must be NHWC, or NCHW of three or more dimensions", name);
    if (tensor->dtype == COMET_U8)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "%s->dtype is u8: it must be fp32, fp16 or bf16", name);
    if (comet_tensor_channels(tensor) > INT32_MAX)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "%s has more than 2^31 - 1 channels", name);
    return COMET_OK;
}

static int same_shape(const comet_tensor *a, const comet_tensor *b) {
    return a->dtype == b->dtype && a->layout == b->layout && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

/* `whose` has so many channels. */
static comet_status check_tensor(const comet_tensor *tensor, const char *name, int64_t channels, const char *whose,
                                 int32_t device) {
    COMET_TRY(comet_tensor_check(tensor, name));
    COMET_TRY(check_shape(tensor, name));
    COMET_TRY(comet_cuda_check_tensor(tensor, name, device));
    COMET_REQUIRE(channels == comet_tensor_channels(tensor), "%s->channels is %lld: it must be %s's %lld", whose,
                  (long long)channels, name, (long long)comet_tensor_channels(tensor));
    return COMET_OK;
}

/* The same shape and fit for kernels. */
static comet_status check_pair(const comet_tensor *a, const char *a_name, const comet_tensor *b, const char *b_name,
                               const comet_cuda_norm *norm, int32_t device) {
    COMET_TRY(check_tensor(a, a_name, norm->channels, "norm", device));
    COMET_TRY(check_tensor(b, b_name, norm->channels, "norm", device));
    COMET_REQUIRE(same_shape(a, b), "%s must have the shape, layout and dtype of %s", b_name, a_name);
    return COMET_OK;
}

/* The caller's parameters with a grid; the grid's pointers are not followed. */
static comet_status take_params(comet_codec_params *p, const comet_codec_params *given, const comet_codec_grid *grid) {
    COMET_TRY(comet_call_params(p, given));
    COMET_REQUIRE(!p->grid, "params->grid must be NULL: it is made from norm");
    const char *wrong = p->codec != COMET_CODEC_EB           ? "codec must be COMET_CODEC_EB"
                        : p->rounding != COMET_ROUND_NEAREST ? "rounding must be to nearest"
                        : p->keep_mask                       ? "keep_mask must be 0"
                        : p->checksum                        ? "checksum must be 0"
                                                             : NULL;
    if (wrong)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "params->%s", wrong);
    p->grid = grid;
    return COMET_OK;
}

/* Those of a stream of y. */
static comet_status take_y_params(comet_codec_params *p, const comet_codec_params *given) {
    COMET_TRY(comet_call_params(p, given));
    const char *wrong = p->codec != COMET_CODEC_EB           ? "codec must be COMET_CODEC_EB"
                        : p->rounding != COMET_ROUND_NEAREST ? "rounding must be to nearest"
                        : !p->keep_mask                      ? "keep_mask must be 1"
                        : p->checksum                        ? "checksum must be 0"
                        : p->grid                            ? "grid must be NULL"
                                                             : NULL;
    return wrong ? comet_fail(COMET_ERROR_UNSUPPORTED, "residual->y_params->%s", wrong) : COMET_OK;
}

/* What matters for decoding; the rest may be anything. */
static comet_status take_decode_params(comet_codec_params *p, const comet_codec_params *given) {
    COMET_TRY(comet_call_params(p, given));
    p->bound = 0.0;
    p->bound_kind = COMET_BOUND_ABSOLUTE;
    p->device_bound = NULL;
    p->device_stats = NULL;
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

/* ---- queries ---- */

comet_status comet_cuda_norm_grid(const comet_cuda_norm *norm, comet_codec_grid *grid) {
    comet_cuda_norm n;
    comet_begin();
    COMET_TRY(take_norm(&n, norm));
    COMET_REQUIRE_POINTER(grid);
    *grid = grid_of(&n);
    return COMET_OK;
}

/* COMET_OK, and the parameters with a grid that is good for queries alone. */
static comet_status take_query(const comet_tensor *tensor, const comet_codec_params *params, const size_t *bytes,
                               comet_codec_params *p, comet_codec_grid *grid) {
    int32_t device;
    COMET_TRY(comet_cuda_current(&device));
    COMET_REQUIRE_POINTER(bytes);
    COMET_TRY(check_shape(tensor, "tensor"));
    *grid = any_grid(tensor);
    return take_params(p, params, grid);
}

comet_status comet_cuda_norm_max_bytes(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    comet_codec_params p;
    comet_codec_grid grid;
    comet_begin();
    COMET_TRY(take_query(tensor, params, bytes, &p, &grid));
    return comet_cuda_max_bytes(tensor, &p, bytes);
}

comet_status comet_cuda_norm_workspace(const comet_tensor *tensor, const comet_codec_params *params, size_t *bytes) {
    comet_codec_params p;
    comet_codec_grid grid;
    comet_begin();
    COMET_TRY(take_query(tensor, params, bytes, &p, &grid));
    COMET_TRY(comet_cuda_workspace(tensor, &p, bytes));
    const size_t all[] = {comet_norm_forward_workspace(tensor, 1), comet_norm_workspace(tensor),
                          comet_norm_statistics_workspace(tensor)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *bytes = *bytes > all[i] ? *bytes : all[i];
    return COMET_OK;
}

/* ---- passes ---- */

comet_status comet_cuda_norm_prepare(const comet_cuda_norm *norm, void *queue) {
    int32_t device;
    comet_cuda_norm n;
    comet_begin();
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(take_norm(&n, norm));
    COMET_TRY(check_table(n.mean, n.channels, "norm->mean"));
    if (n.channels > INT32_MAX)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "norm->channels is more than 2^31 - 1");
    return comet_cuda_status(comet_norm_prepare(&n, (cudaStream_t)queue));
}

static comet_status check_running(const comet_cuda_norm_batch *batch) {
    COMET_TRY(comet_cuda_check_aligned(batch->running_mean, sizeof(float), "batch->running_mean"));
    COMET_TRY(comet_cuda_check_aligned(batch->running_variance, sizeof(float), "batch->running_variance"));
    COMET_TRY(comet_cuda_check_aligned(batch->batches, sizeof(int64_t), "batch->batches"));
    COMET_REQUIRE(batch->momentum >= 0.0 && batch->momentum <= 1.0, "batch->momentum is %g: it must be 0 to 1",
                  batch->momentum);
    COMET_REQUIRE(batch->epsilon >= 0.0 && batch->epsilon <= DBL_MAX,
                  "batch->epsilon is %g: it must be finite and not negative", batch->epsilon);
    return COMET_OK;
}

/* `norm` is where the layer's numbers go, if there is a layer. */
static comet_status take_batch(comet_cuda_norm_batch *batch, comet_cuda_norm *norm,
                               const comet_cuda_norm_batch *given) {
    static const comet_cuda_norm_batch defaults = COMET_CUDA_NORM_BATCH_INIT;
    COMET_TRY(comet_sized_read(batch, sizeof *batch, given, &defaults, "batch"));
    COMET_REQUIRE(batch->channels >= 0, "batch->channels is %lld: it must not be negative", (long long)batch->channels);
    COMET_TRY(check_table(batch->mean, batch->channels, "batch->mean"));
    COMET_TRY(check_table(batch->inverse_std, batch->channels, "batch->inverse_std"));
    COMET_TRY(check_running(batch));
    if (!batch->norm)
        return COMET_OK;
    COMET_TRY(take_norm(norm, batch->norm));
    COMET_REQUIRE(norm->channels == batch->channels, "batch->norm->channels must be batch->channels");
    COMET_REQUIRE(norm->inverse_std == batch->inverse_std, "batch->norm->inverse_std must be batch->inverse_std");
    batch->norm = norm;
    return COMET_OK;
}

comet_status comet_cuda_norm_statistics(const comet_cuda_norm_batch *batch, const comet_tensor *x,
                                        const comet_codec_exec *exec) {
    int32_t device;
    comet_cuda_norm_batch b;
    comet_cuda_norm n;
    comet_codec_exec e;
    comet_begin();
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(take_batch(&b, &n, batch));
    COMET_TRY(comet_call_exec(&e, exec));
    COMET_TRY(check_tensor(x, "x", b.channels, "batch", device));
    size_t needed = comet_norm_statistics_workspace(x);
    if (!needed)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "x is larger than its statistics support");
    COMET_TRY(comet_cuda_check_workspace(&e, needed));
    norm_statistics_job job = {.batch = &b, .x = x, .workspace = e.workspace, .queue = (cudaStream_t)e.queue};
    return comet_cuda_status(comet_norm_statistics(&job));
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
    size_t needed = 0;
    COMET_TRY(comet_cuda_check_slot(slot, 1));
    COMET_TRY(take_params(p, params, grid));
    COMET_TRY(comet_cuda_workspace(job->codec.tensor, p, &needed));
    COMET_TRY(comet_cuda_check_workspace(exec, needed));
    job->has_slot = 1;
    job->codec.params = p;
    job->codec.slot = *slot;
    job->codec.workspace = exec->workspace;
    make_header(job->codec.tensor, p, &job->codec.fields, &job->codec.header);
    return COMET_OK;
}

/* And a stream of y. */
static comet_status add_y_slot(norm_forward_job *job, comet_codec_params *p, const comet_tensor *y,
                               const comet_codec_exec *exec, const comet_cuda_norm_residual *residual) {
    size_t unused;
    COMET_REQUIRE(job->has_slot, "residual->y_slot is given, and slot is not: comet_cuda_compress makes streams of y");
    COMET_TRY(comet_cuda_check_slot(residual->y_slot, 1));
    COMET_TRY(take_y_params(p, residual->y_params));
    COMET_TRY(comet_cuda_workspace(y, p, &unused)); /* for its checks */
    if (p->bound_kind == COMET_BOUND_RELATIVE && !p->device_stats)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "residual->y_params->bound is relative, and device_stats is NULL");
    COMET_TRY(comet_cuda_check_workspace(exec, comet_norm_forward_workspace(y, 1)));
    job->has_y_slot = 1;
    job->y_codec = (cuda_compress_job){.tensor = y,
                                       .params = p,
                                       .slot = *residual->y_slot,
                                       .workspace = exec->workspace,
                                       .queue = (cudaStream_t)exec->queue};
    make_header(y, p, &job->y_codec.fields, &job->y_codec.header);
    return COMET_OK;
}

/* What is added. */
static comet_status add_addend(norm_forward_job *job, const comet_tensor *y, const comet_tensor *add, int32_t device) {
    COMET_REQUIRE(!job->norm->adds == !add, "residual->add must be given where norm->adds is 1, and only there");
    if (!add)
        return COMET_OK;
    COMET_TRY(check_pair(y, "y", add, "residual->add", job->norm, device));
    /* tiles that are stored exactly are read twice */
    COMET_REQUIRE(!job->has_slot || add->data != y->data || !comet_tensor_count(y),
                  "y->data must not be residual->add's where slot is given");
    job->add = add->data;
    return COMET_OK;
}

static comet_status take_residual(comet_cuda_norm_residual *residual, const comet_cuda_norm_residual *given) {
    static const comet_cuda_norm_residual defaults = COMET_CUDA_NORM_RESIDUAL_INIT;
    return comet_sized_read(residual, sizeof *residual, given, &defaults, "residual");
}

/* Copies results to the host, where that is asked for. */
static cudaError_t copy_result(comet_cuda_result *host, const comet_cuda_slot *slot, cudaStream_t queue) {
    if (!slot || !host)
        return cudaSuccess;
    return cudaMemcpyAsync(host, slot->result, sizeof *host, cudaMemcpyDeviceToHost, queue);
}

static comet_status forward(const comet_cuda_norm *norm, const comet_tensor *x, const comet_tensor *y,
                            const comet_codec_params *params, const comet_codec_exec *exec, const comet_cuda_slot *slot,
                            comet_cuda_result *host, const comet_cuda_norm_residual *residual) {
    int32_t device;
    comet_cuda_norm n;
    comet_codec_exec e;
    comet_codec_params p, y_p;
    comet_cuda_norm_residual more;
    COMET_TRY(take_residual(&more, residual));
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(take_norm(&n, norm));
    COMET_TRY(comet_call_exec(&e, exec));
    COMET_TRY(check_pair(x, "x", y, "y", &n, device));
    comet_codec_grid grid = grid_of(&n);
    norm_forward_job job = {.norm = &n, .codec = {.tensor = x, .queue = (cudaStream_t)e.queue}};
    if (slot)
        COMET_TRY(add_slot(&job, &p, params, &grid, &e, slot));
    /* tiles that are stored exactly read x twice */
    COMET_REQUIRE(!slot || x->data != y->data || !comet_tensor_count(x), "y->data must not be x's where slot is given");
    COMET_TRY(add_addend(&job, y, more.add, device));
    if (more.y_slot)
        COMET_TRY(add_y_slot(&job, &y_p, y, &e, &more));
    job.y = y->data;
    cudaError_t error = comet_norm_forward(&job);
    if (error == cudaSuccess)
        error = copy_result(host, slot, job.codec.queue);
    if (error == cudaSuccess)
        error = copy_result(more.y_host, more.y_slot, job.codec.queue);
    return comet_cuda_status(error);
}

comet_status comet_cuda_norm_forward(const comet_cuda_norm *norm, const comet_tensor *x, const comet_tensor *y,
                                     const comet_codec_params *params, const comet_codec_exec *exec,
                                     const comet_cuda_slot *slot, comet_cuda_result *host,
                                     const comet_cuda_norm_residual *residual) {
    fenv_t callers; /* steps are computed from the bound on the host */
    comet_begin();
    comet_fp_enter(&callers);
    comet_status status = forward(norm, x, y, params, exec, slot, host, residual);
    comet_fp_leave(&callers);
    return status;
}

/* Where u comes from: a stream, */
static comet_status take_slot(norm_backward_job *job, comet_codec_params *p, const comet_codec_params *params,
                              const comet_codec_grid *grid, const comet_cuda_slot *slot, int32_t *device_status) {
    size_t unused;
    comet_codec_params given;
    COMET_TRY(comet_cuda_check_slot(slot, 0));
    COMET_TRY(comet_cuda_check_status_word(device_status));
    COMET_TRY(take_decode_params(&given, params));
    COMET_TRY(take_params(p, &given, grid));
    COMET_TRY(comet_cuda_workspace(job->codec.tensor, p, &unused)); /* for its checks */
    job->codec.params = p;
    job->codec.slot = *slot;
    job->codec.status = device_status;
    make_header(job->codec.tensor, p, &job->codec.fields, &job->codec.header);
    return COMET_OK;
}

/* or x. */
static comet_status take_x(norm_backward_job *job, const comet_tensor *x, int32_t device) {
    COMET_TRY(check_pair(job->codec.tensor, "dx", x, "x", job->norm, device));
    job->x = x->data;
    return COMET_OK;
}

/* Where the mask comes from: a stream of y, */
static comet_status take_y_slot(norm_backward_job *job, comet_codec_params *p, int32_t *device_status,
                                const comet_cuda_norm_residual_back *residual) {
    size_t unused;
    comet_codec_params given;
    COMET_TRY(comet_cuda_check_slot(residual->y_slot, 0));
    COMET_TRY(comet_cuda_check_status_word(device_status));
    COMET_TRY(take_decode_params(&given, residual->y_params));
    COMET_TRY(take_y_params(p, &given));
    COMET_TRY(comet_cuda_workspace(job->codec.tensor, p, &unused)); /* for its checks */
    job->y_codec.params = p;
    job->y_codec.slot = *residual->y_slot;
    job->codec.status = job->y_codec.status = device_status; /* tiles of either stream may be damaged */
    make_header(job->codec.tensor, p, &job->y_codec.fields, &job->y_codec.header);
    return COMET_OK;
}

/* or y. Without a ReLU there is no mask. */
static comet_status take_mask(norm_backward_job *job, comet_codec_params *p, const comet_tensor *dy,
                              const comet_cuda_norm_residual_back *residual, int32_t device, int32_t *device_status) {
    COMET_TRY(check_pair(dy, "dy", residual->dz, "residual->dz", job->norm, device));
    COMET_REQUIRE(residual->dz->data != job->codec.tensor->data || !comet_tensor_count(dy),
                  "residual->dz must not lie where dx does");
    job->dz = residual->dz->data;
    if (!job->norm->relu)
        return COMET_OK;
    COMET_REQUIRE(!residual->y_slot != !residual->y, "one of residual->y_slot and y must be given, the other NULL");
    if (residual->y_slot)
        return take_y_slot(job, p, device_status, residual);
    COMET_TRY(check_pair(dy, "dy", residual->y, "residual->y", job->norm, device));
    job->y = residual->y->data;
    return COMET_OK;
}

/* Without a ReLU dz is dy, as it is. */
static cudaError_t copy_dz(norm_backward_job *job, const comet_tensor *dy) {
    void *dz = job->dz;
    size_t bytes = (size_t)comet_tensor_count(dy) * comet_dtype_size(dy->dtype);
    job->dz = NULL;
    if (dz == dy->data || !bytes)
        return cudaSuccess;
    return cudaMemcpyAsync(dz, dy->data, bytes, cudaMemcpyDeviceToDevice, job->codec.queue);
}

static comet_status take_residual_back(comet_cuda_norm_residual_back *residual,
                                       const comet_cuda_norm_residual_back *given, const comet_cuda_norm *norm) {
    static const comet_cuda_norm_residual_back defaults = COMET_CUDA_NORM_RESIDUAL_BACK_INIT;
    COMET_REQUIRE(!norm->adds == !given, "residual must be given where norm->adds is 1, and only there");
    return comet_sized_read(residual, sizeof *residual, given, &defaults, "residual");
}

static comet_status check_sums(const comet_cuda_norm *norm, const float *dgamma, const float *dbeta) {
    if (!norm->channels)
        return COMET_OK;
    COMET_REQUIRE_POINTER(dgamma);
    COMET_REQUIRE_POINTER(dbeta);
    COMET_TRY(comet_cuda_check_aligned(dgamma, sizeof *dgamma, "dgamma"));
    return comet_cuda_check_aligned(dbeta, sizeof *dbeta, "dbeta");
}

comet_status comet_cuda_norm_backward(const comet_cuda_norm *norm, const comet_cuda_slot *slot, const comet_tensor *x,
                                      const comet_tensor *dy, const comet_tensor *dx, float *dgamma, float *dbeta,
                                      const comet_codec_params *params, const comet_codec_exec *exec, int32_t *status,
                                      const comet_cuda_norm_residual_back *residual) {
    int32_t device;
    comet_cuda_norm n;
    comet_codec_exec e;
    comet_codec_params p, y_p;
    comet_cuda_norm_residual_back more;
    comet_begin();
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(take_norm(&n, norm));
    COMET_TRY(comet_call_exec(&e, exec));
    COMET_TRY(take_residual_back(&more, residual, &n));
    COMET_REQUIRE(!slot != !x, "one of slot and x must be given, the other NULL");
    COMET_TRY(check_sums(&n, dgamma, dbeta));
    COMET_TRY(check_pair(dy, "dy", dx, "dx", &n, device));
    comet_codec_grid grid = grid_of(&n);
    norm_backward_job job = {.norm = &n,
                             .codec = {.tensor = dx, .workspace = e.workspace, .queue = (cudaStream_t)e.queue},
                             .dy = dy->data,
                             .dgamma = dgamma,
                             .dbeta = dbeta};
    COMET_TRY(slot ? take_slot(&job, &p, params, &grid, slot, status) : take_x(&job, x, device));
    if (residual)
        COMET_TRY(take_mask(&job, &y_p, dy, &more, device, status));
    if (!comet_norm_is_supported(dx))
        return comet_fail(COMET_ERROR_UNSUPPORTED, "dx is larger than the backward pass supports");
    COMET_TRY(comet_cuda_check_workspace(&e, comet_norm_workspace(dx)));
    cudaError_t error = residual && !n.relu ? copy_dz(&job, dy) : cudaSuccess;
    return comet_cuda_status(error == cudaSuccess ? comet_norm_backward(&job) : error);
}
