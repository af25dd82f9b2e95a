/* SPDX-License-Identifier: Apache-2.0 */
/* Forms: from a user's words to a choice for each saved tensor. */
#include "train/forms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* One wish: a form for all tensors to which it can be applied. */
typedef struct wish {
    comet_store_form form;
    int offload;
    comet_codec_params codec;
} wish;

typedef struct rule {
    char pattern[COMET_NAME_BYTES];
    wish wish;
} rule;

struct comet_forms {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    wish all;
    int rules;
    rule rule[];
};

/* ---- reading ---- */

static const char known[] =
    "none, eb[:ERROR], pool:K, group:BITS, dct, zvc, offload, recompute, or one of them with +offload";

static comet_status unknown(const char *text, comet_message *message) {
    return comet_message_set(message, COMET_ERROR_ARGUMENT, "there is no form '%.60s'; there are: %s", text, known);
}

static int is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

/* The number behind a colon; `otherwise` if there is none. 0: it is not one. */
static int read_number(const char *text, size_t length, double otherwise, double *number) {
    char copy[32], *end;
    *number = otherwise;
    if (length == 0)
        return 1;
    if (length < 2 || length > sizeof copy) /* the colon alone, or more digits than a number has */
        return 0;
    memcpy(copy, text + 1, length - 1);
    copy[length - 1] = 0;
    *number = strtod(copy, &end);
    return *end == 0 && isfinite(*number);
}

static comet_status read_eb(const char *text, double number, wish *w, comet_message *message) {
    if (!(number >= 0 && number <= 100))
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "'%.60s': the error is a part of the rms of what is stored, from 0 to 100", text);
    w->codec.bound_kind = COMET_BOUND_RELATIVE;
    w->codec.bound = number;
    return COMET_OK;
}

static comet_status read_pool(const char *text, double number, wish *w, comet_message *message) {
    if (!(number >= 1 && number <= 64) || number != floor(number))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "'%.60s': pool:K averages K x K values, K from 1 to 64",
                                 text);
    w->codec.pool_block = (int32_t)number;
    return COMET_OK;
}

static comet_status read_group(const char *text, double number, wish *w, comet_message *message) {
    if (number != 2 && number != 4 && number != 8)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "'%.60s': group:BITS has 2, 4 or 8 bits a value", text);
    w->codec.group_bits = (int32_t)number;
    return COMET_OK;
}

static comet_status read_codec(const char *text, size_t name, size_t rest, double error_rel, wish *w,
                               comet_message *message) {
    static const comet_codec codecs[] = {COMET_CODEC_EB, COMET_CODEC_POOL, COMET_CODEC_GROUP, COMET_CODEC_DCT,
                                         COMET_CODEC_ZVC};
    double number = 0;
    w->form = COMET_FORM_CODEC;
    w->codec.codec = COMET_CODEC_RAW;
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        if (is_word(text, name, comet_codec_name(codecs[i])))
            w->codec.codec = codecs[i];
    const comet_codec codec = w->codec.codec;
    const double usual = codec == COMET_CODEC_EB ? error_rel : codec == COMET_CODEC_POOL ? 2 : 4;
    const int takes_number = codec == COMET_CODEC_EB || codec == COMET_CODEC_POOL || codec == COMET_CODEC_GROUP;
    if (codec == COMET_CODEC_RAW || (rest && !takes_number) || !read_number(text + name, rest, usual, &number))
        return unknown(text, message);
    switch (codec) {
    case COMET_CODEC_EB:
        return read_eb(text, number, w, message);
    case COMET_CODEC_POOL:
        return read_pool(text, number, w, message);
    case COMET_CODEC_GROUP:
        return read_group(text, number, w, message);
    default:
        return COMET_OK;
    }
}

/* `text` ends with a zero. */
static comet_status read_wish(const char *text, double error_rel, wish *w, comet_message *message) {
    static const char behind[] = "+offload";
    size_t length = strlen(text);
    const size_t tail = sizeof behind - 1;
    *w = (wish){.form = COMET_FORM_KEEP, .codec = COMET_CODEC_PARAMS_INIT};
    if (length > tail && strcmp(text + length - tail, behind) == 0) {
        w->offload = 1;
        length -= tail;
    }
    const char *colon = memchr(text, ':', length);
    const size_t name = colon ? (size_t)(colon - text) : length;
    if (is_word(text, length, "none") || is_word(text, length, "keep"))
        return COMET_OK;
    if (is_word(text, length, "offload")) {
        w->offload = 1;
        return COMET_OK;
    }
    if (!is_word(text, length, "recompute"))
        return read_codec(text, name, length - name, error_rel, w, message);
    if (w->offload)
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "recompute+offload: what is computed again is not in the file; say one of the two");
    w->form = COMET_FORM_RECOMPUTE;
    return COMET_OK;
}

