/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of .safetensors files: the first byte says how much data follows the header, the rest is the header. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/files/safetensors_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int condition) {
    if (!condition)
        abort();
}

/* What was accepted is as the format demands it: places inside the data, in the order of names, none twice. */
static void check(const comet_safetensors_index *index, uint64_t bytes) {
    uint64_t total = 0;
    for (size_t i = 0; i < index->count; i++) {
        const comet_safetensors_entry *entry = &index->entries[i];
        uint64_t size;
        expect(comet_safetensors_size(entry, &size) && size == entry->bytes);
        expect(entry->offset <= bytes && size <= bytes - entry->offset);
        expect(i == 0 || strcmp(index->entries[i - 1].name, entry->name) < 0);
        total += size;
    }
    expect(total == bytes);
    for (size_t i = 1; i < index->metadata_count; i++)
        expect(strcmp(index->metadata[i - 1].key, index->metadata[i].key) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    comet_safetensors_index index = {0};
    comet_message message;
    if (size < 1)
        return 0;
    char *text = malloc(size); /* exactly as long as it is, for the sanitizers */
    expect(text != NULL);
    memcpy(text, data + 1, size - 1);
    uint64_t bytes = data[0];
    if (comet_safetensors_parse(text, size - 1, NULL, &index, &message) == COMET_OK &&
        comet_safetensors_check(&index, bytes, &message) == COMET_OK)
        check(&index, bytes);
    comet_safetensors_index_free(&index, NULL);
    free(text);
    return 0;
}
