/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan says in words, on the terminal and in a report. */
#include <stdio.h>

#include "cmd/common/text.h"
#include "cmd/plan/plan.h"

enum { SIZE_TEXT = 32 };

const char *plan_kind_name(comet_saved_kind kind) {
    static const char *const names[] = {[COMET_SAVED_VALUE] = "activation",
                                        [COMET_SAVED_NORM] = "normalised",
                                        [COMET_SAVED_SIDE] = "side data",
                                        [COMET_SAVED_MASK] = "mask"};
    return names[kind];
}

void plan_request_text(const comet_trainer_options *o, char text[PLAN_TEXT]) {
    snprintf(text, PLAN_TEXT, "%s, batch %d of %d x %d x %d, %d classes, %s%s%s, %s", o->model, o->batch, o->height,
             o->width, o->channels, o->classes, o->codec, o->forms ? ", " : "", o->forms ? o->forms : "",
             o->optimiser.kind == COMET_SGD ? "sgd" : "adamw");
}

/* Two numbers that differ by little must not read the same: more digits than text_size has. */
static const char *precise_size(size_t bytes, char text[SIZE_TEXT]) {
    const double mebibytes = (double)bytes / (1 << 20);
    if (mebibytes >= 1024)
        snprintf(text, SIZE_TEXT, "%.2f GiB", mebibytes / 1024);
    else
        snprintf(text, SIZE_TEXT, "%.1f MiB", mebibytes);
    return text;
}

/* Rounded up, and in the words of `comet train`: what is read here and given to it is enough. */
static const char *least_size(size_t bytes, char text[SIZE_TEXT]) {
    snprintf(text, SIZE_TEXT, "%.1f MiB", (double)bytes / (1 << 20) + 0.05);
    return text;
}

/* " with 98.0 MiB in the spill file and 12.0 MiB computed again", or less, or nothing. */
static void how_it_fits(const plan_totals *t, char text[PLAN_TEXT / 2]) {
    char spilled[SIZE_TEXT], recomputed[SIZE_TEXT];
    const int both = t->spilled_bytes && t->recomputed_bytes;
    precise_size(t->spilled_bytes, spilled);
    precise_size(t->recomputed_bytes, recomputed);
    snprintf(text, PLAN_TEXT / 2, "%s%s%s%s%s%s", t->spilled_bytes || t->recomputed_bytes ? " with " : "",
             t->spilled_bytes ? spilled : "", t->spilled_bytes ? " in the spill file" : "", both ? " and " : "",
             t->recomputed_bytes ? recomputed : "", t->recomputed_bytes ? " computed again" : "");
}

static int budget_here(const plan_request *r, const plan_answer *answer, char text[PLAN_TEXT]) {
    const plan_totals t = plan_sum(r, &answer->shown);
    char limit[SIZE_TEXT], least[SIZE_TEXT], how[PLAN_TEXT / 2];
    precise_size(r->trainer.memory_bytes, limit);
    least_size(answer->shown.fit.least_bytes, least);
    how_it_fits(&t, how);
    if (answer->fits)
        return snprintf(text, PLAN_TEXT, "A batch of %d fits %s%s; the least for it is %s.", r->trainer.batch, limit,
                        how, least);
    return snprintf(text, PLAN_TEXT,
                    "A batch of %d does not fit %s: the least that would do is %s. This is the plan without a limit.",
                    r->trainer.batch, limit, least);
}

void plan_budget_text(const plan_request *r, const plan_answer *answer, char text[PLAN_TEXT]) {
    const int used = budget_here(r, answer, text);
    if (answer->largest_batch)
        snprintf(text + used, (size_t)(PLAN_TEXT - used), "\nThe largest batch that fits is %d.",
                 answer->largest_batch);
    else
        snprintf(text + used, (size_t)(PLAN_TEXT - used), "\nNot even a batch of 1 fits.");
}

void plan_estimates_text(const plan_request *r, const plan_answer *answer, char text[PLAN_TEXT]) {
    const plan_totals t = plan_sum(r, &answer->shown);
    int used = 0;
    if (t.estimates)
        used = snprintf(text, PLAN_TEXT,
                        "* %d of %d sizes are estimates, and so are the sums they are in: training learns them and "
                        "keeps a reserve.\n",
                        t.estimates, t.entries);
    snprintf(text + used, (size_t)(PLAN_TEXT - used), "%s",
             r->data ? "The data set and its prefetch are counted, as `comet train --memory` counts them."
                     : "The data set and its prefetch are not counted and come on top: --data SET counts them.");
}
