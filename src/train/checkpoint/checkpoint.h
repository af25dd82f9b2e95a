/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that a training run needs to go on, bit by bit, in one .safetensors file: weights and running statistics under
 * torchvision's names (it can be read as a weight file), the optimiser's state, and where the run is. In a folder there
 * are last.safetensors and previous.safetensors; at any moment, whatever happens to the program, the newest that was
 * complete is there whole.
 */
#ifndef COMET_TRAIN_CHECKPOINT_H
#define COMET_TRAIN_CHECKPOINT_H

#include "data/loader/loader.h"
#include "train/optimiser/optimiser.h"

/* In the same folder: the weights of a run's best evaluation, a weight file. */
#define COMET_BEST_FILE "best.safetensors"

enum { COMET_CHECKPOINT_KEYS = 4, COMET_CHECKPOINT_MOST_BLOBS = 8, COMET_CHECKPOINT_BLOB_NAME = 40 };

/* Bytes that someone else understands: size estimates, a controller's state. */
typedef struct comet_checkpoint_blob {
    char name[COMET_CHECKPOINT_BLOB_NAME];
    void *data;
    size_t bytes;
} comet_checkpoint_blob;

typedef struct comet_checkpoint {
    /* What it is of: a checkpoint is read only where these are the same. */
    const char *model;   /* the network and its sizes: "resnet18 classes=10 image=32x32x3" */
    const char *options; /* what else must not change, or a digest of it; "" or NULL when reading: anything */

    /* Where values are; written from there, read to there. */
    comet_parameter *parameters; /* a graph's, comet_graph_parameter(g, 0) */
    int parameter_count;
    const comet_optimiser *optimiser;
    float *state; /* of the optimiser */

    /* Where the run is. */
    int64_t step;    /* updates done */
    int64_t batches; /* that batch norms have seen */
    uint32_t epoch;
    char loader[COMET_LOADER_STATE_TEXT]; /* comet_loader_state_format */
    uint64_t keys[COMET_CHECKPOINT_KEYS]; /* of random generators */

    comet_checkpoint_blob blobs[COMET_CHECKPOINT_MOST_BLOBS];
    int blob_count;

    int keep_previous; /* 1, set by reading: last.safetensors is damaged; writing replaces it and no other file */
} comet_checkpoint;

/*
 * Writes last.safetensors in `folder`, which is made if it is not there; the former one becomes previous.safetensors.
 * After a failure both are as they were. COMET_ERROR_DIVERGED: a weight, a running statistic or some state is infinite
 * or NaN: such a checkpoint is never written.
 */
comet_status comet_checkpoint_write(const char *folder, const comet_checkpoint *checkpoint,
                                    const comet_allocator *allocator, comet_message *message);

/* 1 if there is something to resume from in `folder`. */
int comet_checkpoint_exists(const char *folder);

/*
 * Reads the newest usable one. The caller sets model, options, parameters, optimiser and state; the rest is filled in,
 * blobs with memory for comet_checkpoint_release. If the newest is damaged, or holds values that are not finite, the
 * one before it is taken, and `note` has a line about it; else it is empty. COMET_ERROR_MISMATCH, with a line, for one
 * of another network, optimiser or options; COMET_ERROR_VERSION;
 * COMET_ERROR_CORRUPT or COMET_ERROR_CHECKSUM where none is whole; COMET_ERROR_IO where there is none. After a failure
 * values and state are undefined.
 */
comet_status comet_checkpoint_read(const char *folder, comet_checkpoint *checkpoint, const comet_allocator *allocator,
                                   comet_message *note, comet_message *message);

/*
 * One blob of the newest file in `folder`, before there is anything to read all of it into: a text, to which a zero is
 * added. *text is NULL where there is none. It may be damaged: that shows when the whole is read. To be given back with
 * comet_memory_give, *bytes with the zero. COMET_ERROR_MEMORY only.
 */
comet_status comet_checkpoint_peek(const char *folder, const char *blob, const comet_allocator *allocator, char **text,
                                   size_t *bytes);

/* NULL if there is none of that name. */
const comet_checkpoint_blob *comet_checkpoint_find(const comet_checkpoint *checkpoint, const char *name);

/* The memory of blobs that were read. */
void comet_checkpoint_release(comet_checkpoint *checkpoint, const comet_allocator *allocator);

#endif
