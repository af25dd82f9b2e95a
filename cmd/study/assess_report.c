/* SPDX-License-Identifier: Apache-2.0 */
/* An assessment as pictures: predicted against measured, and how errors are distributed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/report/report.h"
#include "cmd/study/assess.h"
#include "cmd/train/report_options.h"

enum { CELL = 48, COLUMNS = 11, LABEL = 160, STEPS = 2 * COMET_HISTOGRAM_BINS };

/* Errors, for a histogram that looks like one. */
enum { ENOUGH = 500 };

/* ---- the table ---- */

static void spread_text(const assess_spread *s, char median[CELL], char range[CELL]) {
    snprintf(median, CELL, "%.2f", s->median);
    snprintf(range, CELL, "%.2f to %.2f", s->low, s->high);
}

static void put_summary(report *r, const assess_case *c, const assess_use_summary *list, int count, int with_factors) {
    static const char *const columns[] = {
        "bound", "use", "layers", "ratio, median", "10th to 90th percentile", "joint", "10th to 90th percentile"};
    enum { SUMMARY = sizeof columns / sizeof *columns };
    char(*text)[5][CELL] = calloc((size_t)count, sizeof *text);
    const char **cells = calloc((size_t)count * SUMMARY, sizeof *cells);
    for (int i = 0; text && cells && i < count; i++) {
        snprintf(text[i][0], CELL, "%d", list[i].ratio.count);
        spread_text(with_factors ? &list[i].ratio_with_factor : &list[i].ratio, text[i][1], text[i][2]);
        spread_text(with_factors ? &list[i].joint_ratio_with_factor : &list[i].joint_ratio, text[i][3], text[i][4]);
        cells[i * SUMMARY] = c->bounds.items[list[i].bound];
        cells[i * SUMMARY + 1] = list[i].use;
        for (int k = 0; k < 5; k++)
            cells[i * SUMMARY + 2 + k] = text[i][k];
    }
    if (text && cells)
        report_table(r,
                     with_factors ? "Predicted / measured sigma by use, with measured factors"
                                  : "Predicted / measured sigma by use",
                     columns, SUMMARY, cells, count);
    free(cells);
    free(text);
}

static void put_joint(report *r, const assess_case *c) {
    static const char *const columns[] = {"bound",        "layers",  "measured, %", "predicted, %",
                                          "with factors", "largest", "of"};
    enum { JOINT = sizeof columns / sizeof *columns };
    char text[COMET_ASSESS_MOST_BOUNDS][JOINT][LABEL];
    const char *cells[COMET_ASSESS_MOST_BOUNDS * JOINT];
    for (int b = 0; b < c->bounds.count; b++) {
        comet_assess_joint j;
        comet_assess_get_joint(c->assess, b, &j);
        const double numbers[] = {j.measured, j.predicted, j.with_factor, j.largest};
        snprintf(text[b][0], LABEL, "%s", c->bounds.items[b]);
        snprintf(text[b][1], LABEL, "%d", j.layers);
        for (int k = 0; k < 4; k++)
            snprintf(text[b][2 + k], LABEL, isfinite(numbers[k]) ? "%.2f" : "-", 100 * numbers[k]);
        snprintf(text[b][6], LABEL, "%s", j.largest_of);
        for (int k = 0; k < JOINT; k++)
            cells[b * JOINT + k] = text[b][k];
    }
    report_table(r, "All tensors together: error of a layer's gradient in parts of its rms, rms over layers", columns,
                 JOINT, cells, c->bounds.count);
}

