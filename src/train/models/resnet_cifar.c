/* SPDX-License-Identifier: Apache-2.0 */
/*
 * He et al. 2015, section 4.2: 6n + 2 layers of 16, 32 and 64 channels for CIFAR-10; shortcuts without parameters
 * (option A: every second pixel, zeros for the new channels).
 */
#include "train/models/models_impl.h"

static comet_value block(comet_graph *g, const char *name, comet_value x, int channels, int stride) {
    comet_value y = comet_layer_conv_norm(
        g, name, "conv1", "bn1", x, &(comet_conv2d){.out = channels, .kernel = 3, .stride = stride, .padding = 1});
    y = comet_layer_conv_norm(g, name, "conv2", "bn2", comet_graph_relu(g, y),
                              &(comet_conv2d){.out = channels, .kernel = 3, .padding = 1});
    if (stride != 1)
        x = comet_graph_shortcut(g, x, stride, channels);
    return comet_graph_relu(g, comet_graph_add(g, y, x));
}

static comet_value cifar(comet_graph *g, comet_value x, int classes, int n) {
    static const char *const names[3] = {"layer1", "layer2", "layer3"};
    x = comet_layer_conv_norm(g, "", "conv1", "bn1", x, &(comet_conv2d){.out = 16, .kernel = 3, .padding = 1});
    x = comet_graph_relu(g, x);
    for (int stage = 0; stage < 3; stage++)
        for (int i = 0; i < n; i++)
            x = block(g, comet_layer_at(names[stage], i).text, x, 16 << stage, stage > 0 && i == 0 ? 2 : 1);
    return comet_graph_linear(g, "fc", comet_layer_global_pool(g, x), classes, 1);
}

comet_value comet_model_resnet8(comet_graph *g, comet_value x, int classes) {
    return cifar(g, x, classes, 1);
}

comet_value comet_model_resnet20(comet_graph *g, comet_value x, int classes) {
    return cifar(g, x, classes, 3);
}
