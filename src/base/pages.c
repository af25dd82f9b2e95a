/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, madvise */
#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

size_t comet_pages_round(size_t bytes) {
    return comet_align_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

void *comet_pages_take(size_t bytes, int sparse) {
    if (bytes == 0)
        return NULL;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (sparse ? MAP_NORESERVE : 0);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_NOHUGEPAGE
    if (sparse)
        (void)madvise(memory, bytes, MADV_NOHUGEPAGE); /* an error: a kernel without huge pages */
#endif
    return memory;
}

/*
 * Unmapping part of a mapping can fail where a process has too many of them. The memory is given back all the same,
 * only its addresses stay taken.
 */
static void unmap(void *memory, size_t bytes) {
    if (munmap(memory, bytes) != 0)
        (void)madvise(memory, bytes, MADV_DONTNEED);
}

void comet_pages_trim(void *memory, size_t bytes, size_t keep) {
    if (keep < bytes)
        unmap((char *)memory + keep, bytes - keep);
}

void comet_pages_give(void *memory, size_t bytes) {
    if (memory)
        unmap(memory, bytes);
}
