/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule is left out once, and the plan compared with that of all. */
#include "cmd/train/forms_idle.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/common/message.h"
#include "train/graph/pattern.h"

typedef struct planned {
    comet_fit fit;
    comet_plan *plan;
    comet_graph *graph;
    comet_backend *backend;
} planned;

static void forget(planned *p) {
    comet_plan_free(p->plan);
    comet_backend_free(p->backend);
    comet_graph_free(p->graph);
}

/* As asked for: a budget would change forms as well. 0: there is no such plan. */
static int make(const comet_trainer_options *options, const char *forms, planned *p) {
    comet_trainer_options o = *options;
    comet_message unread;
    *p = (planned){.plan = NULL};
    o.place = (comet_place){.dtype = COMET_F32};
    o.forms = forms;
    o.memory_bytes = o.reserved_bytes = 0;
    return comet_trainer_fit(&o, NULL, &p->fit, &p->plan, &p->graph, &p->backend, &unread) == COMET_OK;
}

static int same_entry(const comet_plan_entry *a, const comet_plan_entry *b) {
    char x[COMET_FORM_TEXT], y[COMET_FORM_TEXT];
    comet_form_format(a, x);
    comet_form_format(b, y);
    return strcmp(a->name, b->name) == 0 && strcmp(x, y) == 0 && a->kind == b->kind && a->form.fixed == b->form.fixed;
}

static int same_plan(const comet_plan *a, const comet_plan *b) {
    int same = comet_plan_entries(a) == comet_plan_entries(b);
    for (int i = 0; same && i < comet_plan_entries(a); i++)
        same = same_entry(comet_plan_get_entry(a, i), comet_plan_get_entry(b, i));
    return same;
}

static int is_saved(const comet_plan *plan, const char *pattern) {
    for (int i = 0; i < comet_plan_entries(plan); i++)
        if (comet_pattern_fits(pattern, comet_plan_get_entry(plan, i)->name))
            return 1;
    return 0;
}

/* Where the next rule begins. */
static const char *next_rule(const char *at) {
    at += strcspn(at, ",");
    return at + (*at == ',');
}

/* The rules but the one at `at`; NULL: no memory. To be freed. */
static char *without_rule(const char *forms, const char *at) {
    char *text = malloc(strlen(forms) + 1);
    const size_t first = (size_t)(at - forms);
    const char *rest = next_rule(at);
    if (!text)
        return NULL;
    memcpy(text, forms, first);
    strcpy(text + first, rest);
    if (!*rest && first > 0)
        text[first - 1] = '\0'; /* the comma before it */
    return text;
}

static int is_idle(const comet_trainer_options *options, const planned *all, const char *at) {
    char *without = without_rule(options->forms, at);
    planned other;
    if (!without)
        return 0;
    const int idle = make(options, *without ? without : NULL, &other) && same_plan(all->plan, other.plan);
    forget(&other);
    free(without);
    return idle;
}

uint64_t forms_find_idle(const comet_trainer_options *options) {
    planned all;
    uint64_t idle = 0;
    int rule = 0;
    if (!options->forms || !*options->forms)
        return 0;
    if (make(options, options->forms, &all))
        for (const char *at = options->forms; *at && rule < 64; at = next_rule(at), rule++)
            idle |= (uint64_t)is_idle(options, &all, at) << rule;
    forget(&all);
    return idle;
}

static void tell(const planned *all, const char *at) {
    char pattern[COMET_NAME_BYTES];
    const size_t name = strcspn(at, "="), length = strcspn(at, ",");
    if (name >= sizeof pattern)
        return;
    memcpy(pattern, at, name);
    pattern[name] = '\0';
    note(is_saved(all->plan, pattern)
             ? "--forms: '%.*s' changes nothing: these are held so anyway, or another rule wins"
             : "--forms: '%.*s' changes nothing: nothing is saved of these layers ('comet plan' lists what is)",
         (int)length, at);
}

void forms_tell_idle(const comet_trainer_options *options, uint64_t idle) {
    planned all;
    int rule = 0;
    if (!idle)
        return;
    if (make(options, options->forms, &all))
        for (const char *at = options->forms; *at && rule < 64; at = next_rule(at), rule++)
            if (idle >> rule & 1)
                tell(&all, at);
    forget(&all);
}
