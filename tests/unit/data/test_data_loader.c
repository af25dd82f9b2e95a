/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: what is in them, the same for every number of threads, resumed in the middle of an epoch as if nothing had
 * happened, broken files reported and replaced, memory as announced.
 */
#include "test_data_loader_case.h"

#include <math.h>
#include <time.h>

#include "data/image/transform.h"
#include "data/loader/order.h"
#include "support/counting_allocator.h"
#include "support/effort.h"
#include "support/slow_set.h"

/* ---- helpers ---- */

typedef struct report_list {
    int count;
    char text[8192];
} report_list;

static void add_report(void *context, const char *line) {
    report_list *list = context;
    list->count++;
    strncat(list->text, line, sizeof list->text - strlen(list->text) - 2);
    strcat(list->text, "\n");
}

/* All of a batch in one number. */
static uLong checksum(const comet_batch *batch, const comet_loader_options *o) {
    size_t image = (size_t)o->height * (size_t)o->width * (size_t)o->channels;
    uLong crc = crc32_z(0, batch->pixels, (size_t)batch->count * image);
    crc = crc32_z(crc, (const Bytef *)batch->labels, (size_t)batch->count * sizeof *batch->labels);
    crc = crc32_z(crc, (const Bytef *)&batch->epoch, sizeof batch->epoch);
    return crc32_z(crc, (const Bytef *)&batch->position, sizeof batch->position);
}

/* ---- contents ---- */

/* Against the parts the loader is made of. */
static void test_contents(void **state) {
    (void)state;
    static uint8_t workspace[1 << 20], expected[24 * 20 * 3];
    comet_loader_options o = options_for(COMET_SPLIT_TRAIN, 10, 2);
    comet_augment_rule rule = {COMET_AUGMENT_CROP, 1.0, 0};
    comet_loader *loader = open_loader(small_set, &o);
    assert_int_equal(comet_loader_batches(loader), 20);
    for (int b = 0; b < 45; b++) {
        comet_batch batch = next(loader);
        assert_int_equal(batch.count, 10);
        assert_int_equal(batch.epoch, b / 20);
        assert_int_equal(batch.position, b % 20 * 10);
        assert_int_equal(batch.last, b % 20 == 19);
        for (int i = 0; i < 10; i++) {
            int64_t sample = comet_order_at(99, batch.epoch, 203, batch.position + i);
            comet_image image;
            assert_ok(comet_dataset_read(small_set, COMET_SPLIT_TRAIN, sample, NULL, &image, &message));
            comet_view view = comet_augment_view(&rule, 99, batch.epoch, sample, 28, 28, 24, 20);
            comet_transform(&image, &view, 24, 20, 3, workspace, expected);
            assert_memory_equal(batch.pixels + i * (int)sizeof expected, expected, sizeof expected);
            assert_int_equal(batch.labels[i], comet_dataset_label(small_set, COMET_SPLIT_TRAIN, sample));
        }
    }
    comet_loader_free(loader);
}

/* Each sample once, in order, without randomness; the last batch is smaller; epochs are the same. */
static void test_evaluation(void **state) {
    (void)state;
    comet_loader_options o = options_for(COMET_SPLIT_EVALUATE, 9, 2);
    o.augment = COMET_AUGMENT_CROP; /* not looked at */
    o.height = o.width = 28;
    o.channels = 1;
    comet_loader *loader = open_loader(small_set, &o);
    assert_int_equal(comet_loader_batches(loader), 5);
    for (int epoch = 0; epoch < 3; epoch++)
        for (int b = 0; b < 5; b++) {
            comet_batch batch = next(loader);
            assert_int_equal(batch.count, b < 4 ? 9 : 5);
            assert_int_equal(batch.epoch, epoch);
            assert_int_equal(batch.last, b == 4);
            for (int i = 0; i < batch.count; i++) {
                comet_image image;
                assert_ok(comet_dataset_read(small_set, COMET_SPLIT_EVALUATE, 9 * b + i, NULL, &image, &message));
                assert_memory_equal(batch.pixels + i * 784, image.pixels, 784);
                assert_int_equal(batch.labels[i], comet_dataset_label(small_set, COMET_SPLIT_EVALUATE, 9 * b + i));
            }
        }
    comet_loader_free(loader);
}

