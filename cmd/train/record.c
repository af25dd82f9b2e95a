/* SPDX-License-Identifier: Apache-2.0 */
/* Filling records, and their way through a pipe. Where memory is short a curve stays empty: the run matters more. */
#include "cmd/train/record.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

void record_begin(record *r, const char *name, const comet_run_options *run) {
    *r = (record){.stride = 1, .figures.at_ceiling = -1};
    snprintf(r->figures.name, sizeof r->figures.name, "%s", name);
    r->figures.seed = run->trainer.seed;
    r->figures.batch = run->trainer.batch;
    memory_begin(&r->mark, &run->trainer.place);
}

void record_free(record *r) {
    free(r->loss_step);
    free(r->loss);
    free(r->ratio);
    free(r->joint);
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

/* Measured before the update that this step made. */
static void add_joint(record *r, const comet_run_event *event) {
    record_figures *f = &r->figures;
    const comet_trainer_joint *seen = comet_trainer_get_joint(event->trainer);
    if (seen->count == 0 || seen->iteration + 1 != event->step)
        return;
    record_joint *joint =
        comet_array_reserve(NULL, r->joint, f->joint_count, f->joint_count + 1, &r->joint_capacity, sizeof *joint);
    if (!joint)
        return;
    r->joint = joint;
    r->joint[f->joint_count++] = (record_joint){(double)event->step, seen->error, seen->predicted, seen->images};
}

record_joint record_last_joint(const record *r) {
    const size_t count = r->figures.joint_count;
    return count ? r->joint[count - 1] : (record_joint){0};
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

/* Memory changes in the first steps and when there is another plan; to ask a driver takes time. */
static void look(record *r, const comet_run_event *event) {
    enum { FIRST = 16, EVERY = 64 };
    if (event->kind == COMET_RUN_EVALUATED ||
        (event->kind == COMET_RUN_STEP && (event->step <= FIRST || event->step % EVERY == 0)))
        memory_look(&r->mark);
}

void record_event(record *r, const comet_run_event *event) {
    look(r, event);
    if (event->kind == COMET_RUN_STARTED) {
        start(r, event);
        take_shape(r, event->trainer);
    } else if (event->kind == COMET_RUN_STEP) {
        add_loss(r, event);
        add_joint(r, event);
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
    memory_look(&r->mark);
    r->figures.measured_peak_bytes = memory_peak(&r->mark);
    r->figures.gpu_bytes = r->mark.total;
    r->figures.gpu_first_bytes = r->mark.used;
    r->figures.gpu_most_bytes = r->mark.most;
}

/* ---- a controller's decisions, for a picture ---- */

static void add(record *r, int32_t layer, double step, double bound, double factor) {
    record_figures *f = &r->figures;
    record_bound *bounds =
        comet_array_reserve(NULL, r->bounds, f->bound_count, f->bound_count + 1, &r->bound_capacity, sizeof *bounds);
    if (!bounds)
        return;
    r->bounds = bounds;
    r->bounds[f->bound_count++] = (record_bound){layer, step, bound, factor};
}

/* A layer that was not heard of before gets its name; 0 if there is no memory for it. */
static int know(record *r, const comet_control_event *event) {
    record_figures *f = &r->figures;
    size_t wanted = (size_t)event->tensor + 1;
    if (wanted > f->bounded_count) {
        char(*names)[RECORD_NAME] = realloc(r->bounded, wanted * sizeof *names);
        if (!names)
            return 0;
        r->bounded = names;
        unsigned char *flags = realloc(r->is_at_ceiling, wanted);
        if (!flags)
            return 0;
        r->is_at_ceiling = flags;
        for (size_t i = f->bounded_count; i < wanted; i++)
            names[i][0] = 0, flags[i] = 0;
        f->bounded_count = wanted;
    }
    snprintf(r->bounded[event->tensor], RECORD_NAME, "%s", event->name);
    return 1;
}

/* The last bound of a layer; NULL: none yet. */
static const record_bound *last_of(const record *r, int32_t layer) {
    for (size_t i = r->figures.bound_count; i > 0; i--)
        if (r->bounds[i - 1].layer == layer)
            return &r->bounds[i - 1];
    return NULL;
}

static double relative(const comet_control_event *event, comet_control_bound_value bound) {
    return bound.kind == COMET_BOUND_RELATIVE ? bound.value : event->rms > 0 ? bound.value / event->rms : 0;
}

/* ---- how many are at the ceiling ---- */

static void count_ceiling(record *r, double step) {
    size_t held = 0;
    for (size_t i = 0; i < r->figures.bounded_count; i++)
        held += r->is_at_ceiling[i];
    r->ceiling_steps += (double)held * (step - r->bounds_at);
    r->bound_steps += (double)r->figures.bounded_count * (step - r->bounds_at);
    r->bounds_at = step;
}

/* ---- bounds ---- */

/* All times a factor: what safety does, but for the floor. */
static void change_all(record *r, double step, double factor) {
    for (size_t i = 0; i < r->figures.bounded_count; i++) {
        const record_bound *last = last_of(r, (int32_t)i);
        if (last)
            add(r, (int32_t)i, step, last->bound * factor, last->factor);
    }
}

void record_control(record *r, const comet_control_event *event) {
    double step = (double)event->iteration + 1;
    if (event->cause == COMET_CAUSE_IGNORED)
        return;
    if (event->tensor < 0) {
        change_all(r, step, event->before.value > 0 ? event->after.value / event->before.value : 1);
        return;
    }
    count_ceiling(r, step); /* before one is added */
    if (!know(r, event))
        return;
    r->is_at_ceiling[event->tensor] = event->limit == COMET_LIMIT_CEILING;
    double before = relative(event, event->before), after = relative(event, event->after);
    if (!last_of(r, event->tensor))
        add(r, event->tensor, 0, before, 0);
    if (last_of(r, event->tensor) && last_of(r, event->tensor)->bound != after)
        add(r, event->tensor, step, after, event->factor);
}

void record_control_until(record *r, int64_t step) {
    change_all(r, (double)step, 1);
    count_ceiling(r, (double)step);
    if (r->bound_steps > 0)
        r->figures.at_ceiling = r->ceiling_steps / r->bound_steps;
}

/* ---- through a pipe, between two processes of the same program: plain memory, one array behind the other ---- */

static int put(int file, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = write(file, at, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return 0;
        at += done;
        bytes -= (size_t)done;
    }
    return 1;
}

static int get(int file, void *data, size_t bytes) {
    char *at = data;
    while (bytes > 0) {
        ssize_t done = read(file, at, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return 0;
        at += done;
        bytes -= (size_t)done;
    }
    return 1;
}

/* A new array of what comes. */
static int get_array(int file, void *pointer, size_t count, size_t size) {
    void *array = malloc(count * size + 1);
    *(void **)pointer = array;
    return array && get(file, array, count * size);
}

int record_write(const record *r, int file) {
    const record_figures *f = &r->figures;
    return put(file, f, sizeof *f) && put(file, r->loss_step, f->loss_count * sizeof *r->loss_step) &&
           put(file, r->loss, f->loss_count * sizeof *r->loss) &&
           put(file, r->ratio, f->loss_count * sizeof *r->ratio) &&
           put(file, r->evaluation_step, f->evaluation_count * sizeof *r->evaluation_step) &&
           put(file, r->accuracy, f->evaluation_count * sizeof *r->accuracy) &&
           put(file, r->memory, f->time_count * sizeof *r->memory) &&
           put(file, r->layers, f->layer_count * sizeof *r->layers) &&
           put(file, r->joint, f->joint_count * sizeof *r->joint) &&
           put(file, r->bounds, f->bound_count * sizeof *r->bounds) &&
           put(file, r->bounded, f->bounded_count * sizeof *r->bounded);
}

int record_read(record *r, int file) {
    record_figures *f = &r->figures;
    *r = (record){.stride = 1};
    if (get(file, f, sizeof *f) && get_array(file, &r->loss_step, f->loss_count, sizeof *r->loss_step) &&
        get_array(file, &r->loss, f->loss_count, sizeof *r->loss) &&
        get_array(file, &r->ratio, f->loss_count, sizeof *r->ratio) &&
        get_array(file, &r->evaluation_step, f->evaluation_count, sizeof *r->evaluation_step) &&
        get_array(file, &r->accuracy, f->evaluation_count, sizeof *r->accuracy) &&
        get_array(file, &r->memory, f->time_count, sizeof *r->memory) &&
        get_array(file, &r->layers, f->layer_count, sizeof *r->layers) &&
        get_array(file, &r->joint, f->joint_count, sizeof *r->joint) &&
        get_array(file, &r->bounds, f->bound_count, sizeof *r->bounds) &&
        get_array(file, &r->bounded, f->bounded_count, sizeof *r->bounded))
        return 1;
    record_free(r);
    return 0;
}
