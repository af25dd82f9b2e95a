/* SPDX-License-Identifier: Apache-2.0 */
/* Where a run begins, and what it leaves behind to go on from. */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/checkpoint/about.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/weights.h"
#include "train/run/run_impl.h"

static const char estimates_blob[] = "estimates", control_blob[] = "control", data_blob[] = COMET_ABOUT_DATA,
                  choices_blob[] = "choices", scale_blob[] = "scale", images_blob[] = COMET_ABOUT_IMAGES;

static comet_checkpoint checkpoint_of(comet_run_session *s, const comet_run_identity *id) {
    comet_graph *graph = comet_trainer_graph(s->trainer);
    return (comet_checkpoint){.model = id->model,
                              .options = id->options,
                              .parameters = comet_graph_parameter(graph, 0),
                              .parameter_count = comet_graph_parameters(graph),
                              .optimiser = &s->trainer_options.optimiser,
                              .state = comet_trainer_optimiser_state(s->trainer)};
}

/* ---- saving ---- */

/* Size estimates, the controller's state, and chosen kernels with a zero behind, in one piece of memory. */
typedef struct blobs {
    char *memory;
    size_t estimates, control, choices;
    char *images; /* comet_about_text */
    size_t images_bytes;
} blobs;

static size_t bytes_of(const blobs *b) {
    return b->estimates + b->control + b->choices;
}

static void add_blob(comet_checkpoint *c, const char *name, void *data, size_t bytes) {
    comet_checkpoint_blob *blob = &c->blobs[c->blob_count++];
    *blob = (comet_checkpoint_blob){.data = data, .bytes = bytes};
    strcpy(blob->name, name);
}

static comet_status write_checkpoint(comet_run_session *s, const comet_run_identity *id, const blobs *b) {
    comet_checkpoint c = checkpoint_of(s, id);
    char scale[64];
    c.step = s->step;
    c.batches = *comet_trainer_batches(s->trainer);
    c.epoch = s->epoch;
    c.keep_previous = s->keep_previous;
    comet_loader_state_format(&s->place, c.loader);
    c.keys[0] = s->trainer_options.seed;
    if (s->options->data_name)
        add_blob(&c, data_blob, (void *)s->options->data_name, strlen(s->options->data_name));
    add_blob(&c, images_blob, b->images, strlen(b->images));
    comet_trainer_get_estimates(s->trainer, b->memory);
    add_blob(&c, estimates_blob, b->memory, b->estimates);
    if (b->control) {
        char *control = b->memory + b->estimates;
        COMET_TRY(comet_trainer_get_control(s->trainer, control, b->control, s->message));
        add_blob(&c, control_blob, control, b->control);
    }
    const size_t scale_bytes = comet_trainer_get_scale(s->trainer, scale, sizeof scale);
    if (scale_bytes > 0)
        add_blob(&c, scale_blob, scale, scale_bytes);
    if (b->choices > 1) {
        char *choices = b->memory + b->estimates + b->control;
        (void)comet_trainer_get_choices(s->trainer, choices, b->choices);
        add_blob(&c, choices_blob, choices, b->choices - 1);
    }
    return comet_checkpoint_write(s->options->folder, &c, s->allocator, s->message);
}

static comet_status save(comet_run_session *s, const comet_run_identity *id) {
    blobs b = {.estimates = comet_trainer_estimates_bytes(s->trainer),
               .control = comet_trainer_control_bytes(s->trainer),
               .choices = comet_trainer_get_choices(s->trainer, NULL, 0) + 1};
    b.memory = comet_memory_take(s->allocator, bytes_of(&b));
    if (!b.memory)
        return comet_message_memory(s->message);
    comet_status status =
        comet_about_text(s->options->data, &s->trainer_options.normalisation, s->trainer_options.channels, s->allocator,
                         &b.images, &b.images_bytes, s->message);
    if (status == COMET_OK) {
        status = write_checkpoint(s, id, &b);
        comet_memory_give(s->allocator, b.images, b.images_bytes);
    }
    comet_memory_give(s->allocator, b.memory, bytes_of(&b));
    return status;
}

comet_status comet_run_save(comet_run_session *s) {
    if (!s->options->folder || s->saved_step >= s->made_step)
        return COMET_OK;
    comet_run_identity id;
    COMET_TRY(comet_run_identity_init(&id, s));
    comet_status status = save(s, &id);
    comet_run_identity_destroy(&id, s);
    if (status != COMET_OK)
        return status;
    s->saved_step = s->step;
    s->keep_previous = 0;
    comet_run_event event = comet_run_event_of(s, COMET_RUN_CHECKPOINT);
    event.text = s->options->folder;
    comet_run_tell(s, &event);
    return COMET_OK;
}

/* ---- beginning ---- */

comet_status comet_run_make_trainer(comet_run_session *s) {
    const comet_run_options *o = s->options;
    char *choices = NULL;
    size_t bytes = 0;
    if (o->folder && o->resume &&
        comet_checkpoint_peek(o->folder, choices_blob, s->allocator, &choices, &bytes) != COMET_OK)
        return comet_message_memory(s->message);
    if (choices) /* otherwise what the options say */
        s->trainer_options.choices = choices;
    comet_status status = comet_trainer_new(&s->trainer_options, s->allocator, &s->trainer, s->message);
    s->trainer_options.choices = NULL;
    if (choices)
        comet_memory_give(s->allocator, choices, bytes);
    if (status == COMET_OK && comet_trainer_note(s->trainer)[0])
        comet_run_note(s, comet_trainer_note(s->trainer));
    return status;
}

