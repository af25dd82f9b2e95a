/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tile's values: in and out of the tensor, from and to fp32, through a grid, and their statistics. A part of
 * tile_generic.h.
 */
#ifndef COMET_CODEC_CPU_GENERIC_VALUES_H
#define COMET_CODEC_CPU_GENERIC_VALUES_H

#include <math.h>
#include <string.h>

#include "base/convert.h"
#include "codec/eb/tile.h"

/* The place in a buffer of `order` of the value with LINEAR index i. */
static inline int place_of(tile_order order, int i) {
    return order == TILE_LINEAR ? i : (i & ~255) | (i & 7) << 5 | (i >> 3 & 31);
}

/* ---- gather, scatter ---- */

/* One block of `bytes` in each of the four rows. A constant size becomes a few moves. */
#define COPY_BLOCK(bytes)                                                                                              \
    do {                                                                                                               \
        for (int k = 0; k < TILE_ROWS; k++)                                                                            \
            memcpy(to + k * to_stride, from + k * from_stride, (bytes));                                               \
        to += (bytes);                                                                                                 \
        from += (bytes);                                                                                               \
    } while (0)

/* Copies `count` bytes of each of the four rows; the rows lie `to_stride` and `from_stride` bytes apart. */
static inline void copy_rows(char *to, int64_t to_stride, const char *from, int64_t from_stride, int count) {
    for (; count >= 64; count -= 64)
        COPY_BLOCK(64);
    if (count & 32)
        COPY_BLOCK(32);
    if (count & 16)
        COPY_BLOCK(16);
    if (count & 8)
        COPY_BLOCK(8);
    if (count & 4)
        COPY_BLOCK(4);
    if (count & 2)
        COPY_BLOCK(2);
}

static inline __attribute__((always_inline)) void gather_any(const tile_map *map, const char *tensor, char *buffer,
                                                             int size) {
    for (const tile_segment *s = map->segments; s < map->segments + map->count; s++)
        copy_rows(buffer + s->at * size, TILE_ROW_VALUES * size, tensor + s->first * size, map->stride * size,
                  s->count * size);
}

static inline __attribute__((always_inline)) void scatter_any(const tile_map *map, const char *buffer, char *tensor,
                                                              int size) {
    for (const tile_segment *s = map->segments; s < map->segments + map->count; s++)
        copy_rows(tensor + s->first * size, map->stride * size, buffer + s->at * size, TILE_ROW_VALUES * size,
                  s->count * size);
}

static void gather(const tile_map *map, const void *tensor, int size, void *buffer) {
    if (size == 4)
        gather_any(map, tensor, buffer, 4);
    else
        gather_any(map, tensor, buffer, 2);
}

static void scatter(const tile_map *map, const void *buffer, int size, void *tensor) {
    if (size == 4)
        scatter_any(map, buffer, tensor, 4);
    else
        scatter_any(map, buffer, tensor, 2);
}

/* ---- dtypes ---- */

#ifndef HAVE_CONVERT
static void to_f32(comet_dtype dtype, const void *patterns, int count, float *values) {
    comet_loop_to_f32(dtype, patterns, count, values);
}

static void of_f32(comet_dtype dtype, const float *values, int count, void *patterns) {
    comet_loop_of_f32(dtype, values, count, patterns);
}
#endif

/* ---- grids ---- */

/*
 * What of a table of channels a tile looks at: by lane, so that it stays in registers (`lanes` has room for it), else
 * the table. The numbers are of 4 bytes; NULL stays NULL.
 */
static inline const void *table_of(const tile_channels *channels, const void *table, void *lanes) {
    enum { NUMBER = 4 };
    if (!channels->by_lane || !table)
        return table;
    for (int l = 0; l < TILE_LANES; l++)
        memcpy((char *)lanes + l * NUMBER, (const char *)table + channels->lane[l] * (size_t)NUMBER, NUMBER);
    return lanes;
}

/*
 * Runs `body` over a tile's channels: for each value at place i, its channel's number being at c of what table_of gave.
 */
