/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work on one tile in portable C, to be included by one file for each instruction set. That file may define any of the
 * HAVE_ macros below before including this and give its own version of the function; what it leaves is compiled from here
 * with its compiler flags. Everything is static. docs/format.md says what is computed.
 */
#ifndef COMET_CODEC_CPU_TILE_GENERIC_H
#define COMET_CODEC_CPU_TILE_GENERIC_H

#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "base/convert.h"
#include "base/philox.h"
#include "codec/cpu/tile.h"

enum { COLUMN_BYTES = 32, PLANE_BYTES = 128, COLUMNS = 4, FULL_FROM = 28, PREDICTION_COST = 128 };
enum { COLUMN_EMPTY = 0, COLUMN_SOME = 1, COLUMN_FULL = 2, COLUMN_SINGLE = 3 };
enum { HEAD_SIGN = 1 << 4, HEAD_CLASS_SHIFT = 5, HEAD_PREDICTED = 1 << 7 };

/* Sixteen planes: magnitudes first, the sign last. Narrow codes use magnitudes 0-6 and the sign. */
enum { PLANES = 16, SIGN_PLANE = 15 };
typedef uint8_t tile_planes[PLANES][PLANE_BYTES];

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
 * What of a table of channels a tile looks at: by lane, so that it stays in registers (`lanes` has room for it), else the table. The numbers
 * are of 4 bytes; NULL stays NULL.
 */
static inline const void *table_of(const tile_channels *channels, const void *table, void *lanes) {
    enum { NUMBER = 4 };
    if (!channels->by_lane || !table)
        return table;
    for (int l = 0; l < TILE_LANES; l++)
        memcpy((char *)lanes + l * NUMBER, (const char *)table + channels->lane[l] * (size_t)NUMBER, NUMBER);
    return lanes;
}

/* Runs `body` over a tile's channels: for each value at place i, its channel's number being at c of what table_of gave. */
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

/* A NaN keeps its payload; one that the arithmetic makes (0 * Inf) has its sign from the machine, so it gets a fixed one. */
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
    FOR_CHANNELS(channels, upper += (uint32_t)(values[i] > edge[c]) ^ flip[c])
    return (int)upper;
}

/* ---- survey ---- */

/* Sums are in fp32 unless a value is so large or small that its square would leave the range of fp32. */
#define SURVEY_LEAST 0x2b800000u /* 2^-40 */
#define SURVEY_MOST  0x53800000u /* 2^40 */

static inline int survey_is_plain(uint32_t magnitude) {
    return magnitude == 0 || (magnitude >= SURVEY_LEAST && magnitude <= SURVEY_MOST);
}

/* The sums' fixed order: 128 places of eight values each, quads of places, pairs of quads at distance 16, 8, 4, 2, 1. */
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
 * For SURVEY_RUN, place 32 l + 8 k + m has row k, column m and lanes l, l + 4, ..., l + 28. In the tree, the distance is the
 * outer loop: with the elements outside, clang 14 has miscompiled such a tree for AVX-512 at -O2.
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

/* ---- quantise: elementwise on the buffer's order, then to LINEAR ---- */

#define MAGIC 0x1.8p23f /* adding it to |v| < 2^22 rounds v to an integer, which is then in the low bits */

static inline int32_t code_nearest(float x, float inverse) {
    return (int32_t)(comet_bits_of(fmaf(x, inverse, MAGIC)) - comet_bits_of(MAGIC));
}

static inline int32_t floor_to_int(float v) {
    int32_t towards_zero = (int32_t)v;
    return towards_zero - ((float)towards_zero > v);
}

static inline int32_t code_stochastic(float x, float inverse, float u) {
    return floor_to_int(fmaf(x, inverse, u));
}

static inline int32_t code_keep_rise(float x, float inverse) {
    uint32_t bits = comet_bits_of(x);
    int32_t code = (int32_t)(fabsf(x) * inverse) + ((bits << 1) != 0);
    return bits >> 31 ? -code : code;
}

static inline int32_t code_keep_tread(float x, float inverse) {
    uint32_t bits = comet_bits_of(x);
    int32_t code = code_nearest(x, inverse), least = bits >> 31 ? -1 : 1;
    return code == 0 && (bits << 1) != 0 ? least : code;
}

static inline int32_t code_grid(float y, float inverse, float edge, float remainder, int32_t first_upper) {
    int32_t code = floor_to_int((y - remainder) * inverse);
    int32_t upper = code < first_upper ? first_upper : code, lower = code >= first_upper ? first_upper - 1 : code;
    return y > edge ? upper : lower;
}

