/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena over a stand-in for the device: host memory, and a queue of work that runs when the test says so, in
 * order. Its "compressing" writes a pattern where the record below says; at the moment when it runs it must not touch
 * a stream that is alive on the device's own time line, and what is released there is poisoned.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "support/assert_ok.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "store/arena.h"
#include "support/counting_allocator.h"
#include "support/effort.h"
#include "support/rng.h"

enum { PAGE = 4096, MOST_OPS = 1 << 16, MOST_STREAMS = 1 << 14, LOST = 0xDD };

/* ---- the stand-in ---- */

typedef struct stream {
    size_t bytes; /* it will take */
    size_t start, end;
    unsigned char pattern;
    int alive, stored; /* on the device's time line */
} stream;

typedef enum op_kind { OP_COMPRESS, OP_LOAD, OP_RELEASE, OP_ZERO, OP_COPY, OP_EVENT } op_kind;

typedef struct op {
    op_kind kind;
    comet_cuda_slot slot;
    int stream;
    void *to;
    const void *from;
    size_t bytes;
} op;

typedef struct event {
    int recorded, reached;
} event;

typedef struct device {
    arena_driver driver; /* first: what the arena is given */
    failure why;         /* of the first violation */
    int violated;
    op queue[MOST_OPS], graph[1024];
    int begin, end, graph_ops;
    pthread_mutex_t lock; /* of the queue */
    int capturing, plain, out_of_memory;
    stream streams[MOST_STREAMS];
    int stream_count, loads_refused, loads_done;
    size_t mapped, memory; /* bytes; what can be mapped, 0: any */
    long ranges, blocks, events;
    atomic_long calls;
    long fail_at;
    comet_status fail_with;
} device;

static device *device_of(const arena_driver *self) {
    return (device *)(uintptr_t)self;
}

static void violate(device *d, const char *what, long number) {
    if (!d->violated++)
        failure_set(&d->why, "%s (%ld)", what, number);
}

static comet_status injected(device *d) {
    return atomic_fetch_add(&d->calls, 1) + 1 == d->fail_at ? d->fail_with : COMET_OK;
}

static void enqueue(device *d, op o) {
    pthread_mutex_lock(&d->lock);
    if (d->capturing) {
        assert_true(d->graph_ops < 1024);
        d->graph[d->graph_ops++] = o;
    } else {
        if (d->begin == d->end)
            d->begin = d->end = 0;
        assert_true(d->end < MOST_OPS);
        d->queue[d->end++] = o;
    }
    pthread_mutex_unlock(&d->lock);
}

static void run_compress(device *d, const op *o) {
    stream *s = &d->streams[o->stream];
    size_t start = *o->slot.start, end = start + (s->bytes + 255) / 256 * 256;
    comet_cuda_result r = {.codec = {.bytes = s->bytes}, .start = start, .end = start, .status = COMET_ERROR_CAPACITY};
    s->alive = 1;
    s->stored = 0;
    if (start % 256)
        violate(d, "start is not aligned", (long)start);
    if (start <= o->slot.capacity && s->bytes <= o->slot.capacity - start) {
        for (int i = 0; i < d->stream_count; i++) {
            stream *t = &d->streams[i];
            if (t != s && t->alive && t->stored && t->start < end && start < t->end)
                violate(d, "a living stream is overwritten", i);
        }
        memset((unsigned char *)o->slot.base + start, s->pattern, s->bytes);
        r.end = end;
        r.status = COMET_OK;
        s->stored = 1;
        s->start = start;
        s->end = end;
    }
    memcpy(o->slot.result, &r, sizeof r);
}

static void run_load(device *d, const op *o) {
    const stream *s = &d->streams[o->stream];
    if (o->slot.result->status != COMET_OK) {
        if (s->stored)
            violate(d, "the record of a stored stream says otherwise", o->stream);
        d->loads_refused++;
        return;
    }
    if (!s->stored || *o->slot.start != s->start || o->slot.result->codec.bytes != s->bytes ||
        s->end > o->slot.capacity) {
        violate(d, "a slot does not say where the stream is", o->stream);
        return;
    }
    for (size_t i = 0; i < s->bytes; i++)
        if (((unsigned char *)o->slot.base)[s->start + i] != s->pattern) {
            violate(d, "a stream changed", o->stream);
            return;
        }
    d->loads_done++;
}

static void run_release(device *d, const op *o, unsigned char *base) {
    stream *s = &d->streams[o->stream];
    if (s->alive && s->stored)
        memset(base + s->start, LOST, s->end - s->start);
    s->alive = 0;
}

static void run_one(device *d) {
    op *o = &d->queue[d->begin++];
    switch (o->kind) {
    case OP_COMPRESS:
        run_compress(d, o);
        break;
    case OP_LOAD:
        run_load(d, o);
        break;
    case OP_RELEASE:
        run_release(d, o, o->to);
        break;
    case OP_ZERO:
        memset(o->to, 0, o->bytes);
        break;
    case OP_COPY:
        memcpy(o->to, o->from, o->bytes);
        break;
    case OP_EVENT:
        ((event *)o->to)->reached = 1;
        break;
    }
}

static void run_some(device *d, int count) {
    while (count-- > 0 && d->begin < d->end)
        run_one(d);
}

