/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store against a model: random saves, shares, loads, moves and releases in any order, every figure compared after
 * each; the same with every allocation failing once; and from several threads at once, within a limit.
 */
#include "support/assert_ok.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/counting_allocator.h"
#include "support/effort.h"
#include "support/store_case.h"

enum { CASES = 33, HANDLES = 24, NAMES = 5 };

static store_case cases[CASES];
static char names[CASES][8];

static int make_cases(void **state) {
    (void)state;
    rng r = rng_seed(21);
    for (int i = 0; i < CASES; i++) {
        store_case_new(&cases[i], i % store_form_count(), 1 + (int64_t)rng_below(&r, 9000), &r);
        snprintf(names[i], sizeof names[i], "n%d", i % NAMES);
        cases[i].item.name = names[i];
    }
    return 0;
}

static int free_cases(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++)
        store_case_free(&cases[i]);
    return 0;
}

static comet_store *store_of(size_t limit, int background, const comet_allocator *allocator) {
    comet_store_options options = COMET_STORE_OPTIONS_INIT;
    comet_store *store;
    options.limit_bytes = limit;
    options.spill_directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    options.spill_checksum = 1;
    options.background = background;
    options.allocator = allocator;
    assert_ok(comet_store_new(&options, &store));
    return store;
}

static comet_store_stats stats_of(comet_store *store) {
    comet_store_stats stats = {.size = sizeof stats};
    assert_ok(comet_store_get_stats(store, &stats));
    return stats;
}

/* ---- the model ---- */

typedef struct held {
    comet_store_handle handle; /* 0: nothing */
    int which;                 /* of the cases */
    uint64_t generation;
    int holders, spilled;
} held;

typedef struct model {
    held held[HANDLES];
    comet_store_bytes peak, account_peak[NAMES];
    uint64_t saves, aliases, loads, spills;
    uint64_t most_overhead;
} model;

static comet_store_bytes bytes_of(const held *h) {
    if (!h->handle)
        return (comet_store_bytes){0};
    const store_case *c = &cases[h->which];
    return (comet_store_bytes){.raw = (uint64_t)c->count * sizeof(float),
                               .stored = c->stored,
                               .resident = h->spilled ? 0 : (c->stored + 63) / 64 * 64,
                               .spilled = h->spilled ? c->stored : 0};
}

static void add(comet_store_bytes *sum, comet_store_bytes b) {
    sum->raw += b.raw;
    sum->stored += b.stored;
    sum->resident += b.resident;
    sum->spilled += b.spilled;
}

static void raise(comet_store_bytes *peak, comet_store_bytes b) {
    peak->raw = b.raw > peak->raw ? b.raw : peak->raw;
    peak->stored = b.stored > peak->stored ? b.stored : peak->stored;
    peak->resident = b.resident > peak->resident ? b.resident : peak->resident;
    peak->spilled = b.spilled > peak->spilled ? b.spilled : peak->spilled;
}

static void assert_bytes(const comet_store_bytes *a, const comet_store_bytes *b) {
    assert_int_equal(a->raw, b->raw);
    assert_int_equal(a->stored, b->stored);
    assert_int_equal(a->resident, b->resident);
    assert_int_equal(a->spilled, b->spilled);
}

static void check_accounts(comet_store *store, model *m, const comet_store_stats *s, const comet_store_bytes live[]) {
    comet_store_bytes sum = {0}, at_peak = {0};
    for (size_t i = 0; i < comet_store_accounts(store); i++) {
        comet_store_account a = {.size = sizeof a};
        assert_ok(comet_store_get_account(store, i, &a));
        int name = a.name[1] - '0';
        raise(&m->account_peak[name], live[name]);
        assert_bytes(&a.live, &live[name]);
        assert_bytes(&a.peak, &m->account_peak[name]);
        add(&sum, a.live);
        add(&at_peak, a.at_peak);
    }
    assert_bytes(&s->live, &sum);
    assert_bytes(&s->at_peak, &at_peak);
}

