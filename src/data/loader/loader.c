/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of a loader and the ring of batches between them and the caller. Workers take a few samples of the oldest
 * batch that is not handed out completely; a batch is ready when all of its samples are done. Who makes a sample
 * changes nothing in it.
 */
#include "data/loader/loader.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "base/memory.h"
#include "data/image/transform.h"
#include "data/loader/draw.h"
#include "data/loader/loader_impl.h"

enum {
    STACK_BYTES = 512 << 10,
    STACK_TOUCHED_BYTES = 64 << 10,
    PAGE_BYTES = 4096, /* at most one beside each of a worker's buffers */
    MOST_THREADS = 256,
    MOST_BATCHES = 64,
    MOST_BATCH = 1 << 16,
    MOST_SHARDS = 1 << 12,
    MOST_SIDE = 8192,
    MOST_CLAIM = 16 /* samples taken at a time */
};

/* ---- options ---- */

static comet_status fill_in(const comet_dataset *set, const comet_loader_options *options, comet_loader_options *o,
                            comet_message *message) {
    *o = *options;
    o->threads = o->threads ? o->threads : 1;
    o->shards = o->shards ? o->shards : 1;
    o->batches = o->batches ? o->batches : 3;
    o->decode_bytes = o->decode_bytes ? o->decode_bytes : 12u << 20;
    o->least_area = o->least_area > 0.0 ? o->least_area : 0.08;
    int right = o->batch >= 1 && o->batch <= MOST_BATCH && o->height >= 1 && o->height <= MOST_SIDE && o->width >= 1 &&
                o->width <= MOST_SIDE && (o->channels == 1 || o->channels == 3) && o->threads <= MOST_THREADS &&
                o->batches >= 2 && o->batches <= MOST_BATCHES && o->least_area <= 1.0 &&
                o->decode_bytes >= COMET_DECODE_LEAST_BYTES && o->decode_bytes <= (size_t)1 << 32 &&
                o->shards <= MOST_SHARDS && o->shard < o->shards &&
                (o->split == COMET_SPLIT_TRAIN || o->split == COMET_SPLIT_EVALUATE);
    if (!right)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "impossible options for loading data");
    int64_t count = comet_dataset_get_info(set)->count[o->split], batch = comet_loader_whole_batch(o);
    if (o->split == COMET_SPLIT_TRAIN && count < batch)
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "a batch of %lld is more than all %lld training images; use a smaller one",
                                 (long long)batch, (long long)count);
    return COMET_OK;
}

static comet_augment_rule rule_for(const comet_dataset *set, const comet_loader_options *o) {
    const comet_dataset_info *info = comet_dataset_get_info(set);
    comet_augment_rule rule = {o->augment, info->centre, o->least_area};
    if (rule.kind == COMET_AUGMENT_DEFAULT)
        rule.kind = info->augment;
    if (o->split == COMET_SPLIT_EVALUATE)
        rule.kind = COMET_AUGMENT_NONE;
    return rule;
}

/* ---- memory: one block, laid out twice, without it (base NULL) to know how large it is ---- */

typedef struct layout {
    uint8_t *base;
    size_t used;
} layout;

static void *place(layout *l, size_t bytes) {
    void *at = l->base ? l->base + l->used : NULL;
    l->used += (bytes + COMET_ALIGNMENT - 1) / COMET_ALIGNMENT * COMET_ALIGNMENT;
    return at;
}

static void place_slot(layout *l, const comet_loader_options *o, comet_loader_slot *slot) {
    size_t batch = (size_t)o->batch, image = (size_t)o->height * (size_t)o->width * (size_t)o->channels;
    slot->pixels = place(l, batch * image);
    slot->labels = place(l, batch * sizeof *slot->labels);
    slot->samples = place(l, batch * sizeof *slot->samples);
    slot->items = place(l, batch * sizeof *slot->items);
}

