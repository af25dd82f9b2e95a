/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena's logic. Entries are a stack: position p holds a stream that begins where the stream of position p - 1
 * ends, or later (position 0 is the bottom, which ends at 0 and never changes). The device chains them itself,
 * through the `end` in its records; the host keeps bounds of those ends and replaces them by what it reads back.
 * docs/arena.md has the proofs.
 */
#include "store/arena.h"

#include <pthread.h>
#include <string.h>

#include "base/bits.h"
#include "base/memory.h"
#include "codec/call.h"

_Static_assert(sizeof(comet_cuda_result) <= ARENA_RECORD_BYTES, "a record holds a result");

/* FREE: not in the stack. OPEN: its stream is not issued yet. DEAD: released, but not on top. */
typedef enum entry_state { ENTRY_FREE, ENTRY_OPEN, ENTRY_LIVE, ENTRY_DEAD } entry_state;

/* WRONG: what arrived is not a result. */
typedef enum entry_knowledge { UNKNOWN, KNOWN, WRONG } entry_knowledge;

typedef struct arena_item {
    uint64_t serial;      /* of the handle */
    uint64_t readback;    /* the one that brings its result; 0: not asked for */
    size_t worst, likely; /* bytes it takes; likely is worst unless the caller expects less */
    size_t capacity;      /* of its slot: the device lets nothing end behind it */
    size_t most_end;      /* it ends here at the latest */
    size_t likely_end;    /* the same if all unknown entries are as long as expected */
    size_t start, end;    /* KNOWN: exactly */
    size_t bytes;
    comet_status status;
    entry_state state;
    entry_knowledge knowledge;
    int captured;
} arena_item;

typedef struct arena_readback {
    void *event;
    uint32_t low, high; /* positions copied */
} arena_readback;

struct comet_arena {
    const arena_driver *driver;
    comet_allocator allocator;
    int has_allocator, has_range, graphs;
    int32_t device;
    void *stream;

    arena_range range;
    size_t piece, mapped;             /* pieces are `piece` bytes, the last one of the range may be less */
    unsigned char *records, *arrived; /* on the device, and their copies in page-locked memory; by position */

    pthread_mutex_t lock; /* guards all below, and mapped, graphs and the range's mapping */
    pthread_cond_t closed;
    uint32_t open; /* position; 0: none */
    pthread_t opener;

    arena_readback readbacks[ARENA_READBACKS];   /* number n is at n % ARENA_READBACKS */
    uint64_t asked, answered;                    /* numbers of the last ones */
    uint32_t unasked_low, unasked_high, unasked; /* positions between which entries are not asked for; how many */
    size_t unasked_bytes;

    uint64_t serial;
    comet_arena_stats stats; /* counters and peaks; the rest is filled in when asked for */
    uint32_t top, most_entries, dead;
    arena_item items[]; /* by position: 0 is the bottom */
};

enum { HANDLE_POSITION_BITS = 21 };

/* What an open asks for, and where it can go. */
typedef struct arena_wish {
    size_t worst, likely;
    int capturing;
    uint32_t position;
    size_t capacity;
} arena_wish;

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static comet_cuda_result *record_of(const comet_arena *a, uint32_t position) {
    return (comet_cuda_result *)(void *)(a->records + (size_t)position * ARENA_RECORD_BYTES);
}

/* ---- what the host knows ---- */

static comet_status capturing(const comet_arena *a, int *is) {
    return a->driver->stream_capturing(a->driver, a->stream, is);
}

/*
 * Bounds of the ends from `position` to the top. What is known needs nothing of what lies below it: ends are
 * absolute.
 */
static void bound_ends(comet_arena *a, uint32_t position) {
    for (uint32_t p = position; p <= a->top; p++) {
        arena_item *item = &a->items[p];
        const arena_item *below = item - 1;
        if (item->knowledge == KNOWN) {
            item->most_end = item->likely_end = item->end;
            continue;
        }
        size_t most = below->most_end + item->worst, likely = below->likely_end + item->likely;
        item->most_end = most < item->capacity ? most : item->capacity;
        item->likely_end = likely < item->capacity ? likely : item->capacity;
    }
}

/*
 * A result is what the kernel leaves in a record. A stale one means that the caller compressed nothing into the slot.
 */
