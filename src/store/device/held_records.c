/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the device store, and the records to which the device writes their results. Both are used again and again:
 * nothing is allocated once a training has found its size.
 */
#include <string.h>

#include "base/memory.h"
#include "store/device/device_store_impl.h"

/* ---- entries ---- */

static comet_status add_block(comet_device_store *s) {
    held_block *block = comet_memory_take(s->allocator, sizeof *block);
    if (!block)
        return COMET_ERROR_MEMORY;
    memset(block, 0, sizeof *block);
    block->next = s->blocks;
    s->blocks = block;
    for (int i = HELD_BLOCK_ENTRIES; i-- > 0;)
        comet_held_entry_drop(s, &block->entries[i]);
    return COMET_OK;
}

comet_status comet_held_entry_new(comet_device_store *s, comet_device_entry **entry) {
    if (!s->free_entries && add_block(s) != COMET_OK)
        return COMET_ERROR_MEMORY;
    comet_device_entry *e = s->free_entries;
    s->free_entries = e->next;
    memset(e, 0, sizeof *e);
    e->stage = HELD_OPEN;
    e->references = 1;
    *entry = e;
    return COMET_OK;
}

void comet_held_entry_drop(comet_device_store *s, comet_device_entry *e) {
    e->stage = HELD_FREE;
    e->next = s->free_entries;
    s->free_entries = e;
}

/* ---- records ---- */

enum {
    RESULT_WORDS = sizeof(comet_cuda_result) / 8,
    WORD_OF_RANGE = offsetof(comet_cuda_result, codec.stats.min) / 8,
    WORD_OF_STATUS = offsetof(comet_cuda_result, status) / 8
};

_Static_assert(sizeof(comet_cuda_result) % 8 == 0, "a result is made of words");
_Static_assert(offsetof(comet_cuda_result, codec.stats.max) == 8 * WORD_OF_RANGE + 4, "min and max share a word");
_Static_assert(offsetof(comet_cuda_result, reserved) == 8 * WORD_OF_STATUS + 4, "so do status and reserved");

#define NOTHING UINT64_MAX

/* Room in both lists for every record there will be, so that giving one back cannot fail. */
static comet_status reserve_lists(comet_device_store *s, size_t records) {
    void *list = comet_array_reserve(s->allocator, s->free_records, s->free_count, records, &s->free_room,
                                     sizeof *s->free_records);
    if (!list)
        return COMET_ERROR_MEMORY;
    s->free_records = list;
    list = comet_array_reserve(s->allocator, s->late_records, s->late_count, records, &s->late_room,
                               sizeof *s->late_records);
    if (!list)
        return COMET_ERROR_MEMORY;
    s->late_records = list;
    return COMET_OK;
}

comet_status comet_held_pool_new(comet_device_store *s) {
    if (reserve_lists(s, s->records + HELD_POOL_RECORDS) != COMET_OK)
        return COMET_ERROR_MEMORY;
    held_pool *pool = comet_memory_take(s->allocator, sizeof *pool);
    if (!pool)
        return COMET_ERROR_MEMORY;
    void *memory = NULL;
    comet_status status = s->driver->take(s->driver, (size_t)HELD_POOL_RECORDS * sizeof(held_record), &memory);
    if (status != COMET_OK) {
        comet_memory_give(s->allocator, pool, sizeof *pool);
        return status;
    }
    *pool = (held_pool){.next = s->pools, .records = memory};
    s->pools = pool;
    s->records += HELD_POOL_RECORDS;
    for (int i = HELD_POOL_RECORDS; i-- > 0;)
        s->free_records[s->free_count++] = &pool->records[i];
    return COMET_OK;
}

comet_status comet_held_record_new(comet_device_store *s, held_record **record) {
    if (s->free_count == 0)
        comet_held_records_reap(s);
    comet_status status = s->free_count ? COMET_OK : comet_held_pool_new(s);
    if (status != COMET_OK)
        return status;
    *record = s->free_records[--s->free_count];
    comet_held_record_clear(*record);
    return COMET_OK;
}

void comet_held_record_clear(held_record *record) {
    for (int i = 0; i < RESULT_WORDS; i++)
        atomic_store_explicit(&record->words[i], NOTHING, memory_order_relaxed);
}

/* Words are stored whole; two of them hold two numbers each, which may come one after the other. */
static int has_arrived(int i, uint64_t word) {
    int halves = i == WORD_OF_RANGE || i == WORD_OF_STATUS;
    return halves ? (uint32_t)word != UINT32_MAX && word >> 32 != UINT32_MAX : word != NOTHING;
}

int comet_held_record_read(const held_record *record, comet_cuda_result *result) {
    uint64_t words[RESULT_WORDS];
    for (int i = RESULT_WORDS; i-- > 0;) { /* the last ones are written last, most of the time */
        words[i] = atomic_load_explicit(&record->words[i], memory_order_acquire);
        if (!has_arrived(i, words[i]))
            return 0;
    }
    if (result)
        memcpy(result, words, sizeof *result);
    return 1;
}

void comet_held_record_drop(comet_device_store *s, held_record *record, int written) {
    if (written)
        s->free_records[s->free_count++] = record;
    else
        s->late_records[s->late_count++] = record;
}

void comet_held_records_reap(comet_device_store *s) {
    size_t kept = 0;
    for (size_t i = 0; i < s->late_count; i++) {
        held_record *record = s->late_records[i];
        if (comet_held_record_read(record, NULL))
            s->free_records[s->free_count++] = record;
        else
            s->late_records[kept++] = record;
    }
    s->late_count = kept;
}
