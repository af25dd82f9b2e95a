/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of memory that are given back together. */
#ifndef COMET_STUDY_BLOCKS_H
#define COMET_STUDY_BLOCKS_H

#include <stddef.h>

#include "comet/allocator.h"

typedef struct comet_block {
    void *memory;
    size_t bytes;
} comet_block;

/* All zero but for the allocator, which must outlive it: none. */
typedef struct comet_blocks {
    const comet_allocator *allocator;
    comet_block *list;
    size_t count, room;
} comet_blocks;

/* Zeroed; NULL: there is no memory. */
void *comet_blocks_take(comet_blocks *blocks, size_t count, size_t size);
void comet_blocks_give(comet_blocks *blocks);

#endif
