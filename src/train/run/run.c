/* SPDX-License-Identifier: Apache-2.0 */
/* A run from its beginning to its end. */
#include "train/run/run.h"

#include <string.h>

#include "train/run/run_impl.h"

/* ---- telling ---- */

comet_run_event comet_run_event_of(comet_run_session *s, comet_run_event_kind kind) {
    return (comet_run_event){.kind = kind,
                             .trainer = s->trainer,
                             .step = s->step,
                             .steps = s->steps,
                             .epoch = s->epoch,
                             .evaluated = s->evaluated,
                             .to_evaluate = comet_run_to_evaluate(s)};
}

void comet_run_tell(comet_run_session *s, const comet_run_event *event) {
    if (s->options->observe)
        s->options->observe(s->options->context, event);
}

void comet_run_note(comet_run_session *s, const char *text) {
    comet_run_event event = comet_run_event_of(s, COMET_RUN_NOTE);
    event.text = text;
    comet_run_tell(s, &event);
}

int comet_run_stopped(const comet_run_session *s) {
    return s->options->stop && *s->options->stop;
}

/* What a controller decides when it is made is in the options: there is nobody to tell yet. */
static void tell_control(void *context, const comet_control_event *decision) {
    comet_run_session *s = context;
    comet_run_event event = comet_run_event_of(s, COMET_RUN_CONTROL);
    event.control = decision;
    if (s->started)
        comet_run_tell(s, &event);
}

/* ---- setting up ---- */

static comet_status set_length(comet_run_session *s) {
    const comet_run_options *o = s->options;
    int64_t batches = s->epoch_batches = comet_loader_batches(s->train);
    s->steps = o->steps ? o->steps : (batches * o->epochs + s->accumulate - 1) / s->accumulate;
    s->schedule = comet_schedule_default(o->schedule, o->rate, s->steps);
    s->schedule.warmup = (int64_t)(o->warmup_epochs * (double)batches / s->accumulate);
    return s->steps == 0 ? COMET_OK : comet_schedule_check(&s->schedule, s->message);
}

static comet_status check(const comet_run_session *s) {
    const comet_run_options *o = s->options;
    if (o->steps < 0 || o->epochs < 0 || (o->steps == 0 && o->epochs == 0 && !o->study))
        return comet_message_set(s->message, COMET_ERROR_ARGUMENT, "nothing to do: give epochs or steps");
    if (o->trainer.batch < 1)
        return comet_message_set(s->message, COMET_ERROR_ARGUMENT, "a batch has at least one image");
    return COMET_OK;
}

static comet_status set_up(comet_run_session *s) {
    const comet_run_options *o = s->options;
    comet_status status = check(s);
    if (status == COMET_OK)
        status = comet_run_trainer_options(o, &s->trainer_options, s->result->loader_bytes, s->message);
    s->trainer_options.control_log = tell_control;
    s->trainer_options.control_context = s;
    if (status == COMET_OK)
        status = comet_run_make_trainer(s);
    if (status == COMET_OK)
        status = comet_run_open_loader(s, COMET_SPLIT_TRAIN, &s->train);
    if (status == COMET_OK)
        status = set_length(s);
    if (status == COMET_OK && (comet_run_times_init(&s->times, s->steps, s->allocator) != COMET_OK ||
                               comet_run_times_init(&s->network_times, s->steps, s->allocator) != COMET_OK))
        status = comet_message_memory(s->message);
    return status == COMET_OK ? comet_run_begin(s) : status;
}

static void take_down(comet_run_session *s) {
    comet_run_times_destroy(&s->times, s->allocator);
    comet_run_times_destroy(&s->network_times, s->allocator);
    comet_loader_free(s->train);
    comet_trainer_free(s->trainer);
    comet_run_close_folder(s);
}

/* ---- the end ---- */

static comet_status write_weights(comet_run_session *s) {
    return s->options->weights_out ? comet_run_write_weights(s, s->options->weights_out) : COMET_OK;
}

/* Both are tried: if one disk is full the other file may still hold what was learned. */
static comet_status leave_results(comet_run_session *s) {
    comet_message first;
    comet_status weights = write_weights(s);
    if (weights != COMET_OK)
        first = *s->message;
    comet_status saved = comet_run_save(s);
    if (weights != COMET_OK)
        *s->message = first;
    return weights != COMET_OK ? weights : saved;
}

