/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a loader: loader.c has the threads and the ring, loader_batch.c what is in a batch. */
#ifndef COMET_DATA_LOADER_IMPL_H
#define COMET_DATA_LOADER_IMPL_H

#include <pthread.h>

#include "data/loader/loader.h"

enum { COMET_LOADER_MOST_BROKEN = 64, COMET_LOADER_WHY_BYTES = 256 };

/* One sample of a batch. */
typedef struct comet_loader_item {
    int64_t sample;
    comet_status status; /* OK; MEMORY; or why its file could not be used */
    bool absent;         /* nothing took its place */
    char why[COMET_LOADER_WHY_BYTES];
} comet_loader_item;

/* A batch being made, ready, or with the caller. */
typedef struct comet_loader_slot {
    uint8_t *pixels;
    int32_t *labels;
    int64_t *samples; /* of those that are not absent, once the slot is finished */
    comet_loader_item *items;
    uint32_t epoch;
    int64_t position;   /* of the whole batch, all shards together */
    int32_t size, done; /* samples in it; finished */
} comet_loader_slot;

typedef struct comet_loader_worker {
    comet_loader *loader;
    pthread_t thread;
    comet_decoder decoder;
    void *workspace;
} comet_loader_worker;

/* A place in the sequence of samples: the beginning of a whole batch, of which each shard has its part. */
typedef struct comet_loader_cursor {
    uint32_t epoch;
    int64_t position;
} comet_loader_cursor;

struct comet_loader {
    const comet_dataset *set;
    comet_loader_options options; /* with defaults filled in */
    comet_augment_rule rule;
    int64_t count;  /* of samples in an epoch */
    int32_t *drawn; /* which they are; NULL: all of the split */
    size_t bytes, image_bytes;
    comet_loader_worker *workers;
    comet_loader_slot *slots; /* batch number b is in slot b % options.batches */
    uint8_t *reported;        /* a bit for each sample */
    unsigned started;         /* workers */
    comet_status failed;      /* what comet_loader_next answers from now on */
    comet_message failure;

    pthread_mutex_t lock; /* of all below, and of the slots' `done` */
    pthread_cond_t room, ready;
    bool stopping, pausing, held; /* held: the caller has batch delivered - 1 */
    unsigned active;              /* workers in the middle of samples */
    uint64_t claimed, delivered;  /* batch numbers: the one being handed out, the next for the caller */
    int32_t claimed_items;
    comet_loader_waits waits;       /* threads_ms: of all threads together, up to idle_since */
    unsigned idle;                  /* threads that wait for room */
    double idle_since;              /* when their number has changed last */
    comet_loader_cursor fill, next; /* where `claimed` begins, where `delivered` begins */
};

/* loader_batch.c: makes sample `item` of the slot; runs on a worker's thread. */
void comet_loader_make(comet_loader_worker *worker, comet_loader_slot *slot, int32_t item);

/* loader_batch.c: reports broken files, closes gaps, says what is in a slot whose samples are all done. */
comet_status comet_loader_finish(comet_loader *loader, comet_loader_slot *slot, comet_batch *batch,
                                 comet_message *message);

/* Samples of a whole batch, all shards together. */
int64_t comet_loader_whole_batch(const comet_loader_options *options);

/* Moves past a whole batch. Returns how many samples of it are this shard's. */
int32_t comet_loader_advance(const comet_loader *loader, comet_loader_cursor *cursor);

#endif