/* "layer1.*=eb:0.1", `length` bytes of it. */
static comet_status read_rule(const char *text, size_t length, double error_rel, rule *r, comet_message *message) {
    char form[64];
    const char *equals = memchr(text, '=', length);
    const size_t name = equals ? (size_t)(equals - text) : 0;
    if (name == 0 || name >= sizeof r->pattern || length - name - 1 >= sizeof form)
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "'%.*s' is not a rule: LAYER=FORM, as in layer1.*=eb:0.1", (int)length, text);
    memcpy(r->pattern, text, name);
    r->pattern[name] = 0;
    memcpy(form, equals + 1, length - name - 1);
    form[length - name - 1] = 0;
    return read_wish(form, error_rel, &r->wish, message);
}

static int count_rules(const char *text) {
    int count = text && *text ? 1 : 0;
    for (; text && *text; text++)
        count += *text == ',';
    return count;
}

static comet_status read_rules(comet_forms *f, const char *text, double error_rel, comet_message *message) {
    comet_status status = COMET_OK;
    for (int i = 0; i < f->rules && status == COMET_OK; i++) {
        const size_t length = strcspn(text, ",");
        status = read_rule(text, length, error_rel, &f->rule[i], message);
        text += length + (text[length] == ',');
    }
    return status;
}

static size_t forms_bytes(int rules) {
    return sizeof(comet_forms) + (size_t)rules * sizeof(rule);
}

comet_status comet_forms_new(const char *codec, double error_rel, const char *overrides,
                             const comet_allocator *allocator, comet_forms **forms, comet_message *message) {
    const int rules = count_rules(overrides);
    comet_forms *f = comet_memory_take(allocator, forms_bytes(rules));
    if (!f)
        return comet_message_memory(message);
    memset(f, 0, forms_bytes(rules));
    if (allocator) {
        f->allocator_copy = *allocator;
        f->allocator = &f->allocator_copy;
    }
    f->rules = rules;
    comet_status status = read_wish(codec ? codec : "none", error_rel, &f->all, message);
    if (status == COMET_OK)
        status = read_rules(f, overrides, error_rel, message);
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
    comet_allocator copy = f->allocator_copy;
    comet_memory_give(f->allocator ? &copy : NULL, f, forms_bytes(f->rules));
}

/* ---- choosing ---- */

/* '*' and '?' as in a shell. */
static int fits(const char *pattern, const char *name) {
    const char *star = NULL, *from = name;
    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) { /* the last star takes one more */
            pattern = star;
            name = ++from;
        } else
            return 0;
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == 0;
}

/* NULL: no rule is about it. */
static const wish *rule_for(const comet_forms *f, const char *name) {
    for (int i = f->rules - 1; i >= 0; i--)
        if (fits(f->rule[i].pattern, name))
            return &f->rule[i].wish;
    return NULL;
}

/*
 * What loses more than a bounded error is for the inputs of convolutions and linear layers alone: it reaches their weights' gradient and no
 * other. zvc loses nothing, but has something to win only where there are zeros.
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
    const wish *w = rule_for(f, entry->name);
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
    entry->form.codec = w->codec;
    /* A value of which a ReLU needs the sign keeps it, so that no mask is kept beside it. */
    entry->form.codec.keep_mask =
        w->codec.codec == COMET_CODEC_EB && entry->kind == COMET_SAVED_VALUE && entry->has_relu;
}

/* ---- what it says ---- */

static int names_a_layer(const comet_graph *g, const char *pattern) {
    if (fits(pattern, "input"))
        return 1;
    for (int i = 0; i < g->node_count; i++)
        if (fits(pattern, g->nodes[i].name))
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
    else if (c->codec == COMET_CODEC_EB)
        snprintf(text, COMET_FORM_TEXT, "eb:%g%s", c->bound, behind);
    else if (c->codec == COMET_CODEC_POOL || c->codec == COMET_CODEC_GROUP)
        snprintf(text, COMET_FORM_TEXT, "%s:%d%s", comet_codec_name(c->codec),
                 c->codec == COMET_CODEC_POOL ? c->pool_block : c->group_bits, behind);
    else
        snprintf(text, COMET_FORM_TEXT, "%s%s", comet_codec_name(c->codec), behind);
}
