/* SPDX-License-Identifier: Apache-2.0 */
/* IDX files (MNIST's format: big-endian extents, then bytes), plain or compressed with gzip. */
#ifndef COMET_DATA_IDX_H
#define COMET_DATA_IDX_H

#include <stdint.h>

#include "base/message.h"

typedef struct comet_idx {
    void *file; /* zlib's */
    const char *path;
    int32_t ndim;
    int64_t extents[3];
} comet_idx;

/* Opens a file of bytes with `ndim` (1 to 3) dimensions and checks that it can be as large as its header says. */
comet_status comet_idx_open(comet_idx *idx, const char *path, int32_t ndim, comet_message *message);

/* Reads all values, of which `bytes` is the number, and checks that nothing follows. */
comet_status comet_idx_read(comet_idx *idx, uint8_t *values, int64_t bytes, comet_message *message);

/* Harmless after a failed open. */
void comet_idx_close(comet_idx *idx);

#endif
