/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "support/guarded.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void guarded_new(guarded *g, size_t most) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), data = (most + page) / page * page;
    g->map_bytes = data + page;
    g->map = mmap(NULL, g->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->map == MAP_FAILED || mprotect(g->map + data, page, PROT_NONE) != 0)
        abort();
    g->end = g->map + data;
}

void guarded_free(guarded *g) {
    munmap(g->map, g->map_bytes);
}

unsigned char *guarded_place(guarded *g, const void *from, size_t bytes) {
    unsigned char *place = g->end - bytes;
    if (from && bytes)
        memmove(place, from, bytes);
    return place;
}
