/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random words for data, from a counter: what is drawn for a sample depends on seed, epoch and sample alone, not on
 * who draws, when, or what was drawn before.
 */
#ifndef COMET_BASE_RANDOM_H
#define COMET_BASE_RANDOM_H

#include "base/philox.h"

/* What the words are for; never renumbered, or old seeds mean something else. */
enum { COMET_RANDOM_ORDER = 1, COMET_RANDOM_AUGMENT = 2, COMET_RANDOM_GENERATED = 3 };

typedef struct comet_random {
    uint64_t key;
    uint32_t purpose, epoch, block;
    uint64_t sample; /* below 2^48 */
    uint32_t words[4];
    int left;
} comet_random;

static inline comet_random comet_random_of(uint64_t seed, uint32_t purpose, uint32_t epoch, uint64_t sample) {
    return (comet_random){.key = seed, .purpose = purpose, .epoch = epoch, .sample = sample};
}

static inline uint32_t comet_random_word(comet_random *r) {
    if (r->left == 0) {
        uint32_t c[4] = {(uint32_t)r->sample, r->epoch, r->block++, r->purpose << 16 | (uint32_t)(r->sample >> 32)};
        comet_philox(c, r->key);
        for (int i = 0; i < 4; i++)
            r->words[i] = c[i];
        r->left = 4;
    }
    return r->words[4 - r->left--];
}

/* 0 .. n - 1, n at least 1; the bias is below n / 2^32. */
static inline uint32_t comet_random_below(comet_random *r, uint32_t n) {
    return (uint32_t)((uint64_t)comet_random_word(r) * n >> 32);
}

/* 0 <= u < 1, a multiple of 2^-32. */
static inline double comet_random_unit(comet_random *r) {
    return (double)comet_random_word(r) * 0x1p-32;
}

#endif