static void quantise_grid(const float *v, const tile_quantise *how, int32_t *restrict codes) {
    const tile_channels *channels = how->grid->channels;
    float edge_lane[TILE_LANES], remainder_lane[TILE_LANES], inverse = how->c->inverse;
    int32_t code_lane[TILE_LANES];
    const float *edge = table_of(channels, how->grid->edge, edge_lane);
    const float *remainder = table_of(channels, how->grid->remainder, remainder_lane);
    const int32_t *code = table_of(channels, how->grid->code, code_lane);
    if (!channels->by_lane)
        memset(codes, 0, TILE_VALUES * sizeof *codes); /* padding */
    FOR_CHANNELS(channels, codes[i] = code_grid(v[i], inverse, edge[c], remainder[c], code[c]))
}

/* Noise of the values of row k: of column m of lane l at noise[m][l]. */
static inline void noise_of(const tile_quantise *how, int k, float noise[TILE_LANE_COLUMNS][TILE_LANES]) {
    uint32_t c[4][TILE_LANES];
    for (uint32_t l = 0; l < TILE_LANES; l++) {
        c[0][l] = (uint32_t)how->tile;
        c[1][l] = (uint32_t)(how->tile >> 32);
        c[2][l] = 4 * l + (uint32_t)k;
        c[3][l] = 0;
    }
    comet_philox_many((uint32_t *const[4]){c[0], c[1], c[2], c[3]}, TILE_LANES, how->seed);
    unsigned drop = how->c->wide ? 8 : 0; /* bits of the 16 that wide codes leave no room for */
    float unit = how->c->wide ? 0x1p-9f : 0x1p-17f;
    for (int m = 0; m < TILE_LANE_COLUMNS; m++)
        for (int l = 0; l < TILE_LANES; l++) {
            uint32_t r = (c[m / 2][l] >> (m % 2 * 16) & 0xffffu) >> drop;
            noise[m][l] = (float)(int32_t)(2 * r + 1) * unit;
        }
}

static void quantise_stochastic(const float *v, tile_order order, const tile_quantise *how, int32_t *codes) {
    float noise[TILE_LANE_COLUMNS][TILE_LANES], lanes[TILE_LANES][TILE_LANE_COLUMNS];
    for (int k = 0; k < TILE_ROWS; k++) {
        const float *u = &noise[0][0], *x = v + k * TILE_ROW_VALUES;
        noise_of(how, k, noise);
        if (order == TILE_LINEAR) {
            for (int l = 0; l < TILE_LANES; l++)
                for (int m = 0; m < TILE_LANE_COLUMNS; m++)
                    lanes[l][m] = noise[m][l];
            u = &lanes[0][0];
        }
        for (int i = 0; i < TILE_ROW_VALUES; i++)
            codes[k * TILE_ROW_VALUES + i] = code_stochastic(x[i], how->c->inverse, u[i]);
    }
}

static void quantise_values(const float *v, tile_order order, const tile_quantise *how, int32_t *codes) {
    float inverse = how->c->inverse;
    switch (how->c->mode) {
    case QUANTISE_NEAREST:
        for (int i = 0; i < TILE_VALUES; i++)
            codes[i] = code_nearest(v[i], inverse);
        break;
    case QUANTISE_STOCHASTIC:
        quantise_stochastic(v, order, how, codes);
        break;
    case QUANTISE_KEEP_RISE:
        for (int i = 0; i < TILE_VALUES; i++)
            codes[i] = code_keep_rise(v[i], inverse);
        break;
    case QUANTISE_KEEP_TREAD:
        for (int i = 0; i < TILE_VALUES; i++)
            codes[i] = code_keep_tread(v[i], inverse);
        break;
    case QUANTISE_GRID:
    default:
        quantise_grid(v, how, codes);
        break;
    }
}

#ifndef HAVE_ORDER
/* A tile's bytes from INTERLEAVED to LINEAR order, and back. */
static void linear_of_interleaved(const int8_t *from, int8_t *to) {
    for (int i = 0; i < TILE_VALUES; i++)
        to[i] = from[place_of(TILE_INTERLEAVED, i)];
}

static void interleaved_of_linear(const int8_t *from, int8_t *to) {
    for (int i = 0; i < TILE_VALUES; i++)
        to[place_of(TILE_INTERLEAVED, i)] = from[i];
}
#endif

static void codes_of_integers(const int32_t *q, tile_order order, int wide, tile_codes *codes) {
    _Alignas(64) int8_t places[TILE_VALUES];
    int8_t *narrow = order == TILE_LINEAR ? codes->narrow : places;
    if (wide && order == TILE_LINEAR)
        for (int i = 0; i < TILE_VALUES; i++)
            codes->wide[i] = (int16_t)q[i];
    else if (wide)
        for (int i = 0; i < TILE_VALUES; i++)
            codes->wide[i] = (int16_t)q[place_of(TILE_INTERLEAVED, i)];
    else
        for (int i = 0; i < TILE_VALUES; i++)
            narrow[i] = (int8_t)q[i];
    if (!wide && order != TILE_LINEAR)
        linear_of_interleaved(places, codes->narrow);
}

