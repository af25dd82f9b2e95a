/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What steps have shown of stored sizes: the most of each value, and of each batch norm's normalised input. It outlives plans, in which an entry may
 * come and go, and goes into checkpoints, so that a run that is resumed plans as the one it goes on from.
 */
#include <string.h>

#include "base/memory.h"
#include "train/graph_impl.h"
#include "train/trainer_impl.h"

enum { ESTIMATES_MAGIC = 0x54534543, ESTIMATES_VERSION = 1 }; /* "CEST" */

typedef struct header {
    uint32_t magic, version;
    uint64_t count;
    comet_saving saving;
} header;

static size_t count_of(const comet_trainer_parts *parts) {
    return (size_t)(parts->graph->value_count + parts->graph->node_count);
}

/* Values first, then norms by node. */
static uint64_t *place_of(const comet_trainer_parts *parts, const comet_plan_entry *e) {
    return &parts->seen[e->kind == COMET_SAVED_NORM ? parts->graph->value_count + e->node : e->value];
}

comet_status comet_trainer_seen_new(comet_trainer_parts *parts, comet_message *message) {
    const size_t bytes = count_of(parts) * sizeof *parts->seen;
    parts->seen = comet_memory_take(parts->allocator, bytes);
    if (!parts->seen)
        return comet_message_memory(message);
    memset(parts->seen, 0, bytes);
    return COMET_OK;
}

void comet_trainer_seen_free(comet_trainer_parts *parts) {
    if (parts->seen)
        comet_memory_give(parts->allocator, parts->seen, count_of(parts) * sizeof *parts->seen);
    parts->seen = NULL;
}

void comet_trainer_learn(comet_trainer_parts *parts) {
    for (int i = 0; i < comet_plan_entries(parts->plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(parts->plan, i);
        if (e->is_estimate == 2 && *place_of(parts, e) < e->stored_bytes)
            *place_of(parts, e) = e->stored_bytes;
    }
}

void comet_trainer_recall(comet_trainer_parts *parts, comet_plan *plan) {
    for (int i = 0; i < comet_plan_entries(plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(plan, i);
        if (e->is_estimate && *place_of(parts, e))
            comet_plan_set_seen(plan, i, (size_t)*place_of(parts, e));
    }
}

int comet_trainer_expect_more(comet_trainer_parts *parts, int entry) {
    const comet_plan_entry *e = comet_plan_get_entry(parts->plan, entry);
    const uint64_t more = e->stored_bytes + e->stored_bytes / 4 + 4096;
    if (e->stored_bytes >= e->worst_bytes)
        return 0;
    *place_of(parts, e) = more < e->worst_bytes ? more : e->worst_bytes;
    return 1;
}

/* ---- for checkpoints ---- */

size_t comet_trainer_estimates_bytes(const comet_trainer *t) {
    return sizeof(header) + count_of(&t->parts) * sizeof *t->parts.seen;
}

void comet_trainer_get_estimates(const comet_trainer *t, void *bytes) {
    const header h = {ESTIMATES_MAGIC, ESTIMATES_VERSION, count_of(&t->parts), t->parts.saving};
    memcpy(bytes, &h, sizeof h);
    memcpy((char *)bytes + sizeof h, t->parts.seen, count_of(&t->parts) * sizeof *t->parts.seen);
}

static int is_sensible(const comet_saving *s) {
    return s->segments >= 0 && s->segments <= 1024 && s->held >= 0 && s->held <= 16 &&
           (s->forced == 0 || s->forced == 1) && s->offload >= 0 && s->offload <= 16;
}

comet_status comet_trainer_set_estimates(comet_trainer *t, const void *data, size_t bytes, comet_message *message) {
    header h = {0};
    if (bytes >= sizeof h)
        memcpy(&h, data, sizeof h);
    if (bytes != comet_trainer_estimates_bytes(t) || h.magic != ESTIMATES_MAGIC || h.version != ESTIMATES_VERSION ||
        h.count != count_of(&t->parts) || !is_sensible(&h.saving))
        return comet_message_set(message, COMET_ERROR_MISMATCH, "the size estimates are of another network");
    memcpy(t->parts.seen, (const char *)data + sizeof h, count_of(&t->parts) * sizeof *t->parts.seen);
    return comet_trainer_go_on(t, &h.saving, message);
}
