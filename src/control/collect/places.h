/* SPDX-License-Identifier: Apache-2.0 */
/* The places of a map at which neighbours are looked at, and the offsets to them: for kernels, too. */
#ifndef COMET_CONTROL_COLLECT_PLACES_H
#define COMET_CONTROL_COLLECT_PLACES_H

#include <stdint.h>

#include "base/bits.h"
#include "comet/use_stats.h"

enum { COMET_PLACES_VALUES = 4096, COMET_PLACES_LEAST = 8, COMET_PLACES_MOST = 128 };

/* Half of all offsets: the other half is the same the other way round. */
typedef struct comet_offset {
    int down, right;
} comet_offset;

COMET_HOST_DEVICE static inline comet_offset comet_offset_at(int i) {
    const int behind = i - COMET_STATS_REACH - 1, line = 2 * COMET_STATS_REACH + 1;
    comet_offset o = {0, i};
    if (behind >= 0) {
        o.down = 1 + behind / line;
        o.right = behind % line - COMET_STATS_REACH;
    }
    return o;
}

/* How many places. */
COMET_HOST_DEVICE static inline int comet_places_of(int64_t pixels, int64_t channels) {
    const int64_t least = COMET_PLACES_LEAST, most = COMET_PLACES_MOST, wanted = COMET_PLACES_VALUES / channels;
    const int64_t places = wanted < least ? least : wanted > most ? most : wanted;
    return (int)(places < pixels ? places : pixels);
}

/* The same ones each time: a run that is resumed must decide as it would have. */
COMET_HOST_DEVICE static inline int64_t comet_place_at(int64_t pixels, int i) {
    const uint64_t scrambled = ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    return (int64_t)((scrambled ^ scrambled >> 29) % (uint64_t)pixels);
}

/* The place at an offset; -1: outside. */
COMET_HOST_DEVICE static inline int64_t comet_place_moved(int64_t height, int64_t width, int64_t place,
                                                          comet_offset by) {
    const int64_t x = place % width + by.right, y = place / width % height + by.down;
    return x < 0 || x >= width || y >= height ? -1 : place + (int64_t)by.down * width + by.right;
}

#endif
