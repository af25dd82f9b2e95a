/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of neighbours that are alike, and gradients that are: then what is added up over a map does not average out
 * as independent errors do (docs/theory.md, 5).
 */
#ifndef COMET_CONTROL_COLLECT_NEIGHBOURS_H
#define COMET_CONTROL_COLLECT_NEIGHBOURS_H

#include "comet/use_stats.h"
#include "control/collect/alike.h"
#include "control/collect/maps.h"

enum { COMET_ALIKE_BLOCKS = 8 }; /* of offsets, for threads */

/* Floats of memory: `arrays` of them for each block. */
static inline size_t comet_neighbours_floats(int64_t channels, int arrays) {
    return (size_t)channels * (size_t)arrays * COMET_ALIKE_BLOCKS;
}

/* Four arrays, five for values that do not lie in rows. */
static inline int comet_errors_arrays(const comet_maps *m) {
    return m->is_rows ? 4 : 5;
}

/* Of what is stored of values: a sum for each offset; and what they say of all values, and of those that are on. */
void comet_see_errors(comet_threads *threads, const comet_maps *values, const comet_alike_channels *how, float *memory,
                      comet_alike_errors_sums *sums);
void comet_alike_of_errors(const comet_alike_errors_sums *sums, comet_stats_alike *all, comet_stats_alike *on);

/* Maps of gradients: `read` gives all channels at a place, counted from the first image's; it has room for two rows. */
typedef struct comet_gradient comet_gradient;
struct comet_gradient {
    const comet_maps *maps; /* for their shape */
    void (*read)(const comet_gradient *gradient, int64_t place, float *room, float *values);
    const void *context;
};

enum { COMET_GRADIENT_ARRAYS = 4 };

/* Sums of products, one for each offset; and what they say. */
void comet_see_gradient(comet_threads *threads, const comet_gradient *gradient, float *memory, double *sums);
void comet_alike_of_gradient(const double *sums, comet_stats_alike *found);

/*
 * What the variance of a sum of errors times gradients is multiplied with; a gradient's place is `stride` of the
 * error's.
 */
double comet_alike_together(const comet_stats_alike *errors, const comet_stats_alike *gradients, const int32_t *stride);

#endif