static comet_status fake_reserve(const arena_driver *self, int32_t index, size_t bytes, arena_range *range) {
    device *d = device_of(self);
    comet_status status = injected(d);
    if (status != COMET_OK)
        return status;
    int access = d->plain ? PROT_READ | PROT_WRITE : PROT_NONE;
    bytes -= bytes % (d->plain ? 256 : PAGE);
    void *memory = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return COMET_ERROR_MEMORY;
    *range = (arena_range){.base = memory, .bytes = bytes, .granularity = d->plain ? 0 : PAGE, .device = index};
    d->ranges++;
    return COMET_OK;
}

static comet_status fake_unreserve(const arena_driver *self, const arena_range *range) {
    device *d = device_of(self);
    munmap(range->base, range->bytes);
    d->ranges--;
    return injected(d);
}

static comet_status fake_map(const arena_driver *self, const arena_range *range, size_t offset, size_t bytes) {
    device *d = device_of(self);
    comet_status status = injected(d);
    if (status != COMET_OK)
        return status;
    if (d->memory && d->mapped + bytes > d->memory)
        return COMET_ERROR_MEMORY;
    if (bytes == 0 || offset % PAGE || bytes % PAGE || offset + bytes > range->bytes)
        violate(d, "a piece is not made of granules of the range", (long)offset);
    mprotect(range->base + offset, bytes, PROT_READ | PROT_WRITE);
    d->mapped += bytes;
    return COMET_OK;
}

static comet_status fake_unmap(const arena_driver *self, const arena_range *range, size_t offset, size_t bytes) {
    device *d = device_of(self);
    comet_status status = injected(d);
    if (status != COMET_OK)
        return status;
    for (int i = d->begin; i < d->end; i++)
        if ((d->queue[i].kind == OP_COMPRESS || d->queue[i].kind == OP_LOAD) && d->queue[i].slot.capacity > offset)
            violate(d, "unmapped under work in the queue", (long)offset);
    mprotect(range->base + offset, bytes, PROT_NONE);
    d->mapped -= bytes;
    return COMET_OK;
}

static comet_status fake_take(const arena_driver *self, int32_t index, arena_memory kind, size_t bytes, void **memory) {
    device *d = device_of(self);
    comet_status status = injected(d);
    (void)index, (void)kind;
    if (status != COMET_OK)
        return status;
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    assert_non_null(*memory);
    memset(*memory, 0x5B, bytes);
    d->blocks++;
    return COMET_OK;
}

static comet_status fake_give(const arena_driver *self, int32_t index, arena_memory kind, void *memory) {
    device *d = device_of(self);
    (void)index, (void)kind;
    free(memory);
    d->blocks--;
    return injected(d);
}

/* What cannot be done while the stream is captured. */
static comet_status issue(device *d, op o) {
    comet_status status = injected(d);
    if (d->capturing)
        violate(d, "issued while capturing", (long)o.kind);
    if (status == COMET_OK)
        enqueue(d, o);
    return status;
}

static comet_status fake_zero(const arena_driver *self, void *memory, size_t bytes, void *cuda_stream) {
    (void)cuda_stream;
    return issue(device_of(self), (op){.kind = OP_ZERO, .to = memory, .bytes = bytes});
}

static comet_status fake_copy(const arena_driver *self, void *to, const void *from, size_t bytes, void *cuda_stream) {
    (void)cuda_stream;
    return issue(device_of(self), (op){.kind = OP_COPY, .to = to, .from = from, .bytes = bytes});
}

static comet_status fake_event_new(const arena_driver *self, int32_t index, void **made) {
    device *d = device_of(self);
    comet_status status = injected(d);
    (void)index;
    if (status != COMET_OK)
        return status;
    *made = calloc(1, sizeof(event));
    d->events++;
    return COMET_OK;
}

static comet_status fake_event_free(const arena_driver *self, void *gone) {
    free(gone);
    device_of(self)->events--;
    return injected(device_of(self));
}

static comet_status fake_event_record(const arena_driver *self, void *recorded, void *cuda_stream) {
    (void)cuda_stream;
    comet_status status = issue(device_of(self), (op){.kind = OP_EVENT, .to = recorded});
    if (status == COMET_OK)
        *(event *)recorded = (event){1, 0};
    return status;
}

static comet_status fake_event_query(const arena_driver *self, void *asked, int *reached) {
    device *d = device_of(self);
    if (!((event *)asked)->recorded)
        violate(d, "an event is asked for that was not recorded", 0);
    if (d->capturing)
        violate(d, "asked while capturing", 0);
    *reached = ((event *)asked)->reached;
    return injected(d);
}

static comet_status wait_until(device *d, const int *reached) {
    comet_status status = injected(d);
    if (d->capturing)
        violate(d, "waited while capturing", 0);
    while (status == COMET_OK && d->begin < d->end && !(reached && *reached))
        run_one(d);
    return status;
}

static comet_status fake_event_wait(const arena_driver *self, void *awaited) {
    return wait_until(device_of(self), &((event *)awaited)->reached);
}

static comet_status fake_stream_wait(const arena_driver *self, void *cuda_stream) {
    (void)cuda_stream;
    return wait_until(device_of(self), NULL);
}

static comet_status fake_capturing(const arena_driver *self, void *cuda_stream, int *is_capturing) {
    device *d = device_of(self);
    (void)cuda_stream;
    *is_capturing = d->capturing;
    return injected(d);
}

