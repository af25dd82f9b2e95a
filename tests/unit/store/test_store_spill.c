/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spill file: extents against a model, everything a disk can do wrong, moving entries there and reading them ahead.
 */
#include "support/assert_ok.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "store/host/store.h"
#include "support/effort.h"
#include "support/store_case.h"

static const char *directory(void) {
    return getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
}

/* ---- a disk that can be told what to do ---- */

typedef struct disk {
    store_io io;
    long calls, fail_at; /* reads and writes counted from 1; 0: none fails */
    int error;           /* errno of the one that fails; 0: it moves nothing */
    size_t most;         /* bytes a call moves at most; 0: all */
    int interrupt;       /* every second call is interrupted */
    int flip;            /* reading changes a byte */
    int truncated;
} disk;

/* Whether the call goes on, and with how many bytes. */
static int disk_admits(disk *d, size_t *bytes, ssize_t *answer) {
    d->calls++;
    if (d->interrupt && d->calls % 2) {
        errno = EINTR;
        *answer = -1;
        return 0;
    }
    if (d->calls == d->fail_at) {
        errno = d->error;
        *answer = d->error ? -1 : 0;
        return 0;
    }
    *bytes = d->most && *bytes > d->most ? d->most : *bytes;
    return 1;
}

static ssize_t disk_write(void *context, int file, const void *data, size_t bytes, off_t offset) {
    ssize_t answer;
    return disk_admits(context, &bytes, &answer) ? pwrite(file, data, bytes, offset) : answer;
}

static ssize_t disk_read(void *context, int file, void *data, size_t bytes, off_t offset) {
    disk *d = context;
    ssize_t answer;
    if (!disk_admits(d, &bytes, &answer))
        return answer;
    answer = pread(file, data, bytes, offset);
    if (d->flip && answer > 0)
        ((unsigned char *)data)[answer / 2] ^= 4;
    return answer;
}

static int disk_truncate(void *context, int file, off_t bytes) {
    ((disk *)context)->truncated++;
    return ftruncate(file, bytes);
}

static void disk_init(disk *d) {
    *d = (disk){.io = {d, disk_write, disk_read, disk_truncate}};
}

static comet_store *store_on(disk *d, size_t limit, uint64_t spill_limit, int checksum, int background) {
    comet_store_options options = COMET_STORE_OPTIONS_INIT;
    comet_store *store;
    options.limit_bytes = limit;
    options.spill_directory = directory();
    options.spill_limit_bytes = spill_limit;
    options.spill_checksum = checksum;
    options.background = background;
    assert_ok(comet_store_new_with(&d->io, &options, &store));
    return store;
}

static comet_store_stats stats_of(comet_store *store) {
    comet_store_stats stats = {.size = sizeof stats};
    assert_ok(comet_store_get_stats(store, &stats));
    return stats;
}

/* ---- extents ---- */

enum { EXTENTS = 64 };

/*
 * Used ones do not overlap; the list is in order, without gaps, without two free neighbours, and ends with a used one.
 */
static void check_extents(const spill_file *f, spill_extent *const used[EXTENTS]) {
    uint64_t end = 0;
    int count = 0, expected = 0;
    for (const spill_extent *e = f->first; e; e = e->above) {
        assert_int_equal(e->offset, end);
        assert_true(e->bytes > 0 && e->bytes % SPILL_UNIT == 0);
        assert_true(!e->above || e->above->below == e);
        assert_true(e->used || (e->above && e->above->used));
        end += e->bytes;
        count += e->used;
    }
    assert_int_equal(end, f->end);
    for (int i = 0; i < EXTENTS; i++)
        expected += used[i] != NULL;
    assert_int_equal(count, expected);
}

