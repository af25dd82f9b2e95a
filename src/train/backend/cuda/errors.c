/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of gradients (train/backend/errors.h): jobs for the kernels of kernels/errors. Nobody waits: sums lie among
 * the records of statistics until these are settled, and totals of norms stay on the device.
 */
#include "train/backend/cuda/kernels/errors/errors.h"
#include "base/fail.h"
#include "train/backend/cuda/base/backend_cuda.h"

_Static_assert((int)COMET_CUDA_ERRORS_WIDTH == (int)COMET_ERRORS_WIDTH, "kernels have room for so many channels");
_Static_assert((int)COMET_CUDA_ERRORS_SUMS == (int)COMET_ERRORS_SUMS, "and for so many sums");

static comet_backend_cuda *cuda_of(comet_backend *backend) {
    return (comet_backend_cuda *)backend;
}

/* ---- sums that come with the statistics ---- */

static comet_status begin_sums(comet_backend_cuda *b, int count, comet_cuda_stats_slot *slot) {
    return comet_cuda_late_place(&b->kept.late, b->allocator, (size_t)count * sizeof(double), slot);
}

static comet_status end_sums(comet_backend_cuda *b, const comet_cuda_stats_slot *slot, double *to) {
    if (slot->host)
        COMET_TRY(comet_cuda_status(
            cudaMemcpyAsync(slot->host, slot->record, slot->bytes, cudaMemcpyDeviceToHost, b->queue)));
    comet_cuda_late_note(&b->kept.late, COMET_CUDA_LATE_SUMS, slot, to);
    return COMET_OK;
}

/* ---- what all have ---- */

static int64_t rows_of(const comet_tensor *t) {
    return t->shape[0] * t->shape[1] * t->shape[2];
}

static comet_cuda_errors_operand operand_of(const comet_errors_operand *o) {
    return (comet_cuda_errors_operand){.values = o->kept.values,
                                       .first = o->kept.first,
                                       .width = o->kept.width,
                                       .gamma = o->gamma,
                                       .beta = o->beta,
                                       .act = o->what == COMET_REBUILD_RELU   ? COMET_CUDA_ERRORS_RELU
                                              : o->what == COMET_REBUILD_SILU ? COMET_CUDA_ERRORS_SILU
                                                                              : COMET_CUDA_ERRORS_NOTHING,
                                       .factors = o->factors};
}

static size_t workspace(comet_backend *backend, int64_t pixels, int width) {
    (void)backend, (void)pixels, (void)width;
    return COMET_CUDA_ERRORS_WORKSPACE;
}

static comet_status keep(comet_backend *backend, const comet_tensor *values, const comet_codec_grid *grid, int first,
                         int width, float *kept) {
    const comet_cuda_errors_keep job = {.dtype = values->dtype,
                                        .values = values->data,
                                        .scale = grid ? grid->scale : NULL,
                                        .shift = grid ? grid->shift : NULL,
                                        .rows = rows_of(values),
                                        .channels = values->shape[3],
                                        .first = first,
                                        .width = width,
                                        .kept = kept};
    return comet_cuda_status(comet_cuda_launch_errors_keep(&job, cuda_of(backend)->queue));
}

/* ---- layers ---- */

static comet_cuda_errors_layer layer_job(const comet_errors_layer *l) {
    return (comet_cuda_errors_layer){.dtype = l->x->dtype,
                                     .x = l->x->data,
                                     .dy = l->dy->data,
                                     .images = l->x->shape[0],
                                     .x_size = {(int)l->x->shape[1], (int)l->x->shape[2]},
                                     .dy_size = {(int)l->dy->shape[1], (int)l->dy->shape[2]},
                                     .x_channels = (int)l->x->shape[3],
                                     .dy_channels = (int)l->dy->shape[3],
                                     .kernel = {l->kernel[0], l->kernel[1]},
                                     .padding = {l->padding[0], l->padding[1]},
                                     .stride = l->stride,
                                     .groups = l->groups,
                                     .of = l->exact ? operand_of(l->exact)
                                                    : (comet_cuda_errors_operand){.values = l->error->values,
                                                                                  .first = l->error->first,
                                                                                  .width = l->error->width},
                                     .is_exact = l->exact != NULL,
                                     .count = l->count,
                                     .other = l->other,
                                     .others = l->others,
                                     .workspace = l->workspace};
}

