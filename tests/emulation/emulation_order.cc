// SPDX-License-Identifier: Apache-2.0
#include "emulation_order.h"

#include "emulation.h"

namespace {

uint64_t block_seed, thread_state;

uint64_t hash(uint64_t v) {
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
}

} // namespace

void emulation_set_block_order(uint64_t seed) {
    block_seed = seed;
}

void emulation_set_thread_order(uint64_t seed) {
    thread_state = seed;
}

bool emulation_threads_shuffled() {
    return thread_state != 0;
}

uint32_t emulation_random_thread(uint32_t n) {
    thread_state ^= thread_state << 13;
    thread_state ^= thread_state >> 7;
    thread_state ^= thread_state << 17;
    return (uint32_t)((thread_state >> 32) * n >> 32);
}

emulation_block_order::emulation_block_order(uint64_t n) : count(n), seed(block_seed), half_bits(1) {
    while (half_bits < 31 && 1ull << 2 * half_bits < n)
        half_bits++;
}

uint64_t emulation_block_order::mix(uint64_t v) const {
    uint64_t mask = (1ull << half_bits) - 1, left = v >> half_bits, right = v & mask;
    for (uint64_t round = 1; round <= 4; round++) {
        uint64_t next = left ^ (hash(right + hash(seed + round)) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t emulation_block_order::at(uint64_t i) const {
    if (seed == 0)
        return i;
    do {
        i = mix(i);
    } while (i >= count);
    return i;
}
