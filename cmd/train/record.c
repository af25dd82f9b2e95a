/* SPDX-License-Identifier: Apache-2.0 */
/* Filling records. Where memory is short a curve stays empty: the run matters more than its picture. */
#include "cmd/train/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void record_begin(record *r, const char *name, const comet_run_options *run) {
    *r = (record){.stride = 1, .figures.at_ceiling = -1};
    snprintf(r->figures.name, sizeof r->figures.name, "%s", name);
    r->figures.seed = run->trainer.seed;
    r->figures.batch = run->trainer.batch;
    resident_begin(&r->mark);
}

void record_free(record *r) {
    free(r->loss_step);
    free(r->loss);
    free(r->ratio);
    free(r->bounds);
    free(r->bounded);
    free(r->is_at_ceiling);
    free(r->evaluation_step);
    free(r->accuracy);
    free(r->memory);
    free(r->layers);
    *r = (record){.stride = 1};
}

size_t record_planned_peak(const record *r) {
    return comet_run_planned_peak(&r->figures.result);
}

/* ---- curves ---- */

static void start(record *r, const comet_run_event *event) {
    int64_t steps = event->steps - event->step;
    r->stride = steps / RECORD_POINTS + 1;
    r->loss_step = malloc((RECORD_POINTS + 1) * sizeof *r->loss_step);
    r->loss = malloc((RECORD_POINTS + 1) * sizeof *r->loss);
    r->ratio = malloc((RECORD_POINTS + 1) * sizeof *r->ratio);
}

static void add_loss(record *r, const comet_run_event *event) {
    record_figures *f = &r->figures;
    const comet_trainer_result *result = &event->result;
    if (!result->skipped) {
        comet_mean_add(&r->open_loss, result->loss, 1);
        if (result->saved_stored_bytes)
            comet_mean_add(&r->open_ratio, (double)result->saved_raw_bytes / (double)result->saved_stored_bytes, 1);
    }
    if (event->step % r->stride != 0 && event->step != event->steps)
        return;
    if (r->loss_step && r->loss && r->ratio && f->loss_count <= RECORD_POINTS) {
        r->loss_step[f->loss_count] = (double)event->step;
        r->ratio[f->loss_count] = r->open_ratio.weight > 0 ? comet_mean_value(&r->open_ratio) : (double)NAN;
        r->loss[f->loss_count++] = r->open_loss.weight > 0 ? comet_mean_value(&r->open_loss) : (double)NAN;
    }
    r->open_loss = r->open_ratio = (comet_mean){0};
}

static int grow_evaluations(record *r) {
    size_t capacity = r->evaluation_capacity ? 2 * r->evaluation_capacity : 16;
    double *steps = realloc(r->evaluation_step, capacity * sizeof *steps);
    if (steps)
        r->evaluation_step = steps;
    double *accuracy = steps ? realloc(r->accuracy, capacity * sizeof *accuracy) : NULL;
    if (!accuracy)
        return 0;
    r->accuracy = accuracy;
    r->evaluation_capacity = capacity;
    return 1;
}

static void add_evaluation(record *r, const comet_run_event *event) {
    record_figures *f = &r->figures;
    if (f->evaluation_count == r->evaluation_capacity && !grow_evaluations(r))
        return;
    r->evaluation_step[f->evaluation_count] = (double)event->step;
    r->accuracy[f->evaluation_count++] = event->top1;
}

/* ---- memory and layers, as the trainer knows them at the end ---- */

static void take_memory(record *r, const comet_trainer *trainer) {
    int times = comet_trainer_times(trainer);
    double *memory = realloc(r->memory, (size_t)times * sizeof *memory);
    if (!memory)
        return;
    for (int i = 0; i < times; i++)
        memory[i] = (double)comet_trainer_bytes_at(trainer, i) / 1048576;
    r->memory = memory;
    r->figures.time_count = (size_t)times;
}

static void take_layers(record *r, const comet_trainer *trainer) {
    const comet_plan *plan = comet_trainer_plan(trainer);
    int count = comet_plan_entries(plan);
    record_layer *layers = realloc(r->layers, (size_t)count * sizeof *layers);
    if (!layers)
        return;
    for (int i = 0; i < count; i++) {
        const comet_plan_entry *entry = comet_plan_get_entry(plan, i);
        const comet_learned_entry *known = comet_learned_at(comet_trainer_learned(trainer), i);
        snprintf(layers[i].name, sizeof layers[i].name, "%s", entry->name);
        comet_form_format(entry, layers[i].form);
        layers[i].raw = (double)entry->raw_bytes;
        layers[i].stored = (double)(known->last_bytes ? known->last_bytes : known->stored_bytes);
    }
    r->layers = layers;
    r->figures.layer_count = (size_t)count;
}

static void take_shape(record *r, comet_trainer *trainer) {
    comet_shape shape = comet_graph_shape(comet_trainer_graph(trainer), 0); /* the input is a graph's first value */
    r->figures.height = shape.height;
    r->figures.width = shape.width;
    r->figures.channels = shape.channels;
}

void record_event(record *r, const comet_run_event *event) {
    if (event->kind == COMET_RUN_STARTED) {
        start(r, event);
        take_shape(r, event->trainer);
    } else if (event->kind == COMET_RUN_STEP) {
        add_loss(r, event);
    } else if (event->kind == COMET_RUN_CONTROL) {
        record_control(r, event->control);
    } else if (event->kind == COMET_RUN_EVALUATED) {
        add_evaluation(r, event);
        take_memory(r, event->trainer);
        take_layers(r, event->trainer);
        record_control_until(r, event->step);
    }
}

void record_end(record *r, comet_status status, const comet_run_result *result, const comet_message *message) {
    r->figures.status = status;
    r->figures.result = *result;
    if (status != COMET_OK)
        r->figures.why = *message;
    r->figures.measured_peak_bytes = resident_peak(&r->mark);
}
