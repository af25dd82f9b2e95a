/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of statistics that nobody waits for when they are made: they lie one behind the other in page-locked memory
 * until they are settled, at the end of a batch, and are then added to what callers have of them. Work that is recorded
 * leaves its records in the same places each time it is replayed. All zero: empty.
 */
#ifndef COMET_TRAIN_CUDA_LATE_H
#define COMET_TRAIN_CUDA_LATE_H

#include <cuda_runtime.h>
#include <stddef.h>

#include "comet/allocator.h"
#include "comet/cuda_use_stats.h"
#include "train/backend/cuda/base/transfer.h"

typedef enum comet_cuda_late_kind {
    COMET_CUDA_LATE_TENSOR, /* of comet/cuda_use_stats.h */
    COMET_CUDA_LATE_LAYER,
    COMET_CUDA_LATE_NORM,
    COMET_CUDA_LATE_SILU,
    COMET_CUDA_LATE_SCALE,
    COMET_CUDA_LATE_SUMS /* doubles, added to doubles */
} comet_cuda_late_kind;

typedef struct comet_cuda_late_record {
    comet_cuda_late_kind kind;
    const void *host;
    size_t bytes;
    void *seen; /* the caller's */
} comet_cuda_late_record;

/* Records of recorded work: what is under way when it was replayed. All zero: none. */
typedef struct comet_cuda_late_work {
    comet_cuda_late_record *list;
    size_t count;
    const void *host, *device; /* the room that they are in, */
    size_t first, bytes;       /* where they begin, and what they take of it */
} comet_cuda_late_work;

/* Each is at least twice the one before. */
enum { COMET_CUDA_LATE_ROOMS = 16 };

typedef struct comet_cuda_late {
    /* More than the first: until they are settled. Then there is one that has room for all that were wanted. */
    comet_cuda_record rooms[COMET_CUDA_LATE_ROOMS];
    int room;            /* that is filled */
    size_t used, wanted; /* of that room; by all since they were settled */
    comet_cuda_late_record *list;
    size_t count, list_room;
    int is_recording;
    size_t count_before, used_before, wanted_before; /* the recording */
} comet_cuda_late;

/*
 * Where one more record goes; while work is recorded slot->host is NULL, as all come over at once.
 * COMET_ERROR_MISMATCH: work is being recorded, and there is no room; there will be when the same was issued and
 * settled.
 */
comet_status comet_cuda_late_place(comet_cuda_late *late, const comet_allocator *allocator, size_t bytes,
                                   comet_cuda_stats_slot *slot);

/* The call that fills the last place was issued. */
void comet_cuda_late_note(comet_cuda_late *late, comet_cuda_late_kind kind, const comet_cuda_stats_slot *slot,
                          void *seen);

/* Waits if there are any, adds them, or forgets them if `keep` is 0, and makes room for as many more in one piece. */
comet_status comet_cuda_late_settle(comet_cuda_late *late, cudaStream_t queue, int keep);

/* ---- recorded work ---- */

void comet_cuda_late_begin_record(comet_cuda_late *late);

/* The last of the work: what was noted since comes to the host, with one copy. */
comet_status comet_cuda_late_fetch(const comet_cuda_late *late, cudaStream_t queue);

/* What was noted since. */
comet_status comet_cuda_late_take(const comet_cuda_late *late, const comet_allocator *allocator,
                                  comet_cuda_late_work *work);
/* It is not under way. */
void comet_cuda_late_end_record(comet_cuda_late *late);

/* Before work is replayed. COMET_ERROR_MISMATCH: its records would go elsewhere now. */
comet_status comet_cuda_late_prepare(comet_cuda_late *late, const comet_allocator *allocator,
                                     const comet_cuda_late_work *work);
/* It was. */
void comet_cuda_late_again(comet_cuda_late *late, const comet_cuda_late_work *work);

void comet_cuda_late_work_free(comet_cuda_late_work *work, const comet_allocator *allocator);
void comet_cuda_late_free(comet_cuda_late *late, const comet_allocator *allocator);

#endif
