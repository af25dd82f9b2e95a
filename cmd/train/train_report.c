/* SPDX-License-Identifier: Apache-2.0 */
/* Runs as rows of a table, and as a report. */
#include "cmd/train/train_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/text.h"
#include "cmd/train/report_options.h"

/* ---- figures of runs as cells of a table ---- */

const char *const train_columns[TRAIN_COLUMNS] = {"variant",   "batch",    "accuracy",     "saved a step",
                                                  "ratio",     "static",   "planned peak", "measured peak",
                                                  "ms a step", "images/s", "at ceiling"};

/* Sums over runs. */
typedef struct sums {
    int count;
    double accuracy, squares, raw, stored, fixed, planned, measured, ms, rate, ceiling; /* ceiling: < 0: none has one */
} sums;

static sums add_up(const record *records, int count) {
    sums s = {0};
    for (int i = 0; i < count; i++) {
        const record_figures *f = &records[i].figures;
        if (f->status != COMET_OK)
            continue;
        s.count++;
        s.accuracy += f->result.top1;
        s.squares += f->result.top1 * f->result.top1;
        s.raw += (double)f->result.saved_raw_bytes;
        s.stored += (double)f->result.saved_stored_bytes;
        s.fixed += (double)f->result.bytes.static_bytes;
        s.planned += (double)record_planned_peak(&records[i]);
        s.measured += (double)f->measured_peak_bytes;
        s.ms += f->result.ms_per_step;
        s.rate += f->result.images_per_second;
        s.ceiling += f->at_ceiling;
    }
    return s;
}

static void put_size(char *cell, double sum, int count) {
    text_size((uint64_t)(sum / count), cell, TRAIN_CELL);
}

static void put_accuracy(char *cell, const sums *s) {
    double mean = s->accuracy / s->count;
    if (s->count == 1) {
        snprintf(cell, TRAIN_CELL, "%.2f %%", mean);
        return;
    }
    double variance = (s->squares - s->count * mean * mean) / (s->count - 1);
    snprintf(cell, TRAIN_CELL, "%.2f +- %.2f %%", mean, sqrt(fmax(variance, 0)));
}

void train_row_fill(train_row *row, const record *records, int count) {
    sums s = add_up(records, count);
    char raw[24], stored[24];
    memset(row, 0, sizeof *row);
    snprintf(row->cells[0], TRAIN_CELL, "%.40s", records[0].figures.name);
    if (s.count == 0) {
        snprintf(row->cells[2], TRAIN_CELL, "failed");
        return;
    }
    int batch = 0;
    for (int i = 0; i < count; i++)
        batch = records[i].figures.status == COMET_OK ? records[i].figures.batch : batch;
    snprintf(row->cells[1], TRAIN_CELL, "%d", batch);
    put_accuracy(row->cells[2], &s);
    snprintf(row->cells[3], TRAIN_CELL, "%s -> %s", text_size((uint64_t)(s.raw / s.count), raw, sizeof raw),
             text_size((uint64_t)(s.stored / s.count), stored, sizeof stored));
    snprintf(row->cells[4], TRAIN_CELL, "%.1f", s.stored > 0 ? s.raw / s.stored : 1.0);
    put_size(row->cells[5], s.fixed, s.count);
    put_size(row->cells[6], s.planned, s.count);
    text_measured((uint64_t)(s.measured / s.count), row->cells[7], TRAIN_CELL);
    snprintf(row->cells[8], TRAIN_CELL, "%.1f", s.ms / s.count);
    snprintf(row->cells[9], TRAIN_CELL, "%.0f", s.rate / s.count);
    snprintf(row->cells[10], TRAIN_CELL, s.ceiling < 0 ? "-" : "%.0f %%", 100 * s.ceiling / s.count);
}

/* ---- the report ---- */

enum { SERIES_NAME = RECORD_NAME + 32 };

/* What is drawn: `count` runs, of `groups` variants. */
typedef struct picture {
    const record *records;
    size_t count;
    report_series *series; /* of as many */
    char (*names)[SERIES_NAME];
    double *times; /* 0, 1, 2, ... for memory */
} picture;

