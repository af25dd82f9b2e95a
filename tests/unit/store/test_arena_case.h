/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena over a stand-in for the device: host memory, and a queue of work that runs when the test says so, in
 * order. Its "compressing" writes a pattern where the record below says; at the moment when it runs it must not touch
 * a stream that is alive on the device's own time line, and what is released there is poisoned.
 * To be included first, after _DEFAULT_SOURCE (for MAP_ANONYMOUS) is defined.
 */
#ifndef COMET_TEST_ARENA_CASE_H
#define COMET_TEST_ARENA_CASE_H

#include "support/assert_ok.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "store/device/arena.h"
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

static inline device *device_of(const arena_driver *self) {
    return (device *)(uintptr_t)self;
}

static inline void violate(device *d, const char *what, long number) {
    if (!d->violated++)
        failure_set(&d->why, "%s (%ld)", what, number);
}

static inline comet_status injected(device *d) {
    return atomic_fetch_add(&d->calls, 1) + 1 == d->fail_at ? d->fail_with : COMET_OK;
}

static inline void enqueue(device *d, op o) {
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

static inline void run_compress(device *d, const op *o) {
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

static inline void run_load(device *d, const op *o) {
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

static inline void run_release(device *d, const op *o, unsigned char *base) {
    stream *s = &d->streams[o->stream];
    if (s->alive && s->stored)
        memset(base + s->start, LOST, s->end - s->start);
    s->alive = 0;
}

static inline void run_one(device *d) {
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

static inline void run_some(device *d, int count) {
    while (count-- > 0 && d->begin < d->end)
        run_one(d);
}

static inline comet_status fake_reserve(const arena_driver *self, int32_t index, size_t bytes, arena_range *range) {
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

static inline comet_status fake_unreserve(const arena_driver *self, const arena_range *range) {
    device *d = device_of(self);
    munmap(range->base, range->bytes);
    d->ranges--;
    return injected(d);
}

static inline comet_status fake_map(const arena_driver *self, const arena_range *range, size_t offset, size_t bytes) {
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

static inline comet_status fake_unmap(const arena_driver *self, const arena_range *range, size_t offset, size_t bytes) {
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

static inline comet_status fake_take(const arena_driver *self, int32_t index, arena_memory kind, size_t bytes,
                                     void **memory) {
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

static inline comet_status fake_give(const arena_driver *self, int32_t index, arena_memory kind, void *memory) {
    device *d = device_of(self);
    (void)index, (void)kind;
    free(memory);
    d->blocks--;
    return injected(d);
}

/* What cannot be done while the queue is captured. */
static inline comet_status issue(device *d, op o) {
    comet_status status = injected(d);
    if (d->capturing)
        violate(d, "issued while capturing", (long)o.kind);
    if (status == COMET_OK)
        enqueue(d, o);
    return status;
}

static inline comet_status fake_zero(const arena_driver *self, void *memory, size_t bytes, void *queue) {
    (void)queue;
    return issue(device_of(self), (op){.kind = OP_ZERO, .to = memory, .bytes = bytes});
}

static inline comet_status fake_copy(const arena_driver *self, void *to, const void *from, size_t bytes, void *queue) {
    (void)queue;
    return issue(device_of(self), (op){.kind = OP_COPY, .to = to, .from = from, .bytes = bytes});
}

static inline comet_status fake_event_new(const arena_driver *self, int32_t index, void **made) {
    device *d = device_of(self);
    comet_status status = injected(d);
    (void)index;
    if (status != COMET_OK)
        return status;
    *made = calloc(1, sizeof(event));
    d->events++;
    return COMET_OK;
}

static inline comet_status fake_event_free(const arena_driver *self, void *gone) {
    free(gone);
    device_of(self)->events--;
    return injected(device_of(self));
}

static inline comet_status fake_event_record(const arena_driver *self, void *recorded, void *queue) {
    (void)queue;
    comet_status status = issue(device_of(self), (op){.kind = OP_EVENT, .to = recorded});
    if (status == COMET_OK)
        *(event *)recorded = (event){1, 0};
    return status;
}

static inline comet_status fake_event_query(const arena_driver *self, void *asked, int *reached) {
    device *d = device_of(self);
    if (!((event *)asked)->recorded)
        violate(d, "an event is asked for that was not recorded", 0);
    if (d->capturing)
        violate(d, "asked while capturing", 0);
    *reached = ((event *)asked)->reached;
    return injected(d);
}

static inline comet_status wait_until(device *d, const int *reached) {
    comet_status status = injected(d);
    if (d->capturing)
        violate(d, "waited while capturing", 0);
    while (status == COMET_OK && d->begin < d->end && !(reached && *reached))
        run_one(d);
    return status;
}

static inline comet_status fake_event_wait(const arena_driver *self, void *awaited) {
    return wait_until(device_of(self), &((event *)awaited)->reached);
}

static inline comet_status fake_queue_wait(const arena_driver *self, void *queue) {
    (void)queue;
    return wait_until(device_of(self), NULL);
}

static inline comet_status fake_capturing(const arena_driver *self, void *queue, int *is_capturing) {
    device *d = device_of(self);
    (void)queue;
    *is_capturing = d->capturing;
    return injected(d);
}

static inline device *device_new(void) {
    device *d = calloc(1, sizeof *d);
    assert_non_null(d);
    pthread_mutex_init(&d->lock, NULL);
    d->driver = (arena_driver){fake_reserve,      fake_unreserve,   fake_map,        fake_unmap,      fake_take,
                               fake_give,         fake_zero,        fake_copy,       fake_event_new,  fake_event_free,
                               fake_event_record, fake_event_query, fake_event_wait, fake_queue_wait, fake_capturing};
    return d;
}

static inline void device_check(const device *d) {
    if (d->violated)
        fail_msg("%s", d->why.text);
}

static inline void device_free(device *d) {
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

static inline comet_arena *arena_new(device *d, size_t limit, uint32_t entries) {
    comet_arena_options o = COMET_ARENA_OPTIONS_INIT;
    comet_arena *a = NULL;
    o.limit_bytes = limit;
    o.max_entries = entries;
    assert_ok(comet_arena_create_with(&d->driver, &o, &a));
    return a;
}

static inline comet_arena_stats stats_of(comet_arena *a) {
    comet_arena_stats s = {.size = sizeof s};
    assert_ok(comet_arena_get_stats(a, &s));
    return s;
}

static inline void compress(device *d, const comet_cuda_slot *slot, saved *s) {
    assert_true(d->stream_count < MOST_STREAMS);
    s->stream = d->stream_count++;
    d->streams[s->stream] = (stream){.bytes = s->bytes, .pattern = (unsigned char)(s->stream % 199 + 1)};
    enqueue(d, (op){.kind = OP_COMPRESS, .slot = *slot, .stream = s->stream});
}

/* A stream of `bytes` that could be `worst`. */
static inline comet_status save(device *d, comet_arena *a, size_t worst, size_t expected, size_t bytes, saved *s) {
    comet_cuda_slot slot;
    *s = (saved){.worst = worst, .bytes = bytes, .optimistic = expected && expected < worst};
    comet_status status = comet_arena_open(a, worst, expected, &s->entry, &slot);
    if (status != COMET_OK)
        return status;
    compress(d, &slot, s);
    return comet_arena_close(a, s->entry);
}

static inline comet_status load(device *d, comet_arena *a, const saved *s) {
    comet_cuda_slot slot;
    comet_status status = comet_arena_slot(a, s->entry, &slot);
    if (status == COMET_OK)
        enqueue(d, (op){.kind = OP_LOAD, .slot = slot, .stream = s->stream});
    return status;
}

static inline void release(device *d, comet_arena *a, const saved *s) {
    comet_cuda_slot slot = {0};
    if (comet_arena_slot(a, s->entry, &slot) == COMET_OK) /* for the base alone */
        enqueue(d, (op){.kind = OP_RELEASE, .stream = s->stream, .to = slot.base});
    else
        d->streams[s->stream].alive = 0;
    assert_ok(comet_arena_release(a, s->entry));
}

static inline void finish(device *d, comet_arena *a) {
    run_some(d, MOST_OPS);
    device_check(d);
    assert_ok(comet_arena_free(a));
    device_free(d);
}

#endif
