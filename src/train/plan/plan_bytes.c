/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan says: its entries, and what is held at each time. */
#include "base/pages.h"
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

void comet_plan_set_bound(comet_plan *p, int index, comet_bound_kind kind, double bound) {
    p->entries[index].form.codec.bound_kind = kind;
    p->entries[index].form.codec.bound = bound;
}

void comet_plan_set_seen(comet_plan *p, int index, size_t bytes) {
    p->entries[index].stored_bytes = bytes;
    p->entries[index].is_estimate = 2;
}

int comet_plan_times(const comet_plan *p) {
    return (p->options.training ? 2 : 1) * p->n + 1;
}

/* Streams differ from batch to batch, guesses from what they are guesses of. */
static size_t with_reserve(const comet_plan_entry *e) {
    const size_t part = (e->stored_bytes + e->stored_bytes / (e->is_estimate == 2 ? 50 : 10)) / (size_t)e->parts;
    return comet_pages_round(part + 1) * (size_t)e->parts;
}

/* In memory between save and release; what goes to a file only passes through. */
static size_t resting_at(const comet_plan *p, int time) {
    size_t bytes = 0;
    for (int i = 0; i < p->entry_count; i++) {
        const comet_plan_entry *e = &p->entries[i];
        if (comet_plan_in_store(e) && !e->form.offload && e->saved_at <= time && time <= e->last_at)
            bytes += with_reserve(e);
    }
    return bytes;
}

/* Of one save or load at a time. */
static size_t scratch_of(const comet_plan_entry *e) {
    if (e->form.form != COMET_FORM_CODEC || !comet_plan_in_store(e))
        return 0;
    return comet_pages_round(e->scratch_bytes) + (e->form.offload ? with_reserve(e) / (size_t)e->parts : 0);
}

static size_t scratch_at(const comet_plan *p, int time) {
    size_t most = 0;
    for (int i = 0; i < p->entry_count; i++)
        if (p->entries[i].saved_at == time && scratch_of(&p->entries[i]) > most)
            most = scratch_of(&p->entries[i]);
    if (time <= p->n)
        return most;
    const comet_plan_node *n = &p->nodes[2 * p->n - time];
    for (int k = 0; k < n->loads; k++) {
        const int entry = p->load_list[n->first_load + k].entry;
        if (entry >= 0 && scratch_of(&p->entries[entry]) > most)
            most = scratch_of(&p->entries[entry]);
    }
    return most;
}

static size_t stored_at(const comet_plan *p, int time) {
    return resting_at(p, time) + scratch_at(p, time);
}

static size_t most_stored(const comet_plan *p) {
    size_t most = 0;
    for (int t = 0; t < comet_plan_times(p); t++) {
        const size_t now = stored_at(p, t);
        most = now > most ? now : most;
    }
    return most;
}

static size_t worst_scratch(const comet_plan *p) {
    size_t most = 0;
    for (int i = 0; i < p->entry_count; i++) {
        const comet_plan_entry *e = &p->entries[i];
        if (e->form.form != COMET_FORM_CODEC || !comet_plan_in_store(e))
            continue;
        const size_t bytes = comet_pages_round(e->scratch_bytes) + comet_pages_round(e->worst_bytes / (size_t)e->parts);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t comet_plan_bytes_at(const comet_plan *p, int time) {
    size_t bytes = stored_at(p, time);
    for (int i = 0; i < p->buffer_count; i++)
        if (p->buffers[i].first <= time && time <= p->buffers[i].last)
            bytes += p->buffers[i].bytes;
    return bytes;
}

comet_plan_bytes comet_plan_get_bytes(const comet_plan *p) {
    comet_plan_bytes b = {.arena_bytes = p->arena_bytes, .live_bytes = p->live_bytes};
    b.static_bytes = comet_graph_static_bytes(p->graph, p->options.training);
    for (int i = 0; i < p->entry_count; i++) {
        b.saved_raw_bytes += p->entries[i].raw_bytes;
        b.saved_stored_bytes += p->entries[i].stored_bytes;
    }
    b.store_bytes = most_stored(p);
    b.worst_scratch_bytes = worst_scratch(p);
    b.peak_bytes = b.static_bytes + b.arena_bytes + b.store_bytes;
    return b;
}
