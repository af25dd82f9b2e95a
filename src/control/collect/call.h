/* SPDX-License-Identifier: Apache-2.0 */
/* What the public calls have in common: their arguments, and where in the workspace what lies. */
#ifndef COMET_CONTROL_COLLECT_CALL_H
#define COMET_CONTROL_COLLECT_CALL_H

#include "comet/use_stats.h"
#include "control/collect/sums.h"

/* A workspace that is given out from its beginning. `at` NULL: only counted. */
typedef struct comet_stats_memory {
    char *at;
    size_t bytes;
} comet_stats_memory;

void *comet_stats_place(comet_stats_memory *memory, size_t count, size_t size);

/* Strips for tensors that do not lie in rows: NULL for those that do. `b` may be NULL. */
void comet_stats_place_strips(comet_stats_memory *memory, const comet_maps *a, const comet_maps *b, comet_sums *sums);

/* The arguments as this version knows them. `given` may be NULL. COMET_ERROR_CAPACITY: fewer bytes than needed. */
comet_status comet_stats_exec_of(const comet_stats_exec *given, size_t needed, comet_stats_exec *exec);

/* COMET_ERROR_ARGUMENT if `given`, which starts with its size, is NULL or of another size than `known`. */
comet_status comet_stats_check_size(const void *given, size_t known, const char *name);

/* COMET_ERROR_DIVERGED if one is not finite. */
comet_status comet_stats_finite(const double *values, int count);

#endif