static void test_extents(void **state) {
    (void)state;
    for (int seed = 0; seed < effort(20); seed++) {
        disk d;
        spill_file f;
        spill_extent *used[EXTENTS] = {0}, *unused[3];
        rng r = rng_seed((uint64_t)seed);
        disk_init(&d);
        assert_ok(comet_spill_open(&f, &d.io, directory(), 100 * SPILL_UNIT));
        for (int step = 0; step < 1000; step++) {
            int i = (int)rng_below(&r, EXTENTS);
            if (used[i]) {
                comet_spill_free(&f, used[i], unused);
                used[i] = NULL;
                for (int k = 0; k < 3; k++)
                    free(unused[k]);
            } else {
                uint64_t bytes = 1 + rng_below(&r, 10 * SPILL_UNIT);
                spill_extent *left = NULL;
                comet_status status = comet_spill_place(&f, bytes, malloc(sizeof *left), &used[i], &left);
                free(left);
                assert_true(status == COMET_OK ? used[i]->bytes >= bytes : status == COMET_ERROR_DISK_FULL);
            }
            check_extents(&f, used);
            assert_true(f.end <= 100 * SPILL_UNIT);
        }
        for (int i = 0; i < EXTENTS; i++)
            if (used[i]) {
                comet_spill_free(&f, used[i], unused);
                for (int k = 0; k < 3; k++)
                    free(unused[k]);
            }
        assert_null(f.first);
        assert_null(f.last);
        assert_int_equal(f.end, 0);
        assert_true(d.truncated > 0);
        comet_spill_close(&f);
    }
}

/* The same tensors again and again take the same space. */
static void test_space_is_used_again(void **state) {
    (void)state;
    disk d;
    rng r = rng_seed(2);
    store_case c;
    disk_init(&d);
    comet_store *store = store_on(&d, 0, 0, 0, 0);
    comet_store_handle kept, handle, first = 0;
    store_case_new(&c, 1, 10000, &r);
    for (int i = 0; i < 20; i++) {
        assert_ok(comet_store_save(store, &c.tensor, &c.item, &kept, NULL));
        assert_ok(comet_store_save(store, &c.tensor, &c.item, &handle, NULL));
        if (first)
            assert_ok(comet_store_release(store, first));
        assert_ok(comet_store_release(store, handle));
        first = kept;
    }
    assert_true(stats_of(store).peak_file_bytes <= 4 * (uint64_t)c.count * 4);
    comet_store_free(store);
    store_case_free(&c);
}

/* ---- what disks do ---- */

/* Short and interrupted calls are not errors. */
static void test_short_calls(void **state) {
    (void)state;
    rng r = rng_seed(3);
    for (int form = 0; form < store_form_count(); form++) {
        disk d;
        store_case c;
        comet_store_handle handle;
        disk_init(&d);
        d.most = 777;
        d.interrupt = 1;
        comet_store *store = store_on(&d, 0, 0, form % 2, 0);
        store_case_new(&c, form, 9000, &r);
        assert_ok(comet_store_save(store, &c.tensor, &c.item, &handle, NULL));
        if (!c.item.offload)
            assert_ok(comet_store_spill(store, handle));
        assert_true(store_case_loads(store, handle, &c));
        comet_store_free(store);
        store_case_free(&c);
    }
}

static void assert_same(const comet_store_stats *a, const comet_store_stats *b) {
    assert_memory_equal(&a->live, &b->live, sizeof a->live);
    assert_int_equal(a->entries, b->entries);
    assert_int_equal(a->overhead_bytes, b->overhead_bytes);
    assert_int_equal(a->file_bytes, b->file_bytes);
    assert_int_equal(b->reserved_bytes, 0);
}

