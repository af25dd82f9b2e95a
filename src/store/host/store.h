/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's parts, and what they share. Names that end in _locked are called with the store's lock held; the others
 * without it. docs/store.md is the design.
 */
#ifndef COMET_STORE_STORE_H
#define COMET_STORE_STORE_H

#include <pthread.h>

#include "comet/store.h"
#include "store/host/store_spill.h"

enum {
    STORE_SLOT_BITS = 24,     /* of a handle; above them entries are numbered as they come */
    STORE_NAME_BYTES = 64,    /* of an account, with the zero */
    STORE_PIECE_BYTES = 16384 /* strided tensors go to the file and come from it in pieces of this */
};

/* Counters of one name. */
typedef struct store_account {
    comet_store_account figures;
    uint64_t seen;  /* the number of the store's peak that figures.at_peak is of */
    uint32_t users; /* entries that point here, those being saved too */
} store_account;

typedef enum entry_state { ENTRY_SAVING, ENTRY_READY, ENTRY_LEAVING } entry_state;

typedef struct store_entry {
    comet_store_handle handle;
    entry_state state;
    uint32_t holders;
    uint32_t pins; /* calls that have to do with it: it does not go while there are any */
    uint32_t uses; /* of these, calls in progress that read its memory: nor does that */

    comet_tensor view; /* as saved; `data` only tells aliases */
    comet_store_form form;
    int32_t offload;
    comet_codec_params codec;
    comet_codec_grid given_grid, grid; /* the caller's, to tell aliases; the entry's own copy, to decode */
    float *grid_values;                /* threshold, then slope */
    size_t grid_bytes;
    uint64_t generation;
    void (*release)(void *context, void *data, size_t bytes);
    comet_status (*recompute)(void *context, const comet_tensor *destination);
    void *context;

    store_account *account;
    size_t raw;
    comet_store_bytes bytes; /* as counted: all zero until it rests somewhere */
    size_t need;             /* scratch that loading it takes; 0: none */
    size_t load_workspace;   /* of that, what decompressing takes */
    void *memory;            /* bytes.resident of it; NULL: none */
    int taken;               /* the memory is the caller's, to go through `release` */
    int viewed;              /* so the memory stays */
    int spare;               /* the file has it too: the memory may go when nobody uses it */
    int unwanted;            /* spare, and to go as soon as nobody uses it */
    int moving;              /* being written to the file */
    int reading;             /* being read ahead */
    int dropping;            /* its memory is on its way out */
    uint64_t ahead;          /* numbers entries in the order in which they were read ahead */
    spill_extent *extent;    /* NULL: not in the file */
    uint32_t checksum;
    struct store_entry *next_wanted; /* in the queue of what is to be read ahead */
    int queued;
    uint64_t loads;
    int counted; /* among the living */
    comet_codec_record result;
} store_entry;

struct comet_store {
    comet_allocator allocator_copy;
    const comet_allocator *allocator; /* NULL or &allocator_copy */
    comet_threads *threads;
    size_t limit, scratch_share; /* limit SIZE_MAX: none */
    int spill_checksum, background;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    size_t held;      /* resident and reserved; never above the limit */
    size_t spare;     /* of the resident: what may go when room is needed */
    uint32_t flights; /* calls in progress that hold a reservation */
    spill_file spill;

    store_entry **entries; /* by slot; NULL: free */
    uint32_t slots, free_from;
    uint64_t serial;

    store_account **accounts;
    size_t account_count, account_room;
    comet_store_stats stats; /* live figures too */
    uint64_t peaks;          /* numbers them */

    pthread_t reader;
    store_entry *wanted, **wanted_end;
    uint64_t ahead;
    int stop;
};

/* comet_store_new with another system below the spill file, which must outlive the store. */
comet_status comet_store_new_with(const store_io *io, const comet_store_options *options, comet_store **store);

/* ---- store_memory.c: where memory comes from ---- */

/* Small memory of the store itself, counted as overhead. */
void *comet_store_take_locked(comet_store *s, size_t bytes);
void comet_store_give_locked(comet_store *s, void *memory, size_t bytes);

/* Memory of streams and scratch: pages, or the caller's allocator. What `bytes` will really take: */
size_t comet_store_round(const comet_store *s, size_t bytes);

/* NULL when it cannot. `sparse`: comet_store_block_fit will follow. */
void *comet_store_block_take(const comet_store *s, size_t bytes, int sparse);
void comet_store_block_give(const comet_store *s, void *memory, size_t bytes);

/* Whether comet_store_block_fit needs a second block beside the first. */
int comet_store_fit_copies(const comet_store *s);

/* Cuts a block to its first `used` bytes; it may move. NULL: out of memory, the block is as before. */
void *comet_store_block_fit(const comet_store *s, void *memory, size_t bytes, size_t used);

/* ---- store_budget.c: who may take how much ---- */

/* What a call in progress holds. */
typedef struct store_flight {
    size_t reserved; /* of the limit */
    size_t scratch;  /* of these: known to be in use */
} store_flight;