static void integers_of_codes(const tile_codes *codes, tile_order order, int wide, int32_t *q) {
    _Alignas(64) int8_t places[TILE_VALUES];
    const int8_t *narrow = codes->narrow;
    if (!wide && order != TILE_LINEAR) {
        interleaved_of_linear(codes->narrow, places);
        narrow = places;
    }
    if (wide && order == TILE_LINEAR)
        for (int i = 0; i < TILE_VALUES; i++)
            q[i] = codes->wide[i];
    else if (wide)
        for (int i = 0; i < TILE_VALUES; i++)
            q[place_of(TILE_INTERLEAVED, i)] = codes->wide[i];
    else
        for (int i = 0; i < TILE_VALUES; i++)
            q[i] = narrow[i];
}

static void quantise_generic(const float *v, tile_order order, const tile_quantise *how, tile_codes *codes) {
    _Alignas(64) int32_t q[TILE_VALUES];
    quantise_values(v, order, how, q);
    codes_of_integers(q, order, how->c->wide, codes);
}

#ifndef HAVE_QUANTISE
static void quantise(const float *v, tile_order order, const tile_quantise *how, tile_codes *codes) {
    quantise_generic(v, order, how, codes);
}
#endif

/* ---- dequantise ---- */

static void dequantise_grid(const int32_t *q, const tile_quantise *how, float *restrict v) {
    const tile_channels *channels = how->grid->channels;
    float remainder_lane[TILE_LANES], half = 0.5f * how->c->step;
    const float *remainder = table_of(channels, how->grid->remainder, remainder_lane);
    if (!channels->by_lane)
        memset(v, 0, TILE_VALUES * sizeof *v); /* padding */
    FOR_CHANNELS(channels, v[i] = fmaf((float)(2 * q[i] + 1), half, remainder[c]))
}

static void dequantise_values(const int32_t *q, const tile_quantise *how, float *v) {
    float step = how->c->step, half = 0.5f * step;
    switch (how->c->mode) {
    case QUANTISE_NEAREST:
    case QUANTISE_STOCHASTIC:
    case QUANTISE_KEEP_TREAD:
        for (int i = 0; i < TILE_VALUES; i++)
            v[i] = (float)q[i] * step;
        break;
    case QUANTISE_KEEP_RISE: /* +-(2 j + 1) with j + 1 = |q| is 2 q -+ 1, and 0 for 0 */
        for (int i = 0; i < TILE_VALUES; i++)
            v[i] = (float)(2 * q[i] - (q[i] > 0) + (q[i] < 0)) * half;
        break;
    case QUANTISE_GRID:
    default:
        dequantise_grid(q, how, v);
        break;
    }
}

static void dequantise_generic(const tile_codes *codes, tile_order order, const tile_quantise *how, float *v) {
    _Alignas(64) int32_t q[TILE_VALUES];
    integers_of_codes(codes, order, how->c->wide, q);
    dequantise_values(q, how, v);
}

#ifndef HAVE_DEQUANTISE
static void dequantise(const tile_codes *codes, tile_order order, const tile_quantise *how, float *v) {
    dequantise_generic(codes, order, how, v);
}
#endif

/* ---- columns: the primitives of packing ---- */

#ifndef HAVE_COLUMNS
/* Bit l set where byte l is not 0. */
static inline uint32_t column_ballot(const uint8_t *column) {
    uint32_t ballot = 0;
    for (int l = 0; l < COLUMN_BYTES; l++)
        ballot |= (uint32_t)(column[l] != 0) << l;
    return ballot;
}

/* The bytes marked, side by side; may write all 32. */
static inline void column_compress(uint8_t *out, const uint8_t *column, uint32_t ballot) {
    for (; ballot; ballot &= ballot - 1)
        *out++ = column[__builtin_ctz(ballot)];
}

/* The inverse; bytes not marked become 0. May read 32 bytes. */
static inline void column_expand(uint8_t *column, const uint8_t *in, uint32_t ballot) {
    memset(column, 0, COLUMN_BYTES);
    for (; ballot; ballot &= ballot - 1)
        column[__builtin_ctz(ballot)] = *in++;
}
#endif

/* ---- planes of bytes: 8 planes from 1,024 bytes, and back ---- */

