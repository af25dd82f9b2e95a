/* SPDX-License-Identifier: Apache-2.0 */
#include "support/spec/spec_stats.h"

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

/*
 * The index of term j of the eight that place p holds: the order of memory where that is one run, else rows 0-3 twice.
 */
static int index_of_term(const spec_stream *s, int p, int j) {
    if (s->channels == 1 && s->row == 8) {
        int r = p + 128 * j, l = r / 32, k = r / 8 % 4, m = r % 8;
        return 256 * k + 8 * l + m;
    }
    int k = j % 4, place = p + (j < 4 ? 0 : 128);
    if (s->channels == 1)
        return 256 * k + place;
    return 256 * k + 8 * (place % 32) + place / 32;
}

/* How many terms of a place are added from left to right before the next sum begins. */
static int terms_of_sum(const spec_stream *s) {
    return s->channels == 1 && s->row == 8 ? 8 : 4;
}

static float tree_in_fp32(const float *places) {
    float q[32];
    for (int u = 0; u < 32; u++) {
        float left = places[4 * u] + places[4 * u + 1], right = places[4 * u + 2] + places[4 * u + 3];
        q[u] = left + right;
    }
    for (int distance = 16; distance >= 1; distance /= 2)
        for (int u = 0; u < distance; u++)
            q[u] += q[u + distance];
    return q[0];
}

static sums tile_in_fp32(const spec_stream *s, const float *v) {
    float abs[128], squares[128];
    for (int p = 0; p < 128; p++) {
        float a[2] = {0.0f, 0.0f}, b[2] = {0.0f, 0.0f};
        for (int j = 0; j < 8; j++) {
            float x = v[index_of_term(s, p, j)];
            int sum = j / terms_of_sum(s);
            a[sum] += fabsf(x);
            b[sum] = fmaf(x, x, b[sum]);
        }
        abs[p] = a[0] + a[1];
        squares[p] = b[0] + b[1];
    }
    return (sums){(double)tree_in_fp32(abs), (double)tree_in_fp32(squares)};
}

static double tree_in_fp64(const double *places) {
    double q[32];
    for (int u = 0; u < 32; u++) {
        double left = places[4 * u] + places[4 * u + 1], right = places[4 * u + 2] + places[4 * u + 3];
        q[u] = left + right;
    }
    for (int distance = 16; distance >= 1; distance /= 2)
        for (int u = 0; u < distance; u++)
            q[u] += q[u + distance];
    return q[0];
}

static sums tile_in_fp64(const spec_stream *s, const float *v) {
    double abs[128], squares[128];
    for (int p = 0; p < 128; p++) {
        double a[2] = {0.0, 0.0}, b[2] = {0.0, 0.0};
        for (int j = 0; j < 8; j++) {
            float value = v[index_of_term(s, p, j)];
            double x = isfinite(value) ? (double)value : 0.0;
            int sum = j / terms_of_sum(s);
            a[sum] += fabs(x);
            b[sum] = fma(x, x, b[sum]);
        }
        abs[p] = a[0] + a[1];
        squares[p] = b[0] + b[1];
    }
    return (sums){tree_in_fp64(abs), tree_in_fp64(squares)};
}

static sums tile_sums_of(const spec_stream *s, const void *patterns, int64_t t) {
    float v[1024];
    for (int i = 0; i < 1024; i++)
        v[i] = t < s->tiles ? value_at(s, patterns, t, i) : 0.0f;
    return is_plain(v) ? tile_in_fp32(s, v) : tile_in_fp64(s, v);
}

static sums both(sums a, sums b) {
    return (sums){a.abs + b.abs, a.squares + b.squares};
}

/* To 21 significant bits, half up. */
static double to_21_bits(double v) {
    int exponent;
    double m = frexp(v, &exponent);
    return ldexp(floor(ldexp(m, 21) + 0.5), exponent - 21);
}

static sums group_sums(const spec_stream *s, const void *patterns, int64_t group) {
    sums tile[8];
    for (int i = 0; i < 8; i++)
        tile[i] = tile_sums_of(s, patterns, 8 * group + i);
    sums even = both(both(tile[0], tile[4]), both(tile[2], tile[6]));
    sums odd = both(both(tile[1], tile[5]), both(tile[3], tile[7]));
    sums all = both(even, odd);
    return (sums){to_21_bits(all.abs), to_21_bits(all.squares)};
}

void spec_sums(const spec_stream *s, const void *patterns, double *sum_abs, double *sum_squares) {
    sums accumulators[256] = {{0.0, 0.0}};
    for (int64_t g = 0; 8 * g < s->tiles; g++)
        accumulators[g % 256] = both(accumulators[g % 256], group_sums(s, patterns, g));
    for (int distance = 128; distance >= 1; distance /= 2)
        for (int i = 0; i < distance; i++)
            accumulators[i] = both(accumulators[i], accumulators[i + distance]);
    *sum_abs = accumulators[0].abs;
    *sum_squares = accumulators[0].squares;
}
