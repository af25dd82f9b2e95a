/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/train/report_options.h"

#include <stdarg.h>
#include <stdio.h>

#include "cmd/common/text.h"

enum { ROWS = 24, VALUE = 320 };

typedef struct rows {
    const char *cells[2 * ROWS];
    char values[ROWS][VALUE];
    int count;
} rows;

static void add(rows *t, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void add(rows *t, const char *name, const char *format, ...) {
    va_list arguments;
    if (t->count == ROWS)
        return;
    va_start(arguments, format);
    vsnprintf(t->values[t->count], VALUE, format, arguments);
    va_end(arguments);
    t->cells[2 * t->count] = name;
    t->cells[2 * t->count + 1] = t->values[t->count];
    t->count++;
}

static void add_data(rows *t, const comet_run_options *run) {
    const comet_dataset_info *info = comet_dataset_get_info(run->data);
    add(t, "data", "%.300s", run->data_name ? run->data_name : info->name);
    add(t, "images", "%lld to train with, %lld to evaluate with, %d classes", (long long)info->count[COMET_SPLIT_TRAIN],
        (long long)(run->evaluate_most && run->evaluate_most < info->count[COMET_SPLIT_EVALUATE]
                        ? run->evaluate_most
                        : info->count[COMET_SPLIT_EVALUATE]),
        info->classes);
    if (run->augment == COMET_AUGMENT_NONE)
        add(t, "augmentation", "none");
    add(t, "model", "%s", run->trainer.model);
    if (run->weights)
        add(t, "weights", "%.300s", run->weights);
    if (run->trainer.freeze)
        add(t, "frozen", "%.300s", run->trainer.freeze);
}

static void add_steps(rows *t, const comet_run_options *run) {
    const comet_trainer_options *o = &run->trainer;
    if (run->steps)
        add(t, "length", "%lld steps", (long long)run->steps);
    else
        add(t, "length", "%d epochs", run->epochs);
    add(t, "batch", o->accumulate > 1 ? "%d, %d of them for an update" : "%d", o->batch, o->accumulate);
    if (o->optimiser.kind == COMET_SGD)
        add(t, "optimiser", "sgd, momentum %g%s, weight decay %g", o->optimiser.momentum,
            o->optimiser.nesterov ? " (Nesterov)" : "", o->optimiser.weight_decay);
    else
        add(t, "optimiser", "adamw, weight decay %g", o->optimiser.weight_decay);
    add(t, "learning rate", "%g, %s%s", run->rate, comet_schedule_name(run->schedule),
        run->warmup_epochs > 0 ? ", after a warm-up" : "");
    if (o->smoothing > 0)
        add(t, "label smoothing", "%g", (double)o->smoothing);
    add(t, "seed", "%llu", (unsigned long long)o->seed);
}

static void add_form(rows *t, const comet_run_options *run, int form) {
    const comet_trainer_options *o = &run->trainer;
    char size[32];
    if (form)
        add(t, "activations", "%.100s%s%.100s", o->codec, o->control ? " under " : "", o->control ? o->control : "");
    if (o->forms)
        add(t, "other forms", "%.300s", o->forms);
    if (o->memory_bytes)
        add(t, "memory", "%s", text_size(o->memory_bytes, size, sizeof size));
}

void report_options(report *r, const comet_run_options *run, int form) {
    static const char *const columns[] = {"", "value"};
    rows t = {.count = 0};
    add_data(&t, run);
    add_steps(&t, run);
    add_form(&t, run, form);
    report_table(r, "What was asked for", columns, 2, t.cells, t.count);
}
