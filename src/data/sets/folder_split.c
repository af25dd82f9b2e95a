/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sets/folder_split.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/memory.h"

enum { ONE_OF = 5 };

typedef struct marked {
    const char *name;
    uint32_t sum;
    int evaluates;
} marked;

static int by_sum(const void *a, const void *b) {
    const marked *x = a, *y = b;
    return x->sum != y->sum ? (x->sum > y->sum) - (x->sum < y->sum) : strcmp(x->name, y->name);
}

static size_t class_length(const char *name) {
    return strcspn(name, "/");
}

/* The end of the class that begins at `first`. */
static size_t class_end(const comet_names *names, size_t first) {
    const size_t length = class_length(names->items[first]);
    size_t end = first;
    while (end < names->count && class_length(names->items[end]) == length &&
           memcmp(names->items[end], names->items[first], length) == 0)
        end++;
    return end;
}

static comet_status mark_class(const comet_names *names, size_t first, size_t end, marked *marks,
                               comet_message *message) {
    const size_t count = end - first, kept = count / ONE_OF > 0 ? count / ONE_OF : 1;
    if (count < 2)
        return comet_message_set(message, COMET_ERROR_CORRUPT,
                                 "'%.200s' is the only image of its class: there is none to evaluate with",
                                 names->items[first]);
    for (size_t i = first; i < end; i++) {
        const char *name = names->items[i];
        marks[i] = (marked){.name = name, .sum = (uint32_t)crc32_z(0, (const Bytef *)name, strlen(name))};
    }
    qsort(marks + first, count, sizeof *marks, by_sum);
    for (size_t i = 0; i < kept; i++)
        marks[first + i].evaluates = 1;
    return COMET_OK;
}

static comet_status copy(const marked *marks, size_t count, int evaluates, comet_names *to, comet_message *message) {
    comet_status status = COMET_OK;
    for (size_t i = 0; i < count && status == COMET_OK; i++)
        if (marks[i].evaluates == evaluates)
            status = comet_names_add(to, marks[i].name, message);
    return status == COMET_OK ? comet_names_sort(to, message) : status;
}

static comet_status split(const comet_names *all, marked *marks, comet_names *train, comet_names *evaluate,
                          comet_message *message) {
    comet_status status = COMET_OK;
    for (size_t at = 0, end; at < all->count && status == COMET_OK; at = end) {
        end = class_end(all, at);
        status = mark_class(all, at, end, marks, message);
    }
    if (status == COMET_OK)
        status = copy(marks, all->count, 0, train, message);
    return status == COMET_OK ? copy(marks, all->count, 1, evaluate, message) : status;
}

comet_status comet_folder_split(comet_names *train, comet_names *evaluate, comet_message *message) {
    comet_names rest = {.allocator = train->allocator};
    marked *marks = comet_memory_take(train->allocator, train->count * sizeof *marks);
    if (!marks)
        return comet_message_memory(message);
    comet_status status = split(train, marks, &rest, evaluate, message);
    comet_memory_give(train->allocator, marks, train->count * sizeof *marks);
    if (status != COMET_OK) {
        comet_names_free(&rest);
        return status;
    }
    comet_names_free(train);
    *train = rest;
    return COMET_OK;
}