#ifndef HAVE_TRANSPOSE
/* planes[b][j] has bit m of byte 8 j + m's bit b. */
static void planes_of_bytes(const uint8_t *bytes, uint8_t (*planes)[PLANE_BYTES]) {
    for (int j = 0; j < PLANE_BYTES; j++) {
        uint64_t x = comet_read_u64(bytes + 8 * j);
        for (int b = 0; b < 8; b++)
            planes[b][j] = (uint8_t)((((x >> b) & 0x0101010101010101u) * 0x0102040810204080u) >> 56);
    }
}

static void bytes_of_planes(const uint8_t (*planes)[PLANE_BYTES], uint8_t *bytes) {
    for (int j = 0; j < PLANE_BYTES; j++) {
        uint64_t x = 0;
        for (int b = 0; b < 8; b++) {
            uint64_t spread = (planes[b][j] * 0x8040201008040201u) >> 7 & 0x0101010101010101u;
            /* byte m of `spread` now has bit 7 - m of the plane's byte: reverse the bytes */
            x |= __builtin_bswap64(spread) << b;
        }
        comet_write_u64(bytes + 8 * j, x);
    }
}
#endif

/* ---- residuals ---- */

static inline uint8_t fold_narrow(int8_t d) {
    return (uint8_t)(d < 0 ? d ^ 0x7f : d);
}

static inline int8_t unfold_narrow(uint8_t f) {
    return (int8_t)(f & 0x80 ? f ^ 0x7f : f);
}

static inline uint16_t fold_wide(int16_t d) {
    return (uint16_t)(d < 0 ? d ^ 0x7fff : d);
}

static inline int16_t unfold_wide(uint16_t f) {
    return (int16_t)(f & 0x8000 ? f ^ 0x7fff : f);
}

static inline int count_bits(const void *folded, int bytes) {
    int bits = 0;
    for (int i = 0; i < bytes; i += 8)
        bits += __builtin_popcountll(comet_read_u64((const uint8_t *)folded + i));
    return bits;
}

/* ---- residuals of wide codes. A lane's first code has residual 0 and is kept apart (chained: lane 0's alone). ---- */

static void fold_predicted_wide(const int16_t *q, int chained, uint16_t *f) {
    f[0] = 0;
    for (int i = 1; i < TILE_ROW_VALUES; i++)
        f[i] = fold_wide((int16_t)(q[i] - q[i - 1]));
    for (int i = 0; i < TILE_ROW_VALUES && !chained; i += TILE_LANE_COLUMNS)
        f[i] = 0;
    for (int i = TILE_ROW_VALUES; i < TILE_VALUES; i++)
        f[i] = fold_wide((int16_t)(q[i] - q[i - TILE_ROW_VALUES]));
}

static void clear_padding_wide(const tile_padding *padding, uint16_t *f) {
    for (int i = 0; i < TILE_VALUES; i++)
        if (!(padding->valid[i / 8] >> (i % 8) & 1))
            f[i] = 0;
}

/* The folded residuals to store; returns 1 if they are predicted. */
static int residuals_wide(const int16_t *q, int chained, const tile_padding *padding, uint16_t *f) {
    uint16_t other[TILE_VALUES];
    for (int i = 0; i < TILE_VALUES; i++)
        f[i] = fold_wide(q[i]);
    fold_predicted_wide(q, chained, other);
    if (!padding->all_valid) {
        clear_padding_wide(padding, f);
        clear_padding_wide(padding, other);
    }
    if (count_bits(other, 2 * TILE_VALUES) + PREDICTION_COST >= count_bits(f, 2 * TILE_VALUES))
        return 0;
    memcpy(f, other, sizeof other);
    return 1;
}

/* Unfolds, and undoes prediction with the firsts put in where they belong (NULL: not predicted). */
static void codes_of_residuals_wide(const uint16_t *f, const int16_t *firsts, int chained, int16_t *q) {
    for (int i = 0; i < TILE_VALUES; i++)
        q[i] = unfold_wide(f[i]);
    if (!firsts)
        return;
    for (int l = 0; l < (chained ? 1 : TILE_LANES); l++)
        q[l * TILE_LANE_COLUMNS] = firsts[l];
    for (int i = 1; i < TILE_ROW_VALUES; i++)
        if (chained || i % TILE_LANE_COLUMNS != 0)
            q[i] = (int16_t)(q[i] + q[i - 1]);
    for (int i = TILE_ROW_VALUES; i < TILE_VALUES; i++)
        q[i] = (int16_t)(q[i] + q[i - TILE_ROW_VALUES]);
}

/*
 * ---- residuals of narrow codes ----
 *
 * The four bytes of a column are the digits of a number, row 0's the lowest, each with 128 added: U of docs/format.md for
 * codes, E for residuals. A difference that leaves a byte carries into the next row's. Where none does, bytes can be
 * subtracted and added on their own, which is what the fast paths of the instruction sets do.
 */
