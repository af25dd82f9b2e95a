/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaders of several processes that train together: side by side, their batches are those of one loader with as many
 * times the batch, bit by bit, whatever the order, the epoch, the last batch and the place it goes on from.
 */
#include "test_data_loader_case.h"

enum { MOST_SHARDS_HERE = 4 };

/* As many loaders as shards, and the one that they are compared with. */
typedef struct team {
    comet_loader_options options;
    unsigned shards;
    comet_loader *whole, *parts[MOST_SHARDS_HERE];
} team;

static void team_open(team *t, const comet_dataset *set, comet_split split, int part, unsigned shards,
                      unsigned threads) {
    *t = (team){.options = options_for(split, part * (int)shards, threads), .shards = shards};
    t->whole = open_loader(set, &t->options);
    comet_loader_options o = t->options;
    o.batch = part;
    o.shards = shards;
    for (o.shard = 0; o.shard < shards; o.shard++)
        t->parts[o.shard] = open_loader(set, &o);
}

static void team_close(team *t) {
    comet_loader_free(t->whole);
    for (unsigned i = 0; i < t->shards; i++)
        comet_loader_free(t->parts[i]);
}

static void assert_same_state(const comet_loader *a, const comet_loader *b) {
    comet_loader_state x = comet_loader_get_state(a), y = comet_loader_get_state(b);
    char first[COMET_LOADER_STATE_TEXT], second[COMET_LOADER_STATE_TEXT];
    comet_loader_state_format(&x, first);
    comet_loader_state_format(&y, second);
    assert_string_equal(first, second);
}

/* One batch of all. Returns whether it was the last of its epoch. */
static bool team_step(team *t) {
    const comet_loader_options *o = &t->options;
    const size_t image = (size_t)o->height * (size_t)o->width * (size_t)o->channels;
    const comet_batch whole = next(t->whole);
    int32_t seen = 0;
    for (unsigned i = 0; i < t->shards; i++) {
        const comet_batch part = next(t->parts[i]);
        assert_true(seen + part.count <= whole.count);
        assert_memory_equal(part.pixels, whole.pixels + (size_t)seen * image, (size_t)part.count * image);
        assert_memory_equal(part.labels, whole.labels + seen, (size_t)part.count * sizeof *part.labels);
        assert_int_equal(part.epoch, whole.epoch);
        assert_int_equal(part.last, whole.last);
        if (o->split == COMET_SPLIT_TRAIN) {
            assert_int_equal(part.count, o->batch / (int)t->shards);
            assert_int_equal(part.position, whole.position + seen);
        }
        seen += part.count;
        assert_same_state(t->parts[i], t->whole);
    }
    assert_int_equal(seen, whole.count);
    return whole.last;
}

/* ---- the same samples ---- */

/* 203 and 57 images to train with, 41 and 13 to evaluate with: no batch below divides them. */
static void test_together_they_are_one(void **state) {
    (void)state;
    for (unsigned shards = 1; shards <= MOST_SHARDS_HERE; shards++)
        for (int which = 0; which < 4; which++) {
            team t;
            int ends = 0;
            const comet_split split = which / 2 ? COMET_SPLIT_EVALUATE : COMET_SPLIT_TRAIN;
            team_open(&t, which % 2 ? small_set : folder_set, split, 3, shards, 1 + shards % 3);
            for (unsigned i = 0; i < shards; i++)
                assert_int_equal(comet_loader_batches(t.parts[i]), comet_loader_batches(t.whole));
            for (int64_t b = 0; b < 3 * comet_loader_batches(t.whole); b++)
                ends += team_step(&t);
            assert_int_equal(ends, 3);
            team_close(&t);
        }
}

/*
 * The last batch of an evaluation may leave a shard without samples: it has a batch of none, and goes on with the rest.
 */
static void test_nothing_left(void **state) {
    (void)state;
    comet_loader_options o = options_for(COMET_SPLIT_EVALUATE, 12, 2);
    o.shards = 3;
    o.shard = 2;
    comet_loader *loader = open_loader(small_set, &o);
    assert_int_equal(comet_loader_batches(loader), 2); /* 41 images: 36, and 5 for the first alone */
    for (int epoch = 0; epoch < 3; epoch++) {
        comet_batch batch = next(loader);
        assert_int_equal(batch.count, 12);
        assert_int_equal(batch.position, 24);
        batch = next(loader);
        assert_int_equal(batch.count, 0);
        assert_int_equal(batch.position, 41);
        assert_true(batch.last);
        assert_int_equal(batch.epoch, epoch);
    }
    comet_loader_free(loader);
}

