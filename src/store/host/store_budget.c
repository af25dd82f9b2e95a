/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit. A call takes a reservation once, for everything, and does not wait while it has one; so whoever waits here
 * waits only for calls that end by themselves.
 */
#include "base/fail.h"
#include "store/host/store.h"

/* What was read ahead last is needed last. */
static store_entry *spare_locked(const comet_store *s) {
    store_entry *best = NULL;
    for (uint32_t i = 0; i < s->slots; i++) {
        store_entry *e = s->entries[i];
        if (e && e->state == ENTRY_READY && e->memory && e->spare && !e->taken && !e->uses &&
            (!best || e->ahead > best->ahead))
            best = e;
    }
    return best;
}

comet_status comet_store_over_limit(const comet_store *s) {
    return comet_fail(COMET_ERROR_CAPACITY, "the store's limit_bytes is %zu: %llu more were needed", s->limit,
                      (unsigned long long)s->stats.missing_bytes);
}

comet_status comet_store_depart_locked(comet_store *s, size_t least, size_t most, store_flight *flight) {
    *flight = (store_flight){0};
    while (s->limit - s->held < most) {
        store_entry *spare = spare_locked(s);
        if (spare)
            comet_store_drop_memory_locked(s, spare);
        else if (s->flights)
            pthread_cond_wait(&s->changed, &s->lock);
        else
            break;
    }
    size_t room = s->limit - s->held;
    if (room < least) {
        s->stats.missing_bytes = most - room;
        return comet_store_over_limit(s);
    }
    flight->reserved = room < most ? room : most;
    s->held += flight->reserved;
    s->flights++;
    return COMET_OK;
}

void comet_store_scratch_locked(comet_store *s, store_flight *flight, size_t bytes) {
    s->stats.scratch_bytes += bytes - flight->scratch;
    flight->scratch = bytes;
    comet_store_peak_locked(s);
}

static size_t greatest_need_locked(const comet_store *s, size_t need) {
    for (uint32_t i = 0; i < s->slots; i++)
        if (s->entries[i] && s->entries[i]->need > need)
            need = s->entries[i]->need;
    return need;
}

size_t comet_store_missing_locked(const comet_store *s, size_t resident, size_t need) {
    size_t aside = greatest_need_locked(s, need > s->scratch_share ? need : s->scratch_share);
    size_t at_rest = (size_t)s->stats.live.resident - s->spare + resident;
    return at_rest + aside <= s->limit ? 0 : at_rest + aside - s->limit;
}

void comet_store_settle_locked(store_flight *flight, size_t bytes) {
    flight->reserved -= bytes;
}

void comet_store_arrive_locked(comet_store *s, store_flight *flight) {
    s->stats.scratch_bytes -= flight->scratch;
    s->held -= flight->reserved;
    s->flights--;
    *flight = (store_flight){0};
    pthread_cond_broadcast(&s->changed);
}

void comet_store_vacate_locked(comet_store *s, size_t bytes) {
    s->held -= bytes;
    pthread_cond_broadcast(&s->changed);
}
