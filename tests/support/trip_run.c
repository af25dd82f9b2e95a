/* SPDX-License-Identifier: Apache-2.0 */
#include "support/trip_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/isas.h"
#include "support/number.h"
#include "support/spec_decoder.h"
#include "support/spec_encoder.h"
#include "support/spec_stats.h"

enum { EDGE = 64, GUARD = 0x3C, ONE_CHUNK = 65536 }; /* up to so many values there is work for one thread only */

void trip_pools_new(trip_pools *pools) {
    for (unsigned i = 0; i < TRIP_POOLS; i++) {
        pools->threads[i] = NULL;
        if (i > 0 && comet_threads_new(i + 1, NULL, &pools->threads[i]) != COMET_OK)
            abort();
    }
}

void trip_pools_free(trip_pools *pools) {
    for (unsigned i = 0; i < TRIP_POOLS; i++)
        comet_threads_free(pools->threads[i]);
}

comet_codec_exec trip_exec(comet_isa isa, comet_threads *threads) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.isa = isa;
    exec.threads = threads;
    return exec;
}

void trip_stream_free(trip_stream *s) {
    free(s->bytes);
    s->bytes = NULL;
}

/* ---- compress ---- */

static size_t raw_bytes(const trip *t) {
    return (size_t)t->count * comet_dtype_size(trip_output_dtype(t));
}

/* Compresses into exactly `capacity` bytes between guards. */
static comet_status compress_into(const trip *t, const comet_codec_exec *exec, size_t capacity, trip_stream *s,
                                  int *guards_intact) {
    unsigned char *memory = malloc(capacity + 2 * EDGE);
    if (!memory)
        abort();
    memset(memory, GUARD, capacity + 2 * EDGE);
    comet_status status = comet_codec_compress(&t->input.view, &t->params, exec, memory + EDGE, capacity, &s->result);
    *guards_intact = 1;
    for (size_t i = 0; i < EDGE; i++)
        *guards_intact &= memory[i] == GUARD && memory[EDGE + capacity + i] == GUARD;
    if (status == COMET_OK)
        memmove(memory, memory + EDGE, s->result.bytes);
    s->bytes = memory;
    return status;
}

static int input_is_untouched(const trip *t) {
    size_t bytes = (size_t)t->count * comet_dtype_size(t->spec.dtype);
    void *now = malloc(bytes ? bytes : 1);
    if (!now)
        abort();
    test_tensor_read(&t->input, now);
    int same = (bytes == 0 || memcmp(now, t->patterns, bytes) == 0) && test_tensor_gaps_intact(&t->input);
    free(now);
    return same;
}

static int size_is_allowed(const trip *t, size_t capacity, size_t bytes, failure *f) {
    size_t raw = raw_bytes(t);
    if (bytes > capacity)
        return failure_set(f, "%zu bytes, more than comet_codec_bound's %zu", bytes, capacity);
    if (capacity > raw + raw / 100 + 1024)
        return failure_set(f, "bound of %zu bytes for %zu raw bytes", capacity, raw);
    return 1;
}

int trip_compress(const trip *t, const comet_codec_exec *exec, trip_stream *s, failure *f) {
    size_t capacity = 0;
    int guards_intact;
    s->bytes = NULL;
    comet_status status = comet_codec_bound(&t->input.view, &t->params, &capacity);
    if (status != COMET_OK)
        return failure_set(f, "comet_codec_bound: %s", comet_status_string(status));
    status = compress_into(t, exec, capacity, s, &guards_intact);
    if (status != COMET_OK)
        return failure_set(f, "compress: %s", comet_status_string(status));
    if (!guards_intact)
        return failure_set(f, "compress wrote outside its buffer");
    if (!input_is_untouched(t))
        return failure_set(f, "compress changed its input");
    return size_is_allowed(t, capacity, s->result.bytes, f);
}

/* ---- decompress ---- */

int trip_decompress(const trip *t, const trip_stream *s, const comet_codec_exec *exec, rng *r, stride_kind strides,
                    void **patterns, failure *f) {
    size_t bytes = raw_bytes(t);
    test_tensor output;
    test_tensor_new(&output, r, trip_output_dtype(t), &t->spec.shape, strides);
    comet_status status = comet_codec_decompress(s->bytes, s->result.bytes, trip_grid(t), exec, &output.view);
    int intact = test_tensor_gaps_intact(&output);
    *patterns = malloc(bytes ? bytes : 1);
    if (!*patterns)
        abort();
    test_tensor_read(&output, *patterns);
    test_tensor_free(&output);
    if (status != COMET_OK)
        return failure_set(f, "decompress: %s", comet_status_string(status));
    return intact ? 1 : failure_set(f, "decompress wrote between or around the values");
}

/* ---- the bound that is reported ---- */

static double lossless_below(const trip *t) {
    return t->spec.dtype == COMET_U8 && t->spec.mode != TRIP_GRID ? 0.0 : 0x1p-100;
}

