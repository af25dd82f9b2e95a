/* SPDX-License-Identifier: Apache-2.0 */
/* How tensors are cut into tiles, against the formulas of docs/format.md written out for each value. */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "codec/eb/geometry.h"
#include "codec/eb/tile_io.h"
#include "support/codec/tensors.h"
#include "support/effort.h"

/* C, S and the number of tiles from the text. */
typedef struct told {
    int64_t channels, row, positions, columns, tiles;
} told;

static told told_of(const test_shape *s) {
    int64_t count = shape_count(s), width = 0, rows = 0;
    told g = {.channels = 1, .row = 8};
    if (count && s->layout == COMET_NHWC && s->ndim >= 1 && count / s->shape[s->ndim - 1] >= 32) {
        g.channels = s->shape[s->ndim - 1];
        width = s->ndim >= 2 ? s->shape[s->ndim - 2] : 0;
    } else if (count && s->layout == COMET_NCHW && s->ndim >= 1) {
        width = s->shape[s->ndim - 1];
    }
    if (width)
        rows = count / g.channels / width;
    if (width >= 8 && rows >= 16)
        g.row = width;
    g.positions = count / g.channels;
    int64_t bands = (g.positions + 4 * g.row - 1) / (4 * g.row);
    g.columns = bands * g.row;
    g.tiles = ((g.columns + 7) / 8 * g.channels + 31) / 32;
    return g;
}

static int64_t told_index(const told *g, int64_t t, int i) {
    int64_t k = i / 256, l = i / 8 % 32, m = i % 8;
    int64_t p = 8 * ((32 * t + l) / g->channels) + m, c = (32 * t + l) % g->channels;
    int64_t position = p / g->row * 4 * g->row + k * g->row + p % g->row;
    return p < g->columns && position < g->positions ? position * g->channels + c : -1;
}

/* The tensor's index at each place of a tile's buffer, from the library's map; -1 for padding. */
static void map_indices(const tile_geometry *g, const tile_map *map, int64_t indices[TILE_VALUES]) {
    for (int i = 0; i < TILE_VALUES; i++)
        indices[i] = -1;
    for (int s = 0; s < map->count; s++)
        for (int k = 0; k < TILE_ROWS; k++) {
            const tile_segment *segment = &map->segments[s];
            int64_t first = segment->first + k * map->stride;
            int valid = comet_segment_valid(g, segment, first);
            for (int i = 0; i < valid; i++) {
                int place = segment->at + k * TILE_ROW_VALUES + i;
                assert_in_range(place, 0, TILE_VALUES - 1);
                assert_int_equal(indices[place], -1);
                indices[place] = first + i;
            }
        }
}

static void check_tile(const told *expected, const tile_geometry *g, int64_t t, unsigned char *seen) {
    tile_map map;
    int64_t indices[TILE_VALUES];
    int32_t valid = 0;
    comet_geometry_map(g, t, &map);
    assert_in_range(map.count, 1, TILE_MAX_SEGMENTS);
    map_indices(g, &map, indices);
    for (int place = 0; place < TILE_VALUES; place++) {
        int i = comet_tile_linear_of(comet_geometry_order(g), place);
        assert_int_equal(indices[place], told_index(expected, t, i));
        if (indices[place] < 0)
            continue;
        valid++;
        assert_int_equal(seen[indices[place]], 0);
        seen[indices[place]] = 1;
    }
    assert_int_equal(map.valid, valid);
}

static void check_shape(const test_shape *s) {
    told expected = told_of(s);
    tile_geometry g = comet_geometry_of(s->layout, s->ndim, s->shape), made;
    assert_int_equal(g.channels, expected.channels);
    assert_int_equal(g.row, expected.row);
    assert_int_equal(g.tiles, expected.tiles);
    assert_true(comet_geometry_make(shape_count(s), (uint64_t)g.channels, (uint64_t)g.row, &made));
    assert_memory_equal(&made, &g, sizeof g);
    unsigned char *seen = calloc((size_t)shape_count(s) + 1, 1);
    assert_non_null(seen);
    for (int64_t t = 0; t < g.tiles; t++)
        check_tile(&expected, &g, t, seen);
    for (int64_t i = 0; i < shape_count(s); i++)
        assert_int_equal(seen[i], 1);
    free(seen);
}

