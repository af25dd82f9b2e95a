/* SPDX-License-Identifier: Apache-2.0 */
#include "support/spec_stats.h"

#include <math.h>

#include "support/number.h"

typedef struct sums {
    double abs, squares;
} sums;

/* Value i of the tile, 0 for padding. */
static float value_at(const spec_stream *s, const void *patterns, int64_t t, int i) {
    int64_t index = spec_index(s, t, i);
    return index < 0 ? 0.0f
                     : (float)number_of_bits((comet_dtype)s->dtype, bits_at((comet_dtype)s->dtype, patterns, index));
}

static int is_plain(const float *v) {
    float largest = 0.0f;
    for (int i = 0; i < 1024; i++) {
        if (!isfinite(v[i]))
            return 0;
        largest = fabsf(v[i]) > largest ? fabsf(v[i]) : largest;
    }
    return largest == 0.0f || (largest >= 0x1p-40f && largest <= 0x1p40f);
}

static sums tile_in_fp32(const float *v) {
    float abs[256], squares[256];
    for (int j = 0; j < 256; j++) {
        abs[j] = squares[j] = 0.0f;
        for (int k = 0; k < 4; k++) {
            abs[j] += fabsf(v[256 * k + j]);
            squares[j] = fmaf(v[256 * k + j], v[256 * k + j], squares[j]);
        }
    }
    for (int distance = 4; distance >= 1; distance /= 2)
        for (int j = 0; j < 256; j++)
            if (j % 8 < distance) {
                abs[j] += abs[j + distance];
                squares[j] += squares[j + distance];
            }
    for (int distance = 16; distance >= 1; distance /= 2)
        for (int l = 0; l < distance; l++) {
            abs[8 * l] += abs[8 * (l + distance)];
            squares[8 * l] += squares[8 * (l + distance)];
        }
    return (sums){(double)abs[0], (double)squares[0]};
}

static sums tile_in_fp64(const float *v) {
    double abs[256], squares[256];
    for (int j = 0; j < 256; j++) {
        abs[j] = squares[j] = 0.0;
        for (int k = 0; k < 4; k++) {
            double x = isfinite(v[256 * k + j]) ? (double)v[256 * k + j] : 0.0;
            abs[j] += fabs(x);
            squares[j] = fma(x, x, squares[j]);
        }
    }
    for (int distance = 4; distance >= 1; distance /= 2)
        for (int j = 0; j < 256; j++)
            if (j % 8 < distance) {
                abs[j] += abs[j + distance];
                squares[j] += squares[j + distance];
            }
    for (int distance = 16; distance >= 1; distance /= 2)
        for (int l = 0; l < distance; l++) {
            abs[8 * l] += abs[8 * (l + distance)];
            squares[8 * l] += squares[8 * (l + distance)];
        }
    return (sums){abs[0], squares[0]};
}

void spec_sums(const spec_stream *s, const void *patterns, double *sum_abs, double *sum_squares) {
    sums accumulators[256] = {{0.0, 0.0}};
    for (int64_t t = 0; t < s->tiles; t++) {
        float v[1024];
        for (int i = 0; i < 1024; i++)
            v[i] = value_at(s, patterns, t, i);
        sums tile = is_plain(v) ? tile_in_fp32(v) : tile_in_fp64(v);
        accumulators[t % 256].abs += tile.abs;
        accumulators[t % 256].squares += tile.squares;
    }
    for (int distance = 128; distance >= 1; distance /= 2)
        for (int i = 0; i < distance; i++) {
            accumulators[i].abs += accumulators[i + distance].abs;
            accumulators[i].squares += accumulators[i + distance].squares;
        }
    *sum_abs = accumulators[0].abs;
    *sum_squares = accumulators[0].squares;
}
