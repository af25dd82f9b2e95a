/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device store is made of: for its parts. An entry is one tensor that is held. Its stream lies in a segment,
 * which belongs to a lane: what the store has for one queue. The device writes the size of the stream to a record in
 * page-locked memory, where the host sees it without asking. docs/device-store.md has the design.
 *
 * Wherever the caller's memory is taken or given back, and wherever an owner is told, other calls may run in between:
 * the caller may have let go of its lock. So nothing is remembered across these but what nobody else can give up.
 */
#ifndef COMET_STORE_DEVICE_STORE_IMPL_H
#define COMET_STORE_DEVICE_STORE_IMPL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "store/device/device_store.h"

/*
 * Where the device writes a comet_cuda_result. Filled with ones before: no word of a result is all ones (sizes and
 * counts are not negative, sums and bounds are no NaN), so each says by itself whether it has arrived.
 */
typedef struct held_record {
    _Atomic uint64_t words[HELD_RECORD_BYTES / 8];
} held_record;

_Static_assert(sizeof(held_record) == HELD_RECORD_BYTES, "an atomic word is a word");
_Static_assert(sizeof(comet_cuda_result) <= HELD_RECORD_BYTES, "a record holds a result");

typedef struct held_pool {
    struct held_pool *next;
    held_record *records; /* page-locked */
} held_pool;

typedef struct held_lane held_lane;

/* Memory of the caller. Streams lie in the order in which they were placed; a new one comes on top. */
typedef struct held_segment {
    struct held_segment *older, *newer;
    held_lane *lane;
    unsigned char *base;
    size_t bytes, used;
    uint32_t pins; /* it stays even if it is empty */
    comet_device_entry *top;
} held_segment;

struct held_lane {
    held_lane *next;
    void *queue;
    held_segment *newest;
    comet_device_entry *first, *last; /* issued and not settled, in the order of the queue */
    void *workspace;
    size_t workspace_bytes;
    int knows_word; /* what is issued to the queue comes after the status word was zeroed */
};

/* Page-locked memory for a stream. */
typedef struct held_slab {
    struct held_slab *next; /* of those that nobody uses */
    unsigned char *memory;
    size_t bytes;
} held_slab;

/* A copy under way. When it has ended the stream is in both places, and one of them is given up. */
typedef struct held_copy {
    struct held_copy *next; /* in the order in which they were issued */
    void *event;
    held_slab *slab;
    comet_device_entry *entry; /* NULL: released */
    int to_host;               /* which way the bytes go */
    size_t bytes;
} held_copy;

/* OPEN: its stream is not issued yet. SETTLED: the owner was told, or its entry is being released. */
typedef enum held_stage { HELD_FREE, HELD_OPEN, HELD_ISSUED, HELD_SETTLED } held_stage;

struct comet_device_entry {
    atomic_int state;              /* comet_device_entry_state: comet_device_store_await reads it */
    _Atomic(held_record *) record; /* and this; NULL: settled, or on a CPU */
    held_stage stage;
    uint32_t references, misfits;
    uint64_t serial;                     /* of its last issue */
    comet_device_entry *previous, *next; /* in the lane; next also among the free ones */
    void *queue;                         /* it was saved on: comet_device_store_await reads this, too */
    held_lane *lane;                     /* of its room, or of that queue */
    held_lane *reader;                   /* NULL, or of another queue that may read the stream: it is waited for */
    held_segment *segment;
    comet_device_entry *below, *above; /* in the segment */
    unsigned char *base;               /* NULL: its stream is not on the device */
    size_t room;                       /* from base on */
    size_t most, workspace;            /* that the stream and its making can take */
    size_t raw_bytes;
    held_slab *slab; /* NULL, or where the stream is on the host, or will be */
    held_copy *copy; /* NULL, or under way */
    int wants_host;  /* when the copy has ended the stream's room is given up, not the slab */
    comet_tensor tensor;
    comet_codec_params params;
    comet_codec_grid grid; /* what params.grid points to */
    void *owner;
    comet_codec_record result; /* on a CPU from the beginning, else once it is settled */
};

enum { HELD_BLOCK_ENTRIES = 64 };

/* Entries are taken together and used again. */
typedef struct held_block {
    struct held_block *next;
    comet_device_entry entries[HELD_BLOCK_ENTRIES];
} held_block;

