/* SPDX-License-Identifier: Apache-2.0 */
/* A bit for each value: bit i % 8 of byte i / 8. */
#ifndef COMET_TRAIN_CPU_BITS_H
#define COMET_TRAIN_CPU_BITS_H

#include <stdint.h>

#include "base/vector/loop.h"

/* Bits of x > 0 (NaN: on, as its gradient is to be seen) for values first .. end - 1; `first` is a multiple of 8. */
COMET_INLINE void comet_bits_write(uint8_t *bits, const float *x, int64_t first, int64_t end) {
    int64_t i = first;
    for (; i + 8 <= end; i += 8) {
        unsigned byte = 0;
        for (int k = 0; k < 8; k++)
            byte |= (unsigned)!(x[i + k] <= 0) << k;
        bits[i / 8] = (uint8_t)byte;
    }
    for (unsigned byte = 0; i < end; i++) {
        byte |= (unsigned)!(x[i] <= 0) << (i % 8);
        bits[i / 8] = (uint8_t)byte;
    }
}

COMET_INLINE int comet_bit(const uint8_t *bits, int64_t i) {
    return bits[i / 8] >> (i % 8) & 1;
}

#endif