/* Every write fails once, in every way: the save fails, all else is as it was, and the next save works. */
static void check_write_failures(int form, int error, comet_status expected) {
    rng r = rng_seed(4);
    store_case c, other;
    disk d;
    disk_init(&d);
    comet_store *store = store_on(&d, 0, 0, 0, 0);
    comet_store_handle kept, handle = 0;
    store_case_new(&other, 3, 5000, &r);
    store_case_new(&c, form, 5000, &r);
    assert_ok(comet_store_save(store, &other.tensor, &other.item, &kept, NULL));
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &handle, NULL)); /* its account stays */
    assert_ok(comet_store_release(store, handle));
    d.most = 3000;
    for (long n = 1;; n++) {
        comet_store_stats before = stats_of(store);
        d.calls = 0;
        d.fail_at = n;
        d.error = error;
        comet_status status = comet_store_save(store, &c.tensor, &c.item, &handle, NULL);
        d.fail_at = 0;
        if (status == COMET_OK) {
            assert_true(n > 1);
            break;
        }
        assert_int_equal(status, expected);
        comet_store_stats after = stats_of(store);
        assert_same(&before, &after);
        assert_true(store_case_loads(store, kept, &other));
    }
    assert_true(store_case_loads(store, handle, &c));
    comet_store_free(store);
    store_case_free(&c);
    store_case_free(&other);
}

static void test_writes_fail(void **state) {
    (void)state;
    static const struct {
        int error;
        comet_status status;
    } ways[] = {{ENOSPC, COMET_ERROR_DISK_FULL},
                {EFBIG, COMET_ERROR_DISK_FULL},
                {EIO, COMET_ERROR_IO},
                {0, COMET_ERROR_DISK_FULL}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        check_write_failures(1, ways[i].error, ways[i].status);
        check_write_failures(3, ways[i].error, ways[i].status);
    }
}

/* Moving an entry fails: it stays where it is. */
static void test_moves_fail(void **state) {
    (void)state;
    rng r = rng_seed(5);
    store_case c;
    disk d;
    disk_init(&d);
    comet_store *store = store_on(&d, 0, 0, 0, 0);
    comet_store_handle handle;
    store_case_new(&c, 2, 5000, &r);
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &handle, NULL));
    comet_store_stats before = stats_of(store);
    d.fail_at = 1;
    d.error = ENOSPC;
    assert_status(comet_store_spill(store, handle), COMET_ERROR_DISK_FULL);
    comet_store_stats after = stats_of(store);
    assert_same(&before, &after);
    assert_true(store_case_loads(store, handle, &c));
    assert_ok(comet_store_spill(store, handle));
    assert_ok(comet_store_spill(store, handle)); /* there already */
    assert_true(store_case_loads(store, handle, &c));
    comet_store_free(store);
    store_case_free(&c);
}

static void check_reads(int form, int checksum, disk *d, comet_status expected) {
    rng r = rng_seed(6);
    store_case c;
    comet_store_handle handle;
    disk quiet = *d;
    disk_init(d);
    comet_store *store = store_on(d, 0, 0, checksum, 0);
    store_case_new(&c, form, 6000, &r);
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &handle, NULL));
    comet_tensor out = c.tensor;
    out.data = malloc((size_t)c.count * sizeof(float));
    d->fail_at = quiet.fail_at ? d->calls + quiet.fail_at : 0;
    d->error = quiet.error;
    d->flip = quiet.flip;
    assert_status(comet_store_load(store, handle, &out), expected);
    d->fail_at = d->flip = 0;
    assert_ok(comet_store_load(store, handle, &out)); /* the entry is still there */
    assert_int_equal(stats_of(store).reserved_bytes, 0);
    free(out.data);
    comet_store_free(store);
    store_case_free(&c);
}

static void test_reads_fail(void **state) {
    (void)state;
    for (int form = 1; form <= 3; form += 2) {
        disk d = {.fail_at = 1, .error = EIO};
        check_reads(form, 0, &d, COMET_ERROR_IO);
        d = (disk){.fail_at = 1, .error = 0}; /* the file ends too early */
        check_reads(form, 0, &d, COMET_ERROR_CORRUPT);
        d = (disk){.flip = 1};
        check_reads(form, 1, &d, COMET_ERROR_CHECKSUM);
    }
}

