/* SPDX-License-Identifier: Apache-2.0 */
/* Indices of max-pools: the bytes of docs/codecs.md, back again, what is refused, and bytes that nobody packed. */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "support/codec/pooling.h"
#include "support/effort.h"
#include "support/guarded.h"

/* ---- packing and unpacking ---- */

static void check(const pooling *p) {
    size_t bytes, raw = (size_t)p->count * sizeof *p->indices;
    guarded packed, indices;
    assert_ok(comet_indices_bytes(&p->window, &bytes));
    assert_int_equal(bytes, p->bytes);
    guarded_new(&packed, bytes);
    guarded_new(&indices, raw);
    unsigned char *to = guarded_place(&packed, NULL, bytes);
    memset(to, 0xA5, bytes);
    assert_ok(comet_indices_pack(&p->window, (int64_t *)(void *)guarded_place(&indices, p->indices, raw), to));
    assert_memory_equal(to, p->packed, bytes);
    unsigned char *back = guarded_place(&indices, NULL, raw);
    memset(back, 0xA5, raw);
    assert_ok(comet_indices_unpack(&p->window, to, (int64_t *)(void *)back));
    assert_memory_equal(back, p->indices, raw);
    guarded_free(&packed);
    guarded_free(&indices);
}

static void test_random_windows(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int round = effort(1500); round > 0; round--) {
        comet_pool_window w = pooling_window(&r, rng_below(&r, 10) ? 1500 : 10000);
        pooling p = pooling_new(&r, &w);
        check(&p);
        pooling_free(&p);
    }
}

static void test_extreme_windows(void **state) {
    (void)state;
    rng r = rng_seed(2);
    for (int which = 0; which < POOLING_EXTREMES; which++) {
        comet_pool_window w = pooling_extreme(which);
        pooling p = pooling_new(&r, &w);
        check(&p);
        pooling_free(&p);
    }
}

/* Every pair of a width and a kernel that divisions can be wrong for. */
static void test_every_place(void **state) {
    (void)state;
    for (int32_t kernel = 1; kernel <= 256; kernel++)
        for (int32_t dilation = 1; dilation <= 3; dilation += 2) {
            comet_pool_window w = COMET_POOL_WINDOW_INIT;
            w.kernel[1] = kernel, w.dilation[1] = dilation;
            w.input[1] = (kernel - 1) * dilation + 1;
            w.batch = kernel;
            w.input[0] = w.kernel[0] = 256 / kernel;
            w.channels = w.kernel[0];
            int64_t *indices = malloc((size_t)(w.batch * w.channels) * sizeof *indices), back[256];
            unsigned char packed[256];
            assert_non_null(indices);
            for (int64_t i = 0; i < w.batch * w.channels; i++)
                indices[i] = i / kernel * w.input[1] + i % kernel * dilation;
            assert_ok(comet_indices_pack(&w, indices, packed));
            assert_ok(comet_indices_unpack(&w, packed, back));
            assert_memory_equal(back, indices, (size_t)(w.batch * w.channels) * sizeof *indices);
            free(indices);
        }
}

static void test_tiny_example(void **state) {
    (void)state;
    comet_pool_window w = COMET_POOL_WINDOW_INIT;
    w.input[0] = w.input[1] = 4, w.output[0] = w.output[1] = 2;
    w.kernel[0] = w.kernel[1] = w.stride[0] = w.stride[1] = 2;
    const int64_t indices[4] = {0, 3, 13, 10}; /* (0, 0), (0, 1), (1, 1) and (0, 0) of their windows */
    const unsigned char expected[16] = {0x34};
    unsigned char packed[16];
    int64_t back[4];
    assert_ok(comet_indices_pack(&w, indices, packed));
    assert_memory_equal(packed, expected, sizeof packed);
    assert_ok(comet_indices_unpack(&w, packed, back));
    assert_memory_equal(back, indices, sizeof back);
}

