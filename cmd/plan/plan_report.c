/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as pictures: memory over a step, saved bytes by layer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/text.h"
#include "cmd/plan/plan.h"
#include "cmd/report/report.h"

static const double mebibyte = 1 << 20;

enum { SIZE_TEXT = 32 };

/* ---- memory over a step ---- */

/*
 * What is in use at each time, with all that is there all the time; at most `limit`: there the store spills. *x and *y
 * are the caller's to free, after a failure too.
 */
static int make_curve(const plan_request *request, const plan_case *c, size_t limit, double **x, double **y,
                      size_t *count) {
    const size_t always = c->fit.bytes.static_bytes + c->fit.bytes.library_bytes + request->trainer.reserved_bytes;
    *count = (size_t)comet_plan_times(c->plan);
    *x = malloc(*count * sizeof **x);
    *y = malloc(*count * sizeof **y);
    if (!*x || !*y)
        return fail_memory();
    for (size_t t = 0; t < *count; t++) {
        const size_t bytes = always + comet_plan_bytes_at(c->plan, NULL, (int)t);
        (*x)[t] = (double)t;
        (*y)[t] = (double)(bytes < limit ? bytes : limit) / mebibyte;
    }
    return DONE;
}

/* Why the curve does not reach the planned peak. */
static void put_highest(report *r, const plan_request *request, const plan_answer *answer, const double *y,
                        size_t count) {
    const size_t peak = plan_sum(request, &answer->shown).peak_bytes;
    char text[PLAN_TEXT], planned[SIZE_TEXT], highest[SIZE_TEXT];
    double most = 0;
    for (size_t i = 0; i < count; i++)
        most = y[i] > most ? y[i] : most;
    snprintf(
        text, sizeof text,
        "The curve's highest point is %s, the planned peak %s: buffers are one block, as large as any moment of the "
        "step asks for, and not all of it is in use at that one.",
        text_size((size_t)(most * mebibyte), highest, sizeof highest), text_size(peak, planned, sizeof planned));
    report_text(r, text);
}

static int put_curves(report *r, const plan_request *request, const plan_answer *answer) {
    double *x[2] = {NULL, NULL}, *y[2] = {NULL, NULL};
    size_t count[2] = {0, 0};
    const size_t limit = answer->fits && request->trainer.memory_bytes ? request->trainer.memory_bytes : SIZE_MAX;
    int result = make_curve(request, &answer->baseline, SIZE_MAX, &x[0], &y[0], &count[0]);
    if (result == DONE)
        result = make_curve(request, &answer->shown, limit, &x[1], &y[1], &count[1]);
    const report_series series[] = {{"none: everything kept", x[0], y[0], count[0], 0},
                                    {request->trainer.codec, x[1], y[1], count[1], 1}};
    const comet_trainer_options *o = &request->trainer;
    const int same = strcmp(o->codec, "none") == 0 && !o->forms && !o->memory_bytes;
    if (result == DONE)
        report_lines(r, "Memory over a step: forward to the middle, then backward", "layers computed",
                     "MiB in use, of all that the planned peak counts", series + same, (size_t)(2 - same),
                     REPORT_AREA | REPORT_FROM_ZERO);
    if (result == DONE)
        put_highest(r, request, answer, y[1], count[1]);
    for (int i = 0; i < 2; i++) {
        free(x[i]);
        free(y[i]);
    }
    return result;
}

/* ---- saved bytes by layer ---- */

typedef struct layer {
    const char *name;
    size_t raw, stored;
    int estimate;
    char label[2 * SIZE_TEXT + 8];
} layer;

static void add_to(layer *l, size_t raw, size_t stored, int estimate) {
    l->raw += raw;
    l->stored += stored;
    l->estimate |= estimate;
}

/* Entries of one layer are one bar: its activation, statistics, mask. */
static size_t gather(const plan_case *c, layer *layers) {
    size_t count = 0;
    for (int i = 0; i < c->entry_count; i++) {
        const comet_plan_entry *e = c->entries[i];
        size_t at = 0;
        while (at < count && strcmp(layers[at].name, e->name) != 0)
            at++;
        if (at == count)
            layers[count++] = (layer){.name = e->name};
        add_to(&layers[at], e->raw_bytes, e->stored_bytes, e->is_estimate);
    }
    return count;
}