static device *device_new(void) {
    device *d = calloc(1, sizeof *d);
    assert_non_null(d);
    pthread_mutex_init(&d->lock, NULL);
    d->driver = (arena_driver){fake_reserve,      fake_unreserve,   fake_map,        fake_unmap,       fake_take,
                               fake_give,         fake_zero,        fake_copy,       fake_event_new,   fake_event_free,
                               fake_event_record, fake_event_query, fake_event_wait, fake_stream_wait, fake_capturing};
    return d;
}

static void device_check(const device *d) {
    if (d->violated)
        fail_msg("%s", d->why.text);
}

static void device_free(device *d) {
    device_check(d);
    assert_int_equal(d->ranges, 0);
    assert_int_equal(d->blocks, 0);
    assert_int_equal(d->events, 0);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ---- saving, loading and releasing as a caller does ---- */

typedef struct saved {
    comet_arena_entry entry;
    int stream;
    size_t worst, bytes;
    int optimistic;
} saved;

static comet_arena *arena_new(device *d, size_t limit, uint32_t entries) {
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena *a = NULL;
    o.limit_bytes = limit;
    o.max_entries = entries;
    assert_ok(comet_arena_create_with(&d->driver, &o, &a));
    return a;
}

static comet_arena_stats stats_of(comet_arena *a) {
    comet_arena_stats s = {.size = sizeof s};
    assert_ok(comet_arena_get_stats(a, &s));
    return s;
}

static void compress(device *d, const comet_cuda_slot *slot, saved *s) {
    assert_true(d->stream_count < MOST_STREAMS);
    s->stream = d->stream_count++;
    d->streams[s->stream] = (stream){.bytes = s->bytes, .pattern = (unsigned char)(s->stream % 199 + 1)};
    enqueue(d, (op){.kind = OP_COMPRESS, .slot = *slot, .stream = s->stream});
}

/* A stream of `bytes` that could be `worst`. */
static comet_status save(device *d, comet_arena *a, size_t worst, size_t expected, size_t bytes, saved *s) {
    comet_cuda_slot slot;
    *s = (saved){.worst = worst, .bytes = bytes, .optimistic = expected && expected < worst};
    comet_status status = comet_arena_open(a, worst, expected, &s->entry, &slot);
    if (status != COMET_OK)
        return status;
    compress(d, &slot, s);
    return comet_arena_close(a, s->entry);
}

static comet_status load(device *d, comet_arena *a, const saved *s) {
    comet_cuda_slot slot;
    comet_status status = comet_arena_slot(a, s->entry, &slot);
    if (status == COMET_OK)
        enqueue(d, (op){.kind = OP_LOAD, .slot = slot, .stream = s->stream});
    return status;
}

static void release(device *d, comet_arena *a, const saved *s) {
    comet_cuda_slot slot = {0};
    if (comet_arena_slot(a, s->entry, &slot) == COMET_OK) /* for the base alone */
        enqueue(d, (op){.kind = OP_RELEASE, .stream = s->stream, .to = slot.base});
    else
        d->streams[s->stream].alive = 0;
    assert_ok(comet_arena_release(a, s->entry));
}

static void finish(device *d, comet_arena *a) {
    run_some(d, MOST_OPS);
    device_check(d);
    assert_ok(comet_arena_destroy(a));
    device_free(d);
}

/* ---- tests ---- */

static void test_arguments(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = NULL;
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena_stats s = {.size = 1};
    comet_arena_entry entry;
    comet_cuda_slot slot;
    int32_t known;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_ARGUMENT); /* no limit */
    o.limit_bytes = 64 * PAGE;
    assert_status(comet_arena_create_with(&d->driver, NULL, &a), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_create_with(&d->driver, &o, NULL), COMET_ERROR_ARGUMENT);
    o.initial_bytes = o.limit_bytes + 1;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_ARGUMENT);
    o.initial_bytes = 0;
    o.max_entries = 0;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_ARGUMENT);
    o.max_entries = ARENA_MOST_ENTRIES + 1;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_ARGUMENT);
    o.max_entries = 4;
    o.size = 1;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_ARGUMENT);
    o.size = sizeof o;
    d->capturing = 1;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_UNSUPPORTED);
    d->capturing = 0;
    assert_null(a);
    assert_ok(comet_arena_create_with(&d->driver, &o, &a));

    assert_status(comet_arena_open(NULL, 1, 0, &entry, &slot), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_open(a, 0, 0, &entry, &slot), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_open(a, SIZE_MAX, 0, &entry, &slot), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_open(a, 1, 0, NULL, &slot), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_open(a, 1, 0, &entry, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_get_stats(a, &s), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_get_stats(a, NULL), COMET_ERROR_ARGUMENT);
    for (comet_arena_entry e = 0; e < 4; e++) {
        assert_status(comet_arena_close(a, e), COMET_ERROR_ARGUMENT);
        assert_status(comet_arena_release(a, e), COMET_ERROR_ARGUMENT);
        assert_status(comet_arena_slot(a, e, &slot), COMET_ERROR_ARGUMENT);
        assert_status(comet_arena_result(a, e, &known, NULL), COMET_ERROR_ARGUMENT);
        assert_status(comet_arena_await(a, e, NULL), COMET_ERROR_ARGUMENT);
    }
    assert_status(comet_arena_poll(NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_trim(NULL), COMET_ERROR_ARGUMENT);
    assert_ok(comet_arena_destroy(NULL));
    finish(d, a);
}

/* What an entry can do in which state; its handle dies with it. */
static void test_states(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 4);
    comet_arena_entry first, second;
    comet_cuda_slot slot;
    saved s = {.bytes = 10};
    assert_ok(comet_arena_open(a, 100, 0, &first, &slot));
    assert_status(comet_arena_open(a, 100, 0, &second, &slot), COMET_ERROR_ARGUMENT); /* the same thread */
    assert_status(comet_arena_trim(a), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_slot(a, first, &slot), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_await(a, first, NULL), COMET_ERROR_ARGUMENT);
    assert_ok(comet_arena_release(a, first)); /* it could not be issued */
    assert_status(comet_arena_close(a, first), COMET_ERROR_ARGUMENT);
    assert_int_equal(stats_of(a).entries, 0);

    assert_ok(comet_arena_open(a, 100, 0, &second, &slot));
    assert_true(second != first);
    compress(d, &slot, &s);
    assert_ok(comet_arena_close(a, second));
    assert_status(comet_arena_close(a, second), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_slot(a, first, &slot), COMET_ERROR_ARGUMENT);
    assert_ok(comet_arena_slot(a, second, &slot));
    assert_ok(comet_arena_release(a, second));
    assert_status(comet_arena_release(a, second), COMET_ERROR_ARGUMENT);
    assert_status(comet_arena_slot(a, second, &slot), COMET_ERROR_ARGUMENT);
    finish(d, a);
}

