/* SPDX-License-Identifier: Apache-2.0 */
/* What a run's checkpoints are of: what must be the same where one is gone on from. */
#include <inttypes.h>
#include <stdio.h>

#include "base/memory.h"
#include "train/run/run_impl.h"

static const char *text_or(const char *text, const char *otherwise) {
    return text ? text : otherwise;
}

/*
 * What must not change, for the run that goes on to be the one that began. How long it shall be, where it saves, its
 * threads and its memory may: with the same ones the bits are the same, with others it is still the same training.
 */
static int format_options(const comet_run_session *s, char *text, size_t capacity) {
    const comet_trainer_options *t = &s->trainer_options;
    const comet_optimiser *o = &t->optimiser;
    const int on_gpu = t->place.device.kind == COMET_CUDA; /* a CPU's are fp32 */
    return snprintf(text, capacity,
                    "codec=%s error=%g control=%s calibration=%g batch=%d accumulate=%d seed=%" PRIu64
                    " rate=%g schedule=%d warmup=%g momentum=%g "
                    "nesterov=%d decay=%g/%d betas=%g,%g smoothing=%g augment=%d forms=%s inject=%s%s%s%s%s",
                    text_or(t->codec, "none"), t->error_rel, text_or(t->control, ""), t->calibration, t->batch,
                    s->accumulate, t->seed, s->schedule.rate, (int)s->schedule.kind, s->options->warmup_epochs,
                    o->momentum, o->nesterov, o->weight_decay, o->decay_weights_only, o->beta1, o->beta2,
                    (double)t->smoothing, (int)s->options->augment, text_or(t->forms, ""), text_or(t->hooks.text, ""),
                    t->freeze ? " freeze=" : "", text_or(t->freeze, ""), on_gpu ? " numbers=" : "",
                    on_gpu ? comet_place_numbers(&t->place) : "");
}

comet_status comet_run_identity_init(comet_run_identity *id, const comet_run_session *s) {
    const comet_trainer_options *t = &s->trainer_options;
    snprintf(id->model, sizeof id->model, "%s classes=%d image=%dx%dx%d", t->model, t->classes, t->height, t->width,
             t->channels);
    id->options_bytes = (size_t)format_options(s, NULL, 0) + 1;
    id->options = comet_memory_take(s->allocator, id->options_bytes);
    if (!id->options)
        return comet_message_memory(s->message);
    format_options(s, id->options, id->options_bytes);
    return COMET_OK;
}

void comet_run_identity_destroy(comet_run_identity *id, const comet_run_session *s) {
    comet_memory_give(s->allocator, id->options, id->options_bytes);
}