#define COLUMN_BIAS 0x80808080u

static inline uint32_t read_column_word(const int8_t *bytes) {
    uint32_t word = 0;
    for (int k = 0; k < TILE_ROWS; k++)
        word |= (uint32_t)(uint8_t)bytes[k * TILE_ROW_VALUES] << 8 * k;
    return word ^ COLUMN_BIAS;
}

/* The residuals' E of a column of codes U; `left` is the biased code that row 0 is predicted from. */
static inline uint32_t predict_column(uint32_t u, uint32_t left) {
    return u - (u << 8 | left) + COLUMN_BIAS;
}

static inline uint32_t unpredict_column(uint32_t e, uint32_t left) {
    return (e - COLUMN_BIAS + left) * 0x01010101u;
}

/* The four bytes of a column, bias taken off, folded. */
static inline uint32_t fold_column(uint32_t word) {
    uint32_t d = word ^ COLUMN_BIAS, signs = d >> 7 & 0x01010101u;
    return d ^ signs * 0x7fu;
}

static inline uint8_t biased(int8_t code) {
    return (uint8_t)code ^ 0x80u;
}

static inline int is_first(int i, int chained) {
    return chained ? i == 0 : i % TILE_LANE_COLUMNS == 0;
}

/* All rows of a column that are not padding, as bytes of 0xff. */
static inline uint32_t column_valid(const tile_padding *padding, int i) {
    uint32_t valid = 0;
    for (int k = 0; k < TILE_ROWS; k++)
        valid |= (padding->valid[(k * TILE_ROW_VALUES + i) / 8] >> (i % 8) & 1u) * 0xffu << 8 * k;
    return padding->all_valid ? 0xffffffffu : valid;
}

/* A quarter of the columns stands for all: these two of every lane, whose left neighbours are in the lane. */
enum { SAMPLED_COLUMN = 1, OTHER_SAMPLED_COLUMN = 6, SAMPLED_SHARE = 4 };

static inline int fewer_bits(int predicted, int direct) {
    return SAMPLED_SHARE * predicted + PREDICTION_COST < SAMPLED_SHARE * direct;
}

static int prediction_pays_generic(const int8_t *q, const tile_padding *padding) {
    int direct = 0, predicted = 0;
    for (int l = 0; l < TILE_LANES; l++)
        for (int m = SAMPLED_COLUMN; m <= OTHER_SAMPLED_COLUMN; m += OTHER_SAMPLED_COLUMN - SAMPLED_COLUMN) {
            int i = l * TILE_LANE_COLUMNS + m;
            uint32_t u = read_column_word(q + i), valid = column_valid(padding, i);
            direct += __builtin_popcount(fold_column(u) & valid);
            predicted += __builtin_popcount(fold_column(predict_column(u, biased(q[i - 1]))) & valid);
        }
    return fewer_bits(predicted, direct);
}

static void fold_predicted_generic(const int8_t *q, int chained, uint8_t *f) {
    uint8_t left[TILE_ROW_VALUES];
    for (int i = 0; i < TILE_ROW_VALUES; i++)
        left[i] = biased(q[is_first(i, chained) ? i : i - 1]); /* to itself: residual 0 */
    for (int i = 0; i < TILE_ROW_VALUES; i++) {
        uint32_t folded = fold_column(predict_column(read_column_word(q + i), left[i]));
        for (int k = 0; k < TILE_ROWS; k++)
            f[k * TILE_ROW_VALUES + i] = (uint8_t)(folded >> 8 * k);
    }
}

/* q holds residuals and, where a first belongs, the first: which is its residual to a code of 0. */
static void unpredict_generic(int8_t *q, int chained) {
    uint8_t left[TILE_ROW_VALUES + 1] = {0};
    for (int i = 0; i < TILE_ROW_VALUES; i++) {
        left[i] = is_first(i, chained) ? biased(0) : left[i];
        left[i + 1] = (uint8_t)(left[i] + q[i]);
    }
    for (int i = 0; i < TILE_ROW_VALUES; i++) {
        uint32_t codes = unpredict_column(read_column_word(q + i), left[i]) ^ COLUMN_BIAS;
        for (int k = 0; k < TILE_ROWS; k++)
            q[k * TILE_ROW_VALUES + i] = (int8_t)(codes >> 8 * k);
    }
}

#ifndef HAVE_RESIDUALS
/* Padding counts nothing. */
static int prediction_pays(const int8_t *q, const tile_padding *padding) {
    return prediction_pays_generic(q, padding);
}

static void fold_predicted(const int8_t *q, int chained, uint8_t *f) {
    fold_predicted_generic(q, chained, f);
}