/* Sizes arrive when the device comes to them, and replace the worst case; nobody waits. */
static void test_sizes_arrive(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 16);
    saved s[3];
    int32_t known;
    comet_cuda_result r;
    for (int i = 0; i < 3; i++)
        assert_ok(save(d, a, 1000, 0, 300, &s[i]));
    comet_arena_stats t = stats_of(a);
    assert_int_equal(t.end_bytes, 3 * 1024);
    assert_int_equal(t.unknown_entries, 3);
    assert_int_equal(t.unknown_bytes, 3 * 1024);
    assert_ok(comet_arena_poll(a)); /* asks */
    assert_ok(comet_arena_result(a, s[1].entry, &known, &r));
    assert_int_equal(known, 0);
    run_some(d, MOST_OPS);
    assert_ok(comet_arena_result(a, s[1].entry, &known, &r));
    assert_int_equal(known, 1);
    assert_int_equal(r.codec.bytes, 300);
    assert_int_equal(r.start, 512);
    t = stats_of(a);
    assert_int_equal(t.end_bytes, 3 * 512);
    assert_int_equal(t.known_bytes, 900);
    assert_int_equal(t.unknown_entries, 0);
    assert_int_equal(t.peak_end_bytes, 3 * 1024);
    assert_int_equal(t.peak_known_bytes, 3 * 512);
    assert_int_equal(t.waits, 0);
    assert_int_equal(t.readbacks, 1);
    finish(d, a);
}

/* A record that no kernel wrote is recognised if it cannot be one. */
static void test_nothing_compressed(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 16);
    comet_arena_entry entry;
    comet_cuda_slot slot;
    saved s;
    assert_ok(save(d, a, 1000, 0, 300, &s));
    assert_ok(comet_arena_await(a, s.entry, NULL));
    assert_ok(comet_arena_open(a, 1000, 0, &entry, &slot));
    assert_ok(comet_arena_close(a, entry));
    assert_status(comet_arena_await(a, entry, NULL), COMET_ERROR_CORRUPT);
    assert_status(comet_arena_slot(a, entry, &slot), COMET_ERROR_CORRUPT);
    assert_int_equal(stats_of(a).end_bytes, 512 + 1024);
    finish(d, a);
}

/*
 * Memory grows piece by piece; at the limit the host waits for as many sizes as it must; then it is full, and says
 * so.
 */
static void test_limit(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 10 * PAGE, 64);
    saved s[64];
    int n = 0;
    for (; n < 10; n++)
        assert_ok(save(d, a, PAGE, 0, PAGE / 4, &s[n]));
    comet_arena_stats t = stats_of(a);
    assert_int_equal(t.mapped_bytes, 10 * PAGE);
    assert_int_equal(d->mapped, t.mapped_bytes);
    assert_int_equal(t.waits, 0);
    comet_status status;
    while ((status = save(d, a, PAGE, 0, PAGE / 4, &s[n])) == COMET_OK)
        n++;
    assert_status(status, COMET_ERROR_CAPACITY);
    t = stats_of(a);
    assert_int_equal(n, 37); /* 36 * PAGE / 4 and a whole PAGE */
    assert_int_equal(t.missing_bytes, PAGE / 4);
    assert_int_equal(t.refused, 1);
    assert_int_equal(t.entries, n);
    assert_true(t.waits > 0);
    assert_int_equal(t.mapped_bytes, 10 * PAGE);
    for (int i = 0; i < n; i++)
        assert_ok(load(d, a, &s[i]));
    release(d, a, &s[--n]);
    assert_ok(save(d, a, PAGE, 0, PAGE, &s[n]));
    assert_status(save(d, a, 11 * PAGE, 0, PAGE, &s[63]), COMET_ERROR_CAPACITY); /* never */
    assert_int_equal(stats_of(a).missing_bytes, 11 * PAGE);
    finish(d, a);
}