static int is_first(const picture *p, size_t i) {
    return i == 0 || strcmp(p->records[i].figures.name, p->records[i - 1].figures.name) != 0;
}

static int is_drawn(const record *r) {
    return r->figures.status == COMET_OK;
}

/* The last run of the variant that begins at `first`, plus one. */
static size_t end_of_variant(const picture *p, size_t first) {
    size_t end = first + 1;
    while (end < p->count && !is_first(p, end))
        end++;
    return end;
}

/* ---- sections ---- */

static void put_table(report *r, const picture *p) {
    train_row *rows = calloc(p->count, sizeof *rows);
    const char **cells = calloc(p->count * TRAIN_COLUMNS, sizeof *cells);
    int count = 0;
    for (size_t i = 0; rows && cells && i < p->count; i = end_of_variant(p, i)) {
        train_row_fill(&rows[count], p->records + i, (int)(end_of_variant(p, i) - i));
        for (int c = 0; c < TRAIN_COLUMNS; c++)
            cells[count * TRAIN_COLUMNS + c] = rows[count].cells[c];
        count++;
    }
    report_table(r, "Results", train_columns, TRAIN_COLUMNS, cells, count);
    free(cells);
    free(rows);
}

typedef void (*curve)(const picture *p, const record *run, report_series *series);

static void loss_curve(const picture *p, const record *run, report_series *series) {
    (void)p;
    series->x = run->loss_step;
    series->y = run->loss;
    series->count = run->figures.loss_count;
}

static void accuracy_curve(const picture *p, const record *run, report_series *series) {
    (void)p;
    series->x = run->evaluation_step;
    series->y = run->accuracy;
    series->count = run->figures.evaluation_count;
}

static void ratio_curve(const picture *p, const record *run, report_series *series) {
    (void)p;
    series->x = run->loss_step;
    series->y = run->ratio;
    series->count = run->figures.loss_count;
}

static void memory_curve(const picture *p, const record *run, report_series *series) {
    series->x = p->times;
    series->y = run->memory;
    series->count = run->figures.time_count;
}

/* `each`: 0: of a variant the first run alone is drawn. */
static size_t collect(picture *p, curve of, int each) {
    size_t count = 0;
    int group = -1;
    for (size_t i = 0; i < p->count; i++) {
        const record *run = &p->records[i];
        group += is_first(p, i);
        if (!is_drawn(run) || (!each && !is_first(p, i)))
            continue;
        int alone = !each || end_of_variant(p, i) - i == 1;
        snprintf(p->names[count], SERIES_NAME, alone && is_first(p, i) ? "%s" : "%s, seed %llu", run->figures.name,
                 (unsigned long long)run->figures.seed);
        p->series[count] = (report_series){.name = p->names[count], .group = group};
        of(p, run, &p->series[count]);
        count += p->series[count].count > 0;
    }
    return count;
}

static void put_lines(report *r, picture *p, const char *title, const char *x, const char *y, curve of, int flags) {
    size_t count = collect(p, of, of != memory_curve);
    if (count > 0)
        report_lines(r, title, x, y, p->series, count, flags);
}

/* All entries of a layer name as one bar. */
static size_t merge_layers(const record *run, record_layer *merged) {
    size_t count = 0;
    for (size_t i = 0; i < run->figures.layer_count; i++) {
        const record_layer *layer = &run->layers[i];
        size_t at = 0;
        while (at < count && strcmp(merged[at].name, layer->name) != 0)
            at++;
        if (at == count)
            merged[count++] = *layer;
        else
            merged[at].raw += layer->raw, merged[at].stored += layer->stored;
    }
    return count;
}