static void unpredict(int8_t *q, int chained) {
    unpredict_generic(q, chained);
}
#endif

/* The folded residuals to store; returns 1 if they are predicted. */
static int residuals_narrow(const int8_t *q, int chained, const tile_padding *padding, uint8_t *f) {
    int predicted = prediction_pays(q, padding);
    if (predicted)
        fold_predicted(q, chained, f);
    else
        for (int i = 0; i < TILE_VALUES; i++)
            f[i] = fold_narrow(q[i]);
    for (int i = 0; i < TILE_VALUES && !padding->all_valid; i++)
        if (!(padding->valid[i / 8] >> (i % 8) & 1))
            f[i] = 0;
    return predicted;
}

static void codes_of_residuals_narrow(const uint8_t *f, const int16_t *firsts, int chained, int8_t *q) {
    for (int i = 0; i < TILE_VALUES; i++)
        q[i] = unfold_narrow(f[i]);
    if (!firsts)
        return;
    for (int l = 0; l < (chained ? 1 : TILE_LANES); l++)
        q[l * TILE_LANE_COLUMNS] = (int8_t)firsts[l];
    unpredict(q, chained);
}

/* ---- firsts ---- */

/* Codes q(0, l, 0); padding has code 0 already. */
static uint8_t *write_firsts(const tile_codes *codes, int wide, int chained, uint8_t *out) {
    if (chained) {
        memcpy(out, codes, wide ? 2 : 1);
        return out + (wide ? 2 : 1);
    }
    uint32_t planes[PLANES] = {0}, any = 0;
    for (int l = 0; l < TILE_LANES; l++) {
        int16_t code = wide ? codes->wide[l * TILE_LANE_COLUMNS] : codes->narrow[l * TILE_LANE_COLUMNS];
        uint32_t f = fold_wide(code);
        any |= f;
        for (int b = 0; b < PLANES; b++)
            planes[b] |= (f >> b & 1u) << l;
    }
    unsigned n = comet_bit_width(any & 0x7fffu), sign = any >> SIGN_PLANE;
    *out++ = (uint8_t)(n | (sign ? HEAD_SIGN : 0));
    memcpy(out, planes, 4 * n);
    out += 4 * n;
    if (sign) {
        comet_write_u32(out, planes[SIGN_PLANE]);
        out += 4;
    }
    return out;
}

/* Returns what lies behind the firsts, NULL if they do not fit. */
static const uint8_t *read_firsts(const uint8_t *in, const uint8_t *end, int wide, int chained, int16_t *firsts) {
    if (chained) {
        if (end - in < (wide ? 2 : 1))
            return NULL;
        firsts[0] = wide ? (int16_t)comet_read_u16(in) : (int8_t)*in;
        return in + (wide ? 2 : 1);
    }
    if (end - in < 1)
        return NULL;
    int n = *in & 15, sign = !!(*in & HEAD_SIGN);
    if (*in++ >> 5 || (!wide && n > 7) || end - in < 4 * (n + sign))
        return NULL;
    uint16_t folded[TILE_LANES] = {0};
    for (int p = 0; p < n + sign; p++, in += 4)
        for (int l = 0; l < TILE_LANES; l++)
            folded[l] |= (uint16_t)((comet_read_u32(in) >> l & 1u) << (p == n ? SIGN_PLANE : p));
    for (int l = 0; l < TILE_LANES; l++)
        firsts[l] = unfold_wide(folded[l]);
    return in;
}

/* ---- pack ---- */

/* The planes of a tile that are there, in the order of the format. */
struct plane_list {
    const uint8_t *plane[PLANES];
    int n, sign; /* magnitude planes, and whether the sign's is there */
};
typedef struct plane_list plane_list;

static inline int is_single_bit(const uint8_t *column, uint32_t ballot) {
    unsigned byte = column[__builtin_ctz(ballot)];
    return (ballot & (ballot - 1)) == 0 && (byte & (byte - 1)) == 0;
}

static inline int flag_of(const uint8_t *column, uint32_t ballot) {
    if (ballot == 0)
        return COLUMN_EMPTY;
    if (is_single_bit(column, ballot))
        return COLUMN_SINGLE;
    return __builtin_popcount(ballot) >= FULL_FROM ? COLUMN_FULL : COLUMN_SOME;
}

/* Writes one column's data; returns what lies behind it. */
static inline uint8_t *pack_column(uint8_t *out, const uint8_t *column, uint32_t ballot, int flag) {
    switch (flag) {
    case COLUMN_SOME:
        column_compress(out, column, ballot);
        return out + __builtin_popcount(ballot);
    case COLUMN_FULL:
        memcpy(out, column, COLUMN_BYTES);
        return out + COLUMN_BYTES;
    case COLUMN_SINGLE:
        *out = (uint8_t)(8 * __builtin_ctz(ballot) + __builtin_ctz(column[__builtin_ctz(ballot)]));
        return out + 1;
    default:
        return out;
    }
}

