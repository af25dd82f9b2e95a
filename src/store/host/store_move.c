/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries moved to the file later, and read back ahead of their load. A thread of the store's takes them from a queue,
 * in the order of the hints; when there is no room for the next it waits until there is.
 */
#include "base/fail.h"
#include "store/host/store.h"

/* ---- to the file ---- */

static comet_status is_viewed(void) {
    return comet_fail(COMET_ERROR_UNSUPPORTED, "the entry is being viewed");
}

static comet_status may_move_locked(const comet_store *s, const store_entry *entry) {
    if (s->spill.file < 0)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "the store has no spill_directory");
    return entry->viewed ? is_viewed() : COMET_OK;
}

/* The file has it: the memory goes, now or when the calls that use it have ended. */
static void moved_locked(comet_store *s, store_entry *entry) {
    comet_store_bytes bytes = entry->bytes;
    bytes.spilled = bytes.stored;
    comet_store_count_locked(s, entry, bytes);
    entry->need = comet_store_need(s, entry, 1, (size_t)bytes.stored);
    entry->spare = entry->unwanted = 1;
    s->spare += (size_t)bytes.resident;
    s->stats.spills++;
    entry->account->figures.spills++;
}

static comet_status move_locked(comet_store *s, store_entry *entry) {
    COMET_TRY(may_move_locked(s, entry));
    store_source source = comet_store_source_locked(entry);
    entry->moving = 1;
    entry->pins++;
    pthread_mutex_unlock(&s->lock);
    comet_status status = comet_store_offload(s, entry, NULL, source.memory, source.stored);
    pthread_mutex_lock(&s->lock);
    entry->moving = 0;
    if (status == COMET_OK && entry->viewed) {
        comet_store_extent_free_locked(s, entry);
        status = is_viewed();
    }
    if (status == COMET_OK)
        moved_locked(s, entry);
    pthread_cond_broadcast(&s->changed);
    if (status == COMET_OK && entry->uses == 0)
        comet_store_drop_memory_locked(s, entry);
    comet_store_unpin_locked(s, entry);
    return status;
}

comet_status comet_store_spill(comet_store *store, comet_store_handle handle) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    pthread_mutex_lock(&store->lock);
    store_entry *entry = comet_store_find_locked(store, handle);
    while (entry && entry->moving) {
        pthread_cond_wait(&store->changed, &store->lock);
        entry = comet_store_find_locked(store, handle);
    }
    comet_status status = entry ? COMET_OK : comet_store_unknown();
    if (entry && entry->memory && !entry->extent)
        status = move_locked(store, entry);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* An entry that may go, the first that was saved; *busy: there are some on their way already. */
static store_entry *oldest_locked(const comet_store *s, int *busy) {
    store_entry *oldest = NULL;
    *busy = 0;
    for (uint32_t i = 0; i < s->slots; i++) {
        store_entry *e = s->entries[i];
        if (!e || e->state != ENTRY_READY || !e->memory || e->spare || e->viewed)
            continue;
        if (e->moving)
            *busy = 1;
        else if (!oldest || e->handle >> STORE_SLOT_BITS < oldest->handle >> STORE_SLOT_BITS)
            oldest = e;
    }
    return oldest;
}

