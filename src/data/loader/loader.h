/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of a data set, made ahead of time by threads of the loader's own. What comes out depends on the set, the
 * options and the state alone: neither on the number of threads nor on time.
 */
#ifndef COMET_DATA_LOADER_H
#define COMET_DATA_LOADER_H

#include <stdbool.h>

#include "data/sets/dataset.h"

typedef struct comet_loader_options {
    comet_split split;
    int32_t batch;                   /* samples; of this shard, where there are several */
    int32_t height, width, channels; /* of what comes out; channels 1 or 3 */
    comet_augment augment;           /* training only: evaluation has none */
    double least_area;               /* COMET_AUGMENT_RESIZED_CROP; 0: 0.08 */
    uint64_t seed;                   /* of order and augmentation */
    unsigned threads;                /* that make batches; 0: 1 */
    unsigned batches;                /* held, that of the caller included: 2 or more; 0: 3 */
    size_t decode_bytes; /* most for one image, see comet_decoder; 0: 12 MiB. No more than needed is taken */
    int64_t most;        /* evaluation: so many samples, drawn over all classes (data/loader/draw.h); 0: all */
    const comet_allocator *allocator;

    /*
     * Of `shards` processes that train together (0: 1), this is number `shard`, from 0. Together they get what one
     * loader with batches of shards * batch gets: of each such whole batch the first has the first `batch` samples, and
     * so on. Augmentation, too, is the same: it depends on the sample, not on who asks.
     */
    unsigned shard, shards;

    /* Called by comet_loader_next for each file that cannot be used, once, in the order of the samples. May be NULL. */
    void (*report)(void *context, const char *line);
    void *report_context;
} comet_loader_options;

typedef struct comet_batch {
    const uint8_t *pixels; /* NHWC */
    const int32_t *labels;
    const int64_t *samples; /* which of the split's these are */
    /*
     * training: always options.batch; evaluation: the last one, and those with broken files, have fewer. Shards have as
     * many batches as each other: of an evaluation's last one some may have none.
     */
    int32_t count;
    uint32_t epoch;   /* from 0 */
    int64_t position; /* of its first sample in the epoch */
    bool last;        /* of the epoch; the next batch begins another one */
} comet_batch;

/* Where in the data a loader is: enough to go on there, bit by bit. That of one shard is that of all. */
typedef struct comet_loader_state {
    uint64_t seed;
    uint32_t epoch;
    int64_t position; /* samples of the epoch that were delivered, to all shards together */
    int64_t count;    /* of the split */
    uint32_t digest;  /* of the split */
} comet_loader_state;

typedef struct comet_loader comet_loader;

/*
 * All memory a loader with these options will hold, its threads' stacks and what libjpeg and libpng take included; the
 * set's own is info.memory_bytes. COMET_ERROR_ARGUMENT, with a message, for options that cannot be.
 */
comet_status comet_loader_memory(const comet_dataset *set, const comet_loader_options *options, size_t *bytes,
                                 comet_message *message);

/*
 * Of that, what will be resident with the images that are there: buffers are as large as any image could ask for,
 * stacks as deep as any call, and what is never written to takes no memory.
 */
comet_status comet_loader_resident(const comet_dataset *set, const comet_loader_options *options, size_t *bytes,
                                   comet_message *message);

/* Starts at the first batch of epoch 0, at once. The set must outlive it. */
comet_status comet_loader_new(const comet_dataset *set, const comet_loader_options *options, comet_loader **loader,
                              comet_message *message);

/* NULL is allowed. */
void comet_loader_free(comet_loader *loader);

/*
 * The next batch, which is valid until the next call; waits for it if it must. Epochs follow one another without end.
 * Training leaves out the last samples of an epoch where they are fewer than a batch (of all shards together). After a
 * failure (memory; too many broken files in a row) every further call fails. Calls for one loader must not overlap.
 */
comet_status comet_loader_next(comet_loader *loader, comet_batch *batch, comet_message *message);

/* Who waited for whom, so far. */
typedef struct comet_loader_waits {
    int64_t batches;   /* delivered; */
    int64_t late;      /* of these, not ready when they were asked for */
    double caller_ms;  /* that callers waited for them */
    double threads_ms; /* that threads waited for room, all batches being ready: the mean over threads */
} comet_loader_waits;

comet_loader_waits comet_loader_get_waits(comet_loader *loader);

/* The state in which the next batch is the one that comet_loader_next would deliver now. */
comet_loader_state comet_loader_get_state(const comet_loader *loader);

/*
 * Goes on from `state`, its seed included; the batch that was delivered is no longer valid. COMET_ERROR_MISMATCH if it
 * is of other data. Another batch size or number of shards is allowed: positions are samples.
 */
comet_status comet_loader_set_state(comet_loader *loader, const comet_loader_state *state, comet_message *message);

/* A state as text, for files, and back. COMET_ERROR_CORRUPT if it is not one. */
enum { COMET_LOADER_STATE_TEXT = 160 };
void comet_loader_state_format(const comet_loader_state *state, char text[COMET_LOADER_STATE_TEXT]);
comet_status comet_loader_state_parse(const char *text, comet_loader_state *state);

/* Batches of one epoch. */
int64_t comet_loader_batches(const comet_loader *loader);

#endif
