/* SPDX-License-Identifier: Apache-2.0 */
/* What training would take, without the memory for it. */
#include <string.h>

#include "train/trainer/trainer_impl.h"

comet_status comet_trainer_fit(const comet_trainer_options *options, const comet_allocator *allocator, comet_fit *fit,
                               comet_plan **plan, comet_graph **graph, comet_backend **backend,
                               comet_message *message) {
    comet_trainer_parts parts;
    comet_status status = comet_trainer_parts_new(options, allocator, &parts, message);
    if (status != COMET_OK)
        return status;
    *fit = (comet_fit){.least_bytes = 0};
    status = comet_trainer_plan_within(&parts, options, &fit->least_bytes, message);
    if (status == COMET_OK)
        fit->bytes = comet_trainer_parts_bytes(&parts, comet_trainer_store_limit(&parts, options));
    if (status == COMET_OK && plan) {
        comet_plan_adopt(parts.plan);
        *plan = parts.plan;
        *graph = parts.graph;
        *backend = parts.backend;
        comet_trainer_parts_strip(&parts);
    } else
        comet_trainer_parts_free(&parts);
    return status;
}

comet_status comet_trainer_fits(const comet_trainer_options *options, const comet_allocator *allocator, int *fits,
                                comet_trainer_bytes *bytes, comet_message *message) {
    comet_trainer_parts parts;
    comet_status status = comet_trainer_parts_new(options, allocator, &parts, message);
    if (status == COMET_OK) {
        status = comet_trainer_plan_within(&parts, options, NULL, message);
        if (status == COMET_OK && bytes)
            *bytes = comet_trainer_parts_bytes(&parts, comet_trainer_store_limit(&parts, options));
        comet_trainer_parts_free(&parts);
    }
    *fits = status == COMET_OK;
    return status == COMET_ERROR_CAPACITY ? COMET_OK : status;
}

comet_status comet_largest_batch(const comet_batch_question *ask, int most, int *batch, comet_message *message) {
    comet_status status = COMET_OK;
    int low = 0, high = 1, fits = 1; /* low fits, high does not */
    *batch = 0;
    if (most < 1)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "no batch is at most %d", most);
    while (status == COMET_OK && high <= most && fits) {
        status = ask->fits(ask->context, high, &fits, message);
        if (!fits)
            break;
        low = high;
        high = high < most && high > most / 2 ? most : high * 2;
    }
    while (status == COMET_OK && high - low > 1) {
        const int middle = low + (high - low) / 2;
        fits = 0;
        if (middle <= most)
            status = ask->fits(ask->context, middle, &fits, message);
        *(fits ? &low : &high) = middle;
    }
    *batch = status == COMET_OK ? low : 0;
    return status;
}

typedef struct trainer_question {
    comet_trainer_options options;
    const comet_allocator *allocator;
} trainer_question;

static comet_status fits_trainer(void *context, int batch, int *fits, comet_message *message) {
    trainer_question *q = context;
    q->options.batch = batch;
    return comet_trainer_fits(&q->options, q->allocator, fits, NULL, message);
}

comet_status comet_trainer_largest_batch(const comet_trainer_options *options, int most,
                                         const comet_allocator *allocator, int *batch, comet_message *message) {
    trainer_question question = {*options, allocator};
    return comet_largest_batch(&(comet_batch_question){fits_trainer, &question}, most, batch, message);
}
