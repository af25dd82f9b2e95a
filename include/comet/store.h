/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The activation store: tensors kept between the forward and the backward pass, each in the form that suits it, within
 * a limit on memory. In host memory; comet/arena.h is the GPU's.
 *
 *     comet_store_options options = COMET_STORE_OPTIONS_INIT;
 *     options.limit_bytes = budget;
 *     options.spill_directory = "/var/tmp";                       // what does not fit goes here
 *     comet_store_new(&options, &store);
 *
 *     comet_codec_params eb = COMET_CODEC_PARAMS_INIT;            // forward
 *     eb.bound_kind = COMET_BOUND_RELATIVE, eb.bound = 0.3;
 *     comet_store_item item = COMET_STORE_ITEM_INIT;
 *     item.name = "layer1.conv1", item.form = COMET_FORM_CODEC, item.codec = &eb;
 *     comet_store_save(store, &tensor, &item, &handle, NULL);
 *
 *     comet_store_load(store, handle, &tensor);                   // backward, into memory of the caller's
 *     comet_store_release(store, handle);
 *
 * A handle stands for an entry. comet_store_save gives the first hold on it, comet_store_share another; the entry goes
 * when each hold is released, in any order, from any thread. Entries never change: what is loaded is always the same.
 *
 * All functions are thread-safe. Compressing, reading and writing happen outside of the store's lock, so several
 * threads save and load at the same time (options.threads is shared: they take turns in it). Callbacks are called
 * without the lock: `recompute` may do anything with the store, `release` may share and release.
 *
 * docs/store.md says how the limit is held and why.
 */
#ifndef COMET_STORE_H
#define COMET_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "comet/allocator.h"
#include "comet/codec.h"
#include "comet/export.h"
#include "comet/init.h"
#include "comet/status.h"
#include "comet/tensor.h"
#include "comet/threads.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_store comet_store;

/* One entry. 0 is none; a handle is never given out twice. */
typedef uint64_t comet_store_handle;

typedef struct comet_store_options {
    size_t size;                 /* sizeof(comet_store_options) */
    size_t limit_bytes;          /* the most memory that entries and calls in progress take together; 0: no limit */
    size_t scratch_bytes;        /* of these, set aside for calls in progress: entries at rest take at most the rest */
    const char *spill_directory; /* where a file for what does not fit is made; NULL: none. Copied. */
    uint64_t spill_limit_bytes;  /* the most that file may grow to; 0: no limit */
    int32_t spill_checksum;      /* 1: what is read back from the file is verified (CRC-32) */
    int32_t background;          /* 1: a thread of the store's own reads ahead what comet_store_prefetch names */
    comet_threads *threads;      /* for the codecs; NULL: the calling thread alone. It must outlive the store. */
    const comet_allocator *allocator; /* NULL: pages of the system; its context must outlive the store */
} comet_store_options;

#define COMET_STORE_OPTIONS_INIT COMET_INIT_ZERO(comet_store_options)

typedef enum comet_store_form {
    COMET_FORM_KEEP = 0,     /* as it is: copied, or taken over */
    COMET_FORM_CODEC = 1,    /* a stream of one of the codecs */
    COMET_FORM_RECOMPUTE = 2 /* nothing: a callback fills the destination of each load */
} comet_store_form;

/* How a tensor is saved. */
typedef struct comet_store_item {
    size_t size;                     /* sizeof(comet_store_item) */
    const char *name;                /* of the account it is counted in: the layer, say; NULL: "". 63 bytes count. */
    comet_store_form form;           /* */
    int32_t offload;                 /* KEEP and CODEC: 1: the bytes go to the spill file, at once */
    const comet_codec_params *codec; /* CODEC: which, and its parameters. Copied, a grid's threshold and slope too. */
    /*
     * 0: always a new entry. Else a living entry that was saved with the same generation, from the same view (data,
     * type, shape, strides) and in the same form, is shared: the caller promises that the values are the same. A new
     * number for every time that a buffer is filled (the number of the step, say) keeps the promise.
     */
    uint64_t generation;
    /*
     * KEEP: not NULL: the store takes the tensor's memory over without a copy, and calls this once when it is not
     * needed any more; until then nobody writes to it. The tensor must be contiguous. If the save fails, or an entry
     * was shared, nothing is taken over and `release` not called.
     * RECOMPUTE: may be NULL, else it is called once with (context, NULL, 0) when the entry goes.
     */
    void (*release)(void *context, void *data, size_t bytes);
    /* RECOMPUTE: fills the destination; its status is the load's. May be called by several threads at once. */
    comet_status (*recompute)(void *context, const comet_tensor *destination);
    void *context; /* of both */
} comet_store_item;