static int is_result(const arena_item *item, const comet_cuda_result *r) {
    const arena_item *below = item - 1;
    if (r->start % ARENA_ALIGNMENT || r->end % ARENA_ALIGNMENT || r->start > r->end || r->end > item->capacity)
        return 0;
    if (below->knowledge == KNOWN && r->start != below->end)
        return 0;
    return r->status == COMET_OK ? r->codec.bytes <= r->end - r->start : r->end == r->start;
}

static void take_in(comet_arena *a, uint32_t position) {
    arena_item *item = &a->items[position];
    comet_cuda_result r;
    memcpy(&r, a->arrived + (size_t)position * ARENA_RECORD_BYTES, sizeof r);
    if (!is_result(item, &r)) {
        item->knowledge = WRONG;
        item->status = COMET_ERROR_CORRUPT;
        return;
    }
    item->knowledge = KNOWN;
    item->status = (comet_status)r.status;
    item->start = (size_t)r.start;
    item->end = (size_t)r.end;
    item->bytes = item->status == COMET_OK ? r.codec.bytes : 0;
    a->stats.overflows += item->status != COMET_OK;
    if (item->end > a->stats.peak_known_bytes)
        a->stats.peak_known_bytes = item->end;
}

/* The oldest readback has arrived. Entries that went away meanwhile, or came, have another number. */
static void answer(comet_arena *a) {
    const arena_readback *r = &a->readbacks[++a->answered % ARENA_READBACKS];
    for (uint32_t p = r->low; p <= r->high && p <= a->top; p++)
        if (a->items[p].readback == a->answered && a->items[p].knowledge == UNKNOWN)
            take_in(a, p);
    bound_ends(a, r->low);
}

/* What is released needs none: the entries above it say where they are themselves. */
static int wants_readback(const arena_item *item) {
    return item->state == ENTRY_LIVE && !item->readback && !item->captured;
}

/*
 * One copy for all entries not asked for, and what lies between them. Not while capturing. If it fails they stay
 * unasked.
 */
static comet_status ask(comet_arena *a) {
    const arena_driver *d = a->driver;
    if (!a->unasked || a->asked - a->answered == ARENA_READBACKS)
        return COMET_OK;
    arena_readback *r = &a->readbacks[(a->asked + 1) % ARENA_READBACKS];
    uint32_t low = a->unasked_low, high = a->unasked_high < a->top ? a->unasked_high : a->top;
    if (low <= high) {
        size_t offset = (size_t)low * ARENA_RECORD_BYTES, bytes = (size_t)(high - low + 1) * ARENA_RECORD_BYTES;
        comet_status status = d->copy(d, a->arrived + offset, a->records + offset, bytes, a->stream);
        if (status == COMET_OK)
            status = d->event_record(d, r->event, a->stream);
        if (status != COMET_OK)
            return status;
        r->low = low;
        r->high = high;
        a->asked++;
        a->stats.readbacks++;
        for (uint32_t p = low; p <= high; p++)
            if (wants_readback(&a->items[p]))
                a->items[p].readback = a->asked;
    }
    a->unasked = 0;
    a->unasked_bytes = 0;
    return COMET_OK;
}

static void note_unasked(comet_arena *a, uint32_t position) {
    if (!a->unasked++)
        a->unasked_low = a->unasked_high = position;
    if (position < a->unasked_low)
        a->unasked_low = position;
    if (position > a->unasked_high)
        a->unasked_high = position;
    a->unasked_bytes += a->items[position].worst;
}

/* Takes in what has arrived. Not while capturing. */
static comet_status poll_arrived(comet_arena *a) {
    while (a->answered != a->asked) {
        int reached = 0;
        void *event = a->readbacks[(a->answered + 1) % ARENA_READBACKS].event;
        comet_status status = a->driver->event_query(a->driver, event, &reached);
        if (status != COMET_OK || !reached)
            return status;
        answer(a);
    }
    return COMET_OK;
}

/* Waits for the oldest readback, asking first if there is none. *any is 0 if there is nothing to wait for. */
static comet_status wait_for_one(comet_arena *a, int *any) {
    comet_status status = a->asked == a->answered ? ask(a) : COMET_OK;
    *any = a->asked != a->answered;
    if (status != COMET_OK || !*any)
        return status;
    a->stats.waits++;
    status = a->driver->event_wait(a->driver, a->readbacks[(a->answered + 1) % ARENA_READBACKS].event);
    if (status == COMET_OK)
        answer(a);
    return status;
}

/* ---- mapping ---- */

