/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons as a table, as JSON and as a report. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/json.h"
#include "cmd/common/message.h"
#include "cmd/common/text.h"
#include "cmd/study/compare.h"
#include "cmd/train/train_report.h"

int compare_failures(const compare_results *results) {
    int failures = 0;
    for (int i = 0; i < results->count; i++)
        failures += results->records[i].figures.status != COMET_OK;
    return failures;
}

comet_paired compare_accuracy(const compare_results *results, int variant) {
    double *pairs = calloc(2 * (size_t)results->per_variant, sizeof *pairs);
    comet_paired answer = {0};
    int count = 0;
    for (int i = 0; pairs && i < results->per_variant && variant * results->per_variant + i < results->count; i++) {
        const record_figures *a = &results->records[i].figures;
        const record_figures *b = &results->records[variant * results->per_variant + i].figures;
        if (a->status != COMET_OK || b->status != COMET_OK)
            continue;
        pairs[count] = a->result.top1;
        pairs[results->per_variant + count++] = b->result.top1;
    }
    if (count > 0)
        answer = comet_compare_pairs(pairs, pairs + results->per_variant, count);
    free(pairs);
    return answer;
}

/* What activations and workspaces take at the worst moment. */
static double above_static(const record_figures *f) {
    return (double)(f->result.bytes.planned_peak_bytes - f->result.bytes.static_bytes);
}

/* "; holds 16.8 x less, peak above weights 2.1 x less": of the first seeds, at the same batch. */
static void add_bytes(const record_figures *a, const record_figures *b, char *text, size_t capacity) {
    size_t used = strlen(text);
    if (a->status != COMET_OK || b->status != COMET_OK || a->batch != b->batch)
        return;
    snprintf(text + used, capacity - used, "; saved bytes %.1f x fewer, peak without weights %.1f x lower",
             (double)a->result.saved_stored_bytes / (double)b->result.saved_stored_bytes,
             above_static(a) / above_static(b));
}

void compare_text(const compare_results *results, int variant, char *text, size_t capacity) {
    comet_paired p = compare_accuracy(results, variant);
    const char *name = results->records[variant * results->per_variant].figures.name;
    const char *first = results->records[0].figures.name;
    text[0] = '\0';
    if (variant == 0 || p.pairs == 0)
        return;
    size_t used = (size_t)snprintf(text, capacity, "%s: %+.2f points of accuracy against %s", name, p.mean, first);
    if (used >= capacity)
        return;
    if (p.pairs > 1)
        snprintf(text + used, capacity - used, ", 95 %% interval %+.2f to %+.2f (%d pairs)", p.mean - p.half_width,
                 p.mean + p.half_width, p.pairs);
    else
        snprintf(text + used, capacity - used, " (one pair: no interval)");
    add_bytes(&results->records[0].figures, &results->records[variant * results->per_variant].figures, text, capacity);
}

/* In two lines: accuracy, and bytes. */
static void print_difference(const char *text) {
    const char *bytes = strstr(text, "; ");
    if (bytes)
        printf("%.*s;\n    %s\n", (int)(bytes - text), text, bytes + 2);
    else if (*text)
        printf("%s\n", text);
}

static int variant_count(const compare_results *results) {
    return (results->count + results->per_variant - 1) / results->per_variant;
}

/* ---- the table ---- */

static void describe(const compare_plan *plan, const compare_results *results, char *text, size_t capacity) {
    const record_figures *f = &results->records[0].figures;
    for (int i = 1; i < results->count && f->status != COMET_OK; i++)
        f = &results->records[i].figures;
    char memory[48] = "", size[32];
    if (plan->largest)
        snprintf(memory, sizeof memory, ", the largest batch in %s",
                 text_size(plan->run.trainer.memory_bytes, size, sizeof size));
    snprintf(text, capacity, "%s on %s, %dx%dx%d, %lld steps, %d seed%s%s", plan->run.trainer.model,
             comet_dataset_get_info(plan->run.data)->name, f->height, f->width, f->channels, (long long)f->result.step,
             plan->seeds, plan->seeds > 1 ? "s" : "", memory);
}

static train_row *make_rows(const compare_results *results, int *count) {
    *count = variant_count(results);
    train_row *rows = calloc((size_t)*count, sizeof *rows);
    for (int v = 0; rows && v < *count; v++) {
        int first = v * results->per_variant, left = results->count - first;
        train_row_fill(&rows[v], results->records + first, left < results->per_variant ? left : results->per_variant);
    }
    return rows;
}

static void print_rows(const train_row *rows, int count) {
    int width[TRAIN_COLUMNS];
    for (int c = 0; c < TRAIN_COLUMNS; c++) {
        width[c] = (int)strlen(train_columns[c]);
        for (int i = 0; i < count; i++)
            width[c] = (int)strlen(rows[i].cells[c]) > width[c] ? (int)strlen(rows[i].cells[c]) : width[c];
    }
    for (int i = -1; i < count; i++) {
        for (int c = 0; c < TRAIN_COLUMNS; c++)
            printf(c ? "  %*s" : "%-*s", width[c], i < 0 ? train_columns[c] : rows[i].cells[c]);
        printf("\n");
    }
}