/* A part of the split stands for all of it: each class gives its share, and `samples` says which ones they are. */
static void test_drawn(void **state) {
    (void)state;
    for (int most = 1; most <= 45; most++) {
        comet_loader_options o = options_for(COMET_SPLIT_EVALUATE, 4, 2);
        int of_class[10] = {0}, all[10] = {0}, count = 0;
        int64_t last = -1;
        o.most = most;
        comet_loader *loader = open_loader(small_set, &o);
        for (comet_batch batch = {.last = false}; !batch.last;) {
            batch = next(loader);
            for (int i = 0; i < batch.count; i++, count++) {
                assert_true(batch.samples[i] > last);
                last = batch.samples[i];
                assert_int_equal(batch.labels[i], comet_dataset_label(small_set, COMET_SPLIT_EVALUATE, last));
                of_class[batch.labels[i]]++;
            }
        }
        assert_int_equal(count, most < 41 ? most : 41);
        for (int i = 0; i < 41; i++)
            all[comet_dataset_label(small_set, COMET_SPLIT_EVALUATE, i)]++;
        for (int c = 0; c < 10; c++)
            assert_true(fabs(of_class[c] - all[c] * count / 41.0) < 1);
        comet_loader_free(loader);
    }
}

/* ---- determinism ---- */

enum { SEQUENCE = 40 };

static void take_sequence(const comet_dataset *set, const comet_loader_options *o, uLong sums[SEQUENCE], int pause) {
    comet_loader *loader = open_loader(set, o);
    for (int b = 0; b < SEQUENCE; b++) {
        comet_batch batch = next(loader);
        sums[b] = checksum(&batch, o);
        if (pause && b % 7 == 0)
            nanosleep(&(struct timespec){0, 2000000}, NULL); /* the threads get ahead */
        uLong again = checksum(&batch, o);
        assert_int_equal(sums[b], again); /* nobody writes to what the caller holds */
    }
    comet_loader_free(loader);
}

static void test_threads_do_not_matter(void **state) {
    (void)state;
    for (int which = 0; which < 4; which++) {
        const comet_dataset *set = which % 2 ? small_set : folder_set;
        comet_split split = which / 2 ? COMET_SPLIT_EVALUATE : COMET_SPLIT_TRAIN;
        uLong expected[SEQUENCE], sums[SEQUENCE];
        comet_loader_options o = options_for(split, 6, 1);
        take_sequence(set, &o, expected, 0);
        static const unsigned threads[] = {1, 2, 4, 7}, batches[] = {5, 2, 3, 8};
        for (int i = 0; i < 4; i++) {
            o.threads = threads[i];
            o.batches = batches[i];
            take_sequence(set, &o, sums, 1);
            assert_memory_equal(sums, expected, sizeof sums);
        }
        o.seed = 100;
        take_sequence(set, &o, sums, 0);
        if (split == COMET_SPLIT_TRAIN)
            assert_memory_not_equal(sums, expected, sizeof sums);
        else
            assert_memory_equal(sums, expected, sizeof sums);
    }
}

/* ---- resuming ---- */

/* From every batch on: by a state as text in a new loader, and going back in the same one. */
static void check_resuming(const comet_dataset *set, unsigned threads) {
    uLong expected[SEQUENCE];
    char texts[SEQUENCE][COMET_LOADER_STATE_TEXT];
    comet_loader_options o = options_for(COMET_SPLIT_TRAIN, 6, threads), other = o;
    other.seed = 1; /* the state's counts */
    comet_loader *loader = open_loader(set, &o);
    for (int b = 0; b < SEQUENCE; b++) {
        comet_loader_state s = comet_loader_get_state(loader);
        comet_loader_state_format(&s, texts[b]);
        comet_batch batch = next(loader);
        expected[b] = checksum(&batch, &o);
    }
    for (int from = 0; from < SEQUENCE; from += 3) {
        comet_loader_state s;
        assert_ok(comet_loader_state_parse(texts[from], &s));
        comet_loader *resumed = open_loader(set, &other);
        assert_ok(comet_loader_set_state(resumed, &s, &message));
        assert_ok(comet_loader_set_state(loader, &s, &message));
        for (int b = from; b < SEQUENCE && b < from + 9; b++) {
            comet_batch one = next(resumed), two = next(loader);
            assert_int_equal(checksum(&one, &o), expected[b]);
            assert_int_equal(checksum(&two, &o), expected[b]);
        }
        comet_loader_free(resumed);
    }
    comet_loader_free(loader);
}

