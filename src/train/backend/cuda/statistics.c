/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of uses through comet/cuda_use_stats.h. A call leaves a record behind, and nobody waits for it: records
 * lie one behind the other until they are settled, at the end of a batch (base/late.h). Only the record of a batch norm
 * that comes in parts has a place of its own, and is waited for.
 */
#include <string.h>

#include "base/fail.h"
#include "comet/cuda_use_stats.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/base/space.h"
#include "train/backend/cuda/kernels/sums.h"

static comet_status settle(comet_backend *backend, int keep) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    return comet_cuda_late_settle(&b->kept.late, b->queue, keep);
}

static comet_status reserve_workspace(comet_backend_cuda *b, size_t bytes, comet_stats_exec *exec) {
    COMET_TRY(comet_cuda_buffer_reserve(&b->kept.statistics_workspace, bytes));
    exec->workspace = b->kept.statistics_workspace.memory;
    exec->workspace_bytes = b->kept.statistics_workspace.bytes;
    exec->queue = b->queue;
    return COMET_OK;
}

static comet_status begin(comet_backend_cuda *b, const comet_cuda_stats_needs *needs, comet_stats_exec *exec,
                          comet_cuda_stats_slot *slot) {
    COMET_TRY(reserve_workspace(b, needs->workspace_bytes, exec));
    return comet_cuda_late_place(&b->kept.late, b->allocator, needs->record_bytes, slot);
}

/* What all kinds do: the needs, the call, and where its record is to go. */
#define SEE(kind, record)                                                                                              \
    do {                                                                                                               \
        comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;                                                    \
        comet_stats_exec how = COMET_STATS_EXEC_INIT;                                                                  \
        comet_cuda_stats_slot slot;                                                                                    \
        COMET_TRY(comet_cuda_stats_##kind##_needs(pass, &needs));                                                      \
        COMET_TRY(begin(b, &needs, &how, &slot));                                                                      \
        COMET_TRY(comet_cuda_stats_see_##kind(pass, &how, &slot));                                                     \
        comet_cuda_late_note(&b->kept.late, record, &slot, seen);                                                      \
        return COMET_OK;                                                                                               \
    } while (0)

/* ---- kinds ---- */

static comet_status see_tensor(comet_backend *backend, const comet_tensor_pass *pass, const comet_stats_exec *exec,
                               comet_stats_tensor *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    SEE(tensor, COMET_CUDA_LATE_TENSOR);
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
    SEE(layer, COMET_CUDA_LATE_LAYER);
}

/* The same record for all parts. */
static comet_status see_norm_part(comet_backend_cuda *b, const comet_norm_pass *pass, comet_stats_norm *seen) {
    comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;
    comet_stats_exec how = COMET_STATS_EXEC_INIT;
    comet_cuda_stats_slot slot;
    comet_cuda_record *record = &b->kept.norm_parts;
    COMET_TRY(comet_cuda_stats_norm_needs(pass, &needs));
    COMET_TRY(reserve_workspace(b, needs.workspace_bytes, &how));
    COMET_TRY(comet_cuda_record_reserve(record, needs.record_bytes));
    slot = (comet_cuda_stats_slot){record->device.memory, needs.record_bytes, record->host};
    COMET_TRY(comet_cuda_stats_see_norm(pass, &how, &slot));
    if (pass->part < pass->parts - 1)
        return COMET_OK;
    COMET_TRY(comet_cuda_status(cudaStreamSynchronize(b->queue)));
    return comet_cuda_stats_fold_norm(slot.host, slot.bytes, seen);
}

static comet_status see_norm(comet_backend *backend, const comet_norm_pass *pass, const comet_stats_exec *exec,
                             comet_stats_norm *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    if (pass->parts > 1)
        return see_norm_part(b, pass, seen);
    SEE(norm, COMET_CUDA_LATE_NORM);
}

static comet_status see_silu(comet_backend *backend, const comet_silu_pass *pass, const comet_stats_exec *exec,
                             comet_stats_silu *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    SEE(silu, COMET_CUDA_LATE_SILU);
}

static comet_status see_scale(comet_backend *backend, const comet_scale_pass *pass, const comet_stats_exec *exec,
                              comet_stats_scale *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    SEE(scale, COMET_CUDA_LATE_SCALE);
}

/* ---- sums ---- */

static int parts_of(int64_t count) {
    const int64_t wanted = (count + COMET_CUDA_SQUARES_PART - 1) / COMET_CUDA_SQUARES_PART;
    return wanted < COMET_CUDA_SQUARES_PARTS ? (int)wanted : COMET_CUDA_SQUARES_PARTS;
}

/* The number of parts, of all. */
static int describe(const comet_span *spans, int count, comet_cuda_squared *table) {
    int parts = 0;
    for (int i = 0; i < count; i++) {
        table[i] = (comet_cuda_squared){spans[i].values, spans[i].count, parts, parts_of(spans[i].count)};
        parts += table[i].parts;
    }
    return parts;
}

static comet_status squares(comet_backend *backend, const comet_span *spans, int count, double *sums) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    const size_t bytes = (size_t)count * sizeof(comet_cuda_squared);
    comet_cuda_stats_slot slot;
    void *table;
    if (count == 0)
        return COMET_OK;
    COMET_TRY(comet_cuda_upload_begin(&b->kept.squared, bytes, &table));
    const int parts = describe(spans, count, table);
    COMET_TRY(comet_cuda_upload_end(&b->kept.squared, bytes, b->queue));
    COMET_TRY(comet_cuda_buffer_reserve(&b->kept.partial_sums, (size_t)parts * sizeof *sums));
    COMET_TRY(comet_cuda_late_place(&b->kept.late, b->allocator, (size_t)count * sizeof *sums, &slot));
    COMET_TRY(comet_cuda_status(comet_cuda_launch_squares(b->kept.squared.device.memory, count, parts,
                                                          b->kept.partial_sums.memory, slot.record, b->queue)));
    if (slot.host)
        COMET_TRY(
            comet_cuda_status(cudaMemcpyAsync(slot.host, slot.record, slot.bytes, cudaMemcpyDeviceToHost, b->queue)));
    comet_cuda_late_note(&b->kept.late, COMET_CUDA_LATE_SUMS, &slot, sums);
    return COMET_OK;
}

const comet_backend_statistics comet_cuda_statistics = {.see_tensor = see_tensor,
                                                        .see_layer = see_layer,
                                                        .see_norm = see_norm,
                                                        .see_silu = see_silu,
                                                        .see_scale = see_scale,
                                                        .squares = squares,
                                                        .settle = settle};