static comet_status unmap_last(comet_arena *a) {
    size_t offset = (a->mapped - 1) / a->piece * a->piece;
    comet_status status = a->driver->unmap(a->driver, &a->range, offset, a->mapped - offset);
    if (status == COMET_OK)
        a->mapped = offset;
    return status;
}

/*
 * Maps at least the first `bytes` bytes. On a failure what was mapped for it, and is unused, goes back as far as it
 * can.
 */
static comet_status map_up_to(comet_arena *a, size_t bytes) {
    size_t before = a->mapped;
    while (a->mapped < bytes) {
        size_t left = a->range.bytes - a->mapped, piece = left < a->piece ? left : a->piece;
        comet_status status = a->driver->map(a->driver, &a->range, a->mapped, piece);
        if (status != COMET_OK) {
            while (a->mapped > before && unmap_last(a) == COMET_OK)
                ;
            return status;
        }
        a->mapped += piece;
    }
    if (a->mapped > a->stats.peak_mapped_bytes)
        a->stats.peak_mapped_bytes = a->mapped;
    return COMET_OK;
}

/* ---- finding room ---- */

/* Who must be certain counts with the worst case of everything below, who need not with what was expected of it. */
static size_t end_for(const arena_wish *wish, const arena_item *item) {
    return wish->likely < wish->worst ? item->likely_end : item->most_end;
}

/*
 * Entries released between two others, where the upper one's start is known: the device is told to stay below that,
 * and the stream goes behind the lower one. The first such place will do.
 */
static int find_hole(const comet_arena *a, arena_wish *wish) {
    for (uint32_t p = 1; a->dead && p < a->top; p++) {
        if (a->items[p].state != ENTRY_DEAD)
            continue;
        uint32_t hole = p;
        while (a->items[p].state == ENTRY_DEAD)
            p++; /* the top is never dead */
        const arena_item *above = &a->items[p];
        if (above->knowledge == KNOWN && end_for(wish, &a->items[hole - 1]) + wish->likely <= above->start) {
            wish->position = hole;
            wish->capacity = above->start;
            return 1;
        }
    }
    return 0;
}

static size_t end_on_top(const comet_arena *a, const arena_wish *wish) {
    return end_for(wish, &a->items[a->top]) + wish->likely;
}

static int find_room(const comet_arena *a, arena_wish *wish) {
    if (a->top < a->most_entries && end_on_top(a, wish) <= a->mapped) {
        wish->position = a->top + 1;
        wish->capacity = a->mapped;
        return 1;
    }
    return find_hole(a, wish);
}

/* Whether mapping more would help. */
static int can_grow(const comet_arena *a, const arena_wish *wish) {
    return a->top < a->most_entries && end_on_top(a, wish) <= a->range.bytes;
}

static comet_status refuse(comet_arena *a, const arena_wish *wish, comet_status status) {
    size_t room = status == COMET_ERROR_MEMORY ? a->mapped : a->range.bytes, end = end_on_top(a, wish);
    a->stats.missing_bytes = a->top < a->most_entries && end > room ? end - room : 0;
    a->stats.refused++;
    return status;
}

/* In this order: what is there, what the host can know without waiting, more memory, waiting. */
static comet_status make_room(comet_arena *a, arena_wish *wish) {
    if (find_room(a, wish))
        return COMET_OK;
    comet_status status = wish->capturing ? COMET_OK : poll_arrived(a);
    while (status == COMET_OK) {
        if (find_room(a, wish))
            return COMET_OK;
        comet_status grown = can_grow(a, wish) ? map_up_to(a, end_on_top(a, wish)) : COMET_ERROR_CAPACITY;
        if (grown == COMET_OK)
            continue;
        if (grown != COMET_ERROR_CAPACITY && grown != COMET_ERROR_MEMORY)
            return grown;
        int any = 0;
        if (!wish->capturing)
            status = wait_for_one(a, &any);
        if (status == COMET_OK && !any)
            return refuse(a, wish, grown);
    }
    return status;
}

/* ---- the stack ---- */

static comet_arena_entry handle_of(const comet_arena *a, uint32_t position) {
    return a->items[position].serial << HANDLE_POSITION_BITS | position;
}

/* 0 if there is no such entry, or it is released. */
static uint32_t position_of(const comet_arena *a, comet_arena_entry entry) {
    uint32_t position = (uint32_t)(entry & ((1u << HANDLE_POSITION_BITS) - 1));
    if (position == 0 || position > a->top)
        return 0;
    const arena_item *item = &a->items[position];
    int held = item->state == ENTRY_OPEN || item->state == ENTRY_LIVE;
    return held && item->serial == entry >> HANDLE_POSITION_BITS ? position : 0;
}

