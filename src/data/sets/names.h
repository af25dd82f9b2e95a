/* SPDX-License-Identifier: Apache-2.0 */
/* A growing list of strings, sorted when it is complete. */
#ifndef COMET_DATA_NAMES_H
#define COMET_DATA_NAMES_H

#include <stddef.h>

#include "base/message.h"
#include "comet/allocator.h"

typedef struct comet_names {
    const comet_allocator *allocator;
    char *text; /* the strings, one behind the other */
    size_t used, capacity;
    size_t count;
    const char **items; /* after comet_names_sort */
} comet_names;

/* Before anything else: *names = (comet_names){.allocator = ...}. */
comet_status comet_names_add(comet_names *names, const char *name, comet_message *message);

/* Makes `items`, in the order of their bytes. Nothing may be added any more. */
comet_status comet_names_sort(comet_names *names, comet_message *message);

/* The position of the item that `name`, `length` bytes of it, spells; -1 if there is none. */
long long comet_names_find(const comet_names *names, const char *name, size_t length);

/* Bytes held. */
size_t comet_names_bytes(const comet_names *names);
void comet_names_free(comet_names *names);

#endif
