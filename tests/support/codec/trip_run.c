/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec/trip_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/number.h"
#include "support/spec/spec_decoder.h"
#include "support/spec/spec_encoder.h"
#include "support/spec/spec_stats.h"

enum { ONE_CHUNK = 65536 }; /* up to so many values there is work for one thread only */

/* ---- the bound that is reported ---- */

static double lossless_below(const trip *t) {
    return t->spec.dtype == COMET_U8 && t->spec.mode != TRIP_GRID ? 0.0 : 0x1p-100;
}

static int bound_is_right(const trip *t, const comet_codec_record *result, failure *f) {
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
    const comet_codec_record *x = &a->result, *y = &b->result;
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
    size_t bytes = trip_output_bytes(t), size = comet_dtype_size(trip_output_dtype(t));
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)expected)[i] != ((const unsigned char *)got)[i])
            return failure_set(f, "decoded value %zu differs from the reference's", i / size);
    return 1;
}

/* What the backend makes of a stream is what is expected. */
static int decodes_on(const trip *t, rng *r, const backend *b, const void *stream, size_t bytes, const void *expected,
                      failure *f) {
    void *got = NULL;
    int good = b->decompress(b, t, r, stream, bytes, &got, f) && same_values(t, expected, got, f);
    free(got);
    return good;
}

/* A stream that is not in the serialised form: the backend that wrote it and the CPU read it as it is. */
static int stored_is_right(const trip *t, rng *r, const backend *b, const trip_stream *s, const void *expected,
                           failure *f) {
    backend cpu = backend_cpu(COMET_ISA_AUTO);
    return (decodes_on(t, r, b, s->stored, s->stored_bytes, expected, f) &&
            decodes_on(t, r, &cpu, s->stored, s->stored_bytes, expected, f))
               ? 1
               : failure_prefix(f, "stream as it was stored");
}

/* Compress: the same bytes and statistics as the reference. Decompress: the same values. */
static int compare_with(const trip *t, rng *r, const backend *b, const trip_stream *reference, const void *expected,
                        failure *f) {
    trip_stream s = {.bytes = NULL};
    int good = b->compress(b, t, r, &s, f) && same_result(reference, &s, f) &&
               decodes_on(t, r, b, s.bytes, s.result.bytes, expected, f) &&
               (!s.stored || stored_is_right(t, r, b, &s, expected, f));
    trip_stream_free(&s);
    return good ? 1 : failure_prefix(f, "%s, pool %d", b->name, b->pool);
}

static int compare_all(const trip *t, rng *r, const backend_list *backends, const trip_stream *reference,
                       const void *expected, failure *f) {
    int all_pools = t->count > ONE_CHUNK, picked = (int)rng_below(r, TRIP_POOLS);
    for (int i = 0; i < backends->count; i++) {
        const backend *b = &backends->all[i];
        if ((all_pools || b->pool < 0 || b->pool == picked) && !compare_with(t, r, b, reference, expected, f))
            return 0;
    }
    const backend *b = &backends->all[rng_below(r, (uint64_t)backends->count)];
    return b->check_capacity(b, t, r, reference, f) ? 1 : failure_prefix(f, "%s, pool %d", b->name, b->pool);
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
    size_t bytes = trip_output_bytes(t);
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
    void *stored = malloc(trip_output_bytes(t) + 1);
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

int trip_verify_on(const trip *t, rng *r, const backend_list *backends, failure *f) {
    trip_stream s;
    void *values;
    int good = run_reference(t, r, &s, &values, NULL, f) && compare_all(t, r, backends, &s, values, f) &&
               decodes_as_told(t, &s, values, f) && encodes_as_told(t, &s, f);
    trip_stream_free(&s);
    free(values);
    return good ? 1 : trip_describe(t, f);
}

int trip_verify(const trip *t, rng *r, const trip_pools *pools, failure *f) {
    backend_list backends = backend_list_cpu(pools);
    return trip_verify_on(t, r, &backends, f);
}

int trip_verify_with(const trip *t, rng *r, comet_isa isa, check_counts *counts, failure *f) {
    trip_stream s;
    void *values;
    backend b = backend_cpu(isa);
    int good = run_reference(t, r, &s, &values, counts, f) && compare_with(t, r, &b, &s, values, f);
    trip_stream_free(&s);
    free(values);
    return good ? 1 : trip_describe(t, f);
}
