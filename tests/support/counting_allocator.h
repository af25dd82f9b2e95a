/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator that counts what goes out and comes back, checks the sizes it is given, and can fail at its n-th call.
 */
#ifndef TESTS_SUPPORT_COUNTING_ALLOCATOR_H
#define TESTS_SUPPORT_COUNTING_ALLOCATOR_H

#include <stddef.h>

#include "comet/allocator.h"

typedef struct counting_allocator {
    comet_allocator allocator; /* what the library is given */
    long calls, live_blocks, wrong_sizes;
    size_t live_bytes, peak_bytes, largest; /* largest: of the requests */
    long fail_at;                           /* the call, from 1 on, that gets NULL; 0: none */
    size_t most;                            /* larger requests get NULL; 0: no limit */
} counting_allocator;

void counting_allocator_init(counting_allocator *a);

#endif