static int bound_is_right(const trip *t, const comet_codec_result *result, failure *f) {
    const comet_codec_stats *stats = &result->stats;
    double wanted = t->spec.mode == TRIP_ZVC ? 0.0 : t->params.bound;
    if (t->params.bound_kind == COMET_BOUND_RELATIVE && stats->nonzero && wanted > 0.0)
        wanted *= sqrt(stats->sum_squares / (double)stats->nonzero);
    else if (t->params.bound_kind == COMET_BOUND_RELATIVE)
        wanted = 0.0;
    double most = t->spec.dtype == COMET_U8 && t->spec.mode != TRIP_GRID ? 255.0 : 0x1p100;
    wanted = wanted > most ? most : wanted < lossless_below(t) ? 0.0 : wanted;
    if (result->bound > wanted || result->bound < wanted * (1.0 - 0x1p-22) - 0x1p-149)
        return failure_set(f, "bound %.17g, wanted %.17g", result->bound, wanted);
    return 1;
}

/* ---- all of it ---- */

static int same_result(const trip_stream *a, const trip_stream *b, failure *f) {
    if (a->result.bytes != b->result.bytes)
        return failure_set(f, "%zu bytes, reference %zu", b->result.bytes, a->result.bytes);
    for (size_t i = 0; i < a->result.bytes; i++)
        if (a->bytes[i] != b->bytes[i])
            return failure_set(f, "byte %zu of %zu is %02x, reference %02x", i, a->result.bytes, b->bytes[i],
                               a->bytes[i]);
    const comet_codec_result *x = &a->result, *y = &b->result;
    if (x->bound != y->bound || x->tiles != y->tiles || x->tiles_exact != y->tiles_exact ||
        x->tiles_wide != y->tiles_wide)
        return failure_set(f, "result: bound %.17g tiles %lld exact %lld wide %lld, reference %.17g %lld %lld %lld",
                           y->bound, (long long)y->tiles, (long long)y->tiles_exact, (long long)y->tiles_wide, x->bound,
                           (long long)x->tiles, (long long)x->tiles_exact, (long long)x->tiles_wide);
    const comet_codec_stats *p = &x->stats, *q = &y->stats;
    if (p->count != q->count || p->nonzero != q->nonzero || p->positive != q->positive ||
        p->nonfinite != q->nonfinite || memcmp(&p->min, &q->min, sizeof p->min) != 0 ||
        memcmp(&p->max, &q->max, sizeof p->max) != 0 || memcmp(&p->sum_abs, &q->sum_abs, sizeof p->sum_abs) != 0 ||
        memcmp(&p->sum_squares, &q->sum_squares, sizeof p->sum_squares) != 0)
        return failure_set(f,
                           "statistics: nonzero %lld positive %lld nonfinite %lld min %.9g max %.9g sums %.17g %.17g, "
                           "reference %lld %lld %lld %.9g %.9g %.17g %.17g",
                           (long long)q->nonzero, (long long)q->positive, (long long)q->nonfinite, (double)q->min,
                           (double)q->max, q->sum_abs, q->sum_squares, (long long)p->nonzero, (long long)p->positive,
                           (long long)p->nonfinite, (double)p->min, (double)p->max, p->sum_abs, p->sum_squares);
    return 1;
}

static int same_values(const trip *t, const void *expected, const void *got, failure *f) {
    size_t bytes = raw_bytes(t), size = comet_dtype_size(trip_output_dtype(t));
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)expected)[i] != ((const unsigned char *)got)[i])
            return failure_set(f, "decoded value %zu differs from the reference's", i / size);
    return 1;
}

/* Compress with `exec`: the same bytes and statistics as the reference. Decompress into strides: the same values. */
static int compare_with(const trip *t, rng *r, const comet_codec_exec *exec, const trip_stream *reference,
                        const void *expected, failure *f) {
    trip_stream s;
    void *got = NULL;
    int good = trip_compress(t, exec, &s, f) && same_result(reference, &s, f) &&
               trip_decompress(t, &s, exec, r, (stride_kind)rng_below(r, STRIDES_OUTPUTS), &got, f) &&
               same_values(t, expected, got, f);
    trip_stream_free(&s);
    free(got);
    return good;
}

/* A buffer of just the right size is enough, one byte less is an error. */
static int check_capacity(const trip *t, const comet_codec_exec *exec, const trip_stream *reference, failure *f) {
    for (size_t less = 0; less < 2; less++) {
        trip_stream s;
        int guards_intact;
        comet_status status = compress_into(t, exec, reference->result.bytes - less, &s, &guards_intact);
        int same = less || (status == COMET_OK && memcmp(s.bytes, reference->bytes, reference->result.bytes) == 0);
        trip_stream_free(&s);
        if (!guards_intact)
            return failure_set(f, "compress wrote outside a buffer of %zu - %zu bytes", reference->result.bytes, less);
        if (status != (less ? COMET_ERROR_CAPACITY : COMET_OK) || !same)
            return failure_set(f, "capacity of %zu - %zu bytes: %s", reference->result.bytes, less,
                               comet_status_string(status));
    }
    return 1;
}

