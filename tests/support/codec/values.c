/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec/values.h"

#include <math.h>

#include "support/number.h"

static const char *const names[VALUES_KINDS] = {
    [VALUES_GAUSS] = "gauss",       [VALUES_RELU] = "relu",           [VALUES_SMOOTH] = "smooth",
    [VALUES_CONSTANT] = "constant", [VALUES_ZEROS] = "zeros",         [VALUES_FEW] = "few",
    [VALUES_HUGE] = "huge",         [VALUES_SUBNORMAL] = "subnormal", [VALUES_SPECIAL] = "special",
    [VALUES_EDGES] = "edges",       [VALUES_BITS] = "bits",           [VALUES_BINADES] = "binades",
    [VALUES_OUTLIERS] = "outliers", [VALUES_MIXED] = "mixed",
};

const char *value_kind_name(value_kind kind) {
    return (unsigned)kind < VALUES_KINDS ? names[kind] : "?";
}

/* v cut to its n leading bits, as the format cuts its steps. */
static double cut(double v, int n) {
    int exponent;
    double m = frexp(v, &exponent);
    return ldexp(floor(ldexp(m, n)), exponent - n);
}

static double some_step(rng *r, double bound) {
    static const int bits[] = {1, 2, 3, 4, 6, 16, 24};
    double target = rng_below(r, 3) ? 2.0 * bound : bound;
    if (rng_below(r, 4))
        target *= rng_below(r, 3) ? 1.0 - 0x1p-12 : 1.0 - 0x1p-6;
    return cut(target, bits[rng_below(r, sizeof bits / sizeof *bits)]);
}

uint32_t value_on_edge(rng *r, comet_dtype dtype, double bound) {
    static const int64_t reach[] = {2, 8, 16, 32, 64, 128, 1000, 33000};
    int64_t most = reach[rng_below(r, sizeof reach / sizeof *reach)];
    double k = (double)rng_between(r, -most, most), half = (double)rng_below(r, 3) / 2;
    uint32_t bits = bits_of_number(dtype, (k + half) * some_step(r, bound));
    if (number_class_of(dtype, bits) == NUMBER_INFINITE)
        bits = bits_neighbour(dtype, bits, -1);
    return bits_neighbour(dtype, bits, (int)rng_between(r, -2, 2));
}

static uint32_t some_special(rng *r, comet_dtype dtype) {
    uint32_t infinity = bits_of_number(dtype, (double)INFINITY), sign = bits_of_number(dtype, -0.0);
    uint32_t quiet = bits_of_number(dtype, (double)NAN) & ~sign & ~infinity;
    uint32_t either = rng_below(r, 2) ? sign : 0;
    switch (rng_below(r, 7)) {
    case 0:
        return infinity | either;
    case 1:
        return infinity | quiet | either;
    case 2:
        return infinity | 1u | either; /* signalling */
    case 3:
        return infinity | (1u + (uint32_t)rng_below(r, 2 * quiet - 1)) | either;
    case 4:
        return sign; /* -0 */
    case 5:
        return 0;
    default:
        return bits_of_number(dtype, rng_gauss(r));
    }
}

static uint32_t some_binade(rng *r, comet_dtype dtype, double scale) {
    int exponent;
    frexp(scale, &exponent);
    double v = ldexp(1.0, exponent + (int)rng_between(r, -9, 9));
    /* for fp32: halfway between two values of a 16-bit type */
    v *= 1.0 + (double)rng_below(r, 1024) * (rng_below(r, 2) ? 0x1p-8 : 0x1p-11);
    uint32_t bits = bits_of_number(dtype, rng_below(r, 2) ? v : -v);
    if (number_class_of(dtype, bits) == NUMBER_INFINITE)
        return 0;
    return bits_neighbour(dtype, bits, (int)rng_between(r, -2, 2));
}

static double huge(rng *r, comet_dtype dtype) {
    double sign = rng_below(r, 2) ? 1.0 : -1.0, largest = number_largest(dtype);
    return sign * (rng_below(r, 8) ? largest * rng_unit(r) : largest);
}

static uint32_t some_value(rng *r, value_kind kind, comet_dtype dtype, double scale, double bound) {
    double v = 0.0;
    switch (kind) {
    case VALUES_RELU:
        v = rng_gauss(r) * scale;
        v = v > 0.7 * scale ? v : 0.0;
        break;
    case VALUES_FEW:
        v = rng_below(r, 1000) ? 0.0 : rng_gauss(r) * scale;
        break;
    case VALUES_SUBNORMAL:
        v = (double)rng_between(r, -200, 200) * number_least(dtype);
        break;
    case VALUES_HUGE:
        v = huge(r, dtype);
        break;
    case VALUES_SPECIAL:
        return rng_below(r, 4) ? bits_of_number(dtype, rng_gauss(r) * scale) : some_special(r, dtype);
    case VALUES_EDGES:
        return value_on_edge(r, dtype, bound > 0.0 ? bound : scale);
    case VALUES_BINADES:
        return some_binade(r, dtype, scale);
    case VALUES_OUTLIERS:
        v = rng_gauss(r) * (rng_below(r, 400) ? scale : scale * 3000.0);
        break;
    case VALUES_BITS:
        return (uint32_t)rng_next(r);
    default:
        v = rng_gauss(r) * scale;
        break;
    }
    return bits_of_number(dtype, v);
}

/* u8 has no use for most kinds: an offset keeps it in its range. */
static double scale_of(comet_dtype dtype, double scale) {
    return dtype == COMET_U8 && scale < 20.0 ? 20.0 : scale;
}

static void fill_smooth(rng *r, comet_dtype dtype, double scale, void *patterns, int64_t from, int64_t to) {
    double v = scale * rng_gauss(r), speed = 0.0;
    for (int64_t i = from; i < to; i++) {
        speed = 0.9 * speed + 0.05 * scale * rng_gauss(r);
        v = 0.98 * v + speed;
        bits_put(dtype, patterns, i, bits_of_number(dtype, v));
    }
}

static void fill_run(rng *r, value_kind kind, comet_dtype dtype, double scale, double bound, void *patterns,
                     int64_t from, int64_t to) {
    uint32_t constant = some_value(r, VALUES_GAUSS, dtype, scale, bound);
    if (kind == VALUES_SMOOTH) {
        fill_smooth(r, dtype, scale, patterns, from, to);
        return;
    }
    for (int64_t i = from; i < to; i++)
        bits_put(dtype, patterns, i,
                 kind == VALUES_CONSTANT ? constant
                 : kind == VALUES_ZEROS  ? 0
                                         : some_value(r, kind, dtype, scale, bound));
}

void values_fill(rng *r, value_kind kind, comet_dtype dtype, double scale, double bound, void *patterns,
                 int64_t count) {
    scale = scale_of(dtype, scale);
    if (kind != VALUES_MIXED) {
        fill_run(r, kind, dtype, scale, bound, patterns, 0, count);
        return;
    }
    for (int64_t at = 0; at < count;) {
        int64_t end = at + rng_between(r, 1, 3000);
        end = end < count ? end : count;
        fill_run(r, (value_kind)rng_below(r, VALUES_MIXED), dtype, scale, bound, patterns, at, end);
        at = end;
    }
}
