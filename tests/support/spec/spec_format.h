/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the second decoder and encoder of eb and zvc share, written from docs/format.md alone: one value at a time,
 * formula by formula, without anything of the library. Slow on purpose.
 */
#ifndef TESTS_SUPPORT_SPEC_FORMAT_H
#define TESTS_SUPPORT_SPEC_FORMAT_H

#include <stdint.h>

#include "comet/codec.h"

enum { SPEC_EB = 1, SPEC_ZVC = 2 };
enum { SPEC_F32 = 0, SPEC_F16 = 1, SPEC_BF16 = 2, SPEC_U8 = 3 };
enum { SPEC_CHECKSUM = 1, SPEC_KEEP = 2, SPEC_STOCHASTIC = 4, SPEC_GRID = 8 };
enum { SPEC_NCHW = 1, SPEC_NHWC = 2 };

/* The header's fields and what follows from them. */
typedef struct spec_stream {
    int codec, dtype, layout, ndim, flags;
    float bound;
    int64_t shape[8], count;
    int64_t channels, row;             /* C and S */
    int64_t positions, columns, tiles; /* columns: the values of P */
    const comet_codec_grid *grid;
} spec_stream;

typedef enum spec_rule {
    SPEC_NEAREST_RULE,
    SPEC_STOCHASTIC_RULE,
    SPEC_RISE_RULE,
    SPEC_TREAD_RULE,
    SPEC_GRID_RULE
} spec_rule;

/* Narrow classes have the numbers that tiles say; the wide one, which has none there, this. */
enum { SPEC_WIDE = 4, SPEC_CLASSES = 5 };

typedef struct spec_class {
    int exists, wide;
    float s;
    float limit; /* on |code| */
    spec_rule rule;
} spec_class;

/* A code tile taken apart. */
typedef struct spec_tile {
    int n, sign, class_index, predicted, wide, chained;
    int folded[1024], codes[1024], firsts[32];
} spec_tile;

/* zlib's CRC-32, bit by bit, with bytes 24 to 27 taken as 0. */
uint32_t spec_crc(const unsigned char *stream, uint64_t bytes);

/* C and S as the table of layouts gives them. */
void spec_layout(const spec_stream *s, int64_t *channels, int64_t *row);

/* The rest of the geometry, from C and S. */
void spec_geometry(spec_stream *s);

/* The index in the tensor of value i of tile t; -1 for padding. */
int64_t spec_index(const spec_stream *s, int64_t t, int i);

/* The channel of a value, for a grid. */
int64_t spec_channel(const spec_stream *s, int64_t index);

spec_class spec_class_of(const spec_stream *s, int index);

/* The edge e of a channel and its integer A. slope: 1 where none is given. */
float spec_edge(const spec_class *c, float threshold, float slope, int *a);

int spec_value_size(const spec_stream *s);

/* Sixteen or eight bits of two's complement; folding and its inverse. */
int spec_wrap(const spec_tile *t, int v);
int spec_fold(const spec_tile *t, int code);
int spec_unfold(const spec_tile *t, int folded);

/* The bit that the sign plane holds. */
int spec_sign_bit(const spec_tile *t);

/* What the code of value i is predicted from; -1 if it is a first. */
int spec_predictor(const spec_tile *t, int i);

#endif