static void put_layers(report *r, const record *run) {
    size_t most = run->figures.layer_count;
    record_layer *layers = calloc(most + 1, sizeof *layers);
    report_bar *bars = calloc(most + 1, sizeof *bars);
    char(*labels)[64] = calloc(most + 1, sizeof *labels), title[RECORD_NAME + 64], raw[24], stored[24];
    size_t count = layers && bars && labels ? merge_layers(run, layers) : 0;
    for (size_t i = 0; i < count; i++) {
        snprintf(labels[i], sizeof labels[i], "%s -> %s, %.1f x", text_size((uint64_t)layers[i].raw, raw, sizeof raw),
                 text_size((uint64_t)layers[i].stored, stored, sizeof stored),
                 layers[i].stored > 0 ? layers[i].raw / layers[i].stored : 1.0);
        bars[i] = (report_bar){layers[i].name, layers[i].raw / 1048576, layers[i].stored / 1048576, labels[i]};
    }
    snprintf(title, sizeof title, "Saved by each layer in the last step, raw and stored: %s", run->figures.name);
    if (count > 0)
        report_bars(r, title, "MiB", bars, count);
    free(labels);
    free(bars);
    free(layers);
}

static void put_all_layers(report *r, const picture *p) {
    for (size_t i = 0; i < p->count; i++)
        if (is_first(p, i) && is_drawn(&p->records[i]))
            put_layers(r, &p->records[i]);
}

/* The bounds of each layer as a line that goes in steps; the memory of one after the other in x and y. */
static size_t bound_lines(const record *run, double *x, double *y, report_series *series) {
    const record_figures *f = &run->figures;
    size_t at = 0, count = 0;
    for (size_t layer = 0; layer < f->bounded_count; layer++) {
        size_t first = at;
        for (size_t i = 0; i < f->bound_count; i++) {
            if ((size_t)run->bounds[i].layer != layer)
                continue;
            if (at > first) {
                x[at] = run->bounds[i].step;
                y[at] = y[at - 1];
                at++;
            }
            x[at] = run->bounds[i].step;
            y[at++] = run->bounds[i].bound;
        }
        series[count] = (report_series){run->bounded[layer], x + first, y + first, at - first, (int)count};
        count += at > first;
    }
    return count;
}

static void put_bounds(report *r, const record *run) {
    size_t points = 2 * run->figures.bound_count + 1;
    double *x = calloc(points, sizeof *x), *y = calloc(points, sizeof *y);
    report_series *series = calloc(run->figures.bounded_count + 1, sizeof *series);
    char title[RECORD_NAME + 64];
    size_t count = x && y && series ? bound_lines(run, x, y, series) : 0;
    snprintf(title, sizeof title, "Bounds that the controller set, relative to the rms: %s", run->figures.name);
    if (count > 0)
        report_lines(r, title, "step", "bound / rms", series, count, REPORT_LOG_Y);
    free(series);
    free(y);
    free(x);
}

enum { FACTOR_COLUMNS = 3, FACTOR_CELL = 32 };

/* Each layer's last bound, and the measured factor of what it was decided by; `text`: two cells a layer. */
static size_t fill_factors(const record *run, const char **cells, char (*text)[FACTOR_CELL]) {
    size_t count = 0;
    for (size_t layer = 0; layer < run->figures.bounded_count; layer++) {
        const record_bound *last = NULL;
        for (size_t i = 0; i < run->figures.bound_count; i++)
            last = (size_t)run->bounds[i].layer == layer ? &run->bounds[i] : last;
        if (!last || last->factor <= 0)
            continue;
        snprintf(text[2 * count], FACTOR_CELL, "%.3f", last->bound);
        snprintf(text[2 * count + 1], FACTOR_CELL, "%.2f", last->factor);
        cells[FACTOR_COLUMNS * count] = run->bounded[layer];
        cells[FACTOR_COLUMNS * count + 1] = text[2 * count];
        cells[FACTOR_COLUMNS * count + 2] = text[2 * count + 1];
        count++;
    }
    return count;
}

