/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run as small as one can be: a convolution, a batch norm and a classifier of a few values each, and a controller. To
 * be included first.
 */
#ifndef TESTS_FUZZ_COMMON_SMALL_RUN_H
#define TESTS_FUZZ_COMMON_SMALL_RUN_H

#include "common/folder.h"

#include "comet/control.h"
#include "train/backend/cpu/space.h"
#include "train/checkpoint/checkpoint.h"

enum { SMALL_PARAMETERS = 7, SMALL_VALUES = 31, SMALL_TENSORS = 2 };

typedef struct small_run {
    comet_parameter parameters[SMALL_PARAMETERS];
    float values[SMALL_VALUES], gradients[SMALL_VALUES], state[2 * SMALL_VALUES];
    comet_optimiser optimiser;
    comet_checkpoint checkpoint;
} small_run;

static inline void small_parameter(small_run *r, int i, const char *name, comet_parameter_kind kind, int64_t rows,
                                   int64_t columns) {
    comet_parameter *p = &r->parameters[i];
    float *value = i ? p[-1].value + p[-1].count : r->values;
    *p = (comet_parameter){.name = name,
                           .kind = kind,
                           .ndim = 1,
                           .shape = {rows},
                           .count = rows * columns,
                           .space = comet_host_space_plain(),
                           .value = value};
    if (kind == COMET_CONV_WEIGHT || kind == COMET_LINEAR_WEIGHT) {
        p->ndim = kind == COMET_CONV_WEIGHT ? 4 : 2;
        memcpy(p->shape, (int64_t[]){rows, kind == COMET_CONV_WEIGHT ? 1 : columns, 2, columns / 2}, sizeof p->shape);
    }
    if (kind < COMET_RUNNING_MEAN)
        p->gradient = r->gradients + (value - r->values);
    EXPECT(value + p->count <= r->values + SMALL_VALUES);
}

static inline void small_run_init(small_run *r, comet_optimiser_kind kind) {
    *r = (small_run){.optimiser = comet_optimiser_default(kind)};
    small_parameter(r, 0, "conv.weight", COMET_CONV_WEIGHT, 3, 4);
    small_parameter(r, 1, "bn.weight", COMET_NORM_WEIGHT, 3, 1);
    small_parameter(r, 2, "bn.bias", COMET_NORM_BIAS, 3, 1);
    small_parameter(r, 3, "bn.running_mean", COMET_RUNNING_MEAN, 3, 1);
    small_parameter(r, 4, "bn.running_var", COMET_RUNNING_VAR, 3, 1);
    small_parameter(r, 5, "fc.weight", COMET_LINEAR_WEIGHT, 2, 2);
    small_parameter(r, 6, "fc.bias", COMET_BIAS, 2, 1);
    r->checkpoint = (comet_checkpoint){.model = "small",
                                       .options = "batch=2",
                                       .parameters = r->parameters,
                                       .parameter_count = SMALL_PARAMETERS,
                                       .optimiser = &r->optimiser,
                                       .state = r->state};
}

static inline comet_control *small_control(const char *name) {
    static const comet_control_use uses[] = {{COMET_USE_CONV_WEIGHTS, 0}, {COMET_USE_NORM_INPUT, -1}};
    static const comet_control_tensor tensors[SMALL_TENSORS] = {{"conv", 4000, 2, uses}, {"bn", 500, 1, uses + 1}};
    comet_control_options options = COMET_CONTROL_OPTIONS_INIT;
    comet_control *control = NULL;
    options.warmup = 200;
    EXPECT(comet_control_new(comet_control_find(name), &options, tensors, SMALL_TENSORS, &control) == COMET_OK);
    return control;
}

/*
 * Some of the iterations from `first` on: two steps that are not finite, the first of all is one, a jump of the loss,
 * and windows that pass.
 */
static inline void small_control_go_on(comet_control *control, int64_t first) {
    enum { ITERATIONS = 40, STRIDE = 100 };
    for (int64_t k = 0; k < ITERATIONS && first <= INT64_MAX - k * STRIDE; k++) {
        int64_t iteration = first + k * STRIDE;
        comet_use_stats stats[2];
        comet_control_size size = {0.1, 900.0};
        comet_control_observation seen[SMALL_TENSORS] = {{0, 1, 1.5, stats, &size}, {1, 1, 0.5, stats, &size}};
        for (int u = 0; u < 2; u++)
            stats[u] = (comet_use_stats){.derivative_squares = 0.4,
                                         .gradient_squares = 30.0,
                                         .gradient_mean = 0.02,
                                         .positions = 1000.0,
                                         .error_gain = 1e-5,
                                         .input_squares = 2e5,
                                         .momentum = 1.0 + (double)u,
                                         .acgc = 0.01};
        (void)comet_control_step(control, iteration, k == 30 ? 90.0 : 2.0, k % 35 != 0);
        (void)comet_control_observe(control, iteration, seen, SMALL_TENSORS);
    }
}

#endif
