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

/* The rule of `length` bytes at `at`, cut out of a copy. */
static void tell(const comet_trainer_options *options, const planned *all, const char *at, size_t length) {
    char *without = malloc(strlen(options->forms) + 1), pattern[COMET_NAME_BYTES];
    const size_t first = (size_t)(at - options->forms), name = strcspn(at, "=");
    const char *rest = at + length + (at[length] == ',');
    planned other;
    if (!without || name >= sizeof pattern) {
        free(without);
        return;
    }
    memcpy(without, options->forms, first);
    strcpy(without + first, rest);
    if (!*rest && first > 0)
        without[first - 1] = '\0'; /* the comma before it */
    memcpy(pattern, at, name);
    pattern[name] = '\0';
    if (make(options, *without ? without : NULL, &other) && same_plan(all->plan, other.plan))
        note(is_saved(all->plan, pattern)
                 ? "--forms: '%.*s' changes nothing: these are held so anyway, or another rule wins"
                 : "--forms: '%.*s' changes nothing: nothing is saved of these layers ('comet plan' lists what is)",
             (int)length, at);
    forget(&other);
    free(without);
}

void forms_tell_idle(const comet_trainer_options *options) {
    planned all;
    if (!options->forms || !*options->forms)
        return;
    if (make(options, options->forms, &all))
        for (const char *at = options->forms; *at;) {
            const size_t length = strcspn(at, ",");
            tell(options, &all, at, length);
            at += length + (at[length] == ',');
        }
    forget(&all);
}
