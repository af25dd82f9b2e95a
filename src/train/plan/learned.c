/* SPDX-License-Identifier: Apache-2.0 */
#include "train/plan/learned.h"

#include "base/memory.h"

static comet_learned_entry first_of(const comet_plan_entry *e) {
    return (comet_learned_entry){.stored_bytes = e->stored_bytes,
                                 .source = e->is_estimate ? COMET_SIZE_GUESSED : COMET_SIZE_EXACT,
                                 .bound_kind = e->form.codec.bound_kind,
                                 .bound = e->form.codec.bound};
}

comet_status comet_learned_new(const comet_plan *plan, const comet_allocator *allocator, comet_learned **learned) {
    const int count = comet_plan_entries(plan);
    comet_learned *l = comet_memory_take(allocator, sizeof *l);
    comet_learned_entry *entries = comet_memory_take(allocator, (size_t)count * sizeof *entries);
    if (!l || !entries) {
        comet_memory_give(allocator, entries, (size_t)count * sizeof *entries);
        comet_memory_give(allocator, l, sizeof *l);
        return COMET_ERROR_MEMORY;
    }
    *l = (comet_learned){.plan = plan, .count = count, .entries = entries};
    l->allocator = comet_memory_hold(&l->allocator_copy, allocator);
    for (int i = 0; i < count; i++)
        entries[i] = first_of(comet_plan_get_entry(plan, i));
    *learned = l;
    return COMET_OK;
}

void comet_learned_free(comet_learned *l) {
    if (!l)
        return;
    const comet_allocator *allocator = l->allocator;
    comet_memory_give(allocator, l->entries, (size_t)l->count * sizeof *l->entries);
    comet_memory_give(allocator, l, sizeof *l);
}

const comet_learned_entry *comet_learned_at(const comet_learned *l, int entry) {
    return entry >= 0 && entry < l->count ? &l->entries[entry] : NULL;
}

void comet_learned_set_bound(comet_learned *l, int entry, comet_bound_kind kind, double bound) {
    l->entries[entry].bound_kind = kind;
    l->entries[entry].bound = bound;
}

void comet_learned_set_seen(comet_learned *l, int entry, size_t bytes) {
    l->entries[entry].stored_bytes = bytes;
    l->entries[entry].source = COMET_SIZE_SEEN;
}

void comet_learned_set_rms(comet_learned *l, int entry, double rms) {
    l->entries[entry].rms = rms;
}

void comet_learned_see(comet_learned *l, int entry, size_t bytes, double rms) {
    comet_learned_entry *e = &l->entries[entry];
    e->last_bytes = bytes;
    e->rms = rms;
    if (e->source == COMET_SIZE_GUESSED || e->stored_bytes < bytes)
        e->stored_bytes = bytes;
    if (e->source == COMET_SIZE_GUESSED)
        e->source = COMET_SIZE_SEEN;
}
