/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One option for each of several items, so that the sum of prices is least while the sum of weights stays within a
 * limit.
 */
#ifndef COMET_CONTROL_ALLOCATE_H
#define COMET_CONTROL_ALLOCATE_H

#include <stdint.h>

enum { ALLOCATE_OPTIONS = 64 };

typedef struct allocate_item {
    int count; /* options, >= 1 */
    int chosen;
    double price[ALLOCATE_OPTIONS]; /* finite and not negative, both */
    double weight[ALLOCATE_OPTIONS];
} allocate_item;

/*
 * Sets `chosen` of each item. By Lagrange's multiplier, then single changes as long as one helps; no choice of less
 * price has as little weight as the multiplier's. If even the least weights do not fit: these, and 0 is returned.
 */
int comet_control_allocate(allocate_item *items, int32_t count, double limit);

#endif
