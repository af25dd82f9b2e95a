/* SPDX-License-Identifier: Apache-2.0 */
/* Philox-4x32-10 (Salmon et al. 2011): random words from a counter and a key, the same on every machine. */
#ifndef COMET_BASE_PHILOX_H
#define COMET_BASE_PHILOX_H

#include <stdint.h>

/* `n` counters side by side, c[i] holding word i of each, become random words; a constant n becomes vector code. */
static inline __attribute__((always_inline)) void comet_philox_many(uint32_t *const c[4], int n, uint64_t key) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < n; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c[0][i], p1 = (uint64_t)0xCD9E8D57u * c[2][i];
            c[0][i] = (uint32_t)(p1 >> 32) ^ c[1][i] ^ k0;
            c[1][i] = (uint32_t)p1;
            c[2][i] = (uint32_t)(p0 >> 32) ^ c[3][i] ^ k1;
            c[3][i] = (uint32_t)p0;
        }
}

static inline void comet_philox(uint32_t c[4], uint64_t key) {
    comet_philox_many((uint32_t *const[4]){&c[0], &c[1], &c[2], &c[3]}, 1, key);
}

#endif
