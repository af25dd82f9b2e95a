/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec/trip_properties.h"

#include "support/assert_ok.h"

#include <stdlib.h>

typedef struct bound_case {
    double bound;
    comet_bound_kind kind;
    int of_scale; /* the bound is in units of the data's scale */
} bound_case;

static const bound_case bounds[] = {
    {0.0, COMET_BOUND_ABSOLUTE, 0},    {1e-30, COMET_BOUND_ABSOLUTE, 0}, {1e-45, COMET_BOUND_ABSOLUTE, 0},
    {1e-5, COMET_BOUND_ABSOLUTE, 1},   {1e-3, COMET_BOUND_ABSOLUTE, 1},  {1e-2, COMET_BOUND_ABSOLUTE, 1},
    {0.1, COMET_BOUND_ABSOLUTE, 1},    {0.3, COMET_BOUND_ABSOLUTE, 1},   {1.0, COMET_BOUND_ABSOLUTE, 1},
    {1000.0, COMET_BOUND_ABSOLUTE, 1}, {1e30, COMET_BOUND_ABSOLUTE, 0},  {1e300, COMET_BOUND_ABSOLUTE, 0},
    {0.0, COMET_BOUND_RELATIVE, 0},    {1e-3, COMET_BOUND_RELATIVE, 0},  {0.1, COMET_BOUND_RELATIVE, 0},
    {3.0, COMET_BOUND_RELATIVE, 0},    {1e300, COMET_BOUND_RELATIVE, 0},
};

enum { BOUNDS = sizeof bounds / sizeof *bounds };
_Static_assert(PROPERTIES_COMBINATIONS == 3 * TRIP_MODES * BOUNDS, "all of them");

static const double scales[] = {1.0, 0.01, 300.0, 1e-6};

static trip_spec spec_of(rng *r, comet_dtype dtype, comet_layout layout, const bound_case *b, trip_mode mode,
                         int64_t most) {
    double scale = rng_below(r, 2) ? 1.0 : scales[rng_below(r, 4)];
    return (trip_spec){.dtype = dtype,
                       .shape = shape_random(r, layout, most),
                       .strides = rng_below(r, 2) ? STRIDES_CONTIGUOUS : (stride_kind)rng_below(r, STRIDES_KINDS),
                       .values = rng_below(r, 3) ? (value_kind)rng_below(r, VALUES_KINDS) : VALUES_MIXED,
                       .mode = mode,
                       .scale = scale,
                       .bound = b->of_scale ? b->bound * scale : b->bound,
                       .bound_kind = b->kind,
                       .checksum = rng_below(r, 4) == 0};
}

void properties_verify(const backend_list *backends, rng *r, const trip_spec *spec) {
    failure f;
    trip t;
    trip_new(&t, r, spec);
    int good = trip_verify_on(&t, r, backends, &f);
    trip_free(&t);
    assert_check(good, f);
}

static comet_dtype some_dtype(const backend_list *backends, rng *r) {
    return (comet_dtype)rng_below(r, (uint64_t)backends->dtypes);
}

/* The n-th of `count` things in an order that spreads the first few of them over all. */
static int spread(int n, int count) {
    enum { STEP = 101 }; /* prime, and no divisor of any count here: each comes once in `count` */
    return (int)((int64_t)n * STEP % count);
}

void properties_combinations(const backend_list *backends, comet_dtype dtype, int trips, int64_t most) {
    rng r = rng_seed(100 + (uint64_t)dtype);
    for (int n = 0; n < trips; n++) {
        int i = spread(n, PROPERTIES_COMBINATIONS);
        trip_spec spec =
            spec_of(&r, dtype, (comet_layout)(i % 3), &bounds[i / 3 % BOUNDS], (trip_mode)(i / 3 / BOUNDS), most);
        properties_verify(backends, &r, &spec);
    }
}

void properties_large(const backend_list *backends, int rounds) {
    rng r = rng_seed(7);
    for (int i = 0; i < rounds; i++) {
        const bound_case *b = &bounds[rng_below(&r, BOUNDS)];
        trip_mode mode = (trip_mode)rng_below(&r, TRIP_MODES);
        comet_layout layout = (comet_layout)rng_below(&r, 3);
        trip_spec spec = spec_of(&r, some_dtype(backends, &r), layout, b, mode, 300000);
        spec.shape =
            (test_shape){layout, 4, {2, rng_between(&r, 20, 40), rng_between(&r, 30, 60), rng_between(&r, 50, 80)}};
        properties_verify(backends, &r, &spec);
    }
}

void properties_every_small_shape(const backend_list *backends, int every) {
    rng r = rng_seed(8);
    static const int64_t extents[] = {0, 1, 2, 7, 8, 9, 16, 31, 33, 65};
    enum { N = sizeof extents / sizeof *extents };
    for (int i = 0; i < N * N * N; i++) {
        comet_layout layout = (comet_layout)(i % 3);
        if (i % every)
            continue;
        trip_spec spec =
            spec_of(&r, some_dtype(backends, &r), layout, &bounds[6], (trip_mode)rng_below(&r, TRIP_MODES), 1);
        spec.shape = (test_shape){layout, 3, {extents[i % N], extents[i / N % N], extents[i / N / N]}};
        properties_verify(backends, &r, &spec);
    }
}

void properties_every_kind(const backend_list *backends, int trips) {
    rng r = rng_seed(9);
    static const int picked[] = {3, 4, 6, 8};
    for (int n = 0; n < trips; n++) {
        int i = spread(n, PROPERTIES_KINDS);
        trip_spec spec = spec_of(&r, (comet_dtype)rng_below(&r, 3), (comet_layout)rng_below(&r, 3),
                                 &bounds[picked[rng_below(&r, 4)]], (trip_mode)(i % TRIP_MODES), 9000);
        spec.values = (value_kind)(i / TRIP_MODES);
        properties_verify(backends, &r, &spec);
    }
}

/* The sum in fp64 of 1, 1 and 2^53 depends on which two come first. */
void properties_order_of_sums(const backend_list *backends, size_t tiles_apart) {
    rng r = rng_seed(11);
    size_t apart = 1024 * tiles_apart, count = 2 * apart + 1024;
    failure f;
    trip t;
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    values[0] = values[apart] = 1.0f;
    values[2 * apart] = 0x1p53f;
    trip_spec spec = {.dtype = COMET_F32, .shape = {COMET_FLAT, 1, {(int64_t)count}}, .scale = 1.0, .bound = 0.1};
    trip_of_values(&t, &r, &spec, values);
    int good = trip_verify_on(&t, &r, backends, &f);
    trip_free(&t);
    free(values);
    assert_check(good, f);
}
