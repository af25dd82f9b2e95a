/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One body for every backend: dtypes, layouts, bounds and modes of eb and zvc, each trip with all that trip_verify_on
 * checks. For cmocka tests: what is wrong ends the test.
 */
#ifndef TESTS_SUPPORT_TRIP_PROPERTIES_H
#define TESTS_SUPPORT_TRIP_PROPERTIES_H

#include "support/codec/trip_run.h"

/* How many combinations of layout, mode and bound there are, and of kinds of values and modes. */
enum { PROPERTIES_COMBINATIONS = 3 * TRIP_MODES * 17, PROPERTIES_KINDS = VALUES_KINDS * TRIP_MODES };

/* So many random tensors of up to `most` values: all combinations equally often, or a choice of them. */
void properties_combinations(const backend_list *backends, comet_dtype dtype, int trips, int64_t most);

/* Tensors of more than one chunk of 64 tiles, so that threads, or groups of tiles, share the work. */
void properties_large(const backend_list *backends, int rounds);

/* Every shape of one to three small extents, so that no remainder is left out; one of `every`. */
void properties_every_small_shape(const backend_list *backends, int every);

/* Each kind of values in each mode, at the bounds where they matter most; so many tensors. */
void properties_every_kind(const backend_list *backends, int trips);

/*
 * Sums of three tiles, so many tiles apart, that depend on the order in which they are added. 128: accumulators 0, 16
 * and 32, which meet in the pairs at the end; 2048: all in accumulator 0.
 */
void properties_order_of_sums(const backend_list *backends, size_t tiles_apart);

/* One trip with values of its own. */
void properties_verify(const backend_list *backends, rng *r, const trip_spec *spec);

#endif