static void put_factors(report *r, const record *run) {
    static const char *const columns[FACTOR_COLUMNS] = {"layer", "bound / rms", "measured factor"};
    const char **cells = calloc(run->figures.bounded_count * FACTOR_COLUMNS + 1, sizeof *cells);
    char(*text)[FACTOR_CELL] = calloc(2 * run->figures.bounded_count + 1, sizeof *text);
    char title[RECORD_NAME + 64];
    const size_t count = cells && text ? fill_factors(run, cells, text) : 0;
    snprintf(title, sizeof title, "Last bounds, and measured over predicted errors: %s", run->figures.name);
    if (count > 0)
        report_table(r, title, columns, FACTOR_COLUMNS, cells, (int)count);
    free(text);
    free(cells);
}

static void put_joint(report *r, const record *run) {
    const size_t count = run->figures.joint_count;
    double *values = calloc(3 * count + 1, sizeof *values), *error = values + count, *predicted = error + count;
    char title[RECORD_NAME + 96];
    for (size_t i = 0; values && i < count; i++) {
        values[i] = run->joint[i].step;
        error[i] = run->joint[i].error;
        predicted[i] = run->joint[i].predicted;
    }
    const report_series series[] = {{"measured", values, error, count, 0}, {"predicted", values, predicted, count, 1}};
    snprintf(title, sizeof title, "Errors of gradients that all tensors cause together, in parts of their rms: %s",
             run->figures.name);
    if (values && count > 1)
        report_lines(r, title, "step", "error / rms", series, 2, 0);
    free(values);
}

static void put_all_bounds(report *r, const picture *p) {
    for (size_t i = 0; i < p->count; i++)
        if (is_first(p, i) && is_drawn(&p->records[i])) {
            put_bounds(r, &p->records[i]);
            put_factors(r, &p->records[i]);
            put_joint(r, &p->records[i]);
        }
}

/* What each variant stores, and what it comes to: a cloud of its seeds. `values` has room for two of each run. */
static size_t make_clouds(const picture *p, report_cloud *clouds, double *values) {
    size_t count = 0;
    for (size_t i = 0, end; i < p->count; i = end) {
        double *x = values + 2 * i, *y = x + (end = end_of_variant(p, i)) - i;
        report_cloud cloud = {.name = p->records[i].figures.name, .x = x, .y = y};
        for (size_t k = i; k < end; k++) {
            const comet_run_result *result = &p->records[k].figures.result;
            if (!is_drawn(&p->records[k]))
                continue;
            x[cloud.count] = (double)result->saved_stored_bytes / 1048576;
            y[cloud.count++] = result->top1;
        }
        if (cloud.count)
            clouds[count++] = cloud;
    }
    return count;
}

/* Of two variants the table says it all; where all store or reach the same, there is nothing to see. */
static int is_worth_drawing(const report_cloud *clouds, size_t count) {
    double low[2] = {HUGE_VAL, HUGE_VAL}, high[2] = {-HUGE_VAL, -HUGE_VAL};
    for (size_t c = 0; c < count; c++)
        for (size_t i = 0; i < clouds[c].count; i++) {
            const double at[2] = {clouds[c].x[i], clouds[c].y[i]};
            for (int k = 0; k < 2; k++) {
                low[k] = fmin(low[k], at[k]);
                high[k] = fmax(high[k], at[k]);
            }
        }
    return count > 2 && high[0] > 1.01 * low[0] && high[1] > low[1];
}

static void put_trade(report *r, const picture *p) {
    report_cloud *clouds = calloc(p->count, sizeof *clouds);
    double *values = calloc(2 * p->count, sizeof *values);
    const size_t count = clouds && values ? make_clouds(p, clouds, values) : 0;
    if (is_worth_drawing(clouds, count))
        report_scatter(r, "Accuracy at the end against what was stored in a step", "MiB", "per cent", clouds, count,
                       REPORT_LOG_X);
    free(values);
    free(clouds);
}

/* ---- all of it ---- */

