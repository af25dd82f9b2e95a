/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/train/train_csv.h"

#include "cmd/common/csv.h"

static const char columns[] = "step,epoch,loss,accuracy,learning_rate,saved_raw_bytes,saved_stored_bytes,skipped,ms,"
                              "images_per_s,evaluation_loss,evaluation_accuracy,evaluation_top5";

static void put_empty(csv *c, int count) {
    while (count-- > 0)
        csv_text(c, "");
}

static void put_step(csv *c, const comet_run_event *event) {
    const comet_trainer_result *r = &event->result;
    csv_number(c, r->loss);
    csv_number(c, 100.0 * r->top1 / (double)event->images);
    csv_number(c, event->learning_rate);
    csv_integer(c, (int64_t)r->saved_raw_bytes);
    csv_integer(c, (int64_t)r->saved_stored_bytes);
    csv_integer(c, r->skipped);
    csv_number(c, event->step_ms);
    csv_number(c, event->images_per_second);
    put_empty(c, 3);
}

static void put_evaluation(csv *c, const comet_run_event *event) {
    put_empty(c, 8);
    csv_number(c, event->loss);
    csv_number(c, event->top1);
    csv_number(c, event->top5);
}

void train_csv_event(log_file *log, const comet_run_event *event) {
    const int is_step = event->kind == COMET_RUN_STEP;
    if (!log->file || (!is_step && event->kind != COMET_RUN_EVALUATED))
        return;
    csv c = {.file = log->file};
    log_file_begin_line(log);
    if (log_file_is_empty(log))
        csv_head(&c, columns);
    csv_integer(&c, event->step);
    csv_integer(&c, event->epoch);
    if (is_step)
        put_step(&c, event);
    else
        put_evaluation(&c, event);
    csv_end(&c);
    log_file_end_line(log);
}
