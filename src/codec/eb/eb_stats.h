/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of a tensor from those of its tiles, in an order that does not depend on threads. */
#ifndef COMET_CODEC_EB_STATS_H
#define COMET_CODEC_EB_STATS_H

#include "codec/eb/tile.h"

/* Sums of one tile, kept until all are there. */
typedef struct tile_sums {
    double abs, squares;
} tile_sums;

/* The part that any order of tiles gives. */
typedef struct stats_part {
    int64_t nonzero, positive, nonfinite;
    float min, max;
} stats_part;

void comet_stats_part_init(stats_part *part);
void comet_stats_part_add_tile(stats_part *part, const tile_survey *survey);
void comet_stats_part_merge(stats_part *part, const stats_part *other);

/*
 * Sums over tiles: the eight of a table group in pairs at distance 4, 2, 1; group g is added to accumulator g mod 256,
 * in order of g; then pairs of accumulators at distance 128, 64, ..., 1.
 */
void comet_stats_finish(const stats_part *part, const tile_sums *sums, int64_t tiles, int64_t count,
                        comet_codec_stats *stats);

/* Root mean square of the finite non-zeros; 0 if there are none. */
double comet_stats_rms(const comet_codec_stats *stats);

#endif
