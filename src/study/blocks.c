/* SPDX-License-Identifier: Apache-2.0 */
#include "study/blocks.h"

#include <string.h>

#include "base/memory.h"

void *comet_blocks_take(comet_blocks *b, size_t count, size_t size) {
    comet_block *list = comet_array_reserve(b->allocator, b->list, b->count, b->count + 1, &b->room, sizeof *list);
    if (!list)
        return NULL;
    b->list = list;
    void *memory = comet_memory_take(b->allocator, count * size);
    if (!memory)
        return NULL;
    memset(memory, 0, count * size);
    list[b->count++] = (comet_block){memory, count * size};
    return memory;
}

void comet_blocks_give(comet_blocks *b) {
    for (size_t i = 0; i < b->count; i++)
        comet_memory_give(b->allocator, b->list[i].memory, b->list[i].bytes);
    comet_memory_give(b->allocator, b->list, b->room * sizeof *b->list);
    *b = (comet_blocks){.allocator = b->allocator};
}
