/* SPDX-License-Identifier: Apache-2.0 */
/* The arena over any driver. */
#ifndef COMET_STORE_ARENA_H
#define COMET_STORE_ARENA_H

#include "comet/arena.h"
#include "store/device/arena_driver.h"

enum {
    ARENA_ALIGNMENT = 256,        /* of streams: comet/cuda.h */
    ARENA_RECORD_BYTES = 128,     /* from one comet_cuda_result to the next */
    ARENA_READBACKS = 32,         /* in flight at the same time */
    ARENA_READBACK_ENTRIES = 16,  /* one is issued when so many entries have not been asked for, */
    ARENA_READBACK_FRACTION = 16, /* or their worst cases are this fraction of the limit */
    ARENA_MOST_PIECES = 256,      /* in which memory is mapped */
    ARENA_MOST_ENTRIES = 1 << 20,
};

/* comet_arena_new with a driver, which must outlive the arena. */
comet_status comet_arena_create_with(const arena_driver *driver, const comet_arena_options *options,
                                     comet_arena **arena);

#endif
