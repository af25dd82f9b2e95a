/* SPDX-License-Identifier: Apache-2.0 */
/* What suits the data and the model, where the user did not say. */
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/train/train_options.h"

/* Without batch norm a rate that others take makes the first steps diverge. */
static int has_no_norm(const char *model) {
    return strcmp(model, "alexnet") == 0 || strcmp(model, "vgg16") == 0;
}

/* 0.1 for 128 small images; for photographs, as is usual, for 256. */
static double default_rate(const comet_run_options *run) {
    const comet_trainer_options *t = &run->trainer;
    if (t->optimiser.kind == COMET_ADAMW)
        return 1e-3;
    int images = t->batch * (t->accumulate > 1 ? t->accumulate : 1);
    int whole = comet_dataset_is_decoded(run->data) ? 256 : 128;
    double rate = images < whole ? 0.1 * images / whole : 0.1;
    return has_no_norm(t->model) || run->weights ? rate / 10 : rate;
}

int train_default_batch(const comet_dataset *data) {
    const int batch = comet_dataset_is_decoded(data) ? 32 : 128;
    const int64_t count = comet_dataset_get_info(data)->count[COMET_SPLIT_TRAIN];
    return count < batch ? (int)count : batch;
}

static void settle(const train_texts *texts, const comet_dataset *data, comet_run_options *run) {
    int files = comet_dataset_is_decoded(data);
    comet_trainer_options *t = &run->trainer;
    if (!texts->batch)
        t->batch = train_default_batch(data);
    if (!texts->rate)
        run->rate = default_rate(run);
    if (!texts->decay && t->optimiser.kind == COMET_SGD)
        t->optimiser.weight_decay = files ? 1e-4 : 5e-4;
}

int train_options_data(const train_texts *texts, comet_run_options *run, comet_dataset **data) {
    comet_message message;
    comet_status status = comet_dataset_open(texts->data ? texts->data : "fashion-mnist", NULL, data, &message);
    if (status != COMET_OK)
        return train_fail(status, &message);
    run->data = *data;
    if (comet_dataset_get_info(*data)->note)
        note("%s", comet_dataset_get_info(*data)->note);
    settle(texts, *data, run);
    return DONE;
}