/* At the limit the oldest sizes are waited for, not all: the device keeps work. */
static void test_wait_is_partial(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 256);
    saved s;
    for (int i = 0; i < 64; i++)
        assert_ok(save(d, a, PAGE, 0, 256, &s));
    assert_int_equal(stats_of(a).waits, 0);
    assert_ok(save(d, a, PAGE, 0, 256, &s));
    assert_int_equal(stats_of(a).waits, 1);
    assert_true(d->end - d->begin > 50);
    finish(d, a);
}

static void test_growth(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena *a;
    o.limit_bytes = 1000 * PAGE + 5;
    o.initial_bytes = 10 * PAGE;
    assert_ok(comet_arena_create_with(&d->driver, &o, &a));
    comet_arena_stats t = stats_of(a);
    assert_int_equal(t.limit_bytes, 1000 * PAGE);
    assert_in_range(t.mapped_bytes, 10 * PAGE, 14 * PAGE);
    saved s[2];
    assert_ok(save(d, a, 999 * PAGE, 0, 20 * PAGE, &s[0]));
    assert_int_equal(stats_of(a).mapped_bytes, 1000 * PAGE); /* the last piece is shorter */
    assert_ok(comet_arena_trim(a));
    t = stats_of(a);
    assert_in_range(t.mapped_bytes, 20 * PAGE, 24 * PAGE);
    assert_int_equal(t.peak_mapped_bytes, 1000 * PAGE);
    assert_int_equal(d->mapped, t.mapped_bytes);
    assert_ok(save(d, a, 30 * PAGE, 0, 30 * PAGE, &s[1]));
    assert_ok(load(d, a, &s[0]));
    assert_ok(load(d, a, &s[1]));
    release(d, a, &s[1]);
    release(d, a, &s[0]);
    assert_ok(comet_arena_trim(a)); /* waits for the loads */
    assert_int_equal(d->loads_done, 2);
    assert_int_equal(d->mapped, 0);
    finish(d, a);
}

/* A device that has less than the limit: sizes are waited for, then the status says what is wrong. */
static void test_device_memory(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 100 * PAGE, 64);
    saved s;
    d->memory = 10 * PAGE;
    assert_ok(save(d, a, PAGE, 0, 256, &s));
    assert_status(save(d, a, 20 * PAGE, 0, 256, &s), COMET_ERROR_MEMORY);
    assert_int_equal(d->mapped, PAGE); /* what was mapped in vain went back */
    assert_int_equal(stats_of(a).mapped_bytes, PAGE);
    for (int i = 1; i < 12; i++)
        assert_ok(save(d, a, PAGE, 0, 256, &s));
    comet_arena_stats t = stats_of(a);
    assert_int_equal(t.mapped_bytes, 10 * PAGE);
    assert_true(t.waits > 0);
    assert_status(save(d, a, 20 * PAGE, 0, 256, &s), COMET_ERROR_MEMORY);
    t = stats_of(a);
    assert_int_equal(t.missing_bytes, 10 * PAGE + 12 * 256);
    assert_int_equal(t.mapped_bytes, 10 * PAGE);
    assert_int_equal(t.entries, 12);
    finish(d, a);
}

static void test_plain_range(void **state) {
    (void)state;
    device *d = device_new();
    d->plain = 1;
    comet_arena *a = arena_new(d, 3 * PAGE + 100, 64);
    saved s[3];
    assert_int_equal(stats_of(a).mapped_bytes, 3 * PAGE);
    for (int i = 0; i < 3; i++)
        assert_ok(save(d, a, PAGE, 0, PAGE, &s[i]));
    assert_status(save(d, a, 1, 0, 1, &s[0]), COMET_ERROR_CAPACITY);
    assert_ok(comet_arena_trim(a));
    assert_int_equal(stats_of(a).mapped_bytes, 3 * PAGE);
    finish(d, a);
}

static void test_entries_exhausted(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 3);
    saved s[4];
    for (int i = 0; i < 3; i++)
        assert_ok(save(d, a, 100, 0, 100, &s[i]));
    assert_status(save(d, a, 100, 0, 100, &s[3]), COMET_ERROR_CAPACITY);
    assert_int_equal(stats_of(a).missing_bytes, 0);
    release(d, a, &s[1]);
    assert_ok(save(d, a, 100, 0, 100, &s[1])); /* in its place: the sizes are known by now */
    assert_int_equal(stats_of(a).saves_in_holes, 1);
    release(d, a, &s[2]);
    assert_ok(save(d, a, 100, 0, 100, &s[2]));
    for (int i = 0; i < 3; i++)
        assert_ok(load(d, a, &s[i]));
    finish(d, a);
}

/* First in, first out, as between micro-batches of a pipeline: a stack alone would never shrink. */
static void test_holes_are_reused(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 16 * PAGE, 64);
    saved s[8];
    for (int i = 0; i < 8; i++)
        assert_ok(save(d, a, PAGE, 0, PAGE / 2 + 256, &s[i]));
    for (int i = 0; i < 400; i++) {
        assert_ok(load(d, a, &s[i % 8]));
        release(d, a, &s[i % 8]);
        assert_ok(save(d, a, PAGE, 0, PAGE / 2 + 256, &s[i % 8]));
        run_some(d, 3);
        device_check(d);
    }
    comet_arena_stats t = stats_of(a);
    assert_true(t.saves_in_holes > 200);
    assert_int_equal(t.refused, 0);
    finish(d, a);
}

