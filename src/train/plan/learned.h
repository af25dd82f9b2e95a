/* SPDX-License-Identifier: Apache-2.0 */
/* What a run learns of a plan's entries: sizes, rms, bounds. The plan itself does not change while it runs. */
#ifndef COMET_TRAIN_LEARNED_H
#define COMET_TRAIN_LEARNED_H

#include "train/plan/plan.h"

typedef enum comet_size_source {
    COMET_SIZE_EXACT,   /* it is kept as it is */
    COMET_SIZE_GUESSED, /* the plan's guess */
    COMET_SIZE_SEEN     /* the most that steps have shown */
} comet_size_source;

/* Of one entry. */
typedef struct comet_learned_entry {
    size_t stored_bytes; /* what it is taken to need */
    comet_size_source source;
    size_t last_bytes;           /* what it took when it was last held; 0: never was */
    double rms;                  /* of its non-zeros then, by a codec that says; 0: unknown */
    comet_bound_kind bound_kind; /* of COMET_CODEC_EB, from the next step on */
    double bound;
} comet_learned_entry;

struct comet_learned {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    const comet_plan *plan;
    int count;
    comet_learned_entry *entries;
};

/* What the plan says by itself. The plan must outlive it. */
comet_status comet_learned_new(const comet_plan *plan, const comet_allocator *allocator, comet_learned **learned);
void comet_learned_free(comet_learned *learned);

/* NULL if there is no such entry. */
const comet_learned_entry *comet_learned_at(const comet_learned *learned, int entry);

void comet_learned_set_bound(comet_learned *learned, int entry, comet_bound_kind kind, double bound);

/* The most that an entry whose size was a guess took, from steps under another plan. */
void comet_learned_set_seen(comet_learned *learned, int entry, size_t bytes);

/* Its rms, from a step of another run. */
void comet_learned_set_rms(comet_learned *learned, int entry, double rms);

/* What an entry took in a step. */
void comet_learned_see(comet_learned *learned, int entry, size_t bytes, double rms);

#endif
