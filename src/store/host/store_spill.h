/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spill file: extents of a file without a name. It knows nothing of entries. Placing and freeing extents is done
 * under the caller's lock; reading and writing them needs none.
 */
#ifndef COMET_STORE_SPILL_H
#define COMET_STORE_SPILL_H

#include <stddef.h>
#include <stdint.h>

#include "comet/status.h"
#include "store/host/store_io.h"

enum { SPILL_UNIT = 4096 }; /* extents are multiples of it */

/* A piece of the file, used or free. Pieces follow each other without gaps; the last one is used. */
typedef struct spill_extent {
    uint64_t offset, bytes;
    int used;
    struct spill_extent *below, *above;
} spill_extent;

typedef struct spill_file {
    const store_io *io;
    int file; /* -1: there is none */
    uint64_t end, peak_end, limit;
    spill_extent *first, *last;
} spill_file;

/* COMET_ERROR_IO: no file can be made there. `limit` 0: none. */
comet_status comet_spill_open(spill_file *spill, const store_io *io, const char *directory, uint64_t limit);
void comet_spill_close(spill_file *spill);

/*
 * Finds a place for `bytes`. `spare` is a node that the caller allocated: it is always used up or handed back through
 * *unused (else NULL). COMET_ERROR_DISK_FULL: the limit is reached.
 */
comet_status comet_spill_place(spill_file *spill, uint64_t bytes, spill_extent *spare, spill_extent **extent,
                               spill_extent **unused);

/*
 * Up to two nodes are left over when neighbours merge, and one when the end of the file is free: in `unused`, NULLs
 * behind.
 */
void comet_spill_free(spill_file *spill, spill_extent *extent, spill_extent *unused[3]);

/*
 * `at` counts from the extent's begin. COMET_ERROR_DISK_FULL, COMET_ERROR_IO; reading: COMET_ERROR_CORRUPT if cut
 * short.
 */
comet_status comet_spill_write(const spill_file *spill, const spill_extent *extent, uint64_t at, const void *data,
                               size_t bytes);
comet_status comet_spill_read(const spill_file *spill, const spill_extent *extent, uint64_t at, void *data,
                              size_t bytes);

/* Tells the system that the extent will be read. */
void comet_spill_read_ahead(const spill_file *spill, const spill_extent *extent);

#endif
