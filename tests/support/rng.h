/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers for tests: splitmix64, so the same everywhere, from integers alone (but for the Gaussian). */
#ifndef TESTS_SUPPORT_RNG_H
#define TESTS_SUPPORT_RNG_H

#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

static inline rng rng_seed(uint64_t seed) {
    return (rng){seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du};
}

static inline uint64_t rng_next(rng *r) {
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 .. n - 1; n is at least 1. */
static inline uint64_t rng_below(rng *r, uint64_t n) {
    return rng_next(r) % n;
}

/* least .. most, both included. */
static inline int64_t rng_between(rng *r, int64_t least, int64_t most) {
    return least + (int64_t)rng_below(r, (uint64_t)(most - least) + 1);
}

/* 0 <= u < 1, a multiple of 2^-53. */
static inline double rng_unit(rng *r) {
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* Nearly normal, mean 0, variance 1: a sum of uniforms, cut off at +-6, without libm. */
static inline double rng_gauss(rng *r) {
    double sum = -6.0;
    for (int i = 0; i < 12; i++)
        sum += rng_unit(r);
    return sum;
}

#endif
