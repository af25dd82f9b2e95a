/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/eb/eb_stats.h"

#include <math.h>
#include <string.h>

#include "codec/eb/tile_table.h"

enum { ACCUMULATORS = 256 };

void comet_stats_part_init(stats_part *part) {
    *part = (stats_part){.min = INFINITY, .max = -INFINITY};
}

static void widen(stats_part *part, float min, float max) {
    part->min = min < part->min ? min : part->min;
    part->max = max > part->max ? max : part->max;
}

void comet_stats_part_add_tile(stats_part *part, const tile_survey *survey) {
    part->nonzero += survey->nonzero;
    part->positive += survey->positive;
    part->nonfinite += survey->nonfinite;
    widen(part, survey->min, survey->max);
}

void comet_stats_part_merge(stats_part *part, const stats_part *other) {
    part->nonzero += other->nonzero;
    part->positive += other->positive;
    part->nonfinite += other->nonfinite;
    widen(part, other->min, other->max);
}

static inline tile_sums add_sums(tile_sums a, tile_sums b) {
    return (tile_sums){a.abs + b.abs, a.squares + b.squares};
}

/* To 21 significant bits, half up: the upper half of an fp64, which is what a GPU keeps of a group. */
static double round_sum(double sum) {
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    bits = (bits + 0x80000000u) & 0xffffffff00000000u;
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

/* Pairs at distance count / 2, count / 4, ..., 1. */
static tile_sums sum_pairs(tile_sums *sums, int count) {
    for (int half = count / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            sums[i] = add_sums(sums[i], sums[i + half]);
    return sums[0];
}

void comet_stats_finish(const stats_part *part, const tile_sums *sums, int64_t tiles, int64_t count,
                        comet_codec_stats *stats) {
    tile_sums accumulator[ACCUMULATORS] = {{0.0, 0.0}};
    for (int64_t t = 0; t < tiles; t += TABLE_GROUP_TILES) {
        tile_sums group[TABLE_GROUP_TILES] = {{0.0, 0.0}};
        for (int i = 0; i < TABLE_GROUP_TILES && t + i < tiles; i++)
            group[i] = sums[t + i];
        tile_sums *to = &accumulator[t / TABLE_GROUP_TILES % ACCUMULATORS];
        tile_sums sum = sum_pairs(group, TABLE_GROUP_TILES);
        *to = add_sums(*to, (tile_sums){round_sum(sum.abs), round_sum(sum.squares)});
    }
    tile_sums all = sum_pairs(accumulator, ACCUMULATORS);
    int any = count > part->nonfinite;
    *stats = (comet_codec_stats){.count = count,
                                 .nonzero = part->nonzero,
                                 .positive = part->positive,
                                 .nonfinite = part->nonfinite,
                                 .min = any ? part->min + 0.0f : 0.0f, /* + 0: a -0 depends on the order */
                                 .max = any ? part->max + 0.0f : 0.0f,
                                 .sum_abs = all.abs,
                                 .sum_squares = all.squares};
}

double comet_stats_rms(const comet_codec_stats *stats) {
    return stats->nonzero ? sqrt(stats->sum_squares / (double)stats->nonzero) : 0.0;
}
