/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the arena needs of a device, so that its logic is plain C and can be tested without one. Every call may fail;
 * one that fails has done nothing, but for those that give something back: that is gone for the arena either way (not
 * so unmap). None may be captured: they work, and leave a capture valid, while this or another thread captures a
 * queue. zero, copy and event_record are ordered on the queue they are given, which is not capturing.
 */
#ifndef COMET_STORE_ARENA_DRIVER_H
#define COMET_STORE_ARENA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "comet/status.h"

enum { ARENA_DRIVER_CALLS = 8 };

/* Addresses of a device, mapped piece by piece. */
typedef struct arena_range {
    unsigned char *base;
    size_t bytes;
    size_t granularity; /* offsets and sizes of pieces are multiples of it; 0: all is mapped, and stays so */
    int32_t device;
    void *calls[ARENA_DRIVER_CALLS]; /* the driver's own: what it found out when it made the range */
} arena_range;

typedef enum arena_memory { ARENA_MEMORY_DEVICE, ARENA_MEMORY_PAGE_LOCKED } arena_memory;

typedef struct arena_driver arena_driver;

struct arena_driver {
    /* Of at most `bytes`. unreserve is called when every piece is unmapped. */
    comet_status (*reserve)(const arena_driver *self, int32_t device, size_t bytes, arena_range *range);
    comet_status (*unreserve)(const arena_driver *self, const arena_range *range);
    /* unmap is given the pieces that map was given. */
    comet_status (*map)(const arena_driver *self, const arena_range *range, size_t offset, size_t bytes);
    comet_status (*unmap)(const arena_driver *self, const arena_range *range, size_t offset, size_t bytes);

    comet_status (*take)(const arena_driver *self, int32_t device, arena_memory kind, size_t bytes, void **memory);
    comet_status (*give)(const arena_driver *self, int32_t device, arena_memory kind, void *memory);
    comet_status (*zero)(const arena_driver *self, void *memory, size_t bytes, void *queue);
    comet_status (*copy)(const arena_driver *self, void *page_locked, const void *memory, size_t bytes, void *queue);

    comet_status (*event_new)(const arena_driver *self, int32_t device, void **event);
    comet_status (*event_free)(const arena_driver *self, void *event);
    comet_status (*event_record)(const arena_driver *self, void *event, void *queue);
    comet_status (*event_query)(const arena_driver *self, void *event, int *reached);
    comet_status (*event_wait)(const arena_driver *self, void *event);
    comet_status (*queue_wait)(const arena_driver *self, void *queue);
    comet_status (*queue_capturing)(const arena_driver *self, void *queue, int *capturing);
};

/* NULL in a library built without CUDA. */
const arena_driver *comet_arena_driver_cuda(void);

#endif
