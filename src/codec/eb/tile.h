/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work on one tile, once for each instruction set. Every set computes the same results bit for bit; the reference
 * is plain C and is what the others are tested against. Buffers are 64-byte aligned.
 */
#ifndef COMET_CODEC_CPU_TILE_H
#define COMET_CODEC_CPU_TILE_H

#include "codec/eb/geometry.h"
#include "codec/eb/quantiser.h"

/* What one pass over a tile's values finds. Values that are not finite are left out, but counted. */
typedef struct tile_survey {
    uint32_t magnitude; /* bit pattern of the largest |value|; above 0x7f7fffff: a NaN or an infinity is there */
    int32_t nonzero, positive, nonfinite;
    float min, max; /* +Inf, -Inf if there is no finite value */
    double sum_abs, sum_squares;
} tile_survey;

/*
 * The order of a tile's sums, docs/format.md, section 5: over the four rows of the buffer first, or, where a tile is a
 * run of 1,024 neighbours in memory (C = 1, S = 8), over values 128 apart there.
 */
typedef enum survey_order { SURVEY_ROWS, SURVEY_RUN } survey_order;

static inline survey_order comet_survey_order(const tile_geometry *g) {
    return g->channels == 1 && g->row == TILE_LANE_COLUMNS ? SURVEY_RUN : SURVEY_ROWS;
}

/* Which values of a tile are padding. all: none is. */
typedef struct tile_padding {
    int all_valid;
    uint8_t valid[TILE_VALUES / 8]; /* bit i mod 8 of byte i div 8, in LINEAR order */
} tile_padding;

/* Codes of a tile in LINEAR order, 8 or 16 bits each. */
typedef union tile_codes {
    int8_t narrow[TILE_VALUES];
    int16_t wide[TILE_VALUES];
} tile_codes;

/*
 * Which channels a tile's values have. by_lane: in INTERLEAVED order and without padding all rows of lanes have the
 * same ones. Else by pieces of its buffer; consecutive: a piece's channels count up from `channel`; else all have that
 * one. Padding is in no piece.
 */
typedef struct channel_piece {
    int16_t at, count;
    int32_t channel;
} channel_piece;

typedef struct tile_channels {
    int by_lane;
    int32_t lane[TILE_LANES];
    int consecutive, count;
    channel_piece pieces[TILE_VALUES];
} tile_channels;

/* A grid on a threshold, a number for each channel: see grid_channel. */
typedef struct tile_grid {
    const tile_channels *channels;
    const float *edge;
    const int32_t *code;
    const float *base;
} tile_grid;

/* What a quantiser needs beside the values. */
typedef struct tile_quantise {
    const quantiser_class *c;
    uint64_t seed, tile;   /* QUANTISE_STOCHASTIC */
    const tile_grid *grid; /* QUANTISE_GRID */
} tile_quantise;

/* The first byte of a code tile. Codes are of 16 bits where there are so many magnitude planes; they name no class. */
enum {
    HEAD_PLANES = 15,
    HEAD_WIDE_PLANES = 8,
    HEAD_SIGN = 1 << 4,
    HEAD_CLASS_SHIFT = 5,
    HEAD_CLASS = 3 << HEAD_CLASS_SHIFT,
    HEAD_PREDICTED = 1 << 7
};

static inline int comet_head_is_wide(unsigned head) {
    return (head & HEAD_PLANES) >= HEAD_WIDE_PLANES;
}

/* The class of the codes behind a head; QUANTISER_CLASSES if there is no such head. */
static inline unsigned comet_head_class(unsigned head) {
    unsigned index = (head & HEAD_CLASS) >> HEAD_CLASS_SHIFT;
    if (!comet_head_is_wide(head))
        return index;
    return index == 0 ? QUANTISER_WIDE : QUANTISER_CLASSES;
}

/* The head without the number of planes and the sign's. */
static inline unsigned comet_head_of(unsigned class_index, int predicted) {
    return (class_index == QUANTISER_WIDE ? 0u : class_index << HEAD_CLASS_SHIFT) | (predicted ? HEAD_PREDICTED : 0u);
}

enum {
    TILE_ENCODED_MAX = 2560, /* head, flags, firsts, ballots and data of 16 full planes fit in it */
    TILE_ENCODE_SLACK = 64,  /* and stores may run over by this */
    TILE_DECODE_SLACK = 64   /* decode() may read this much behind the tile */
};

typedef struct tile_kernels {
    /*
     * All of a tile without padding from contiguous memory into a buffer, and back. `size`: bytes of a value, 2 or 4.
     */
    void (*gather)(const tile_map *map, const void *tensor, int size, void *buffer);
    void (*scatter)(const tile_map *map, const void *buffer, int size, void *tensor);
    /* `count` patterns of a dtype at any address to fp32, and back with rounding to nearest even. */
    void (*to_f32)(comet_dtype dtype, const void *patterns, int count, float *values);
    void (*of_f32)(comet_dtype dtype, const float *values, int count, void *patterns);
    /* fma(scale, value, shift) with the channels' numbers; padding is left. */
    void (*scale)(const tile_channels *channels, const float *scale, const float *shift, float *values);
    /* How many values are not below their channel's edge; in channels with a flip of 1, how many are. */
    int (*count_upper)(const tile_channels *channels, const float *edge, const uint32_t *flip, const float *values);
    void (*survey)(const float *values, tile_order order, survey_order sums, const tile_padding *padding,
                   tile_survey *survey);
    /* Values in `order` to codes in LINEAR order. */
    void (*quantise)(const float *values, tile_order order, const tile_quantise *how, tile_codes *codes);
    /*
     * Codes to the bytes of a code tile at `out`; returns how many, *predicted says how. chained: C = 1. They are of 16
     * bits if the class is QUANTISER_WIDE.
     */
    int (*encode)(const tile_codes *codes, int chained, unsigned class_index, const tile_padding *padding, uint8_t *out,
                  int *predicted);
    /*
     * The inverse, for `bytes` > 0. 0 if they are not a valid tile. TILE_DECODE_SLACK bytes behind them are readable.
     */
    int (*decode)(const uint8_t *tile, int bytes, int chained, tile_codes *codes, unsigned *class_index);
    /* Codes in LINEAR order to values in `order`. Not clamped, not rounded to a 16-bit type (exact there). */
    void (*dequantise)(const tile_codes *codes, tile_order order, const tile_quantise *how, float *values);
} tile_kernels;

const tile_kernels *comet_tile_kernels(comet_isa isa);

extern const tile_kernels comet_tile_reference;
#if defined(COMET_X86_64)
extern const tile_kernels comet_tile_avx2, comet_tile_avx512;
#endif

#endif