static void put_layers(report *r, const assess_case *c, int bound) {
    static const char *const columns[COLUMNS] = {"tensor",          "use",    "gradient",     "sigma predicted",
                                                 "measured",        "ratio",  "joint",        "error / gradient",
                                                 "excess kurtosis", "factor", "ratio with it"};
    const int rows = comet_assess_rows(c->assess);
    char(*text)[COLUMNS][LABEL] = calloc((size_t)rows, sizeof *text), title[96];
    const char **cells = calloc((size_t)rows * COLUMNS, sizeof *cells);
    for (int i = 0; text && cells && i < rows; i++) {
        comet_assess_row row;
        comet_assess_get_row(c->assess, bound, i, &row);
        snprintf(text[i][0], LABEL, "%s", row.tensor);
        snprintf(text[i][1], LABEL, "%s", row.use);
        snprintf(text[i][2], LABEL, "%s", row.gradient);
        const double numbers[] = {row.predicted,
                                  row.measured,
                                  row.ratio,
                                  row.joint_ratio,
                                  row.measured / row.gradient_rms,
                                  comet_histogram_kurtosis(row.errors),
                                  row.measured_times > 0 ? row.factor : (double)NAN,
                                  row.measured_times > 0 ? row.ratio_with_factor : (double)NAN};
        for (int k = 0; k < COLUMNS; k++) {
            if (k >= 3 && isfinite(numbers[k - 3]))
                snprintf(text[i][k], LABEL, "%.3g", numbers[k - 3]);
            cells[i * COLUMNS + k] = text[i][k];
        }
    }
    snprintf(title, sizeof title, "Every tensor and gradient, bounds: %.40s", c->bounds.items[bound]);
    if (text && cells)
        report_table(r, title, columns, COLUMNS, cells, rows);
    free(cells);
    free(text);
}

/* ---- predicted against measured ---- */

typedef struct points {
    double *x, *y;
    char (*text)[LABEL];
    const char **labels;
    report_cloud *clouds;
} points;

static int points_init(points *p, size_t rows) {
    *p = (points){calloc(rows, sizeof *p->x), calloc(rows, sizeof *p->y), calloc(rows, sizeof *p->text),
                  calloc(rows, sizeof *p->labels), calloc(rows, sizeof *p->clouds)};
    return p->x && p->y && p->text && p->labels && p->clouds;
}

static void points_free(points *p) {
    free(p->x);
    free(p->y);
    free(p->text);
    free(p->labels);
    free(p->clouds);
}

/* The rows of one use, behind those that are there. */
static size_t add_use(points *p, size_t at, const assess_case *c, const assess_use_summary *use) {
    for (int i = 0; i < comet_assess_rows(c->assess); i++) {
        comet_assess_row row;
        comet_assess_get_row(c->assess, use->bound, i, &row);
        if (strcmp(row.use, use->use) != 0)
            continue;
        snprintf(p->text[at], LABEL, "%.70s in %.70s", row.tensor, row.gradient);
        p->labels[at] = p->text[at];
        p->x[at] = row.measured;
        p->y[at++] = row.predicted;
    }
    return at;
}

static void put_scatter(report *r, const assess_case *c, const assess_use_summary *list, int count, int bound) {
    points p;
    size_t at = 0, clouds = 0;
    char title[128];
    snprintf(title, sizeof title,
             "Sigma of gradient errors, predicted against measured, one tensor at a time; bounds: %.40s",
             c->bounds.items[bound]);
    if (points_init(&p, (size_t)comet_assess_rows(c->assess))) {
        for (int i = 0; i < count; i++) {
            const size_t first = at;
            if (list[i].bound != bound)
                continue;
            at = add_use(&p, at, c, &list[i]);
            p.clouds[clouds++] = (report_cloud){list[i].use, p.x + first, p.y + first, p.labels + first, at - first};
        }
        if (at > 2) /* fewer are in the table */
            report_scatter(r, title, "measured", "predicted", p.clouds, clouds, REPORT_EQUAL);
    }
    points_free(&p);
}

/* ---- histograms ---- */

/* A bin is a step of the line. */
static void steps_of(const comet_histogram *h, double x[STEPS], double y[STEPS]) {
    for (int i = 0; i < STEPS; i++) {
        x[i] = comet_histogram_edge(h, (i + 1) / 2);
        y[i] = comet_histogram_density(h, i / 2);
    }
}

static double normal_density(double x) {
    return exp(-x * x / 2) / sqrt(2 * 3.14159265358979323846);
}

static double uniform_density(double x) {
    (void)x;
    return 0.5;
}

