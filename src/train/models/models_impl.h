/* SPDX-License-Identifier: Apache-2.0 */
/* Between the table of models and the files they are in; and what those share. */
#ifndef COMET_TRAIN_MODELS_MODELS_IMPL_H
#define COMET_TRAIN_MODELS_MODELS_IMPL_H

#include "train/graph/graph.h"

comet_value comet_model_alexnet(comet_graph *g, comet_value x, int classes);
comet_value comet_model_vgg16(comet_graph *g, comet_value x, int classes);
comet_value comet_model_vgg16_bn(comet_graph *g, comet_value x, int classes);
comet_value comet_model_resnet18(comet_graph *g, comet_value x, int classes);
comet_value comet_model_resnet34(comet_graph *g, comet_value x, int classes);
comet_value comet_model_resnet50(comet_graph *g, comet_value x, int classes);
comet_value comet_model_resnet18_cifar(comet_graph *g, comet_value x, int classes);
comet_value comet_model_resnet8(comet_graph *g, comet_value x, int classes);
comet_value comet_model_resnet20(comet_graph *g, comet_value x, int classes);
comet_value comet_model_efficientnet_b0(comet_graph *g, comet_value x, int classes);

/* The name of a layer within a block ("layer1.0" and "conv1"), or of a numbered one ("features" and 3). */
typedef struct comet_layer_name {
    char text[64];
} comet_layer_name;

comet_layer_name comet_layer_in(const char *block, const char *layer);
comet_layer_name comet_layer_at(const char *block, int index);

/* conv -> BN with names of their own in a block, as ResNets have them: conv1 and bn1, say. */
comet_value comet_layer_conv_norm(comet_graph *g, const char *block, const char *conv_name, const char *norm_name,
                                  comet_value x, const comet_conv2d *conv);

/* Global average pool -> the vector for a classifier. */
comet_value comet_layer_global_pool(comet_graph *g, comet_value x);

#endif
