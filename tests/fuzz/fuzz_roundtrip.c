/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes become a shape, a dtype, a mode, a bound and values of eb or zvc; the round trip keeps every promise, and one
 * instruction set, picked by the bytes, writes what the reference writes. Through a stream of the other codecs only
 * their own tests look.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/codec/isas.h"
#include "support/codec/trip_run.h"
#include "support/number.h"

enum { MOST_VALUES = 2200 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes from the front; zeros when there are no more. */
typedef struct source {
    const uint8_t *at, *end;
} source;

static uint64_t take(source *s, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)(s->at < s->end ? *s->at++ : 0) << 8 * i;
    return v;
}

static test_shape shape_of(source *s, comet_layout layout) {
    test_shape shape = {.layout = layout, .ndim = (int32_t)(take(s, 1) % 5)};
    int64_t most = MOST_VALUES;
    for (int32_t d = 0; d < shape.ndim; d++) {
        int64_t extent = (int64_t)take(s, 1);
        shape.shape[d] = extent > most ? most : extent;
        most /= shape.shape[d] ? shape.shape[d] : 1;
    }
    return shape;
}

static double bound_of(source *s) {
    uint64_t kind = take(s, 1), mantissa = take(s, 4);
    switch (kind % 8) {
    case 0:
        return 0.0;
    case 1: { /* any fp32 */
        double v = fabs((double)float_of_bits((uint32_t)mantissa));
        return isfinite(v) ? v : 1.0;
    }
    default:
        return ldexp(1.0 + (double)mantissa * 0x1p-32, (int)(kind >> 3) - 20);
    }
}

/* The rest of the bytes are the values, again and again, each time with another sign and size. */
static void values_of(source *s, comet_dtype dtype, double bound, void *patterns, int64_t count) {
    const uint8_t *start = s->at;
    uint32_t flip = 0;
    rng r = rng_seed((uint64_t)(s->end - s->at));
    for (int64_t i = 0; i < count; i++) {
        if (s->at >= s->end) {
            s->at = start;
            flip = (uint32_t)rng_next(&r);
        }
        uint8_t kind = (uint8_t)take(s, 1);
        if (kind < 64)
            bits_put(dtype, patterns, i, 0);
        else if (kind < 160)
            bits_put(dtype, patterns, i, bits_of_number(dtype, ((double)take(s, 1) - 128.0) * bound / 2.0));
        else if (kind < 240)
            bits_put(dtype, patterns, i, value_on_edge(&r, dtype, bound > 0.0 ? bound : 1.0));
        else
            bits_put(dtype, patterns, i, (uint32_t)take(s, (int)comet_dtype_size(dtype)) ^ flip);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    source s = {data, data + size};
    static uint32_t patterns[MOST_VALUES];
    isa_list isas = isa_list_get();
    rng r = rng_seed(take(&s, 2));
    trip_spec spec = {.dtype = (comet_dtype)(take(&s, 1) % 4), .values = VALUES_BITS, .scale = 1.0};
    spec.mode = (trip_mode)(take(&s, 1) % TRIP_MODES);
    uint64_t bits = take(&s, 1);
    spec.shape = shape_of(&s, (comet_layout)(bits % 3));
    spec.strides = bits & 4 ? (stride_kind)rng_below(&r, STRIDES_KINDS) : STRIDES_CONTIGUOUS;
    spec.bound_kind = bits & 8 ? COMET_BOUND_RELATIVE : COMET_BOUND_ABSOLUTE;
    spec.checksum = (bits & 16) != 0;
    spec.bound = bound_of(&s);
    comet_isa isa = isas.isa[(bits >> 5) % (uint64_t)isas.count];
    values_of(&s, spec.dtype, spec.bound, patterns, shape_count(&spec.shape));

    trip t;
    failure f;
    trip_of_values(&t, &r, &spec, patterns);
    if (spec.mode == TRIP_GRID)
        trip_make_grid(&t, &r);
    check_counts counts = {.first = 0};
    if (!trip_verify_with(&t, &r, isa, &counts, &f)) {
        fprintf(stderr, "%s\n", f.text);
        abort();
    }
    trip_free(&t);
    return 0;
}
