/* SPDX-License-Identifier: Apache-2.0 */
/* One update on the CPU without a backend around it. */
#ifndef TESTS_CPU_UPDATE_H
#define TESTS_CPU_UPDATE_H

#include "train/backend/cpu/kernels.h"

/* Answers comet_update_call.broken. */
static inline int cpu_update(const comet_optimiser *optimiser, const comet_optimiser_step *step,
                             comet_parameter *parameters, int count, float *state, double *means,
                             comet_threads *threads) {
    comet_backend backend = {.threads = threads};
    comet_update_call call = {.backend = &backend,
                              .optimiser = optimiser,
                              .step = step,
                              .parameters = parameters,
                              .count = count,
                              .state = state,
                              .means = means};
    (void)comet_cpu_update(&call);
    return call.broken;
}

#endif