/* Bars that could not be seen (below a thousandth of all) become one, the last. `name`: room for its name. */
static size_t fold_small(layer *layers, size_t count, size_t all, char name[SIZE_TEXT]) {
    layer small = {.name = name};
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (layers[i].raw < all / 1000)
            add_to(&small, layers[i].raw, layers[i].stored, layers[i].estimate);
        else
            layers[kept++] = layers[i];
    snprintf(name, SIZE_TEXT, "%zu small ones", count - kept);
    if (kept < count)
        layers[kept++] = small;
    return kept;
}

static void set_bar(layer *l, report_bar *bar) {
    char raw[SIZE_TEXT], stored[SIZE_TEXT];
    text_size(l->raw, raw, sizeof raw);
    text_size(l->stored, stored, sizeof stored);
    if (l->stored == l->raw)
        snprintf(l->label, sizeof l->label, "%s", raw);
    else
        snprintf(l->label, sizeof l->label, "%s%s of %s", stored, l->estimate ? "*" : "", raw);
    *bar = (report_bar){l->name, (double)l->raw / mebibyte, (double)l->stored / mebibyte, l->label};
}

static int put_layers(report *r, const plan_case *c) {
    const size_t most = (size_t)c->entry_count + 1; /* no request for nothing */
    layer *layers = calloc(most, sizeof *layers);
    report_bar *bars = calloc(most, sizeof *bars);
    int result = layers && bars ? DONE : fail_memory();
    if (result == DONE) {
        char name[SIZE_TEXT];
        const size_t count = fold_small(layers, gather(c, layers), c->fit.bytes.saved_raw_bytes, name);
        for (size_t i = 0; i < count; i++)
            set_bar(&layers[i], &bars[i]);
        report_bars(r, "Saved for the backward pass by layer, and darker what is stored of it", "MiB", bars, count);
    }
    free(bars);
    free(layers);
    return result;
}

/* ---- the page ---- */

static void put_totals(report *r, const plan_request *request, const plan_answer *answer) {
    static const char *const columns[] = {"",        "saved",      "stored",       "weights, gradients, optimiser",
                                          "buffers", "compressed", "oneDNN's own", "planned peak"};
    enum { SIZES = 7, COLUMNS = SIZES + 1 };
    char text[2][SIZES][SIZE_TEXT];
    const char *cells[2 * COLUMNS];
    const plan_totals totals[] = {plan_sum(request, &answer->shown), plan_sum(request, &answer->baseline)};
    for (int i = 0; i < 2; i++) {
        const plan_totals *t = &totals[i];
        const size_t sizes[SIZES] = {t->raw_bytes,    t->stored_bytes,  t->static_bytes, t->buffer_bytes,
                                     t->stream_bytes, t->library_bytes, t->peak_bytes};
        cells[COLUMNS * i] = i ? "none" : "as planned";
        for (int k = 0; k < SIZES; k++)
            cells[COLUMNS * i + 1 + k] = text_size(sizes[k], text[i][k], SIZE_TEXT);
    }
    report_table(r, "The plan beside everything kept", columns, COLUMNS, cells, 2);
}

int plan_write_report(const plan_request *request, const plan_answer *answer) {
    char text[PLAN_TEXT];
    report r;
    plan_request_text(&request->trainer, text);
    if (report_open(&r, request->report, "What training would take", text) != DONE)
        return FAILED;
    if (request->trainer.memory_bytes) {
        plan_budget_text(request, answer, text);
        report_text(&r, text);
    }
    put_totals(&r, request, answer);
    if (put_curves(&r, request, answer) != DONE || put_layers(&r, &answer->shown) != DONE) {
        report_abandon(&r);
        return FAILED;
    }
    plan_estimates_text(request, answer, text);
    report_text(&r, text);
    return report_close(&r);
}
