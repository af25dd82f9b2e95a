/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What steps have shown of stored sizes: the most of each value, and of each batch norm's normalised input, in the
 * batches of late. Bounds follow the training, and sizes follow bounds: what was large in the first steps says little
 * about the last. It outlives plans, in which an entry may come and go, and goes into checkpoints, so that a run that
 * is resumed plans as the one it goes on from. What the last step's rms was goes there, too: bounds of the next are made
 * of it.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/memory.h"
#include "train/graph/graph_impl.h"
#include "train/trainer/trainer_impl.h"

enum { ESTIMATES_MAGIC = 0x54534543, ESTIMATES_VERSION = 4 }; /* "CEST" */

/* Of late: the window of batches under way, and the one before it; then the rms of the last step. */
enum { WINDOWS = 2, ROWS };

typedef struct header {
    uint32_t magic, version;
    uint64_t count;
    int32_t segments, held, forced, offload; /* of the saving */
    uint64_t planned;                        /* comet_trainer_parts.planned_streams */
    int64_t plain;                           /* of the saving */
} header;

static size_t count_of(const comet_trainer_parts *parts) {
    return (size_t)(parts->graph->value_count + parts->graph->node_count);
}

/* Values first, then norms by node. */
static size_t place_of(const comet_trainer_parts *parts, const comet_plan_entry *e) {
    return (size_t)(e->kind == COMET_SAVED_NORM ? parts->graph->value_count + e->node : e->value);
}

static uint64_t *window_of(const comet_trainer_parts *parts, int age) {
    return parts->seen + (size_t)age * count_of(parts);
}

static uint64_t most_of(const comet_trainer_parts *parts, size_t place) {
    const uint64_t now = window_of(parts, 0)[place], before = window_of(parts, 1)[place];
    return now > before ? now : before;
}

static size_t seen_bytes(const comet_trainer_parts *parts) {
    return ROWS * count_of(parts) * sizeof *parts->seen;
}

/* ---- rms ---- */

_Static_assert(sizeof(double) == sizeof(uint64_t), "a row of one is as long as a row of the other");

static void put_rms(comet_trainer_parts *parts, size_t place, double rms) {
    memcpy(window_of(parts, WINDOWS) + place, &rms, sizeof rms);
}

static double rms_of(const comet_trainer_parts *parts, size_t place) {
    double rms;
    memcpy(&rms, window_of(parts, WINDOWS) + place, sizeof rms);
    return isfinite(rms) && rms > 0 ? rms : 0;
}

/* Masks and side data of a value have its place, too. */
static int has_rms(const comet_plan_entry *e) {
    return e->kind == COMET_SAVED_VALUE || e->kind == COMET_SAVED_NORM;
}

/* ---- sizes ---- */

comet_status comet_trainer_seen_new(comet_trainer_parts *parts, comet_message *message) {
    parts->seen = comet_memory_take(parts->allocator, seen_bytes(parts));
    if (!parts->seen)
        return comet_message_memory(message);
    memset(parts->seen, 0, seen_bytes(parts));
    return COMET_OK;
}

void comet_trainer_seen_free(comet_trainer_parts *parts) {
    if (parts->seen)
        comet_memory_give(parts->allocator, parts->seen, seen_bytes(parts));
    parts->seen = NULL;
}

void comet_trainer_learn(comet_trainer_parts *parts) {
    for (int i = 0; i < comet_plan_entries(parts->plan); i++) {
        const comet_learned_entry *known = comet_learned_at(parts->learned, i);
        const comet_plan_entry *e = comet_plan_get_entry(parts->plan, i);
        uint64_t *seen = &window_of(parts, 0)[place_of(parts, e)];
        if (has_rms(e))
            put_rms(parts, place_of(parts, e), known->rms);
        if (known->source == COMET_SIZE_SEEN && *seen < known->last_bytes)
            *seen = known->last_bytes;
    }
}

/* By how much streams that were seen in both windows have changed. */
static double change_of(const comet_trainer_parts *parts) {
    double now = 0, before = 0;
    for (size_t place = 0; place < count_of(parts); place++)
        if (window_of(parts, 0)[place] && window_of(parts, 1)[place]) {
            now += (double)window_of(parts, 0)[place];
            before += (double)window_of(parts, 1)[place];
        }
    return before > 0 ? now / before : 1;
}

void comet_trainer_forget(comet_trainer_parts *parts) {
    const double change = change_of(parts);
    uint64_t *now = window_of(parts, 0), *before = window_of(parts, 1);
    for (size_t place = 0; place < count_of(parts); place++) {
        /*
         * What this plan does not store will have changed as the rest has: the bounds of all are set by the same rule.
         */
        before[place] = now[place] ? now[place] : (uint64_t)((double)before[place] * change);
        now[place] = 0;
    }
    comet_trainer_recall(parts);
}

