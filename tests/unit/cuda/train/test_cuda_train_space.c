/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory as a space, against arrays of the host that are read and written the same way. */
#include "support/assert_ok.h"

#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cuda/cuda_memory.h"
#include "support/rng.h"
#include "train/backend/cuda/base/space.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation/emulation.h"
#endif
#include "train/graph/graph_impl.h"

typedef struct bench {
    cudaStream_t queue;
    comet_space *space;
    int stale;
    rng r;
} bench;

static int set_up(void **state) {
    bench *b = calloc(1, sizeof *b);
    cuda_must(cudaStreamCreateWithFlags(&b->queue, cudaStreamNonBlocking));
    assert_ok(comet_cuda_space_new(b->queue, NULL, &b->stale, &b->space));
    b->r = rng_seed(7);
    *state = b;
    return 0;
}

static int tear_down(void **state) {
    bench *b = *state;
    comet_cuda_space_free(b->space);
    cuda_must(cudaStreamDestroy(b->queue));
    free(b);
    return 0;
}

static float *take(const bench *b, int64_t count) {
    void *memory = NULL;
    assert_ok(b->space->take(b->space, (size_t)count * 4, &memory));
    assert_int_equal((uintptr_t)memory % 256, 0);
    return memory;
}

static void give(const bench *b, float *memory, int64_t count) {
    b->space->give(b->space, memory, (size_t)count * 4);
}

static float *random_values(bench *b, int64_t count) {
    float *values = malloc((size_t)count * 4);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)rng_gauss(&b->r);
    return values;
}

/* What lies there, in the device's own order. */
static float *raw(const bench *b, const float *memory, int64_t count) {
    float *values = malloc((size_t)count * 4);
    cuda_must(cudaStreamSynchronize(b->queue));
    cuda_must(cudaMemcpy(values, memory, (size_t)count * 4, cudaMemcpyDeviceToHost));
    return values;
}

static void expect(const float *found, const float *expected, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&found[i], &expected[i], 4) != 0)
            fail_msg("value %lld is %g, expected %g", (long long)i, (double)found[i], (double)expected[i]);
}

/* ---- memory and copies ---- */

static void test_trips(void **state) {
    bench *b = *state;
    enum { COUNT = 1237 };
    float *one = take(b, COUNT), *two = take(b, COUNT), *values = random_values(b, COUNT), found[COUNT];
    assert_ok(b->space->write(b->space, one, values, sizeof found));
    assert_ok(b->space->copy(b->space, two, one, sizeof found));
    assert_ok(b->space->fill(b->space, one, COUNT, -2.5f));
    assert_ok(b->space->read(b->space, found, two, sizeof found));
    expect(found, values, COUNT);
    assert_ok(b->space->fill(b->space, two + 3, 5, 9.0f));
    for (int i = 0; i < 5; i++)
        values[3 + i] = 9;
    assert_ok(b->space->read(b->space, found, two, sizeof found));
    expect(found, values, COUNT);
    assert_ok(b->space->read(b->space, found, one, sizeof found));
    for (int i = 0; i < COUNT; i++)
        assert_true(found[i] == -2.5f);
    /* Not whole values. */
    assert_ok(b->space->read(b->space, (char *)found + 1, (char *)two + 1, 6));
    assert_memory_equal((char *)found + 1, (char *)values + 1, 6);
    give(b, one, COUNT);
    give(b, two, COUNT);
    free(values);
}

static void test_nothing(void **state) {
    bench *b = *state;
    void *memory = NULL;
    assert_ok(b->space->take(b->space, 0, &memory));
    assert_non_null(memory);
    assert_ok(b->space->fill(b->space, memory, 0, 1));
    assert_ok(b->space->copy(b->space, memory, memory, 0));
    assert_ok(b->space->write(b->space, memory, &memory, 0));
    assert_int_equal(b->stale, 0);
    b->space->give(b->space, memory, 0);
    b->space->give(b->space, NULL, 0);
}

