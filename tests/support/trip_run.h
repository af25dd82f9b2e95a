/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a round trip with every instruction set and checks all that is promised of it. */
#ifndef TESTS_SUPPORT_TRIP_RUN_H
#define TESTS_SUPPORT_TRIP_RUN_H

#include "support/trips.h"

enum { TRIP_POOLS = 3 };

/* Pools of 1, 2 and 3 threads; the first is NULL. */
typedef struct trip_pools {
    comet_threads *threads[TRIP_POOLS];
} trip_pools;

void trip_pools_new(trip_pools *pools);
void trip_pools_free(trip_pools *pools);

typedef struct trip_stream {
    unsigned char *bytes; /* result.bytes of them */
    comet_codec_result result;
} trip_stream;

void trip_stream_free(trip_stream *s);

comet_codec_exec trip_exec(comet_isa isa, comet_threads *threads);

/* Compresses into a buffer of comet_codec_bound's size between guard bytes; the input must stay as it was. */
int trip_compress(const trip *t, const comet_codec_exec *exec, trip_stream *s, failure *f);

/* Decompresses into a fresh tensor of the given strides; *patterns is its content in logical order, to be freed. */
int trip_decompress(const trip *t, const trip_stream *s, const comet_codec_exec *exec, rng *r, stride_kind strides,
                    void **patterns, failure *f);

/* Everything: reference first, then every instruction set with each pool, bytes, statistics, values, gaps, capacity. */
int trip_verify(const trip *t, rng *r, const trip_pools *pools, failure *f);

/* A shorter one, for the fuzzer and the stress program: reference and `isa` on one thread. Counts are added up. */
int trip_verify_with(const trip *t, rng *r, comet_isa isa, check_counts *counts, failure *f);

#endif
