/* SPDX-License-Identifier: Apache-2.0 */
/* What the tensors of a file must be to each other: named differently, and its data exactly once. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "data/files/safetensors_impl.h"

static int by_offset(const void *a, const void *b) {
    const comet_safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const comet_safetensors_entry *)a)->name, ((const comet_safetensors_entry *)b)->name);
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const comet_safetensors_text *)a)->key, ((const comet_safetensors_text *)b)->key);
}

static comet_status check_places(const comet_safetensors_index *index, uint64_t bytes, comet_message *message) {
    uint64_t end = 0, size;
    for (size_t i = 0; i < index->count; i++) {
        const comet_safetensors_entry *entry = &index->entries[i];
        if (!comet_safetensors_size(entry, &size) || size != entry->bytes)
            return comet_message_set(message, COMET_ERROR_CORRUPT, "tensor '%s' has not the size of its shape",
                                     entry->name);
        if (entry->offset != end)
            return comet_message_set(message, COMET_ERROR_CORRUPT, "tensor '%s' %s", entry->name,
                                     entry->offset < end ? "overlaps another one"
                                                         : "does not follow the one before it");
        if (size > bytes - end)
            return comet_message_set(message, COMET_ERROR_CORRUPT, "it is cut short: tensor '%s' is not all there",
                                     entry->name);
        end += size;
    }
    if (end != bytes)
        return comet_message_set(message, COMET_ERROR_CORRUPT, "it has %llu bytes that belong to no tensor",
                                 (unsigned long long)(bytes - end));
    return COMET_OK;
}

comet_status comet_safetensors_check(comet_safetensors_index *index, uint64_t bytes, comet_message *message) {
    if (index->count)
        qsort(index->entries, index->count, sizeof *index->entries, by_offset);
    COMET_TRY(check_places(index, bytes, message));
    if (index->count)
        qsort(index->entries, index->count, sizeof *index->entries, by_name);
    for (size_t i = 1; i < index->count; i++)
        if (by_name(&index->entries[i - 1], &index->entries[i]) == 0)
            return comet_message_set(message, COMET_ERROR_CORRUPT, "it has two tensors '%s'", index->entries[i].name);
    if (index->metadata_count)
        qsort(index->metadata, index->metadata_count, sizeof *index->metadata, by_key);
    for (size_t i = 1; i < index->metadata_count; i++)
        if (by_key(&index->metadata[i - 1], &index->metadata[i]) == 0)
            return comet_message_set(message, COMET_ERROR_CORRUPT, "its metadata has '%s' twice",
                                     index->metadata[i].key);
    return COMET_OK;
}
