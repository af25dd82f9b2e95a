/* SPDX-License-Identifier: Apache-2.0 */
/* What training would take, without the memory for it. */
#include <string.h>

#include "train/trainer_impl.h"

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

/* 1: it fits; 0: not for want of memory; else *status is set. */
static int fits(const comet_trainer_options *options, int batch, const comet_allocator *allocator, comet_status *status,
                comet_message *message) {
    comet_trainer_options o = *options;
    comet_trainer_parts parts;
    o.batch = batch;
    *status = comet_trainer_parts_new(&o, allocator, &parts, message);
    if (*status == COMET_OK) {
        *status = comet_trainer_plan_within(&parts, &o, NULL, message);
        comet_trainer_parts_free(&parts);
    }
    if (*status != COMET_ERROR_CAPACITY)
        return *status == COMET_OK;
    *status = COMET_OK;
    return 0;
}

comet_status comet_trainer_largest_batch(const comet_trainer_options *options, int most,
                                         const comet_allocator *allocator, int *batch, comet_message *message) {
    comet_status status;
    int low = 0, high = 1; /* low fits, high does not */
    *batch = 0;
    if (most < 1)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "no batch is at most %d", most);
    while (high <= most && fits(options, high, allocator, &status, message)) {
        low = high;
        high = high < most && high > most / 2 ? most : high * 2;
    }
    while (status == COMET_OK && high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (middle > most || !fits(options, middle, allocator, &status, message))
            high = middle;
        else
            low = middle;
    }
    *batch = status == COMET_OK ? low : 0;
    return status;
}
