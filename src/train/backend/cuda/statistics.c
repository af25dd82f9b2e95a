/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of uses through comet/cuda_use_stats.h. A call leaves a record behind, and nobody waits for it: records
 * lie one behind the other until they are settled, at the end of a batch. Only the record of a batch norm that comes in
 * parts has a place of its own, and is waited for.
 */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "comet/cuda_use_stats.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/base/space.h"
#include "train/backend/cuda/kernels/sums.h"

/* For records. Where a batch's take more they are settled several times. */
enum { LEAST_ROOM = 1 << 16, MOST_ROOM = 1 << 22, UNIT = 16 };

typedef enum late_kind { LATE_TENSOR, LATE_LAYER, LATE_NORM, LATE_SILU, LATE_SCALE, LATE_SUMS } late_kind;

static comet_status await(const comet_backend_cuda *b) {
    return comet_cuda_status(cudaStreamSynchronize(b->queue));
}

/* ---- records that are under way ---- */

static comet_status add_sums(const double *record, size_t bytes, double *to) {
    for (size_t i = 0; i < bytes / sizeof *record; i++)
        to[i] += record[i];
    return COMET_OK;
}

static comet_status fold(late_kind kind, const void *record, size_t bytes, void *seen) {
    switch (kind) {
    case LATE_TENSOR:
        return comet_cuda_stats_fold_tensor(record, bytes, seen);
    case LATE_LAYER:
        return comet_cuda_stats_fold_layer(record, bytes, seen);
    case LATE_NORM:
        return comet_cuda_stats_fold_norm(record, bytes, seen);
    case LATE_SILU:
        return comet_cuda_stats_fold_silu(record, bytes, seen);
    case LATE_SUMS:
        return add_sums(record, bytes, seen);
    default:
        return comet_cuda_stats_fold_scale(record, bytes, seen);
    }
}

/* All of them are added, whatever is wrong with one. */
static comet_status take_in(comet_backend_cuda *b, int keep) {
    comet_cuda_late *late = &b->kept.late;
    comet_status status = late->count > 0 ? await(b) : COMET_OK;
    for (size_t i = 0; i < late->count && keep; i++) {
        const comet_cuda_late_record *r = &late->list[i];
        const comet_status one = fold((late_kind)r->kind, (char *)late->records.host + r->offset, r->bytes, r->seen);
        status = status == COMET_OK ? one : status;
    }
    late->count = late->used = 0;
    return status;
}

static comet_status settle(comet_backend *backend, int keep) {
    comet_cuda_late *late = &((comet_backend_cuda *)backend)->kept.late;
    comet_status status = take_in((comet_backend_cuda *)backend, keep);
    const size_t wanted = late->wanted < MOST_ROOM ? late->wanted : MOST_ROOM;
    if (status == COMET_OK && wanted > late->records.device.bytes)
        status = comet_cuda_record_reserve(&late->records, wanted);
    late->wanted = 0;
    return status;
}

/* Room for one more record, and a line in the list. */
static comet_status reserve_late(comet_backend_cuda *b, size_t bytes) {
    comet_cuda_late *late = &b->kept.late;
    late->wanted += bytes;
    comet_cuda_late_record *list =
        comet_array_reserve(b->allocator, late->list, late->count, late->count + 1, &late->room, sizeof *list);
    if (!list)
        return COMET_ERROR_MEMORY;
    late->list = list;
    if (late->used + bytes <= late->records.device.bytes)
        return COMET_OK;
    COMET_TRY(take_in(b, 1));
    return comet_cuda_record_reserve(&late->records, bytes > LEAST_ROOM ? bytes : LEAST_ROOM);
}

static comet_status begin(comet_backend_cuda *b, const comet_cuda_stats_needs *needs, comet_stats_exec *exec,
                          comet_cuda_stats_slot *slot) {
    comet_cuda_late *late = &b->kept.late;
    COMET_TRY(comet_cuda_buffer_reserve(&b->kept.statistics_workspace, needs->workspace_bytes));
    exec->workspace = b->kept.statistics_workspace.memory;
    exec->workspace_bytes = b->kept.statistics_workspace.bytes;
    exec->queue = b->queue;
    COMET_TRY(reserve_late(b, (needs->record_bytes + UNIT - 1) / UNIT * UNIT));
    *slot = (comet_cuda_stats_slot){(char *)late->records.device.memory + late->used, needs->record_bytes,
                                    (char *)late->records.host + late->used};
    return COMET_OK;
}