#define FOR_CHANNELS(channels, body)                                                                                   \
    if ((channels)->by_lane) {                                                                                         \
        for (int row_ = 0; row_ < TILE_VALUES; row_ += TILE_LANES)                                                     \
            for (int c = 0; c < TILE_LANES; c++) {                                                                     \
                int i = row_ + c;                                                                                      \
                body;                                                                                                  \
            }                                                                                                          \
    } else {                                                                                                           \
        for (const channel_piece *p = (channels)->pieces; p < (channels)->pieces + (channels)->count; p++) {           \
            int first_ = p->at;                                                                                        \
            if ((channels)->consecutive)                                                                               \
                for (int j_ = 0; j_ < p->count; j_++) {                                                                \
                    int i = first_ + j_, c = p->channel + j_;                                                          \
                    body;                                                                                              \
                }                                                                                                      \
            else                                                                                                       \
                for (int j_ = 0; j_ < p->count; j_++) {                                                                \
                    int i = first_ + j_, c = p->channel;                                                               \
                    body;                                                                                              \
                }                                                                                                      \
        }                                                                                                              \
    }

/*
 * A NaN keeps its payload; one that the arithmetic makes (0 * Inf) has its sign from the machine, so it gets a fixed
 * one.
 */
static inline float scaled(float by, float x, float shift) {
    float y = fmaf(by, x, shift);
    int x_is_number = (comet_bits_of(x) & 0x7fffffffu) <= 0x7f800000u;
    return x_is_number && y != y ? comet_float_of(0x7fc00000u) : y;
}

/* Either of the two may be NULL: 1, and 0. */
static void scale(const tile_channels *channels, const float *by, const float *shift, float *restrict values) {
    float by_lane[TILE_LANES], shift_lane[TILE_LANES];
    by = table_of(channels, by, by_lane);
    shift = table_of(channels, shift, shift_lane);
    if (by && shift)
        FOR_CHANNELS(channels, values[i] = scaled(by[c], values[i], shift[c]))
    else if (by)
        FOR_CHANNELS(channels, values[i] = scaled(by[c], values[i], 0.0f))
    else
        FOR_CHANNELS(channels, values[i] = scaled(1.0f, values[i], shift[c]))
}

static int count_upper(const tile_channels *channels, const float *edge, const uint32_t *flip, const float *values) {
    float edge_lane[TILE_LANES];
    uint32_t flip_lane[TILE_LANES], upper = 0;
    edge = table_of(channels, edge, edge_lane);
    flip = table_of(channels, flip, flip_lane);
    FOR_CHANNELS(channels, upper += (uint32_t)(values[i] >= edge[c]) ^ flip[c])
    return (int)upper;
}

/* ---- survey ---- */

/* Sums are in fp32 unless a value is so large or small that its square would leave the range of fp32. */
#define SURVEY_LEAST 0x2b800000u /* 2^-40 */
#define SURVEY_MOST  0x53800000u /* 2^40 */

static inline int survey_is_plain(uint32_t magnitude) {
    return magnitude == 0 || (magnitude >= SURVEY_LEAST && magnitude <= SURVEY_MOST);
}

/*
 * The sums' fixed order: 128 places of eight values each, quads of places, pairs of quads at distance 16, 8, 4, 2, 1.
 */
enum { SURVEY_PLACES = 128, SURVEY_QUADS = SURVEY_PLACES / 4, SURVEY_RUN_TERMS = 8, SURVEY_RUN_STEP = 32 };

/* Sums of `terms` values, `step` apart. */
static inline void survey_place_f32(const float *v, int step, int terms, float *abs_sum, float *square_sum) {
    *abs_sum = fabsf(v[0]);
    *square_sum = v[0] * v[0];
    for (int j = 1; j < terms; j++) {
        *abs_sum += fabsf(v[j * step]);
        *square_sum = fmaf(v[j * step], v[j * step], *square_sum);
    }
}

