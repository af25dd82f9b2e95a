/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a batch. */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "data/image/transform.h"
#include "data/loader/loader_impl.h"
#include "data/loader/order.h"

static bool trains(const comet_loader *loader) {
    return loader->options.split == COMET_SPLIT_TRAIN;
}

int64_t comet_loader_whole_batch(const comet_loader_options *options) {
    return (int64_t)options->batch * options->shards;
}

/* Samples of a whole batch before this shard's. */
static int64_t shard_offset(const comet_loader *loader) {
    return (int64_t)loader->options.batch * loader->options.shard;
}

int32_t comet_loader_advance(const comet_loader *loader, comet_loader_cursor *cursor) {
    int64_t batch = comet_loader_whole_batch(&loader->options), left = loader->count - cursor->position;
    int64_t size = left < batch ? left : batch, rest = left - size;
    cursor->position += size;
    if (rest == 0 || (trains(loader) && rest < batch)) {
        cursor->epoch++;
        cursor->position = 0;
    }
    int64_t part = size - shard_offset(loader);
    return part <= 0 ? 0 : part < loader->options.batch ? (int32_t)part : loader->options.batch;
}

/* Where in the epoch this shard's part begins; the end where it has none. */
static int64_t first_of(const comet_loader *loader, const comet_loader_slot *slot) {
    int64_t first = slot->position + shard_offset(loader);
    return first < loader->count ? first : loader->count;
}

/* Sample `index` into place `item`. */
static comet_status make_from(comet_loader_worker *worker, comet_loader_slot *slot, int32_t item, int64_t index,
                              comet_message *message) {
    comet_loader *loader = worker->loader;
    const comet_loader_options *o = &loader->options;
    comet_image image;
    COMET_TRY(comet_dataset_read(loader->set, o->split, index, &worker->decoder, &image, message));
    comet_view view =
        comet_augment_view(&loader->rule, o->seed, slot->epoch, index, image.height, image.width, o->height, o->width);
    comet_transform(&image, &view, o->height, o->width, o->channels, worker->workspace,
                    slot->pixels + (size_t)item * loader->image_bytes);
    slot->labels[item] = comet_dataset_label(loader->set, o->split, index);
    return COMET_OK;
}

static void note_failure(comet_loader_item *item, comet_status status, const comet_message *message) {
    item->status = status;
    snprintf(item->why, sizeof item->why, "%.*s", COMET_LOADER_WHY_BYTES - 1, message->text);
}

/* The next image of the set takes the place of one that cannot be used: always the same one, whoever is asked. */
static void make_another(comet_loader_worker *worker, comet_loader_slot *slot, int32_t place) {
    comet_loader *loader = worker->loader;
    comet_loader_item *item = &slot->items[place];
    comet_message message;
    for (int64_t i = 1; i < COMET_LOADER_MOST_BROKEN && i < loader->count; i++) {
        comet_status status = make_from(worker, slot, place, (item->sample + i) % loader->count, &message);
        if (status == COMET_OK)
            return;
        if (status == COMET_ERROR_MEMORY) {
            item->status = status;
            break;
        }
    }
    item->absent = true;
}

void comet_loader_make(comet_loader_worker *worker, comet_loader_slot *slot, int32_t place) {
    comet_loader *loader = worker->loader;
    comet_loader_item *item = &slot->items[place];
    comet_message message;
    item->sample = first_of(loader, slot) + place;
    if (trains(loader))
        item->sample = comet_order_at(loader->options.seed, slot->epoch, loader->count, item->sample);
    else if (loader->drawn)
        item->sample = loader->drawn[item->sample];
    item->absent = false;
    item->status = make_from(worker, slot, place, item->sample, &message);
    if (item->status == COMET_OK)
        return;
    note_failure(item, item->status, &message);
    if (trains(loader) && item->status != COMET_ERROR_MEMORY)
        make_another(worker, slot, place);
    else
        item->absent = true;
}

static void report(comet_loader *loader, const comet_loader_item *item) {
    uint8_t *byte = &loader->reported[item->sample / 8], bit = (uint8_t)(1u << (item->sample % 8));
    if (*byte & bit)
        return;
    *byte |= bit;
    if (loader->options.report)
        loader->options.report(loader->options.report_context, item->why);
}

static comet_status check(const comet_loader *loader, const comet_loader_item *item, comet_message *message) {
    if (item->status == COMET_ERROR_MEMORY)
        return comet_message_memory(message);
    if (item->absent && trains(loader))
        return comet_message_set(message, COMET_ERROR_CORRUPT, "too many images in a row cannot be used, the first: %s",
                                 item->why);
    return COMET_OK;
}

static void move(const comet_loader *loader, comet_loader_slot *slot, int32_t from, int32_t to) {
    if (from == to)
        return;
    memcpy(slot->pixels + (size_t)to * loader->image_bytes, slot->pixels + (size_t)from * loader->image_bytes,
           loader->image_bytes);
    slot->labels[to] = slot->labels[from];
}

comet_status comet_loader_finish(comet_loader *loader, comet_loader_slot *slot, comet_batch *batch,
                                 comet_message *message) {
    int32_t kept = 0;
    for (int32_t i = 0; i < slot->size; i++) {
        const comet_loader_item *item = &slot->items[i];
        comet_status status = check(loader, item, message);
        if (status != COMET_OK)
            return status;
        if (item->status != COMET_OK)
            report(loader, item);
        if (item->absent)
            continue;
        slot->samples[kept] = item->sample;
        move(loader, slot, i, kept++);
    }
    comet_loader_cursor after = {slot->epoch, slot->position};
    comet_loader_advance(loader, &after);
    *batch = (comet_batch){.pixels = slot->pixels,
                           .labels = slot->labels,
                           .samples = slot->samples,
                           .count = kept,
                           .epoch = slot->epoch,
                           .position = first_of(loader, slot),
                           .last = after.position == 0};
    return COMET_OK;
}
