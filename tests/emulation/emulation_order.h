// SPDX-License-Identifier: Apache-2.0
// Which block, and which thread, comes next.
#ifndef COMET_EMULATION_ORDER_H
#define COMET_EMULATION_ORDER_H

#include <stdint.h>

// A permutation of the numbers below n without a table: a Feistel network over the next power of four, walked until it
// is inside.
class emulation_block_order {
  public:
    explicit emulation_block_order(uint64_t n);
    uint64_t at(uint64_t i) const;

  private:
    uint64_t mix(uint64_t v) const;
    uint64_t count, seed;
    unsigned half_bits;
};

bool emulation_threads_shuffled();
uint32_t emulation_random_thread(uint32_t n); // below n

#endif
