/* SPDX-License-Identifier: Apache-2.0 */
/* AlexNet as torchvision has it: the one-column network of Krizhevsky 2014. */
#include "train/models/models_impl.h"

static comet_value conv_relu(comet_graph *g, const char *name, comet_value x, const comet_conv2d *conv) {
    return comet_graph_relu(g, comet_graph_conv2d(g, name, x, conv));
}

static comet_value linear_relu(comet_graph *g, const char *name, comet_value x, int out) {
    return comet_graph_relu(g, comet_graph_linear(g, name, x, out, 1));
}

comet_value comet_model_alexnet(comet_graph *g, comet_value x, int classes) {
    const comet_pool2d pool = {.kernel = 3, .stride = 2};
    x = conv_relu(g, "features.0", x, &(comet_conv2d){.out = 64, .kernel = 11, .stride = 4, .padding = 2, .bias = 1});
    x = comet_graph_max_pool(g, x, &pool);
    x = conv_relu(g, "features.3", x, &(comet_conv2d){.out = 192, .kernel = 5, .padding = 2, .bias = 1});
    x = comet_graph_max_pool(g, x, &pool);
    x = conv_relu(g, "features.6", x, &(comet_conv2d){.out = 384, .kernel = 3, .padding = 1, .bias = 1});
    x = conv_relu(g, "features.8", x, &(comet_conv2d){.out = 256, .kernel = 3, .padding = 1, .bias = 1});
    x = conv_relu(g, "features.10", x, &(comet_conv2d){.out = 256, .kernel = 3, .padding = 1, .bias = 1});
    x = comet_graph_max_pool(g, x, &pool);
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 6, 6));
    x = linear_relu(g, "classifier.1", comet_graph_dropout(g, x, 0.5f), 4096);
    x = linear_relu(g, "classifier.4", comet_graph_dropout(g, x, 0.5f), 4096);
    return comet_graph_linear(g, "classifier.6", x, classes, 1);
}