/* What a decoder is given: as much as the largest image needs, within the limit; the limit where that is not known. */
static comet_decode_need decoder_need(const comet_dataset *set, const comet_loader_options *o) {
    comet_decode_need need = comet_dataset_get_info(set)->need,
                      limit = {o->decode_bytes, o->decode_bytes, COMET_IMAGE_MOST_SIDE, COMET_IMAGE_MOST_SIDE};
    if (need.pixels == 0)
        return limit;
    need.pixels = need.pixels > COMET_DECODE_LEAST_BYTES ? need.pixels : COMET_DECODE_LEAST_BYTES;
    need.pixels = need.pixels < limit.pixels ? need.pixels : limit.pixels;
    need.whole = need.whole < limit.whole ? need.whole : limit.whole;
    return need;
}

static void place_worker(layout *l, const comet_dataset *set, const comet_loader_options *o,
                         comet_loader_worker *worker) {
    const comet_dataset_info *info = comet_dataset_get_info(set);
    int decoded = comet_dataset_is_decoded(set);
    int32_t side = decoded ? COMET_IMAGE_MOST_SIDE : info->height > info->width ? info->height : info->width;
    worker->workspace = place(l, comet_transform_workspace(side, o->height, o->width));
    if (!decoded)
        return;
    comet_decode_need need = decoder_need(set, o);
    void *memory = place(l, comet_decoder_own_bytes(need.pixels));
    if (memory)
        comet_decoder_init(&worker->decoder, need.pixels, need.whole, memory);
}

/* Samples of an epoch. */
static int64_t count_samples(const comet_dataset *set, const comet_loader_options *o) {
    const int64_t all = comet_dataset_get_info(set)->count[o->split];
    return o->split == COMET_SPLIT_EVALUATE && o->most > 0 && o->most < all ? o->most : all;
}

static int is_drawn(const comet_dataset *set, const comet_loader_options *o) {
    return count_samples(set, o) < comet_dataset_get_info(set)->count[o->split];
}

static size_t lay_out(const comet_dataset *set, const comet_loader_options *o, comet_loader *loader, void *base) {
    layout l = {base, 0};
    comet_loader_slot slot;
    comet_loader_worker worker;
    place(&l, sizeof *loader);
    comet_loader_slot *slots = place(&l, o->batches * sizeof slot);
    comet_loader_worker *workers = place(&l, o->threads * sizeof worker);
    uint8_t *reported = place(&l, (size_t)comet_dataset_get_info(set)->count[o->split] / 8 + 1);
    int32_t *drawn = is_drawn(set, o) ? place(&l, (size_t)count_samples(set, o) * sizeof *drawn) : NULL;
    for (unsigned i = 0; i < o->batches; i++)
        place_slot(&l, o, slots ? &slots[i] : &slot);
    for (unsigned i = 0; i < o->threads; i++)
        place_worker(&l, set, o, workers ? &workers[i] : &worker);
    if (loader) {
        loader->slots = slots;
        loader->workers = workers;
        loader->reported = reported;
        loader->drawn = drawn;
        loader->bytes = l.used;
    }
    return l.used;
}

comet_status comet_loader_memory(const comet_dataset *set, const comet_loader_options *options, size_t *bytes,
                                 comet_message *message) {
    comet_loader_options o;
    COMET_TRY(fill_in(set, options, &o, message));
    comet_decode_need need = decoder_need(set, &o);
    size_t library = comet_dataset_is_decoded(set) ? comet_decoder_library_bytes(need.whole, need.width) : 0;
    *bytes = lay_out(set, &o, NULL, NULL) + o.threads * (library + STACK_BYTES);
    return COMET_OK;
}

