/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measurement of a variant: a run trains for a while, so that bounds and sizes are those of training; then batches
 * that are ready go round, and what is timed is the step alone.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/bench/step/step.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/stop.h"
#include "cmd/memory/memory_mark.h"
#include "cmd/train/train_progress.h"

/* ---- batches that are ready ---- */

typedef struct batches {
    int count;
    size_t bytes; /* of one's pixels */
    int32_t labels_each;
    uint8_t *pixels;
    int32_t *labels;
} batches;

static void batches_free(batches *b) {
    free(b->pixels);
    free(b->labels);
}

static comet_status batches_take(batches *b, comet_loader *loader, comet_message *message) {
    comet_status status = COMET_OK;
    for (int i = 0; i < b->count && status == COMET_OK; i++) {
        comet_batch batch;
        status = comet_loader_next(loader, &batch, message);
        if (status != COMET_OK)
            break;
        memcpy(b->pixels + (size_t)i * b->bytes, batch.pixels, b->bytes);
        memcpy(b->labels + (size_t)i * (size_t)b->labels_each, batch.labels,
               (size_t)b->labels_each * sizeof *b->labels);
    }
    return status;
}

static comet_status batches_new(batches *b, int count, const comet_trainer_options *o, comet_loader *loader,
                                comet_message *message) {
    b->count = count;
    b->bytes = (size_t)o->batch * (size_t)o->height * (size_t)o->width * (size_t)o->channels;
    b->labels_each = o->batch;
    b->pixels = malloc((size_t)count * b->bytes);
    b->labels = malloc((size_t)count * (size_t)o->batch * sizeof *b->labels);
    return b->pixels && b->labels ? batches_take(b, loader, message) : comet_message_memory(message);
}

/* ---- the study ---- */

typedef struct measurement {
    const step_plan *plan;
    const comet_trainer_options *options; /* complete */
    step_result *result;
    train_progress progress;
    memory_mark memory;
    batches ready;
    comet_trainer *trainer;
    char **choices;     /* NULL there: to be filled in */
    double called;      /* when the run was called */
    int64_t next;       /* step, of those measured */
    double begun, done; /* of the step under way; when all of it was issued */
    /* With parts: marks of a step, and what lies before each. */
    comet_step_clock clock;
    comet_backend *backend;
    int marks, failed;
    int *nodes, *backwards;
    double *ms;
} measurement;

static const uint8_t *next_pixels(void *context) {
    measurement *m = context;
    m->done = clock_seconds();
    return m->ready.pixels + (size_t)((m->next + 1) % m->ready.count) * m->ready.bytes;
}

static comet_status one_step(measurement *m, comet_trainer_result *result, comet_message *message) {
    const int place = (int)(m->next % m->ready.count);
    m->begun = m->done = clock_seconds();
    comet_status status = comet_trainer_train(m->trainer, m->ready.pixels + (size_t)place * m->ready.bytes,
                                              m->ready.labels + (size_t)place * (size_t)m->ready.labels_each,
                                              m->plan->run.rate, m->options->optimiser.momentum, result, message);
    m->next++;
    return status;
}

static comet_status warm_up(measurement *m, comet_message *message) {
    comet_trainer_result result;
    comet_status status = COMET_OK;
    for (int i = 0; i < 3 && status == COMET_OK; i++)
        status = one_step(m, &result, message);
    return status;
}

static comet_status one_by_one(measurement *m, comet_message *message) {
    const int count = m->plan->steps;
    double *times = malloc(2 * (size_t)count * sizeof *times), *issued = times + count;
    comet_trainer_result result;
    comet_status status = times ? COMET_OK : comet_message_memory(message);
    for (int i = 0; i < count && status == COMET_OK && !stop_asked; i++) {
        status = one_step(m, &result, message);
        times[i] = 1e3 * (clock_seconds() - m->begun);
        issued[i] = 1e3 * (m->done - m->begun);
        m->result->loss = result.loss;
        m->result->saved_raw_bytes = result.saved_raw_bytes;
        m->result->saved_stored_bytes = result.saved_stored_bytes;
        memory_look(&m->memory);
    }
    if (status == COMET_OK && !stop_asked) {
        m->result->ms = median_of(times, count);
        m->result->least_ms = times[0];
        m->result->most_ms = times[count - 1];
        m->result->issue_ms = median_of(issued, count);
    }
    free(times);
    return status;
}

static comet_status in_a_row(measurement *m, comet_message *message) {
    comet_trainer_result result;
    comet_status status = COMET_OK;
    const double start = clock_seconds();
    for (int i = 0; i < m->plan->row && status == COMET_OK && !stop_asked; i++)
        status = one_step(m, &result, message);
    m->result->row_ms = m->plan->row ? 1e3 * (clock_seconds() - start) / m->plan->row : 0;
    if (m->result->row_ms > 0)
        m->result->images_per_second = 1e3 * m->options->batch / m->result->row_ms;
    return status;
}

/* ---- where the time goes ---- */

static void passed(void *context, int node, int is_backward) {
    measurement *m = context;
    if (m->failed)
        return;
    m->nodes[m->marks] = node;
    m->backwards[m->marks] = is_backward;
    if (!m->backend->mark)
        m->ms[m->marks] = 1e3 * clock_seconds();
    else
        m->failed = m->backend->mark(m->backend, m->marks) != COMET_OK;
    m->marks++;
}

/* What lies before a mark is what it is of. */
static void add_parts(measurement *m) {
    const comet_graph *g = comet_trainer_graph(m->trainer);
    for (int i = 1; i < m->marks; i++) {
        const int node = m->nodes[i];
        step_part *part = &m->result->parts[node < 0 ? COMET_OP_KINDS : g->nodes[node].kind];
        const double ms = m->ms[i] - m->ms[i - 1];
        *(m->backwards[i] ? &part->backward_ms : &part->forward_ms) += ms / m->plan->parts;
    }
}

