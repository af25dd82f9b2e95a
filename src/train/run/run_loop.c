/* SPDX-License-Identifier: Apache-2.0 */
/* Updates, one after the other, and what is done between them. */
#include "train/run/run_impl.h"

/* What the batches of an update add up to. */
typedef struct update {
    comet_mean loss, raw, stored, spilled;
    comet_trainer_result last;
    int top1, top5;
    int epoch_ended;
} update;

static void add_batch(update *u, const comet_trainer_result *r, const comet_batch *batch) {
    comet_mean_add(&u->loss, r->loss, 1);
    comet_mean_add(&u->raw, (double)r->saved_raw_bytes, 1);
    comet_mean_add(&u->stored, (double)r->saved_stored_bytes, 1);
    comet_mean_add(&u->spilled, (double)r->spilled_bytes, 1);
    u->top1 += r->top1;
    u->top5 += r->top5;
    u->last = *r;
    u->epoch_ended |= batch->last;
}

static comet_status train_batch(comet_run_session *s, double rate, double momentum, update *u) {
    comet_batch batch;
    comet_trainer_result result = {0};
    comet_status status = comet_loader_next(s->train, &batch, s->message);
    if (status == COMET_OK)
        status = comet_trainer_train(s->trainer, batch.pixels, batch.labels, rate, momentum, &result, s->message);
    if (status != COMET_OK)
        return status;
    if (batch.epoch != s->epoch)
        s->epoch_loss = (comet_mean){0};
    s->epoch = batch.epoch;
    s->begun++;
    add_batch(u, &result, &batch);
    return COMET_OK;
}

static comet_trainer_result result_of(const update *u) {
    comet_trainer_result result = u->last;
    result.loss = comet_mean_value(&u->loss);
    result.top1 = u->top1;
    result.top5 = u->top5;
    result.saved_raw_bytes = (uint64_t)comet_mean_value(&u->raw);
    result.saved_stored_bytes = (uint64_t)comet_mean_value(&u->stored);
    result.spilled_bytes = (uint64_t)comet_mean_value(&u->spilled);
    return result;
}

/* The first of them says what happens; how many there were is in the result. */
static void note_skip(comet_run_session *s, const comet_trainer_result *r) {
    comet_message line;
    if (s->result->skipped++ > 0)
        return;
    comet_message_set(&line, COMET_OK,
                      r->too_large ? "step %lld was skipped: gradients were too large for fp16, and are multiplied by "
                                     "half as much from now on"
                                   : "step %lld was not finite and was skipped: weights and statistics are as before "
                                     "it, bounds are tighter for a while",
                      (long long)s->step);
    comet_run_note(s, line.text);
}

/* It is slower, and nothing else is wrong. */
static void note_refusal(comet_run_session *s) {
    comet_message line;
    const char *why = comet_trainer_refusal(s->trainer);
    if (!*why || s->unrecorded_told)
        return;
    s->unrecorded_told = 1;
    comet_message_set(&line, COMET_OK, "steps are issued kernel by kernel, as they cannot be recorded: %s", why);
    comet_run_note(s, line.text);
}

/* How long an update took, and who waited for whom meanwhile. */
typedef struct spent {
    double ms, waited_ms, loader_idle_ms;
} spent;

static spent begin_time(comet_run_session *s) {
    const comet_loader_waits waits = comet_loader_get_waits(s->train);
    return (spent){comet_run_clock_ms(), waits.caller_ms, waits.threads_ms};
}

static spent time_since(comet_run_session *s, const spent *start) {
    const spent now = begin_time(s);
    return (spent){now.ms - start->ms, now.waited_ms - start->waited_ms, now.loader_idle_ms - start->loader_idle_ms};
}

static void record(comet_run_session *s, const comet_trainer_result *r, const spent *time) {
    comet_run_times_add(&s->times, time->ms);
    comet_run_times_add(&s->network_times, time->ms - time->waited_ms);
    s->spent_ms += time->ms;
    s->waited_ms += time->waited_ms;
    s->loader_idle_ms += time->loader_idle_ms;
    note_refusal(s);
    if (r->skipped) {
        note_skip(s, r);
        return;
    }
    s->made_step = s->step;
    comet_mean_add(&s->epoch_loss, r->loss, 1);
    comet_mean_add(&s->raw, (double)r->saved_raw_bytes, 1);
    comet_mean_add(&s->stored, (double)r->saved_stored_bytes, 1);
}

static void tell(comet_run_session *s, const comet_trainer_result *result, double rate, const spent *time) {
    comet_run_event event = comet_run_event_of(s, COMET_RUN_STEP);
    event.result = *result;
    event.images = (int64_t)s->trainer_options.batch * s->accumulate;
    event.learning_rate = rate;
    event.step_ms = time->ms;
    event.wait_ms = time->waited_ms;
    event.images_per_second = time->ms > 0 ? 1e3 * (double)event.images / time->ms : 0;
    comet_run_tell(s, &event);
}

/* The trainer has taken the whole of it back: the run is where the last update left it. */
static void take_back(comet_run_session *s, uint32_t epoch) {
    s->begun = 0;
    s->epoch = epoch;
}

static comet_status make_update(comet_run_session *s, int *epoch_ended) {
    double rate = comet_schedule_rate(&s->schedule, s->step), momentum = comet_schedule_momentum(&s->schedule, s->step);
    const spent start = begin_time(s);
    const uint32_t epoch = s->epoch;
    update u = {0};
    for (int i = 0; i < s->accumulate; i++) {
        comet_status status = train_batch(s, rate, momentum, &u);
        if (status == COMET_ERROR_DIVERGED)
            take_back(s, epoch);
        if (status != COMET_OK)
            return status;
    }
    const spent time = time_since(s, &start);
    comet_trainer_result result = result_of(&u);
    s->step++;
    s->begun = 0;
    s->place = comet_loader_get_state(s->train);
    *epoch_ended = u.epoch_ended;
    record(s, &result, &time);
    tell(s, &result, rate, &time);
    return COMET_OK;
}

/* The end's evaluation and checkpoint are comet_run's. */
static comet_status between_updates(comet_run_session *s, int epoch_ended) {
    const comet_run_options *o = s->options;
    comet_status status = COMET_OK;
    if (epoch_ended && o->evaluate_every > 0 && (s->epoch + 1) % (uint32_t)o->evaluate_every == 0)
        status = comet_run_evaluate(s);
    s->result->ended_early =
        o->patience && s->evaluated_step == s->step && comet_run_evaluations_since_best(s) >= o->patience;
    int due = o->checkpoint_every ? s->step % o->checkpoint_every == 0 : epoch_ended;
    return status == COMET_OK && due ? comet_run_save(s) : status;
}

comet_status comet_run_loop(comet_run_session *s) {
    comet_status status = COMET_OK;
    while (status == COMET_OK && s->step < s->steps && !s->result->ended_early && !comet_run_stopped(s)) {
        int epoch_ended = 0;
        status = make_update(s, &epoch_ended);
        if (status == COMET_OK && s->step < s->steps)
            status = between_updates(s, epoch_ended);
    }
    return status;
}
