/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/eb_stats.h"

#include <math.h>

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

void comet_stats_finish(const stats_part *part, const tile_sums *sums, int64_t tiles, int64_t count,
                        comet_codec_stats *stats) {
    tile_sums accumulator[ACCUMULATORS] = {{0.0, 0.0}};
    for (int64_t t = 0; t < tiles; t++) {
        accumulator[t % ACCUMULATORS].abs += sums[t].abs;
        accumulator[t % ACCUMULATORS].squares += sums[t].squares;
    }
    for (int half = ACCUMULATORS / 2; half; half /= 2)
        for (int i = 0; i < half; i++) {
            accumulator[i].abs += accumulator[i + half].abs;
            accumulator[i].squares += accumulator[i + half].squares;
        }
    int any = count > part->nonfinite;
    *stats = (comet_codec_stats){.count = count,
                                 .nonzero = part->nonzero,
                                 .positive = part->positive,
                                 .nonfinite = part->nonfinite,
                                 .min = any ? part->min + 0.0f : 0.0f, /* + 0: a -0 depends on the order */
                                 .max = any ? part->max + 0.0f : 0.0f,
                                 .sum_abs = accumulator[0].abs,
                                 .sum_squares = accumulator[0].squares};
}

double comet_stats_rms(const comet_codec_stats *stats) {
    return stats->nonzero ? sqrt(stats->sum_squares / (double)stats->nonzero) : 0.0;
}
