/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of runs as cells of a table. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/common/text.h"
#include "cmd/train/train_report.h"

const char *const train_columns[TRAIN_COLUMNS] = {"variant",   "batch",   "accuracy",     "saved a step",
                                                  "ratio",     "static",  "planned peak", "measured peak",
                                                  "ms a step", "images/s"};

/* Sums over runs. */
typedef struct sums {
    int count;
    double accuracy, squares, raw, stored, fixed, planned, measured, ms, rate;
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
    put_size(row->cells[7], s.measured, s.count);
    snprintf(row->cells[8], TRAIN_CELL, "%.1f", s.ms / s.count);
    snprintf(row->cells[9], TRAIN_CELL, "%.0f", s.rate / s.count);
}