/*
 * Reserves `most` bytes, or all the room there is but at least `least`. Waits for other calls as long as that can
 * help. COMET_ERROR_CAPACITY: stats.missing_bytes is set.
 */
comet_status comet_store_depart_locked(comet_store *s, size_t least, size_t most, store_flight *flight);

/* COMET_ERROR_CAPACITY, for want of stats.missing_bytes. */
comet_status comet_store_over_limit(const comet_store *s);

/* So much of the reservation is in use now; 0 again when it is not. */
void comet_store_scratch_locked(comet_store *s, store_flight *flight, size_t bytes);

/* How much limit is missing for an entry to rest with `resident` bytes in memory and that need for loading; 0: none. */
size_t comet_store_missing_locked(const comet_store *s, size_t resident, size_t need);

/* `bytes` of the reservation now belong to an entry, which counts them. */
void comet_store_settle_locked(store_flight *flight, size_t bytes);

/* Gives back what is left of the reservation. */
void comet_store_arrive_locked(comet_store *s, store_flight *flight);

/* Memory that belonged to an entry is gone. */
void comet_store_vacate_locked(comet_store *s, size_t bytes);

/* ---- store_account.c: what is counted ---- */

/* The account of that name, made if there is none. NULL: out of memory. */
store_account *comet_store_account_locked(comet_store *s, const char *name);

/* Sets the entry's sizes, and with them those of its account and of the store. */
void comet_store_count_locked(comet_store *s, store_entry *entry, comet_store_bytes bytes);

/* Looks whether this is a peak. */
void comet_store_peak_locked(comet_store *s);

/* The entry is one of the living now, or is not any more. */
void comet_store_number_locked(comet_store *s, store_entry *entry, int counted);

/* What at_peak is now, whether or not the account has changed since. */
void comet_store_account_sync_locked(const comet_store *s, store_account *account);

void comet_store_accounts_free_locked(comet_store *s);

/* "eb+offload" */
void comet_store_form_name(const store_entry *entry, char name[32]);

/* ---- store_entry.c: entries and handles ---- */

/* A new entry in the state ENTRY_SAVING with one holder; the item is checked. */
comet_status comet_store_entry_new_locked(comet_store *s, const comet_tensor *tensor, const comet_store_item *item,
                                          const comet_codec_params *codec, store_entry **entry);

/* A living entry that the tensor is an alias of; waits for one that is being saved. NULL: none. */
store_entry *comet_store_alias_locked(comet_store *s, const comet_tensor *tensor, const comet_store_item *item,
                                      const comet_codec_params *codec);

/* The entry of a handle, ready; NULL: no such entry. */
store_entry *comet_store_find_locked(const comet_store *s, comet_store_handle handle);

/*
 * For these and the next: the lock is released for a while if something has to go, and the entry may be gone
 * afterwards.
 */
void comet_store_unpin_locked(comet_store *s, store_entry *entry);
void comet_store_unuse_locked(comet_store *s, store_entry *entry);

/* Frees memory, extent, grid and the entry itself, callbacks included; nobody holds or pins it. */
void comet_store_entry_free_locked(comet_store *s, store_entry *entry);

/* Frees the memory of an entry that is in the file too; nobody uses it. */
void comet_store_drop_memory_locked(comet_store *s, store_entry *entry);

/* COMET_ERROR_ARGUMENT: the handle is none. */
comet_status comet_store_unknown(void);

void comet_store_fill_info(const store_entry *entry, comet_store_info *info);

/* ---- store_offload.c: to the file and back ---- */

/* Writes the tensor's values in order, or `data` if that is not NULL, and sets the entry's extent. */
comet_status comet_store_offload(comet_store *s, store_entry *entry, const comet_tensor *tensor, const void *data,
                                 size_t bytes);

/* Frees the entry's extent. */
void comet_store_extent_free_locked(comet_store *s, store_entry *entry);

/* Where the bytes of a pinned entry are; memory NULL: in the file. */
typedef struct store_source {
    const void *memory;
    const spill_extent *extent;
    size_t stored;
    uint32_t checksum;
} store_source;

store_source comet_store_source_locked(const store_entry *entry);

/* Reads all of it from the file. */
comet_status comet_store_fetch(const comet_store *s, const store_source *source, void *data);

/* The same into a tensor of any strides. */
comet_status comet_store_fetch_tensor(const comet_store *s, const store_source *source, const comet_tensor *tensor);

/* ---- store_load.c ---- */

/* Scratch that loading an entry of `stored` bytes takes, from memory or (spilled) from the file. */
size_t comet_store_need(const comet_store *s, const store_entry *entry, int spilled, size_t stored);

/* ---- store_move.c: to the file later, and back ahead of a load ---- */

/*
 * Moves entries from memory to the file, the oldest first, until `bytes` are free that were not. COMET_ERROR_CAPACITY:
 * there was nothing to move.
 */
comet_status comet_store_make_room(comet_store *s, size_t bytes);

comet_status comet_store_reader_start(comet_store *s);
void comet_store_reader_stop(comet_store *s);

/* Takes the entry out of the queue if it is there. */
void comet_store_unqueue_locked(comet_store *s, store_entry *entry);

#endif
