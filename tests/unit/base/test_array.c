/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow: what is there stays, memory goes back as it was taken, and a failure leaves the array. */
#include "support/assert_ok.h"

#include <stdlib.h>

#include "base/memory.h"
#include "support/counting_allocator.h"

static void test_grows(void **state) {
    (void)state;
    counting_allocator a;
    counting_allocator_init(&a);
    int *items = NULL;
    size_t room = 0, calls = 0;
    for (size_t count = 0; count < 1000; count++) {
        int *larger = comet_array_reserve(&a.allocator, items, count, count + 1, &room, sizeof *items);
        assert_non_null(larger);
        assert_true(room > count);
        calls += larger != items;
        items = larger;
        items[count] = (int)count * 3;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(items[i], 3 * i);
    assert_int_equal(room, 1024);
    assert_int_equal(calls, 5); /* 64, 128, ... 1024 */
    assert_ptr_equal(comet_array_reserve(&a.allocator, items, 1000, 1024, &room, sizeof *items), items);
    comet_memory_give(&a.allocator, items, room * sizeof *items);
    assert_int_equal(a.live_blocks, 0);
    assert_int_equal(a.wrong_sizes, 0);
}

static void test_many_at_once(void **state) {
    (void)state;
    size_t room = 0;
    char *text = comet_array_reserve(NULL, NULL, 0, 5000, &room, 1);
    assert_non_null(text);
    assert_int_equal(room, 8192);
    free(text);
}

static void test_failures(void **state) {
    (void)state;
    size_t room = 0;
    char *items = comet_array_reserve(NULL, NULL, 0, 1, &room, 16);
    assert_non_null(items);
    items[5] = 7;
    assert_null(comet_array_reserve(NULL, items, 64, SIZE_MAX / 16, &room, 16));
    assert_null(comet_array_reserve(NULL, items, 64, SIZE_MAX, &room, 16));
    assert_int_equal(room, 64);
    assert_int_equal(items[5], 7);
    free(items);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
