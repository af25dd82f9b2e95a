/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many values through eb: adversarial, random and (from files of raw fp32) real ones, as fp32, fp16 and bf16, all
 * modes, all instruction sets. Each round trip is made by the reference and by one other instruction set, which must
 * agree, and the checker sees what went in and what came out. Not part of the ordinary tests.
 *
 *     stress_eb [LIMIT] [FILE...]      LIMIT: values, as 1e9 (the default), or seconds, as 60s
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/codec/isas.h"
#include "support/codec/trip_run.h"
#include "support/number.h"

enum { MOST_VALUES = 400000, MOST_FILES = 1000, DTYPES = 3 };

typedef struct real_data {
    float *values;
    int64_t count;
    double rms;
} real_data;

typedef struct stress {
    double most_values, most_seconds;
    real_data files[MOST_FILES];
    int file_count;
    check_counts counts[DTYPES][TRIP_MODES];
    int64_t real_values, trips, failed;
    uint32_t *patterns;
} stress;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- real data ---- */

static double rms_of(const float *values, int64_t count) {
    double squares = 0.0, nonzero = 0.0;
    for (int64_t i = 0; i < count; i++) {
        squares += (double)values[i] * (double)values[i];
        nonzero += values[i] != 0.0f;
    }
    return nonzero > 0.0 && squares > 0.0 ? sqrt(squares / nonzero) : 1.0;
}

static int read_file(const char *path, real_data *d) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        return 0;
    long bytes = ftell(file);
    rewind(file);
    d->count = bytes / 4;
    d->values = malloc((size_t)d->count * 4 + 1);
    int ok = d->values && d->count > 0 && fread(d->values, 4, (size_t)d->count, file) == (size_t)d->count;
    fclose(file);
    d->rms = ok ? rms_of(d->values, d->count) : 1.0;
    return ok;
}

/* A window of a file, as the dtype. */
static void fill_real(stress *s, rng *r, trip_spec *spec, int64_t count) {
    const real_data *d = &s->files[rng_below(r, (uint64_t)s->file_count)];
    int64_t start = (int64_t)rng_below(r, (uint64_t)d->count);
    for (int64_t i = 0; i < count; i++)
        bits_put(spec->dtype, s->patterns, i, bits_of_number(spec->dtype, (double)d->values[(start + i) % d->count]));
    spec->scale = d->rms;
    s->real_values += count;
}

/* ---- round trips ---- */

static double some_bound(rng *r, double scale) {
    switch (rng_below(r, 10)) {
    case 0:
        return 0.0;
    case 1:
        return ldexp(1.0 + rng_unit(r), (int)rng_between(r, -101, 101));
    case 2:
        return scale * ldexp(1.0, (int)rng_between(r, -12, 4));
    default:
        return scale * ldexp(1.0 + rng_unit(r), (int)rng_between(r, -14, 3));
    }
}

static trip_spec some_spec(rng *r) {
    static const double scales[] = {1.0, 1.0, 1.0, 1e-3, 50.0, 1e-7};
    comet_layout layout = (comet_layout)rng_below(r, 3);
    trip_spec spec = {.dtype = (comet_dtype)rng_below(r, DTYPES),
                      .shape = shape_random(r, layout, MOST_VALUES),
                      .strides = STRIDES_CONTIGUOUS,
                      .mode = (trip_mode)rng_below(r, TRIP_MODES - 1),
                      .scale = scales[rng_below(r, 6)],
                      .bound_kind = rng_below(r, 8) ? COMET_BOUND_ABSOLUTE : COMET_BOUND_RELATIVE};
    static const value_kind kinds[] = {VALUES_MIXED,   VALUES_MIXED,    VALUES_EDGES,     VALUES_EDGES,
                                       VALUES_BINADES, VALUES_OUTLIERS, VALUES_GAUSS,     VALUES_RELU,
                                       VALUES_SMOOTH,  VALUES_BITS,     VALUES_SUBNORMAL, VALUES_HUGE};
    spec.values = kinds[rng_below(r, sizeof kinds / sizeof *kinds)];
    if (shape_count(&spec.shape) < 50000) /* small shapes have tests of their own */
        spec.shape =
            (test_shape){layout, 4, {2, rng_between(r, 20, 60), rng_between(r, 30, 60), rng_between(r, 30, 50)}};
    return spec;
}