static void check_model(comet_store *store, model *m, const counting_allocator *a) {
    comet_store_stats s = stats_of(store);
    comet_store_bytes live = {0}, by_name[NAMES] = {{0}};
    uint64_t entries = 0;
    for (int i = 0; i < HANDLES; i++) {
        const held *h = &m->held[i];
        add(&live, bytes_of(h));
        if (!h->handle)
            continue;
        add(&by_name[h->which % NAMES], bytes_of(h));
        comet_store_info info = {.size = sizeof info};
        assert_ok(comet_store_get_info(store, h->handle, &info));
        comet_store_bytes expected = bytes_of(h);
        assert_bytes(&info.bytes, &expected);
        assert_int_equal(info.holders, h->holders);
        assert_int_equal(info.spilled, h->spilled);
        entries++;
    }
    raise(&m->peak, live);
    assert_bytes(&s.live, &live);
    assert_bytes(&s.peak, &m->peak);
    check_accounts(store, m, &s, by_name);
    assert_int_equal(s.entries, entries);
    assert_int_equal(s.scratch_bytes + s.reserved_bytes, 0);
    assert_true(s.peak_used_bytes >= s.peak.resident);
    assert_int_equal(s.saves, m->saves);
    assert_int_equal(s.aliases, m->aliases);
    assert_int_equal(s.loads, m->loads);
    assert_int_equal(s.spills, m->spills);
    assert_int_equal(a->live_bytes, s.live.resident + s.overhead_bytes); /* every byte is accounted for */
    assert_int_equal(a->wrong_sizes, 0);
    m->most_overhead = s.overhead_bytes > m->most_overhead ? s.overhead_bytes : m->most_overhead;
}

/*
 * The peak is that of the allocator, but for the store's own memory, of which the model sees all but an extent that
 * comes and goes within a call.
 */
static void check_peak(comet_store *store, const model *m, const counting_allocator *a) {
    uint64_t peak = stats_of(store).peak_used_bytes;
    assert_in_range(a->peak_bytes, peak, peak + m->most_overhead + 256);
}

static held *find_alias(model *m, int which, uint64_t generation) {
    for (int i = 0; generation && i < HANDLES; i++)
        if (m->held[i].handle && m->held[i].which == which && m->held[i].generation == generation)
            return &m->held[i];
    return NULL;
}

/* Any of these may fail for want of memory if `a` says so; then nothing has changed. */
static int failed(const counting_allocator *a, comet_status status) {
    if (status == COMET_ERROR_MEMORY && a->fail_at && a->calls >= a->fail_at)
        return 1;
    assert_ok(status);
    return 0;
}

static void do_save(comet_store *store, model *m, held *free_slot, const counting_allocator *a, rng *r) {
    int which = (int)rng_below(r, CASES);
    comet_store_item item = cases[which].item;
    item.generation = rng_below(r, 3);
    held *alias = find_alias(m, which, item.generation);
    comet_store_handle handle;
    comet_status status = comet_store_save(store, &cases[which].tensor, &item, &handle, NULL);
    if (failed(a, status))
        return;
    if (alias) {
        assert_true(handle == alias->handle);
        alias->holders++;
        m->aliases++;
        return;
    }
    *free_slot = (held){handle, which, item.generation, 1, item.offload};
    m->saves++;
    m->spills += (uint64_t)item.offload;
}

static void do_load(comet_store *store, model *m, const held *h, const counting_allocator *a) {
    const store_case *c = &cases[h->which];
    comet_tensor out = c->tensor;
    out.data = malloc((size_t)c->count * sizeof(float));
    assert_non_null(out.data);
    if (!failed(a, comet_store_load(store, h->handle, &out))) {
        assert_memory_equal(out.data, c->expected, (size_t)c->count * sizeof(float));
        m->loads++;
    }
    free(out.data);
}

static void do_spill(comet_store *store, model *m, held *h, const counting_allocator *a) {
    int moves = !h->spilled && cases[h->which].stored > 0;
    if (failed(a, comet_store_spill(store, h->handle)) || !moves)
        return;
    comet_store_bytes both = {0}; /* for a moment it is here and there */
    h->spilled = 1;
    for (int i = 0; i < HANDLES; i++)
        add(&both, bytes_of(&m->held[i]));
    raise(&m->peak, both);
    m->spills++;
}

static void do_release(comet_store *store, held *h) {
    assert_ok(comet_store_release(store, h->handle));
    if (--h->holders == 0)
        *h = (held){0};
}

static void step(comet_store *store, model *m, const counting_allocator *a, rng *r) {
    held *h = &m->held[rng_below(r, HANDLES)];
    if (!h->handle) {
        do_save(store, m, h, a, r);
        return;
    }
    switch (rng_below(r, 6)) {
    case 0:
        assert_ok(comet_store_share(store, h->handle));
        h->holders++;
        break;
    case 1:
        do_spill(store, m, h, a);
        break;
    case 2:
    case 3:
        do_load(store, m, h, a);
        break;
    default:
        do_release(store, h);
    }
}

