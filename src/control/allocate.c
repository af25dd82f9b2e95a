/* SPDX-License-Identifier: Apache-2.0 */
#include "control/allocate.h"

#include <math.h>

/* Of equal sums, the option of the least weight: then the total weight falls, or stays, as the multiplier grows. */
static double choose(allocate_item *items, int32_t count, double price_factor, double multiplier) {
    double weight = 0.0;
    for (int32_t i = 0; i < count; i++) {
        allocate_item *item = &items[i];
        double best = INFINITY;
        for (int k = 0; k < item->count; k++) {
            double cost = price_factor * item->price[k] + multiplier * item->weight[k];
            if (cost < best || (cost == best && item->weight[k] < item->weight[item->chosen])) {
                best = cost;
                item->chosen = k;
            }
        }
        weight += item->weight[item->chosen];
    }
    return weight;
}

/* The single change that lowers the price most for its weight and fits into `room`; 0: there is none. */
static int improve(allocate_item *items, int32_t count, double *room) {
    double best = 0.0;
    int32_t which = -1;
    int option = 0;
    for (int32_t i = 0; i < count; i++) {
        const allocate_item *item = &items[i];
        for (int k = 0; k < item->count; k++) {
            double gain = item->price[item->chosen] - item->price[k];
            double more = item->weight[k] - item->weight[item->chosen];
            if (!(gain > 0.0) || more > *room)
                continue;
            double rate = more > 0.0 ? gain / more : HUGE_VAL;
            if (rate > best) {
                best = rate;
                which = i;
                option = k;
            }
        }
    }
    if (which < 0)
        return 0;
    *room -= items[which].weight[option] - items[which].weight[items[which].chosen];
    items[which].chosen = option;
    return 1;
}

/*
 * Single changes alone, from the least weights on, would come to the same but need a pass over everything for each of
 * thousands; the multiplier is near after 64. Prices and weights are of any size: it is looked for between 2^-400 and
 * 2^400, by halving its exponent.
 */
int comet_control_allocate(allocate_item *items, int32_t count, double limit) {
    double low = 0x1p-400, high = 0x1p400;
    if (choose(items, count, 0.0, 1.0) > limit)
        return 0;
    if (choose(items, count, 1.0, 0.0) <= limit)
        return 1;
    for (int i = 0; i < 64; i++) {
        double middle = sqrt(low) * sqrt(high);
        if (choose(items, count, 1.0, middle) <= limit)
            high = middle;
        else
            low = middle;
    }
    double weight = choose(items, count, 1.0, high);
    if (weight > limit) /* weights too far apart for any multiplier: the least, which fit */
        weight = choose(items, count, 0.0, 1.0);
    double room = limit - weight;
    while (improve(items, count, &room))
        ;
    return 1;
}
