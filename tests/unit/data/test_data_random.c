/* SPDX-License-Identifier: Apache-2.0 */
/* Orders are permutations and look random; augmentation stays inside images, keeps to its rule, and has not changed. */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "data/image/augment.h"
#include "data/loader/order.h"
#include "support/effort.h"
#include "support/rng.h"

static void check_permutation(uint64_t seed, uint32_t epoch, int64_t count) {
    unsigned char *seen = calloc((size_t)count, 1);
    assert_non_null(seen);
    for (int64_t i = 0; i < count; i++) {
        int64_t sample = comet_order_at(seed, epoch, count, i);
        assert_in_range(sample, 0, count - 1);
        assert_int_equal(seen[sample]++, 0);
    }
    free(seen);
}

static void test_orders_are_permutations(void **state) {
    (void)state;
    for (int64_t count = 1; count < 70; count++)
        check_permutation(5, 3, count);
    check_permutation(1, 0, 1000);
    check_permutation(UINT64_MAX, UINT32_MAX, 4096);
    check_permutation(7, 1, 4097);
}

/* Where a sample goes in many epochs: every place about equally often; and neighbours do not stay neighbours. */
static void test_orders_look_random(void **state) {
    (void)state;
    enum { COUNT = 10, EPOCHS = 5000 };
    int places[COUNT][COUNT] = {{0}}, neighbours = 0;
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        int64_t before = -5;
        for (int i = 0; i < COUNT; i++) {
            int64_t sample = comet_order_at(42, epoch, COUNT, i);
            places[i][sample]++;
            neighbours += sample == before + 1;
            before = sample;
        }
    }
    double chi = 0;
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < COUNT; j++)
            chi += (places[i][j] - EPOCHS / COUNT) * (double)(places[i][j] - EPOCHS / COUNT) / (EPOCHS / COUNT);
    assert_true(chi < 130);                  /* 81 degrees of freedom: 99.9 % are below 127 */
    assert_in_range(neighbours, 4100, 4900); /* 0.9 of 5000 expected: 9 pairs of neighbours in 90 */
}

/* Old checkpoints must go on as they began: these never change. */
static void test_orders_are_kept(void **state) {
    (void)state;
    static const int64_t expected[12] = {9497, 20863, 40721, 15309, 40227, 53241,
                                         1907, 35091, 17210, 9147,  52788, 30124};
    for (int i = 0; i < 12; i++)
        assert_int_equal(comet_order_at(1, 2, 60000, i), expected[i]);
}

static void test_words(void **state) {
    (void)state;
    comet_random a = comet_random_of(9, COMET_RANDOM_AUGMENT, 4, 77), b = a,
                 c = comet_random_of(9, COMET_RANDOM_AUGMENT, 4, 78);
    int same = 0;
    for (int i = 0; i < 100; i++) {
        uint32_t word = comet_random_word(&a);
        assert_int_equal(word, comet_random_word(&b));
        same += word == comet_random_word(&c);
    }
    assert_int_equal(same, 0);
    for (int i = 0; i < 1000; i++) {
        assert_in_range(comet_random_below(&a, 7), 0, 6);
        double unit = comet_random_unit(&a);
        assert_true(unit >= 0 && unit < 1);
    }
}

/* ---- augmentation ---- */

static void assert_inside(comet_box box, int height, int width) {
    assert_in_range(box.top, 0, height - 1);
    assert_in_range(box.left, 0, width - 1);
    assert_in_range(box.height, 1, height - box.top);
    assert_in_range(box.width, 1, width - box.left);
}

static void test_boxes_are_inside(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int i = 0; i < effort(20000); i++) {
        int in_height = (int)rng_between(&r, 1, 300), in_width = (int)rng_between(&r, 1, 300);
        int height = (int)rng_between(&r, 1, 100), width = (int)rng_between(&r, 1, 100);
        comet_augment_rule rule = {(comet_augment)rng_between(&r, 1, 4), rng_below(&r, 2) ? 1.0 : 0.875, 0.08};
        comet_view v = comet_augment_view(&rule, 3, 1, i, in_height, in_width, height, width);
        assert_inside(v.box, in_height, in_width);
        int most_down = height / 8 ? height / 8 : 1, most_right = width / 8 ? width / 8 : 1;
        int moves = rule.kind == COMET_AUGMENT_CROP;
        assert_in_range(v.down + most_down, moves ? 0 : most_down, moves ? 2 * most_down : most_down);
        assert_in_range(v.right + most_right, moves ? 0 : most_right, moves ? 2 * most_right : most_right);
        assert_false(rule.kind == COMET_AUGMENT_NONE && v.flipped);
    }
}

static void test_centre(void **state) {
    (void)state;
    comet_augment_rule rule = {COMET_AUGMENT_NONE, 0.875, 0};
    comet_view v = comet_augment_view(&rule, 0, 0, 0, 256, 300, 224, 224);
    assert_int_equal(v.box.height, 224);
    assert_int_equal(v.box.width, 224);
    assert_int_equal(v.box.top, 16);
    assert_int_equal(v.box.left, 38);
    rule.centre = 1.0;
    v = comet_augment_view(&rule, 0, 0, 0, 28, 28, 224, 224);
    assert_int_equal(v.box.height, 28);
    assert_int_equal(v.box.width, 28);
}

/* Areas spread over 8 to 100 %, half of the images are turned, all shifts occur. */
static void test_spread(void **state) {
    (void)state;
    enum { COUNT = 4000 };
    comet_augment_rule rule = {COMET_AUGMENT_RESIZED_CROP, 0.875, 0.08};
    int turned = 0, small = 0, shifts[9] = {0};
    double least = 1, most = 0;
    for (int i = 0; i < COUNT; i++) {
        comet_view v = comet_augment_view(&rule, 11, 0, i, 400, 400, 224, 224);
        double area = (double)v.box.height * v.box.width / 160000, aspect = (double)v.box.width / v.box.height;
        least = area < least ? area : least;
        most = area > most ? area : most;
        small += area < 0.54;
        turned += v.flipped;
        assert_true(aspect > 0.74 && aspect < 1.35);
        comet_augment_rule crop = {COMET_AUGMENT_CROP, 1.0, 0};
        v = comet_augment_view(&crop, 11, 0, i, 32, 32, 32, 32);
        shifts[v.down + 4]++;
    }
    assert_true(least > 0.07 && least < 0.1 && most > 0.9);
    assert_in_range(turned, COUNT * 45 / 100, COUNT * 55 / 100);
    assert_in_range(small, COUNT * 45 / 100, COUNT * 60 / 100); /* those that do not fit are drawn again */
    for (int i = 0; i < 9; i++)
        assert_in_range(shifts[i], COUNT / 9 * 8 / 10, COUNT / 9 * 12 / 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders_are_permutations),
        cmocka_unit_test(test_orders_look_random),
        cmocka_unit_test(test_orders_are_kept),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_boxes_are_inside),
        cmocka_unit_test(test_centre),
        cmocka_unit_test(test_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
