/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The networks Comet knows, by name. Those of torchvision have its layers, names and shapes, so that weights map one to
 * one. docs/models.md says how to add one.
 */
#ifndef COMET_TRAIN_MODELS_MODEL_H
#define COMET_TRAIN_MODELS_MODEL_H

#include "train/graph/graph.h"
#include "train/models/initialise.h"

typedef struct comet_model {
    const char *name;        /* torchvision's, where it has the network */
    const char *description; /* a line for lists */
    int image;               /* height and width it was made for */
    comet_initialisation initialisation;
    /* The layers behind x, up to the logits. Problems stay in the graph. */
    comet_value (*layers)(comet_graph *g, comet_value x, int classes);
} comet_model;

/* The table, in the order for lists. comet_model_at answers NULL outside it. */
int comet_model_count(void);
const comet_model *comet_model_at(int index);

/* By name, '-' and '_' being the same. COMET_ERROR_ARGUMENT, with a line that lists the names, if there is none. */
comet_status comet_model_find(const char *name, const comet_model **model, comet_message *message);

/*
 * Builds a network into a new graph, from input to output. COMET_ERROR_ARGUMENT, with a line, for an unknown name, for
 * sizes below 1 and for images too small for the network's strides.
 */
comet_status comet_model_build(comet_graph *g, const char *name, int classes, int height, int width, int channels,
                               comet_message *message);

#endif
