/* SPDX-License-Identifier: Apache-2.0 */
/* Forms: from a user's words to a choice for each saved tensor. */
#include "train/plan/forms.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "train/graph/pattern.h"
#include "train/plan/forms_impl.h"

static size_t forms_bytes(int rules) {
    return sizeof(comet_forms) + (size_t)rules * sizeof(comet_form_rule);
}

comet_status comet_forms_new(const char *codec, double error_rel, const char *overrides,
                             const comet_allocator *allocator, comet_forms **forms, comet_message *message) {
    const int rules = comet_forms_count(overrides);
    comet_forms *f = comet_memory_take(allocator, forms_bytes(rules));
    if (!f)
        return comet_message_memory(message);
    memset(f, 0, forms_bytes(rules));
    f->allocator = comet_memory_hold(&f->allocator_copy, allocator);
    f->rules = rules;
    comet_status status = comet_forms_read_wish(codec ? codec : "none", error_rel, &f->all, message);
    if (status == COMET_OK)
        status = comet_forms_read_rules(f, overrides, error_rel, message);
    if (status != COMET_OK) {
        comet_forms_free(f);
        return status;
    }
    *forms = f;
    return COMET_OK;
}

void comet_forms_free(comet_forms *f) {
    if (!f)
        return;
    comet_memory_give(f->allocator, f, forms_bytes(f->rules));
}

/* ---- choosing ---- */

/* NULL: no rule is about it. */
static const comet_wish *rule_for(const comet_forms *f, const char *name) {
    for (int i = f->rules - 1; i >= 0; i--)
        if (comet_pattern_fits(f->rule[i].pattern, name))
            return &f->rule[i].wish;
    return NULL;
}

/*
 * What loses more than a bounded error is for the inputs of convolutions and linear layers alone: it reaches their
 * weights' gradient and no other. zvc loses nothing, but has something to win only where there are zeros.
 */
static int suits(const comet_plan_entry *e, comet_codec codec) {
    if (codec == COMET_CODEC_EB)
        return 1;
    if (e->kind == COMET_SAVED_NORM)
        return 0;
    return codec == COMET_CODEC_ZVC ? e->uses_conv > 0 : e->uses_conv > 0 && e->uses_conv == e->uses;
}

void comet_forms_choose(void *forms, comet_plan_entry *entry) {
    const comet_forms *f = forms;
    const comet_wish *w = rule_for(f, entry->name);
    if (!w && entry->form.bytes) /* a quarter already, and exact */
        return;
    if (!w)
        w = &f->all;
    entry->form.offload = w->offload;
    entry->form.form = w->form;
    if (w->form != COMET_FORM_CODEC)
        return;
    if (!suits(entry, w->codec.codec)) {
        entry->form.form = COMET_FORM_KEEP;
        return;
    }
    if (w->codec.codec == COMET_CODEC_EB && entry->op == COMET_OP_SCALE && !entry->is_first) {
        /*
         * Channels times factors: both are there, the channels from the norm that they come from. A product is less
         * than a stream.
         */
        entry->form.form = COMET_FORM_RECOMPUTE;
        entry->form.offload = 0;
        entry->form.always = 1;
        return;
    }
    entry->form.codec = w->codec;
    entry->form.fixed = w->fixed;
    /* A value of which a ReLU needs the sign keeps it, so that no mask is kept beside it. */
    entry->form.codec.keep_mask =
        w->codec.codec == COMET_CODEC_EB && entry->kind == COMET_SAVED_VALUE && entry->has_relu;
}

/* ---- what it says ---- */

static int names_a_layer(const comet_graph *g, const char *pattern) {
    if (comet_pattern_fits(pattern, "input"))
        return 1;
    for (int i = 0; i < g->node_count; i++)
        if (comet_pattern_fits(pattern, g->nodes[i].name))
            return 1;
    return 0;
}

comet_status comet_forms_check(const comet_forms *f, const comet_graph *graph, comet_message *message) {
    for (int i = 0; i < f->rules; i++)
        if (!names_a_layer(graph, f->rule[i].pattern))
            return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                     "no layer is called '%s'; `comet plan` lists the layers of a network",
                                     f->rule[i].pattern);
    return COMET_OK;
}

int comet_forms_offloads(const comet_forms *f) {
    int offloads = f->all.offload;
    for (int i = 0; i < f->rules; i++)
        offloads |= f->rule[i].wish.offload;
    return offloads;
}

int comet_forms_recomputes(const comet_forms *f) {
    int recomputes = f->all.form == COMET_FORM_RECOMPUTE;
    for (int i = 0; i < f->rules; i++)
        recomputes |= f->rule[i].wish.form == COMET_FORM_RECOMPUTE;
    return recomputes;
}

static const char *kept_name(const comet_plan_entry *e) {
    return e->kind == COMET_SAVED_MASK ? "mask" : e->form.bytes ? "u8" : e->form.offload ? "offload" : "keep";
}

void comet_form_format(const comet_plan_entry *e, char text[COMET_FORM_TEXT]) {
    const comet_codec_params *c = &e->form.codec;
    const char *behind = e->form.offload ? "+offload" : "";
    if (e->form.form == COMET_FORM_RECOMPUTE)
        snprintf(text, COMET_FORM_TEXT, "recompute");
    else if (e->form.form == COMET_FORM_KEEP)
        snprintf(text, COMET_FORM_TEXT, "%s", kept_name(e));
    else if (c->codec == COMET_CODEC_EB && c->bound_kind == COMET_BOUND_ABSOLUTE)
        snprintf(text, COMET_FORM_TEXT, "eb:%.3g absolute%s", c->bound, behind);
    else if (c->codec == COMET_CODEC_EB)
        snprintf(text, COMET_FORM_TEXT, "eb:%g%s", c->bound, behind);
    else if (c->codec == COMET_CODEC_POOL || c->codec == COMET_CODEC_GROUP)
        snprintf(text, COMET_FORM_TEXT, "%s:%d%s", comet_codec_name(c->codec),
                 c->codec == COMET_CODEC_POOL ? c->pool_block : c->group_bits, behind);
    else
        snprintf(text, COMET_FORM_TEXT, "%s%s", comet_codec_name(c->codec), behind);
}