#define COMET_STORE_ITEM_INIT COMET_INIT_ZERO(comet_store_item)

/*
 * Sizes of one entry, of an account or of all entries. An entry counts once, however many holds there are. Its layout
 * is fixed: it lies in other structs.
 */
typedef struct comet_store_bytes {
    uint64_t raw;      /* values times the size of their type */
    uint64_t stored;   /* what represents them, wherever it lies; a stream with its header */
    uint64_t resident; /* in memory: what was taken from the system or the allocator for it, whole pages */
    uint64_t spilled;  /* in the file */
} comet_store_bytes;

typedef struct comet_store_info {
    size_t size; /* sizeof(comet_store_info) */
    comet_store_bytes bytes;
    uint32_t holders;          /* more than 1 after a save: an alias was found */
    int32_t spilled;           /* 1: in the file, asked for or for want of room */
    uint64_t loads;            /* so far */
    comet_store_form form;     /* */
    comet_codec_record result; /* CODEC: what the codec said: bound, statistics, ... */
} comet_store_info;

#define COMET_STORE_INFO_INIT COMET_INIT_ZERO(comet_store_info)

/* What is counted under one name since the store was made or comet_store_reset. */
typedef struct comet_store_account {
    size_t size; /* sizeof(comet_store_account) */
    char name[64];
    char form[32]; /* of the last save: "keep", "eb", "eb+offload", "recompute", ... */
    uint64_t entries;
    comet_store_bytes live, peak; /* now; the greatest of each, on its own */
    comet_store_bytes at_peak;    /* at the moment of the store's peak */
    comet_store_bytes last;       /* of the last save */
    uint64_t saves, aliases, loads, spills;
} comet_store_account;

#define COMET_STORE_ACCOUNT_INIT COMET_INIT_ZERO(comet_store_account)

typedef struct comet_store_stats {
    size_t size; /* sizeof(comet_store_stats) */
    uint64_t limit_bytes;
    uint64_t entries, peak_entries;
    comet_store_bytes live, peak; /* now; the greatest of each, on its own */
    uint64_t scratch_bytes;       /* of calls in progress: workspaces, streams on their way to or from the file */
    uint64_t reserved_bytes;      /* what calls in progress may still take, scratch_bytes included */
    uint64_t peak_used_bytes;     /* the greatest live.resident + scratch_bytes: the peak. Never above the limit. */
    comet_store_bytes at_peak;    /* at that moment */
    uint64_t overhead_bytes;      /* the store itself: entries, accounts, tables; not under the limit */
    uint64_t file_bytes, peak_file_bytes; /* the spill file */
    uint64_t missing_bytes; /* of limit, for the last save that did not fit: with so much more it surely had */
    uint64_t saves, aliases, loads, recomputes;
    uint64_t spills;                      /* entries written to the file; */
    uint64_t overflows;                   /* of these, for want of room */
    uint64_t refused;                     /* saves for which there was no room at all */
    uint64_t prefetched, prefetched_used; /* read ahead; of these, how often a load found one */
} comet_store_stats;

#define COMET_STORE_STATS_INIT COMET_INIT_ZERO(comet_store_stats)

/*
 * COMET_ERROR_ARGUMENT: as much scratch as limit, or more. COMET_ERROR_IO: no file can be made in the directory.
 * COMET_ERROR_MEMORY: memory, or a thread, could not be had.
 */
COMET_API comet_status comet_store_new(const comet_store_options *options, comet_store **store);

/* Releases everything, entries that are still held too. No call may still use the store. NULL is allowed. */
COMET_API void comet_store_free(comet_store *store);

