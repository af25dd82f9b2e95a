/* SPDX-License-Identifier: Apache-2.0 */
/* Names, files and checksums of checkpoints. */
#include "train/checkpoint/checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/checkpoint/checkpoint_impl.h"

const char *const comet_checkpoint_text_keys[COMET_TEXTS] = {
    "format",     "comet.checkpoint", "comet.model",  "comet.options", "comet.optimiser",
    "comet.step", "comet.epoch",      "comet.loader", "comet.keys",    "comet.checksum"};

comet_checkpoint_name comet_checkpoint_array_name(const comet_optimiser *optimiser, int array) {
    comet_checkpoint_name name;
    snprintf(name.text, sizeof name.text, "comet.optimiser.%s", comet_optimiser_array_name(optimiser, array));
    return name;
}

comet_checkpoint_name comet_checkpoint_blob_tensor(const char *blob) {
    comet_checkpoint_name name;
    snprintf(name.text, sizeof name.text, COMET_BLOB_TENSOR "%.*s", COMET_CHECKPOINT_BLOB_NAME - 1, blob);
    return name;
}

comet_checkpoint_name comet_checkpoint_optimiser_text(const comet_optimiser *optimiser) {
    comet_checkpoint_name name;
    snprintf(name.text, sizeof name.text, "%s %d", optimiser->kind == COMET_SGD ? "sgd" : "adamw",
             comet_optimiser_arrays(optimiser));
    return name;
}

comet_status comet_checkpoint_path_of(const char *folder, int file, comet_checkpoint_path *path,
                                      comet_message *message) {
    static const char *const names[COMET_CHECKPOINT_FILES] = {"new", "last", "previous"};
    int length = snprintf(path->text, sizeof path->text, "%s/%s.safetensors", folder, names[file]);
    if (length >= (int)sizeof path->text)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "the name of the checkpoints' folder is too long");
    return COMET_OK;
}

int comet_checkpoint_exists(const char *folder) {
    comet_checkpoint_path path;
    for (int file = 0; file < COMET_CHECKPOINT_FILES; file++)
        if (comet_checkpoint_path_of(folder, file, &path, NULL) == COMET_OK && access(path.text, F_OK) == 0)
            return 1;
    return 0;
}

/* ---- checksums ---- */

uint32_t comet_checkpoint_sum_data(const char *name, const void *data, size_t bytes) {
    uLong crc = crc32(crc32(0, NULL, 0), (const Bytef *)name, (uInt)strlen(name) + 1);
    return (uint32_t)(bytes ? crc32_z(crc, data, bytes) : crc);
}

comet_status comet_checkpoint_sum_values(const char *name, comet_space *space, const float *values, int64_t count,
                                         uint32_t *sum) {
    enum { PIECE = 1 << 12 };
    float piece[PIECE];
    uLong crc = comet_checkpoint_sum_data(name, NULL, 0);
    for (int64_t at = 0; at < count; at += PIECE) {
        const size_t bytes = (size_t)(count - at < PIECE ? count - at : PIECE) * sizeof *piece;
        COMET_TRY(space->read(space, piece, values + at, bytes));
        crc = crc32_z(crc, (const Bytef *)piece, bytes);
    }
    *sum += (uint32_t)crc;
    return COMET_OK;
}

uint32_t comet_checkpoint_sum_text(const char *key, const char *value) {
    return comet_checkpoint_sum_data(key, value, strlen(value));
}

/* ---- blobs ---- */

const comet_checkpoint_blob *comet_checkpoint_find(const comet_checkpoint *checkpoint, const char *name) {
    for (int i = 0; i < checkpoint->blob_count; i++)
        if (strcmp(checkpoint->blobs[i].name, name) == 0)
            return &checkpoint->blobs[i];
    return NULL;
}

void comet_checkpoint_release(comet_checkpoint *checkpoint, const comet_allocator *allocator) {
    for (int i = 0; i < checkpoint->blob_count; i++)
        comet_memory_give(allocator, checkpoint->blobs[i].data, checkpoint->blobs[i].bytes);
    checkpoint->blob_count = 0;
}
