/* SPDX-License-Identifier: Apache-2.0 */
/* VGG-16 (configuration D), with and without batch norm. */
#include "train/models/models_impl.h"

enum { POOL = 0 };

static const int configuration_d[] = {64,   64,  POOL, 128, 128,  POOL, 256, 256, 256,
                                      POOL, 512, 512,  512, POOL, 512,  512, 512, POOL};

/* torchvision counts every module of `features`: conv, BN, ReLU and pool. */
static comet_value features(comet_graph *g, comet_value x, int with_norm) {
    int module = 0;
    for (unsigned i = 0; i < sizeof configuration_d / sizeof *configuration_d; i++) {
        if (configuration_d[i] == POOL) {
            x = comet_graph_max_pool(g, x, &(comet_pool2d){.kernel = 2, .stride = 2});
            module++;
            continue;
        }
        x = comet_graph_conv2d(g, comet_layer_at("features", module++).text, x,
                               &(comet_conv2d){.out = configuration_d[i], .kernel = 3, .padding = 1, .bias = 1});
        if (with_norm)
            x = comet_graph_batch_norm(g, comet_layer_at("features", module++).text, x);
        x = comet_graph_relu(g, x);
        module++;
    }
    return x;
}

static comet_value hidden(comet_graph *g, const char *name, comet_value x) {
    return comet_graph_dropout(g, comet_graph_relu(g, comet_graph_linear(g, name, x, 4096, 1)), 0.5f);
}

static comet_value vgg16(comet_graph *g, comet_value x, int classes, int with_norm) {
    x = features(g, x, with_norm);
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 7, 7));
    x = hidden(g, "classifier.0", x);
    x = hidden(g, "classifier.3", x);
    return comet_graph_linear(g, "classifier.6", x, classes, 1);
}

comet_value comet_model_vgg16(comet_graph *g, comet_value x, int classes) {
    return vgg16(g, x, classes, 0);
}

comet_value comet_model_vgg16_bn(comet_graph *g, comet_value x, int classes) {
    return vgg16(g, x, classes, 1);
}
