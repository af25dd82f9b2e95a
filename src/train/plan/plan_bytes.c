/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan says: its entries, and what is held at each time. */
#include "base/pages.h"
#include "train/plan/learned.h"
#include "train/plan/plan_impl.h"

const comet_graph *comet_plan_graph(const comet_plan *p) {
    return p->graph;
}

int comet_plan_entries(const comet_plan *p) {
    return p->entry_count;
}

const comet_plan_entry *comet_plan_get_entry(const comet_plan *p, int index) {
    return index >= 0 && index < p->entry_count ? &p->entries[index] : NULL;
}

int comet_plan_in_store(const comet_plan_entry *e) {
    return (e->kind == COMET_SAVED_VALUE || e->kind == COMET_SAVED_NORM) && e->form.form != COMET_FORM_RECOMPUTE &&
           !e->form.bytes && !comet_form_is_kept(&e->form);
}

int comet_plan_times(const comet_plan *p) {
    return (p->options.training ? 2 : 1) * p->n + 1;
}

/* A plan, and what is known of the sizes of its entries. */
typedef struct sizes {
    const comet_plan *plan;
    const comet_learned *learned; /* may be NULL */
} sizes;

static comet_learned_entry size_of(const sizes *s, int i) {
    const comet_plan_entry *e = &s->plan->entries[i];
    if (s->learned)
        return *comet_learned_at(s->learned, i);
    return (comet_learned_entry){.stored_bytes = e->stored_bytes,
                                 .source = e->is_estimate ? COMET_SIZE_GUESSED : COMET_SIZE_EXACT};
}

/* Streams differ from batch to batch, guesses from what they are guesses of. */
static size_t with_reserve(const sizes *s, int i) {
    const comet_learned_entry known = size_of(s, i);
    const size_t parts = (size_t)s->plan->entries[i].parts;
    const size_t part = (known.stored_bytes + known.stored_bytes / (known.source == COMET_SIZE_SEEN ? 50 : 10)) / parts;
    return comet_pages_round(part + 1) * parts;
}

/* In memory between save and release; what goes to a file only passes through; what lies in buffers is no store's. */
static size_t resting_at(const sizes *s, int time) {
    size_t bytes = 0;
    for (int i = 0; i < s->plan->entry_count; i++) {
        const comet_plan_entry *e = &s->plan->entries[i];
        if (comet_plan_in_store(e) && e->buffer < 0 && !e->form.offload && e->saved_at <= time && time <= e->last_at)
            bytes += with_reserve(s, i);
    }
    return bytes;
}

/* Of one save or load at a time. */
static size_t scratch_of(const sizes *s, int i) {
    const comet_plan_entry *e = &s->plan->entries[i];
    if (e->form.form != COMET_FORM_CODEC || !comet_plan_in_store(e) || e->buffer >= 0)
        return 0;
    return comet_pages_round(e->scratch_bytes) + (e->form.offload ? with_reserve(s, i) / (size_t)e->parts : 0);
}

static size_t scratch_at(const sizes *s, int time) {
    const comet_plan *p = s->plan;
    size_t most = 0;
    for (int i = 0; i < p->entry_count; i++)
        if (p->entries[i].saved_at == time && scratch_of(s, i) > most)
            most = scratch_of(s, i);
    if (time <= p->n)
        return most;
    const comet_plan_node *n = &p->nodes[2 * p->n - time];
    for (int k = 0; k < n->loads; k++) {
        const int entry = p->load_list[n->first_load + k].entry;
        if (entry >= 0 && scratch_of(s, entry) > most)
            most = scratch_of(s, entry);
    }
    return most;
}

static size_t stored_at(const sizes *s, int time) {
    return resting_at(s, time) + scratch_at(s, time);
}

static size_t most_stored(const sizes *s) {
    size_t most = 0;
    for (int t = 0; t < comet_plan_times(s->plan); t++) {
        const size_t now = stored_at(s, t);
        most = now > most ? now : most;
    }
    return most;
}

static size_t worst_scratch(const comet_plan *p) {
    size_t most = 0;
    for (int i = 0; i < p->entry_count; i++) {
        const comet_plan_entry *e = &p->entries[i];
        if (e->form.form != COMET_FORM_CODEC || !comet_plan_in_store(e) || e->buffer >= 0)
            continue;
        const size_t bytes = comet_pages_round(e->scratch_bytes) + comet_pages_round(e->worst_bytes / (size_t)e->parts);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t comet_plan_bytes_at(const comet_plan *p, const comet_learned *learned, int time) {
    size_t bytes = stored_at(&(sizes){p, learned}, time);
    for (int i = 0; i < p->buffer_count; i++)
        if (p->buffers[i].first <= time && time <= p->buffers[i].last)
            bytes += p->buffers[i].bytes;
    return bytes;
}

comet_plan_bytes comet_plan_get_bytes(const comet_plan *p, const comet_learned *learned) {
    const sizes s = {p, learned};
    comet_plan_bytes b = {.buffer_bytes = p->buffer_bytes, .live_bytes = p->live_bytes};
    b.static_bytes = comet_graph_static_bytes(p->graph, p->options.training);
    for (int i = 0; i < p->entry_count; i++) {
        b.saved_raw_bytes += p->entries[i].raw_bytes;
        b.saved_stored_bytes += size_of(&s, i).stored_bytes;
    }
    b.store_bytes = most_stored(&s);
    b.worst_scratch_bytes = worst_scratch(p);
    b.peak_bytes = b.static_bytes + b.buffer_bytes + b.store_bytes;
    return b;
}
