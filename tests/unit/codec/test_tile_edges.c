/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codes at and beside every edge of the bins, of every instruction set: the integers around a product are those of the
 * exact product, and what is decoded is within the bound and on its side.
 */
#include "test_tile_case.h"

#include <math.h>

#include "codec/stream_header.h"
#include "support/number.h"
#include "support/rng.h"

/* Values that go through a kernel a tile at a time; `h` and `slope` are of the grid's only channel. */
typedef struct edge_case {
    _Alignas(64) float values[TILE_VALUES], decoded[TILE_VALUES];
    _Alignas(64) tile_codes codes;
    quantiser_class c;
    double bound;
    float h, slope;
    grid_channel g;
    tile_channels channels;
    tile_grid grid;
    int count;
    long tiles;
} edge_case;

static int sign_of(double v) {
    return (v > 0.0) - (v < 0.0);
}

/* The text's code, in doubles, which hold the product of two floats. */
static double code_of(const edge_case *e, float x) {
    double inverse = (double)e->c.inverse;
    switch (e->c.mode) {
    case QUANTISE_NEAREST:
        return nearbyint((double)x * inverse);
    case QUANTISE_KEEP_RISE:
        return sign_of((double)x) * ceil(fabs((double)x) * inverse);
    default: {
        float difference = x - e->g.edge;
        return e->g.code + floor((double)difference * inverse);
    }
    }
}

static int is_upper(const edge_case *e, double y) {
    return e->slope < 0.0f ? y >= (double)e->h : y > (double)e->h;
}

static void check_value(const edge_case *e, int i, comet_isa isa) {
    float x = e->values[i], back = e->decoded[i];
    int code = e->c.wide ? e->codes.wide[i] : e->codes.narrow[i];
    if ((double)code != code_of(e, x))
        fail_msg("%s mode %d wide %d step %a: %a has the code %d, not %g", isa_name(isa), (int)e->c.mode, e->c.wide,
                 (double)e->c.step, (double)x, code, code_of(e, x));
    if (!(fabs((double)back - (double)x) <= e->bound))
        fail_msg("%s mode %d wide %d: %a becomes %a, bound %a", isa_name(isa), (int)e->c.mode, e->c.wide, (double)x,
                 (double)back, e->bound);
    if (e->c.mode == QUANTISE_GRID)
        assert_true(isnan(e->h) || is_upper(e, (double)x) == is_upper(e, (double)back));
    else if (e->c.mode != QUANTISE_NEAREST)
        assert_int_equal(sign_of((double)x), sign_of((double)back));
}

static void run_tile(edge_case *e) {
    for (int i = e->count; i < TILE_VALUES; i++)
        e->values[i] = 0.0f;
    e->channels.consecutive = 0;
    e->channels.count = 1;
    e->channels.pieces[0] = (channel_piece){.at = 0, .count = TILE_VALUES, .channel = 0};
    e->grid = (tile_grid){.channels = &e->channels, .edge = &e->g.edge, .code = &e->g.code, .base = &e->g.base};
    tile_quantise how = {.c = &e->c, .grid = &e->grid};
    for (int k = 0; k < isas.count; k++) {
        const tile_kernels *kernels = comet_tile_kernels(isas.isa[k]);
        kernels->quantise(e->values, TILE_LINEAR, &how, &e->codes);
        kernels->dequantise(&e->codes, TILE_LINEAR, &how, e->decoded);
        for (int i = 0; i < TILE_VALUES; i++)
            check_value(e, i, isas.isa[k]);
    }
    e->count = 0;
    e->tiles++;
}

static void add(edge_case *e, float x) {
    if (!(fabsf(x) <= float_of_bits(e->c.reach)))
        return;
    e->values[e->count++] = x;
    if (e->count == TILE_VALUES)
        run_tile(e);
}

/* The float and three neighbours on either side. */
static void add_around(edge_case *e, double at) {
    float low = (float)at, high = low;
    add(e, low);
    for (int i = 0; i < 3; i++) {
        add(e, low = nextafterf(low, -INFINITY));
        add(e, high = nextafterf(high, INFINITY));
    }
}

