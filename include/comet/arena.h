/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device arena: compressed streams of unknown size, one behind the other in GPU memory, released in any order.
 * The host does not wait to learn a size; memory is mapped as it is needed, up to a limit, and what lies there never
 * moves.
 *
 *     comet_arena_options options = COMET_ARENA_OPTIONS_INIT;
 *     options.limit_bytes = budget, options.queue = queue;
 *     comet_arena_new(&options, &arena);
 *
 *     comet_cuda_max_bytes(&tensor, &params, &worst);                      // save
 *     comet_arena_open(arena, worst, 0, &entry, &slot);
 *     comet_cuda_compress(&tensor, &params, &exec, &slot, NULL);       // if it fails: comet_arena_release
 *     comet_arena_close(arena, entry);
 *
 *     comet_arena_slot(arena, entry, &slot);                           // load
 *     comet_cuda_decompress(&slot, &params, NULL, &exec, &tensor, status);
 *     comet_arena_release(arena, entry);
 *
 * One arena belongs to one queue (a cudaStream_t): everything that writes or reads its memory is issued on that queue,
 * or ordered with it by events (a load elsewhere: the other queue waits for this one before, and this one for the other
 * before the entry is released). Then a released stream may be overwritten at once, since the kernel that does it
 * runs later. The arena's device must be current in every call.
 *
 * All functions are thread-safe: a mutex, held while a call waits for the device too. Between comet_arena_open and
 * comet_arena_close or comet_arena_release an open in another thread waits; one in the same thread is refused. Memory
 * of the host and of the device other than the streams' own is taken when the arena is created; afterwards nothing is
 * allocated.
 *
 * CUDA graphs. Saves, loads and releases may be captured. Sizes are not read back then, so every stream that is
 * captured counts with its worst case and what is opened with it fits in every replay. From the first captured save
 * on the arena belongs to its graphs: a save that is not captured, and trimming, are refused until
 * comet_arena_forget_graphs, since a replay would write over what they leave or need what they take away. Graphs are
 * replayed on the arena's queue, in the order in which they were captured, and one from each save to its release
 * before the next step begins.
 *
 * docs/arena.md says why no stream is ever overwritten. In a library built without CUDA comet_arena_new returns
 * COMET_ERROR_NO_DEVICE.
 */
#ifndef COMET_ARENA_H
#define COMET_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "comet/allocator.h"
#include "comet/cuda.h"
#include "comet/export.h"
#include "comet/init.h"
#include "comet/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_arena comet_arena;

/* One stream in an arena. 0 is none; a handle is never given out twice. */
typedef uint64_t comet_arena_entry;

typedef struct comet_arena_options {
    size_t size;                      /* sizeof(comet_arena_options) */
    size_t limit_bytes;               /* the most that is ever mapped; rounded down to the device's granule (2 MiB) */
    size_t initial_bytes;             /* mapped when the arena is created; 0: none */
    void *queue;                      /* a cudaStream_t; NULL: the default one. It must outlive the arena. */
    const comet_allocator *allocator; /* NULL: the C library's; its context must outlive the arena */
    int32_t device;
    uint32_t max_entries; /* not yet released, or released below one that is not; 256 bytes each; at most 2^20 */
} comet_arena_options;

#define COMET_ARENA_OPTIONS_INIT COMET_INIT(comet_arena_options, COMET_FIELD(max_entries) = 4096)

typedef struct comet_arena_stats {
    size_t size; /* sizeof(comet_arena_stats) */
    size_t limit_bytes;
    size_t mapped_bytes, peak_mapped_bytes; /* device memory taken for streams */
    size_t overhead_bytes;                  /* device memory taken for the arena itself */
    size_t end_bytes, peak_end_bytes; /* no stream ends behind it: exact where sizes are known, else the worst case */
    size_t peak_known_bytes;          /* the furthest end that the host has read */
    size_t known_bytes;               /* of entries not released whose size is known: the sum of the sizes */
    size_t unknown_bytes;             /* of the others: the sum of the worst cases */
    size_t missing_bytes; /* how much more limit (or free memory) the last open that was refused would have needed */
    uint64_t entries, unknown_entries; /* not released; of these, with a size that the host does not know */
    uint64_t holes;                    /* released below an entry that is not */
    uint64_t saves, saves_in_holes;    /* opened so far; of these, in the place of holes */
    uint64_t overflows;                /* streams seen so far that did not fit */
    uint64_t refused;                  /* opens refused for want of room */
    uint64_t readbacks;                /* copies of sizes to the host */
    uint64_t waits;                    /* times that a call waited for the device */
} comet_arena_stats;

#define COMET_ARENA_STATS_INIT COMET_INIT_ZERO(comet_arena_stats)

