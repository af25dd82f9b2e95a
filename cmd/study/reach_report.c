/* SPDX-License-Identifier: Apache-2.0 */
/* How far errors reach, as a report. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/report/report.h"
#include "cmd/study/reach.h"
#include "cmd/train/report_options.h"

/* So many lines can be told apart. */
enum { LINES = 7, COLUMNS = 8, CELL = 112 };

/* Sources of a kind that reach a layer, as far from each other as can be: so many of them. */
static int choose(const comet_reach *r, int tensors, int chosen[LINES]) {
    const int sources = comet_reach_sources(r);
    int with = 0, taken = 0;
    for (int i = 0; i < sources; i++)
        with += comet_reach_get_source(r, i).is_tensor == tensors && comet_reach_summarise(r, i).near >= 0;
    const int wanted = with < LINES ? with : LINES;
    for (int i = 0, seen = 0; i < sources && taken < wanted; i++) {
        if (comet_reach_get_source(r, i).is_tensor != tensors || comet_reach_summarise(r, i).near < 0)
            continue;
        if (seen++ == (wanted > 1 ? taken * (with - 1) / (wanted - 1) : 0))
            chosen[taken++] = i;
    }
    return taken;
}

static int put_lines(report *r, const reach_case *c, int tensors) {
    const int layers = comet_reach_layers(c->reach);
    int chosen[LINES];
    const int count = choose(c->reach, tensors, chosen);
    report_series series[LINES];
    double *numbers = calloc((size_t)layers * (LINES + 1), sizeof *numbers), *x = numbers;
    char title[160];
    if (!numbers)
        return fail_memory();
    for (int i = 0; i < layers; i++)
        x[i] = i + 1;
    for (int k = 0; k < count; k++) {
        double *y = numbers + (ptrdiff_t)(k + 1) * layers;
        for (int i = 0; i < layers; i++) {
            comet_reach_error e;
            comet_reach_get(c->reach, chosen[k], i, &e);
            y[i] = e.flow > 0 ? e.flow : (double)NAN;
        }
        series[k] = (report_series){comet_reach_get_source(c->reach, chosen[k]).name, x, y, (size_t)layers, k};
    }
    if (tensors)
        snprintf(title, sizeof title, "One tensor compressed, bound %.20s: the error of what flows back",
                 reach_bound(c));
    else
        snprintf(title, sizeof title, "Errors of %g x rms put into one layer: the error of what flows back", c->sigma);
    if (count > 0)
        report_lines(r, title, "layer, from the input", "error / gradient", series, (size_t)count, REPORT_FROM_ZERO);
    free(numbers);
    return DONE;
}

/* ---- the tables ---- */

static void fill_row(const comet_reach *r, int source, char (*text)[CELL]) {
    const comet_reach_summary s = comet_reach_summarise(r, source);
    comet_reach_error near, far;
    snprintf(text[0], CELL, "%.100s", comet_reach_get_source(r, source).name);
    if (s.near < 0) {
        snprintf(text[1], CELL, "none");
        return;
    }
    comet_reach_get(r, source, s.near, &near);
    comet_reach_get(r, source, s.far, &far);
    snprintf(text[1], CELL, "%.100s", comet_reach_layer_name(r, s.near));
    snprintf(text[2], CELL, "%.4f", s.near_flow);
    snprintf(text[3], CELL, "%.4f", s.largest_flow);
    snprintf(text[4], CELL, "%.4f", s.far_flow);
    snprintf(text[5], CELL, isfinite(s.growth) ? "%.2f" : "-", s.growth);
    snprintf(text[6], CELL, "%.4f", near.weights);
    snprintf(text[7], CELL, "%.4f", far.weights);
}

static int put_table(report *r, const reach_case *c, int tensors) {
    static const char *const columns[COLUMNS] = {"error in",
                                                 "nearest layer",
                                                 "there",
                                                 "largest",
                                                 "at the first layer",
                                                 "growth",
                                                 "of its weights' gradient",
                                                 "of the first layer's"};
    const int sources = comet_reach_sources(c->reach);
    int rows = 0;
    char(*text)[COLUMNS][CELL] = calloc((size_t)sources, sizeof *text);
    const char **cells = calloc((size_t)sources * COLUMNS, sizeof *cells);
    const int answer = text && cells ? DONE : fail_memory();
    for (int i = 0; answer == DONE && i < sources; i++) {
        if (comet_reach_get_source(c->reach, i).is_tensor != tensors)
            continue;
        fill_row(c->reach, i, text[rows]);
        for (int k = 0; k < COLUMNS; k++)
            cells[rows * COLUMNS + k] = text[rows][k];
        rows++;
    }
    if (answer == DONE && rows > 0)
        report_table(r, tensors ? "Compressed tensors" : "Errors in gradients", columns, COLUMNS, cells, rows);
    free(cells);
    free(text);
    return answer;
}

static void put_growth(report *r, const reach_case *c) {
    static const char *const kinds[] = {"Errors put into gradients", "Errors of compressed tensors"};
    for (int tensors = 0; tensors < 2; tensors++) {
        const reach_growth g = reach_growth_of(c->reach, tensors);
        char text[200];
        snprintf(text, sizeof text,
                 "%s become, on their way to the first layer that they reach, %.2f times as large in the median (%.2f "
                 "to %.2f, %d of them).",
                 kinds[tensors], g.median, g.least, g.greatest, g.count);
        if (g.count > 0)
            report_text(r, text);
    }
}

int reach_report(const char *path, const reach_case *c) {
    report r;
    char title[160], subtitle[256];
    const comet_run_options *run = c->circumstances->run;
    snprintf(title, sizeof title, "How far errors reach in %.60s on %.60s", run->trainer.model,
             comet_dataset_get_info(run->data)->name);
    assess_describe(c->circumstances, subtitle, sizeof subtitle);
    int answer = report_open(&r, path, title, subtitle);
    if (answer != DONE)
        return answer;
    report_text(&r, "An error in one place, and what becomes of it in the same backward, in all layers before: the rms "
                    "of the error over that of the gradient, of a layer's output (what flows back) and of its weights. "
                    "A layer amplifies errors if the line rises towards the input, which is to the left.");
    put_growth(&r, c);
    for (int tensors = 0; tensors < 2 && answer == DONE; tensors++) {
        answer = put_lines(&r, c, tensors);
        if (answer == DONE)
            answer = put_table(&r, c, tensors);
    }
    if (answer != DONE) {
        report_abandon(&r);
        return answer;
    }
    report_options(&r, run, 0);
    return report_close(&r);
}
