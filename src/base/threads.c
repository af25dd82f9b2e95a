/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many cores there are. The pool: workers sleep on a condition until a generation of work is posted; the caller
 * works along and waits.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "comet/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/memory.h"
#include "base/parallel.h"

enum { MOST_THREADS = 4096 };

typedef struct worker {
    comet_threads *pool;
    unsigned index; /* 1 .. count - 1; 0 is the caller */
    pthread_t thread;
} worker;

struct comet_threads {
    comet_allocator allocator_copy;
    const comet_allocator *allocator; /* NULL or &allocator_copy */
    unsigned count;
    pthread_mutex_t turn; /* held by the call that uses the pool */
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t posted, finished;
    unsigned generation, active, wanted;
    int stop;
    void (*run)(void *, unsigned);
    void *context;
    comet_team team; /* NULL: threads of its own */
    void *team_context;
    worker workers[];
};

static void *worker_main(void *argument) {
    worker *self = argument;
    comet_threads *pool = self->pool;
    unsigned seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stop && pool->generation == seen)
            pthread_cond_wait(&pool->posted, &pool->lock);
        if (pool->stop)
            break;
        seen = pool->generation;
        if (self->index >= pool->wanted)
            continue;
        pthread_mutex_unlock(&pool->lock);
        fenv_t own;
        comet_fp_enter(&own); /* a thread inherits the environment of the one that made it */
        pool->run(pool->context, self->index);
        comet_fp_leave(&own);
        pthread_mutex_lock(&pool->lock);
        if (--pool->active == 0)
            pthread_cond_signal(&pool->finished);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static size_t pool_bytes(unsigned count) {
    return sizeof(comet_threads) + count * sizeof(worker);
}

static void stop_workers(comet_threads *pool, unsigned started) {
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->posted);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 1; i < started; i++)
        pthread_join(pool->workers[i].thread, NULL);
}

static void pool_destroy(comet_threads *pool) {
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->posted);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
    comet_memory_give(pool->allocator, pool, pool_bytes(pool->count));
}

/* ---- cores ---- */

#ifdef __linux__
/* 0: not known. The system wants room for every core that it could have, and says only whether there is enough. */
static unsigned allowed_cores(void) {
    for (unsigned most = CPU_SETSIZE; most <= 64 * CPU_SETSIZE; most *= 2) {
        cpu_set_t *set = CPU_ALLOC(most);
        size_t bytes = CPU_ALLOC_SIZE(most);
        if (!set)
            return 0;
        int answer = sched_getaffinity(0, bytes, set);
        int is_short = answer != 0 && errno == EINVAL;
        int count = answer == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (!is_short)
            return (unsigned)count;
    }
    return 0;
}
#else
static unsigned allowed_cores(void) {
    return 0;
}
#endif

unsigned comet_usable_cores(void) {
    unsigned allowed = allowed_cores();
    long online = allowed ? 0 : sysconf(_SC_NPROCESSORS_ONLN);
    return allowed ? allowed : online > 0 ? (unsigned)online : 1;
}

/* ---- pools ---- */

/* A pool in which nobody works yet. */
static comet_status pool_new(unsigned count, const comet_allocator *allocator, comet_threads **threads) {
    COMET_REQUIRE_POINTER(threads);
    COMET_REQUIRE(count <= MOST_THREADS, "count is %u: it must be at most %d", count, MOST_THREADS);
    if (count == 0)
        count = comet_usable_cores();
    comet_threads *pool = comet_memory_take(allocator, pool_bytes(count));
    if (!pool)
        return COMET_ERROR_MEMORY;
    *pool = (comet_threads){.count = count};
    pool->allocator = comet_memory_hold(&pool->allocator_copy, allocator);
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->posted, NULL);
    pthread_cond_init(&pool->finished, NULL);
    *threads = pool;
    return COMET_OK;
}

comet_status comet_threads_new(unsigned count, const comet_allocator *allocator, comet_threads **threads) {
    comet_begin();
    comet_threads *pool;
    COMET_TRY(pool_new(count, allocator, threads ? &pool : NULL));
    count = pool->count;
    for (unsigned i = 1; i < count; i++) {
        pool->workers[i] = (worker){.pool = pool, .index = i};
        if (pthread_create(&pool->workers[i].thread, NULL, worker_main, &pool->workers[i]) != 0) {
            stop_workers(pool, i);
            pool_destroy(pool);
            return COMET_ERROR_MEMORY;
        }
    }
    *threads = pool;
    return COMET_OK;
}

comet_status comet_threads_borrow(unsigned count, comet_team team, void *team_context, const comet_allocator *allocator,
                                  comet_threads **threads) {
    comet_status status = pool_new(count, allocator, threads);
    if (status == COMET_OK) {
        (*threads)->team = team;
        (*threads)->team_context = team_context;
    }
    return status;
}

void comet_threads_free(comet_threads *threads) {
    if (!threads)
        return;
    if (!threads->team)
        stop_workers(threads, threads->count);
    pool_destroy(threads);
}

unsigned comet_threads_count(const comet_threads *threads) {
    return threads ? threads->count : 1;
}

void comet_parallel(comet_threads *threads, unsigned count, void (*run)(void *context, unsigned worker),
                    void *context) {
    if (!threads || count <= 1) {
        run(context, 0);
        return;
    }
    pthread_mutex_lock(&threads->turn);
    if (threads->team) {
        threads->team(threads->team_context, count, run, context);
        pthread_mutex_unlock(&threads->turn);
        return;
    }
    pthread_mutex_lock(&threads->lock);
    threads->run = run;
    threads->context = context;
    threads->wanted = count;
    threads->active = count - 1;
    threads->generation++;
    pthread_cond_broadcast(&threads->posted);
    pthread_mutex_unlock(&threads->lock);
    run(context, 0);
    pthread_mutex_lock(&threads->lock);
    while (threads->active)
        pthread_cond_wait(&threads->finished, &threads->lock);
    pthread_mutex_unlock(&threads->lock);
    pthread_mutex_unlock(&threads->turn);
}
