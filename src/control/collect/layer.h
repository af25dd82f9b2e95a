/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution, or a linear layer as one, and how its outputs correlate with its inputs. */
#ifndef COMET_CONTROL_COLLECT_LAYER_H
#define COMET_CONTROL_COLLECT_LAYER_H

#include "base/bits.h"
#include "comet/threads.h"
#include "control/collect/correlate.h"
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

/* ---- its parts ---- */

enum { COMET_COMMON_POSITIONS = 512, COMET_COMMON_OUTPUTS = 16 };

/* What it is estimated from: outputs at `each` positions of some images. */
typedef struct comet_common_sample {
    int64_t batch, positions, fan_in; /* of all: images, positions of an image, inputs of an output */
    int outputs, images, each;
} comet_common_sample;

comet_common_sample comet_common_sample_of(const comet_layer *layer);

/* Its positions in their images, image by image: COMET_COMMON_POSITIONS at most. */
void comet_common_draw(const comet_common_sample *sample, int64_t *places);

/* Output i of the sample, image i of the sample: those of the layer. */
COMET_HOST_DEVICE static inline int64_t comet_common_which(int64_t i, int64_t seen, int64_t all) {
    return i * all / seen;
}

/*
 * Sums over inputs of (sum of u x_i)^2, over all pairs of the sample: of different images, of one, of a position with
 * itself.
 */
typedef struct comet_common_output {
    comet_correlation with_itself;
    double in_images, in_all;
} comet_common_output;

double comet_common_end(const comet_common_sample *sample, const comet_common_output *found);

#endif