static void test_resuming(void **state) {
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads *= 2) {
        check_resuming(small_set, threads);
        check_resuming(folder_set, threads);
    }
}

/* Another batch size goes on at the same sample. */
static void test_resuming_with_another_batch(void **state) {
    (void)state;
    comet_loader_options o = options_for(COMET_SPLIT_TRAIN, 6, 2), larger = options_for(COMET_SPLIT_TRAIN, 50, 2);
    comet_loader *loader = open_loader(small_set, &o), *other = open_loader(small_set, &larger);
    for (int b = 0; b < 5; b++)
        next(loader);
    comet_loader_state s = comet_loader_get_state(loader);
    assert_ok(comet_loader_set_state(other, &s, &message));
    comet_batch batch = next(other);
    assert_int_equal(batch.position, 30);
    for (int b = 5; b < 33; b++)
        next(loader);
    s = comet_loader_get_state(loader); /* 198 of 203: no batch of 6 is left, so it is the next epoch's first */
    assert_int_equal(s.epoch, 1);
    assert_int_equal(s.position, 0);
    s.epoch = 0;
    s.position = 160; /* 43 are left: fewer than 50 */
    assert_ok(comet_loader_set_state(other, &s, &message));
    batch = next(other);
    assert_int_equal(batch.epoch, 1);
    assert_int_equal(batch.position, 0);
    comet_loader_free(loader);
    comet_loader_free(other);
}

static void test_wrong_states(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "seed=1",
                                        "seed=1 epoch=2 position=3 count=4",
                                        "x",
                                        "seed=1 epoch=2 position=3 count=4 digest=5 ",
                                        "seed=-1 epoch=2 position=3 count=4 digest=5",
                                        "seed=1 epoch=2 position=3 count=4 digest=99999999999",
                                        "seed=1 epoch=2  position=3 count=4 digest=5"};
    comet_loader_state s;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_status(comet_loader_state_parse(texts[i], &s), COMET_ERROR_CORRUPT);
    comet_loader_options o = options_for(COMET_SPLIT_TRAIN, 6, 1);
    comet_loader *loader = open_loader(small_set, &o);
    s = comet_loader_get_state(loader);
    s.count++;
    assert_refused(comet_loader_set_state(loader, &s, &message), COMET_ERROR_MISMATCH, message,
                   "204 images then, 203 now");
    s.count--;
    s.digest ^= 1;
    assert_refused(comet_loader_set_state(loader, &s, &message), COMET_ERROR_MISMATCH, message,
                   "other names or labels");
    s.digest ^= 1;
    s.position = 203;
    assert_refused(comet_loader_set_state(loader, &s, &message), COMET_ERROR_CORRUPT, message, "outside");
    s.position = -1;
    assert_refused(comet_loader_set_state(loader, &s, &message), COMET_ERROR_CORRUPT, message, "outside");
    comet_loader_free(loader);
}

/* ---- broken files ---- */

