/* SPDX-License-Identifier: Apache-2.0 */
/* Where a run begins, and what it leaves behind to go on from. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "train/checkpoint.h"
#include "train/run_impl.h"
#include "train/weights.h"

static const char estimates_blob[] = "estimates", control_blob[] = "control";

/* ---- what a checkpoint is of ---- */

typedef struct identity {
    char model[160];
    char *options;
    size_t options_bytes;
} identity;

static const char *text_or(const char *text, const char *otherwise) {
    return text ? text : otherwise;
}

/*
 * What must not change, for the run that goes on to be the one that began. How long it shall be, where it saves, its
 * threads and its memory may: with the same ones the bits are the same, with others it is still the same training.
 */
static int format_options(const comet_run_session *s, char *text, size_t capacity) {
    const comet_trainer_options *t = &s->trainer_options;
    const comet_optimiser *o = &t->optimiser;
    return snprintf(text, capacity,
                    "codec=%s error=%g control=%s calibration=%g batch=%d accumulate=%d seed=%" PRIu64
                    " rate=%g schedule=%d warmup=%g momentum=%g "
                    "nesterov=%d decay=%g/%d betas=%g,%g smoothing=%g augment=%d forms=%s inject=%s",
                    text_or(t->codec, "none"), t->error_rel, text_or(t->control, ""), t->calibration, t->batch,
                    s->accumulate, t->seed, s->schedule.rate, (int)s->schedule.kind, s->options->warmup_epochs,
                    o->momentum, o->nesterov, o->weight_decay, o->decay_weights_only, o->beta1, o->beta2,
                    (double)t->smoothing, (int)s->options->augment, text_or(t->forms, ""), text_or(t->inject, ""));
}

static comet_status identity_init(identity *id, const comet_run_session *s) {
    const comet_trainer_options *t = &s->trainer_options;
    snprintf(id->model, sizeof id->model, "%s classes=%d image=%dx%dx%d", t->model, t->classes, t->height, t->width,
             t->channels);
    id->options_bytes = (size_t)format_options(s, NULL, 0) + 1;
    id->options = comet_memory_take(s->allocator, id->options_bytes);
    if (!id->options)
        return comet_message_memory(s->message);
    format_options(s, id->options, id->options_bytes);
    return COMET_OK;
}

static void identity_destroy(identity *id, const comet_run_session *s) {
    comet_memory_give(s->allocator, id->options, id->options_bytes);
}

static comet_checkpoint checkpoint_of(comet_run_session *s, const identity *id) {
    comet_graph *graph = comet_trainer_graph(s->trainer);
    return (comet_checkpoint){.model = id->model,
                              .options = id->options,
                              .parameters = comet_graph_parameter(graph, 0),
                              .parameter_count = comet_graph_parameters(graph),
                              .optimiser = &s->trainer_options.optimiser,
                              .state = comet_trainer_optimiser_state(s->trainer)};
}

/* ---- saving ---- */

/* Size estimates, then the controller's state, in one piece of memory. */
typedef struct blobs {
    char *memory;
    size_t estimates, control;
} blobs;

static void add_blob(comet_checkpoint *c, const char *name, void *data, size_t bytes) {
    comet_checkpoint_blob *blob = &c->blobs[c->blob_count++];
    *blob = (comet_checkpoint_blob){.data = data, .bytes = bytes};
    strcpy(blob->name, name);
}

static comet_status write_checkpoint(comet_run_session *s, const identity *id, const blobs *b) {
    comet_checkpoint c = checkpoint_of(s, id);
    c.step = s->step;
    c.batches = *comet_trainer_batches(s->trainer);
    c.epoch = s->epoch;
    comet_loader_state_format(&s->place, c.loader);
    c.keys[0] = s->trainer_options.seed;
    comet_trainer_get_estimates(s->trainer, b->memory);
    add_blob(&c, estimates_blob, b->memory, b->estimates);
    if (b->control) {
        char *control = b->memory + b->estimates;
        comet_status status = comet_trainer_get_control(s->trainer, control, b->control, s->message);
        if (status != COMET_OK)
            return status;
        add_blob(&c, control_blob, control, b->control);
    }
    return comet_checkpoint_write(s->options->folder, &c, s->allocator, s->message);
}

