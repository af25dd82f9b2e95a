/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device store over a stand-in for the device: host memory, and queues of work that run when the test says so, each
 * in order, beside each other. The caller's memory is stream-ordered, as a framework's is: what is given back on a
 * queue may be taken again on it at once, and is poisoned when the queue has come so far. A "tensor" says how long its
 * stream is; the stream is a pattern, which is compared byte by byte when it is read.
 * To be included first.
 */
#ifndef COMET_TEST_DEVICE_STORE_CASE_H
#define COMET_TEST_DEVICE_STORE_CASE_H

#include "support/assert_ok.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "store/device/device_store.h"
#include "support/counting_allocator.h"
#include "support/effort.h"
#include "support/rng.h"

enum { QUEUES = 4, MOST_QUEUES = 5, MOST_OPS = 1 << 14, MOST_BLOCKS = 4096, LOST = 0xDD, MIB = 1 << 20 };

/* ---- the stand-in ---- */

typedef enum op_kind { OP_COMPRESS, OP_DECOMPRESS, OP_FILL, OP_COPY, OP_RECORD, OP_FOLLOW } op_kind;

/* One recording of an event. It stays until the device is freed. */
typedef struct mark {
    int reached;
    struct mark *next;
} mark;

typedef struct event {
    mark *last;
} event;

/* What a tensor's memory begins with. */
typedef struct content {
    uint64_t bytes, seed; /* of the stream */
} content;

/* The memory of a tensor, or as much of it as anybody reads. It stays until the device is freed. */
typedef struct held {
    content is;
    struct held *next;
    char padding[40];
} held;

typedef struct op {
    op_kind kind;
    comet_cuda_slot slot;
    void *to;
    const void *from;
    size_t bytes;
    int value;
    int32_t *status;
} op;

typedef struct queue {
    op ops[MOST_OPS];
    int begin, end;
} queue;

typedef struct block {
    unsigned char *memory;
    size_t bytes;
    void *queue;
    int taken;
} block;

typedef struct device {
    device_store_driver driver; /* first: what the store is given */
    failure why;                /* of the first violation */
    int violated;
    pthread_mutex_t lock; /* of the queues */
    queue queues[MOST_QUEUES];
    int made; /* the last queue was given out */
    block blocks[MOST_BLOCKS];
    int block_count;
    size_t taken_bytes, memory;       /* what can be taken; 0: any */
    void (*interlude)(void *context); /* other threads' calls, where the caller lets go of its lock; NULL: none */
    void *interlude_context;
    atomic_int dead;
    int capturing;
    long pages, events; /* live page-locked blocks and events */
    mark *marks;
    held *tensors;
    size_t page_limit; /* larger page-locked blocks are refused; 0: none */
    atomic_long calls;
    long fail_at;
    comet_status fail_with;
    int reads;
} device;

static inline device *device_of(const device_store_driver *self) {
    return (device *)(uintptr_t)self;
}

static inline void violate(device *d, const char *what, long number) {
    if (!d->violated++)
        failure_set(&d->why, "%s (%ld)", what, number);
}

static inline comet_status injected(device *d) {
    if (atomic_fetch_add(&d->calls, 1) + 1 != d->fail_at)
        return COMET_OK;
    return d->fail_with;
}

/* The n-th of the caller's queues; NULL is the default one. */
static inline void *queue_at(device *d, int n) {
    return n ? &d->queues[n] : NULL;
}

static inline queue *real_queue(device *d, void *handle) {
    return handle ? handle : &d->queues[0];
}

static inline void enqueue(device *d, void *handle, op o) {
    queue *q = real_queue(d, handle);
    pthread_mutex_lock(&d->lock);
    if (q->begin == q->end)
        q->begin = q->end = 0;
    assert_true(q->end < MOST_OPS);
    q->ops[q->end++] = o;
    pthread_mutex_unlock(&d->lock);
}

static inline unsigned char pattern(uint64_t seed, size_t i) {
    return (unsigned char)((seed + i * 0x9e3779b97f4a7c15u) >> 29);
}

/* Words, as a GPU writes them. */
static inline void write_result(comet_cuda_result *to, const comet_cuda_result *from) {
    uint64_t words[sizeof *from / 8];
    memcpy(words, from, sizeof words);
    for (size_t i = 0; i < sizeof words / 8; i++)
        atomic_store_explicit(&((_Atomic uint64_t *)(void *)to)[i], words[i], memory_order_release);
}