static size_t worker_touches(const comet_dataset *set, const comet_loader_options *o) {
    const comet_dataset_info *info = comet_dataset_get_info(set);
    const int decoded = comet_dataset_is_decoded(set);
    const comet_decode_need need = decoder_need(set, o);
    const int32_t height = decoded ? need.height : info->height, width = decoded ? need.width : info->width;
    size_t bytes = comet_transform_workspace(height > width ? height : width, o->height, o->width) + PAGE_BYTES;
    if (decoded) {
        const size_t pixels = info->need.pixels && info->need.pixels < need.pixels ? info->need.pixels : need.pixels;
        bytes += comet_decoder_touched_bytes(pixels, need.width) + 3 * PAGE_BYTES +
                 comet_decoder_library_bytes(need.whole, need.width);
    }
    return bytes + STACK_TOUCHED_BYTES;
}

comet_status comet_loader_resident(const comet_dataset *set, const comet_loader_options *options, size_t *bytes,
                                   comet_message *message) {
    comet_loader_options o;
    COMET_TRY(fill_in(set, options, &o, message));
    layout worker = {NULL, 0};
    comet_loader_worker unused;
    place_worker(&worker, set, &o, &unused);
    *bytes = lay_out(set, &o, NULL, NULL) + o.threads * worker_touches(set, &o) - o.threads * worker.used;
    return COMET_OK;
}

/* ---- workers ---- */

/* A few samples of one batch. */
typedef struct claim {
    comet_loader_slot *slot;
    int32_t first, count;
} claim;

static bool may_claim(const comet_loader *loader) {
    uint64_t oldest = loader->delivered - (loader->held ? 1 : 0);
    return !loader->pausing && loader->claimed - oldest < loader->options.batches;
}

static void open_slot(const comet_loader *loader, comet_loader_slot *slot) {
    comet_loader_cursor cursor = loader->fill;
    slot->epoch = cursor.epoch;
    slot->position = cursor.position;
    slot->size = comet_loader_advance(loader, &cursor);
    slot->done = 0;
}

static claim take_claim(comet_loader *loader) {
    comet_loader_slot *slot = &loader->slots[loader->claimed % loader->options.batches];
    if (loader->claimed_items == 0)
        open_slot(loader, slot);
    int32_t share = slot->size / (2 * (int32_t)loader->options.threads), left = slot->size - loader->claimed_items;
    share = share < 1 ? 1 : share > MOST_CLAIM ? MOST_CLAIM : share;
    claim c = {slot, loader->claimed_items, share < left ? share : left};
    loader->claimed_items += c.count;
    if (loader->claimed_items == slot->size) {
        loader->claimed++;
        loader->claimed_items = 0;
        comet_loader_advance(loader, &loader->fill);
    }
    return c;
}

static double clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* Up to now, for so many threads; from here on, for `idle`. */
static void count_idle(comet_loader *loader, unsigned idle) {
    const double now = clock_ms();
    loader->waits.threads_ms += loader->idle * (now - loader->idle_since);
    loader->idle_since = now;
    loader->idle = idle;
}

static void wait_for_room(comet_loader *loader) {
    count_idle(loader, loader->idle + 1);
    pthread_cond_wait(&loader->room, &loader->lock);
    count_idle(loader, loader->idle - 1);
}

