/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of uses through comet/cuda_use_stats.h. They are gathered every few steps only: each call waits for its
 * record. The record of a batch norm that comes in parts stays where it is until the last one.
 */
#include "base/fail.h"
#include "comet/cuda_use_stats.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/base/space.h"
#include "train/backend/cuda/kernels/sums.h"

/* ---- memory ---- */

static comet_status reserve(comet_backend_cuda *b, comet_cuda_record *record, const comet_cuda_stats_needs *needs,
                            comet_stats_exec *exec, comet_cuda_stats_slot *slot) {
    COMET_TRY(comet_cuda_record_reserve(record, needs->record_bytes));
    COMET_TRY(comet_cuda_buffer_reserve(&b->kept.statistics_workspace, needs->workspace_bytes));
    exec->workspace = b->kept.statistics_workspace.memory;
    exec->workspace_bytes = b->kept.statistics_workspace.bytes;
    exec->queue = b->queue;
    *slot = (comet_cuda_stats_slot){record->device.memory, needs->record_bytes, record->host};
    return COMET_OK;
}

static comet_status await(const comet_backend_cuda *b) {
    return comet_cuda_status(cudaStreamSynchronize(b->queue));
}

/* What all kinds do: the needs, the call, the wait, and the record into the struct. */
#define SEE(kind, record, is_last)                                                                                     \
    do {                                                                                                               \
        comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;                                                    \
        comet_stats_exec how = COMET_STATS_EXEC_INIT;                                                                  \
        comet_cuda_stats_slot slot;                                                                                    \
        COMET_TRY(comet_cuda_stats_##kind##_needs(pass, &needs));                                                      \
        COMET_TRY(reserve(b, (record), &needs, &how, &slot));                                                          \
        COMET_TRY(comet_cuda_stats_see_##kind(pass, &how, &slot));                                                     \
        if (!(is_last))                                                                                                \
            return COMET_OK;                                                                                           \
        COMET_TRY(await(b));                                                                                           \
        return comet_cuda_stats_fold_##kind(slot.host, slot.bytes, seen);                                              \
    } while (0)

/* ---- kinds ---- */

static comet_status see_tensor(comet_backend *backend, const comet_tensor_pass *pass, const comet_stats_exec *exec,
                               comet_stats_tensor *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    SEE(tensor, &b->kept.seen, 1);
}

/* Weights in the order that comet/use_stats.h asks for. */
static comet_status make_plain(comet_backend_cuda *b, const comet_layer_pass *from, comet_layer_pass *pass) {
    const comet_tensor *x = from->input, *y = from->gradient;
    const int64_t count =
        x->shape[x->ndim - 1] / from->groups * from->kernel[0] * from->kernel[1] * y->shape[y->ndim - 1];
    *pass = *from;
    if (!(from->what & COMET_STATS_COMMON) || (from->kernel[0] == 1 && from->kernel[1] == 1))
        return COMET_OK;
    COMET_TRY(comet_cuda_buffer_reserve(&b->kept.plain_weights, (size_t)count * sizeof(float)));
    pass->weights = b->kept.plain_weights.memory;
    return comet_cuda_space_plain(b->space, from->weights, count, b->kept.plain_weights.memory);
}

static comet_status see_layer(comet_backend *backend, const comet_layer_pass *given, const comet_stats_exec *exec,
                              comet_stats_layer *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    comet_layer_pass plain;
    const comet_layer_pass *pass = &plain;
    (void)exec;
    COMET_TRY(make_plain(b, given, &plain));
    SEE(layer, &b->kept.seen, 1);
}

static comet_status see_norm(comet_backend *backend, const comet_norm_pass *pass, const comet_stats_exec *exec,
                             comet_stats_norm *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    SEE(norm, &b->kept.seen_norm, pass->part == pass->parts - 1);
}

static comet_status see_silu(comet_backend *backend, const comet_silu_pass *pass, const comet_stats_exec *exec,
                             comet_stats_silu *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    SEE(silu, &b->kept.seen, 1);
}

static comet_status see_scale(comet_backend *backend, const comet_scale_pass *pass, const comet_stats_exec *exec,
                              comet_stats_scale *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    SEE(scale, &b->kept.seen, 1);
}

/* ---- sums ---- */

static comet_status squares(comet_backend *backend, const void *values, int64_t count, double *sum) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    comet_cuda_record *result = &b->kept.sums;
    COMET_TRY(comet_cuda_record_reserve(result, sizeof *sum));
    COMET_TRY(comet_cuda_buffer_reserve(&b->kept.partial_sums, COMET_CUDA_SQUARES_PARTS * sizeof *sum));
    COMET_TRY(comet_cuda_status(
        comet_cuda_launch_squares(values, count, b->kept.partial_sums.memory, result->device.memory, b->queue)));
    COMET_TRY(comet_cuda_record_fetch(result, sizeof *sum, b->queue));
    COMET_TRY(await(b));
    *sum = *(const double *)result->host;
    return COMET_OK;
}

const comet_backend_statistics comet_cuda_statistics = {.see_tensor = see_tensor,
                                                        .see_layer = see_layer,
                                                        .see_norm = see_norm,
                                                        .see_silu = see_silu,
                                                        .see_scale = see_scale,
                                                        .squares = squares};