static comet_status save(comet_run_session *s, const identity *id) {
    blobs b = {.estimates = comet_trainer_estimates_bytes(s->trainer),
               .control = comet_trainer_control_bytes(s->trainer)};
    b.memory = comet_memory_take(s->allocator, b.estimates + b.control);
    if (!b.memory)
        return comet_message_memory(s->message);
    comet_status status = write_checkpoint(s, id, &b);
    comet_memory_give(s->allocator, b.memory, b.estimates + b.control);
    return status;
}

comet_status comet_run_save(comet_run_session *s) {
    if (!s->options->folder || s->saved_step == s->step)
        return COMET_OK;
    identity id;
    comet_status status = identity_init(&id, s);
    if (status != COMET_OK)
        return status;
    status = save(s, &id);
    identity_destroy(&id, s);
    if (status != COMET_OK)
        return status;
    s->saved_step = s->step;
    comet_run_event event = comet_run_event_of(s, COMET_RUN_CHECKPOINT);
    event.text = s->options->folder;
    comet_run_tell(s, &event);
    return COMET_OK;
}

/* ---- beginning ---- */

static comet_status go_on(comet_run_session *s, const comet_checkpoint *c) {
    comet_loader_state loader;
    if (comet_loader_state_parse(c->loader, &loader) != COMET_OK)
        return comet_message_set(s->message, COMET_ERROR_CORRUPT,
                                 "the checkpoint in '%s' does not say where in the data it was", s->options->folder);
    comet_status status = comet_loader_set_state(s->train, &loader, s->message);
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
    return status;
}

static comet_status resume(comet_run_session *s) {
    identity id;
    comet_status status = identity_init(&id, s);
    if (status != COMET_OK)
        return status;
    comet_checkpoint c = checkpoint_of(s, &id);
    comet_message note = {.text = ""};
    status = comet_checkpoint_read(s->options->folder, &c, s->allocator, &note, s->message);
    if (status == COMET_OK)
        status = go_on(s, &c);
    if (note.text[0])
        comet_run_note(s, note.text);
    comet_checkpoint_release(&c, s->allocator);
    identity_destroy(&id, s);
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

/* A run that begins anew in a folder does not take an earlier one's work away. */
static comet_status put_aside(comet_run_session *s) {
    const char *folder = s->options->folder;
    char from[1200], to[1200];
    comet_message note;
    int kept = 0;
    static const char *const names[] = {"previous", "last", "new"}; /* the newest is the last to get the name */
    snprintf(to, sizeof to, "%s/earlier.safetensors", folder);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (snprintf(from, sizeof from, "%s/%s.safetensors", folder, names[i]) >= (int)sizeof from)
            return comet_message_set(s->message, COMET_ERROR_ARGUMENT,
                                     "the name of the checkpoints' folder is too long");
        if (rename(from, to) == 0)
            kept = 1;
        else if (errno != ENOENT)
            return comet_message_set(s->message, COMET_ERROR_IO, "cannot rename '%s': %s", from, strerror(errno));
    }
    comet_message_set(&note, COMET_OK, "beginning anew; the earlier run's checkpoint is now '%s'", to);
    if (kept)
        comet_run_note(s, note.text);
    return COMET_OK;
}

/* That nothing can be written there is better known now than after the first epoch. */
static comet_status make_folder(const comet_run_session *s) {
    const char *folder = s->options->folder;
    if ((mkdir(folder, 0777) != 0 && errno != EEXIST) || access(folder, W_OK | X_OK) != 0)
        return comet_message_set(s->message, COMET_ERROR_IO, "cannot write checkpoints to '%s': %s", folder,
                                 strerror(errno));
    return COMET_OK;
}

comet_status comet_run_begin(comet_run_session *s) {
    const comet_run_options *o = s->options;
    s->place = comet_loader_get_state(s->train);
    if (o->folder && make_folder(s) != COMET_OK)
        return COMET_ERROR_IO;
    if (o->folder && comet_checkpoint_exists(o->folder)) {
        if (o->resume)
            return resume(s);
        comet_status status = put_aside(s);
        if (status != COMET_OK)
            return status;
    }
    return o->weights ? read_weights(s) : COMET_OK;
}