/* Ballots and data of the planes at `out`, flags at `flags`; returns what lies behind. */
static uint8_t *pack_columns(const plane_list *list, uint8_t *flags, uint8_t *out) {
    uint32_t ballots[PLANES][COLUMNS];
    int planes = list->n + list->sign;
    for (int p = 0; p < planes; p++) {
        flags[p] = 0;
        for (int k = 0; k < COLUMNS; k++) {
            const uint8_t *column = list->plane[p] + k * COLUMN_BYTES;
            ballots[p][k] = column_ballot(column);
            int flag = flag_of(column, ballots[p][k]);
            flags[p] |= (uint8_t)(flag << 2 * k);
            if (flag == COLUMN_SOME) {
                comet_write_u32(out, ballots[p][k]);
                out += 4;
            }
        }
    }
    for (int p = 0; p < planes; p++)
        for (int k = 0; k < COLUMNS; k++)
            out = pack_column(out, list->plane[p] + k * COLUMN_BYTES, ballots[p][k], flags[p] >> 2 * k & 3);
    return out;
}

static uint32_t bits_used_bytes(const uint8_t *bytes) {
    uint64_t any = 0;
    for (int i = 0; i < TILE_VALUES; i += 8)
        any |= comet_read_u64(bytes + i);
    any |= any >> 32;
    any |= any >> 16;
    return (uint32_t)(any | any >> 8) & 0xffu;
}

static void split_wide(const uint16_t *f, uint8_t *low, uint8_t *high) {
    for (int i = 0; i < TILE_VALUES; i++) {
        low[i] = (uint8_t)f[i];
        high[i] = (uint8_t)(f[i] >> 8);
    }
}

static int encode_generic(const tile_codes *codes, int wide, int chained, unsigned class_index,
                          const tile_padding *padding, uint8_t *out, int *predicted) {
    _Alignas(64) tile_planes planes;
    _Alignas(64) uint8_t low[TILE_VALUES], high[TILE_VALUES];
    uint32_t used;
    if (wide) {
        uint16_t folded[TILE_VALUES];
        *predicted = residuals_wide(codes->wide, chained, padding, folded);
        split_wide(folded, low, high);
        used = bits_used_bytes(low) | bits_used_bytes(high) << 8;
        planes_of_bytes(low, planes);
        planes_of_bytes(high, planes + 8);
    } else {
        *predicted = residuals_narrow(codes->narrow, chained, padding, low);
        used = bits_used_bytes(low);
        planes_of_bytes(low, planes);
        used = (used & 0x7fu) | (used & 0x80u) << 8;
    }
    if (used == 0 && !*predicted && class_index == 0)
        return 0;
    plane_list list = {.n = (int)comet_bit_width(used & 0x7fffu), .sign = (int)(used >> SIGN_PLANE)};
    for (int p = 0; p < list.n; p++)
        list.plane[p] = planes[p];
    if (list.sign)
        list.plane[list.n] = planes[wide ? SIGN_PLANE : 7];
    out[0] = (uint8_t)((unsigned)list.n | (list.sign ? HEAD_SIGN : 0u) | class_index << HEAD_CLASS_SHIFT |
                       (*predicted ? HEAD_PREDICTED : 0u));
    uint8_t *flags = out + 1, *next = flags + list.n + list.sign;
    if (*predicted)
        next = write_firsts(codes, wide, chained, next);
    return (int)(pack_columns(&list, flags, next) - out);
}

#ifndef HAVE_ENCODE
static int encode(const tile_codes *codes, int wide, int chained, unsigned class_index, const tile_padding *padding,
                  uint8_t *out, int *predicted) {
    return encode_generic(codes, wide, chained, class_index, padding, out, predicted);
}
#endif

/* ---- unpack ---- */

/* The bytes of data behind the ballots that the flags and ballots ask for. */
static int data_bytes(const uint8_t *flags, int planes, const uint8_t *ballots) {
    int bytes = 0;
    for (int c = 0; c < planes * COLUMNS; c++) {
        switch (flags[c / COLUMNS] >> 2 * (c % COLUMNS) & 3) {
        case COLUMN_SOME:
            bytes += __builtin_popcount(comet_read_u32(ballots));
            ballots += 4;
            break;
        case COLUMN_FULL:
            bytes += COLUMN_BYTES;
            break;
        case COLUMN_SINGLE:
            bytes++;
            break;
        default:
            break;
        }
    }
    return bytes;
}