static void finish(comet_store *store, model *m, counting_allocator *a) {
    a->fail_at = 0;
    for (int i = 0; i < HANDLES; i++)
        while (m->held[i].handle)
            do_release(store, &m->held[i]);
    check_model(store, m, a);
    assert_int_equal(stats_of(store).file_bytes, 0);
    comet_store_free(store);
    assert_int_equal(a->live_blocks, 0);
}

static void test_against_the_model(void **state) {
    (void)state;
    for (int seed = 0; seed < effort(12); seed++) {
        counting_allocator a;
        model m = {0};
        rng r = rng_seed(500 + (uint64_t)seed);
        counting_allocator_init(&a);
        comet_store *store = store_of(0, 0, &a.allocator);
        for (int i = 0; i < 400; i++) {
            step(store, &m, &a, &r);
            check_model(store, &m, &a);
            check_peak(store, &m, &a);
        }
        finish(store, &m, &a);
    }
}

/* The n-th allocation of a run of steps fails: that call says so, nothing changes, and the rest goes on. */
static void test_every_allocation_fails_once(void **state) {
    (void)state;
    for (long n = 1;; n++) {
        counting_allocator a;
        comet_store *store = NULL;
        comet_store_options options = COMET_STORE_OPTIONS_INIT;
        model m = {0};
        rng r = rng_seed(77);
        counting_allocator_init(&a);
        a.fail_at = n;
        options.allocator = &a.allocator;
        options.spill_directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
        if (failed(&a, comet_store_new(&options, &store))) {
            assert_int_equal(a.live_blocks, 0);
            continue;
        }
        int steps = EFFORT_SLOW ? 30 : 60;
        for (int i = 0; i < steps; i++) {
            step(store, &m, &a, &r);
            check_model(store, &m, &a);
        }
        int all = a.calls < n;
        finish(store, &m, &a);
        if (all) {
            assert_true(n > steps / 2);
            break;
        }
    }
}

/* ---- threads ---- */

enum { THREADS = 4, BOARD = 8 };

#define COUNT_WRONG(c, condition)                                                                                      \
    do {                                                                                                               \
        if ((condition) && (c)->wrong++ == 0)                                                                          \
            (c)->what = #condition;                                                                                    \
    } while (0)

typedef struct crowd {
    comet_store *store;
    size_t limit;
    pthread_mutex_t lock; /* of the board */
    held board[BOARD];    /* holds on their way from one thread to another */
    atomic_int wrong, done;
    const char *what; /* the first that was wrong */
    atomic_long saved, refused;
} crowd;

typedef struct member {
    crowd *crowd;
    uint64_t seed;
    int steps;
} member;

/* Swaps a hold of one's own (or none) for what is on the board. */
static void exchange(crowd *c, held *mine, rng *r) {
    pthread_mutex_lock(&c->lock);
    held *place = &c->board[rng_below(r, BOARD)], other = *place;
    *place = *mine;
    *mine = other;
    pthread_mutex_unlock(&c->lock);
}

static void crowd_save(crowd *c, held *h, rng *r) {
    int which = (int)rng_below(r, CASES);
    comet_store_item item = cases[which].item;
    item.generation = rng_below(r, 2) ? (uint64_t)which + 1 : 0;
    comet_status status = comet_store_save(c->store, &cases[which].tensor, &item, &h->handle, NULL);
    if (status != COMET_OK) {
        COUNT_WRONG(c, status != COMET_ERROR_CAPACITY);
        c->refused++;
        h->handle = 0;
        return;
    }
    c->saved++;
    h->which = which;
}

static void crowd_step(crowd *c, held *h, rng *r) {
    if (!h->handle) {
        crowd_save(c, h, r);
        return;
    }
    switch (rng_below(r, 8)) {
    case 0:
        exchange(c, h, r);
        break;
    case 1: { /* one hold for the board, one for oneself */
        held copy = *h;
        COUNT_WRONG(c, comet_store_share(c->store, h->handle) != COMET_OK);
        exchange(c, &copy, r);
        if (copy.handle)
            COUNT_WRONG(c, comet_store_release(c->store, copy.handle) != COMET_OK);
        break;
    }
    case 2:
        COUNT_WRONG(c, comet_store_spill(c->store, h->handle) != COMET_OK);
        break;
    case 3:
        COUNT_WRONG(c, comet_store_prefetch(c->store, h->handle) != COMET_OK);
        break;
    case 4:
    case 5:
        COUNT_WRONG(c, !store_case_loads(c->store, h->handle, &cases[h->which]));
        break;
    default:
        COUNT_WRONG(c, comet_store_release(c->store, h->handle) != COMET_OK);
        h->handle = 0;
    }
}