comet_status comet_store_make_room(comet_store *s, size_t bytes) {
    comet_status status = s->spill.file < 0 ? COMET_ERROR_CAPACITY : COMET_OK;
    size_t freed = 0;
    int busy;
    pthread_mutex_lock(&s->lock);
    while (status == COMET_OK && freed < bytes) {
        store_entry *oldest = oldest_locked(s, &busy);
        if (oldest) {
            size_t resident = (size_t)oldest->bytes.resident;
            status = move_locked(s, oldest);
            freed += status == COMET_OK ? resident : 0;
            s->stats.overflows += status == COMET_OK;
            if (status == COMET_ERROR_UNSUPPORTED) /* viewed meanwhile: another then */
                status = COMET_OK;
        } else if (busy && !freed) {
            pthread_cond_wait(&s->changed, &s->lock);
            freed = bytes; /* by somebody else: worth another try */
        } else {
            status = freed ? COMET_OK : COMET_ERROR_CAPACITY;
            break;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- and back ---- */

void comet_store_unqueue_locked(comet_store *s, store_entry *entry) {
    store_entry **at = &s->wanted;
    while (entry->queued && *at) {
        if (*at != entry) {
            at = &(*at)->next_wanted;
            continue;
        }
        *at = entry->next_wanted;
        if (!*at)
            s->wanted_end = at;
        entry->queued = 0;
    }
}

static int may_read_locked(const store_entry *entry) {
    return entry->extent && !entry->memory && !entry->reading && !entry->dropping;
}

/* The first of the queue, if there is room for it; entries that need not be read leave the queue. */
static store_entry *next_locked(comet_store *s) {
    while (s->wanted && !may_read_locked(s->wanted))
        comet_store_unqueue_locked(s, s->wanted);
    store_entry *entry = s->wanted;
    return entry && s->limit - s->held >= comet_store_round(s, (size_t)entry->bytes.stored) ? entry : NULL;
}

/* The copy counts as the entry's, to be dropped when room is needed. */
static void keep_ahead_locked(comet_store *s, store_entry *entry, store_flight *flight, void *block, size_t resident) {
    comet_store_bytes bytes = entry->bytes;
    bytes.resident = resident;
    entry->memory = block;
    entry->spare = 1;
    entry->ahead = ++s->ahead;
    s->spare += resident;
    s->stats.prefetched++;
    comet_store_scratch_locked(s, flight, 0);
    comet_store_settle_locked(flight, resident);
    comet_store_count_locked(s, entry, bytes);
}

static void read_locked(comet_store *s, store_entry *entry) {
    store_source source = comet_store_source_locked(entry);
    size_t resident = comet_store_round(s, source.stored);
    store_flight flight;
    comet_store_unqueue_locked(s, entry);
    if (comet_store_depart_locked(s, resident, resident, &flight) != COMET_OK)
        return;
    entry->reading = 1;
    entry->pins++;
    comet_store_scratch_locked(s, &flight, resident);
    pthread_mutex_unlock(&s->lock);
    void *block = comet_store_block_take(s, source.stored, 0);
    comet_status status = block ? comet_store_fetch(s, &source, block) : COMET_ERROR_MEMORY;
    if (status != COMET_OK) /* the load will say so */
        comet_store_block_give(s, block, source.stored);
    pthread_mutex_lock(&s->lock);
    entry->reading = 0;
    if (status == COMET_OK)
        keep_ahead_locked(s, entry, &flight, block, resident);
    comet_store_arrive_locked(s, &flight);
    comet_store_unpin_locked(s, entry);
}

static void *reader_main(void *argument) {
    comet_store *s = argument;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        store_entry *entry = next_locked(s);
        if (entry)
            read_locked(s, entry);
        else
            pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

comet_status comet_store_reader_start(comet_store *s) {
    s->wanted_end = &s->wanted;
    if (!s->background || s->spill.file < 0)
        s->background = 0;
    else if (pthread_create(&s->reader, NULL, reader_main, s) != 0)
        return COMET_ERROR_MEMORY;
    return COMET_OK;
}

void comet_store_reader_stop(comet_store *s) {
    if (!s->background)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->reader, NULL);
}

static void enqueue_locked(comet_store *s, store_entry *entry) {
    entry->queued = 1;
    entry->next_wanted = NULL;
    *s->wanted_end = entry;
    s->wanted_end = &entry->next_wanted;
    pthread_cond_broadcast(&s->changed);
}

comet_status comet_store_prefetch(comet_store *store, comet_store_handle handle) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    pthread_mutex_lock(&store->lock);
    store_entry *entry = comet_store_find_locked(store, handle);
    if (entry && may_read_locked(entry) && !entry->queued) {
        if (store->background)
            enqueue_locked(store, entry);
        else
            comet_spill_read_ahead(&store->spill, entry->extent);
    }
    pthread_mutex_unlock(&store->lock);
    return entry ? COMET_OK : comet_store_unknown();
}
