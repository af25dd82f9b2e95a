/* SPDX-License-Identifier: Apache-2.0 */
/* Distances between names, and which of them is near enough to have been meant. */
#include "support/assert_ok.h"

#include "base/text/nearest.h"

static void test_distances(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        size_t distance;
    } cases[] = {{"", "", 0},
                 {"", "abc", 3},
                 {"epochs", "epochs", 0},
                 {"epoch", "epochs", 1},
                 {"ecophs", "epochs", 2},
                 {"trian", "train", 1},
                 {"Train", "train", 0},
                 {"kitten", "sitting", 3},
                 {"ab", "ba", 1},
                 {"abcd", "badc", 2},
                 {"resnet9", "resnet8", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(comet_edit_distance(cases[i].a, cases[i].b, 9), cases[i].distance);
        assert_int_equal(comet_edit_distance(cases[i].b, cases[i].a, 9), cases[i].distance);
    }
    assert_true(comet_edit_distance("a name that is longer than any of those that are compared", "a", 5) > 5);
}

static const char *at(const void *context, int index) {
    return ((const char *const *)context)[index];
}

static void test_nearest(void **state) {
    (void)state;
    static const char *const names[] = {"--epochs", "--eval-every", "--lr", "--steps", NULL};
    assert_string_equal(comet_nearest("--epoch", at, names), "--epochs");
    assert_string_equal(comet_nearest("--step", at, names), "--steps");
    assert_string_equal(comet_nearest("--l", at, names), "--lr");
    assert_null(comet_nearest("--quiet", at, names));
    assert_null(comet_nearest("", at, names));
    assert_null(comet_nearest("--epochs", at, names + 4));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distances), cmocka_unit_test(test_nearest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
