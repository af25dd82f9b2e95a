/* SPDX-License-Identifier: Apache-2.0 */
/* A look into a checkpoint before it is read. */
#include <unistd.h>

#include "base/memory.h"
#include "train/checkpoint/checkpoint_impl.h"

enum { MOST_BYTES = 1 << 24 }; /* a damaged file may say anything */

comet_status comet_checkpoint_take_text(const comet_safetensors *file, const char *blob,
                                        const comet_allocator *allocator, char **text, size_t *bytes) {
    const comet_checkpoint_name name = comet_checkpoint_blob_tensor(blob);
    const comet_safetensors_entry *entry = comet_safetensors_find(file, name.text);
    comet_message unread;
    *text = NULL;
    *bytes = 0;
    if (!entry || entry->type != COMET_SAFETENSORS_U8 || entry->bytes >= MOST_BYTES)
        return COMET_OK;
    *bytes = (size_t)entry->bytes + 1;
    *text = comet_memory_take(allocator, *bytes);
    if (!*text)
        return COMET_ERROR_MEMORY;
    (*text)[entry->bytes] = '\0';
    const comet_status status = comet_safetensors_read(file, entry, 0, entry->bytes, *text, &unread);
    if (status == COMET_OK)
        return COMET_OK;
    comet_memory_give(allocator, *text, *bytes);
    *text = NULL;
    return status == COMET_ERROR_MEMORY ? status : COMET_OK;
}

static comet_status peek_file(const char *path, const char *blob, const comet_allocator *allocator, char **text,
                              size_t *bytes) {
    comet_safetensors *file = NULL;
    comet_message unread;
    comet_status status = comet_safetensors_open(path, allocator, &file, &unread);
    if (status != COMET_OK)
        return status == COMET_ERROR_MEMORY ? status : COMET_OK;
    status = comet_checkpoint_take_text(file, blob, allocator, text, bytes);
    comet_safetensors_close(file);
    return status;
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
