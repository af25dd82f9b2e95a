/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/base/late.h"

#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "codec/cuda/runtime.h"

enum { LEAST_ROOM = 1 << 16, UNIT = 16 };

static size_t rounded(size_t bytes) {
    return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* ---- adding them ---- */

static comet_status add_sums(const double *sums, size_t count, double *seen) {
    for (size_t i = 0; i < count; i++)
        seen[i] += sums[i];
    return COMET_OK;
}

static comet_status fold(const comet_cuda_late_record *r) {
    switch (r->kind) {
    case COMET_CUDA_LATE_TENSOR:
        return comet_cuda_stats_fold_tensor(r->host, r->bytes, r->seen);
    case COMET_CUDA_LATE_LAYER:
        return comet_cuda_stats_fold_layer(r->host, r->bytes, r->seen);
    case COMET_CUDA_LATE_NORM:
        return comet_cuda_stats_fold_norm(r->host, r->bytes, r->seen);
    case COMET_CUDA_LATE_SILU:
        return comet_cuda_stats_fold_silu(r->host, r->bytes, r->seen);
    case COMET_CUDA_LATE_SCALE:
        return comet_cuda_stats_fold_scale(r->host, r->bytes, r->seen);
    default:
        return add_sums(r->host, r->bytes / sizeof(double), r->seen);
    }
}

static void free_rooms(comet_cuda_late *late) {
    for (int i = 0; i < COMET_CUDA_LATE_ROOMS; i++)
        comet_cuda_record_free(&late->rooms[i]);
}

/* All of them are added, whatever is wrong with one. */
comet_status comet_cuda_late_settle(comet_cuda_late *late, cudaStream_t queue, int keep) {
    comet_status status = late->count > 0 ? comet_cuda_status(cudaStreamSynchronize(queue)) : COMET_OK;
    const int is_there = status == COMET_OK;
    for (size_t i = 0; i < late->count && keep && is_there; i++) {
        const comet_status one = fold(&late->list[i]);
        status = status == COMET_OK ? one : status;
    }
    const size_t wanted = late->wanted;
    late->count = late->used = late->wanted = 0;
    late->room = 0;
    if (!is_there || wanted <= late->rooms[0].host_bytes)
        return status;
    free_rooms(late);
    const comet_status made = comet_cuda_record_reserve(&late->rooms[0], wanted);
    return status == COMET_OK ? made : status;
}

/* ---- where they go ---- */

static comet_status reserve_line(comet_cuda_late *late, const comet_allocator *allocator, size_t more) {
    comet_cuda_late_record *list =
        comet_array_reserve(allocator, late->list, late->count, late->count + more, &late->list_room, sizeof *list);
    if (!list)
        return COMET_ERROR_MEMORY;
    late->list = list;
    return COMET_OK;
}

/* Those that are there stay where they are: a batch's are not settled before it is known that the batch counts. */
static comet_status next_room(comet_cuda_late *late, size_t bytes) {
    const int next = late->rooms[0].host_bytes ? late->room + 1 : 0;
    if (late->is_recording)
        return comet_fail(COMET_ERROR_MISMATCH, "there is no room yet for the records of recorded statistics");
    if (next == COMET_CUDA_LATE_ROOMS)
        return COMET_ERROR_MEMORY;
    size_t wanted = next > 0 ? 2 * late->rooms[next - 1].host_bytes : LEAST_ROOM;
    wanted = wanted < bytes ? bytes : wanted;
    COMET_TRY(comet_cuda_record_reserve(&late->rooms[next], wanted));
    late->room = next;
    late->used = 0;
    return COMET_OK;
}

comet_status comet_cuda_late_place(comet_cuda_late *late, const comet_allocator *allocator, size_t bytes,
                                   comet_cuda_stats_slot *slot) {
    late->wanted += rounded(bytes);
    COMET_TRY(reserve_line(late, allocator, 1));
    if (late->used + rounded(bytes) > late->rooms[late->room].host_bytes)
        COMET_TRY(next_room(late, rounded(bytes)));
    const comet_cuda_record *room = &late->rooms[late->room];
    *slot = (comet_cuda_stats_slot){.record = (char *)room->device.memory + late->used,
                                    .bytes = bytes,
                                    .host = late->is_recording ? NULL : (char *)room->host + late->used};
    return COMET_OK;
}

void comet_cuda_late_note(comet_cuda_late *late, comet_cuda_late_kind kind, const comet_cuda_stats_slot *slot,
                          void *seen) {
    const char *host = (const char *)late->rooms[late->room].host + late->used;
    late->list[late->count++] = (comet_cuda_late_record){kind, host, slot->bytes, seen};
    late->used += rounded(slot->bytes);
}

/* ---- recorded work ---- */

void comet_cuda_late_begin_record(comet_cuda_late *late) {
    late->is_recording = 1;
    late->count_before = late->count;
    late->used_before = late->used;
    late->wanted_before = late->wanted;
}

/* Many small copies would each keep the kernels behind them waiting. */
comet_status comet_cuda_late_fetch(const comet_cuda_late *late, cudaStream_t queue) {
    const comet_cuda_record *room = &late->rooms[late->room];
    const size_t first = late->used_before, bytes = late->used - first;
    return bytes ? comet_cuda_status(cudaMemcpyAsync((char *)room->host + first, (char *)room->device.memory + first,
                                                     bytes, cudaMemcpyDeviceToHost, queue))
                 : COMET_OK;
}

comet_status comet_cuda_late_take(const comet_cuda_late *late, const comet_allocator *allocator,
                                  comet_cuda_late_work *work) {
    const comet_cuda_record *room = &late->rooms[late->room];
    const size_t count = late->count - late->count_before;
    *work = (comet_cuda_late_work){.count = count,
                                   .host = room->host,
                                   .device = room->device.memory,
                                   .first = late->used_before,
                                   .bytes = late->used - late->used_before};
    if (count == 0)
        return COMET_OK;
    work->list = comet_memory_take(allocator, count * sizeof *work->list);
    if (!work->list)
        return COMET_ERROR_MEMORY;
    memcpy(work->list, late->list + late->count_before, count * sizeof *work->list);
    return COMET_OK;
}

void comet_cuda_late_end_record(comet_cuda_late *late) {
    late->is_recording = 0;
    late->count = late->count_before;
    late->used = late->used_before;
    late->wanted = late->wanted_before;
}

comet_status comet_cuda_late_prepare(comet_cuda_late *late, const comet_allocator *allocator,
                                     const comet_cuda_late_work *work) {
    const comet_cuda_record *room = &late->rooms[late->room];
    if (work->count == 0)
        return COMET_OK;
    if (work->host != room->host || work->device != room->device.memory || work->first != late->used)
        return COMET_ERROR_MISMATCH;
    return reserve_line(late, allocator, work->count);
}

void comet_cuda_late_again(comet_cuda_late *late, const comet_cuda_late_work *work) {
    if (work->count > 0)
        memcpy(late->list + late->count, work->list, work->count * sizeof *work->list);
    late->count += work->count;
    late->used += work->bytes;
    late->wanted += work->bytes;
}

/* ---- the end ---- */

void comet_cuda_late_work_free(comet_cuda_late_work *work, const comet_allocator *allocator) {
    if (work->list)
        comet_memory_give(allocator, work->list, work->count * sizeof *work->list);
    *work = (comet_cuda_late_work){.count = 0};
}

void comet_cuda_late_free(comet_cuda_late *late, const comet_allocator *allocator) {
    free_rooms(late);
    comet_memory_give(allocator, late->list, late->list_room * sizeof *late->list);
    *late = (comet_cuda_late){.count = 0};
}