static void test_random_shapes(void **state) {
    (void)state;
    rng r = rng_seed(1);
    int rounds = effort(1500);
    for (int i = 0; i < rounds; i++) {
        test_shape s = shape_random(&r, (comet_layout)rng_below(&r, 3), 20000);
        check_shape(&s);
    }
}

/* Where the rules change: 31, 32 and 33 positions; rows of 7, 8, 9; 15, 16, 17 rows; bands cut short. */
static void test_shapes_at_the_rules_edges(void **state) {
    (void)state;
    for (int64_t width = 1; width <= 18; width++)
        for (int64_t rows = 14; rows <= 18; rows++)
            for (int64_t c = 1; c <= 35; c += c < 3 || c > 30 ? 1 : 9) {
                check_shape(&(test_shape){COMET_NCHW, 2, {rows, width}});
                check_shape(&(test_shape){COMET_NHWC, 3, {rows, width, c}});
                check_shape(&(test_shape){COMET_NHWC, 2, {rows + width, c}});
                check_shape(&(test_shape){COMET_FLAT, 2, {rows, width}});
            }
}

/* Pairs C, S that no encoder writes but a decoder takes still put every value into exactly one place. */
static void test_any_stored_geometry(void **state) {
    (void)state;
    rng r = rng_seed(2);
    int rounds = effort(400);
    for (int i = 0; i < rounds; i++) {
        int64_t channels = rng_between(&r, 1, 40), positions = rng_between(&r, 1, 300);
        int64_t row = rng_below(&r, 2) ? 8 : rng_between(&r, 8, 310);
        told expected = {.channels = channels, .row = row, .positions = positions};
        expected.columns = (positions + 4 * row - 1) / (4 * row) * row;
        expected.tiles = ((expected.columns + 7) / 8 * channels + 31) / 32;
        tile_geometry g;
        int ok = comet_geometry_make(channels * positions, (uint64_t)channels, (uint64_t)row, &g);
        assert_int_equal(ok, row == 8 || row <= positions);
        if (!ok)
            continue;
        assert_int_equal(g.tiles, expected.tiles);
        unsigned char *seen = calloc((size_t)(channels * positions), 1);
        assert_non_null(seen);
        for (int64_t t = 0; t < g.tiles; t++)
            check_tile(&expected, &g, t, seen);
        for (int64_t v = 0; v < channels * positions; v++)
            assert_int_equal(seen[v], 1);
        free(seen);
    }
}

static void test_geometry_that_is_refused(void **state) {
    (void)state;
    tile_geometry g;
    uint64_t huge = (uint64_t)1 << 48;
    assert_false(comet_geometry_make(100, 0, 8, &g));
    assert_false(comet_geometry_make(100, 1, 0, &g));
    assert_false(comet_geometry_make(100, 1, 7, &g));
    assert_false(comet_geometry_make(100, 3, 8, &g));
    assert_false(comet_geometry_make(100, 1, 101, &g));
    assert_false(comet_geometry_make(100, 10, 11, &g));
    assert_false(comet_geometry_make(100, UINT64_MAX, 8, &g));
    assert_false(comet_geometry_make(100, 1, UINT64_MAX, &g));
    assert_false(comet_geometry_make(100, (uint64_t)1 << 63, 8, &g));
    assert_false(comet_geometry_make((int64_t)huge, huge + 1, 8, &g));
    assert_false(comet_geometry_make((int64_t)huge, 1, huge + 1, &g));
    assert_true(comet_geometry_make(100, 100, 8, &g));
    assert_true(comet_geometry_make(0, 1, 8, &g));
    assert_int_equal(g.tiles, 0);
}

/* The largest counts: numbers of tiles stay positive and large enough to hold all values. */
static void test_largest_counts(void **state) {
    (void)state;
    int64_t huge = (int64_t)1 << 48;
    for (int shift = 0; shift <= 48; shift++)
        for (int row = 3; row <= 48 - shift; row++) {
            tile_geometry g;
            assert_true(comet_geometry_make(huge, (uint64_t)1 << shift, (uint64_t)1 << row, &g));
            assert_true(g.tiles >= huge / TILE_VALUES && g.tiles <= huge);
            tile_map map;
            comet_geometry_map(&g, g.tiles - 1, &map);
            assert_true(map.valid > 0);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_shapes),       cmocka_unit_test(test_shapes_at_the_rules_edges),
        cmocka_unit_test(test_any_stored_geometry), cmocka_unit_test(test_geometry_that_is_refused),
        cmocka_unit_test(test_largest_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
