/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far an error reaches. One is put into what comes back to one layer (the gradient of its output), or one stored
 * tensor is compressed, and in the same backward it is measured in all layers before, beside a backward of the same
 * batch without errors: does it grow on its way to the input, or shrink?
 *
 *     comet_reach_new(trainer, &options, NULL, &reach, &message);
 *     comet_reach_batch(reach, pixels, labels, &message);             as often as wanted: squares are averaged
 *     for each source, for each layer:  comet_reach_get(reach, source, layer, &error);
 *
 * On the CPU alone. Held beside the trainer: the gradients of all layers' outputs, and of their weights.
 */
#ifndef COMET_STUDY_REACH_H
#define COMET_STUDY_REACH_H

#include <signal.h>

#include "train/trainer/probe.h"

typedef struct comet_reach comet_reach;

typedef struct comet_reach_options {
    double sigma;       /* of the normal errors in gradients, in parts of the rms of what is not 0 */
    double error_rel;   /* the bound of tensors, times the rms of what is not 0 */
    const char *layers; /* errors are put into these alone, and into tensors that they made; NULL: all */
    uint64_t seed;
    const volatile sig_atomic_t *stop; /* not 0: comet_reach_batch ends with COMET_ERROR_IO; NULL: never */
    void (*progress)(void *context, const char *what); /* after each forward and backward; NULL: not wanted */
    void *context;
} comet_reach_options;

/*
 * The trainer, which must outlive it, needs a controller. COMET_ERROR_ARGUMENT, with a line: no layer has that name;
 * COMET_ERROR_UNSUPPORTED: it is not on the CPU.
 */
comet_status comet_reach_new(comet_trainer *trainer, const comet_reach_options *options,
                             const comet_allocator *allocator, comet_reach **reach, comet_message *message);
void comet_reach_free(comet_reach *reach);

/* Forwards and backwards of a batch. */
int64_t comet_reach_passes(const comet_reach *reach);

/* A batch that fails leaves figures that must not be used. */
comet_status comet_reach_batch(comet_reach *reach, const uint8_t *pixels, const int32_t *labels,
                               comet_message *message);

/* ---- what was found ---- */

/* Convolutions and linear layers, from the input on. */
int comet_reach_layers(const comet_reach *reach);
const char *comet_reach_layer_name(const comet_reach *reach, int layer);

/* Layers whose gradient has errors, then tensors that were compressed. */
int comet_reach_sources(const comet_reach *reach);

typedef struct comet_reach_source {
    const char *name; /* of the layer, or of that which made the tensor */
    int is_tensor;
} comet_reach_source;

comet_reach_source comet_reach_get_source(const comet_reach *reach, int source);

/* In parts of what there is without errors (rms over rms); 0: it does not reach so far; NaN: there is nothing. */
typedef struct comet_reach_error {
    double flow;    /* of the gradient of the layer's output */
    double weights; /* of the gradient of its weights */
} comet_reach_error;

void comet_reach_get(const comet_reach *reach, int source, int layer, comet_reach_error *error);

/* Of a source, over the layers that it reaches by what flows back. */
typedef struct comet_reach_summary {
    int near, far,
        largest; /* layers: the last that it reaches, the first, that where it is largest; -1: it reaches none */
    double near_flow, far_flow, largest_flow;
    double growth; /* far over near; NaN where they are one */
} comet_reach_summary;

comet_reach_summary comet_reach_summarise(const comet_reach *reach, int source);

#endif
