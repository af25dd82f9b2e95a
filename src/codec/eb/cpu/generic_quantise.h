/* SPDX-License-Identifier: Apache-2.0 */
/* Values to codes and back. A part of tile_generic.h. */
#ifndef COMET_CODEC_CPU_GENERIC_QUANTISE_H
#define COMET_CODEC_CPU_GENERIC_QUANTISE_H

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "codec/eb/cpu/generic_values.h"

/* ---- quantise: elementwise on the buffer's order, then to LINEAR ---- */

#define MAGIC 0x1.8p23f /* adding it to |v| < 2^22 rounds v to an integer, which is then in the low bits */

static inline int32_t code_nearest(float x, float inverse) {
    return (int32_t)(comet_bits_of(fmaf(x, inverse, MAGIC)) - comet_bits_of(MAGIC));
}

static inline int32_t floor_to_int(float v) {
    int32_t towards_zero = (int32_t)v;
    return towards_zero - ((float)towards_zero > v);
}

/* The integers around a product that is not rounded. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
/*
 * The nearest integer n, and the sign of what is left of the product: an fma has it right even where it underflows, and
 * MAGIC - rounded, which is -n, is +0 for n = 0, so that nothing left has no sign.
 */
static inline int32_t floor_of_product(float v, float inverse) {
    float rounded = fmaf(v, inverse, MAGIC), left = fmaf(v, inverse, MAGIC - rounded);
    return (int32_t)(comet_bits_of(rounded) - comet_bits_of(MAGIC) - (comet_bits_of(left) >> 31));
}
#else
/* A double holds it: both factors have 24 bits. */
static inline int32_t floor_of_product(float v, float inverse) {
    double product = (double)v * (double)inverse;
    int32_t towards_zero = (int32_t)product;
    return towards_zero - ((double)towards_zero > product);
}
#endif

static inline int32_t ceil_of_product(float v, float inverse) {
    return -floor_of_product(-v, inverse);
}

static inline int32_t code_stochastic(float x, float inverse, float u) {
    return floor_to_int(fmaf(x, inverse, u));
}

static inline int32_t code_keep_rise(float x, float inverse) {
    int32_t code = ceil_of_product(fabsf(x), inverse);
    return comet_bits_of(x) >> 31 ? -code : code;
}

static inline int32_t code_keep_tread(float x, float inverse) {
    uint32_t bits = comet_bits_of(x);
    int32_t code = code_nearest(x, inverse), least = bits >> 31 ? -1 : 1;
    return code == 0 && (bits << 1) != 0 ? least : code;
}

/* The sign of a difference is always right, so the side is. */
static inline int32_t code_grid(float y, float inverse, float edge, int32_t first_upper) {
    return first_upper + floor_of_product(y - edge, inverse);
}

static void quantise_grid(const float *v, const tile_quantise *how, int32_t *restrict codes) {
    const tile_channels *channels = how->grid->channels;
    float edge_lane[TILE_LANES], inverse = how->c->inverse;
    int32_t code_lane[TILE_LANES];
    const float *edge = table_of(channels, how->grid->edge, edge_lane);
    const int32_t *code = table_of(channels, how->grid->code, code_lane);
    if (!channels->by_lane)
        memset(codes, 0, TILE_VALUES * sizeof *codes); /* padding */
    FOR_CHANNELS(channels, codes[i] = code_grid(v[i], inverse, edge[c], code[c]))
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
    float base_lane[TILE_LANES], step = how->c->step;
    const float *base = table_of(channels, how->grid->base, base_lane);
    if (!channels->by_lane)
        memset(v, 0, TILE_VALUES * sizeof *v); /* padding */
    FOR_CHANNELS(channels, v[i] = fmaf((float)q[i] + QUANTISER_GRID_BIAS, step, base[c]))
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
    case QUANTISE_KEEP_RISE: /* +-(2 |q| - 1) is 2 q -+ 1, and 0 for 0 */
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

#endif
