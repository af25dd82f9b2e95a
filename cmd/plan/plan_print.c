/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in words, on the terminal and in a report, and as a table. */
#include <stdio.h>
#include <string.h>

#include "cmd/common/text.h"
#include "cmd/plan/plan.h"

/* ---- in words ---- */

enum { SIZE_TEXT = 32, NAME_MOST = 34 };

const char *plan_kind_name(comet_saved_kind kind) {
    static const char *const names[] = {[COMET_SAVED_VALUE] = "activation",
                                        [COMET_SAVED_NORM] = "normalised",
                                        [COMET_SAVED_SIDE] = "side data",
                                        [COMET_SAVED_MASK] = "mask"};
    return names[kind];
}

void plan_request_text(const comet_trainer_options *o, char text[PLAN_TEXT]) {
    snprintf(text, PLAN_TEXT, "%s, batch %d of %d x %d x %d, %d classes, %s%s%s, %s%s%s", o->model, o->batch, o->height,
             o->width, o->channels, o->classes, o->codec, o->forms ? ", " : "", o->forms ? o->forms : "",
             o->optimiser.kind == COMET_SGD ? "sgd" : "adamw", o->freeze ? ", frozen: " : "",
             o->freeze ? o->freeze : "");
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

/* ---- on the terminal ---- */

static const char *star(int estimate) {
    return estimate ? " *" : "";
}

static int name_width(const plan_case *c) {
    int width = (int)strlen("batch norms and max-pools");
    for (int i = 0; i < c->entry_count; i++) {
        int length = (int)strlen(c->entries[i]->name);
        width = length > width ? length : width;
    }
    return width > NAME_MOST ? NAME_MOST : width;
}

static void print_row(int width, const char *name, const char *kind, const char *shape, size_t raw, const char *form,
                      size_t stored, int estimate) {
    char raw_text[SIZE_TEXT], stored_text[SIZE_TEXT];
    printf("%-*.*s  %-10s  %-13s %10s  %-14s %10s%s\n", width, width, name, kind, shape,
           text_size(raw, raw_text, sizeof raw_text), form, text_size(stored, stored_text, sizeof stored_text),
           star(estimate));
}

static void print_entry(const comet_plan_entry *e, int width) {
    char form[COMET_FORM_TEXT], shape[48];
    comet_form_format(e, form);
    snprintf(shape, sizeof shape, "%dx%dx%d", e->shape.height, e->shape.width, e->shape.channels);
    print_row(width, e->name, plan_kind_name(e->kind), shape, e->raw_bytes, form, e->stored_bytes, e->is_estimate);
}

/* Statistics and argmaxes are many and small: one row for all. */
static void print_layers(const plan_case *c, const plan_totals *t) {
    char ratio[SIZE_TEXT] = "";
    const int width = name_width(c);
    size_t side = 0;
    printf("%-*s  %-10s  %-13s %10s  %-14s %10s\n", width, "layer", "saved", "of an image", "raw", "form", "stored");
    for (int i = 0; i < c->entry_count; i++)
        if (c->entries[i]->kind == COMET_SAVED_SIDE)
            side += c->entries[i]->stored_bytes;
        else
            print_entry(c->entries[i], width);
    if (side)
        print_row(width, "batch norms and max-pools", plan_kind_name(COMET_SAVED_SIDE), "", side, "keep", side, 0);
    if (t->stored_bytes)
        snprintf(ratio, sizeof ratio, "%.1f x", (double)t->raw_bytes / (double)t->stored_bytes);
    print_row(width, "all", "", "", t->raw_bytes, ratio, t->stored_bytes, t->estimates);
}

static void print_size(const char *name, size_t bytes, int estimate) {
    char text[SIZE_TEXT];
    printf("%-44s %10s%s\n", name, text_size(bytes, text, sizeof text), star(estimate));
}

static void print_totals(const plan_totals *t) {
    print_size("weights, gradients, optimiser", t->static_bytes, 0);
    print_size("buffers: what is computed, and what is kept", t->buffer_bytes, 0);
    if (t->stream_bytes)
        print_size("compressed, at the fullest moment", t->stream_bytes, t->estimates);
    print_size("oneDNN's own: code, packed matrices", t->library_bytes, 0);
    if (t->data_bytes)
        print_size("data set and prefetch", t->data_bytes, 0);
    print_size("planned peak", t->peak_bytes, t->estimates);
    if (t->spilled_bytes)
        print_size("in the spill file", t->spilled_bytes, t->estimates);
    if (t->recomputed_bytes)
        print_size("not held but computed again", t->recomputed_bytes, 0);
}

void plan_print(const plan_request *r, const plan_answer *answer) {
    const plan_totals totals = plan_sum(r, &answer->shown);
    char text[PLAN_TEXT];
    plan_request_text(&r->trainer, text);
    printf("%s\n\n", text);
    print_layers(&answer->shown, &totals);
    printf("\n");
    print_totals(&totals);
    if (r->trainer.memory_bytes) {
        plan_budget_text(r, answer, text);
        printf("\n%s\n", text);
    }
    plan_estimates_text(r, answer, text);
    printf("\n%s\n", text);
}