/* Larger than what goes to the host at once. */
static void test_many_pieces(void **state) {
    bench *b = *state;
    enum { COUNT = (9 << 18) + 77 };
    static const int64_t shape[4] = {3, 7, 3, 5};
    float *memory = take(b, COUNT), *values = malloc(COUNT * 4), *found = malloc(COUNT * 4);
    const int64_t border = (1 << 20) - 100; /* the piece ends within it */
    for (int64_t i = 0; i < COUNT; i++)
        values[i] = (float)i;
    assert_ok(b->space->arrange(b->space, memory + border, shape));
    assert_ok(b->space->write(b->space, memory, values, COUNT * 4));
    memset(found, 0xff, COUNT * 4);
    assert_ok(b->space->read(b->space, found, memory, COUNT * 4));
    expect(found, values, COUNT);
    give(b, memory, COUNT);
    free(values);
    free(found);
}

/* ---- other orders ---- */

typedef struct weights {
    int64_t first, shape[4];
} weights;

/* As the device has them, from the definition. */
static void rearrange(const weights *w, const float *file, float *device) {
    const int64_t *s = w->shape;
    for (int64_t o = 0; o < s[0]; o++)
        for (int64_t i = 0; i < s[1]; i++)
            for (int64_t y = 0; y < s[2]; y++)
                for (int64_t x = 0; x < s[3]; x++)
                    device[((o * s[2] + y) * s[3] + x) * s[1] + i] = file[((o * s[1] + i) * s[2] + y) * s[3] + x];
}

static const weights some[] = {{5, {4, 3, 3, 3}},   {113, {7, 5, 1, 1}},  {148, {6, 1, 3, 3}},
                               {202, {1, 2, 1, 7}}, {216, {3, 16, 5, 5}}, {1416, {2, 3, 2, 1}}};
enum { SOME = sizeof some / sizeof *some, ALL = 1450 };

static float *arranged(bench *b) {
    float *memory = take(b, ALL);
    for (int k = 0; k < SOME; k++) { /* not in order */
        const weights *w = &some[(k * 5 + 3) % SOME];
        assert_ok(b->space->arrange(b->space, memory + w->first, w->shape));
    }
    return memory;
}

static void test_order_on_the_device(void **state) {
    bench *b = *state;
    float *memory = arranged(b), *values = random_values(b, ALL), expected[ALL];
    assert_ok(b->space->write(b->space, memory, values, ALL * 4));
    memcpy(expected, values, sizeof expected);
    for (int k = 0; k < SOME; k++)
        rearrange(&some[k], values + some[k].first, expected + some[k].first);
    float *found = raw(b, memory, ALL);
    expect(found, expected, ALL);
    free(found);
    found = malloc(ALL * 4);
    assert_ok(b->space->read(b->space, found, memory, ALL * 4));
    expect(found, values, ALL);
    /* A plain copy on the device. */
    cuda_block plain = cuda_block_new(ALL * 4, NULL);
    assert_ok(comet_cuda_space_plain(b->space, memory + 6, ALL - 9, (float *)plain.data + 2));
    cuda_must(cudaStreamSynchronize(b->queue));
    free(found);
    found = cuda_block_read(&plain);
    expect(found + 2, values + 6, ALL - 9);
    assert_true(cuda_is_poison(found, 8) && cuda_is_poison(found + ALL - 7, 28));
    assert_true(cuda_block_is_intact(&plain));
    cuda_block_free(&plain);
    free(found);
    free(values);
    give(b, memory, ALL);
}

/* Any part of an array may be read and written. */
static void test_any_part(void **state) {
    bench *b = *state;
    float *memory = arranged(b), *values = random_values(b, ALL), found[ALL];
    assert_ok(b->space->write(b->space, memory, values, ALL * 4));
    for (int round = 0; round < 60; round++) {
        const int64_t first = (int64_t)rng_below(&b->r, ALL);
        const int64_t count =
            1 + (int64_t)rng_below(&b->r, (uint64_t)(round % 2 ? ALL - first : 1 + (ALL - first) / 9));
        float *part = random_values(b, count);
        assert_ok(b->space->write(b->space, memory + first, part, (size_t)count * 4));
        memcpy(values + first, part, (size_t)count * 4);
        free(part);
        const int64_t from = (int64_t)rng_below(&b->r, ALL), length = (int64_t)rng_below(&b->r, (uint64_t)(ALL - from));
        assert_ok(b->space->read(b->space, found, memory + from, (size_t)length * 4));
        expect(found, values + from, length);
    }
    assert_ok(b->space->read(b->space, found, memory, ALL * 4));
    expect(found, values, ALL);
    free(values);
    give(b, memory, ALL);
}