struct comet_device_store {
    const device_store_driver *driver; /* NULL: a CPU */
    comet_device_store_options options;
    comet_allocator allocator_copy;
    const comet_allocator *allocator; /* NULL or &allocator_copy */
    comet_device_store_stats stats;   /* all but `waits` */
    _Atomic uint64_t waits;
    atomic_int failed; /* the device did: also set by comet_device_store_await */
    uint64_t serial, asked_health;

    held_lane *lanes;
    held_segment *free_segments;
    held_block *blocks;
    comet_device_entry *free_entries;

    held_pool *pools;
    held_record **free_records, **late_records; /* late: their entries are released, the device has not written yet */
    size_t free_count, late_count, free_room, late_room, records;

    void *event;       /* for ordering two queues; recorded anew each time */
    void *word_memory; /* the device's status word */
    held_lane *word_lane;
    _Atomic int32_t *word; /* its copy, page-locked */
    uint64_t reads;

    void *copy_queue;
    held_copy *first_copy, *last_copy, *free_copies;
    held_slab *free_slabs;

    void *scratch, *workspace; /* of a CPU */
    size_t scratch_bytes, workspace_bytes;
};

static inline size_t held_round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/* Between them calls of the driver may be made. */
static inline comet_status held_enter(const comet_device_store *s, int *scope) {
    return s->driver->enter(s->driver, s->options.device.index, scope);
}

static inline void held_leave(const comet_device_store *s, int scope) {
    s->driver->leave(s->driver, scope);
}

/* ---- held_records.c: entries, and records that the device writes ---- */

comet_status comet_held_entry_new(comet_device_store *s, comet_device_entry **entry);
void comet_held_entry_drop(comet_device_store *s, comet_device_entry *e); /* to those that can be used again */

comet_status comet_held_pool_new(comet_device_store *s);
comet_status comet_held_record_new(comet_device_store *s, held_record **record); /* nothing has arrived in it */
void comet_held_record_clear(held_record *record);
int comet_held_record_read(const held_record *record, comet_cuda_result *result); /* 0: it has not arrived */
void comet_held_record_drop(comet_device_store *s, held_record *record, int written);
void comet_held_records_reap(comet_device_store *s); /* late ones that have arrived */

/* ---- held_segments.c: lanes, and where streams lie ---- */

comet_status comet_held_lane_of(comet_device_store *s, void *queue, held_lane **lane);
comet_status comet_held_workspace(comet_device_store *s, held_lane *lane, size_t bytes);
comet_codec_exec comet_held_exec(const held_lane *lane);

/*
 * Gives the entry `room` bytes in the lane. Where it has room that is given up first, whatever comes of this. An entry
 * whose stream is on the host may be placed by another call meanwhile: then it stays there.
 */
comet_status comet_held_place(comet_device_store *s, comet_device_entry *e, held_lane *lane, size_t room);
void comet_held_shrink(comet_device_store *s, comet_device_entry *e, size_t room);
void comet_held_displace(comet_device_store *s, comet_device_entry *e);

/* What the queue `after` is given from now on comes after what `before` was given. */
comet_status comet_held_order(comet_device_store *s, void *before, void *after);
/* The entry's room may be used again: its lane waits for who reads it, or copies it. */
void comet_held_quiet(comet_device_store *s, comet_device_entry *e);

/* ---- held_save.c ---- */

/* A misfit, once more: `bytes` are what it needs. After an error it has a record, and perhaps room. */
comet_status comet_held_again(comet_device_store *s, comet_device_entry *e, size_t bytes);

/* ---- held_settle.c ---- */

/* The entry's stream is issued: it waits to be settled. */
void comet_held_issued(comet_device_store *s, comet_device_entry *e);
/* Gives everything back that the entry has. */
void comet_held_release(comet_device_store *s, comet_device_entry *e);
comet_status comet_held_failed(comet_device_store *s); /* says that the device failed */

/* ---- held_spill.c ---- */

comet_status comet_held_fetch(comet_device_store *s, comet_device_entry *e, held_lane *lane);
comet_status comet_held_poll_copies(comet_device_store *s);
void comet_held_drop_host(comet_device_store *s, comet_device_entry *e);
void comet_held_free_host(comet_device_store *s); /* all of it, when no copy is under way */

/* ---- held_cpu.c ---- */

comet_status comet_held_cpu_compress(comet_device_store *s, comet_device_entry *e);
comet_status comet_held_cpu_load(comet_device_store *s, const comet_device_entry *e, const comet_tensor *tensor);
void comet_held_cpu_give(comet_device_store *s, comet_device_entry *e);

#endif