static int picture_init(picture *p, const record *records, size_t count) {
    size_t times = 1;
    for (size_t i = 0; i < count; i++)
        times = records[i].figures.time_count > times ? records[i].figures.time_count : times;
    *p = (picture){.records = records,
                   .count = count,
                   .series = calloc(count, sizeof *p->series),
                   .names = calloc(count, sizeof *p->names),
                   .times = calloc(times, sizeof *p->times)};
    for (size_t i = 0; p->times && i < times; i++)
        p->times[i] = (double)i;
    return p->series && p->names && p->times;
}

static void picture_destroy(picture *p) {
    free(p->series);
    free(p->names);
    free(p->times);
}

/* Of every run, in parts of its updates' time; and of a GPU's memory what its driver says. */
static void put_waits(report *r, const picture *p) {
    enum { COLUMNS = 5, MOST = 64 };
    static const char *const columns[COLUMNS] = {"variant", "images/s", "without waiting", "waited for images",
                                                 "loader waited"};
    const char *cells[MOST * COLUMNS];
    char text[MOST * COLUMNS][TRAIN_CELL];
    int rows = 0;
    for (size_t i = 0; i < p->count && rows < MOST; i++) {
        const comet_run_result *result = &p->records[i].figures.result;
        char(*row)[TRAIN_CELL] = text + rows * COLUMNS;
        if (!is_drawn(&p->records[i]))
            continue;
        snprintf(row[0], TRAIN_CELL, "%.40s", p->records[i].figures.name);
        snprintf(row[1], TRAIN_CELL, "%.0f", result->images_per_second);
        snprintf(row[2], TRAIN_CELL, "%.0f", result->network_images_per_second);
        snprintf(row[3], TRAIN_CELL, "%.0f %%", 100 * result->data_wait);
        snprintf(row[4], TRAIN_CELL, "%.0f %%", 100 * result->loader_wait);
        rows++;
    }
    for (int i = 0; i < rows * COLUMNS; i++)
        cells[i] = text[i];
    if (rows)
        report_table(r, "Network and loader: which of them waits for the other", columns, COLUMNS, cells, rows);
}

static void put_gpu(report *r, const record_figures *f) {
    char line[200], a[24], b[24], c[24];
    if (!f->gpu_bytes)
        return;
    snprintf(line, sizeof line, "Of the GPU's %s, %s were taken at most, as its driver counts, %s before the run.",
             text_size(f->gpu_bytes, a, sizeof a), text_size(f->gpu_most_bytes, b, sizeof b),
             text_size(f->gpu_first_bytes, c, sizeof c));
    report_text(r, line);
}

static void put_paragraphs(report *r, const char *lines) {
    char line[512];
    for (size_t length; lines && *lines; lines += length + (lines[length] != '\0')) {
        length = strcspn(lines, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, lines);
        report_text(r, line);
    }
}

static void put_sections(report *r, picture *p, const char *lines) {
    put_table(r, p);
    put_paragraphs(r, lines);
    put_gpu(r, &p->records[0].figures);
    put_waits(r, p);
    put_trade(r, p);
    put_lines(r, p, "Loss while training", "step", "loss", loss_curve, REPORT_LOG_Y | REPORT_SMOOTH);
    put_lines(r, p, "Accuracy on images it has not seen", "step", "per cent", accuracy_curve, 0);
    put_lines(r, p, "Memory over a step as planned, without weights: forward, then backward", "op", "MiB", memory_curve,
              REPORT_AREA | REPORT_FROM_ZERO);
    put_lines(r, p, "Saved bytes, raw over stored", "step", "ratio", ratio_curve, REPORT_FROM_ZERO);
    put_all_bounds(r, p);
    put_all_layers(r, p);
}

int train_report_write(const char *path, const char *title, const char *subtitle, const char *lines,
                       const comet_run_options *run, const record *records, size_t count) {
    report r;
    picture p;
    int answer = picture_init(&p, records, count) ? report_open(&r, path, title, subtitle) : fail_memory();
    if (answer == DONE) {
        put_sections(&r, &p, lines);
        report_options(&r, run, count == 1);
        answer = report_close(&r);
    }
    picture_destroy(&p);
    return answer;
}
