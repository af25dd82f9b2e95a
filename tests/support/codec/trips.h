/* SPDX-License-Identifier: Apache-2.0 */
/* A round trip to test: a tensor with values and the parameters to compress it with. */
#ifndef TESTS_SUPPORT_TRIPS_H
#define TESTS_SUPPORT_TRIPS_H

#include "comet/codec.h"
#include "support/codec/checker.h"
#include "support/codec/tensors.h"
#include "support/codec/values.h"

typedef enum trip_mode { TRIP_NEAREST, TRIP_STOCHASTIC, TRIP_KEEP_MASK, TRIP_GRID, TRIP_ZVC, TRIP_MODES } trip_mode;

typedef struct trip_spec {
    comet_dtype dtype;
    test_shape shape;
    stride_kind strides;
    value_kind values;
    trip_mode mode;
    double scale, bound;
    comet_bound_kind bound_kind;
    int checksum;
} trip_spec;

typedef struct trip {
    trip_spec spec;
    int64_t count;
    void *patterns; /* the input in logical order */
    test_tensor input;
    comet_codec_params params;
    comet_codec_grid grid;
    float *grid_memory; /* scale, shift, threshold, slope */
} trip;

const char *trip_mode_name(trip_mode mode);

/* Values and (for a grid) thresholds near them are made from `r`. */
void trip_new(trip *t, rng *r, const trip_spec *spec);

/* The same for values that are already there, in logical order; no grid is made. */
void trip_of_values(trip *t, rng *r, const trip_spec *spec, const void *patterns);
void trip_free(trip *t);

/* A grid over the trip's tensor; the mode becomes TRIP_GRID. */
void trip_make_grid(trip *t, rng *r);

/* NULL without a grid. */
const comet_codec_grid *trip_grid(const trip *t);
comet_dtype trip_output_dtype(const trip *t);

/* What holds for an output of the stream whose bound is `bound`. */
check_rules trip_rules(const trip *t, double bound);

/* One line that says which round trip it is. */
int trip_describe(const trip *t, failure *f);

#endif
