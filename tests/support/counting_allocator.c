/* SPDX-License-Identifier: Apache-2.0 */
#include "support/counting_allocator.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* In front of each block, one alignment unit: its size. Behind it: a pattern that must survive. */
enum { UNIT = 64, GUARD = 0xC3 };

static void *allocate(void *context, size_t bytes) {
    counting_allocator *a = context;
    a->calls++;
    a->largest = bytes > a->largest ? bytes : a->largest;
    if (a->calls == a->fail_at || (a->most && bytes > a->most) || bytes > SIZE_MAX - 3 * UNIT)
        return NULL;
    size_t rounded = (bytes + UNIT - 1) / UNIT * UNIT;
    unsigned char *block = aligned_alloc(UNIT, rounded + 2 * UNIT);
    if (!block)
        return NULL;
    memcpy(block, &bytes, sizeof bytes);
    memset(block + UNIT, 0xA5, rounded); /* nothing may rely on zeros */
    memset(block + UNIT + bytes, GUARD, rounded - bytes + UNIT);
    a->live_blocks++;
    a->live_bytes += bytes;
    a->peak_bytes = a->live_bytes > a->peak_bytes ? a->live_bytes : a->peak_bytes;
    return block + UNIT;
}

static int guard_is_intact(const unsigned char *block, size_t bytes) {
    for (int i = 0; i < UNIT; i++)
        if (block[UNIT + bytes + (size_t)i] != GUARD)
            return 0;
    return 1;
}

static void release(void *context, void *memory, size_t bytes) {
    counting_allocator *a = context;
    unsigned char *block = (unsigned char *)memory - UNIT;
    size_t real;
    memcpy(&real, block, sizeof real);
    a->wrong_sizes += real != bytes || !guard_is_intact(block, real);
    a->live_blocks--;
    a->live_bytes -= real;
    free(block);
}

void counting_allocator_init(counting_allocator *a) {
    *a = (counting_allocator){.allocator = {allocate, release, a}};
}
