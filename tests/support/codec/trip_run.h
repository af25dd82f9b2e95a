/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a round trip on every backend and checks all that is promised of it. */
#ifndef TESTS_SUPPORT_TRIP_RUN_H
#define TESTS_SUPPORT_TRIP_RUN_H

#include "support/codec/backend.h"

/* Everything: the CPU's reference first, then every backend: bytes, statistics, values, gaps, capacity. */
int trip_verify_on(const trip *t, rng *r, const backend_list *backends, failure *f);

/* The same on every instruction set of the CPU with each pool. */
int trip_verify(const trip *t, rng *r, const trip_pools *pools, failure *f);

/* A shorter one, for the fuzzer and the stress program: reference and `isa` on one thread. Counts are added up. */
int trip_verify_with(const trip *t, rng *r, comet_isa isa, check_counts *counts, failure *f);

#endif