static void note_late(comet_backend_cuda *b, late_kind kind, const comet_cuda_stats_slot *slot, void *seen) {
    comet_cuda_late *late = &b->kept.late;
    late->list[late->count++] = (comet_cuda_late_record){kind, late->used, slot->bytes, seen};
    late->used += (slot->bytes + UNIT - 1) / UNIT * UNIT;
}

/* ---- sums of others ---- */

comet_status comet_cuda_late_begin(comet_backend_cuda *b, comet_cuda_late_sums *sums) {
    comet_cuda_late *late = &b->kept.late;
    COMET_TRY(reserve_late(b, ((size_t)sums->count * sizeof *sums->device + UNIT - 1) / UNIT * UNIT));
    sums->device = (double *)(void *)((char *)late->records.device.memory + late->used);
    return COMET_OK;
}

comet_status comet_cuda_late_end(comet_backend_cuda *b, const comet_cuda_late_sums *sums) {
    const comet_cuda_stats_slot slot = {sums->device, (size_t)sums->count * sizeof *sums->device,
                                        (char *)b->kept.late.records.host + b->kept.late.used};
    COMET_TRY(comet_cuda_status(cudaMemcpyAsync(slot.host, slot.record, slot.bytes, cudaMemcpyDeviceToHost, b->queue)));
    note_late(b, LATE_SUMS, &slot, sums->to);
    return COMET_OK;
}

/* What all kinds do: the needs, the call, and where its record is to go. */
#define SEE(kind, late)                                                                                                \
    do {                                                                                                               \
        comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;                                                    \
        comet_stats_exec how = COMET_STATS_EXEC_INIT;                                                                  \
        comet_cuda_stats_slot slot;                                                                                    \
        COMET_TRY(comet_cuda_stats_##kind##_needs(pass, &needs));                                                      \
        COMET_TRY(begin(b, &needs, &how, &slot));                                                                      \
        COMET_TRY(comet_cuda_stats_see_##kind(pass, &how, &slot));                                                     \
        note_late(b, late, &slot, seen);                                                                               \
        return COMET_OK;                                                                                               \
    } while (0)

/* ---- kinds ---- */

static comet_status see_tensor(comet_backend *backend, const comet_tensor_pass *pass, const comet_stats_exec *exec,
                               comet_stats_tensor *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    SEE(tensor, LATE_TENSOR);
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
    SEE(layer, LATE_LAYER);
}

/* The same record for all parts. */
static comet_status see_norm_part(comet_backend_cuda *b, const comet_norm_pass *pass, comet_stats_norm *seen) {
    comet_cuda_stats_needs needs = COMET_CUDA_STATS_NEEDS_INIT;
    comet_stats_exec how = COMET_STATS_EXEC_INIT;
    comet_cuda_stats_slot slot;
    comet_cuda_record *record = &b->kept.late.part;
    COMET_TRY(comet_cuda_stats_norm_needs(pass, &needs));
    COMET_TRY(begin(b, &needs, &how, &slot));
    COMET_TRY(comet_cuda_record_reserve(record, needs.record_bytes));
    slot = (comet_cuda_stats_slot){record->device.memory, needs.record_bytes, record->host};
    COMET_TRY(comet_cuda_stats_see_norm(pass, &how, &slot));
    if (pass->part < pass->parts - 1)
        return COMET_OK;
    COMET_TRY(await(b));
    return comet_cuda_stats_fold_norm(slot.host, slot.bytes, seen);
}

static comet_status see_norm(comet_backend *backend, const comet_norm_pass *pass, const comet_stats_exec *exec,
                             comet_stats_norm *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    if (pass->parts > 1)
        return see_norm_part(b, pass, seen);
    SEE(norm, LATE_NORM);
}

static comet_status see_silu(comet_backend *backend, const comet_silu_pass *pass, const comet_stats_exec *exec,
                             comet_stats_silu *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    SEE(silu, LATE_SILU);
}

static comet_status see_scale(comet_backend *backend, const comet_scale_pass *pass, const comet_stats_exec *exec,
                              comet_stats_scale *seen) {
    comet_backend_cuda *b = (comet_backend_cuda *)backend;
    (void)exec;
    SEE(scale, LATE_SCALE);
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
                                                        .squares = squares,
                                                        .settle = settle};