/* Between arrays of one shape a copy is one of bytes. */
static void test_copy_keeps_the_order(void **state) {
    bench *b = *state;
    float *one = arranged(b), *two = arranged(b), *values = random_values(b, ALL), found[ALL];
    assert_ok(b->space->write(b->space, one, values, ALL * 4));
    assert_ok(b->space->copy(b->space, two, one, ALL * 4));
    assert_ok(b->space->read(b->space, found, two, ALL * 4));
    expect(found, values, ALL);
    free(values);
    give(b, one, ALL);
    give(b, two, ALL);
}

/* Of memory that is given back nothing is remembered; what lies beside it is. */
static void test_orders_are_forgotten(void **state) {
    bench *b = *state;
    static const int64_t shape[4] = {5, 3, 2, 2};
    float *before = take(b, 60), *memory = arranged(b), *values = random_values(b, ALL);
    assert_ok(b->space->arrange(b->space, before, shape));
    cuda_must(cudaStreamSynchronize(b->queue));
    give(b, memory, ALL);
    memory = take(b, ALL); /* probably where it was */
    assert_ok(b->space->write(b->space, memory, values, ALL * 4));
    float *found = raw(b, memory, ALL);
    expect(found, values, ALL);
    free(found);
    assert_ok(b->space->write(b->space, before, values, 60 * 4));
    found = raw(b, before, 60);
    float expected[60];
    rearrange(&(weights){0, {5, 3, 2, 2}}, values, expected);
    expect(found, expected, 60);
    free(found);
    free(values);
    give(b, memory, ALL);
    give(b, before, 60);
}

/* A later order takes an earlier one's place. */
static void test_orders_are_replaced(void **state) {
    bench *b = *state;
    static const int64_t first[4] = {5, 3, 2, 2}, then[4] = {2, 6, 5, 1};
    float *memory = take(b, 60), *values = random_values(b, 60), expected[60];
    assert_ok(b->space->arrange(b->space, memory, first));
    assert_ok(b->space->arrange(b->space, memory, then));
    assert_ok(b->space->write(b->space, memory, values, 60 * 4));
    rearrange(&(weights){0, {2, 6, 5, 1}}, values, expected);
    float *found = raw(b, memory, 60);
    expect(found, expected, 60);
    free(found);
    free(values);
    give(b, memory, 60);
}

/* A graph asks for the orders itself. */
static void test_graph(void **state) {
    bench *b = *state;
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 6, 6, 3);
    x = comet_graph_conv2d(g, "c", x, &(comet_conv2d){.out = 5, .kernel = 3, .kernel_width = 2, .bias = 1});
    comet_graph_output(g, comet_graph_linear(g, "fc", comet_graph_flatten(g, x), 4, 1));
    assert_ok(comet_graph_allocate(g, b->space, 1));
    const weights w = {0, {5, 3, 3, 2}};
    comet_parameter *p = comet_graph_parameter_named(g, "c.weight");
    float *arrays[] = {p->value, p->gradient}, expected[90];
    for (int k = 0; k < 2; k++) {
        float *values = random_values(b, 90);
        assert_ok(b->space->write(b->space, arrays[k], values, sizeof expected));
        rearrange(&w, values, expected);
        float *found = raw(b, arrays[k], 90);
        expect(found, expected, 90);
        free(found);
        free(values);
    }
    comet_graph_free(g);
}

/* ---- weights that are stale ---- */

static int became_stale(bench *b) {
    const int stale = b->stale;
    b->stale = 0;
    return stale;
}

static void test_stale(void **state) {
    bench *b = *state;
    float *memory = take(b, 100), *other = take(b, 100), values[100] = {0};
    assert_int_equal(became_stale(b), 0);
    assert_ok(b->space->write(b->space, other, values, sizeof values));
    assert_int_equal(became_stale(b), 1);
    comet_cuda_space_watch(b->space, memory + 10, 40 * 4);
    assert_ok(b->space->write(b->space, other, values, sizeof values));
    assert_ok(b->space->read(b->space, values, memory, sizeof values));
    assert_ok(b->space->write(b->space, memory, values, 10 * 4));
    assert_ok(b->space->copy(b->space, memory + 50, other, 50 * 4));
    assert_ok(b->space->fill(b->space, memory + 50, 50, 1));
    assert_int_equal(became_stale(b), 0);
    assert_ok(b->space->write(b->space, memory + 9, values, 2 * 4));
    assert_int_equal(became_stale(b), 1);
    assert_ok(b->space->copy(b->space, memory + 49, other, 4));
    assert_int_equal(became_stale(b), 1);
    assert_ok(b->space->fill(b->space, memory, 100, 1));
    assert_int_equal(became_stale(b), 1);
    give(b, memory, 100);
    give(b, other, 100);
}

