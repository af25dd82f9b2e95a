/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors put into training on purpose, to see what errors of that kind and size do to it. Rules, separated by commas:
 *
 *     LAYER:SIGMA[:uniform|normal][:gradient|activation]         layer1.*:0.1, conv1:0.3:uniform:activation
 *
 * A gradient's: of the layer's weights, before each update. An activation's: in what is saved of the layer's output,
 * whenever it is loaded; only tensors in the store (eb:0 stores without loss). SIGMA is the deviation, in parts of the
 * rms; zeros of an activation stay zero, and no value changes the side of its ReLU. Normal errors in gradients are the
 * default. What is drawn depends on seed, step, layer and place alone.
 */
#ifndef COMET_STUDY_INJECT_H
#define COMET_STUDY_INJECT_H

#include "train/trainer/trainer.h"

typedef struct comet_inject comet_inject;

/* COMET_ERROR_ARGUMENT, with a line that says what would be right. */
comet_status comet_inject_new(const char *rules, uint64_t seed, const comet_allocator *allocator, comet_inject **inject,
                              comet_message *message);
void comet_inject_free(comet_inject *inject);

/*
 * COMET_ERROR_ARGUMENT, with a line, for a rule that is about no layer, or about no tensor that the plan has in the
 * store.
 */
comet_status comet_inject_check(const comet_inject *inject, const comet_plan *plan, comet_message *message);

/* Into the gradients of a graph, before update number `step`. */
void comet_inject_gradients(const comet_inject *inject, comet_graph *graph, uint64_t step);

/*
 * Normal errors of deviation `sigma`, in parts of the rms of the values that are not 0; zeros stay. `what` and `step`
 * say which errors.
 */
void comet_inject_noise(float *values, int64_t count, double sigma, uint64_t seed, uint64_t step, uint32_t what);

/* Into values of an entry that were just loaded: the same each time they are. The backend's memory is the host's. */
void comet_inject_values(const comet_inject *inject, const comet_step_loaded *loaded);

/* All of it as hooks of a trainer; `rules` stay the caller's. NULL: no errors. */
comet_trainer_hooks comet_inject_hooks(const char *rules);

#endif
