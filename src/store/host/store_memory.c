/* SPDX-License-Identifier: Apache-2.0 */
/* Where the store's memory comes from: the caller's allocator, or pages for streams and the C library for the rest. */
#include <string.h>

#include "base/bits.h"
#include "base/memory.h"
#include "base/pages.h"
#include "store/host/store.h"

void *comet_store_take_locked(comet_store *s, size_t bytes) {
    void *memory = comet_memory_take(s->allocator, bytes);
    if (memory)
        s->stats.overhead_bytes += comet_align_up(bytes, COMET_ALIGNMENT);
    return memory;
}

void comet_store_give_locked(comet_store *s, void *memory, size_t bytes) {
    if (!memory)
        return;
    s->stats.overhead_bytes -= comet_align_up(bytes, COMET_ALIGNMENT);
    comet_memory_give(s->allocator, memory, bytes);
}

size_t comet_store_round(const comet_store *s, size_t bytes) {
    return s->allocator ? comet_align_up(bytes, COMET_ALIGNMENT) : comet_pages_round(bytes);
}

void *comet_store_block_take(const comet_store *s, size_t bytes, int sparse) {
    return s->allocator ? comet_memory_take(s->allocator, bytes) : comet_pages_take(comet_pages_round(bytes), sparse);
}

void comet_store_block_give(const comet_store *s, void *memory, size_t bytes) {
    if (s->allocator)
        comet_memory_give(s->allocator, memory, bytes);
    else
        comet_pages_give(memory, comet_pages_round(bytes));
}

int comet_store_fit_copies(const comet_store *s) {
    return s->allocator != NULL;
}

void *comet_store_block_fit(const comet_store *s, void *memory, size_t bytes, size_t used) {
    if (comet_store_round(s, bytes) == comet_store_round(s, used))
        return memory;
    if (!s->allocator) {
        comet_pages_trim(memory, comet_pages_round(bytes), comet_pages_round(used));
        return memory;
    }
    void *block = comet_memory_take(s->allocator, used);
    if (block) {
        memcpy(block, memory, used);
        comet_memory_give(s->allocator, memory, bytes);
    }
    return block;
}