static void name_parts(measurement *m) {
    const comet_graph *g = comet_trainer_graph(m->trainer);
    m->result->part_count = STEP_PARTS;
    for (int i = 0; i < STEP_PARTS; i++)
        m->result->parts[i].name = i < COMET_OP_KINDS ? comet_op_name((comet_op_kind)i) : "images, loss";
    for (int i = 0; i < g->node_count; i++)
        m->result->parts[g->nodes[i].kind].nodes++;
}

static comet_status take_marks(measurement *m, comet_message *message) {
    const size_t most = 2 * (size_t)comet_trainer_graph(m->trainer)->node_count + 4;
    m->nodes = malloc(most * sizeof *m->nodes);
    m->backwards = malloc(most * sizeof *m->backwards);
    m->ms = malloc(most * sizeof *m->ms);
    return m->nodes && m->backwards && m->ms ? COMET_OK : comet_message_memory(message);
}

static comet_status step_with_marks(measurement *m, comet_message *message) {
    comet_trainer_result result;
    m->marks = 0;
    comet_status status = one_step(m, &result, message);
    if (status == COMET_OK && m->backend->mark)
        status = m->failed ? COMET_ERROR_DRIVER : m->backend->read_marks(m->backend, m->marks, m->ms);
    if (status == COMET_OK)
        add_parts(m);
    return status;
}

static comet_status measure_parts(measurement *m, comet_message *message) {
    comet_status status = take_marks(m, message);
    m->backend = comet_trainer_backend(m->trainer);
    m->clock = (comet_step_clock){passed, m};
    if (status == COMET_OK)
        name_parts(m);
    comet_trainer_set_clock(m->trainer, &m->clock);
    for (int i = 0; i < m->plan->parts && status == COMET_OK && !stop_asked; i++)
        status = step_with_marks(m, message);
    comet_trainer_set_clock(m->trainer, NULL);
    free(m->nodes);
    free(m->backwards);
    free(m->ms);
    return status;
}

/* ---- all of it ---- */

/* Where there are none, or no memory for them, the next one chooses for itself. */
static void keep_choices(measurement *m) {
    const size_t length = comet_trainer_get_choices(m->trainer, NULL, 0);
    if (*m->choices || length == 0)
        return;
    *m->choices = malloc(length + 1);
    if (*m->choices)
        (void)comet_trainer_get_choices(m->trainer, *m->choices, length + 1);
}

static void add_plan(const comet_plan *plan, step_result *result) {
    for (int i = 0; i < comet_plan_entries(plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(plan, i);
        if (e->form.form == COMET_FORM_RECOMPUTE)
            result->recomputed_bytes += e->raw_bytes;
        else if (e->form.offload)
            result->offloaded_bytes += e->stored_bytes;
    }
}

static comet_status study(void *context, comet_trainer *trainer, comet_loader *loader, comet_message *message) {
    measurement *m = context;
    const comet_step_ahead ahead = {next_pixels, m};
    train_progress_clear(&m->progress);
    m->trainer = trainer;
    keep_choices(m);
    m->result->settled = *comet_trainer_updates(trainer);
    memory_look(&m->memory);
    m->result->first_peak_bytes = memory_peak(&m->memory);
    comet_status status = batches_new(&m->ready, m->plan->ready, m->options, loader, message);
    comet_trainer_set_ahead(trainer, &ahead);
    memory_again(&m->memory);
    if (status == COMET_OK)
        status = warm_up(m, message);
    if (status == COMET_OK)
        status = one_by_one(m, message);
    if (status == COMET_OK)
        status = in_a_row(m, message);
    memory_look(&m->memory);
    m->result->peak_bytes = memory_peak(&m->memory);
    if (status == COMET_OK && m->plan->parts)
        status = measure_parts(m, message);
    comet_trainer_set_ahead(trainer, NULL);
    m->result->bytes = comet_trainer_get_bytes(trainer);
    add_plan(comet_trainer_plan(trainer), m->result);
    batches_free(&m->ready);
    return status;
}

static void observe(void *context, const comet_run_event *event) {
    measurement *m = context;
    train_progress_event(&m->progress, event);
    if (event->kind == COMET_RUN_STARTED)
        m->result->start_ms = 1e3 * (clock_seconds() - m->called);
    if (event->kind == COMET_RUN_STEP && m->result->first_count < STEP_FIRST)
        m->result->first_ms[m->result->first_count++] = event->step_ms;
    if (event->kind == COMET_RUN_STEP && event->step < 4)
        memory_look(&m->memory);
}

void step_measure(const step_plan *plan, const comet_run_options *given, char **choices, step_result *result) {
    measurement m = {.plan = plan, .result = result, .choices = choices};
    comet_run_options run = *given;
    comet_trainer_options options;
    comet_run_result unused;
    size_t loader_bytes[COMET_SPLITS];
    result->status = comet_run_trainer_options(&run, &options, loader_bytes, &result->why);
    if (result->status != COMET_OK)
        return;
    m.options = &options;
    memory_begin(&m.memory, &run.trainer.place);
    train_progress_begin(&m.progress, "", &m.memory, plan->quiet);
    run.observe = observe;
    run.study = study;
    run.context = &m;
    run.stop = &stop_asked;
    run.trainer.choices = *choices;
    m.called = clock_seconds();
    result->status = comet_run(&run, NULL, &unused, &result->why);
    train_progress_clear(&m.progress);
    if (result->status == COMET_OK && stop_asked)
        result->status = comet_message_set(&result->why, COMET_ERROR_IO, "stopped");
}