/*
 * The same images may lie somewhere else today, and others under the same name: names and labels decide, a line says
 * the rest.
 */
static comet_status set_place(comet_run_session *s, const comet_checkpoint *c, const comet_loader_state *place) {
    const comet_checkpoint_blob *then = comet_checkpoint_find(c, data_blob);
    const char *now = s->options->data_name;
    comet_status status = comet_loader_set_state(s->train, place, s->message);
    if (!then || !now || (strlen(now) == then->bytes && memcmp(now, then->data, then->bytes) == 0))
        return status;
    const int length = then->bytes < 200 ? (int)then->bytes : 200;
    const comet_message why = *s->message;
    comet_message note;
    comet_message_set(&note, COMET_OK,
                      "the checkpoint is of '%.*s', this is '%.200s'; names and labels are the same: going on", length,
                      (const char *)then->data, now);
    if (status == COMET_OK)
        comet_run_note(s, note.text);
    else if (status == COMET_ERROR_MISMATCH)
        comet_message_set(s->message, status, "%.300s, which was '%.*s'", why.text, length, (const char *)then->data);
    return status;
}

static void set_scale(comet_run_session *s, const comet_checkpoint *c) {
    const comet_checkpoint_blob *blob = comet_checkpoint_find(c, scale_blob);
    char text[64];
    if (!blob || blob->bytes >= sizeof text)
        return;
    memcpy(text, blob->data, blob->bytes);
    text[blob->bytes] = '\0';
    comet_trainer_set_scale(s->trainer, text);
}

static comet_status go_on(comet_run_session *s, const comet_checkpoint *c) {
    comet_loader_state loader;
    if (comet_loader_state_parse(c->loader, &loader) != COMET_OK)
        return comet_message_set(s->message, COMET_ERROR_CORRUPT,
                                 "the checkpoint in '%s' does not say where in the data it was", s->options->folder);
    comet_status status = set_place(s, c, &loader);
    const comet_checkpoint_blob *estimates = comet_checkpoint_find(c, estimates_blob),
                                *control = comet_checkpoint_find(c, control_blob);
    if (status == COMET_OK && estimates)
        status = comet_trainer_set_estimates(s->trainer, estimates->data, estimates->bytes, s->message);
    *comet_trainer_updates(s->trainer) = s->step = s->saved_step = c->step;
    *comet_trainer_batches(s->trainer) = c->batches;
    s->epoch = c->epoch;
    s->place = comet_loader_get_state(s->train);
    if (status == COMET_OK && control)
        status = comet_trainer_set_control(s->trainer, control->data, control->bytes, s->message);
    set_scale(s, c);
    return status;
}

static comet_status resume(comet_run_session *s) {
    comet_run_identity id;
    COMET_TRY(comet_run_identity_init(&id, s));
    comet_checkpoint c = checkpoint_of(s, &id);
    comet_message note = {.text = ""};
    comet_status status = comet_checkpoint_read(s->options->folder, &c, s->allocator, &note, s->message);
    s->keep_previous = c.keep_previous;
    if (status == COMET_OK)
        status = go_on(s, &c);
    if (status == COMET_OK)
        status = comet_run_recall_best(s);
    if (note.text[0])
        comet_run_note(s, note.text);
    comet_checkpoint_release(&c, s->allocator);
    comet_run_identity_destroy(&id, s);
    return status;
}

static comet_status read_weights(comet_run_session *s) {
    comet_graph *graph = comet_trainer_graph(s->trainer);
    comet_weights_report report = {0};
    comet_status status =
        comet_weights_read(s->options->weights, comet_graph_parameter(graph, 0), comet_graph_parameters(graph),
                           COMET_WEIGHTS_FINETUNE, &report, s->allocator, s->message);
    if (status == COMET_OK && report.note.text[0])
        comet_run_note(s, report.note.text);
    return status;
}

/*
 * Without a checkpoint there are the first values, or given weights. What is there is put aside when nothing else can
 * fail.
 */
static comet_status begin_anew(comet_run_session *s, int exists) {
    const comet_run_options *o = s->options;
    comet_status status = o->weights ? read_weights(s) : COMET_OK;
    if (status == COMET_OK && exists)
        status = comet_run_put_aside(s);
    if (status == COMET_OK && o->folder)
        status = comet_run_put_best_aside(s);
    comet_message note;
    if (status == COMET_OK && o->resume == COMET_RUN_RESUME_AUTO) {
        comet_message_set(&note, COMET_OK, "there is no checkpoint in '%.400s': beginning anew", o->folder);
        comet_run_note(s, note.text);
    }
    return status;
}

comet_status comet_run_begin(comet_run_session *s) {
    const comet_run_options *o = s->options;
    s->place = comet_loader_get_state(s->train);
    comet_status status = comet_run_open_folder(s);
    if (status == COMET_OK && o->prepare)
        status = o->prepare(o->context, s->message);
    if (status != COMET_OK)
        return status;
    const int exists = o->folder && comet_checkpoint_exists(o->folder);
    return exists && o->resume ? resume(s) : begin_anew(s, exists);
}