static inline void run_compress(device *d, const op *o) {
    content c;
    memcpy(&c, o->from, sizeof c);
    if (c.bytes < sizeof c || c.bytes > 64 * MIB) {
        violate(d, "the tensor is gone", (long)c.bytes);
        return;
    }
    comet_cuda_result r = {.codec = {.bytes = c.bytes, .bound = 0.5, .tiles = 1}, .status = COMET_ERROR_CAPACITY};
    if (c.bytes <= o->slot.capacity) {
        unsigned char *stream = o->slot.base;
        memcpy(stream, &c, sizeof c);
        for (size_t i = sizeof c; i < c.bytes; i++)
            stream[i] = pattern(c.seed, i);
        r.end = (c.bytes + 255) / 256 * 256;
        r.status = COMET_OK;
    }
    write_result(o->slot.result, &r);
}

static inline void run_decompress(device *d, const op *o) {
    content c;
    const unsigned char *stream = o->slot.base;
    memcpy(&c, stream, sizeof c);
    d->reads++;
    if (*o->status != COMET_OK && *o->status != COMET_ERROR_CORRUPT)
        violate(d, "the status word is not zeroed yet", *o->status);
    if (c.bytes < sizeof c || c.bytes > o->slot.capacity) {
        violate(d, "a stream is gone", (long)c.bytes);
        return;
    }
    for (size_t i = sizeof c; i < c.bytes; i++)
        if (stream[i] != pattern(c.seed, i)) {
            violate(d, "a stream changed", (long)i);
            return;
        }
    memcpy(o->to, &c, sizeof c);
}

/* 0: it waits for another queue. */
static inline int run_op(device *d, const op *o) {
    switch (o->kind) {
    case OP_COMPRESS:
        run_compress(d, o);
        break;
    case OP_DECOMPRESS:
        run_decompress(d, o);
        break;
    case OP_FILL:
        memset(o->to, o->value, o->bytes);
        break;
    case OP_COPY:
        if (o->bytes == 4) /* a word that the host may be reading */
            atomic_store((_Atomic int32_t *)o->to, *(const int32_t *)o->from);
        else
            memcpy(o->to, o->from, o->bytes);
        break;
    case OP_RECORD:
        ((mark *)o->to)->reached = 1;
        break;
    case OP_FOLLOW:
        return ((mark *)o->to)->reached;
    }
    return 1;
}

/* One piece of work of the queue. 0: there is none that can run. */
static inline int run_one(device *d, int n) {
    queue *q = &d->queues[n];
    pthread_mutex_lock(&d->lock);
    int ran = q->begin < q->end && !d->dead && run_op(d, &q->ops[q->begin]);
    q->begin += ran;
    pthread_mutex_unlock(&d->lock);
    return ran;
}

static inline void run_all(device *d) {
    for (int any = 1; any;) {
        any = 0;
        for (int n = 0; n < MOST_QUEUES; n++)
            while (run_one(d, n))
                any = 1;
    }
}

/* ---- the driver ---- */

static inline comet_status fake_enter(const device_store_driver *self, int32_t index, int *scope) {
    comet_status status = injected(device_of(self));
    *scope = 7 + index;
    return status;
}

static inline void fake_leave(const device_store_driver *self, int scope) {
    if (scope != 7)
        violate(device_of(self), "left what was not entered", scope);
}

static inline comet_status fake_take(const device_store_driver *self, size_t bytes, void **memory) {
    device *d = device_of(self);
    COMET_TRY(injected(d));
    if (d->page_limit && bytes > d->page_limit)
        return COMET_ERROR_MEMORY;
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    assert_non_null(*memory);
    memset(*memory, 0x5B, bytes);
    d->pages++;
    return COMET_OK;
}

static inline void fake_give(const device_store_driver *self, void *memory) {
    free(memory);
    device_of(self)->pages--;
}

static inline comet_status fake_measure(const device_store_driver *self, const comet_tensor *tensor,
                                        const comet_codec_params *params, size_t *most, size_t *workspace) {
    COMET_TRY(injected(device_of(self)));
    (void)params;
    *most = (size_t)comet_tensor_count(tensor) * 4 + 1000;
    *workspace = 1024 + *most / 64;
    return COMET_OK;
}