/* Less room than the worst case: what does not fit is not stored, harms nobody, and is known before it is used. */
static void test_optimistic(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 4 * PAGE, 64);
    saved s[4];
    comet_cuda_slot slot;
    comet_cuda_result r;
    assert_ok(save(d, a, 4 * PAGE, 1 * PAGE, 1 * PAGE, &s[0]));
    assert_ok(save(d, a, 4 * PAGE, 1 * PAGE, 3 * PAGE + 1, &s[1])); /* does not */
    assert_ok(save(d, a, 4 * PAGE, 1 * PAGE, 2 * PAGE, &s[2]));     /* more than expected, but fits */
    assert_ok(load(d, a, &s[1]));                                   /* not known yet: the device refuses it */
    assert_status(comet_arena_await(a, s[1].entry, &r), COMET_ERROR_CAPACITY);
    assert_int_equal(r.codec.bytes, 3 * PAGE + 1);
    assert_status(comet_arena_slot(a, s[1].entry, &slot), COMET_ERROR_CAPACITY);
    assert_int_equal(d->loads_refused, 0); /* it has not come so far */
    assert_ok(load(d, a, &s[0]));
    assert_ok(load(d, a, &s[2]));
    run_some(d, MOST_OPS);
    assert_int_equal(d->loads_refused, 1);
    assert_int_equal(d->loads_done, 2);
    assert_int_equal(stats_of(a).overflows, 1);
    /* Who must be certain counts with the worst case of all, and waits. */
    release(d, a, &s[2]);
    assert_ok(save(d, a, 4 * PAGE, 256, 256, &s[2]));
    uint64_t waits = stats_of(a).waits;
    assert_ok(save(d, a, 2 * PAGE, 0, PAGE, &s[3]));
    assert_int_equal(stats_of(a).waits, waits + 1);
    assert_ok(load(d, a, &s[3]));
    finish(d, a);
}

/* A step captured once and replayed with other data. */
static void capture_step(device *d, comet_arena *a, saved *s, int count, size_t worst, size_t expected) {
    d->capturing = 1;
    d->graph_ops = 0;
    for (int i = 0; i < count; i++)
        assert_ok(save(d, a, worst, expected, 256, &s[i]));
    for (int i = count; i-- > 0;) {
        assert_ok(load(d, a, &s[i]));
        release(d, a, &s[i]);
    }
    d->capturing = 0;
}

static void replay(device *d) {
    for (int i = 0; i < d->graph_ops; i++)
        enqueue(d, d->graph[i]);
    run_some(d, MOST_OPS);
    device_check(d);
}

static void test_capture(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 16 * PAGE, 64);
    saved base, s[8], t;
    comet_arena_entry entry;
    comet_cuda_slot slot;
    assert_ok(save(d, a, PAGE, 0, PAGE, &base)); /* lives through all replays */
    capture_step(d, a, s, 8, PAGE, 0);
    assert_int_equal(d->mapped, 9 * PAGE);
    assert_int_equal(stats_of(a).entries, 1);
    assert_status(comet_arena_open(a, 1, 0, &entry, &slot), COMET_ERROR_UNSUPPORTED);
    assert_status(comet_arena_trim(a), COMET_ERROR_UNSUPPORTED);
    rng r = rng_seed(3);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 8; i++)
            d->streams[s[i].stream].bytes = 1 + rng_below(&r, PAGE);
        replay(d);
        assert_ok(load(d, a, &base));
    }
    run_some(d, MOST_OPS);
    assert_int_equal(d->loads_done, 50 * 9);
    assert_int_equal(d->loads_refused, 0);
    assert_ok(comet_arena_forget_graphs(a));
    assert_ok(save(d, a, PAGE, 0, PAGE, &t));
    assert_ok(comet_arena_trim(a));
    assert_int_equal(d->mapped, 2 * PAGE);
    finish(d, a);
}

/*
 * While capturing nothing is waited for; what was expected and does not come true in a replay is refused on the
 * device.
 */
static void test_capture_limits(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 4 * PAGE, 64);
    saved s[6], base;
    comet_cuda_result r;
    int32_t known;
    assert_ok(save(d, a, 2 * PAGE, 0, 256, &base));
    d->capturing = 1;
    assert_status(save(d, a, 3 * PAGE, 0, 256, &s[0]), COMET_ERROR_CAPACITY);
    assert_int_equal(stats_of(a).missing_bytes, PAGE);
    assert_status(comet_arena_await(a, base.entry, NULL), COMET_ERROR_UNSUPPORTED);
    assert_ok(comet_arena_poll(a));
    assert_status(comet_arena_destroy(a), COMET_ERROR_UNSUPPORTED);
    d->capturing = 0;
    assert_ok(comet_arena_await(a, base.entry, &r));
    capture_step(d, a, s, 6, PAGE, PAGE / 2);
    for (int i = 0; i < 6; i++)
        d->streams[s[i].stream].bytes = PAGE; /* six pages in less than four */
    replay(d);
    assert_int_equal(d->loads_done, 3);
    assert_int_equal(d->loads_refused, 3);
    /* An entry that outlives its capture has no size that the host could know. */
    d->capturing = 1;
    d->graph_ops = 0;
    assert_ok(save(d, a, PAGE, 0, 256, &s[0]));
    d->capturing = 0;
    assert_status(comet_arena_result(a, s[0].entry, &known, &r), COMET_ERROR_UNSUPPORTED);
    assert_status(comet_arena_await(a, s[0].entry, &r), COMET_ERROR_UNSUPPORTED);
    assert_status(comet_arena_forget_graphs(a), COMET_ERROR_ARGUMENT);
    assert_ok(comet_arena_poll(a));
    assert_int_equal(stats_of(a).unknown_entries, 1);
    replay(d);
    assert_ok(load(d, a, &s[0]));
    release(d, a, &s[0]);
    assert_ok(comet_arena_forget_graphs(a));
    finish(d, a);
}

