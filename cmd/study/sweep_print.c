/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep as a table, as JSON and as a report. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/json.h"
#include "cmd/common/message.h"
#include "cmd/report/report.h"
#include "cmd/study/sweep.h"
#include "cmd/train/report_options.h"

enum { CELL = 64 };

/* The runs of a variant that there are: a sweep may have been stopped. */
static int runs_of(const compare_results *results, int variant, const record **first) {
    const int begin = variant * results->per_variant, left = results->count - begin;
    *first = results->records + begin;
    return left < 0 ? 0 : left < results->per_variant ? left : results->per_variant;
}

double sweep_accuracy(const compare_results *results, int variant) {
    const record *runs;
    comet_mean mean = {0};
    for (int i = 0, count = runs_of(results, variant, &runs); i < count; i++)
        if (runs[i].figures.status == COMET_OK)
            comet_mean_add(&mean, runs[i].figures.result.top1, 1);
    return mean.weight > 0 ? comet_mean_value(&mean) : (double)NAN;
}

static void describe(const sweep_plan *plan, const compare_results *results, char *text, size_t capacity) {
    const record_figures *f = &results->records[0].figures;
    snprintf(text, capacity, "%s on %s, batch %d, %lld steps, %d seed%s; %s errors in %ss",
             plan->compare.run.trainer.model, comet_dataset_get_info(plan->compare.run.data)->name, f->batch,
             (long long)f->result.step, plan->compare.seeds, plan->compare.seeds > 1 ? "s" : "", plan->shape, plan->on);
}

/* "-0.52", "-0.52 +- 0.31" with an interval, "failed". */
static void difference_text(const compare_results *results, int variant, char cell[CELL]) {
    const comet_paired p = compare_accuracy(results, variant);
    if (p.pairs == 0)
        snprintf(cell, CELL, "failed");
    else if (p.pairs == 1)
        snprintf(cell, CELL, "%+.2f", p.mean);
    else
        snprintf(cell, CELL, "%+.2f +- %.2f", p.mean, p.half_width);
}

/* ---- the table ---- */

/* A row for each layer: its name, then a cell for each sigma. NULL: no memory. */
static char (*make_cells(const sweep_plan *plan, const compare_results *results))[CELL] {
    const int columns = 1 + plan->sigma_count;
    char(*cells)[CELL] = calloc((size_t)plan->layer_count * (size_t)columns, sizeof *cells);
    for (int i = 0; cells && i < plan->layer_count; i++) {
        snprintf(cells[i * columns], CELL, "%.60s", plan->layers[i]);
        for (int s = 0; s < plan->sigma_count; s++)
            difference_text(results, sweep_variant(plan, i, s), cells[i * columns + 1 + s]);
    }
    return cells;
}

static void print_cells(const sweep_plan *plan, char (*cells)[CELL]) {
    const int columns = 1 + plan->sigma_count;
    for (int i = -1; i < plan->layer_count; i++)
        for (int c = 0; c < columns; c++) {
            int width = c ? 16 : 5;
            for (int k = 0; k < plan->layer_count && c == 0; k++)
                width = (int)strlen(cells[k * columns]) > width ? (int)strlen(cells[k * columns]) : width;
            const char *text = i >= 0 ? cells[i * columns + c] : c ? plan->sigma_texts[c - 1] : "layer";
            printf(c ? "  %*s" : "%-*s", width, text);
            if (c + 1 == columns)
                printf("\n");
        }
}

void sweep_print(const compare_plan *compare, const compare_results *results) {
    const sweep_plan *plan = (const sweep_plan *)compare;
    char text[256], (*cells)[CELL] = make_cells(plan, results);
    describe(plan, results, text, sizeof text);
    printf("%s\n\naccuracy without errors: %.2f %%; with errors of these deviations, in parts of the rms, points more "
           "or less%s\n\n",
           text, sweep_accuracy(results, 0), plan->compare.seeds > 1 ? ", and 95 % intervals over seeds:" : ":");
    if (cells)
        print_cells(plan, cells);
    else
        fail_memory();
    free(cells);
}

/* ---- JSON ---- */

static void put_accuracies(json *j, const compare_results *results, int variant) {
    const record *runs;
    json_open(j, "accuracy", '[', 1);
    for (int i = 0, count = runs_of(results, variant, &runs); i < count; i++)
        json_number(j, NULL, runs[i].figures.status == COMET_OK ? runs[i].figures.result.top1 : (double)NAN);
    json_close(j, ']');
}

static void put_variant(json *j, const sweep_plan *plan, const compare_results *results, int layer, int sigma) {
    const int variant = sweep_variant(plan, layer, sigma);
    const comet_paired p = compare_accuracy(results, variant);
    json_open(j, NULL, '{', 1);
    json_string(j, "layer", plan->layers[layer]);
    json_number(j, "sigma", plan->sigmas[sigma]);
    put_accuracies(j, results, variant);
    json_integer(j, "pairs", p.pairs);
    json_number(j, "difference", p.pairs ? p.mean : (double)NAN);
    json_number(j, "half_width_95", p.pairs > 1 ? p.half_width : (double)NAN);
    json_close(j, '}');
}