static inline comet_status fake_fill(device *d, void *handle, void *memory, int value, size_t bytes) {
    COMET_TRY(injected(d));
    enqueue(d, handle, (op){.kind = OP_FILL, .to = memory, .value = value, .bytes = bytes});
    return COMET_OK;
}

static inline comet_status fake_workspace_init(const device_store_driver *self, void *workspace, size_t bytes,
                                               void *handle) {
    return fake_fill(device_of(self), handle, workspace, 0, bytes);
}

static inline void check_exec(device *d, const comet_codec_exec *exec, const comet_tensor *tensor) {
    size_t needed = 1024 + ((size_t)comet_tensor_count(tensor) * 4 + 1000) / 64;
    if (!exec->workspace || exec->workspace_bytes < needed)
        violate(d, "the workspace is too small", (long)exec->workspace_bytes);
}

static inline comet_status fake_compress(const device_store_driver *self, const comet_tensor *tensor,
                                         const comet_codec_params *params, const comet_codec_exec *exec,
                                         const comet_cuda_slot *slot) {
    device *d = device_of(self);
    (void)params;
    COMET_TRY(injected(d));
    check_exec(d, exec, tensor);
    if ((uintptr_t)slot->base % 256 || slot->start || !slot->result)
        violate(d, "a slot is none for a stream", 0);
    enqueue(d, exec->queue, (op){.kind = OP_COMPRESS, .slot = *slot, .from = tensor->data});
    return COMET_OK;
}

static inline comet_status fake_decompress(const device_store_driver *self, const comet_cuda_slot *slot,
                                           const comet_codec_params *params, const comet_cuda_epilogue *epilogue,
                                           const comet_codec_exec *exec, const comet_tensor *tensor, int32_t *status) {
    device *d = device_of(self);
    (void)params, (void)epilogue;
    COMET_TRY(injected(d));
    check_exec(d, exec, tensor);
    if (!slot->base || slot->start || slot->result || !status)
        violate(d, "a slot is none for a stream that is known", 0);
    enqueue(d, exec->queue, (op){.kind = OP_DECOMPRESS, .slot = *slot, .to = tensor->data, .status = status});
    return COMET_OK;
}

static inline comet_status fake_zero(const device_store_driver *self, void *memory, size_t bytes, void *handle) {
    return fake_fill(device_of(self), handle, memory, 0, bytes);
}

static inline comet_status fake_copy(const device_store_driver *self, void *to, const void *from, size_t bytes,
                                     void *handle) {
    device *d = device_of(self);
    COMET_TRY(injected(d));
    enqueue(d, handle, (op){.kind = OP_COPY, .to = to, .from = from, .bytes = bytes});
    return COMET_OK;
}

static inline comet_status fake_queue_new(const device_store_driver *self, void **made) {
    device *d = device_of(self);
    COMET_TRY(injected(d));
    if (d->made++)
        violate(d, "a second queue is made", 0);
    *made = &d->queues[QUEUES];
    return COMET_OK;
}

static inline void fake_queue_free(const device_store_driver *self, void *gone) {
    device *d = device_of(self);
    (void)gone;
    d->made--;
}

static inline comet_status fake_queue_wait(const device_store_driver *self, void *handle) {
    device *d = device_of(self);
    (void)handle;
    run_all(d);
    return injected(d);
}

static inline comet_status fake_capturing(const device_store_driver *self, void *handle, int *capturing) {
    (void)handle;
    *capturing = device_of(self)->capturing;
    return injected(device_of(self));
}

static inline comet_status fake_health(const device_store_driver *self, void *handle) {
    device *d = device_of(self);
    (void)handle;
    return atomic_load(&d->dead) ? COMET_ERROR_DEVICE : injected(d);
}

static inline comet_status fake_event_new(const device_store_driver *self, void **made) {
    device *d = device_of(self);
    COMET_TRY(injected(d));
    *made = calloc(1, sizeof(event));
    assert_non_null(*made);
    d->events++;
    return COMET_OK;
}

static inline void fake_event_free(const device_store_driver *self, void *gone) {
    free(gone);
    device_of(self)->events--;
}

