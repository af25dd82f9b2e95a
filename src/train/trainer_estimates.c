/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What steps have shown of stored sizes: the most of each value, and of each batch norm's normalised input. It outlives plans, in which an entry may
 * come and go, and goes into checkpoints, so that a run that is resumed plans as the one it goes on from.
 */
#include <string.h>

#include "base/memory.h"
#include "train/plan_impl.h"
#include "train/trainer_impl.h"

enum { ESTIMATES_MAGIC = 0x54534543, ESTIMATES_VERSION = 1 }; /* "CEST" */

typedef struct header {
    uint32_t magic, version;
    uint64_t count;
} header;

static size_t count_of(const comet_trainer *t) {
    return (size_t)(t->parts.graph->value_count + t->parts.graph->node_count);
}

/* Values first, then norms by node. */
static size_t place_of(const comet_trainer *t, const comet_plan_entry *e) {
    return (size_t)(e->kind == COMET_SAVED_NORM ? t->parts.graph->value_count + e->node : e->value);
}

comet_status comet_trainer_seen_new(comet_trainer *t, comet_message *message) {
    t->seen = comet_memory_take(t->allocator, count_of(t) * sizeof *t->seen);
    if (!t->seen)
        return comet_message_memory(message);
    memset(t->seen, 0, count_of(t) * sizeof *t->seen);
    return COMET_OK;
}

void comet_trainer_seen_free(comet_trainer *t) {
    if (t->seen)
        comet_memory_give(t->allocator, t->seen, count_of(t) * sizeof *t->seen);
    t->seen = NULL;
}

void comet_trainer_learn(comet_trainer *t) {
    for (int i = 0; i < comet_plan_entries(t->parts.plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(t->parts.plan, i);
        if (e->is_estimate == 2 && t->seen[place_of(t, e)] < e->stored_bytes)
            t->seen[place_of(t, e)] = e->stored_bytes;
    }
}

void comet_trainer_recall(comet_trainer *t) {
    for (int i = 0; i < comet_plan_entries(t->parts.plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(t->parts.plan, i);
        if (e->is_estimate && t->seen[place_of(t, e)])
            comet_plan_set_seen(t->parts.plan, i, (size_t)t->seen[place_of(t, e)]);
    }
}

size_t comet_trainer_estimates_bytes(const comet_trainer *t) {
    return sizeof(header) + count_of(t) * sizeof *t->seen;
}

void comet_trainer_get_estimates(const comet_trainer *t, void *bytes) {
    const header h = {ESTIMATES_MAGIC, ESTIMATES_VERSION, count_of(t)};
    memcpy(bytes, &h, sizeof h);
    memcpy((char *)bytes + sizeof h, t->seen, count_of(t) * sizeof *t->seen);
}

comet_status comet_trainer_set_estimates(comet_trainer *t, const void *data, size_t bytes, comet_message *message) {
    header h = {0};
    if (bytes >= sizeof h)
        memcpy(&h, data, sizeof h);
    if (bytes != comet_trainer_estimates_bytes(t) || h.magic != ESTIMATES_MAGIC || h.version != ESTIMATES_VERSION ||
        h.count != count_of(t))
        return comet_message_set(message, COMET_ERROR_MISMATCH, "the size estimates are of another network");
    memcpy(t->seen, (const char *)data + sizeof h, count_of(t) * sizeof *t->seen);
    comet_trainer_recall(t);
    return COMET_OK;
}