static void put_histogram(report *r, const char *title, const char *x_name, const comet_histogram *h,
                          double (*density)(double), const char *density_name) {
    double x[STEPS], y[STEPS], curve[STEPS];
    if (!(h->count > 0))
        return;
    steps_of(h, x, y);
    for (int i = 0; i < STEPS; i++)
        curve[i] = density(x[i]);
    const report_series series[] = {{"measured", x, y, STEPS, 0}, {density_name, x, curve, STEPS, 1}};
    report_lines(r, title, x_name, "density", series, 2, REPORT_AREA | REPORT_FROM_ZERO);
}

/* The row of a use whose ratio is nearest to the median, of those with at least so many errors; -1: none. */
static int typical_row(const assess_case *c, const assess_use_summary *use, double errors) {
    int best = -1;
    double least = INFINITY;
    for (int i = 0; i < comet_assess_rows(c->assess); i++) {
        comet_assess_row row;
        comet_assess_get_row(c->assess, use->bound, i, &row);
        const double off = fabs(row.ratio - use->ratio.median);
        if (strcmp(row.use, use->use) == 0 && row.errors->count >= errors && off < least) {
            least = off;
            best = i;
        }
    }
    return best;
}

static void put_gradient_errors(report *r, const assess_case *c, const assess_use_summary *list, int count) {
    for (int i = 0; i < count; i++) {
        int at = typical_row(c, &list[i], ENOUGH);
        char title[320];
        comet_assess_row row;
        if (at < 0)
            at = typical_row(c, &list[i], 1);
        if (at < 0)
            continue;
        comet_assess_get_row(c->assess, list[i].bound, at, &row);
        snprintf(title, sizeof title, "Errors of %.70s's gradient by %.70s (%s), bound %.40s; %lld values a batch",
                 row.gradient, row.tensor, row.use, c->bounds.items[list[i].bound], (long long)row.values);
        put_histogram(r, title, "error / sigma", row.errors, normal_density, "normal");
    }
}

/* The first, the middle and the last tensor. */
static void put_tensor_errors(report *r, const assess_case *c, int bound) {
    const int count = comet_assess_tensors(c->assess), places[] = {0, count / 2, count - 1};
    for (int i = 0; i < 3; i++) {
        comet_assess_tensor t;
        char title[192];
        if (i > 0 && places[i] == places[i - 1])
            continue;
        comet_assess_get_tensor(c->assess, bound, places[i], &t);
        snprintf(title, sizeof title,
                 "Errors of the stored values of %.70s, bound %.40s; variance %.2f of a uniform one's", t.name,
                 c->bounds.items[bound], assess_variance(&t));
        put_histogram(r, title, "error / bound", t.errors, uniform_density, "uniform");
    }
}

static void put_sections(report *r, const assess_case *c, const assess_use_summary *list, int count) {
    report_text(
        r, "Gradients with activations as they are and compressed, on the same batches. A ratio of 1 means that the "
           "theory is right, below 1 that errors are larger than predicted. The dashed lines are factors of 2.");
    put_summary(r, c, list, count, 0);
    if (assess_has_factors(c))
        put_summary(r, c, list, count, 1);
    put_joint(r, c);
    for (int b = 0; b < c->bounds.count; b++)
        put_scatter(r, c, list, count, b);
    put_gradient_errors(r, c, list, count);
    for (int b = 0; b < c->bounds.count; b++)
        put_tensor_errors(r, c, b);
    for (int b = 0; b < c->bounds.count; b++)
        put_layers(r, c, b);
}

int assess_report(const char *path, const assess_case *c) {
    report r;
    char title[128], subtitle[256];
    int count;
    assess_use_summary *list = assess_summarise(c, &count);
    if (!list)
        return FAILED;
    snprintf(title, sizeof title, "Gradient errors of %s on %s", c->run->trainer.model,
             comet_dataset_get_info(c->run->data)->name);
    assess_describe(c, subtitle, sizeof subtitle);
    int answer = report_open(&r, path, title, subtitle);
    if (answer == DONE) {
        put_sections(&r, c, list, count);
        report_options(&r, c->run, 0);
        answer = report_close(&r);
    }
    free(list);
    return answer;
}