static inline comet_status fake_event_record(const device_store_driver *self, void *made, void *handle) {
    device *d = device_of(self);
    COMET_TRY(injected(d));
    mark *m = malloc(sizeof *m);
    assert_non_null(m);
    *m = (mark){0, d->marks};
    d->marks = m;
    ((event *)made)->last = m;
    enqueue(d, handle, (op){.kind = OP_RECORD, .to = m});
    return COMET_OK;
}

static inline comet_status fake_event_query(const device_store_driver *self, void *asked, int *reached) {
    device *d = device_of(self);
    event *e = asked;
    pthread_mutex_lock(&d->lock);
    *reached = e->last->reached;
    pthread_mutex_unlock(&d->lock);
    return atomic_load(&d->dead) ? COMET_ERROR_DEVICE : injected(d);
}

static inline comet_status fake_follow(const device_store_driver *self, void *handle, void *followed) {
    device *d = device_of(self);
    event *e = followed;
    COMET_TRY(injected(d));
    enqueue(d, handle, (op){.kind = OP_FOLLOW, .to = e->last});
    return COMET_OK;
}

/* ---- the caller's memory ---- */

static inline void let_others_in(const device *d) {
    if (d->interlude)
        d->interlude(d->interlude_context);
}

static inline void *memory_take(void *context, size_t bytes, void *handle) {
    device *d = context;
    let_others_in(d);
    if (injected(d) != COMET_OK || (d->memory && d->taken_bytes + bytes > d->memory))
        return NULL;
    block *b = NULL;
    for (int i = 0; i < d->block_count && !b; i++)
        if (!d->blocks[i].taken && d->blocks[i].bytes == bytes && d->blocks[i].queue == handle)
            b = &d->blocks[i];
    if (!b) {
        assert_true(d->block_count < MOST_BLOCKS);
        b = &d->blocks[d->block_count++];
        *b = (block){aligned_alloc(256, (bytes + 255) / 256 * 256), bytes, handle, 0};
        assert_non_null(b->memory);
        memset(b->memory, LOST, bytes);
    }
    b->taken = 1;
    d->taken_bytes += bytes;
    let_others_in(d);
    return b->memory;
}

static inline void memory_give(void *context, void *memory, size_t bytes, void *handle) {
    device *d = context;
    let_others_in(d);
    for (int i = 0; i < d->block_count; i++) {
        block *b = &d->blocks[i];
        if (b->memory != memory)
            continue;
        if (!b->taken || b->bytes != bytes || b->queue != handle)
            violate(d, "memory is given back that was not taken so", (long)bytes);
        b->taken = 0;
        d->taken_bytes -= bytes;
        enqueue(d, handle, (op){.kind = OP_FILL, .to = memory, .value = LOST, .bytes = bytes});
        let_others_in(d);
        return;
    }
    violate(d, "memory is given back that was not taken", (long)bytes);
}

static inline device *device_new(void) {
    device *d = calloc(1, sizeof *d);
    assert_non_null(d);
    pthread_mutex_init(&d->lock, NULL);
    d->fail_with = COMET_ERROR_DEVICE;
    d->driver = (device_store_driver){
        .enter = fake_enter,
        .leave = fake_leave,
        .take = fake_take,
        .give = fake_give,
        .measure = fake_measure,
        .workspace_init = fake_workspace_init,
        .compress = fake_compress,
        .decompress = fake_decompress,
        .zero = fake_zero,
        .to_host = fake_copy,
        .to_device = fake_copy,
        .queue_new = fake_queue_new,
        .queue_free = fake_queue_free,
        .queue_wait = fake_queue_wait,
        .queue_capturing = fake_capturing,
        .queue_health = fake_health,
        .event_new = fake_event_new,
        .event_free = fake_event_free,
        .event_record = fake_event_record,
        .event_query = fake_event_query,
        .queue_follow = fake_follow,
    };
    return d;
}

static inline void device_check(const device *d) {
    if (d->violated)
        fail_msg("%s", d->why.text);
}

