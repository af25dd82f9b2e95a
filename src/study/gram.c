/* SPDX-License-Identifier: Apache-2.0 */
/* Gram matrices of features, and CKA from them. */
#include "study/gram.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/vector/loop.h"

/*
 * Features are summed in as many lanes, whatever the number of threads; within a lane some at a time are turned, so
 * that images lie side by side, and a tile of the matrix stays in registers.
 */
enum { LANES = 8, CHUNK = 128, ROWS = 4, COLUMNS = 16 };

typedef struct work {
    const float *features;
    int n, padded; /* images, and these up to a whole number of tiles */
    int64_t count; /* features */
    double *sums;  /* a matrix for each lane */
    double *turned;
} work;

static size_t matrix_of(const work *w) {
    return (size_t)w->padded * (size_t)w->padded;
}

static size_t chunk_of(const work *w) {
    return (size_t)w->padded * CHUNK;
}

COMET_INLINE void turn(const work *w, int64_t first, int features, double *turned) {
    for (int i = 0; i < w->n; i++) {
        const float *from = w->features + (int64_t)i * w->count + first;
        for (int f = 0; f < features; f++)
            turned[(int64_t)f * w->padded + i] = (double)from[f];
    }
}

COMET_INLINE void add_tile(const work *w, const double *turned, int features, int row, int column, double *sums) {
    double tile[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            tile[r][c] = sums[(int64_t)(row + r) * w->padded + column + c];
    for (int f = 0; f < features; f++) {
        const double *at = turned + (int64_t)f * w->padded;
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++)
                tile[r][c] += at[row + r] * at[column + c];
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            sums[(int64_t)(row + r) * w->padded + column + c] = tile[r][c];
}

/* Upper half alone: tiles whose last column is not before their first row. */
COMET_INLINE void add_chunk(const work *w, const double *turned, int features, double *sums) {
    for (int row = 0; row < w->n; row += ROWS)
        for (int column = row / COLUMNS * COLUMNS; column < w->n; column += COLUMNS)
            add_tile(w, turned, features, row, column, sums);
}

COMET_RANGE(add_lanes) {
    const work *w = context;
    for (int64_t lane = first; lane < end; lane++) {
        const int64_t from = w->count * lane / LANES, to = w->count * (lane + 1) / LANES;
        double *turned = w->turned + (size_t)lane * chunk_of(w);
        for (int64_t at = from; at < to; at += CHUNK) {
            const int features = to - at < CHUNK ? (int)(to - at) : CHUNK;
            turn(w, at, features, turned);
            add_chunk(w, turned, features, w->sums + (size_t)lane * matrix_of(w));
        }
    }
}

/* The upper half's products, one behind the other. */
static void gather(const work *w, double *gram) {
    for (int i = 0; i < w->n; i++)
        for (int j = i + 1; j < w->n; j++) {
            double sum = 0;
            for (size_t lane = 0; lane < LANES; lane++)
                sum += w->sums[lane * matrix_of(w) + (size_t)i * (size_t)w->padded + (size_t)j];
            *gram++ = sum;
        }
}

static void centre(double *gram, int n, double *rows) {
    double all = 0;
    memset(rows, 0, (size_t)n * sizeof *rows);
    const double *from = gram;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++, from++) {
            rows[i] += *from;
            rows[j] += *from;
        }
    for (int i = 0; i < n; i++)
        all += rows[i];
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            *gram++ += all / ((n - 1.0) * (n - 2.0)) - (rows[i] + rows[j]) / (n - 2.0);
}

comet_status comet_gram(const float *features, int n, int64_t count, comet_threads *threads,
                        const comet_allocator *allocator, double *gram) {
    if (n < COMET_GRAM_LEAST || n > COMET_GRAM_MOST || count < 1)
        return COMET_ERROR_ARGUMENT;
    work w = {.features = features, .n = n, .padded = (n + COLUMNS - 1) / COLUMNS * COLUMNS, .count = count};
    const size_t bytes = LANES * (matrix_of(&w) + chunk_of(&w)) * sizeof(double);
    double *memory = comet_memory_take(allocator, bytes);
    if (!memory)
        return COMET_ERROR_MEMORY;
    memset(memory, 0, bytes);
    w.sums = memory;
    w.turned = memory + LANES * matrix_of(&w);
    comet_loop(threads, LANES, 1, add_lanes, &w);
    gather(&w, gram);
    centre(gram, n, memory);
    comet_memory_give(allocator, memory, bytes);
    return COMET_OK;
}

double comet_hsic(const double *a, const double *b, int n) {
    double sum = 0;
    for (size_t i = 0; i < comet_gram_pairs(n); i++)
        sum += a[i] * b[i];
    return 2 * sum / ((double)n * (n - 3.0));
}

void comet_cka_add(comet_cka *cka, const double *a, const double *b, int n) {
    cka->both += n * comet_hsic(a, b, n);
    cka->first += n * comet_hsic(a, a, n);
    cka->second += n * comet_hsic(b, b, n);
}

double comet_cka_value(const comet_cka *cka) {
    const double scale = sqrt(cka->first) * sqrt(cka->second);
    return scale > 0 && isfinite(scale) ? cka->both / scale : (double)NAN;
}
