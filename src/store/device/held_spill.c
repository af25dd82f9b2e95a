/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams in page-locked host memory. Copies run on a queue of the store's own, one after the other, each with an
 * event. While one is under way the stream is on the device and in a slab; when it has ended one of the two is given
 * up. So who changes their mind meanwhile copies nothing.
 */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "store/device/device_store_impl.h"

/* ---- slabs ---- */

#define LEAST_SLAB ((size_t)64 << 10)

/* Few sizes, so that slabs fit again: eighths of powers of two. */
static size_t slab_size(size_t bytes) {
    size_t unit = LEAST_SLAB;
    while (unit < SIZE_MAX / 32 && 16 * unit < bytes)
        unit *= 2;
    return held_round_up(bytes, unit);
}

static void slab_free(comet_device_store *s, held_slab *slab) {
    s->driver->give(s->driver, slab->memory);
    comet_memory_give(s->allocator, slab, sizeof *slab);
}

static void free_unused_slabs(comet_device_store *s) {
    while (s->free_slabs) {
        held_slab *slab = s->free_slabs;
        s->free_slabs = slab->next;
        slab_free(s, slab);
    }
}

/* The smallest one that fits, if not half of it would be wasted. */
static held_slab *slab_again(comet_device_store *s, size_t bytes) {
    held_slab **best = NULL;
    for (held_slab **at = &s->free_slabs; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes && (*at)->bytes / 2 <= bytes && (!best || (*at)->bytes < (*best)->bytes))
            best = at;
    if (!best)
        return NULL;
    held_slab *slab = *best;
    *best = slab->next;
    return slab;
}

static held_slab *slab_new(comet_device_store *s, size_t bytes) {
    held_slab *slab = comet_memory_take(s->allocator, sizeof *slab);
    void *memory = NULL;
    if (!slab)
        return NULL;
    comet_status status = s->driver->take(s->driver, bytes, &memory);
    if (status == COMET_ERROR_MEMORY && s->free_slabs) { /* those that do not fit may stand in the way */
        free_unused_slabs(s);
        status = s->driver->take(s->driver, bytes, &memory);
    }
    if (status != COMET_OK) {
        comet_memory_give(s->allocator, slab, sizeof *slab);
        return NULL;
    }
    *slab = (held_slab){.memory = memory, .bytes = bytes};
    return slab;
}

static comet_status slab_take(comet_device_store *s, size_t bytes, held_slab **slab) {
    size_t size = slab_size(bytes);
    *slab = slab_again(s, size);
    if (!*slab)
        *slab = slab_new(s, size);
    if (!*slab)
        return comet_fail(COMET_ERROR_MEMORY, "there are no %zu bytes of page-locked memory", size);
    s->stats.host_bytes += (*slab)->bytes;
    if (s->stats.host_bytes > s->stats.peak_host_bytes)
        s->stats.peak_host_bytes = s->stats.host_bytes;
    return COMET_OK;
}

static void slab_give(comet_device_store *s, held_slab *slab) {
    s->stats.host_bytes -= slab->bytes;
    slab->next = s->free_slabs;
    s->free_slabs = slab;
}

/* ---- copies ---- */

static comet_status copy_new(comet_device_store *s, held_copy **copy) {
    if (!s->copy_queue)
        COMET_TRY(s->driver->queue_new(s->driver, &s->copy_queue));
    held_copy *c = s->free_copies;
    if (c) {
        s->free_copies = c->next;
    } else {
        c = comet_memory_take(s->allocator, sizeof *c);
        if (!c)
            return COMET_ERROR_MEMORY;
        *c = (held_copy){0};
        comet_status status = s->driver->event_new(s->driver, &c->event);
        if (status != COMET_OK) {
            comet_memory_give(s->allocator, c, sizeof *c);
            return status;
        }
    }
    *copy = c;
    return COMET_OK;
}

static void copy_drop(comet_device_store *s, held_copy *copy) {
    copy->next = s->free_copies;
    s->free_copies = copy;
}

static comet_status issue(comet_device_store *s, const held_copy *copy, const comet_device_entry *e) {
    const device_store_driver *d = s->driver;
    COMET_TRY(comet_held_order(s, e->lane->queue, s->copy_queue));
    return copy->to_host ? d->to_host(d, copy->slab->memory, e->base, e->result.bytes, s->copy_queue)
                         : d->to_device(d, e->base, copy->slab->memory, e->result.bytes, s->copy_queue);
}

