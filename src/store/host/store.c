/* SPDX-License-Identifier: Apache-2.0 */
/* The store itself: made and freed, and the holds on its entries. */
#include "store/host/store.h"

#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/sized.h"

static comet_store *allocate(const comet_allocator *allocator) {
    comet_store *s = comet_memory_take(allocator, sizeof *s);
    if (!s)
        return NULL;
    *s = (comet_store){.spill = {.file = -1}};
    s->allocator = comet_memory_hold(&s->allocator_copy, allocator);
    s->stats.overhead_bytes = comet_align_up(sizeof *s, COMET_ALIGNMENT);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    return s;
}

static void deallocate(comet_store *s) {
    comet_spill_close(&s->spill);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    comet_memory_give(s->allocator, s, sizeof *s);
}

static comet_status start(comet_store *s, const store_io *io, const comet_store_options *o) {
    s->threads = o->threads;
    s->limit = o->limit_bytes ? o->limit_bytes : SIZE_MAX;
    s->scratch_share = o->scratch_bytes;
    s->spill_checksum = o->spill_checksum;
    s->background = o->background;
    comet_status status = COMET_OK;
    if (o->spill_directory)
        status = comet_spill_open(&s->spill, io, o->spill_directory, o->spill_limit_bytes);
    return status == COMET_OK ? comet_store_reader_start(s) : status;
}

comet_status comet_store_new_with(const store_io *io, const comet_store_options *options, comet_store **store) {
    static const comet_store_options defaults = COMET_STORE_OPTIONS_INIT;
    comet_store_options o;
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_TRY(comet_sized_read(&o, sizeof o, options, &defaults, "options"));
    COMET_REQUIRE(o.scratch_bytes == 0 || o.scratch_bytes < o.limit_bytes,
                  "options->scratch_bytes is %zu: it must be less than limit_bytes, %zu", o.scratch_bytes,
                  o.limit_bytes);
    comet_store *s = allocate(o.allocator);
    if (!s)
        return COMET_ERROR_MEMORY;
    comet_status status = start(s, io, &o);
    if (status == COMET_OK)
        *store = s;
    else
        deallocate(s);
    return status;
}

comet_status comet_store_new(const comet_store_options *options, comet_store **store) {
    return comet_store_new_with(&comet_store_io_system, options, store);
}

/* Nobody holds it any more. It goes now, or with the last load that the caller should have waited for. */
static void leave_locked(comet_store *s, store_entry *entry) {
    entry->state = ENTRY_LEAVING;
    entry->pins++;
    comet_store_unqueue_locked(s, entry);
    s->flights++; /* its memory is on its way out: worth waiting for */
    while (entry->reading)
        pthread_cond_wait(&s->changed, &s->lock);
    s->flights--;
    pthread_cond_broadcast(&s->changed);
    comet_store_unpin_locked(s, entry);
}

void comet_store_free(comet_store *store) {
    if (!store)
        return;
    comet_store_reader_stop(store);
    pthread_mutex_lock(&store->lock);
    for (uint32_t i = 0; i < store->slots; i++) /* a callback may release others */
        if (store->entries[i])
            leave_locked(store, store->entries[i]);
    comet_store_accounts_free_locked(store);
    comet_store_give_locked(store, store->entries, store->slots * sizeof *store->entries);
    pthread_mutex_unlock(&store->lock);
    deallocate(store);
}

comet_status comet_store_share(comet_store *store, comet_store_handle handle) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    pthread_mutex_lock(&store->lock);
    store_entry *entry = comet_store_find_locked(store, handle);
    if (entry)
        entry->holders++;
    pthread_mutex_unlock(&store->lock);
    return entry ? COMET_OK : comet_store_unknown();
}

comet_status comet_store_release(comet_store *store, comet_store_handle handle) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    pthread_mutex_lock(&store->lock);
    store_entry *entry = comet_store_find_locked(store, handle);
    if (entry && --entry->holders == 0)
        leave_locked(store, entry);
    pthread_mutex_unlock(&store->lock);
    return entry ? COMET_OK : comet_store_unknown();
}