/* Really cut short, behind the store's back. */
static void test_truncated_file(void **state) {
    (void)state;
    rng r = rng_seed(7);
    for (int form = 1; form <= 3; form += 2) {
        store_case c;
        disk d;
        comet_store_handle handle;
        disk_init(&d);
        comet_store *store = store_on(&d, 0, 0, 0, 0);
        store_case_new(&c, form, 6000, &r);
        assert_ok(comet_store_save(store, &c.tensor, &c.item, &handle, NULL));
        comet_tensor out = c.tensor;
        out.data = malloc((size_t)c.count * sizeof(float));
        assert_int_equal(ftruncate(store->spill.file, 1000), 0);
        assert_status(comet_store_load(store, handle, &out), COMET_ERROR_CORRUPT);
        assert_ok(comet_store_prefetch(store, handle));
        assert_ok(comet_store_release(store, handle));
        free(out.data);
        comet_store_free(store);
        store_case_free(&c);
    }
}

/* The system's own limit on files, and the store's. */
static void test_file_limits(void **state) {
    (void)state;
    rng r = rng_seed(8);
    store_case c;
    disk d;
    comet_store_handle first, second;
    store_case_new(&c, 1, 6000, &r);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (int own = 0; own < 2; own++) {
        uint64_t most = (uint64_t)c.count * 4 + 5000;
        disk_init(&d);
        comet_store *store = store_on(&d, 0, own ? most : 0, 0, 0);
        small = before;
        small.rlim_cur = (rlim_t)most;
        void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
        if (!own)
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        comet_status one = comet_store_save(store, &c.tensor, &c.item, &first, NULL);
        comet_status two = comet_store_save(store, &c.tensor, &c.item, &second, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        signal(SIGXFSZ, handler);
        assert_status(one, COMET_OK);
        assert_status(two, COMET_ERROR_DISK_FULL);
        assert_true(store_case_loads(store, first, &c));
        assert_int_equal(stats_of(store).refused, 1);
        comet_store_free(store);
    }
    store_case_free(&c);
}

/* What does not fit in memory and not on the disk is refused, with what is there intact. */
static void test_memory_and_disk_full(void **state) {
    (void)state;
    rng r = rng_seed(9);
    store_case c;
    disk d;
    comet_store_handle a, b, e;
    disk_init(&d);
    store_case_new(&c, 0, 16000, &r);
    comet_store *store = store_on(&d, 100000, 70000, 0, 0);
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &a, NULL));
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &b, NULL));
    assert_status(comet_store_save(store, &c.tensor, &c.item, &e, NULL), COMET_ERROR_DISK_FULL);
    assert_true(store_case_loads(store, a, &c));
    assert_true(store_case_loads(store, b, &c));
    assert_int_equal(stats_of(store).overflows, 1);
    comet_store_free(store);
    store_case_free(&c);
}

/* ---- reading ahead ---- */