/* ---- values that are not finite ---- */

enum { SPANS = 300 };

static void test_search(void **state) {
    bench *b = *state;
    enum { COUNT = 70000 };
    const float bad[] = {NAN, INFINITY, -INFINITY}, fine = 3.4e38f;
    float *memory = take(b, COUNT);
    comet_span spans[SPANS];
    int64_t at = 0;
    assert_ok(b->space->fill(b->space, memory, COUNT, 1.5f));
    for (int i = 0; i < SPANS; i++) { /* with gaps, of any alignment, some empty, some of several blocks */
        const int64_t count = i % 97 == 50 ? 20001 : i % 7 == 3 ? 0 : (int64_t)rng_below(&b->r, 40) + 1;
        spans[i] = (comet_span){memory + at, count};
        at += count + 1 + (int64_t)rng_below(&b->r, 3);
    }
    assert_true(at < COUNT);
    int first = 5;
    assert_ok(b->space->find_nonfinite(b->space, spans, SPANS, &first));
    assert_int_equal(first, -1);
    for (int round = 0; round < 12; round++) {
        int hit = (int)rng_below(&b->r, SPANS), later = (int)rng_below(&b->r, SPANS);
        hit = round % 3 == 0 ? 50 + 97 * (round / 3 % 3) : hit;
        if (spans[hit].count == 0)
            continue;
        const int64_t place = (int64_t)rng_below(&b->r, (uint64_t)spans[hit].count);
        float *wrong = (float *)spans[hit].values + place, *gap = (float *)spans[hit].values + spans[hit].count;
        float *more = later > hit && spans[later].count ? (float *)spans[later].values : wrong;
        assert_ok(b->space->write(b->space, gap, &bad[0], 4)); /* nobody's */
        assert_ok(b->space->write(b->space, wrong, &bad[round % 3], 4));
        assert_ok(b->space->write(b->space, more, &bad[round % 3], 4));
        assert_ok(b->space->find_nonfinite(b->space, spans, SPANS, &first));
        assert_int_equal(first, hit);
        assert_ok(b->space->write(b->space, gap, &fine, 4));
        assert_ok(b->space->write(b->space, wrong, &fine, 4));
        assert_ok(b->space->write(b->space, more, &fine, 4));
    }
    assert_ok(b->space->find_nonfinite(b->space, spans, SPANS, &first));
    assert_int_equal(first, -1);
    assert_ok(b->space->find_nonfinite(b->space, NULL, 0, &first));
    assert_int_equal(first, -1);
    assert_ok(b->space->find_nonfinite(b->space, &spans[3], 1, &first)); /* without values */
    assert_int_equal(first, -1);
    give(b, memory, COUNT);
}

#ifdef COMET_CUDA_EMULATION
/* The caller's thread has chosen another GPU meanwhile. */
static void test_other_gpu_is_current(void **state) {
    bench *b = *state;
    struct cudaPointerAttributes attributes;
    emulation_set_devices(2, cudaSuccess);
    cuda_must(cudaSetDevice(1));
    float *memory = take(b, 4), value = 0;
    cuda_must(cudaPointerGetAttributes(&attributes, memory));
    assert_int_equal(attributes.device, 0);
    cuda_must(cudaSetDevice(1));
    assert_ok(b->space->fill(b->space, memory, 4, 2));
    cuda_must(cudaSetDevice(1));
    assert_ok(b->space->read(b->space, &value, memory + 3, sizeof value));
    assert_true(value == 2);
    give(b, memory, 4);
    cuda_must(cudaSetDevice(0));
    emulation_reset();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_trips, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_order_on_the_device, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_any_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_copy_keeps_the_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_orders_are_forgotten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_orders_are_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_graph, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stale, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_search, set_up, tear_down),
#ifdef COMET_CUDA_EMULATION
        cmocka_unit_test_setup_teardown(test_other_gpu_is_current, set_up, tear_down),
#endif
    };
    if (cuda_skip())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
