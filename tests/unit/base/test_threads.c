/* SPDX-License-Identifier: Apache-2.0 */
/* The pool: every worker runs once, pools are reused and shared, nothing is lost, sizes are checked. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "support/assert_ok.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/parallel.h"
#include "comet/codec.h"
#include "support/codec/values.h"
#include "support/counting_allocator.h"
#include "support/effort.h"

enum { MOST = 16 };

typedef struct tally {
    atomic_int runs[MOST];
    atomic_int total;
} tally;

static void count_run(void *context, unsigned worker) {
    tally *t = context;
    atomic_fetch_add(&t->runs[worker], 1);
    atomic_fetch_add(&t->total, 1);
}

static void check_one_each(comet_threads *threads, unsigned count) {
    tally t = {.total = 0};
    comet_parallel(threads, count, count_run, &t);
    for (unsigned i = 0; i < MOST; i++)
        assert_int_equal(atomic_load(&t.runs[i]), i < count);
}

static void test_counts(void **state) {
    (void)state;
    comet_threads *threads = NULL;
    assert_int_equal(comet_threads_count(NULL), 1);
    for (unsigned n = 1; n <= 9; n++) {
        assert_ok(comet_threads_new(n, NULL, &threads));
        assert_int_equal(comet_threads_count(threads), n);
        for (unsigned count = 1; count <= n; count++)
            check_one_each(threads, count);
        comet_threads_free(threads);
    }
    assert_ok(comet_threads_new(0, NULL, &threads));
    assert_int_equal(comet_threads_count(threads), comet_usable_cores());
    comet_threads_free(threads);
    comet_threads_free(NULL);
    check_one_each(NULL, 1);
}

/* A process that may run on one core counts one, whatever the machine has. */
static void test_affinity(void **state) {
    (void)state;
    assert_in_range(comet_usable_cores(), 1, sysconf(_SC_NPROCESSORS_CONF));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cpu_set_t all, one;
        comet_threads *threads = NULL;
        int core = 0;
        CPU_ZERO(&one);
        if (sched_getaffinity(0, sizeof all, &all) != 0)
            _exit(2);
        while (core < CPU_SETSIZE - 1 && !CPU_ISSET(core, &all))
            core++;
        CPU_SET(core, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0 || comet_threads_new(0, NULL, &threads) != COMET_OK)
            _exit(3);
        _exit(comet_usable_cores() == 1 && comet_threads_count(threads) == 1 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_refused(void **state) {
    (void)state;
    comet_threads *threads = NULL;
    assert_status(comet_threads_new(2, NULL, NULL), COMET_ERROR_ARGUMENT);
    assert_true(comet_threads_new(1000000, NULL, &threads) != COMET_OK);
    assert_null(threads);
}

/* Many short jobs of changing width through one pool: a lost wake-up would hang. */
static void test_reuse(void **state) {
    (void)state;
    comet_threads *threads;
    assert_ok(comet_threads_new(5, NULL, &threads));
    int rounds = effort(5000);
    for (int i = 0; i < rounds; i++)
        check_one_each(threads, 1 + (unsigned)i % 5);
    comet_threads_free(threads);
}

typedef struct user {
    comet_threads *threads;
    int rounds, wrong;
} user;

static void *use_pool(void *argument) {
    user *u = argument;
    for (int i = 0; i < u->rounds; i++) {
        tally t = {.total = 0};
        unsigned count = 1 + (unsigned)i % 3;
        comet_parallel(u->threads, count, count_run, &t);
        u->wrong += atomic_load(&t.total) != (int)count;
    }
    return NULL;
}

/* Calls that use a pool at the same time take turns. */
static void test_shared(void **state) {
    (void)state;
    comet_threads *threads;
    pthread_t other[3];
    user users[4];
    assert_ok(comet_threads_new(3, NULL, &threads));
    for (int i = 0; i < 4; i++)
        users[i] = (user){threads, effort(2000), 0};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&other[i], NULL, use_pool, &users[i]), 0);
    use_pool(&users[3]);
    for (int i = 0; i < 3; i++)
        pthread_join(other[i], NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(users[i].wrong, 0);
    comet_threads_free(threads);
}

/* ---- the codec over a shared pool ---- */

enum { VALUES = 200000, CAPACITY = VALUES * 5 };

typedef struct codec_user {
    comet_threads *threads;
    const float *values;
    const unsigned char *expected;
    size_t expected_bytes;
    int rounds, wrong;
} codec_user;

static comet_status compress(const float *values, comet_threads *threads, unsigned char *stream, size_t *bytes) {
    comet_tensor tensor;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    int64_t count = VALUES;
    params.bound = 0.01;
    exec.threads = threads;
    comet_tensor_init(&tensor, (void *)values, COMET_F32, COMET_FLAT, 1, &count);
    comet_status status = comet_codec_compress(&tensor, &params, &exec, stream, CAPACITY, &result);
    *bytes = result.bytes;
    return status;
}

static void *compress_repeatedly(void *argument) {
    codec_user *u = argument;
    unsigned char *stream = malloc(CAPACITY);
    for (int i = 0; stream && i < u->rounds; i++) {
        size_t bytes = 0;
        comet_status status = compress(u->values, u->threads, stream, &bytes);
        u->wrong += status != COMET_OK || bytes != u->expected_bytes || memcmp(stream, u->expected, bytes) != 0;
    }
    u->wrong += !stream;
    free(stream);
    return NULL;
}

static void test_codec_shares_a_pool(void **state) {
    (void)state;
    rng r = rng_seed(1);
    comet_threads *threads;
    pthread_t other;
    float *values = malloc(VALUES * sizeof *values);
    unsigned char *expected = malloc(CAPACITY);
    size_t bytes;
    assert_true(values && expected);
    values_fill(&r, VALUES_SMOOTH, COMET_F32, 1.0, 0.01, values, VALUES);
    assert_ok(compress(values, NULL, expected, &bytes));
    assert_ok(comet_threads_new(3, NULL, &threads));
    codec_user users[2];
    for (int i = 0; i < 2; i++)
        users[i] = (codec_user){threads, values, expected, bytes, effort(30), 0};
    assert_int_equal(pthread_create(&other, NULL, compress_repeatedly, &users[0]), 0);
    compress_repeatedly(&users[1]);
    pthread_join(other, NULL);
    assert_int_equal(users[0].wrong + users[1].wrong, 0);
    comet_threads_free(threads);
    free(values);
    free(expected);
}

static void test_memory(void **state) {
    (void)state;
    counting_allocator a;
    comet_threads *threads = NULL;
    counting_allocator_init(&a);
    assert_ok(comet_threads_new(4, &a.allocator, &threads));
    check_one_each(threads, 4);
    comet_threads_free(threads);
    assert_true(a.calls > 0 && a.live_blocks == 0 && a.live_bytes == 0 && a.wrong_sizes == 0);
    long calls = a.calls;
    for (long n = 1; n <= calls; n++) {
        counting_allocator_init(&a);
        a.fail_at = n;
        assert_status(comet_threads_new(4, &a.allocator, &threads), COMET_ERROR_MEMORY);
        assert_true(a.live_blocks == 0 && a.wrong_sizes == 0);
    }
}

/* Runs the workers one after the other, last first, and counts its calls. */
static void backwards(void *team_context, unsigned count, void (*run)(void *context, unsigned worker), void *context) {
    ++*(int *)team_context;
    for (unsigned i = count; i-- > 0;)
        run(context, i);
}

static void test_borrowed(void **state) {
    (void)state;
    comet_threads *threads = NULL;
    int calls = 0;
    assert_ok(comet_threads_borrow(5, backwards, &calls, NULL, &threads));
    assert_int_equal(comet_threads_count(threads), 5);
    check_one_each(threads, 5);
    check_one_each(threads, 3);
    assert_int_equal(calls, 2);
    check_one_each(threads, 1); /* on the calling thread */
    assert_int_equal(calls, 2);
    comet_threads_free(threads);
    assert_status(comet_threads_borrow(5000, backwards, &calls, NULL, &threads), COMET_ERROR_ARGUMENT);
    assert_status(comet_threads_borrow(2, backwards, &calls, NULL, NULL), COMET_ERROR_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_borrowed), cmocka_unit_test(test_counts),
        cmocka_unit_test(test_affinity), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_reuse),    cmocka_unit_test(test_shared),
        cmocka_unit_test(test_memory),   cmocka_unit_test(test_codec_shares_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