static void push(comet_arena *a, const arena_wish *wish) {
    uint32_t position = wish->position;
    if (position > a->top) {
        a->top = position;
    } else {
        a->dead--;
        a->stats.saves_in_holes++;
    }
    a->items[position] = (arena_item){.serial = ++a->serial,
                                      .worst = wish->worst,
                                      .likely = wish->likely,
                                      .capacity = wish->capacity,
                                      .state = ENTRY_OPEN,
                                      .captured = wish->capturing};
    bound_ends(a, position);
    a->open = position;
    a->opener = pthread_self();
    a->graphs |= wish->capturing;
    a->stats.saves++;
    if (a->items[a->top].most_end > a->stats.peak_end_bytes)
        a->stats.peak_end_bytes = a->items[a->top].most_end;
}

static void end_opening(comet_arena *a) {
    a->open = 0;
    pthread_cond_broadcast(&a->closed);
}

/* Marks it, and takes off the top what is released there. */
static void drop(comet_arena *a, uint32_t position) {
    if (a->items[position].state == ENTRY_OPEN)
        end_opening(a);
    a->items[position].state = ENTRY_DEAD;
    a->dead++;
    while (a->items[a->top].state == ENTRY_DEAD) { /* the bottom is not */
        a->items[a->top--].state = ENTRY_FREE;
        a->dead--;
    }
}

/* ---- public: saving and loading ---- */

/* Until no other thread has an entry open. */
static comet_status wait_for_turn(comet_arena *a) {
    while (a->open) {
        if (pthread_equal(a->opener, pthread_self()))
            return COMET_ERROR_ARGUMENT;
        pthread_cond_wait(&a->closed, &a->lock);
    }
    return COMET_OK;
}

static comet_status open_locked(comet_arena *a, arena_wish *wish) {
    comet_status status = wait_for_turn(a);
    if (status == COMET_OK)
        status = capturing(a, &wish->capturing);
    if (status != COMET_OK)
        return status;
    if (a->graphs && !wish->capturing)
        return COMET_ERROR_UNSUPPORTED;
    if (wish->likely > a->range.bytes)
        return refuse(a, wish, COMET_ERROR_CAPACITY);
    status = make_room(a, wish);
    if (status == COMET_OK)
        push(a, wish);
    return status;
}

comet_status comet_arena_open(comet_arena *arena, size_t worst_bytes, size_t expected_bytes, comet_arena_entry *entry,
                              comet_cuda_slot *slot) {
    if (!arena || !entry || !slot || worst_bytes == 0 || worst_bytes > SIZE_MAX / 4)
        return COMET_ERROR_ARGUMENT;
    int certain = expected_bytes == 0 || expected_bytes >= worst_bytes;
    arena_wish wish = {.worst = round_up(worst_bytes, ARENA_ALIGNMENT)};
    wish.likely = certain ? wish.worst : round_up(expected_bytes, ARENA_ALIGNMENT);
    pthread_mutex_lock(&arena->lock);
    comet_status status = open_locked(arena, &wish);
    if (status == COMET_OK) {
        uint32_t p = wish.position;
        *entry = handle_of(arena, p);
        *slot = (comet_cuda_slot){arena->range.base, wish.capacity, &record_of(arena, p - 1)->end, record_of(arena, p)};
    }
    pthread_mutex_unlock(&arena->lock);
    return status;
}

static comet_status close_locked(comet_arena *a, comet_arena_entry entry) {
    uint32_t position = position_of(a, entry);
    if (!position || a->items[position].state != ENTRY_OPEN)
        return COMET_ERROR_ARGUMENT;
    a->items[position].state = ENTRY_LIVE;
    end_opening(a);
    if (a->items[position].captured)
        return COMET_OK; /* its record is written by replays, not now */
    note_unasked(a, position);
    if (a->unasked < ARENA_READBACK_ENTRIES && a->unasked_bytes < a->range.bytes / ARENA_READBACK_FRACTION)
        return COMET_OK;
    int is_capturing = 0;
    comet_status status = capturing(a, &is_capturing);
    if (status == COMET_OK && !is_capturing && a->asked - a->answered == ARENA_READBACKS)
        status = poll_arrived(a);
    return status == COMET_OK && !is_capturing ? ask(a) : status;
}

