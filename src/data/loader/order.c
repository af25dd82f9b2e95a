/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swap-or-not (Hoang, Morris and Rogaway, CRYPTO 2012). A round pairs x with k - x (mod count) for a random k and swaps
 * the pair or not, by a random bit of the pair. Each round is its own inverse, so any number of them is a permutation;
 * six for each bit of count are enough for every position to look independent.
 */
#include "data/loader/order.h"

#include "base/random.h"

static uint32_t rounds_for(uint32_t count) {
    uint32_t bits = 0;
    while (count >> bits)
        bits++;
    return 6 * bits + 8;
}

/* Word `which` of the round: a key with its lowest words, or the bit of the pair whose greater member is `which`. */
static uint32_t draw(uint64_t seed, uint32_t epoch, uint32_t round, uint32_t which) {
    uint32_t c[4] = {which, epoch, round, (uint32_t)COMET_RANDOM_ORDER << 16};
    comet_philox(c, seed);
    return c[0];
}

int64_t comet_order_at(uint64_t seed, uint32_t epoch, int64_t count, int64_t position) {
    uint32_t n = (uint32_t)count, x = (uint32_t)position, rounds = rounds_for(n);
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t key = (uint32_t)((uint64_t)draw(seed, epoch, round, UINT32_MAX) * n >> 32);
        uint32_t partner = key >= x ? key - x : key + n - x;
        uint32_t greater = x > partner ? x : partner;
        if (draw(seed, epoch, round, greater) & 1)
            x = partner;
    }
    return x;
}