static void put_failures(json *j, const compare_results *results) {
    json_open(j, "failures", '[', 0);
    for (int i = 0; i < results->count; i++) {
        const record_figures *f = &results->records[i].figures;
        if (f->status == COMET_OK)
            continue;
        json_open(j, NULL, '{', 1);
        json_string(j, "name", f->name);
        json_integer(j, "seed", (int64_t)f->seed);
        json_string(j, "message", f->why.text);
        json_close(j, '}');
    }
    json_close(j, ']');
}

void sweep_print_json(const compare_plan *compare, const compare_results *results) {
    const sweep_plan *plan = (const sweep_plan *)compare;
    json j = {.file = stdout};
    json_open(&j, NULL, '{', 0);
    json_string(&j, "model", plan->compare.run.trainer.model);
    json_string(&j, "data", comet_dataset_get_info(plan->compare.run.data)->name);
    json_string(&j, "on", plan->on);
    json_string(&j, "shape", plan->shape);
    json_integer(&j, "seeds", plan->compare.seeds);
    json_open(&j, "without", '{', 1);
    put_accuracies(&j, results, 0);
    json_number(&j, "mean", sweep_accuracy(results, 0));
    json_close(&j, '}');
    json_open(&j, "layers", '[', 0);
    for (int i = 0; i < plan->layer_count; i++)
        for (int s = 0; s < plan->sigma_count; s++)
            put_variant(&j, plan, results, i, s);
    json_close(&j, ']');
    put_failures(&j, results);
    json_close(&j, '}');
}

/* ---- the report ---- */

/* Differences of a layer are a line over sigma; `y` has a value for each layer and sigma. */
static void put_lines(report *r, const sweep_plan *plan, const compare_results *results, report_series *series,
                      double *y) {
    for (int i = 0; i < plan->layer_count; i++) {
        double *line = y + (size_t)i * (size_t)plan->sigma_count;
        for (int s = 0; s < plan->sigma_count; s++) {
            const comet_paired p = compare_accuracy(results, sweep_variant(plan, i, s));
            line[s] = p.pairs ? p.mean : (double)NAN;
        }
        series[i] = (report_series){plan->layers[i], plan->sigmas, line, (size_t)plan->sigma_count, i};
    }
    report_lines(r, "Accuracy with errors in one layer, less that without",
                 "deviation of the errors, in parts of the rms", "points", series, (size_t)plan->layer_count,
                 REPORT_FROM_ZERO);
}

static void put_table(report *r, const sweep_plan *plan, char (*text)[CELL], const char **cells) {
    const int columns = 1 + plan->sigma_count, count = plan->layer_count * columns;
    cells[0] = "layer";
    for (int s = 0; s < plan->sigma_count; s++)
        cells[1 + s] = plan->sigma_texts[s];
    for (int i = 0; i < count; i++)
        cells[columns + i] = text[i];
    report_table(r, "Points of accuracy by layer and deviation", cells, columns, cells + columns, plan->layer_count);
}

static int put_sections(report *r, const sweep_plan *plan, const compare_results *results) {
    const size_t cells = (size_t)(plan->layer_count + 1) * (size_t)(plan->sigma_count + 1);
    char(*text)[CELL] = make_cells(plan, results), line[96];
    const char **table = calloc(cells, sizeof *table);
    double *y = calloc(cells, sizeof *y);
    report_series *series = calloc((size_t)plan->layer_count, sizeof *series);
    const int whole = text && table && y && series;
    snprintf(line, sizeof line, "Accuracy without errors: %.2f %%.", sweep_accuracy(results, 0));
    report_text(r, line);
    if (whole) {
        put_lines(r, plan, results, series, y);
        put_table(r, plan, text, table);
    }
    free(series);
    free(y);
    free(table);
    free(text);
    return whole ? DONE : fail_memory();
}

int sweep_report(const char *path, const compare_plan *compare, const compare_results *results) {
    const sweep_plan *plan = (const sweep_plan *)compare;
    report r;
    char title[128], subtitle[256];
    snprintf(title, sizeof title, "Errors on purpose: %s on %s", plan->compare.run.trainer.model,
             comet_dataset_get_info(plan->compare.run.data)->name);
    describe(plan, results, subtitle, sizeof subtitle);
    int answer = report_open(&r, path, title, subtitle);
    if (answer != DONE)
        return answer;
    answer = put_sections(&r, plan, results);
    report_options(&r, &plan->compare.run, 1);
    if (answer == DONE)
        return report_close(&r);
    report_abandon(&r);
    return answer;
}