static void test_sizes(void **state) {
    (void)state;
    static const struct {
        int32_t kernel[2];
        int64_t batch;
        size_t bytes;
    } cases[] = {{{1, 1}, 128, 16}, {{1, 1}, 129, 32},  {{2, 1}, 128, 16}, {{1, 3}, 64, 16},
                 {{2, 2}, 65, 32},  {{5, 1}, 32, 16},   {{3, 3}, 33, 32},  {{4, 4}, 32, 16},
                 {{17, 1}, 16, 16}, {{16, 16}, 17, 32}, {{16, 16}, 1, 16}, {{3, 3}, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        comet_pool_window w = COMET_POOL_WINDOW_INIT;
        size_t bytes = 7;
        memcpy(w.kernel, cases[i].kernel, sizeof w.kernel);
        w.input[0] = w.input[1] = 16, w.batch = cases[i].batch;
        assert_ok(comet_indices_bytes(&w, &bytes));
        assert_int_equal(bytes, cases[i].bytes);
    }
    comet_pool_window w = COMET_POOL_WINDOW_INIT;
    w.batch = 0;
    assert_ok(comet_indices_pack(&w, NULL, NULL));
    assert_ok(comet_indices_unpack(&w, NULL, NULL));
}

/* ---- what is refused ---- */

/* One index is another one: fine exactly if that is a place of its window, too. */
static void spoil(const pooling *p, int64_t i, int64_t index, unsigned char *packed) {
    const int64_t right = p->indices[i];
    unsigned code;
    p->indices[i] = index;
    if (pooling_is_place(&p->window, i, index, &code)) {
        assert_ok(comet_indices_pack(&p->window, p->indices, packed));
        assert_int_equal(pooling_code(p, packed, i), code);
    } else {
        assert_status(comet_indices_pack(&p->window, p->indices, packed), COMET_ERROR_ARGUMENT);
        assert_reason("indices has one that is not a place");
    }
    p->indices[i] = right;
}

static void test_wrong_indices(void **state) {
    (void)state;
    rng r = rng_seed(3);
    for (int round = effort(400); round > 0; round--) {
        comet_pool_window w = pooling_window(&r, 300);
        pooling p = pooling_new(&r, &w);
        unsigned char *packed = malloc(p.bytes + 1);
        const int64_t map = w.input[0] * w.input[1];
        assert_non_null(packed);
        for (int k = 0; p.count && k < 20; k++) {
            const int64_t i = rng_between(&r, 0, p.count - 1), right = p.indices[i];
            const int64_t others[] = {-1,
                                      map,
                                      map - 1,
                                      INT64_MIN,
                                      INT64_MAX,
                                      right + ((int64_t)1 << 32),
                                      right + ((int64_t)1 << 28),
                                      right | INT64_MIN,
                                      -right,
                                      right + 1,
                                      right - 1,
                                      right + w.input[1],
                                      right - w.input[1],
                                      rng_between(&r, -map, 2 * map),
                                      (int64_t)rng_next(&r)};
            spoil(&p, i, others[rng_below(&r, sizeof others / sizeof *others)], packed);
        }
        free(packed);
        pooling_free(&p);
    }
}

/* All indices around a map for all of its outputs. */
static void test_all_indices_of_a_map(void **state) {
    (void)state;
    rng r = rng_seed(4);
    for (int round = effort(30); round > 0; round--) {
        comet_pool_window w = pooling_window(&r, 1);
        w.batch = w.channels = 1;
        const int64_t map = w.input[0] * w.input[1];
        if (map * w.output[0] * w.output[1] > 20000)
            continue;
        pooling p = pooling_new(&r, &w);
        unsigned char *packed = malloc(p.bytes);
        assert_non_null(packed);
        for (int64_t i = 0; i < p.count; i++)
            for (int64_t index = -w.input[1] - 1; index <= map + w.input[1]; index++)
                spoil(&p, i, index, packed);
        free(packed);
        pooling_free(&p);
    }
}

/* A window whose places step over the map has none that could be the greatest. */
static void test_window_without_places(void **state) {
    (void)state;
    comet_pool_window w = COMET_POOL_WINDOW_INIT;
    w.kernel[1] = 2, w.dilation[1] = 3, w.padding[1] = 2; /* places -2 and 1 of a map of 1 */
    unsigned char packed[16] = {0};
    for (int64_t index = -3; index <= 3; index++)
        assert_status(comet_indices_pack(&w, &index, packed), COMET_ERROR_ARGUMENT);
    int64_t index = 7;
    assert_status(comet_indices_unpack(&w, packed, &index), COMET_ERROR_CORRUPT);
    assert_int_equal(index, 0);
}

/* ---- bytes that nobody packed ---- */

static void check_hostile(const pooling *p, const unsigned char *packed) {
    int64_t *indices = malloc((size_t)p->count * sizeof *indices);
    int valid = 1;
    assert_non_null(indices);
    comet_status status = comet_indices_unpack(&p->window, packed, indices);
    for (int64_t i = 0; i < p->count; i++) {
        assert_in_range(indices[i], 0, p->window.input[0] * p->window.input[1] - 1);
        assert_int_equal(indices[i], pooling_index(&p->window, i, pooling_code(p, packed, i), &valid));
    }
    for (size_t bit = (size_t)p->count * p->bits; bit < 8 * p->bytes; bit++)
        valid &= !(packed[bit / 8] >> bit % 8 & 1);
    assert_int_equal(status, valid ? COMET_OK : COMET_ERROR_CORRUPT);
    free(indices);
}

static void test_hostile_bytes(void **state) {
    (void)state;
    rng r = rng_seed(5);
    for (int round = effort(800); round > 0; round--) {
        comet_pool_window w = pooling_window(&r, 1000);
        pooling p = pooling_new(&r, &w);
        const int few = rng_below(&r, 2) != 0;
        for (size_t i = 0; p.count && i < p.bytes; i++)
            if (few ? rng_below(&r, p.bytes) == 0 : 1)
                p.packed[i] = (unsigned char)rng_next(&r);
        if (p.count)
            check_hostile(&p, p.packed);
        pooling_free(&p);
    }
    for (int which = 0; which < POOLING_EXTREMES; which++) {
        comet_pool_window w = pooling_extreme(which);
        pooling p = pooling_new(&r, &w);
        for (size_t i = 0; i < p.bytes; i++)
            p.packed[i] = (unsigned char)rng_next(&r);
        check_hostile(&p, p.packed);
        pooling_free(&p);
    }
}

/* ---- arguments ---- */

static void refuse(const comet_pool_window *w, comet_status expected) {
    int64_t indices[8] = {0};
    unsigned char packed[16] = {0};
    size_t bytes = 7;
    assert_status(comet_indices_bytes(w, &bytes), expected);
    assert_true(comet_last_error()[0]);
    assert_status(comet_indices_pack(w, indices, packed), expected);
    assert_status(comet_indices_unpack(w, packed, indices), expected);
    assert_int_equal(bytes, 7);
}

#define REFUSE(expected, ...)                                                                                          \
    do {                                                                                                               \
        comet_pool_window w = COMET_POOL_WINDOW_INIT;                                                                  \
        __VA_ARGS__;                                                                                                   \
        refuse(&w, expected);                                                                                          \
    } while (0)

static void test_arguments(void **state) {
    (void)state;
    const int64_t most = 1 << 28;
    refuse(NULL, COMET_ERROR_ARGUMENT);
    REFUSE(COMET_ERROR_ARGUMENT, w.size = 0);
    REFUSE(COMET_ERROR_ARGUMENT, w.layout = COMET_FLAT);
    REFUSE(COMET_ERROR_ARGUMENT, w.layout = (comet_layout)3);
    REFUSE(COMET_ERROR_ARGUMENT, w.batch = -1);
    REFUSE(COMET_ERROR_ARGUMENT, w.channels = -1);
    REFUSE(COMET_ERROR_ARGUMENT, w.batch = ((int64_t)1 << 48) + 1);
    REFUSE(COMET_ERROR_ARGUMENT, w.batch = INT64_MAX, w.channels = 16);
    REFUSE(COMET_ERROR_UNSUPPORTED, w.channels = most + 1);
    REFUSE(COMET_ERROR_UNSUPPORTED, w.input[0] = w.input[1] = (1 << 14) + 1);
    REFUSE(COMET_ERROR_UNSUPPORTED, w.kernel[0] = 257, w.input[0] = 300);
    REFUSE(COMET_ERROR_UNSUPPORTED, w.kernel[0] = 129, w.kernel[1] = 2);
    REFUSE(COMET_ERROR_UNSUPPORTED, w.kernel[0] = INT32_MAX, w.kernel[1] = INT32_MAX);
    for (int d = 0; d < 2; d++) {
        REFUSE(COMET_ERROR_ARGUMENT, w.input[d] = 0);
        REFUSE(COMET_ERROR_ARGUMENT, w.output[d] = 0);
        REFUSE(COMET_ERROR_ARGUMENT, w.kernel[d] = 0);
        REFUSE(COMET_ERROR_ARGUMENT, w.stride[d] = 0);
        REFUSE(COMET_ERROR_ARGUMENT, w.dilation[d] = 0);
        REFUSE(COMET_ERROR_ARGUMENT, w.padding[d] = -1);
        REFUSE(COMET_ERROR_ARGUMENT, w.padding[d] = 1);
        REFUSE(COMET_ERROR_ARGUMENT, w.kernel[d] = 3, w.padding[d] = 2);
        REFUSE(COMET_ERROR_ARGUMENT, w.input[d] = 4, w.output[d] = 5);
        REFUSE(COMET_ERROR_ARGUMENT, w.input[d] = 4, w.stride[d] = 2, w.output[d] = 3);
        REFUSE(COMET_ERROR_UNSUPPORTED, w.input[d] = most + 1);
        REFUSE(COMET_ERROR_UNSUPPORTED, w.stride[d] = (int32_t)most + 1);
        REFUSE(COMET_ERROR_UNSUPPORTED, w.kernel[d] = 2, w.dilation[d] = (int32_t)most);
        REFUSE(COMET_ERROR_UNSUPPORTED, w.kernel[d] = 256, w.dilation[d] = INT32_MAX);
        REFUSE(COMET_ERROR_UNSUPPORTED, w.input[d] = INT64_MAX, w.output[d] = INT64_MAX);
    }
}

static void test_nulls(void **state) {
    (void)state;
    comet_pool_window w = COMET_POOL_WINDOW_INIT;
    int64_t index = 0;
    unsigned char packed[16];
    assert_status(comet_indices_bytes(&w, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_indices_pack(&w, NULL, packed), COMET_ERROR_ARGUMENT);
    assert_status(comet_indices_pack(&w, &index, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_indices_unpack(&w, NULL, &index), COMET_ERROR_ARGUMENT);
    assert_status(comet_indices_unpack(&w, packed, NULL), COMET_ERROR_ARGUMENT);
    assert_reason("indices is NULL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_windows),
        cmocka_unit_test(test_extreme_windows),
        cmocka_unit_test(test_every_place),
        cmocka_unit_test(test_tiny_example),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_wrong_indices),
        cmocka_unit_test(test_all_indices_of_a_map),
        cmocka_unit_test(test_window_without_places),
        cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_nulls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
