/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device store: tensors that a framework saves for its backward pass, held compressed in memory that the framework
 * itself gives. On a GPU no call waits for the device to learn a size; on a CPU everything is done when a call returns.
 *
 *     comet_device_store_options options = COMET_DEVICE_STORE_OPTIONS_INIT;
 *     options.device = device, options.memory = the framework's allocator, options.settled = drop_reference;
 *     comet_device_store_new(&options, &store);
 *
 *     comet_device_save save = COMET_DEVICE_SAVE_INIT;                         // forward
 *     save.tensor = &x, save.params = &params, save.queue = queue, save.owner = a reference to x's memory;
 *     comet_device_store_save(store, &save, &entry);
 *     comet_device_store_poll(store);                                         // now and then: calls drop_reference
 *
 *     comet_device_store_load(store, entry, queue, NULL, &x);                 // backward
 *     comet_device_store_release(store, entry);
 *
 * Certain room, tight memory and no waiting contradict each other, since how large a stream is only the device knows.
 * This is how all three are had. A stream gets room for the size that is expected of it. The tensor itself stays alive
 * until the host has read that the stream fitted: the entry is *settled* then. If it did not fit it is compressed once
 * more, now that its size is known, from the tensor that is still there. So no stream is ever lost, and what comes back
 * does not depend on timing. What that costs is that tensors live a little longer; `comet_device_store_unsettled_bytes`
 * says how much, and who wants to bound it waits for the oldest (`comet_device_store_await`): the device has work of
 * that many bytes queued then, so it does not run dry.
 *
 * Memory comes from the caller in segments. A stream lies behind the one before it; a segment goes back to the caller
 * when the last of its streams is released, which is during the backward pass, as that goes on. Streams are released
 * in any order.
 *
 * Queues (cudaStream_t; NULL is the default one) are named in every call. A segment belongs to the queue on which its
 * streams are saved. Where an entry is loaded on another queue, the two are ordered with events. Memory is taken and
 * given in the order of its queue: what is given back may still be in use by work that was issued before. So are
 * owners: a kernel may be reading the last values of a tensor when it is settled. Queues outlive the store. One that is
 * captured in a CUDA graph cannot be saved on: COMET_ERROR_UNSUPPORTED.
 *
 * A store is not thread-safe: the caller has a lock (the interpreter's, say), and callbacks run under it, in the thread
 * that calls. They may let go of it for a while: other threads' calls then run in between. Who calls has a reference to
 * the entries that it names. Only comet_device_store_await may run without the lock. Any device may be current; it is
 * so again afterwards.
 *
 * In a library built without CUDA a store on a GPU cannot be made: COMET_ERROR_NO_DEVICE.
 */
#ifndef COMET_DEVICE_STORE_H
#define COMET_DEVICE_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "comet/allocator.h"
#include "comet/codec.h"
#include "comet/cuda.h"
#include "comet/export.h"
#include "comet/init.h"
#include "comet/status.h"
#include "comet/tensor.h"
#include "comet/threads.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_device_store comet_device_store;

/* A tensor that is held. It has one reference when it is made; comet_device_store_share adds one for each alias. */
typedef struct comet_device_entry comet_device_entry;

/* The caller's memory, on the store's device. */
typedef struct comet_device_memory {
    void *(*take)(void *context, size_t bytes, void *queue); /* aligned to 256 bytes; NULL: there is none */
    void (*give)(void *context, void *memory, size_t bytes, void *queue);
    void *context;
} comet_device_memory;

/* How an entry was settled. */
typedef struct comet_device_settled {
    comet_status status;       /* COMET_OK: the stream is there, the tensor is not needed any more. COMET_ERROR_MEMORY:
                                  it did not fit, and there is no memory for a larger one: the entry holds nothing, and
                                  the caller keeps the tensor itself. Others: the same, because the device failed. */
    comet_codec_record result; /* what the codec said; all zero unless the status is COMET_OK */
} comet_device_settled;

typedef struct comet_device_store_options {
    size_t size; /* sizeof(comet_device_store_options) */
    comet_device device;
    comet_device_memory memory; /* take NULL, on a CPU: the C library's */
    size_t segment_bytes;       /* of a segment, 2 MiB at least; a larger stream has a segment of its own. GPU alone */
    /*
     * Called once for each save's owner: by poll when it is settled, or by release when that comes first (COMET_OK).
     * Where another thread awaits the entry, or polls, that may be a little after the last release: the owner stays
     * until then. It may drop the owner; it calls nothing of this store but comet_device_store_release of other
     * entries.
     */
    void (*settled)(void *context, void *owner, comet_device_entry *entry, const comet_device_settled *how);
    void *settled_context;
    comet_threads *threads;           /* for codecs on a CPU; NULL: the calling thread alone */
    const comet_allocator *allocator; /* for the store's own records; NULL: the C library's; must outlive the store */
} comet_device_store_options;

#define COMET_DEVICE_STORE_OPTIONS_INIT                                                                                \
    COMET_INIT(comet_device_store_options, COMET_FIELD(segment_bytes) = (size_t)32 << 20)

/* Where bytes are. Sums over entries that are not released, but for what is said to be a count since the beginning. */
typedef struct comet_device_store_stats {
    size_t size;                        /* sizeof(comet_device_store_stats) */
    uint64_t entries, unsettled;        /* how many; of these, not settled yet */
    size_t raw_bytes;                   /* of the tensors as they were */
    size_t unsettled_bytes;             /* of these, of entries that are not settled */
    size_t stored_bytes;                /* of the streams whose size is known */
    size_t room_bytes;                  /* set aside for all streams on the device */
    size_t segments, segment_bytes;     /* taken from the caller now, the workspaces not counted */
    size_t peak_segment_bytes;          /* since the store was made, or comet_device_store_reset_peak */
    size_t workspace_bytes;             /* taken from the caller for codecs' workspaces */
    size_t host_bytes, peak_host_bytes; /* page-locked memory that holds streams */
    size_t spilling_bytes;              /* of streams that are being copied there: they are in both places */
    uint64_t saves, loads;              /* counts: */
    uint64_t misfits;                   /* saves that were larger than expected and done once more */
    uint64_t refused;                   /* saves, and repeats of misfits, for which there was no memory */
    uint64_t spills, fetches;           /* to page-locked memory, and back */
    uint64_t waits;                     /* times that comet_device_store_await had to wait */
    uint64_t queues_joined;             /* times that two queues were ordered with events */
} comet_device_store_stats;

#define COMET_DEVICE_STORE_STATS_INIT COMET_INIT_ZERO(comet_device_store_stats)

/* COMET_ERROR_ARGUMENT: no memory's callbacks on a GPU, no settled, a segment of less than 2 MiB. */
COMET_API comet_status comet_device_store_new(const comet_device_store_options *options, comet_device_store **store);

/* Waits for the device, gives everything back, entries too (owners are settled with COMET_OK). NULL is allowed. */
COMET_API void comet_device_store_free(comet_device_store *store);

COMET_API void comet_device_store_get_stats(const comet_device_store *store, comet_device_store_stats *stats);
COMET_API void comet_device_store_reset_peak(comet_device_store *store);

/* ---- saving ---- */

typedef struct comet_device_save {
    size_t size; /* sizeof(comet_device_save) */
    /*
     * Contiguous in the order of its dimensions, 16-byte aligned on a GPU. Its memory lives, and its values stay as
     * they are, until the owner is settled.
     */
    const comet_tensor *tensor;
    /* Copied. A grid's tables live as long as the entry; device_bound and _stats live, unchanged, until settled. */
    const comet_codec_params *params;
    size_t expected_bytes; /* of the stream: of the last step, say, with a margin; 0: unknown, a guess is made */
    void *queue;
    void *owner;
} comet_device_save;

#define COMET_DEVICE_SAVE_INIT COMET_INIT_ZERO(comet_device_save)

/*
 * Compresses. The entry is not settled yet, whatever the device: poll does that.
 * COMET_ERROR_MEMORY: the caller's memory is used up. After an error there is no entry, and `settled` is not called.
 */
COMET_API comet_status comet_device_store_save(comet_device_store *store, const comet_device_save *save,
                                               comet_device_entry **entry);

/*
 * The same in two parts, on a GPU alone, for kernels that make the stream on the way (comet/cuda_norm.h). Between them
 * the caller issues one call that writes the stream of save->tensor with save->params into `slot`, on save->queue, and
 * touches this store with nothing else but another comet_device_store_open and comet_device_store_exec. If that call
 * fails: comet_device_store_abandon in place of close; `settled` is not called then.
 */
COMET_API comet_status comet_device_store_open(comet_device_store *store, const comet_device_save *save,
                                               comet_device_entry **entry, comet_cuda_slot *slot);
COMET_API comet_status comet_device_store_close(comet_device_store *store, comet_device_entry *entry);
COMET_API void comet_device_store_abandon(comet_device_store *store, comet_device_entry *entry);

/*
 * How to run a call on `queue`: with the store's workspace for that queue, made as large as `workspace_bytes` if it is
 * smaller. `exec`, made with its initializer, is valid until the next call with the same queue. COMET_ERROR_MEMORY: no
 * memory for it.
 */
COMET_API comet_status comet_device_store_exec(comet_device_store *store, void *queue, size_t workspace_bytes,
                                               comet_codec_exec *exec);

/* Settles what has arrived; does not wait. Streams that did not fit are issued again. COMET_ERROR_DEVICE: it failed. */
COMET_API comet_status comet_device_store_poll(comet_device_store *store);

/* 1: the entry is settled, and holds a stream. 0: not settled yet. -1: settled without a stream; the owner has it. */
COMET_API int comet_device_entry_state(const comet_device_entry *entry);

/* Of entries that are not settled: the sum of the tensors' bytes. */
COMET_API size_t comet_device_store_unsettled_bytes(const comet_device_store *store);

/* The entry that is not settled whose stream was issued first, or NULL. One that did not fit was issued anew. */
COMET_API comet_device_entry *comet_device_store_oldest(const comet_device_store *store);

/*
 * Waits until poll can settle the entry, or find that it did not fit and issue it anew: then it is waited for again.
 * The one call that needs no lock, but the entry must not be released while it runs.
 */
COMET_API comet_status comet_device_store_await(const comet_device_store *store, const comet_device_entry *entry);

/* ---- loading ---- */

/*
 * Decompresses into `tensor`, which has the saved one's shape and layout, and its dtype unless `epilogue` (GPU alone;
 * may be NULL) makes another. A stream on its way to the host stays on the device. COMET_ERROR_ARGUMENT: the entry is
 * not settled, or holds no stream.
 */
COMET_API comet_status comet_device_store_load(comet_device_store *store, comet_device_entry *entry, void *queue,
                                               const comet_cuda_epilogue *epilogue, const comet_tensor *tensor);

/*
 * Where the stream lies, for one call that reads it on `queue` (comet_cuda_norm_backward), and the status word for it.
 * It lies there until the entry is released, or spilled.
 */
COMET_API comet_status comet_device_store_slot(comet_device_store *store, comet_device_entry *entry, void *queue,
                                               comet_cuda_slot *slot, int32_t **status);

/* What the device said of streams that were read: COMET_OK, or the first error. As of some calls ago; does not wait. */
COMET_API comet_status comet_device_store_health(comet_device_store *store);

/* ---- references ---- */

COMET_API comet_device_entry *comet_device_store_share(comet_device_entry *entry); /* returns `entry` */

/* One reference less; without any the stream is gone, and its segment goes back when it was the last one in it. */
COMET_API void comet_device_store_release(comet_device_store *store, comet_device_entry *entry);

typedef struct comet_device_entry_info {
    size_t size; /* sizeof(comet_device_entry_info) */
    size_t raw_bytes, room_bytes;
    int32_t state;             /* comet_device_entry_state */
    int32_t on_host;           /* 1: its stream is in page-locked memory */
    comet_codec_record result; /* all zero unless the state is 1 */
} comet_device_entry_info;

#define COMET_DEVICE_ENTRY_INFO_INIT COMET_INIT_ZERO(comet_device_entry_info)

COMET_API void comet_device_entry_get_info(const comet_device_entry *entry, comet_device_entry_info *info);

/* ---- to host memory and back: GPU alone ---- */

/*
 * Begins to copy a settled stream to page-locked host memory, on a queue of the store's own. Its room on the device is
 * free when poll finds that the copy has ended. Does nothing for a stream that is there already, or on a CPU.
 * COMET_ERROR_ARGUMENT: not settled. COMET_ERROR_MEMORY: no page-locked memory.
 */
COMET_API comet_status comet_device_store_spill(comet_device_store *store, comet_device_entry *entry);

/*
 * Begins to copy it back, for a load on `queue` that will come. Does nothing for a stream that is on the device, or on
 * its way. A load does it by itself where nobody did. COMET_ERROR_MEMORY: the caller has no memory.
 */
COMET_API comet_status comet_device_store_fetch(comet_device_store *store, comet_device_entry *entry, void *queue);

#ifdef __cplusplus
}
#endif

#endif
