/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec/trips.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/number.h"

const char *trip_mode_name(trip_mode mode) {
    static const char *const names[TRIP_MODES] = {"nearest", "stochastic", "keep-mask", "grid", "zvc"};
    return (unsigned)mode < TRIP_MODES ? names[mode] : "?";
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        abort();
    return memory;
}

static void set_params(trip *t, uint64_t seed) {
    t->params = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    t->params.codec = t->spec.mode == TRIP_ZVC ? COMET_CODEC_ZVC : COMET_CODEC_EB;
    t->params.bound = t->spec.bound;
    t->params.bound_kind = t->spec.bound_kind;
    t->params.rounding = t->spec.mode == TRIP_STOCHASTIC ? COMET_ROUND_STOCHASTIC : COMET_ROUND_NEAREST;
    t->params.keep_mask = t->spec.mode == TRIP_KEEP_MASK;
    t->params.checksum = t->spec.checksum;
    t->params.seed = seed;
}

/* The tensor and the values that it then holds: with a stride of 0 not all of those given. */
static void place_values(trip *t, rng *r) {
    test_tensor_new(&t->input, r, t->spec.dtype, &t->spec.shape, t->spec.strides);
    test_tensor_write(&t->input, t->patterns);
    test_tensor_read(&t->input, t->patterns);
}

static void begin(trip *t, const trip_spec *spec) {
    *t = (trip){.spec = *spec, .count = shape_count(&spec->shape)};
    t->patterns = allocate((size_t)t->count * comet_dtype_size(spec->dtype));
}

void trip_of_values(trip *t, rng *r, const trip_spec *spec, const void *patterns) {
    begin(t, spec);
    if (t->count)
        memcpy(t->patterns, patterns, (size_t)t->count * comet_dtype_size(spec->dtype));
    place_values(t, r);
    set_params(t, rng_next(r));
}

void trip_new(trip *t, rng *r, const trip_spec *spec) {
    begin(t, spec);
    values_fill(r, spec->values, spec->dtype, spec->scale, spec->bound, t->patterns, t->count);
    place_values(t, r);
    set_params(t, rng_next(r));
    if (spec->mode == TRIP_GRID)
        trip_make_grid(t, r);
}

void trip_free(trip *t) {
    test_tensor_free(&t->input);
    free(t->patterns);
    free(t->grid_memory);
}

/* ---- grids ---- */

static float some_scale(rng *r) {
    switch (rng_below(r, 8)) {
    case 0:
        return 0.0f;
    case 1:
        return -1.5f;
    case 2:
        return 1.0f;
    default:
        return (float)(rng_gauss(r) * 2.0);
    }
}

/* A value the channel stores, or NaN if there is none. */
static float some_stored(const trip *t, rng *r, int64_t channel) {
    check_rules rules = trip_rules(t, 0.0);
    for (int tries = 0; t->count && tries < 64; tries++) {
        int64_t i = (int64_t)rng_below(r, (uint64_t)t->count);
        if (i / rules.channel_stride % t->grid.channels == channel)
            return float_of_bits(check_stored_bits(&rules, t->patterns, i));
    }
    return NAN;
}

static float some_threshold(const trip *t, rng *r, int64_t channel) {
    float y = some_stored(t, r, channel);
    switch (rng_below(r, 12)) {
    case 0:
        return NAN;
    case 1:
        return rng_below(r, 2) ? INFINITY : -INFINITY;
    case 2:
        return 0.0f;
    case 3:
        return (float)(rng_gauss(r) * t->spec.bound * 16384.0 * 2.0); /* around where a threshold counts as far */
    case 4:
        return rng_below(r, 2) ? 3e38f : -1e-42f;
    case 5:
        return nextafterf(y, INFINITY);
    case 6:
        return nextafterf(y, -INFINITY);
    case 7:
        return (float)(rng_gauss(r) * t->spec.scale);
    default:
        return y; /* y == threshold happens */
    }
}

void trip_make_grid(trip *t, rng *r) {
    int64_t channels = shape_channels(&t->spec.shape);
    size_t n = (size_t)channels;
    t->grid_memory = allocate(4 * n * sizeof(float));
    float *scale = t->grid_memory, *shift = scale + n, *threshold = shift + n, *slope = threshold + n;
    t->grid = (comet_codec_grid){.channels = channels, .threshold = threshold};
    t->params.grid = &t->grid;
    t->spec.mode = TRIP_GRID;
    for (size_t c = 0; c < n; c++) {
        scale[c] = some_scale(r);
        shift[c] = (float)(rng_gauss(r) * t->spec.scale);
        slope[c] = rng_below(r, 5) ? (float)rng_gauss(r) : rng_below(r, 2) ? 0.0f : -0.0f;
    }
    t->grid.scale = rng_below(r, 3) ? scale : NULL;
    t->grid.shift = rng_below(r, 3) ? shift : NULL;
    t->grid.slope = rng_below(r, 3) ? slope : NULL;
    for (int64_t c = 0; c < channels; c++)
        threshold[c] = some_threshold(t, r, c);
}

const comet_codec_grid *trip_grid(const trip *t) {
    return t->spec.mode == TRIP_GRID ? &t->grid : NULL;
}

comet_dtype trip_output_dtype(const trip *t) {
    return t->spec.mode == TRIP_GRID ? COMET_F32 : t->spec.dtype;
}

check_rules trip_rules(const trip *t, double bound) {
    return (check_rules){.dtype = t->spec.dtype,
                         .bound = bound,
                         .keep_mask = t->spec.mode == TRIP_KEEP_MASK,
                         .grid = trip_grid(t),
                         .channel_stride = shape_channel_stride(&t->spec.shape)};
}

int trip_describe(const trip *t, failure *f) {
    const test_shape *s = &t->spec.shape;
    return failure_prefix(
        f, "%s %s %s values %s strides %d bound %g (%s) scale %g shape %d:[%lld %lld %lld %lld ...] seed %llu",
        comet_dtype_name(t->spec.dtype), layout_name(s->layout), trip_mode_name(t->spec.mode),
        value_kind_name(t->spec.values), (int)t->spec.strides, t->spec.bound,
        t->spec.bound_kind ? "relative" : "absolute", t->spec.scale, (int)s->ndim, (long long)s->shape[0],
        (long long)s->shape[1], (long long)s->shape[2], (long long)s->shape[3], (unsigned long long)t->params.seed);
}
