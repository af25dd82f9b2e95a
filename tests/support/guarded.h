/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that end right before a page that cannot be touched: reading or writing one byte too far faults. */
#ifndef TESTS_SUPPORT_GUARDED_H
#define TESTS_SUPPORT_GUARDED_H

#include <stddef.h>
#include <stdint.h>

typedef struct guarded {
    unsigned char *map;
    size_t map_bytes;
    unsigned char *end; /* the first byte that faults */
} guarded;

/* Room for up to `most` bytes. Aborts if there is no memory. */
void guarded_new(guarded *g, size_t most);
void guarded_free(guarded *g);

/* The last `bytes` bytes, filled from `from` (NULL: left as they are). */
unsigned char *guarded_place(guarded *g, const void *from, size_t bytes);

#endif
