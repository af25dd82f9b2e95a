/* SPDX-License-Identifier: Apache-2.0 */
/* The host's memory as a space (train/graph/space.h): that of the backends which compute on the CPU. */
#ifndef COMET_TRAIN_CPU_SPACE_H
#define COMET_TRAIN_CPU_SPACE_H

#include "comet/allocator.h"
#include "comet/threads.h"
#include "train/graph/space.h"

typedef struct comet_host_space {
    comet_space base; /* first: a comet_space * is a pointer to this */
    comet_threads *threads;
    const comet_allocator *allocator;
} comet_host_space;

/* `threads` and `allocator` may be NULL, and outlive the space. */
void comet_host_space_init(comet_host_space *space, comet_threads *threads, const comet_allocator *allocator);

/* One that all can use: the calling thread alone, memory from the C library. */
comet_space *comet_host_space_plain(void);

/* 1: all values are finite. */
int comet_cpu_is_finite(comet_threads *threads, const float *x, int64_t count);

#endif