/* Zeros, the least and the last subnormals, and numbers whose product with the inverse is below every float. */
static void add_tiny(edge_case *e) {
    static const float tiny[] = {0.0f, 0x1p-149f, 0x1.8p-148f, 0x1p-140f, 0x1p-127f, 0x1p-126f, 0x1.8p-126f, 0x1p-100f};
    for (unsigned i = 0; i < sizeof tiny / sizeof *tiny; i++) {
        add(e, tiny[i]);
        add(e, -tiny[i]);
    }
}

static int is_near(double k, double most) {
    return most < 300.0 || fmod(k, 61.0) == 0.0 || fabs(k) < 40.0 || fabs(k) > most - 20.0;
}

/* All codes of narrow classes, some of wide ones: k steps, and half a step between, from `origin`. */
static void run_class(edge_case *e, double origin) {
    double step = (double)e->c.step, most = (double)float_of_bits(e->c.reach) / step + 2.0;
    double shift = floor(fabs(origin) / step) + 1.0;
    for (double k = -most - shift; k <= most + shift; k += 1.0)
        if (is_near(k, most)) {
            add_around(e, origin + floor(k) * step);
            add_around(e, origin + (floor(k) + 0.5) * step);
        }
    add_tiny(e);
    if (e->count)
        run_tile(e);
}

static double random_bound(rng *r) {
    static const int exponents[][2] = {{-4, 4}, {-4, 4}, {-20, 20}, {-100, -90}, {90, 99}};
    const int *range = exponents[rng_below(r, 5)];
    return ldexp(1.0 + rng_unit(r), (int)rng_between(r, range[0], range[1]));
}

/* Both classes of fp32; the threshold lies so many steps from 0. */
static void run_classes(edge_case *e, rng *r, unsigned flags, double steps) {
    quantiser q;
    float bound = comet_quantiser_bound(random_bound(r), COMET_F32);
    comet_quantiser_init(&q, bound, COMET_F32, flags);
    for (int i = 0; i < QUANTISER_CLASSES; i++) {
        e->c = q.classes[i];
        e->bound = (double)bound;
        if (e->c.reach == 0)
            continue;
        e->h = (float)(steps * (double)e->c.step);
        e->g = flags == STREAM_GRID ? comet_quantiser_grid(&e->c, e->h, e->slope) : (grid_channel){0};
        run_class(e, (double)e->g.edge);
    }
}

static edge_case e;

static void test_f32(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int round = 0; round < effort(60); round++) {
        run_classes(&e, &r, 0, 0.0);
        run_classes(&e, &r, STREAM_KEEP_MASK, 0.0);
    }
    assert_true(e.tiles > 100);
}

static void test_thresholds(void **state) {
    (void)state;
    rng r = rng_seed(2);
    static const double hard[] = {0.0, 1.0, 0.5, 1.5, 126.5, 127.5, 127.999, 128.0, 7998.0, 8191.5, 8192.0, 1e9};
    for (int round = 0; round < effort(60); round++) {
        double steps = rng_below(&r, 2) ? hard[rng_below(&r, sizeof hard / sizeof *hard)] : 130.0 * rng_unit(&r);
        e.slope = rng_below(&r, 2) ? 1.0f : -1.0f;
        run_classes(&e, &r, STREAM_GRID, rng_below(&r, 2) ? steps : -steps);
    }
}

/* Thresholds that are no number of steps: zeros of both signs, subnormal, infinite, none. */
static void test_special_thresholds(void **state) {
    (void)state;
    rng r = rng_seed(3);
    static const float special[] = {0.0f,     -0.0f,     0x1p-149f, -0x1p-149f,      0x1p-140f,
                                    INFINITY, -INFINITY, NAN,       0x1.fffffep127f, -0x1.fffffep127f};
    for (unsigned i = 0; i < 4 * sizeof special / sizeof *special; i++)
        for (int k = 0; k <= 1; k++) {
            quantiser q;
            float bound = comet_quantiser_bound(random_bound(&r), COMET_F32);
            comet_quantiser_init(&q, bound, COMET_F32, STREAM_GRID);
            e.c = q.classes[k ? QUANTISER_WIDE : 0];
            e.bound = (double)bound;
            e.h = special[i / 4];
            e.slope = i % 2 ? -1.0f : 1.0f;
            e.g = comet_quantiser_grid(&e.c, e.h, e.slope);
            run_class(&e, (double)e.g.edge);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_thresholds),
                                       cmocka_unit_test(test_special_thresholds)};
    return cmocka_run_group_tests(tests, group_setup, NULL);
}