static void *member_main(void *argument) {
    member *me = argument;
    crowd *c = me->crowd;
    held mine[HANDLES / 4] = {{0}};
    rng r = rng_seed(me->seed);
    for (int i = 0; i < me->steps; i++)
        crowd_step(c, &mine[rng_below(&r, HANDLES / 4)], &r);
    for (int i = 0; i < HANDLES / 4; i++)
        if (mine[i].handle)
            COUNT_WRONG(c, comet_store_release(c->store, mine[i].handle) != COMET_OK);
    return NULL;
}

/* Looks all the time whether the limit holds and the figures agree. */
static void *watcher_main(void *argument) {
    crowd *c = argument;
    while (!c->done) {
        comet_store_stats s = {.size = sizeof s};
        COUNT_WRONG(c, comet_store_get_stats(c->store, &s) != COMET_OK);
        if (c->limit) {
            COUNT_WRONG(c, s.live.resident + s.reserved_bytes > c->limit);
            COUNT_WRONG(c, s.peak_used_bytes > c->limit);
        }
        COUNT_WRONG(c, s.scratch_bytes > s.reserved_bytes || s.live.stored > s.live.resident + s.live.spilled);
    }
    return NULL;
}

static void run_crowd(crowd *c, int steps, uint64_t seed) {
    pthread_t threads[THREADS], watcher;
    member members[THREADS];
    pthread_mutex_init(&c->lock, NULL);
    assert_int_equal(pthread_create(&watcher, NULL, watcher_main, c), 0);
    for (int i = 0; i < THREADS; i++) {
        members[i] = (member){c, seed * THREADS + (uint64_t)i, steps};
        assert_int_equal(pthread_create(&threads[i], NULL, member_main, &members[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    c->done = 1;
    pthread_join(watcher, NULL);
    for (int i = 0; i < BOARD; i++)
        if (c->board[i].handle)
            assert_ok(comet_store_release(c->store, c->board[i].handle));
    pthread_mutex_destroy(&c->lock);
}

static void test_threads(void **state) {
    (void)state;
    static const size_t limits[] = {0, 60000, 150000, 400000};
    for (int seed = 0; seed < 8; seed++) {
        crowd c = {.limit = limits[seed % 4]};
        c.store = store_of(c.limit, seed / 4, NULL);
        run_crowd(&c, effort(2000), (uint64_t)seed + 1);
        comet_store_stats s = stats_of(c.store);
        if (c.wrong)
            fail_msg("%d wrong, the first: %s", c.wrong, c.what);
        assert_true(c.saved > 0);
        assert_int_equal(s.saves + s.aliases, c.saved);
        assert_int_equal(s.refused, c.refused);
        assert_int_equal(s.entries, 0);
        assert_int_equal(s.live.raw + s.live.stored + s.live.resident + s.live.spilled, 0);
        assert_int_equal(s.scratch_bytes + s.reserved_bytes + s.file_bytes, 0);
        comet_store_free(c.store);
    }
}

/* Everybody saves the same tensor at the same time: one entry. */
typedef struct rush {
    comet_store *store;
    comet_store_handle handle;
    pthread_barrier_t *start;
} rush;

static void *rush_main(void *argument) {
    rush *me = argument;
    comet_store_item item = cases[2].item;
    item.generation = 5;
    pthread_barrier_wait(me->start);
    if (comet_store_save(me->store, &cases[2].tensor, &item, &me->handle, NULL) != COMET_OK)
        me->handle = 0;
    return NULL;
}

static void test_same_tensor_from_all_threads(void **state) {
    (void)state;
    for (int round = 0; round < effort(100); round++) {
        comet_store *store = store_of(0, 0, NULL);
        pthread_barrier_t start;
        pthread_t threads[THREADS];
        rush all[THREADS];
        pthread_barrier_init(&start, NULL, THREADS);
        for (int i = 0; i < THREADS; i++) {
            all[i] = (rush){store, 0, &start};
            assert_int_equal(pthread_create(&threads[i], NULL, rush_main, &all[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(stats_of(store).entries, 1);
        for (int i = 0; i < THREADS; i++) {
            assert_true(all[i].handle && all[i].handle == all[0].handle);
            assert_true(store_case_loads(store, all[i].handle, &cases[2]));
            assert_ok(comet_store_release(store, all[i].handle));
        }
        assert_int_equal(stats_of(store).entries, 0);
        pthread_barrier_destroy(&start);
        comet_store_free(store);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_model),
        cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_same_tensor_from_all_threads),
    };
    return cmocka_run_group_tests(tests, make_cases, free_cases);
}