void comet_trainer_recall(comet_trainer_parts *parts) {
    for (int i = 0; i < comet_plan_entries(parts->plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(parts->plan, i);
        const uint64_t most = most_of(parts, place_of(parts, e));
        if (e->is_estimate && most)
            comet_learned_set_seen(parts->learned, i, (size_t)most);
        if (has_rms(e))
            comet_learned_set_rms(parts->learned, i, rms_of(parts, place_of(parts, e)));
    }
}

size_t comet_trainer_most_seen(const comet_trainer_parts *parts, const comet_plan_entry *e) {
    return (size_t)most_of(parts, place_of(parts, e));
}

/* Of all that can be in the store, whether or not this plan has it there. */
uint64_t comet_trainer_streams(const comet_trainer_parts *parts) {
    uint64_t sum = 0;
    for (size_t place = 0; place < count_of(parts); place++)
        sum += most_of(parts, place);
    return sum;
}

int comet_trainer_expect_more(comet_trainer_parts *parts, int entry) {
    const comet_plan_entry *e = comet_plan_get_entry(parts->plan, entry);
    const size_t thought = comet_learned_at(parts->learned, entry)->stored_bytes;
    const uint64_t more = thought + thought / 4 + 4096;
    /* A stream in a buffer of the plan has said what it takes: it can be the most, and more than there was room for. */
    if (thought >= e->worst_bytes && (e->capacity == 0 || e->capacity >= e->worst_bytes))
        return 0;
    window_of(parts, 0)[place_of(parts, e)] = more < e->worst_bytes ? more : e->worst_bytes;
    return 1;
}

/* ---- for checkpoints ---- */

size_t comet_trainer_estimates_bytes(const comet_trainer *t) {
    return sizeof(header) + seen_bytes(&t->parts);
}

void comet_trainer_get_estimates(const comet_trainer *t, void *bytes) {
    const comet_saving *s = &t->parts.saving;
    const header h = {.magic = ESTIMATES_MAGIC,
                      .version = ESTIMATES_VERSION,
                      .count = count_of(&t->parts),
                      .segments = s->segments,
                      .held = s->held,
                      .forced = s->forced,
                      .offload = s->offload,
                      .planned = t->parts.planned_streams,
                      .plain = s->plain};
    memcpy(bytes, &h, sizeof h);
    memcpy((char *)bytes + sizeof h, t->parts.seen, seen_bytes(&t->parts));
}

static int is_sensible(const header *s) {
    return s->segments >= 0 && s->segments <= 1024 && s->held >= 0 && s->held <= 16 &&
           (s->forced == 0 || s->forced == 1) && s->offload >= 0 && s->offload <= 16 && s->plain >= 0 && s->plain <= 16;
}

/*
 * Version 1 had one window, of all batches, and did not say what its plan was made for. Until version 2 nothing was
 * plain, until version 3 no rms was kept.
 */
static size_t header_of_version(uint32_t version) {
    return version == 1 ? offsetof(header, planned) : version == 2 ? offsetof(header, plain) : sizeof(header);
}

static size_t sizes_of_version(const comet_trainer *t, uint32_t version) {
    const size_t rows = version == 1 ? 1 : version < 4 ? WINDOWS : ROWS;
    return rows * count_of(&t->parts) * sizeof *t->parts.seen;
}

static size_t bytes_of_version(const comet_trainer *t, uint32_t version) {
    const int is_known = version >= 1 && version <= ESTIMATES_VERSION;
    return is_known ? header_of_version(version) + sizes_of_version(t, version) : 0;
}

static void read_sizes(comet_trainer *t, const header *h, const char *data) {
    memset(t->parts.seen, 0, seen_bytes(&t->parts));
    memcpy(t->parts.seen, data + header_of_version(h->version), sizes_of_version(t, h->version));
    t->parts.planned_streams = h->version == 1 ? comet_trainer_streams(&t->parts) : h->planned;
}

comet_status comet_trainer_set_estimates(comet_trainer *t, const void *data, size_t bytes, comet_message *message) {
    header h = {0};
    memcpy(&h, data, bytes < sizeof h ? bytes : sizeof h);
    if (h.version < 3)
        h.plain = 0; /* what was read there is a size */
    if (bytes != bytes_of_version(t, h.version) || h.magic != ESTIMATES_MAGIC || h.count != count_of(&t->parts) ||
        !is_sensible(&h))
        return comet_message_set(message, COMET_ERROR_MISMATCH, "the size estimates are of another network");
    read_sizes(t, &h, data);
    const comet_saving saving = {h.segments, h.held, h.forced, h.offload, (int32_t)h.plain};
    return comet_trainer_go_on(t, &saving, message);
}