static inline void survey_place_f64(const float *v, int step, int terms, double *abs_sum, double *square_sum) {
    *abs_sum = *square_sum = 0.0;
    for (int j = 0; j < terms; j++) {
        double x = isfinite(v[j * step]) ? (double)v[j * step] : 0.0;
        *abs_sum += fabs(x);
        *square_sum += x * x; /* the product of two floats is exact */
    }
}

/*
 * For SURVEY_RUN, place 32 l + 8 k + m has row k, column m and lanes l, l + 4, ..., l + 28. In the tree, the distance
 * is the outer loop: with the elements outside, clang 14 has miscompiled such a tree for AVX-512 at -O2.
 */
#define DEFINE_SURVEY_SUMS(name, type, place_sums)                                                                     \
    static double name##_tree(const type *places) {                                                                    \
        type quads[SURVEY_QUADS];                                                                                      \
        for (int u = 0; u < SURVEY_QUADS; u++)                                                                         \
            quads[u] = (places[4 * u] + places[4 * u + 1]) + (places[4 * u + 2] + places[4 * u + 3]);                  \
        for (int half = SURVEY_QUADS / 2; half; half /= 2)                                                             \
            for (int u = 0; u < half; u++)                                                                             \
                quads[u] += quads[u + half];                                                                           \
        return (double)quads[0];                                                                                       \
    }                                                                                                                  \
                                                                                                                       \
    static void name(const float *v, survey_order sums, tile_survey *s) {                                              \
        type a[SURVEY_PLACES], b[SURVEY_PLACES];                                                                       \
        if (sums == SURVEY_RUN)                                                                                        \
            for (int p = 0; p < SURVEY_PLACES; p++)                                                                    \
                place_sums(v + p / 8 % 4 * TILE_ROW_VALUES + p / 32 * TILE_LANE_COLUMNS + p % 8, SURVEY_RUN_STEP,      \
                           SURVEY_RUN_TERMS, &a[p], &b[p]);                                                            \
        else                                                                                                           \
            for (int p = 0; p < SURVEY_PLACES; p++) {                                                                  \
                type abs_sum, square_sum;                                                                              \
                place_sums(v + p, TILE_ROW_VALUES, TILE_ROWS, &a[p], &b[p]);                                           \
                place_sums(v + p + SURVEY_PLACES, TILE_ROW_VALUES, TILE_ROWS, &abs_sum, &square_sum);                  \
                a[p] += abs_sum;                                                                                       \
                b[p] += square_sum;                                                                                    \
            }                                                                                                          \
        s->sum_abs = name##_tree(a);                                                                                   \
        s->sum_squares = name##_tree(b);                                                                               \
    }
DEFINE_SURVEY_SUMS(survey_sums_f32, float, survey_place_f32)
DEFINE_SURVEY_SUMS(survey_sums_f64, double, survey_place_f64)

static void survey_values(const float *v, tile_order order, const tile_padding *padding, tile_survey *s) {
    *s = (tile_survey){.min = INFINITY, .max = -INFINITY};
    for (int i = 0; i < TILE_VALUES; i++) {
        if (!padding->all_valid && !(padding->valid[i / 8] >> (i % 8) & 1))
            continue;
        float x = v[place_of(order, i)];
        uint32_t magnitude = comet_bits_of(x) & 0x7fffffffu;
        if (magnitude > s->magnitude)
            s->magnitude = magnitude;
        if (magnitude > 0x7f7fffffu) {
            s->nonfinite++;
            continue;
        }
        s->nonzero += magnitude != 0;
        s->positive += x > 0.0f;
        s->min = x < s->min ? x : s->min;
        s->max = x > s->max ? x : s->max;
    }
}

static void survey_generic(const float *v, tile_order order, survey_order sums, const tile_padding *padding,
                           tile_survey *s) {
    survey_values(v, order, padding, s);
    if (survey_is_plain(s->magnitude))
        survey_sums_f32(v, sums, s);
    else
        survey_sums_f64(v, sums, s);
}

#ifndef HAVE_SURVEY
static void survey(const float *v, tile_order order, survey_order sums, const tile_padding *padding, tile_survey *s) {
    survey_generic(v, order, sums, padding, s);
}
#endif

#endif
