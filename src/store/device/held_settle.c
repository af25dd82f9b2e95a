/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a stream that was issued: the device says how long it is, or that it did not fit; then its owner is
 * told, once. While that happens an entry has one more reference: whoever has the others may give them up.
 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "store/device/device_store_impl.h"

#define HEALTH_PERIOD 1000000u /* nanoseconds between questions whether the device still works */

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the list of a lane ---- */

static void append(comet_device_store *s, comet_device_entry *e) {
    held_lane *lane = e->lane;
    e->serial = ++s->serial;
    e->previous = lane->last;
    e->next = NULL;
    *(lane->last ? &lane->last->next : &lane->first) = e;
    lane->last = e;
}

static void unlink_entry(comet_device_entry *e) {
    held_lane *lane = e->lane;
    *(e->previous ? &e->previous->next : &lane->first) = e->next;
    *(e->next ? &e->next->previous : &lane->last) = e->previous;
    e->previous = e->next = NULL;
}

void comet_held_issued(comet_device_store *s, comet_device_entry *e) {
    e->stage = HELD_ISSUED;
    append(s, e);
    s->stats.entries++;
    s->stats.unsettled++;
    s->stats.raw_bytes += e->raw_bytes;
    s->stats.unsettled_bytes += e->raw_bytes;
}

/* It is in no list any more, and counts as settled. */
static void leave_unsettled(comet_device_store *s, comet_device_entry *e) {
    unlink_entry(e);
    e->stage = HELD_SETTLED;
    s->stats.unsettled--;
    s->stats.unsettled_bytes -= e->raw_bytes;
}

static void drop_record(comet_device_store *s, comet_device_entry *e, int written) {
    held_record *record = atomic_exchange(&e->record, NULL);
    if (record)
        comet_held_record_drop(s, record, written);
}

static void tell(comet_device_store *s, comet_device_entry *e, comet_status status) {
    comet_device_settled how = {.status = status};
    if (status == COMET_OK)
        how.result = e->result;
    s->options.settled(s->options.settled_context, e->owner, e, &how);
}

/* ---- settling ---- */

/* Nobody else settles it from now on. */
static void begin_settling(comet_device_store *s, comet_device_entry *e) {
    e->references++;
    leave_unsettled(s, e);
}

static void end_settling(comet_device_store *s, comet_device_entry *e, comet_status status) {
    if (status == COMET_OK)
        s->stats.stored_bytes += e->result.bytes;
    atomic_store(&e->state, status == COMET_OK ? 1 : -1);
    tell(s, e, status);
    comet_device_store_release(s, e);
}

/* Without a stream. `written`: nothing will be written to its record any more. */
static void settle_lost(comet_device_store *s, comet_device_entry *e, comet_status status, int written) {
    begin_settling(s, e);
    drop_record(s, e, written);
    comet_held_displace(s, e);
    end_settling(s, e, status);
}

static void settle_stored(comet_device_store *s, comet_device_entry *e) {
    begin_settling(s, e);
    if (s->driver) {
        drop_record(s, e, 1);
        comet_held_shrink(s, e, held_round_up(e->result.bytes, HELD_ALIGNMENT));
    }
    end_settling(s, e, COMET_OK);
}

/* It goes to the end of the list: others of its queue will be there before. What it said is forgotten, so that no other
 * call takes it for the answer while room is found. */
static comet_status repeat(comet_device_store *s, comet_device_entry *e, size_t bytes) {
    int scope;
    s->stats.misfits++;
    unlink_entry(e);
    append(s, e);
    e->references++;
    comet_held_record_clear(atomic_load_explicit(&e->record, memory_order_relaxed));
    comet_status status = held_enter(s, &scope);
    if (status == COMET_OK) {
        status = comet_held_again(s, e, bytes);
        held_leave(s, scope);
    }
    if (status != COMET_OK) {
        s->stats.refused += status == COMET_ERROR_MEMORY;
        settle_lost(s, e, status, 1);
    }
    comet_device_store_release(s, e);
    return status == COMET_ERROR_MEMORY ? COMET_OK : status;
}

static comet_status take_result(comet_device_store *s, comet_device_entry *e, const comet_cuda_result *result) {
    if (result->status == COMET_ERROR_CAPACITY)
        return repeat(s, e, result->codec.bytes);
    if (result->status != COMET_OK || result->codec.bytes > e->room) {
        settle_lost(s, e, COMET_ERROR_DEVICE, 1);
        return comet_fail(COMET_ERROR_DEVICE, "the device left something that is no result");
    }
    e->result = result->codec;
    settle_stored(s, e);
    return COMET_OK;
}

/* Keeps the first of two errors. */
static comet_status both(comet_status first, comet_status second) {
    return first != COMET_OK ? first : second;
}

/* Until the first one that has not arrived, or has been issued in here. */
static comet_status settle_lane(comet_device_store *s, held_lane *lane, uint64_t last) {
    comet_status status = COMET_OK;
    comet_device_entry *e;
    while ((e = lane->first) != NULL && e->serial <= last) {
        comet_cuda_result result;
        if (!s->driver) {
            settle_stored(s, e);
            continue;
        }
        if (!comet_held_record_read(atomic_load_explicit(&e->record, memory_order_relaxed), &result))
            break;
        status = both(status, take_result(s, e, &result));
    }
    return status;
}

/* ---- a device that failed ---- */

comet_status comet_held_failed(comet_device_store *s) {
    (void)s;
    return comet_fail(COMET_ERROR_DEVICE, "the device has failed");
}