comet_status comet_arena_close(comet_arena *arena, comet_arena_entry entry) {
    if (!arena)
        return COMET_ERROR_ARGUMENT;
    pthread_mutex_lock(&arena->lock);
    comet_status status = close_locked(arena, entry);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

/* Asks and takes in, unless the stream is captured. */
static comet_status poll_locked(comet_arena *a) {
    int is_capturing = 0;
    comet_status status = capturing(a, &is_capturing);
    if (status != COMET_OK || is_capturing)
        return status;
    status = poll_arrived(a);
    return status == COMET_OK ? ask(a) : status;
}

/* What may not have fit is looked up; the others cost no call of CUDA. */
static comet_status slot_locked(comet_arena *a, comet_arena_entry entry, comet_cuda_slot *slot) {
    uint32_t position = position_of(a, entry);
    const arena_item *item = &a->items[position];
    if (!position || item->state != ENTRY_LIVE)
        return COMET_ERROR_ARGUMENT;
    if (item->likely < item->worst && item->knowledge == UNKNOWN && !item->captured) {
        comet_status status = poll_locked(a);
        if (status != COMET_OK)
            return status;
    }
    if (item->knowledge != UNKNOWN && item->status != COMET_OK)
        return item->status;
    comet_cuda_result *record = record_of(a, position);
    *slot = (comet_cuda_slot){a->range.base, a->mapped, &record->start, record};
    return COMET_OK;
}

comet_status comet_arena_slot(comet_arena *arena, comet_arena_entry entry, comet_cuda_slot *slot) {
    if (!arena || !slot)
        return COMET_ERROR_ARGUMENT;
    pthread_mutex_lock(&arena->lock);
    comet_status status = slot_locked(arena, entry, slot);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

comet_status comet_arena_release(comet_arena *arena, comet_arena_entry entry) {
    if (!arena)
        return COMET_ERROR_ARGUMENT;
    pthread_mutex_lock(&arena->lock);
    uint32_t position = position_of(arena, entry);
    if (position)
        drop(arena, position);
    pthread_mutex_unlock(&arena->lock);
    return position ? COMET_OK : COMET_ERROR_ARGUMENT;
}

/* ---- public: knowing ---- */

comet_status comet_arena_poll(comet_arena *arena) {
    if (!arena)
        return COMET_ERROR_ARGUMENT;
    pthread_mutex_lock(&arena->lock);
    comet_status status = poll_locked(arena);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

/* Waits until *item is known. */
static comet_status wait_for(comet_arena *a, const arena_item *item) {
    int is_capturing = 0, any = 1;
    comet_status status = capturing(a, &is_capturing);
    if (status == COMET_OK && is_capturing)
        return COMET_ERROR_UNSUPPORTED;
    while (status == COMET_OK && item->knowledge == UNKNOWN && any)
        status = wait_for_one(a, &any);
    return status;
}

static comet_status result_locked(comet_arena *a, comet_arena_entry entry, int wait, int32_t *known,
                                  comet_cuda_result *result) {
    uint32_t position = position_of(a, entry);
    const arena_item *item = &a->items[position];
    *known = 0;
    if (!position || item->state != ENTRY_LIVE)
        return COMET_ERROR_ARGUMENT;
    if (item->captured)
        return COMET_ERROR_UNSUPPORTED;
    comet_status status = item->knowledge == UNKNOWN ? poll_locked(a) : COMET_OK;
    if (status == COMET_OK && item->knowledge == UNKNOWN && wait)
        status = wait_for(a, item);
    if (status != COMET_OK || item->knowledge == UNKNOWN)
        return status;
    *known = 1;
    if (result)
        memcpy(result, a->arrived + (size_t)position * ARENA_RECORD_BYTES, sizeof *result);
    return item->status;
}

comet_status comet_arena_result(comet_arena *arena, comet_arena_entry entry, int32_t *known,
                                comet_cuda_result *result) {
    if (!arena || !known)
        return COMET_ERROR_ARGUMENT;
    pthread_mutex_lock(&arena->lock);
    comet_status status = result_locked(arena, entry, 0, known, result);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

comet_status comet_arena_await(comet_arena *arena, comet_arena_entry entry, comet_cuda_result *result) {
    int32_t known;
    if (!arena)
        return COMET_ERROR_ARGUMENT;
    pthread_mutex_lock(&arena->lock);
    comet_status status = result_locked(arena, entry, 1, &known, result);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

/* What is not a counter or a peak. */
static void fill_stats(const comet_arena *a, comet_arena_stats *s) {
    s->limit_bytes = a->range.bytes;
    s->mapped_bytes = a->mapped;
    s->overhead_bytes = (size_t)(a->most_entries + 1) * ARENA_RECORD_BYTES;
    s->end_bytes = a->items[a->top].most_end;
    s->holes = a->dead;
    for (uint32_t p = 1; p <= a->top; p++) {
        const arena_item *item = &a->items[p];
        if (item->state == ENTRY_DEAD)
            continue;
        s->entries++;
        if (item->knowledge == KNOWN) {
            s->known_bytes += item->bytes;
        } else {
            s->unknown_entries++;
            s->unknown_bytes += item->worst;
        }
    }
}

comet_status comet_arena_get_stats(comet_arena *arena, comet_arena_stats *stats) {
    if (!arena || !stats || stats->size < 2 * sizeof(size_t) || stats->size > sizeof *stats)
        return COMET_ERROR_ARGUMENT;
    pthread_mutex_lock(&arena->lock);
    comet_arena_stats s = arena->stats;
    fill_stats(arena, &s);
    pthread_mutex_unlock(&arena->lock);
    s.size = stats->size;
    memcpy(stats, &s, s.size);
    return COMET_OK;
}

/* ---- public: trimming and graphs ---- */

/* Nothing queued may still read what is unmapped, so the stream is waited for, last. */
static comet_status settle(comet_arena *a) {
    int any = 1;
    comet_status status = COMET_OK;
    while (status == COMET_OK && any)
        status = wait_for_one(a, &any);
    if (status != COMET_OK)
        return status;
    a->stats.waits++;
    return a->driver->stream_wait(a->driver, a->stream);
}

static comet_status trim_locked(comet_arena *a) {
    int is_capturing = 0;
    comet_status status = wait_for_turn(a); /* an open slot was told what is mapped */
    if (status == COMET_OK)
        status = capturing(a, &is_capturing);
    if (status == COMET_OK && (is_capturing || a->graphs))
        status = COMET_ERROR_UNSUPPORTED;
    if (status == COMET_OK)
        status = settle(a);
    if (a->range.granularity == 0)
        return status;
    size_t kept = round_up(a->items[a->top].most_end, a->piece);
    while (status == COMET_OK && a->mapped > kept)
        status = unmap_last(a);
    return status;
}

comet_status comet_arena_trim(comet_arena *arena) {
    if (!arena)
        return COMET_ERROR_ARGUMENT;
    pthread_mutex_lock(&arena->lock);
    comet_status status = trim_locked(arena);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

comet_status comet_arena_forget_graphs(comet_arena *arena) {
    if (!arena)
        return COMET_ERROR_ARGUMENT;
    pthread_mutex_lock(&arena->lock);
    int held = 0;
    for (uint32_t p = 1; p <= arena->top; p++)
        held |= arena->items[p].captured;
    if (!held)
        arena->graphs = 0;
    pthread_mutex_unlock(&arena->lock);
    return held ? COMET_ERROR_ARGUMENT : COMET_OK;
}

/* ---- public: creating and destroying ---- */

static size_t arena_bytes(uint32_t entries) {
    return sizeof(comet_arena) + ((size_t)entries + 1) * sizeof(arena_item);
}

/* Keeps the first of two errors. */
static comet_status both(comet_status first, comet_status second) {
    return first != COMET_OK ? first : second;
}

/* Gives back whatever there is. The device is done with it. */
static comet_status tear_down(comet_arena *a) {
    const arena_driver *d = a->driver;
    comet_status status = COMET_OK;
    while (a->range.granularity && a->mapped) {
        comet_status unmapped = unmap_last(a);
        status = both(status, unmapped);
        if (unmapped != COMET_OK)
            a->mapped = (a->mapped - 1) / a->piece * a->piece; /* the others first */
    }
    if (a->has_range)
        status = both(status, d->unreserve(d, &a->range));
    if (a->records)
        status = both(status, d->give(d, a->device, ARENA_MEMORY_DEVICE, a->records));
    if (a->arrived)
        status = both(status, d->give(d, a->device, ARENA_MEMORY_PAGE_LOCKED, a->arrived));
    for (int i = 0; i < ARENA_READBACKS; i++)
        if (a->readbacks[i].event)
            status = both(status, d->event_free(d, a->readbacks[i].event));
    pthread_cond_destroy(&a->closed);
    pthread_mutex_destroy(&a->lock);
    comet_allocator allocator = a->allocator;
    comet_memory_give(a->has_allocator ? &allocator : NULL, a, arena_bytes(a->most_entries));
    return status;
}

/* Pieces are at least a granule, and not too many. */
static void choose_piece(comet_arena *a) {
    size_t unit = a->range.granularity;
    a->piece = unit ? round_up(a->range.bytes / ARENA_MOST_PIECES + 1, unit) : a->range.bytes;
    if (!unit)
        a->mapped = a->stats.peak_mapped_bytes = a->range.bytes;
}

static comet_status take_records(comet_arena *a) {
    const arena_driver *d = a->driver;
    size_t bytes = ((size_t)a->most_entries + 1) * ARENA_RECORD_BYTES;
    void *memory = NULL;
    comet_status status = d->take(d, a->device, ARENA_MEMORY_DEVICE, bytes, &memory);
    a->records = memory;
    if (status != COMET_OK)
        return status;
    memory = NULL;
    status = d->take(d, a->device, ARENA_MEMORY_PAGE_LOCKED, bytes, &memory);
    a->arrived = memory;
    if (status == COMET_OK)
        status = d->zero(d, a->records, bytes, a->stream); /* the bottom's end is 0 */
    return status == COMET_OK ? d->stream_wait(d, a->stream) : status;
}

static comet_status build(comet_arena *a, const comet_arena_options *o) {
    const arena_driver *d = a->driver;
    int is_capturing = 0;
    comet_status status = capturing(a, &is_capturing);
    if (status == COMET_OK && is_capturing)
        status = COMET_ERROR_UNSUPPORTED;
    if (status == COMET_OK)
        status = take_records(a);
    for (int i = 0; status == COMET_OK && i < ARENA_READBACKS; i++)
        status = d->event_new(d, a->device, &a->readbacks[i].event);
    if (status != COMET_OK)
        return status;
    status = d->reserve(d, a->device, o->limit_bytes, &a->range);
    if (status != COMET_OK)
        return status;
    a->has_range = 1;
    choose_piece(a);
    return map_up_to(a, o->initial_bytes < a->range.bytes ? o->initial_bytes : a->range.bytes);
}

comet_status comet_arena_create_with(const arena_driver *driver, const comet_arena_options *options,
                                     comet_arena **arena) {
    static const comet_arena_options defaults = COMET_ARENA_OPTIONS_INIT;
    comet_arena_options o;
    if (!arena || !options || !comet_call_options(&o, sizeof o, options, &defaults) ||
        o.limit_bytes < ARENA_ALIGNMENT || o.limit_bytes > SIZE_MAX / 4 || o.initial_bytes > o.limit_bytes ||
        o.max_entries == 0 || o.max_entries > ARENA_MOST_ENTRIES || o.device < 0)
        return COMET_ERROR_ARGUMENT;
    comet_arena *a = comet_memory_take(o.allocator, arena_bytes(o.max_entries));
    if (!a)
        return COMET_ERROR_MEMORY;
    memset(a, 0, arena_bytes(o.max_entries));
    a->driver = driver;
    a->has_allocator = o.allocator != NULL;
    if (o.allocator)
        a->allocator = *o.allocator;
    a->device = o.device;
    a->stream = o.stream;
    a->most_entries = o.max_entries;
    a->items[0] = (arena_item){.state = ENTRY_LIVE, .knowledge = KNOWN};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->closed, NULL);
    comet_status status = build(a, &o);
    if (status != COMET_OK)
        (void)tear_down(a);
    else
        *arena = a;
    return status;
}

comet_status comet_arena_create(const comet_arena_options *options, comet_arena **arena) {
    const arena_driver *driver = comet_arena_driver_cuda();
    return driver ? comet_arena_create_with(driver, options, arena) : COMET_ERROR_NO_DEVICE;
}

comet_status comet_arena_destroy(comet_arena *arena) {
    if (!arena)
        return COMET_OK;
    int is_capturing = 0;
    comet_status status = capturing(arena, &is_capturing);
    if (status == COMET_OK && is_capturing)
        return COMET_ERROR_UNSUPPORTED;
    status = both(status, arena->driver->stream_wait(arena->driver, arena->stream));
    return both(status, tear_down(arena));
}
