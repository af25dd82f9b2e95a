/* SPDX-License-Identifier: Apache-2.0 */
/* The evaluation split through the network. */
#include <math.h>

#include "train/run/run_impl.h"

static void tell(comet_run_session *s, const comet_accuracy *accuracy, const comet_mean *loss) {
    comet_run_event event = comet_run_event_of(s, COMET_RUN_EVALUATED);
    s->evaluated_step = s->step;
    event.samples = accuracy->samples;
    event.loss = s->result->loss = comet_mean_value(loss);
    event.top1 = s->result->top1 = comet_accuracy_top1(accuracy);
    event.top5 = s->result->top5 = comet_accuracy_top5(accuracy);
    comet_run_tell(s, &event);
    if (!isfinite(event.loss)) /* weights and statistics are: training may come to itself again */
        comet_run_note(s, "the loss of this evaluation is not finite: a smaller learning rate may help");
}

static int64_t images(const comet_run_session *s) {
    int64_t all = comet_dataset_get_info(s->options->data)->count[COMET_SPLIT_EVALUATE],
            most = s->options->evaluate_most;
    return most && most < all ? most : all;
}

static comet_status evaluate(comet_run_session *s, comet_loader *loader) {
    int64_t left = images(s);
    comet_accuracy accuracy = {0};
    comet_mean loss = {0};
    comet_batch batch = {.last = left == 0};
    comet_status status = COMET_OK;
    while (status == COMET_OK && !batch.last && left > 0) {
        if (comet_run_stopped(s))
            return COMET_OK; /* half an evaluation is none */
        status = comet_loader_next(loader, &batch, s->message);
        int count = batch.count < left ? batch.count : (int)left;
        if (status == COMET_OK && count > 0)
            status =
                comet_trainer_evaluate(s->trainer, batch.pixels, batch.labels, count, &accuracy, &loss, s->message);
        left -= count;
    }
    if (status == COMET_OK)
        tell(s, &accuracy, &loss);
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
