/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which an epoch takes its samples. */
#ifndef COMET_DATA_ORDER_H
#define COMET_DATA_ORDER_H

#include <stdint.h>

/*
 * The sample at `position` (0 .. count - 1) of the epoch: a permutation of 0 .. count - 1 for each seed and epoch, that
 * can be asked for any position and takes no memory. count is below 2^31.
 */
int64_t comet_order_at(uint64_t seed, uint32_t epoch, int64_t count, int64_t position);

#endif