static void settle_failed(comet_device_store *s) {
    for (held_lane *lane = s->lanes; lane; lane = lane->next)
        while (lane->first)
            settle_lost(s, lane->first, COMET_ERROR_DEVICE, 0);
}

static comet_status ask_health(const comet_device_store *s, void *queue) {
    int scope;
    comet_status status = held_enter(s, &scope);
    if (status == COMET_OK) {
        status = s->driver->queue_health(s->driver, queue);
        held_leave(s, scope);
    }
    return status;
}

/* Where streams do not arrive that may be the reason. Asked now and then. */
static void check_health(comet_device_store *s) {
    if (s->stats.unsettled == 0 || now() - s->asked_health < HEALTH_PERIOD)
        return;
    s->asked_health = now();
    for (held_lane *lane = s->lanes; lane; lane = lane->next)
        if (lane->first && ask_health(s, lane->queue) != COMET_OK)
            atomic_store(&s->failed, 1);
}

/* ---- public ---- */

static comet_status poll(comet_device_store *s) {
    comet_status status = COMET_OK;
    uint64_t last = s->serial;
    if (s->late_count)
        comet_held_records_reap(s);
    for (held_lane *lane = s->lanes; lane; lane = lane->next)
        status = both(status, settle_lane(s, lane, last));
    if (!s->driver)
        return status;
    status = both(status, comet_held_poll_copies(s));
    check_health(s);
    if (!atomic_load_explicit(&s->failed, memory_order_relaxed))
        return status;
    settle_failed(s);
    return comet_held_failed(s);
}

comet_status comet_device_store_poll(comet_device_store *store) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    return comet_end(poll(store));
}

int comet_device_entry_state(const comet_device_entry *entry) {
    return entry ? atomic_load(&entry->state) : -1;
}

size_t comet_device_store_unsettled_bytes(const comet_device_store *store) {
    return store ? store->stats.unsettled_bytes : 0;
}

comet_device_entry *comet_device_store_oldest(const comet_device_store *store) {
    comet_device_entry *oldest = NULL;
    for (const held_lane *lane = store ? store->lanes : NULL; lane; lane = lane->next)
        if (lane->first && (!oldest || lane->first->serial < oldest->serial))
            oldest = lane->first;
    return oldest;
}

/*
 * Whether poll can do something about it. Poll may run meanwhile and the record become another entry's, so what was
 * read in it counts only if it still is this entry's.
 */
static int is_ready(const comet_device_entry *e) {
    held_record *record = atomic_load(&e->record);
    if (atomic_load(&e->state) != 0 || !record)
        return 1;
    return comet_held_record_read(record, NULL) && atomic_load(&e->record) == record;
}

enum { SPINS = 400, YIELDS = 4000 }; /* about a millisecond: a nap takes 70 microseconds and more */

static void pause_a_little(unsigned n) {
    static const struct timespec nap = {.tv_nsec = 20000};
    if (n >= SPINS + YIELDS)
        nanosleep(&nap, NULL);
    else if (n >= SPINS)
        sched_yield();
}

static comet_status wait_for(comet_device_store *s, const comet_device_entry *e) {
    uint64_t asked = now();
    for (unsigned n = 0; !is_ready(e); n += n < SPINS + YIELDS) {
        pause_a_little(n);
        if (n < SPINS || now() - asked < HEALTH_PERIOD)
            continue;
        asked = now();
        if (atomic_load(&s->failed) || ask_health(s, e->queue) != COMET_OK) {
            atomic_store(&s->failed, 1); /* poll settles what is left */
            return comet_held_failed(s);
        }
    }
    return COMET_OK;
}

comet_status comet_device_store_await(const comet_device_store *store, const comet_device_entry *entry) {
    comet_begin();
    COMET_REQUIRE_POINTER(store);
    COMET_REQUIRE_POINTER(entry);
    if (!store->driver || is_ready(entry))
        return COMET_OK;
    comet_device_store *s = (comet_device_store *)(uintptr_t)store; /* for what is atomic in it */
    atomic_fetch_add_explicit(&s->waits, 1, memory_order_relaxed);
    return comet_end(wait_for(s, entry));
}

/* ---- references ---- */

comet_device_entry *comet_device_store_share(comet_device_entry *entry) {
    if (entry)
        entry->references++;
    return entry;
}

/* The stream, wherever it is. */
static void drop_stream(comet_device_store *s, comet_device_entry *e) {
    if (atomic_load(&e->state) == 1)
        s->stats.stored_bytes -= e->result.bytes;
    if (!s->driver) {
        comet_held_cpu_give(s, e);
        return;
    }
    comet_held_quiet(s, e);
    comet_held_drop_host(s, e);
    comet_held_displace(s, e);
}

void comet_held_release(comet_device_store *s, comet_device_entry *e) {
    int told = e->stage == HELD_SETTLED;
    e->references = 0;
    if (!told) {
        held_record *record = atomic_load(&e->record);
        drop_record(s, e, record && comet_held_record_read(record, NULL));
        leave_unsettled(s, e);
        memset(&e->result, 0, sizeof e->result); /* what a CPU knows already is not said, either */
    }
    drop_stream(s, e);
    s->stats.entries--;
    s->stats.raw_bytes -= e->raw_bytes;
    if (!told)
        tell(s, e, COMET_OK);
    comet_held_entry_drop(s, e);
}

/* A callback of comet_device_store_free may release what is gone already. */
void comet_device_store_release(comet_device_store *store, comet_device_entry *entry) {
    if (store && entry && entry->stage >= HELD_ISSUED && --entry->references == 0)
        comet_held_release(store, entry);
}
