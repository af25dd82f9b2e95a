/* SPDX-License-Identifier: Apache-2.0 */
/* What can run a round trip: an instruction set of the CPU with some threads, or a device (cuda_backend.h). */
#ifndef TESTS_SUPPORT_BACKEND_H
#define TESTS_SUPPORT_BACKEND_H

#include "support/codec/trips.h"

enum { TRIP_POOLS = 3, BACKENDS_MOST = 3 * TRIP_POOLS };

/* Pools of 1, 2 and 3 threads; the first is NULL. */
typedef struct trip_pools {
    comet_threads *threads[TRIP_POOLS];
} trip_pools;

void trip_pools_new(trip_pools *pools);
void trip_pools_free(trip_pools *pools);

typedef struct trip_stream {
    unsigned char *bytes; /* result.bytes of them, in the serialised form */
    comet_codec_record result;
    unsigned char *stored; /* the stream as it was first written, if that is another form of it; else NULL */
    size_t stored_bytes;
} trip_stream;

void trip_stream_free(trip_stream *s);

typedef struct backend backend;

struct backend {
    const char *name;
    int pool; /* of trip_pools; -1: none. Where there is work for one thread only, one pool is as good as another */
    comet_codec_exec exec;
    void *context;
    /* Into memory of the size asked for between guards; the input must stay as it was. */
    int (*compress)(const backend *b, const trip *t, rng *r, trip_stream *s, failure *f);
    /* Into a fresh tensor between guards; *patterns is its content in logical order, to be freed. */
    int (*decompress)(const backend *b, const trip *t, rng *r, const void *stream, size_t bytes, void **patterns,
                      failure *f);
    /* A buffer of just the right size is enough, a smaller one is an error, and nothing outside it is written. */
    int (*check_capacity)(const backend *b, const trip *t, rng *r, const trip_stream *reference, failure *f);
};

typedef struct backend_list {
    int count, dtypes; /* COMET_F32 .. dtypes - 1 are what all of them can do */
    backend all[BACKENDS_MOST];
} backend_list;

/* Every instruction set with every pool. */
backend_list backend_list_cpu(const trip_pools *pools);

/* One instruction set on one thread. */
backend backend_cpu(comet_isa isa);

/* ---- what the CPU's are made of ---- */

comet_codec_exec trip_exec(comet_isa isa, comet_threads *threads);

/* Bytes of the decoded values. */
size_t trip_output_bytes(const trip *t);

/* Compresses into a buffer of comet_codec_max_bytes's size between guard bytes; the input must stay as it was. */
int trip_compress(const trip *t, const comet_codec_exec *exec, trip_stream *s, failure *f);

/* Decompresses into a fresh tensor of the given strides; *patterns is its content in logical order, to be freed. */
int trip_decompress(const trip *t, const trip_stream *s, const comet_codec_exec *exec, rng *r, stride_kind strides,
                    void **patterns, failure *f);

#endif
