/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an arena is made of: for its parts. Entries are a stack: position p holds a stream that begins where the stream
 * of position p - 1 ends, or later (position 0 is the bottom, which ends at 0 and never changes). The device chains
 * them itself, through the `end` in its records; the host keeps bounds of those ends and replaces them by what it reads
 * back. docs/arena.md has the proofs.
 */
#ifndef COMET_STORE_ARENA_IMPL_H
#define COMET_STORE_ARENA_IMPL_H

#include <pthread.h>

#include "store/device/arena.h"

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
    comet_allocator allocator_copy;
    const comet_allocator *allocator; /* NULL or &allocator_copy */
    int has_range, graphs;
    int32_t device;
    void *queue;

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

/* What an open asks for, and where it can go. */
typedef struct arena_wish {
    size_t worst, likely;
    int capturing;
    uint32_t position;
    size_t capacity;
} arena_wish;

static inline size_t arena_round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static inline comet_cuda_result *arena_record_of(const comet_arena *a, uint32_t position) {
    return (comet_cuda_result *)(void *)(a->records + (size_t)position * ARENA_RECORD_BYTES);
}

/* ---- arena_known.c: what the host knows of ends. All but the first with the lock held. ---- */

comet_status comet_arena_capturing(const comet_arena *a, int *is);

/* Bounds of the ends from `position` to the top. */
void comet_arena_bound_ends(comet_arena *a, uint32_t position);

/* An entry of which nothing has been asked for; one copy for all of them. Neither while capturing. */
void comet_arena_note_unasked(comet_arena *a, uint32_t position);
comet_status comet_arena_ask(comet_arena *a);

/* Takes in what has arrived. Not while capturing. */
comet_status comet_arena_poll_arrived(comet_arena *a);

/* Waits for the oldest readback, asking first if there is none. *any is 0 if there is nothing to wait for. */
comet_status comet_arena_wait_for_one(comet_arena *a, int *any);

/* ---- arena_room.c: where a stream goes. With the lock held. ---- */

/* Maps at least the first `bytes` bytes; on a failure what was mapped for it goes back as far as it can. */
comet_status comet_arena_map_up_to(comet_arena *a, size_t bytes);
comet_status comet_arena_unmap_last(comet_arena *a);

/*
 * Finds the wish's position and capacity. In this order: what is there, what the host can know without waiting, more
 * memory, waiting.
 */
comet_status comet_arena_make_room(comet_arena *a, arena_wish *wish);

/* Counts a wish that cannot be had, and what is missing; returns `status`. */
comet_status comet_arena_refuse(comet_arena *a, const arena_wish *wish, comet_status status);

/* ---- arena.c ---- */

/* Until no other thread has an entry open. With the lock held. */
comet_status comet_arena_wait_for_turn(comet_arena *a);

#endif