static void test_broken_files_are_replaced(void **state) {
    (void)state;
    report_list reports[2] = {0};
    for (int run = 0; run < 2; run++) {
        comet_loader_options o = options_for(COMET_SPLIT_TRAIN, IMAGES, run ? 4 : 1);
        o.report = add_report;
        o.report_context = &reports[run];
        comet_loader *loader = open_loader(folder_set, &o);
        for (int epoch = 0; epoch < 3; epoch++) {
            comet_batch batch = next(loader);
            assert_int_equal(batch.count, IMAGES);
            for (int i = 0; i < IMAGES; i++) {
                int sample = (int)comet_order_at(99, batch.epoch, IMAGES, i);
                while (is_broken(sample))
                    sample++;
                assert_int_equal(batch.labels[i], sample / 20);
            }
        }
        comet_loader_free(loader);
        assert_int_equal(reports[run].count, BROKEN);
        assert_non_null(strstr(reports[run].text, "class0/005.jpg'"));
    }
    assert_string_equal(reports[0].text, reports[1].text);
}

static void test_broken_files_are_left_out(void **state) {
    (void)state;
    report_list reports = {0};
    comet_loader_options o = options_for(COMET_SPLIT_EVALUATE, 4, 3);
    static const int counts[] = {3, 4, 4, 0};
    o.report = add_report;
    o.report_context = &reports;
    comet_loader *loader = open_loader(folder_set, &o);
    for (int epoch = 0; epoch < 2; epoch++)
        for (int b = 0; b < 4; b++) {
            comet_batch batch = next(loader);
            assert_int_equal(batch.count, counts[b]);
            assert_int_equal(batch.last, b == 3);
            for (int i = 0; i < batch.count; i++)
                assert_int_equal(batch.labels[i], (4 * b + i + (b == 0 && i == 2)) / 5);
        }
    assert_int_equal(reports.count, 2);
    comet_loader_free(loader);
}

static void test_nothing_but_broken_files(void **state) {
    (void)state;
    char name[64], spec[128];
    comet_dataset *set = NULL;
    comet_batch batch;
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "broken/%s/class%d/%d.png", i % 3 ? "train" : "val", i % 2, i);
        write_bytes(in_new_folder(name), "x", 1);
    }
    snprintf(spec, sizeof spec, "folder:%s", in_folder("broken"));
    assert_ok(comet_dataset_open(spec, NULL, &set, &message));
    comet_loader_options o = options_for(COMET_SPLIT_TRAIN, 2, 2);
    comet_loader *loader = open_loader(set, &o);
    for (int i = 0; i < 3; i++)
        assert_refused(comet_loader_next(loader, &batch, &message), COMET_ERROR_CORRUPT, message,
                       "neither a JPEG nor a PNG");
    comet_loader_free(loader);
    comet_dataset_free(set);
}

/* ---- options and memory ---- */

static void test_wrong_options(void **state) {
    (void)state;
    comet_loader *loader;
    size_t bytes;
    comet_loader_options good = options_for(COMET_SPLIT_TRAIN, 6, 2);
    for (int i = 0; i < 9; i++) {
        comet_loader_options o = good;
        o.batch = i == 0 ? 0 : i == 1 ? -5 : o.batch;
        o.height = i == 2 ? 0 : i == 3 ? 100000 : o.height;
        o.channels = i == 4 ? 2 : o.channels;
        o.threads = i == 5 ? 100000 : o.threads;
        o.batches = i == 6 ? 1 : o.batches;
        o.decode_bytes = i == 7 ? 1000 : o.decode_bytes;
        o.least_area = i == 8 ? 1.5 : o.least_area;
        assert_refused(comet_loader_new(small_set, &o, &loader, &message), COMET_ERROR_ARGUMENT, message, "impossible");
        assert_status(comet_loader_memory(small_set, &o, &bytes, &message), COMET_ERROR_ARGUMENT);
    }
    good.batch = 204;
    assert_refused(comet_loader_new(small_set, &good, &loader, &message), COMET_ERROR_ARGUMENT, message,
                   "a batch of 204 is more than all 203 training images");
    good.split = COMET_SPLIT_EVALUATE;
    comet_loader_free(open_loader(small_set, &good));
    comet_loader_free(NULL);
}

