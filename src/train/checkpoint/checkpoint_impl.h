/* SPDX-License-Identifier: Apache-2.0 */
/* Between writing and reading checkpoints: names, texts and the checksum. */
#ifndef COMET_TRAIN_CHECKPOINT_IMPL_H
#define COMET_TRAIN_CHECKPOINT_IMPL_H

#include "data/files/safetensors.h"
#include "train/checkpoint/checkpoint.h"

#define COMET_CHECKPOINT_VERSION "1"

/* Entries of a file's metadata. */
enum {
    COMET_TEXT_FORMAT, /* "pt", which readers of the format's own library look for */
    COMET_TEXT_VERSION,
    COMET_TEXT_MODEL,
    COMET_TEXT_OPTIONS,
    COMET_TEXT_OPTIMISER,
    COMET_TEXT_STEP,
    COMET_TEXT_EPOCH,
    COMET_TEXT_LOADER,
    COMET_TEXT_KEYS,
    COMET_TEXT_CHECKSUM, /* of all else; the last */
    COMET_TEXTS
};

extern const char *const comet_checkpoint_text_keys[COMET_TEXTS];

typedef struct comet_checkpoint_name {
    char text[80];
} comet_checkpoint_name;

comet_checkpoint_name comet_checkpoint_array_name(const comet_optimiser *optimiser, int array);
#define COMET_BLOB_TENSOR "comet.blob."
comet_checkpoint_name comet_checkpoint_blob_tensor(const char *blob);

/*
 * A blob that is a text, with a zero behind it; *text is NULL where there is none, or it cannot be read. To be given
 * back with comet_memory_give, *bytes with the zero. COMET_ERROR_MEMORY only.
 */
comet_status comet_checkpoint_take_text(const comet_safetensors *file, const char *blob,
                                        const comet_allocator *allocator, char **text, size_t *bytes);

/* "sgd 1", "adamw 2": the kind of the optimiser's state. */
comet_checkpoint_name comet_checkpoint_optimiser_text(const comet_optimiser *optimiser);

/* What a checkpoint is of. */
typedef struct comet_checkpoint_texts {
    const char *model, *optimiser, *options; /* ours: options "" or NULL: anything */
} comet_checkpoint_texts;

/* 0 if they are the same; else 1, and `list` says in what they differ: "--lr was 0.1, now 0.05; --batch was ...". */
int comet_checkpoint_differences(const comet_checkpoint_texts *its, const comet_checkpoint_texts *ours,
                                 comet_message *list);

/* Files in a folder, the newest first: new.safetensors is last.safetensors that has not got its name yet. */
enum { COMET_CHECKPOINT_NEW, COMET_CHECKPOINT_LAST, COMET_CHECKPOINT_PREVIOUS, COMET_CHECKPOINT_FILES };

typedef struct comet_checkpoint_path {
    char text[1024];
} comet_checkpoint_path;

/* COMET_ERROR_ARGUMENT if the folder's name is too long. */
comet_status comet_checkpoint_path_of(const char *folder, int file, comet_checkpoint_path *path,
                                      comet_message *message);

/* Whether a file, whatever it is of, is as it was written, and finite: *whole. COMET_ERROR_MEMORY only. */
comet_status comet_checkpoint_is_whole(const char *path, const comet_allocator *allocator, int *whole);

/*
 * The checksum is the sum of the CRCs of all texts and tensors, each with its name: it does not depend on their order,
 * and a change in one of them always shows.
 */
uint32_t comet_checkpoint_sum_text(const char *key, const char *value);
uint32_t comet_checkpoint_sum_data(const char *name, const void *data, size_t bytes);

/* The same of values in a space, added to *sum. */
comet_status comet_checkpoint_sum_values(const char *name, comet_space *space, const float *values, int64_t count,
                                         uint32_t *sum);

#endif