/*
 * COMET_ERROR_ARGUMENT: no limit, more initial_bytes than that, no or too many entries. COMET_ERROR_UNSUPPORTED: the
 * queue is being captured. COMET_ERROR_MEMORY: of the host, or of the device. Where a device cannot map memory on
 * demand, and for a limit of less than a granule, the whole limit is allocated here.
 */
COMET_API comet_status comet_arena_new(const comet_arena_options *options, comet_arena **arena);

/*
 * Waits for the queue, then gives everything back, entries that were not released too. NULL is allowed.
 * COMET_ERROR_UNSUPPORTED: the queue is being captured, nothing was done. After any other status the arena is gone.
 */
COMET_API comet_status comet_arena_free(comet_arena *arena);

/*
 * Makes room for a stream of at most `worst_bytes` (comet_cuda_max_bytes) and says where it goes: `slot` is for one
 * comet_cuda_compress on the arena's queue, the next thing that happens to this arena there.
 *
 * expected_bytes 0: the stream is certain to fit. If the sizes that the host does not know yet stand in the way it
 * maps more memory, and at the limit waits for them, the oldest first, until it is certain.
 * expected_bytes > 0: room for so much is enough, also of the unknown entries that were opened like that. If the
 * stream turns out not to fit it is not stored, nothing else suffers, and whoever asks learns it: comet_arena_slot if
 * the host knows by then, comet_arena_result, comet_arena_await, or the status word of comet_cuda_decompress.
 *
 * COMET_ERROR_CAPACITY: no room within the limit (or, while the queue is captured, none without waiting), or
 * all max_entries are taken; COMET_ERROR_MEMORY: the device has no more to map. Both: nothing changed, stats say how
 * much was missing (0: an entry).
 * COMET_ERROR_ARGUMENT: also if this thread has an entry open. COMET_ERROR_UNSUPPORTED: the arena belongs to its
 * graphs.
 */
COMET_API comet_status comet_arena_open(comet_arena *arena, size_t worst_bytes, size_t expected_bytes,
                                        comet_arena_entry *entry, comet_cuda_slot *slot);

/*
 * The stream has been issued. Now and then this also issues a copy of sizes to the host. Whatever it returns the
 * entry is closed; an error is one of the device.
 */
COMET_API comet_status comet_arena_close(comet_arena *arena, comet_arena_entry entry);

/*
 * Where to decompress the entry from. COMET_ERROR_CAPACITY: it did not fit when it was saved; only if the host knows
 * by now. Once it returned COMET_OK for a stream without expected_bytes, the stream is there.
 */
COMET_API comet_status comet_arena_slot(comet_arena *arena, comet_arena_entry entry, comet_cuda_slot *slot);

/*
 * The entry is not needed any more, or was opened and its stream could not be issued. Calls nothing of CUDA. Its
 * memory can be used again when every entry above it is released too, or at once by a stream that is certain to fit
 * in between, if the host knows where the next entry above begins.
 */
COMET_API comet_status comet_arena_release(comet_arena *arena, comet_arena_entry entry);

/*
 * Asks for the sizes not asked for yet and takes in those that have arrived. Does not wait; does nothing while
 * captured.
 */
COMET_API comet_status comet_arena_poll(comet_arena *arena);

/*
 * What compressing left (`result` may be NULL), as comet_arena_poll does: *known is 0 if it has not arrived. If it
 * has, the status is the stream's own: COMET_OK, COMET_ERROR_CAPACITY if it did not fit, COMET_ERROR_CORRUPT if that
 * is no result at all (nothing was compressed into the slot). COMET_ERROR_UNSUPPORTED: a captured entry; the device
 * has its result (slot.result).
 */
COMET_API comet_status comet_arena_result(comet_arena *arena, comet_arena_entry entry, int32_t *known,
                                          comet_cuda_result *result);

/*
 * The same, but waits for it. COMET_ERROR_UNSUPPORTED also if it would have to wait while the queue is
 * captured.
 */
COMET_API comet_status comet_arena_await(comet_arena *arena, comet_arena_entry entry, comet_cuda_result *result);

/*
 * Waits for the queue, then gives the granules behind the last stream back to the device.
 * COMET_ERROR_UNSUPPORTED: the queue is being captured, or the arena belongs to its graphs.
 */
COMET_API comet_status comet_arena_trim(comet_arena *arena);

/* No graph captured from this arena will be launched again. COMET_ERROR_ARGUMENT: captured entries are not released. */
COMET_API comet_status comet_arena_forget_graphs(comet_arena *arena);

/* Calls nothing of CUDA. */
COMET_API comet_status comet_arena_get_stats(comet_arena *arena, comet_arena_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