static int compare_isas(const trip *t, rng *r, const trip_pools *pools, const trip_stream *reference,
                        const void *expected, failure *f) {
    isa_list isas = isa_list_get();
    int all_pools = t->count > ONE_CHUNK, picked = (int)rng_below(r, TRIP_POOLS);
    for (int i = 0; i < isas.count; i++)
        for (int p = all_pools ? 0 : picked; p <= (all_pools ? TRIP_POOLS - 1 : picked); p++) {
            comet_codec_exec exec = trip_exec(isas.isa[i], pools->threads[p]);
            if (!compare_with(t, r, &exec, reference, expected, f))
                return failure_prefix(f, "%s, %d threads", isa_name(isas.isa[i]), p + 1);
        }
    comet_codec_exec exec = trip_exec(COMET_ISA_AUTO, pools->threads[rng_below(r, TRIP_POOLS)]);
    return check_capacity(t, &exec, reference, f);
}

/* Reference on one thread, its values checked against the promises and against the decoder made from the text. */
static int run_reference(const trip *t, rng *r, trip_stream *s, void **values, check_counts *counts, failure *f) {
    comet_codec_exec exec = trip_exec(COMET_ISA_REFERENCE, NULL);
    *values = NULL;
    if (!trip_compress(t, &exec, s, f) || !bound_is_right(t, &s->result, f))
        return 0;
    check_rules rules = trip_rules(t, s->result.bound);
    if (!check_stats(&rules, t->patterns, t->count, &s->result.stats, f) ||
        !trip_decompress(t, s, &exec, r, STRIDES_CONTIGUOUS, values, f))
        return 0;
    if (counts)
        return check_values(&rules, t->patterns, *values, t->count, counts) == 0
                   ? 1
                   : check_round_trip(&rules, t->patterns, *values, t->count, f);
    return check_round_trip(&rules, t->patterns, *values, t->count, f);
}

static int decodes_as_told(const trip *t, const trip_stream *s, const void *values, failure *f) {
    size_t bytes = raw_bytes(t);
    void *decoded = malloc(bytes ? bytes : 1);
    if (!decoded)
        abort();
    int good =
        spec_decode(s->bytes, s->result.bytes, trip_grid(t), decoded, bytes, f) && same_values(t, decoded, values, f);
    free(decoded);
    return good ? 1 : failure_prefix(f, "decoder written from docs/format.md");
}

static spec_stream told_stream(const trip *t, double bound) {
    spec_stream s = {.codec = t->spec.mode == TRIP_ZVC ? SPEC_ZVC : SPEC_EB,
                     .dtype = (int)trip_output_dtype(t),
                     .layout = (int)t->spec.shape.layout,
                     .ndim = t->spec.shape.ndim,
                     .bound = (float)bound,
                     .grid = trip_grid(t)};
    memcpy(s.shape, t->spec.shape.shape, sizeof s.shape);
    s.flags = (t->params.checksum ? SPEC_CHECKSUM : 0) | (t->spec.mode == TRIP_KEEP_MASK ? SPEC_KEEP : 0) |
              (t->spec.mode == TRIP_STOCHASTIC ? SPEC_STOCHASTIC : 0) | (s.grid ? SPEC_GRID : 0);
    return s;
}

static int encodes_as_told(const trip *t, const trip_stream *reference, failure *f) {
    check_rules rules = trip_rules(t, 0.0);
    spec_stream told = told_stream(t, reference->result.bound);
    void *stored = malloc(raw_bytes(t) + 1);
    trip_stream s = {.bytes = malloc((size_t)t->count * 5 + 8192), .result = reference->result};
    if (!stored || !s.bytes)
        abort();
    for (int64_t i = 0; i < t->count; i++)
        bits_put(trip_output_dtype(t), stored, i, check_stored_bits(&rules, t->patterns, i));
    s.result.bytes = spec_encode(&told, stored, t->params.seed, s.bytes);
    spec_sums(&told, stored, &s.result.stats.sum_abs, &s.result.stats.sum_squares);
    int good = same_result(reference, &s, f);
    free(stored);
    trip_stream_free(&s);
    return good ? 1 : failure_prefix(f, "encoder written from docs/format.md");
}

int trip_verify(const trip *t, rng *r, const trip_pools *pools, failure *f) {
    trip_stream s;
    void *values;
    int good = run_reference(t, r, &s, &values, NULL, f) && compare_isas(t, r, pools, &s, values, f) &&
               decodes_as_told(t, &s, values, f) && encodes_as_told(t, &s, f);
    trip_stream_free(&s);
    free(values);
    return good ? 1 : trip_describe(t, f);
}

int trip_verify_with(const trip *t, rng *r, comet_isa isa, check_counts *counts, failure *f) {
    trip_stream s;
    void *values;
    comet_codec_exec exec = trip_exec(isa, NULL);
    int good = run_reference(t, r, &s, &values, counts, f) && compare_with(t, r, &exec, &s, values, f);
    trip_stream_free(&s);
    free(values);
    return good ? 1 : trip_describe(t, f);
}