/* Until the store's thread has read `count` entries in all; 0 if it does not. */
static int wait_for(comet_store *store, uint64_t count) {
    for (int i = 0; i < 5000; i++) {
        if (stats_of(store).prefetched >= count)
            return 1;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return 0;
}

static void test_prefetch(void **state) {
    (void)state;
    enum { CASES = 6 };
    static store_case cases[CASES];
    comet_store_handle handles[CASES];
    disk d;
    rng r = rng_seed(10);
    disk_init(&d);
    comet_store *store = store_on(&d, 0, 0, 1, 1);
    for (int i = 0; i < CASES; i++) {
        store_case_new(&cases[i], i % 2 ? 1 : 3, 4000, &r);
        assert_ok(comet_store_save(store, &cases[i].tensor, &cases[i].item, &handles[i], NULL));
    }
    assert_int_equal(stats_of(store).live.resident, 0);
    for (int i = 0; i < CASES; i++) {
        assert_ok(comet_store_prefetch(store, handles[i]));
        assert_ok(comet_store_prefetch(store, handles[i]));
    }
    assert_true(wait_for(store, CASES));
    comet_store_stats s = stats_of(store);
    assert_int_equal(s.prefetched, CASES);
    assert_true(s.live.resident >= s.live.stored);
    long calls = d.calls;
    for (int i = 0; i < CASES; i++)
        assert_true(store_case_loads(store, handles[i], &cases[i]));
    assert_int_equal(d.calls, calls); /* the file was not read again */
    assert_int_equal(stats_of(store).prefetched_used, CASES);
    for (int i = 0; i < CASES; i++) {
        assert_ok(comet_store_release(store, handles[i]));
        store_case_free(&cases[i]);
    }
    assert_int_equal(stats_of(store).live.resident, 0);
    comet_store_free(store);
}

/* Copies read ahead make way for saves, and a copy for which there is no room is read when there is. */
static void test_prefetch_within_the_limit(void **state) {
    (void)state;
    disk d;
    rng r = rng_seed(11);
    store_case c;
    comet_store_handle spilled[2], kept, more;
    disk_init(&d);
    store_case_new(&c, 1, 16000, &r);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), one = ((size_t)c.count * 4 + page - 1) / page * page;
    comet_store *store = store_on(&d, 2 * one, 0, 0, 1);
    for (int i = 0; i < 2; i++)
        assert_ok(comet_store_save(store, &c.tensor, &c.item, &spilled[i], NULL));
    c.item.offload = 0;
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &kept, NULL));
    for (int i = 0; i < 2; i++)
        assert_ok(comet_store_prefetch(store, spilled[i]));
    assert_true(wait_for(store, 1));
    assert_int_equal(stats_of(store).live.resident, 2 * one);
    assert_ok(comet_store_save(store, &c.tensor, &c.item, &more, NULL)); /* in the place of the copy */
    comet_store_stats s = stats_of(store);
    assert_int_equal(s.overflows, 0);
    assert_true(s.peak_used_bytes <= 2 * one);
    for (int i = 0; i < 2; i++)
        assert_true(store_case_loads(store, spilled[i], &c));
    assert_ok(comet_store_release(store, kept));
    assert_true(wait_for(store, 2)); /* the second hint was still waiting */
    assert_ok(comet_store_release(store, more));
    for (int i = 0; i < 2; i++)
        assert_ok(comet_store_release(store, spilled[i]));
    assert_int_equal(stats_of(store).live.resident, 0);
    comet_store_free(store);
    store_case_free(&c);
}

/* A store may go with hints that were not followed. */
static void test_free_while_reading(void **state) {
    (void)state;
    rng r = rng_seed(12);
    store_case c;
    store_case_new(&c, 1, 30000, &r);
    for (int round = 0; round < 20; round++) {
        disk d;
        comet_store_handle handles[8];
        disk_init(&d);
        comet_store *store = store_on(&d, 0, 0, 0, 1);
        for (int i = 0; i < 8; i++)
            assert_ok(comet_store_save(store, &c.tensor, &c.item, &handles[i], NULL));
        for (int i = 0; i < 8; i++)
            assert_ok(comet_store_prefetch(store, handles[i]));
        for (int i = 7; i > round % 8; i--)
            assert_ok(comet_store_release(store, handles[i]));
        comet_store_free(store);
    }
    store_case_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_extents),
        cmocka_unit_test(test_space_is_used_again),
        cmocka_unit_test(test_short_calls),
        cmocka_unit_test(test_writes_fail),
        cmocka_unit_test(test_moves_fail),
        cmocka_unit_test(test_reads_fail),
        cmocka_unit_test(test_truncated_file),
        cmocka_unit_test(test_file_limits),
        cmocka_unit_test(test_memory_and_disk_full),
        cmocka_unit_test(test_prefetch),
        cmocka_unit_test(test_prefetch_within_the_limit),
        cmocka_unit_test(test_free_while_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