static void fill_result(comet_run_session *s) {
    comet_run_result *r = s->result;
    int64_t images = (int64_t)s->trainer_options.batch * s->accumulate;
    r->step = s->step;
    r->best_step = s->best_step;
    r->best_accuracy = s->best_accuracy;
    r->train_loss = comet_mean_value(&s->epoch_loss);
    r->ms_per_step = comet_run_times_median(&s->times);
    r->images_per_second = r->ms_per_step > 0 ? 1e3 * (double)images / r->ms_per_step : 0;
    const double alone = comet_run_times_median(&s->network_times);
    r->network_images_per_second = alone > 0 ? 1e3 * (double)images / alone : 0;
    r->data_wait = s->spent_ms > 0 ? s->waited_ms / s->spent_ms : 0;
    r->loader_wait = s->spent_ms > 0 ? s->loader_idle_ms / s->spent_ms : 0;
    r->saved_raw_bytes = (uint64_t)comet_mean_value(&s->raw);
    r->saved_stored_bytes = (uint64_t)comet_mean_value(&s->stored);
    r->bytes = comet_trainer_get_bytes(s->trainer);
}

/*
 * A batch that failed has changed nothing: if it was an update's first, or the update was taken back, the state is that
 * after the last update. But what led to a divergence is hardly worth more than the checkpoints there are, and must not
 * take their place.
 */
static void save_what_is_whole(comet_run_session *s, comet_status status) {
    comet_message why = *s->message;
    if (s->begun == 0 && (status != COMET_ERROR_DIVERGED || s->saved_step < 0))
        (void)comet_run_save(s); /* if that fails too, the advice names an older one */
    *s->message = why;
}

/* Going on as before would diverge again. */
static void advise_smaller_rate(comet_run_session *s, const comet_message *why) {
    if (s->saved_step >= 0)
        comet_message_set(s->message, COMET_ERROR_DIVERGED,
                          "%.400s; go on from step %lld in '%.120s', or begin anew, with a smaller learning rate",
                          why->text, (long long)s->saved_step, s->options->folder);
    else
        comet_message_set(s->message, COMET_ERROR_DIVERGED,
                          "%.400s; there is no checkpoint to go on from: begin anew with a smaller learning rate",
                          why->text);
}

/* What to do about it, and what there is to go on from. */
static void add_advice(comet_run_session *s, comet_status status) {
    comet_message why = *s->message;
    if (status == COMET_ERROR_DISK_FULL)
        comet_message_set(s->message, status, "%.300s; make room in '%.120s' or spill to another folder", why.text,
                          s->trainer_options.spill_directory ? s->trainer_options.spill_directory : "");
    why = *s->message;
    if (status == COMET_ERROR_DIVERGED && !s->options->study)
        advise_smaller_rate(s, &why);
    else if (s->saved_step >= 0)
        comet_message_set(s->message, status, "%.400s; stopped after step %lld, resume from step %lld in '%.120s'",
                          why.text, (long long)s->step, (long long)s->saved_step, s->options->folder);
    else if (s->options->weights_out)
        comet_message_set(s->message, status, "%.400s; stopped after step %lld, and there is no checkpoint", why.text,
                          (long long)s->step);
}

static comet_status look(comet_run_session *s) {
    const comet_run_options *o = s->options;
    return o->study ? o->study(o->context, s->trainer, s->train, s->message) : comet_run_evaluate(s);
}

static comet_status train(comet_run_session *s) {
    comet_run_event started = comet_run_event_of(s, COMET_RUN_STARTED);
    s->started = 1;
    s->result->bytes = comet_trainer_get_bytes(s->trainer);
    started.planned_peak_bytes = comet_run_planned_peak(s->result);
    comet_run_tell(s, &started);
    comet_status status = comet_run_loop(s);
    if (status == COMET_OK && s->step >= s->steps)
        status = look(s);
    if (status != COMET_OK)
        save_what_is_whole(s, status);
    s->result->stopped = comet_run_stopped(s) && s->evaluated_step < s->steps && !s->result->ended_early;
    if (status == COMET_OK)
        status = leave_results(s);
    if (status != COMET_OK)
        add_advice(s, status);
    fill_result(s);
    return status;
}

comet_status comet_run(const comet_run_options *options, const comet_allocator *allocator, comet_run_result *result,
                       comet_message *message) {
    comet_message unread;
    comet_run_session s = {.options = options,
                           .allocator = allocator,
                           .message = message ? message : &unread,
                           .result = result,
                           .accumulate = options->trainer.accumulate > 1 ? options->trainer.accumulate : 1,
                           .saved_step = -1,
                           .evaluated_step = -1,
                           .best_step = -1,
                           .lock = -1};
    memset(result, 0, sizeof *result);
    comet_status status = set_up(&s);
    if (status == COMET_OK)
        status = train(&s);
    take_down(&s);
    return status;
}