static comet_status layer(comet_backend *backend, const comet_errors_layer *l, double *sums) {
    comet_backend_cuda *b = cuda_of(backend);
    comet_cuda_errors_layer job = layer_job(l);
    const int count = l->kernel[0] * l->kernel[1] * l->count * l->others;
    comet_cuda_stats_slot slot;
    if (count > COMET_ERRORS_SUMS)
        return COMET_ERROR_CAPACITY;
    COMET_TRY(begin_sums(b, count, &slot));
    job.sums = slot.record;
    COMET_TRY(comet_cuda_status(comet_cuda_launch_errors_layer(&job, b->queue)));
    return end_sums(b, &slot, sums);
}

/* ---- norms ---- */

static comet_cuda_errors_norm norm_job(const comet_errors_norm *n) {
    return (comet_cuda_errors_norm){.dtype = n->x->dtype,
                                    .x = n->x->data,
                                    .dy = n->dy->data,
                                    .channels = n->x->shape[3],
                                    .first_row = n->row,
                                    .rows = rows_of(n->x),
                                    .all_rows = n->rows,
                                    .scale = n->scale,
                                    .shift = n->shift,
                                    .gamma = n->gamma,
                                    .beta = n->beta,
                                    .normalised = n->normalised,
                                    .relu = n->relu,
                                    .mask = n->mask,
                                    .kept = n->kept.values,
                                    .first = n->kept.first,
                                    .width = n->kept.width,
                                    .kept_normalised = n->kept_normalised,
                                    .curve = n->curve,
                                    .totals = n->totals,
                                    .workspace = n->workspace,
                                    .error = n->error};
}

static comet_status norm(comet_backend *backend, const comet_errors_norm *n, double *scale) {
    comet_backend_cuda *b = cuda_of(backend);
    comet_cuda_errors_norm job = norm_job(n);
    comet_cuda_stats_slot slot;
    if (n->error)
        return comet_cuda_status(comet_cuda_launch_errors_norm(&job, b->queue));
    if (!scale)
        return comet_cuda_status(comet_cuda_launch_errors_norm_sums(&job, b->queue));
    COMET_TRY(begin_sums(b, n->kept.width, &slot));
    job.scale_errors = slot.record;
    COMET_TRY(comet_cuda_status(comet_cuda_launch_errors_norm_sums(&job, b->queue)));
    return end_sums(b, &slot, scale);
}

/* ---- SiLUs and channel scales ---- */

static comet_status silu(comet_backend *backend, const comet_errors_silu *s) {
    const comet_cuda_errors_silu job = {.dtype = s->x->dtype,
                                        .x = s->x->data,
                                        .dy = s->dy->data,
                                        .rows = rows_of(s->x),
                                        .channels = s->x->shape[3],
                                        .exact = operand_of(&s->exact),
                                        .sign = s->sign,
                                        .curve = s->curve};
    return comet_cuda_status(comet_cuda_launch_errors_silu(&job, cuda_of(backend)->queue));
}

static comet_status scale(comet_backend *backend, const comet_errors_scale *s) {
    const comet_cuda_errors_scale job = {.dtype = s->x->dtype,
                                         .x = s->x->data,
                                         .factors = s->factors->data,
                                         .dy = s->dy->data,
                                         .images = s->x->shape[0],
                                         .pixels = s->x->shape[1] * s->x->shape[2],
                                         .channels = s->x->shape[3],
                                         .exact = operand_of(&s->exact),
                                         .error = s->error};
    return comet_cuda_status(comet_cuda_launch_errors_scale(&job, cuda_of(backend)->queue));
}

const comet_backend_errors comet_cuda_errors = {
    .workspace = workspace, .keep = keep, .layer = layer, .norm = norm, .silu = silu, .scale = scale};