void compare_print(const compare_plan *plan, const compare_results *results) {
    char text[256];
    int count;
    train_row *rows = make_rows(results, &count);
    if (!rows)
        return;
    describe(plan, results, text, sizeof text);
    printf("%s\n\n", text);
    print_rows(rows, count);
    printf("\n");
    for (int v = 1; v < count; v++) {
        compare_text(results, v, text, sizeof text);
        print_difference(text);
    }
    free(rows);
}

/* ---- JSON ---- */

static void put_run(json *j, const record *r) {
    const record_figures *f = &r->figures;
    json_open(j, NULL, '{', 1);
    json_string(j, "name", f->name);
    json_integer(j, "seed", (int64_t)f->seed);
    json_integer(j, "batch", f->batch);
    json_number(j, "accuracy", f->result.top1);
    json_integer(j, "saved_raw_bytes", (int64_t)f->result.saved_raw_bytes);
    json_integer(j, "saved_stored_bytes", (int64_t)f->result.saved_stored_bytes);
    if (f->at_ceiling < 0)
        json_null(j, "at_ceiling");
    else
        json_number(j, "at_ceiling", f->at_ceiling);
    if (f->joint_count)
        json_number(j, "joint_error", record_last_joint(r).error);
    else
        json_null(j, "joint_error");
    json_integer(j, "planned_peak_bytes", (int64_t)record_planned_peak(r));
    if (f->measured_peak_bytes)
        json_integer(j, "measured_peak_bytes", (int64_t)f->measured_peak_bytes);
    else
        json_null(j, "measured_peak_bytes");
    json_integer(j, "static_bytes", (int64_t)f->result.bytes.static_bytes);
    json_number(j, "ms_per_step", f->result.ms_per_step);
    json_number(j, "images_per_s", f->result.images_per_second);
    json_numbers(j, "loss_step", f->loss_count, r->loss_step);
    json_numbers(j, "loss", f->loss_count, r->loss);
    json_close(j, '}');
}

static void put_failure(json *j, const record *r) {
    json_open(j, NULL, '{', 1);
    json_string(j, "name", r->figures.name);
    json_integer(j, "seed", (int64_t)r->figures.seed);
    json_string(j, "message", r->figures.why.text);
    json_close(j, '}');
}

static void put_pair(json *j, const compare_results *results, int variant) {
    comet_paired p = compare_accuracy(results, variant);
    if (p.pairs == 0)
        return;
    json_open(j, NULL, '{', 1);
    json_string(j, "name", results->records[variant * results->per_variant].figures.name);
    json_string(j, "against", results->records[0].figures.name);
    json_integer(j, "pairs", p.pairs);
    json_number(j, "accuracy_difference", p.mean);
    json_number(j, "half_width_95", p.half_width);
    json_close(j, '}');
}

/* The runs that failed, or those that did not. */
static void put_runs(json *j, const char *key, const compare_results *results, int failed) {
    json_open(j, key, '[', 0);
    for (int i = 0; i < results->count; i++)
        if ((results->records[i].figures.status != COMET_OK) == failed)
            (failed ? put_failure : put_run)(j, &results->records[i]);
    json_close(j, ']');
}

void compare_print_json(const compare_plan *plan, const compare_results *results) {
    json j = {.file = stdout};
    json_open(&j, NULL, '{', 0);
    json_string(&j, "model", plan->run.trainer.model);
    json_string(&j, "data", comet_dataset_get_info(plan->run.data)->name);
    json_integer(&j, "memory_bytes", (int64_t)plan->run.trainer.memory_bytes);
    put_runs(&j, "variants", results, 0);
    json_open(&j, "differences", '[', 0);
    for (int v = 1; v < variant_count(results); v++)
        put_pair(&j, results, v);
    json_close(&j, ']');
    put_runs(&j, "failures", results, 1);
    json_close(&j, '}');
}

/* ---- the report ---- */

int compare_report(const char *path, const compare_plan *plan, const compare_results *results) {
    char subtitle[256], title[128], text[256], lines[4096];
    size_t used = 0;
    snprintf(title, sizeof title, "%s on %s", plan->run.trainer.model, comet_dataset_get_info(plan->run.data)->name);
    describe(plan, results, subtitle, sizeof subtitle);
    for (int v = 1; v < variant_count(results) && used < sizeof lines; v++) {
        compare_text(results, v, text, sizeof text);
        if (*text)
            used += (size_t)snprintf(lines + used, sizeof lines - used, "%s\n", text);
    }
    return train_report_write(path, title, subtitle, used ? lines : NULL, &plan->run, results->records,
                              (size_t)results->count);
}