/* ---- random orders against the device's time line ---- */

enum { MOST_HELD = 40 };

typedef struct walk {
    device *d;
    comet_arena *a;
    rng r;
    saved held[MOST_HELD];
    int count, refused;
} walk;

static void walk_save(walk *w) {
    saved s;
    size_t worst = 1 + rng_below(&w->r, 3 * PAGE);
    size_t expected = rng_below(&w->r, 3) ? 0 : 1 + rng_below(&w->r, worst);
    size_t bytes = rng_below(&w->r, 3) ? 1 + rng_below(&w->r, 1 + worst / 8) : 1 + rng_below(&w->r, worst);
    if (rng_below(&w->r, 20) == 0) { /* a launch that fails */
        comet_arena_entry entry;
        comet_cuda_slot slot;
        if (comet_arena_open(w->a, worst, expected, &entry, &slot) == COMET_OK)
            assert_ok(comet_arena_release(w->a, entry));
        return;
    }
    comet_status status = save(w->d, w->a, worst, expected, bytes, &s);
    if (status == COMET_OK)
        w->held[w->count++] = s;
    else
        assert_status(status, COMET_ERROR_CAPACITY);
    w->refused += status != COMET_OK;
}

static void walk_load(walk *w, int i) {
    comet_status status = load(w->d, w->a, &w->held[i]);
    if (status != COMET_OK) {
        assert_status(status, COMET_ERROR_CAPACITY);
        assert_true(w->held[i].optimistic);
    }
}

/* Mostly the last one, else any; each is loaded before. */
static void walk_release(walk *w) {
    int i = rng_below(&w->r, 3) ? w->count - 1 : (int)rng_below(&w->r, (uint64_t)w->count);
    walk_load(w, i);
    release(w->d, w->a, &w->held[i]);
    memmove(&w->held[i], &w->held[i + 1], (size_t)(--w->count - i) * sizeof *w->held);
}

static void walk_check(walk *w) {
    comet_arena_stats t = stats_of(w->a);
    assert_int_equal(t.entries, w->count);
    assert_int_equal(t.mapped_bytes, w->d->mapped);
    assert_true(t.end_bytes <= t.mapped_bytes);
    assert_true(t.mapped_bytes <= t.limit_bytes);
    device_check(w->d);
}

static void walk_step(walk *w) {
    uint64_t what = rng_below(&w->r, 100);
    if (what < 45 && w->count < MOST_HELD)
        walk_save(w);
    else if (what < 75 && w->count)
        walk_release(w);
    else if (what < 85 && w->count)
        walk_load(w, (int)rng_below(&w->r, (uint64_t)w->count));
    else if (what < 95)
        run_some(w->d, (int)rng_below(&w->r, 20));
    else if (what < 97)
        assert_ok(comet_arena_poll(w->a));
    else if (what < 98)
        assert_ok(comet_arena_trim(w->a));
    else if (w->count) {
        comet_status status = comet_arena_await(w->a, w->held[w->count / 2].entry, NULL);
        assert_true(status == COMET_OK || status == COMET_ERROR_CAPACITY);
    }
}

static void test_random_orders(void **state) {
    (void)state;
    uint64_t in_holes = 0, overflows = 0, waits = 0, refused = 0;
    int rounds = effort(300);
    for (int round = 0; round < rounds; round++) {
        walk w = {.d = device_new(), .r = rng_seed((uint64_t)round)};
        w.a = arena_new(w.d, (8 + rng_below(&w.r, 40)) * PAGE, 8 + (uint32_t)rng_below(&w.r, 64));
        for (int i = 0; i < 1500; i++) {
            walk_step(&w);
            walk_check(&w);
        }
        for (int i = 0; i < w.count; i++)
            walk_load(&w, i);
        run_some(w.d, MOST_OPS);
        for (int i = 0; i < w.count; i++) /* only what may not fit did not */
            assert_true(w.d->streams[w.held[i].stream].stored || w.held[i].optimistic);
        comet_arena_stats t = stats_of(w.a);
        in_holes += t.saves_in_holes, overflows += t.overflows, waits += t.waits, refused += t.refused;
        finish(w.d, w.a);
    }
    assert_true(in_holes > 0 && overflows > 0 && waits > 0 && refused > 0);
}

/* ---- failures ---- */

