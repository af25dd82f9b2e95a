/* SPDX-License-Identifier: Apache-2.0 */
/* What a step is made of: for its parts. */
#ifndef COMET_TRAIN_STEP_IMPL_H
#define COMET_TRAIN_STEP_IMPL_H

#include "train/plan/plan_impl.h"
#include "train/step/step.h"

struct comet_step {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_plan *plan;
    comet_store *store;
    char *arena;
    size_t own_bytes;                  /* of the arena, if it is ours */
    comet_store_handle *handles;       /* by entry and part; 0: none */
    const comet_step_options *options; /* of the run */
    uint64_t stored_bytes;
    int failed;  /* node whose op failed, -1 */
    int refused; /* entry for which there was no room, -1 */
};

static inline void *comet_step_at(const comet_step *s, int buffer) {
    return buffer < 0 ? NULL : s->arena + s->plan->buffers[buffer].offset;
}

/* ---- step_saved.c: what is saved, into the store and back ---- */

size_t comet_step_handles_bytes(const comet_plan *plan);

typedef struct comet_step_content {
    float *data;
    const comet_codec_grid *grid; /* NULL: the values as they are */
    double rms;                   /* of the non-zeros, normalised by the grid; 0 or not finite: not known */
} comet_step_content;

comet_status comet_step_save(comet_step *s, int entry, const comet_step_content *content);
comet_status comet_step_load(comet_step *s, const comet_plan_load *load);
comet_status comet_step_load_part(const comet_step *s, int entry, int part, float *data);
void comet_step_release(comet_step *s, int entry);
void comet_step_release_all(comet_step *s);

/* The batch from its bytes; samples that do not count are zero. */
void comet_step_normalise(const comet_step *s, float *values);

#endif
