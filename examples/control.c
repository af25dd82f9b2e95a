/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A controller alone: numbers in, bounds out. The statistics are those that a run of two layers might show: momentum
 * and gradients fall, the learning rate changes at iteration 1500 and makes the loss jump, and one batch is not finite.
 * Prints each decision, then the bounds.
 * usage: control [comet|comet:mean|comet:paper|acgc|fixed|budget]
 */
#include <comet/comet.h>
#include <math.h>
#include <stdio.h>

enum { TENSORS = 2, ITERATIONS = 3000, JUMP = 1500, BROKEN = 2200 };

static const comet_control_use stem_uses[] = {
    {COMET_USE_NORM_SCALE, 0}, {COMET_USE_NORM_INPUT, 1}, {COMET_USE_CONV_WEIGHTS, 2}};
static const comet_control_use sum_uses[] = {{COMET_USE_CONV_WEIGHTS, 3}};
static const comet_control_tensor tensors[TENSORS] = {{"bn1", 128 * 16 * 32 * 32, 3, stem_uses},
                                                      {"layer1.0.add", 128 * 16 * 32 * 32, 1, sum_uses}};

static void print_event(void *context, const comet_control_event *event) {
    (void)context;
    printf("%6lld  %-12s  %-44s  %-8s %.4g -> %.4g\n", (long long)event->iteration, event->name, event->text,
           event->tensor < 0 ? "factor" : comet_control_limit_text(event->limit), event->before.value,
           event->after.value);
}

/* 1 at first, then falling; higher for a while after the jump. */
static double progress(int iteration) {
    double since = iteration < JUMP ? iteration : iteration - JUMP;
    return 1.0 / (1.0 + since / 300.0);
}

static comet_status observe(comet_control *control, int iteration) {
    double p = progress(iteration);
    comet_use_stats stem[3] = {
        {.derivative_squares = 1.0, .gradient_squares = 0.02 * p, .momentum = 0.02 * p, .acgc = 2e-3},
        {.error_gain = 1e-9 * p, .input_squares = 9e4, .momentum = 0.004 * p, .acgc = 1e-3},
        {.derivative_squares = 0.5, .gradient_squares = 0.02 * p, .momentum = 0.003 * p, .acgc = 4e-3},
    };
    comet_use_stats sum = {
        .derivative_squares = 0.6, .gradient_squares = 0.01 * p, .momentum = 0.004 * p, .acgc = 3e-3};
    for (int i = 0; i < 3; i++)
        stem[i].gradient_mean = 1e-4 * sqrt(p), stem[i].positions = 128.0 * 32 * 32;
    sum.gradient_mean = 8e-5 * sqrt(p), sum.positions = 128.0 * 32 * 32;
    comet_control_observation seen[TENSORS] = {{.tensor = 0, .rms = 1.0, .uses = stem},
                                               {.tensor = 1, .rms = 0.8, .uses = &sum}};
    return comet_control_observe(control, iteration, seen, TENSORS);
}

int main(int argc, char **argv) {
    comet_control_options options = COMET_CONTROL_OPTIONS_INIT;
    comet_control *control;
    const comet_control_methods *methods = comet_control_find(argc > 1 ? argv[1] : "comet");
    int skipped = 0;
    options.log = print_event;
    if (!methods || comet_control_new(methods, &options, tensors, TENSORS, &control) != COMET_OK) {
        fprintf(stderr, "usage: control [comet|comet:mean|comet:paper|acgc|fixed|budget]\n");
        return 2;
    }
    for (int i = 0; i < ITERATIONS; i++) {
        double loss = i >= JUMP && i < JUMP + 5 ? 6.0 : 0.2 + 2.0 * progress(i);
        skipped += comet_control_step(control, i, loss, i != BROKEN) == COMET_CONTROL_SKIP;
        if (comet_control_wants(control, i) && observe(control, i) != COMET_OK)
            return 1;
    }
    for (int t = 0; t < TENSORS; t++) {
        comet_control_bound_value bound = comet_control_bound(control, t);
        printf("%s: %.4g %s\n", tensors[t].name, bound.value,
               bound.kind == COMET_BOUND_RELATIVE ? "of the rms" : "absolute");
    }
    comet_control_free(control);
    return skipped == 1 ? 0 : 1;
}
