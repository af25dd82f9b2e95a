/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A threshold grid for a tensor: what a batch norm with a ReLU behind it would keep of it. u = (x - mean) / std is
 * stored, the ReLU is on where gamma * u + beta > 0.
 */
#ifndef COMET_CMD_GRID_H
#define COMET_CMD_GRID_H

#include "cmd/bench/check.h"
#include "cmd/files/buffer.h"
#include "comet/codec.h"

typedef enum grid_table { GRID_SCALE, GRID_SHIFT, GRID_THRESHOLD, GRID_GAMMA, GRID_BETA, GRID_TABLES } grid_table;

typedef struct bench_grid {
    int64_t channels;
    int64_t stride;        /* values from one channel to the next */
    size_t table_room;     /* bytes from one table to the next */
    buffer tables;         /* in the order of grid_table */
    buffer values;         /* u = fma(scale, x, shift) of every value, in fp32 */
    comet_codec_grid host; /* with these tables */
} bench_grid;

/* For the tensor's values, which have no gaps. `grid`: zeroed, or made before. FAILED: no memory; nothing is said. */
int bench_grid_make(bench_grid *grid, const comet_tensor *tensor);
void bench_grid_free(bench_grid *grid);

/* Bytes of all tables. */
size_t bench_grid_bytes(const bench_grid *grid);

/* One table, in a copy of all of them that begins at `first` (host or device memory). */
const float *bench_grid_table(const bench_grid *grid, const void *first, grid_table which);

/* The codec's grid, with tables in such a copy. */
comet_codec_grid bench_grid_at(const bench_grid *grid, const void *first);

/* The thresholds, for the judge: grid->values are what goes in. */
check_sides bench_grid_sides(const bench_grid *grid);

/* Mean and 1 / sqrt(variance + 1e-5) of each channel's finite values. FAILED: no memory; nothing is said. */
int bench_channels_measure(const comet_tensor *tensor, int64_t channels, float *mean, float *inverse_std);

/* Slopes around 1 and a few that are negative, shifts around 0, as a trained network has them. */
void bench_slopes_make(float *gamma, float *beta, int64_t channels);

#endif
