/* SPDX-License-Identifier: Apache-2.0 */
/* The evaluation split through the network. */
#include <math.h>

#include "train/run/run_impl.h"

/* What has been gone through of the split. */
typedef struct evaluation {
    comet_accuracy accuracy;
    comet_mean loss;
} evaluation;

static int64_t images(const comet_run_session *s) {
    int64_t all = comet_dataset_get_info(s->options->data)->count[COMET_SPLIT_EVALUATE],
            most = s->options->evaluate_most;
    return most && most < all ? most : all;
}

int64_t comet_run_to_evaluate(const comet_run_session *s) {
    const comet_run_options *o = s->options;
    if (o->study || s->evaluated_step == s->steps || s->epoch_batches == 0)
        return s->evaluating;
    const int64_t all = (s->steps * s->accumulate + s->epoch_batches - 1) / s->epoch_batches,
                  done = s->step * s->accumulate / s->epoch_batches;
    const int64_t between = o->evaluate_every ? (all - 1) / o->evaluate_every - done / o->evaluate_every : 0;
    const int is_last = s->evaluating > 0 && s->step == s->steps;
    return s->evaluating + (is_last ? 0 : (between > 0 ? between + 1 : 1) * images(s));
}

static void tell(comet_run_session *s, comet_run_event_kind kind, const evaluation *e) {
    comet_run_event event = comet_run_event_of(s, kind);
    event.samples = e->accuracy.samples;
    event.loss = comet_mean_value(&e->loss);
    event.top1 = comet_accuracy_top1(&e->accuracy);
    event.top5 = comet_accuracy_top5(&e->accuracy);
    comet_run_tell(s, &event);
}

static comet_status finish(comet_run_session *s, const evaluation *e) {
    s->evaluated_step = s->step;
    s->result->loss = comet_mean_value(&e->loss);
    s->result->top1 = comet_accuracy_top1(&e->accuracy);
    s->result->top5 = comet_accuracy_top5(&e->accuracy);
    tell(s, COMET_RUN_EVALUATED, e);
    const comet_status status = comet_run_keep_best(s);
    if (!isfinite(s->result->loss)) /* weights and statistics are: training may come to itself again */
        comet_run_note(s, "the loss of this evaluation is not finite: a smaller learning rate may help");
    return status;
}

static comet_status evaluate(comet_run_session *s, comet_loader *loader) {
    evaluation e = {.loss = {0, 0}};
    comet_batch batch = {.last = images(s) == 0};
    comet_status status = COMET_OK;
    s->evaluating = images(s);
    while (status == COMET_OK && !batch.last && !comet_run_stopped(s)) {
        status = comet_loader_next(loader, &batch, s->message);
        if (status == COMET_OK && batch.count > 0)
            status = comet_trainer_evaluate(s->trainer, batch.pixels, batch.labels, batch.count, &e.accuracy, &e.loss,
                                            s->message);
        s->evaluated += batch.count;
        s->evaluating = batch.last ? 0 : s->evaluating - batch.count;
        if (status == COMET_OK && !batch.last)
            tell(s, COMET_RUN_EVALUATING, &e);
    }
    s->evaluating = 0;
    if (status == COMET_OK && batch.last) /* half an evaluation is none */
        status = finish(s, &e);
    return status;
}

/* Where training was in the data. */
static comet_status go_on_training(comet_run_session *s) {
    comet_status status = comet_run_open_loader(s, COMET_SPLIT_TRAIN, &s->train);
    return status == COMET_OK ? comet_loader_set_state(s->train, &s->place, s->message) : status;
}

/*
 * There is one loader at a time, so that evaluation needs no more memory than training: what was prefetched is made
 * again.
 */
comet_status comet_run_evaluate(comet_run_session *s) {
    comet_loader *loader = NULL;
    comet_loader_free(s->train);
    s->train = NULL;
    comet_status status = comet_run_open_loader(s, COMET_SPLIT_EVALUATE, &loader);
    if (status == COMET_OK)
        status = evaluate(s, loader);
    comet_loader_free(loader);
    s->evaluations++;
    return status == COMET_OK && s->step < s->steps ? go_on_training(s) : status;
}