/* Issues the copy between e->base and the slab. Where its end cannot be marked it is waited for. */
static comet_status copy_begin(comet_device_store *s, comet_device_entry *e, held_slab *slab, int to_host) {
    held_copy *copy;
    COMET_TRY(copy_new(s, &copy));
    copy->slab = slab;
    copy->entry = e;
    copy->to_host = to_host;
    copy->bytes = e->result.bytes;
    copy->next = NULL;
    comet_status status = issue(s, copy, e);
    if (status == COMET_OK) {
        status = s->driver->event_record(s->driver, copy->event, s->copy_queue);
        if (status != COMET_OK)
            (void)s->driver->queue_wait(s->driver, s->copy_queue);
    }
    if (status != COMET_OK) {
        copy_drop(s, copy);
        return status;
    }
    *(s->first_copy ? &s->last_copy->next : &s->first_copy) = copy;
    s->last_copy = copy;
    e->copy = copy;
    e->slab = slab;
    s->stats.spilling_bytes += to_host ? copy->bytes : 0;
    e->wants_host = to_host;
    return COMET_OK;
}

/* Gives up what is not wanted. */
static void copy_end(comet_device_store *s, held_copy *copy) {
    comet_device_entry *e = copy->entry;
    s->first_copy = copy->next;
    s->stats.spilling_bytes -= copy->to_host ? copy->bytes : 0;
    if (e)
        e->copy = NULL;
    if (e && e->wants_host) {
        comet_held_quiet(s, e);
        comet_held_displace(s, e);
    } else {
        slab_give(s, copy->slab);
        if (e)
            e->slab = NULL;
    }
    copy_drop(s, copy);
}

comet_status comet_held_poll_copies(comet_device_store *s) {
    int scope, reached = 1;
    if (!s->first_copy)
        return COMET_OK;
    COMET_TRY(held_enter(s, &scope));
    comet_status status = COMET_OK;
    while (s->first_copy && status == COMET_OK && reached) {
        status = s->driver->event_query(s->driver, s->first_copy->event, &reached);
        if (status == COMET_OK && reached)
            copy_end(s, s->first_copy);
    }
    held_leave(s, scope);
    return status;
}

void comet_held_drop_host(comet_device_store *s, comet_device_entry *e) {
    if (e->copy)
        e->copy->entry = NULL; /* the slab is in use until it has ended */
    else if (e->slab)
        slab_give(s, e->slab);
    e->copy = NULL;
    e->slab = NULL;
}

void comet_held_free_host(comet_device_store *s) {
    while (s->first_copy)
        copy_end(s, s->first_copy);
    while (s->free_copies) {
        held_copy *copy = s->free_copies;
        s->free_copies = copy->next;
        s->driver->event_free(s->driver, copy->event);
        comet_memory_give(s->allocator, copy, sizeof *copy);
    }
    free_unused_slabs(s);
    if (s->copy_queue)
        s->driver->queue_free(s->driver, s->copy_queue);
}

/* ---- there and back ---- */

static comet_status spill(comet_device_store *s, comet_device_entry *e) {
    held_slab *slab;
    COMET_TRY(slab_take(s, e->result.bytes, &slab));
    comet_status status = copy_begin(s, e, slab, 1);
    if (status != COMET_OK)
        slab_give(s, slab);
    else
        s->stats.spills++;
    return status;
}

comet_status comet_held_fetch(comet_device_store *s, comet_device_entry *e, held_lane *lane) {
    COMET_TRY(comet_held_place(s, e, lane, held_round_up(e->result.bytes, HELD_ALIGNMENT)));
    if (e->copy || !e->slab) /* another call has fetched it while memory was taken */
        return COMET_OK;
    comet_status status = copy_begin(s, e, e->slab, 0);
    if (status != COMET_OK)
        comet_held_displace(s, e);
    else
        s->stats.fetches++;
    return status;
}

static comet_status check_entry(const comet_device_entry *e) {
    COMET_REQUIRE(e, "entry is NULL");
    COMET_REQUIRE(comet_device_entry_state(e) == 1, "entry is not settled, or holds no stream");
    return COMET_OK;
}

comet_status comet_device_store_spill(comet_device_store *store, comet_device_entry *entry) {
    int scope;
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_TRY(check_entry(entry));
    if (!store->driver || !entry->base)
        return COMET_OK;
    if (entry->copy) {
        entry->wants_host = 1;
        return COMET_OK;
    }
    COMET_TRY(held_enter(store, &scope));
    comet_status status = spill(store, entry);
    held_leave(store, scope);
    return comet_end(status);
}

comet_status comet_device_store_fetch(comet_device_store *store, comet_device_entry *entry, void *queue) {
    held_lane *lane;
    int scope;
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_TRY(check_entry(entry));
    if (!store->driver || entry->base) {
        entry->wants_host = 0;
        return COMET_OK;
    }
    COMET_TRY(comet_held_lane_of(store, queue, &lane));
    COMET_TRY(held_enter(store, &scope));
    comet_status status = comet_held_fetch(store, entry, lane);
    held_leave(store, scope);
    return comet_end(status);
}
