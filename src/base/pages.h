/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory straight from the system, in whole pages: resident only where it was touched, and really gone when given back.
 */
#ifndef COMET_BASE_PAGES_H
#define COMET_BASE_PAGES_H

#include <stddef.h>

/* A multiple of the page size that is at least `bytes`; 0 for 0. bytes is at most SIZE_MAX / 2. */
size_t comet_pages_round(size_t bytes);

/*
 * NULL when it cannot, and for 0. `bytes` is a multiple of the page size. Zeroed. `sparse`: it will be cut later
 * (comet_pages_trim), so it must not become resident in larger pieces than pages.
 */
void *comet_pages_take(size_t bytes, int sparse);

/* Gives back all but the first `keep` bytes; both are multiples of the page size, keep is at least one page. */
void comet_pages_trim(void *memory, size_t bytes, size_t keep);

/* memory may be NULL. */
void comet_pages_give(void *memory, size_t bytes);

#endif