static void round_trip(stress *s, rng *r, comet_isa isa) {
    trip t;
    failure f;
    trip_spec spec = some_spec(r);
    int64_t count = shape_count(&spec.shape);
    int is_real = s->file_count && rng_below(r, 3) == 0;
    if (is_real) {
        fill_real(s, r, &spec, count);
        spec.bound = some_bound(r, spec.scale);
        trip_of_values(&t, r, &spec, s->patterns);
        if (spec.mode == TRIP_GRID)
            trip_make_grid(&t, r);
    } else {
        spec.bound = some_bound(r, spec.scale);
        trip_new(&t, r, &spec);
    }
    s->trips++;
    if (!trip_verify_with(&t, r, isa, &s->counts[spec.dtype][spec.mode], &f)) {
        s->failed++;
        printf("FAILED (%s%s): %s\n", isa_name(isa), is_real ? ", real" : "", f.text);
    }
    trip_free(&t);
}

static double values_done(const stress *s) {
    double sum = 0.0;
    for (int d = 0; d < DTYPES; d++)
        for (int m = 0; m < TRIP_MODES; m++)
            sum += (double)s->counts[d][m].values;
    return sum;
}

static void run(stress *s) {
    isa_list isas = isa_list_get();
    const char *seed = getenv("STRESS_SEED"); /* to run the same again */
    uint64_t first = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    rng r = rng_seed(first);
    printf("STRESS_SEED=%llu\n", (unsigned long long)first);
    fflush(stdout);
    double start = now(), said = start;
    for (int i = 0; values_done(s) < s->most_values && now() - start < s->most_seconds; i++) {
        round_trip(s, &r, isas.isa[isas.count > 1 ? 1 + i % (isas.count - 1) : 0]);
        if (now() - said > 10.0) {
            said = now();
            fprintf(stderr, "%.3g values, %.0f s, %lld failed\n", values_done(s), said - start, (long long)s->failed);
        }
    }
    printf("%.0f s\n", now() - start);
}

static int64_t report(const stress *s) {
    int64_t bad = s->failed;
    printf("%-6s %-10s %14s %10s %10s %10s %10s %10s %10s %12s\n", "dtype", "mode", "values", "violations", "zeros",
           "mask", "special", "side", "bits", "worst/bound");
    for (int d = 0; d < DTYPES; d++)
        for (int m = 0; m < TRIP_MODES; m++) {
            const check_counts *n = &s->counts[d][m];
            if (n->values == 0)
                continue;
            printf("%-6s %-10s %14lld %10lld %10lld %10lld %10lld %10lld %10lld %12.9f\n",
                   comet_dtype_name((comet_dtype)d), trip_mode_name((trip_mode)m), (long long)n->values,
                   (long long)n->over_bound, (long long)n->zeros_broken, (long long)n->mask_broken,
                   (long long)n->special_broken, (long long)n->side_broken, (long long)n->bits_broken, n->worst);
            bad +=
                n->over_bound + n->zeros_broken + n->mask_broken + n->special_broken + n->side_broken + n->bits_broken;
        }
    printf("%.6g values in %lld round trips, of these %.6g real; %lld round trips failed\n", values_done(s),
           (long long)s->trips, (double)s->real_values, (long long)s->failed);
    return bad;
}

static int read_arguments(stress *s, int argc, char **argv) {
    s->most_values = 1e9;
    s->most_seconds = (double)INFINITY;
    for (int i = 1; i < argc; i++) {
        char *end;
        double limit = strtod(argv[i], &end);
        if (end != argv[i] && (*end == '\0' || strcmp(end, "s") == 0)) {
            s->most_values = *end ? (double)INFINITY : limit;
            s->most_seconds = *end ? limit : (double)INFINITY;
        } else if (s->file_count == MOST_FILES || !read_file(argv[i], &s->files[s->file_count++])) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    static stress s;
    s.patterns = malloc(MOST_VALUES * sizeof *s.patterns);
    if (!s.patterns || !read_arguments(&s, argc, argv))
        return 2;
    isa_list_print();
    run(&s);
    int64_t bad = report(&s);
    for (int i = 0; i < s.file_count; i++)
        free(s.files[i].values);
    free(s.patterns);
    return bad ? 1 : 0;
}