/* Everything the arena does, going on after whatever fails. Returns 1 if a call of the library failed. */
static int run_scenario(device *d, const comet_allocator *allocator) {
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena *a = NULL;
    saved s[40];
    int count = 0, failed = 0;
    o.limit_bytes = 12 * PAGE;
    o.initial_bytes = 2 * PAGE;
    o.max_entries = 64;
    o.allocator = allocator;
    if (comet_arena_create_with(&d->driver, &o, &a) != COMET_OK)
        return 1;
    for (int i = 0; i < 36; i++) {
        comet_cuda_slot slot;
        saved *t = &s[count];
        *t = (saved){.bytes = 256};
        if (comet_arena_open(a, PAGE, 0, &t->entry, &slot) != COMET_OK) {
            failed = 1;
            continue;
        }
        compress(d, &slot, t);
        failed |= comet_arena_close(a, t->entry) != COMET_OK; /* it is closed all the same */
        count++;
        if (i == 20)
            failed |= comet_arena_trim(a) != COMET_OK;
    }
    failed |= comet_arena_poll(a) != COMET_OK;
    failed |= comet_arena_await(a, s[count - 1].entry, NULL) != COMET_OK;
    assert_int_equal(stats_of(a).entries, count);
    assert_int_equal(stats_of(a).mapped_bytes, d->mapped);
    while (count > 0) {
        failed |= load(d, a, &s[--count]) != COMET_OK;
        release(d, a, &s[count]);
    }
    failed |= comet_arena_trim(a) != COMET_OK;
    assert_int_equal(stats_of(a).entries, 0);
    run_some(d, MOST_OPS);
    failed |= comet_arena_destroy(a) != COMET_OK;
    return failed;
}

static void fail_each_call(comet_status with) {
    for (long n = 1;; n++) {
        counting_allocator memory;
        counting_allocator_init(&memory);
        device *d = device_new();
        d->fail_at = n;
        d->fail_with = with;
        int failed = run_scenario(d, &memory.allocator);
        assert_int_equal(memory.live_blocks, 0);
        assert_int_equal(memory.wrong_sizes, 0);
        int done = d->calls < n;
        if (done)
            assert_false(failed);
        else if (with == COMET_ERROR_DEVICE)
            assert_true(failed); /* nothing is swallowed */
        device_free(d);
        if (done) {
            assert_true(n > 100);
            return;
        }
    }
}

static void test_every_call_fails_once(void **state) {
    (void)state;
    fail_each_call(COMET_ERROR_DEVICE);
    fail_each_call(COMET_ERROR_MEMORY); /* where mapping fails so, sizes are waited for instead */
}

static void test_host_memory(void **state) {
    (void)state;
    counting_allocator memory;
    counting_allocator_init(&memory);
    memory.fail_at = 1;
    device *d = device_new();
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena *a = NULL;
    o.limit_bytes = PAGE;
    o.allocator = &memory.allocator;
    assert_status(comet_arena_create_with(&d->driver, &o, &a), COMET_ERROR_MEMORY);
    assert_int_equal(d->calls, 0);
    assert_int_equal(run_scenario(d, &memory.allocator), 0);
    assert_int_equal(memory.calls, 2); /* one block, when it is created */
    assert_int_equal(memory.live_blocks, 0);
    device_free(d);
}

static void test_destroy_with_entries(void **state) {
    (void)state;
    device *d = device_new();
    comet_arena *a = arena_new(d, 64 * PAGE, 64);
    saved s[10];
    for (int i = 0; i < 10; i++)
        assert_ok(save(d, a, PAGE, 0, 256, &s[i]));
    assert_ok(load(d, a, &s[5]));
    assert_ok(comet_arena_destroy(a)); /* waits */
    assert_int_equal(d->loads_done, 1);
    device_free(d);
}

/* ---- threads ---- */

typedef struct user {
    device *d;
    comet_arena *a;
    int rounds, wrong;
} user;

/* The order of opens is the order of launches, whoever opens: between an open and its close there is no other. */
static void *use_arena(void *argument) {
    user *u = argument;
    for (int i = 0; i < u->rounds; i++) {
        comet_cuda_slot slot;
        saved s = {.bytes = 256};
        u->wrong += comet_arena_open(u->a, 256, 0, &s.entry, &slot) != COMET_OK;
        compress(u->d, &slot, &s);
        u->wrong += comet_arena_close(u->a, s.entry) != COMET_OK;
        u->wrong += comet_arena_slot(u->a, s.entry, &slot) != COMET_OK;
        if (i % 2 == 0)
            continue;
        enqueue(u->d, (op){.kind = OP_RELEASE, .stream = s.stream, .to = slot.base});
        u->wrong += comet_arena_release(u->a, s.entry) != COMET_OK;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 4, ROUNDS = 12 };
    device *d = device_new();
    comet_arena *a = arena_new(d, 1024 * PAGE, 128);
    pthread_t threads[THREADS];
    user users[THREADS];
    for (int i = 0; i < THREADS; i++) {
        users[i] = (user){d, a, ROUNDS, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, use_arena, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].wrong, 0);
    }
    assert_int_equal(stats_of(a).entries, THREADS * ROUNDS / 2);
    assert_int_equal(stats_of(a).saves, THREADS * ROUNDS);
    finish(d, a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_sizes_arrive),
        cmocka_unit_test(test_nothing_compressed),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_wait_is_partial),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_plain_range),
        cmocka_unit_test(test_entries_exhausted),
        cmocka_unit_test(test_holes_are_reused),
        cmocka_unit_test(test_optimistic),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_capture_limits),
        cmocka_unit_test(test_random_orders),
        cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_destroy_with_entries),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