/* Nothing of the store's is left. */
static inline void device_free(device *d) {
    run_all(d);
    device_check(d);
    assert_int_equal(d->pages, 0);
    assert_int_equal(d->events, 0);
    assert_int_equal(d->made, 0);
    assert_int_equal(d->taken_bytes, 0);
    for (int i = 0; i < d->block_count; i++)
        free(d->blocks[i].memory);
    while (d->tensors) {
        held *h = d->tensors;
        d->tensors = h->next;
        free(h);
    }
    while (d->marks) {
        mark *m = d->marks;
        d->marks = m->next;
        free(m);
    }
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ---- tensors, and who owns them ---- */

enum { VALUES = 16384 }; /* of a tensor: the most that its stream takes is 66536 bytes */

typedef struct item {
    comet_tensor tensor;
    content is;
    comet_device_entry *entry;
    void *queue;
    int told;
    comet_device_settled how;
    comet_device_entry *also; /* released when it is told */
    comet_device_store *store;
} item;

static inline content *content_of(const comet_tensor *t) {
    return t->data;
}

/* What a caller does: the tensor is not needed any more, and is overwritten by what its queue is given next. */
static inline void settled(void *context, void *owner, comet_device_entry *entry, const comet_device_settled *how) {
    item *i = owner;
    i->told++;
    i->how = *how;
    if (i->entry && i->entry != entry)
        i->told += 1000;
    if (i->also)
        comet_device_store_release(i->store, i->also);
    i->also = NULL;
    if (how->status == COMET_OK)
        enqueue(context, i->queue,
                (op){.kind = OP_FILL, .to = i->tensor.data, .value = LOST, .bytes = sizeof(content)});
    let_others_in(context);
}

/* A tensor whose stream takes so many bytes. */
static inline item item_new(device *d, uint64_t bytes, uint64_t seed) {
    item i = {.is = {bytes, seed}};
    int64_t shape[1] = {VALUES};
    held *data = aligned_alloc(64, sizeof *data);
    assert_non_null(data);
    data->next = d->tensors;
    data->is = i.is;
    d->tensors = data;
    assert_ok(
        comet_tensor_init_on(&i.tensor, (comet_device){COMET_CUDA, 0}, &data->is, COMET_F32, COMET_FLAT, 1, shape));
    return i;
}

static inline comet_device_store_options fake_options(device *d) {
    comet_device_store_options o = COMET_DEVICE_STORE_OPTIONS_INIT;
    o.device = (comet_device){COMET_CUDA, 0};
    o.memory = (comet_device_memory){memory_take, memory_give, d};
    o.segment_bytes = 2 * MIB;
    o.settled = settled;
    o.settled_context = d;
    return o;
}

static inline comet_device_store *store_new(device *d) {
    comet_device_store_options o = fake_options(d);
    comet_device_store *s = NULL;
    assert_ok(comet_device_store_create_with(&d->driver, &o, &s));
    return s;
}

static inline comet_device_save save_of(item *i, const comet_codec_params *params, void *handle) {
    comet_device_save save = COMET_DEVICE_SAVE_INIT;
    save.tensor = &i->tensor;
    save.params = params;
    save.queue = handle;
    save.owner = i;
    i->queue = handle;
    return save;
}

static inline comet_status save(comet_device_store *s, item *i, size_t expected, void *handle) {
    static const comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_device_save save = save_of(i, &params, handle);
    save.expected_bytes = expected;
    comet_device_entry *entry = NULL;
    comet_status status = comet_device_store_save(s, &save, &entry);
    if (status == COMET_OK)
        i->entry = entry;
    return status;
}

/* Reads it into `out`, whose content is the item's when the queue has come so far. */
static inline comet_status load(comet_device_store *s, const item *i, void *handle, const item *out) {
    return comet_device_store_load(s, i->entry, handle, NULL, &out->tensor);
}

static inline void check_content(const item *out, const item *i) {
    assert_memory_equal(out->tensor.data, &i->is, sizeof i->is);
}

static inline comet_device_store_stats stats_of(const comet_device_store *s) {
    comet_device_store_stats stats = COMET_DEVICE_STORE_STATS_INIT;
    comet_device_store_get_stats(s, &stats);
    return stats;
}

static inline void settle_all(device *d, comet_device_store *s) {
    run_all(d);
    assert_ok(comet_device_store_poll(s));
    assert_int_equal(stats_of(s).unsettled, 0);
}

static inline comet_device_entry_info info_of(const comet_device_entry *e) {
    comet_device_entry_info info = COMET_DEVICE_ENTRY_INFO_INIT;
    comet_device_entry_get_info(e, &info);
    return info;
}

#endif