static void *work(void *argument) {
    comet_loader_worker *worker = argument;
    comet_loader *loader = worker->loader;
    pthread_mutex_lock(&loader->lock);
    while (!loader->stopping) {
        if (!may_claim(loader)) {
            wait_for_room(loader);
            continue;
        }
        claim c = take_claim(loader);
        loader->active++;
        pthread_mutex_unlock(&loader->lock);
        for (int32_t i = 0; i < c.count; i++)
            comet_loader_make(worker, c.slot, c.first + i);
        pthread_mutex_lock(&loader->lock);
        loader->active--;
        c.slot->done += c.count;
        if (c.slot->done == c.slot->size || loader->pausing)
            pthread_cond_broadcast(&loader->ready);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

/* Signals are for the threads of the program, not for these. */
static comet_status start(comet_loader *loader, comet_message *message) {
    pthread_attr_t attributes;
    sigset_t all, before;
    int failed = 0;
    if (pthread_attr_init(&attributes) != 0)
        return comet_message_memory(message);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (unsigned i = 0; i < loader->options.threads && !failed; i++) {
        loader->workers[i].loader = loader;
        failed = pthread_create(&loader->workers[i].thread, &attributes, work, &loader->workers[i]);
        loader->started += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed ? comet_message_set(message, COMET_ERROR_MEMORY, "cannot start %u threads: %s",
                                      loader->options.threads, strerror(failed))
                  : COMET_OK;
}

/* ---- the caller's side ---- */

comet_status comet_loader_new(const comet_dataset *set, const comet_loader_options *options, comet_loader **out,
                              comet_message *message) {
    comet_loader_options o;
    *out = NULL;
    COMET_TRY(fill_in(set, options, &o, message));
    size_t bytes = lay_out(set, &o, NULL, NULL);
    comet_loader *loader = comet_memory_take(o.allocator, bytes);
    if (!loader)
        return comet_message_memory(message);
    *loader = (comet_loader){.set = set, .options = o, .rule = rule_for(set, &o)};
    lay_out(set, &o, loader, loader);
    loader->count = count_samples(set, &o);
    loader->image_bytes = (size_t)o.height * (size_t)o.width * (size_t)o.channels;
    memset(loader->reported, 0, (size_t)comet_dataset_get_info(set)->count[o.split] / 8 + 1);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->room, NULL);
    pthread_cond_init(&loader->ready, NULL);
    comet_status status = COMET_OK;
    if (loader->drawn)
        status = comet_draw(set, o.split, loader->count, loader->drawn, o.allocator, message);
    if (status == COMET_OK)
        status = start(loader, message);
    if (status != COMET_OK)
        comet_loader_free(loader);
    else
        *out = loader;
    return status;
}

void comet_loader_free(comet_loader *loader) {
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->stopping = true;
    pthread_cond_broadcast(&loader->room);
    pthread_mutex_unlock(&loader->lock);
    for (unsigned i = 0; i < loader->started; i++)
        pthread_join(loader->workers[i].thread, NULL);
    pthread_cond_destroy(&loader->ready);
    pthread_cond_destroy(&loader->room);
    pthread_mutex_destroy(&loader->lock);
    comet_memory_give(loader->options.allocator, loader, loader->bytes);
}

/* 1: the slot has the next batch, and all of it. */
static bool is_ready(const comet_loader *loader, const comet_loader_slot *slot) {
    return loader->claimed > loader->delivered && slot->done >= slot->size;
}

/* Waits for the next batch and gives it to the caller, who gives the one before back. */
static comet_loader_slot *take_slot(comet_loader *loader) {
    pthread_mutex_lock(&loader->lock);
    loader->held = false;
    pthread_cond_broadcast(&loader->room);
    comet_loader_slot *slot = &loader->slots[loader->delivered % loader->options.batches];
    if (!is_ready(loader, slot)) {
        const double start = clock_ms();
        while (!is_ready(loader, slot))
            pthread_cond_wait(&loader->ready, &loader->lock);
        loader->waits.caller_ms += clock_ms() - start;
        loader->waits.late++;
    }
    loader->waits.batches++;
    loader->held = true;
    loader->delivered++;
    comet_loader_advance(loader, &loader->next);
    pthread_mutex_unlock(&loader->lock);
    return slot;
}

comet_status comet_loader_next(comet_loader *loader, comet_batch *batch, comet_message *message) {
    if (loader->failed == COMET_OK)
        loader->failed = comet_loader_finish(loader, take_slot(loader), batch, &loader->failure);
    if (loader->failed != COMET_OK)
        comet_message_set(message, loader->failed, "%s", loader->failure.text);
    return loader->failed;
}

comet_loader_waits comet_loader_get_waits(comet_loader *loader) {
    pthread_mutex_lock(&loader->lock);
    count_idle(loader, loader->idle);
    comet_loader_waits waits = loader->waits;
    pthread_mutex_unlock(&loader->lock);
    waits.threads_ms /= loader->options.threads;
    return waits;
}

comet_loader_state comet_loader_get_state(const comet_loader *loader) {
    const comet_dataset_info *info = comet_dataset_get_info(loader->set);
    return (comet_loader_state){.seed = loader->options.seed,
                                .epoch = loader->next.epoch,
                                .position = loader->next.position,
                                .count = loader->count,
                                .digest = info->digest[loader->options.split]};
}

static comet_status check_state(const comet_loader *loader, const comet_loader_state *state, comet_message *message) {
    comet_loader_state now = comet_loader_get_state(loader);
    if (state->count != now.count)
        return comet_message_set(message, COMET_ERROR_MISMATCH,
                                 "the data has changed: %lld images then, %lld now; resume with the data it began with",
                                 (long long)state->count, (long long)now.count);
    if (state->digest != now.digest)
        return comet_message_set(message, COMET_ERROR_MISMATCH,
                                 "the data has changed: other names or labels; resume with the data it began with");
    if (state->position < 0 || state->position >= state->count)
        return comet_message_set(message, COMET_ERROR_CORRUPT, "the saved place in the data lies outside of it");
    return COMET_OK;
}

comet_status comet_loader_set_state(comet_loader *loader, const comet_loader_state *state, comet_message *message) {
    COMET_TRY(check_state(loader, state, message));
    comet_loader_cursor cursor = {state->epoch, state->position};
    if (loader->options.split == COMET_SPLIT_TRAIN &&
        loader->count - cursor.position < comet_loader_whole_batch(&loader->options))
        cursor = (comet_loader_cursor){state->epoch + 1, 0};
    pthread_mutex_lock(&loader->lock);
    loader->pausing = true;
    while (loader->active > 0)
        pthread_cond_wait(&loader->ready, &loader->lock);
    loader->options.seed = state->seed;
    loader->fill = loader->next = cursor;
    loader->claimed = loader->delivered = 0;
    loader->claimed_items = 0;
    loader->held = loader->pausing = false;
    pthread_cond_broadcast(&loader->room);
    pthread_mutex_unlock(&loader->lock);
    return COMET_OK;
}

int64_t comet_loader_batches(const comet_loader *loader) {
    int64_t batch = comet_loader_whole_batch(&loader->options);
    return loader->options.split == COMET_SPLIT_TRAIN ? loader->count / batch : (loader->count + batch - 1) / batch;
}

/* ---- states as text ---- */

void comet_loader_state_format(const comet_loader_state *state, char text[COMET_LOADER_STATE_TEXT]) {
    snprintf(text, COMET_LOADER_STATE_TEXT,
             "seed=%" PRIu64 " epoch=%" PRIu32 " position=%" PRId64 " count=%" PRId64 " digest=%" PRIu32, state->seed,
             state->epoch, state->position, state->count, state->digest);
}

/* What reads back as it was written is right: sscanf alone would let much more pass. */
comet_status comet_loader_state_parse(const char *text, comet_loader_state *state) {
    char again[COMET_LOADER_STATE_TEXT];
    comet_loader_state s = {0};
    if (strlen(text) >= sizeof again)
        return COMET_ERROR_CORRUPT;
    if (sscanf(text, "seed=%" SCNu64 " epoch=%" SCNu32 " position=%" SCNd64 " count=%" SCNd64 " digest=%" SCNu32,
               &s.seed, &s.epoch, &s.position, &s.count, &s.digest) != 5)
        return COMET_ERROR_CORRUPT;
    comet_loader_state_format(&s, again);
    if (strcmp(again, text) != 0)
        return COMET_ERROR_CORRUPT;
    *state = s;
    return COMET_OK;
}
