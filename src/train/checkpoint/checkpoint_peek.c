/* SPDX-License-Identifier: Apache-2.0 */
/* A look into a checkpoint before it is read. */
#include <unistd.h>

#include "base/memory.h"
#include "train/checkpoint/checkpoint_impl.h"

enum { MOST_BYTES = 1 << 24 }; /* a damaged file may say anything */

static comet_status peek_file(const char *path, const char *blob, const comet_allocator *allocator, char **text,
                              size_t *bytes) {
    const comet_checkpoint_name name = comet_checkpoint_blob_tensor(blob);
    comet_safetensors *file = NULL;
    comet_message unread;
    comet_status status = comet_safetensors_open(path, allocator, &file, &unread);
    if (status != COMET_OK)
        return status == COMET_ERROR_MEMORY ? status : COMET_OK;
    const comet_safetensors_entry *entry = comet_safetensors_find(file, name.text);
    if (entry && entry->type == COMET_SAFETENSORS_U8 && entry->bytes < MOST_BYTES) {
        *bytes = (size_t)entry->bytes + 1;
        *text = comet_memory_take(allocator, *bytes);
        status = *text ? comet_safetensors_read(file, entry, 0, entry->bytes, *text, &unread) : COMET_ERROR_MEMORY;
        if (status == COMET_OK)
            (*text)[entry->bytes] = '\0';
    }
    comet_safetensors_close(file);
    if (status == COMET_OK || status == COMET_ERROR_MEMORY)
        return status;
    comet_memory_give(allocator, *text, *bytes);
    *text = NULL;
    return COMET_OK;
}

comet_status comet_checkpoint_peek(const char *folder, const char *blob, const comet_allocator *allocator, char **text,
                                   size_t *bytes) {
    comet_message unread;
    *text = NULL;
    *bytes = 0;
    for (int file = 0; file < COMET_CHECKPOINT_FILES; file++) {
        comet_checkpoint_path path;
        if (comet_checkpoint_path_of(folder, file, &path, &unread) == COMET_OK && access(path.text, F_OK) == 0)
            return peek_file(path.text, blob, allocator, text, bytes);
    }
    return COMET_OK;
}
