/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First values of parameters, by the rules of torchvision's families. A value depends on the seed, the parameter's
 * position and its own alone: neither on threads nor on the C library.
 */
#ifndef COMET_TRAIN_MODELS_INITIALISE_H
#define COMET_TRAIN_MODELS_INITIALISE_H

#include "comet/threads.h"
#include "train/graph/graph.h"

/*
 *                            convolutions                  linear                     biases of them
 *   DEFAULT      (AlexNet)   uniform, 1 / sqrt(fan_in)     the same                   the same
 *   VGG                      normal, sqrt(2 / fan_out)     normal, 0.01               0
 *   RESNET                   normal, sqrt(2 / fan_out)     uniform, 1 / sqrt(fan_in)  as the weight
 *   EFFICIENTNET             normal, sqrt(2 / fan_out)     uniform, 1 / sqrt(out)     0
 *
 * (a bound for uniform, a deviation for normal). Batch norms: weight 1, bias 0, mean 0, variance 1.
 */
typedef enum comet_initialisation {
    COMET_INITIALISE_DEFAULT, /* what PyTorch's layers do by themselves */
    COMET_INITIALISE_VGG,
    COMET_INITIALISE_RESNET,
    COMET_INITIALISE_EFFICIENTNET
} comet_initialisation;

/* `parameters`: a graph's, all of them, in its order (comet_graph_parameter(g, 0)). threads may be NULL. */
comet_status comet_initialise(comet_initialisation rule, uint64_t seed, comet_parameter *parameters, int count,
                              comet_threads *threads);

/* The value below which a standard normal one is with probability p, 0 < p < 1; the same bits everywhere. */
double comet_normal_quantile(double p);

#endif