/*
 * Saves `tensor` as `item` says (NULL: kept as a copy) and gives the first hold on the entry. Any strides. `info` may
 * be NULL. Of a tensor to recompute only type and shape are read.
 *
 * COMET_ERROR_CAPACITY: no room within the limit, nor in the file if there is one. COMET_ERROR_DISK_FULL: it did not
 * fit in memory, or was to be offloaded, and the disk (or spill_limit_bytes) is full. COMET_ERROR_UNSUPPORTED: not in
 * host memory, or offload without a spill directory. Others are the codec's, of the file, or of the allocator.
 * After an error nothing is saved and nothing has changed.
 */
COMET_API comet_status comet_store_save(comet_store *store, const comet_tensor *tensor, const comet_store_item *item,
                                        comet_store_handle *handle, comet_store_info *info);

/*
 * The memory that saving such a tensor needs besides what stays, and that loading it does; for choosing scratch_bytes.
 * Saves get by with less as long as the stream fits; loads do not. Either may be NULL.
 */
COMET_API comet_status comet_store_scratch(const comet_store *store, const comet_tensor *tensor,
                                           const comet_store_item *item, size_t *save_bytes, size_t *load_bytes);

/*
 * Fills `tensor`, whose shape, layout and type must be those saved (strides are free; fp32 where a grid was given; any
 * type for a mask). COMET_ERROR_CORRUPT: the spill file was cut short, or a stream does not decode;
 * COMET_ERROR_CHECKSUM: it changed. After an error the tensor's content is unspecified and the entry still there.
 */
COMET_API comet_status comet_store_load(comet_store *store, comet_store_handle handle, const comet_tensor *tensor);

/*
 * What COMET_FORM_KEEP keeps in memory, without a copy: contiguous, to be read only, until the last hold is released.
 * COMET_ERROR_UNSUPPORTED: another form, or it is in the file: load it.
 */
COMET_API comet_status comet_store_view(comet_store *store, comet_store_handle handle, comet_tensor *tensor);

/* One hold more on the same entry. */
COMET_API comet_status comet_store_share(comet_store *store, comet_store_handle handle);

/* One hold less. The last one frees the entry, its memory and its place in the file. */
COMET_API comet_status comet_store_release(comet_store *store, comet_store_handle handle);

/*
 * Moves an entry from memory to the file; nothing to do if it is there or has no bytes. COMET_ERROR_UNSUPPORTED: no
 * spill directory, or it is being viewed. After an error it stays in memory.
 */
COMET_API comet_status comet_store_spill(comet_store *store, comet_store_handle handle);

/*
 * A hint that the entry will be loaded soon. With options.background it is read from the file as soon as there is room;
 * without, the system is told to read ahead. Returns at once. Only an unknown handle is an error.
 */
COMET_API comet_status comet_store_prefetch(comet_store *store, comet_store_handle handle);

/* ---- accounting ---- */

/* Of one entry. */
COMET_API comet_status comet_store_get_info(comet_store *store, comet_store_handle handle, comet_store_info *info);

/* Of all. */
COMET_API comet_status comet_store_get_stats(comet_store *store, comet_store_stats *stats);

/* How many accounts there are, and one of them: in the order of first use. COMET_ERROR_ARGUMENT: no such index. */
COMET_API size_t comet_store_accounts(comet_store *store);
COMET_API comet_status comet_store_get_account(comet_store *store, size_t index, comet_store_account *account);

/* Peaks and counters start anew from what is live; accounts without a living entry are forgotten. */
COMET_API void comet_store_reset(comet_store *store);

typedef enum comet_store_report {
    COMET_REPORT_TABLE = 0, /* lines of text: an account each, then the totals */
    COMET_REPORT_JSON = 1   /* {"totals": {...}, "accounts": [{...}, ...]} */
} comet_store_report;

/*
 * All accounts and the totals as a text that ends in a zero. *bytes is its length without the zero, whether it fits or
 * not. COMET_ERROR_CAPACITY: `capacity` is not more than that; `text` may be NULL if `capacity` is 0.
 */
COMET_API comet_status comet_store_write_report(comet_store *store, comet_store_report kind, char *text,
                                                size_t capacity, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