/* Taken when it is made, all of it through the allocator but for threads and the libraries; none later. */
static void test_memory(void **state) {
    (void)state;
    for (int decoded = 0; decoded < 2; decoded++) {
        const comet_dataset *set = decoded ? folder_set : small_set;
        counting_allocator a;
        comet_loader *loader;
        size_t bytes;
        comet_loader_options o = options_for(COMET_SPLIT_TRAIN, 8, 3);
        o.allocator = &a.allocator;
        counting_allocator_init(&a);
        a.fail_at = 1;
        assert_refused(comet_loader_new(set, &o, &loader, &message), COMET_ERROR_MEMORY, message, "memory");
        assert_int_equal(a.live_blocks, 0);
        counting_allocator_init(&a);
        assert_ok(comet_loader_memory(set, &o, &bytes, &message));
        loader = open_loader(set, &o);
        long calls = a.calls;
        const comet_decode_need *need = &comet_dataset_get_info(set)->need;
        size_t library = decoded ? comet_decoder_library_bytes(need->whole, need->width) : 0;
        size_t live = (size_t)a.live_bytes, beside = 3 * ((512 << 10) + library);
        assert_int_equal(live + beside, bytes);
        size_t resident, batches = (size_t)o.batches * (size_t)o.batch * (size_t)(o.height * o.width * o.channels);
        assert_ok(comet_loader_resident(set, &o, &resident, &message));
        assert_true(resident > batches && resident < (decoded ? bytes / 2 : bytes));
        for (int b = 0; b < 30; b++)
            next(loader);
        assert_int_equal(a.calls, calls);
        comet_loader_free(loader);
        assert_int_equal(a.live_blocks, 0);
        assert_int_equal(a.wrong_sizes, 0);
    }
}

/* Loaders that are not waited for, and that have not delivered anything. */
static void test_early_end(void **state) {
    (void)state;
    for (int i = 0; i < effort(60); i++) {
        comet_loader_options o =
            options_for(i % 2 ? COMET_SPLIT_TRAIN : COMET_SPLIT_EVALUATE, 4, (unsigned)(1 + i % 4));
        comet_loader *loader = open_loader(i % 3 ? small_set : folder_set, &o);
        comet_loader_state s = comet_loader_get_state(loader);
        for (int b = 0; b < i % 4; b++)
            next(loader);
        if (i % 5 == 0)
            assert_ok(comet_loader_set_state(loader, &s, &message));
        comet_loader_free(loader);
    }
}

/* ---- who waits ---- */

/* A caller that takes batches at once waits for slow images, one that takes its time for none. */
static void test_waits(void **state) {
    (void)state;
    comet_loader_options o = options_for(COMET_SPLIT_TRAIN, 5, 1);
    slow_down(small_set, 10);
    comet_loader *loader = open_loader(small_set, &o);
    for (int b = 0; b < 4; b++)
        next(loader);
    comet_loader_waits w = comet_loader_get_waits(loader);
    assert_int_equal(w.batches, 4);
    assert_int_equal(w.late, 4);
    assert_true(w.caller_ms > 0.9 * 4 * 5 * 10);
    assert_true(w.threads_ms < 0.5 * w.caller_ms); /* there is always room */
    comet_loader_free(loader);
    quicken(small_set);
    o.threads = 2;
    loader = open_loader(small_set, &o);
    const double start = comet_loader_get_waits(loader).threads_ms;
    for (int b = 0; b < 4; b++) {
        sleep_ms(100);
        next(loader);
    }
    w = comet_loader_get_waits(loader);
    assert_int_equal(w.late, 0);
    assert_true(w.caller_ms == 0);
    assert_true(w.threads_ms - start > 0.5 * 400 && w.threads_ms < 100e3);
    sleep_ms(50); /* what is waited right now counts, too */
    assert_true(comet_loader_get_waits(loader).threads_ms > w.threads_ms + 40);
    comet_loader_free(loader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_resuming),
        cmocka_unit_test(test_resuming_with_another_batch),
        cmocka_unit_test(test_wrong_states),
        cmocka_unit_test(test_broken_files_are_replaced),
        cmocka_unit_test(test_broken_files_are_left_out),
        cmocka_unit_test(test_nothing_but_broken_files),
        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_early_end),
        cmocka_unit_test(test_waits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
