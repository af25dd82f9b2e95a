/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution, or a linear layer as one, and how its outputs correlate with its inputs. */
#ifndef COMET_CONTROL_COLLECT_LAYER_H
#define COMET_CONTROL_COLLECT_LAYER_H

#include "comet/threads.h"
#include "control/collect/maps.h"

typedef struct comet_layer {
    comet_maps in, out;
    const float *weights; /* outputs, inputs, kernel */
    int kernel[2], stride[2], padding[2], dilation[2], groups;
    int64_t fan_in; /* inputs of one output */
} comet_layer;

/* Part of the taps that are not in the padding: of all positions of outputs; of those along an axis, of one tap. */
double comet_layer_inside(const comet_layer *layer);
double comet_layer_tap_inside(const comet_layer *layer, int axis, int tap);

/*
 * The mean over inputs of (sum of u x)^2 / positions, u an output without its mean, of deviation 1. `sums`: of x, by
 * channel; `memory`: comet_common_floats of them.
 */
double comet_layer_common(comet_threads *threads, const comet_layer *layer, const double *sums, float *memory);
size_t comet_common_floats(int64_t fan_in);

#endif
