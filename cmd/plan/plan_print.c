/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for people. */
#include <stdio.h>
#include <string.h>

#include "cmd/common/text.h"
#include "cmd/plan/plan.h"

enum { SIZE_TEXT = 32, NAME_MOST = 34 };

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
    print_size("buffers: what is computed, and what is kept", t->arena_bytes, 0);
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
