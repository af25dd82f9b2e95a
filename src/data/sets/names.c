/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { FIRST_CAPACITY = 4096 };

comet_status comet_names_add(comet_names *names, const char *name, comet_message *message) {
    size_t bytes = strlen(name) + 1;
    size_t needed = names->used + bytes, wanted = needed > FIRST_CAPACITY ? needed : FIRST_CAPACITY;
    char *text = comet_array_reserve(names->allocator, names->text, names->used, wanted, &names->capacity, 1);
    if (!text)
        return comet_message_memory(message);
    names->text = text;
    memcpy(names->text + names->used, name, bytes);
    names->used += bytes;
    names->count++;
    return COMET_OK;
}

static int compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

comet_status comet_names_sort(comet_names *names, comet_message *message) {
    names->items = comet_memory_take(names->allocator, names->count * sizeof *names->items);
    if (!names->items)
        return comet_message_memory(message);
    const char *at = names->text;
    for (size_t i = 0; i < names->count; i++, at += strlen(at) + 1)
        names->items[i] = at;
    if (names->count)
        qsort(names->items, names->count, sizeof *names->items, compare);
    return COMET_OK;
}

long long comet_names_find(const comet_names *names, const char *name, size_t length) {
    size_t low = 0, high = names->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *item = names->items[middle];
        int order = strncmp(item, name, length);
        if (order == 0 && item[length] == '\0')
            return (long long)middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle; /* greater, or longer than the name */
    }
    return -1;
}

size_t comet_names_bytes(const comet_names *names) {
    return names->capacity + (names->items ? names->count * sizeof *names->items : 0);
}

void comet_names_free(comet_names *names) {
    comet_memory_give(names->allocator, names->text, names->capacity);
    comet_memory_give(names->allocator, names->items, names->count * sizeof *names->items);
    *names = (comet_names){.allocator = names->allocator};
}