/* ---- going on ---- */

/* From a state that any of them had, in the middle of an epoch. */
static void test_going_on(void **state) {
    (void)state;
    team t, again;
    team_open(&t, folder_set, COMET_SPLIT_TRAIN, 4, 3, 2);
    for (int b = 0; b < 6; b++) { /* 4 are an epoch */
        comet_loader_state s = comet_loader_get_state(t.parts[b % 3]);
        team_open(&again, folder_set, COMET_SPLIT_TRAIN, 4, 3, 1);
        assert_ok(comet_loader_set_state(again.whole, &s, &message));
        for (int i = 0; i < 3; i++)
            assert_ok(comet_loader_set_state(again.parts[i], &s, &message));
        assert_same_state(again.whole, t.whole);
        for (int more = 0; more < 5; more++)
            team_step(&again);
        team_close(&again);
        team_step(&t);
    }
    team_close(&t);
}

/* Two went on where four had been: what all get together is the same as long as the whole batch is. */
static void test_going_on_with_fewer(void **state) {
    (void)state;
    team four, two;
    team_open(&four, small_set, COMET_SPLIT_TRAIN, 3, 4, 1);
    team_open(&two, small_set, COMET_SPLIT_TRAIN, 6, 2, 1);
    for (int b = 0; b < 20; b++)
        team_step(&four);
    comet_loader_state s = comet_loader_get_state(four.parts[3]);
    assert_ok(comet_loader_set_state(two.whole, &s, &message));
    for (int i = 0; i < 2; i++)
        assert_ok(comet_loader_set_state(two.parts[i], &s, &message));
    for (int b = 0; b < 20; b++) {
        team_step(&two);
        team_step(&four);
        assert_same_state(two.whole, four.whole);
    }
    team_close(&four);
    team_close(&two);
}

/* What is left of an epoch is fewer than a whole batch of the new ones: they begin the next. */
static void test_going_on_with_more(void **state) {
    (void)state;
    comet_loader_options o = options_for(COMET_SPLIT_TRAIN, 60, 1);
    comet_loader *loader = open_loader(small_set, &o);
    next(loader);
    next(loader);
    comet_loader_state s = comet_loader_get_state(loader); /* 83 of 203 are left */
    comet_loader_free(loader);
    o.shards = 2;
    o.shard = 1;
    loader = open_loader(small_set, &o);
    assert_ok(comet_loader_set_state(loader, &s, &message));
    comet_batch batch = next(loader);
    assert_int_equal(batch.epoch, 1);
    assert_int_equal(batch.position, 60);
    comet_loader_free(loader);
}

/* ---- options ---- */

static void test_refused(void **state) {
    (void)state;
    comet_loader *loader = NULL;
    comet_loader_options o = options_for(COMET_SPLIT_TRAIN, 6, 1);
    o.shard = 1; /* of one */
    assert_refused(comet_loader_new(small_set, &o, &loader, &message), COMET_ERROR_ARGUMENT, message, "impossible");
    o.shards = 2;
    o.shard = 2;
    assert_refused(comet_loader_new(small_set, &o, &loader, &message), COMET_ERROR_ARGUMENT, message, "impossible");
    o.shards = 1u << 20;
    assert_refused(comet_loader_new(small_set, &o, &loader, &message), COMET_ERROR_ARGUMENT, message, "impossible");
    o.batch = 51; /* 204 together */
    o.shards = 4;
    assert_refused(comet_loader_new(small_set, &o, &loader, &message), COMET_ERROR_ARGUMENT, message,
                   "a batch of 204 is more than all 203 training images");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_together_they_are_one),
                                       cmocka_unit_test(test_nothing_left),
                                       cmocka_unit_test(test_going_on),
                                       cmocka_unit_test(test_going_on_with_fewer),
                                       cmocka_unit_test(test_going_on_with_more),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