static int count_ballots(const uint8_t *flags, int planes) {
    int ballots = 0;
    for (int p = 0; p < planes; p++)
        ballots += __builtin_popcount(flags[p] & ~(flags[p] >> 1) & 0x55u);
    return ballots;
}

static inline const uint8_t *unpack_column(uint8_t *column, const uint8_t *in, uint32_t ballot, int flag) {
    switch (flag) {
    case COLUMN_SOME:
        column_expand(column, in, ballot);
        return in + __builtin_popcount(ballot);
    case COLUMN_FULL:
        memcpy(column, in, COLUMN_BYTES);
        return in + COLUMN_BYTES;
    case COLUMN_SINGLE:
        memset(column, 0, COLUMN_BYTES);
        column[*in / 8] = (uint8_t)(1u << *in % 8);
        return in + 1;
    default:
        memset(column, 0, COLUMN_BYTES);
        return in;
    }
}

/* The columns of the planes, all sizes checked before. */
static void unpack_columns(const uint8_t *flags, int planes, const uint8_t *ballots, const uint8_t *data,
                           uint8_t *const *plane) {
    for (int p = 0; p < planes; p++)
        for (int k = 0; k < COLUMNS; k++) {
            int flag = flags[p] >> 2 * k & 3;
            uint32_t ballot = flag == COLUMN_SOME ? comet_read_u32(ballots) : 0;
            ballots += flag == COLUMN_SOME ? 4 : 0;
            data = unpack_column(plane[p] + k * COLUMN_BYTES, data, ballot, flag);
        }
}

static void codes_of_planes(const tile_planes planes, int wide, const int16_t *firsts, int chained, tile_codes *codes) {
    _Alignas(64) uint8_t low[TILE_VALUES], high[TILE_VALUES];
    bytes_of_planes(planes, low);
    if (!wide) {
        codes_of_residuals_narrow(low, firsts, chained, codes->narrow);
        return;
    }
    uint16_t folded[TILE_VALUES];
    bytes_of_planes(planes + 8, high);
    for (int i = 0; i < TILE_VALUES; i++)
        folded[i] = (uint16_t)(low[i] | high[i] << 8);
    codes_of_residuals_wide(folded, firsts, chained, codes->wide);
}

static int decode_generic(const uint8_t *tile, int bytes, const uint8_t class_is_wide[QUANTISER_CLASSES], int chained,
                          tile_codes *codes, unsigned *class_index) {
    _Alignas(64) tile_planes planes;
    const uint8_t *end = tile + bytes;
    unsigned head = tile[0];
    int n = (int)(head & 15u), sign = !!(head & HEAD_SIGN), predicted = !!(head & HEAD_PREDICTED);
    *class_index = head >> HEAD_CLASS_SHIFT & 3u;
    int wide = class_is_wide[*class_index];
    if ((!wide && n > 7) || bytes < 1 + n + sign)
        return 0;
    const uint8_t *flags = tile + 1, *next = flags + n + sign;
    int16_t firsts[TILE_LANES];
    if (predicted && !(next = read_firsts(next, end, wide, chained, firsts)))
        return 0;
    int ballots = 4 * count_ballots(flags, n + sign);
    if (end - next < ballots || end - next - ballots != data_bytes(flags, n + sign, next))
        return 0;
    int sign_at = wide ? SIGN_PLANE : 7;
    uint8_t *list[PLANES];
    for (int p = 0; p < n; p++)
        list[p] = planes[p];
    for (int p = n; p < sign_at + !sign; p++)
        memset(planes[p], 0, PLANE_BYTES);
    if (sign)
        list[n] = planes[sign_at];
    unpack_columns(flags, n + sign, next, next + ballots, list);
    codes_of_planes((const uint8_t(*)[PLANE_BYTES])planes, wide, predicted ? firsts : NULL, chained, codes);
    return 1;
}

#ifndef HAVE_DECODE
static int decode(const uint8_t *tile, int bytes, const uint8_t class_is_wide[QUANTISER_CLASSES], int chained,
                  tile_codes *codes, unsigned *class_index) {
    return decode_generic(tile, bytes, class_is_wide, chained, codes, class_index);
}
#endif

#define DEFINE_TILE_KERNELS(name)                                                                                      \
    const tile_kernels name = {.gather = gather,                                                                       \
                               .scatter = scatter,                                                                     \
                               .to_f32 = to_f32,                                                                       \
                               .of_f32 = of_f32,                                                                       \
                               .scale = scale,                                                                         \
                               .count_upper = count_upper,                                                             \
                               .survey = survey,                                                                       \
                               .quantise = quantise,                                                                   \
                               .encode = encode,                                                                       \
                               .decode = decode,                                                                       \
                               .dequantise = dequantise}

#endif
