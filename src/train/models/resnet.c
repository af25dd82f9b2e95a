/* SPDX-License-Identifier: Apache-2.0 */
/* ResNets of torchvision; the stride of a bottleneck is at its 3x3 convolution ("v1.5"). */
#include "train/models/models_impl.h"

typedef struct resnet {
    /* One block; its input has `in` channels. */
    comet_value (*block)(comet_graph *g, const char *name, comet_value x, int in, int width, int stride);
    int expansion; /* channels of a block's output, in widths */
    int blocks[4];
} resnet;

/* What is added at the end of a block: x, or its projection where shapes differ. */
static comet_value shortcut(comet_graph *g, const char *name, comet_value x, int in, int out, int stride) {
    if (in == out && stride == 1)
        return x;
    return comet_layer_conv_norm(g, name, "downsample.0", "downsample.1", x,
                                 &(comet_conv2d){.out = out, .kernel = 1, .stride = stride});
}

static comet_value basic(comet_graph *g, const char *name, comet_value x, int in, int width, int stride) {
    comet_value y = comet_layer_conv_norm(g, name, "conv1", "bn1", x,
                                          &(comet_conv2d){.out = width, .kernel = 3, .stride = stride, .padding = 1});
    y = comet_layer_conv_norm(g, name, "conv2", "bn2", comet_graph_relu(g, y),
                              &(comet_conv2d){.out = width, .kernel = 3, .padding = 1});
    return comet_graph_relu(g, comet_graph_add(g, y, shortcut(g, name, x, in, width, stride)));
}

static comet_value bottleneck(comet_graph *g, const char *name, comet_value x, int in, int width, int stride) {
    int out = 4 * width;
    comet_value y = comet_layer_conv_norm(g, name, "conv1", "bn1", x, &(comet_conv2d){.out = width, .kernel = 1});
    y = comet_layer_conv_norm(g, name, "conv2", "bn2", comet_graph_relu(g, y),
                              &(comet_conv2d){.out = width, .kernel = 3, .stride = stride, .padding = 1});
    y = comet_layer_conv_norm(g, name, "conv3", "bn3", comet_graph_relu(g, y),
                              &(comet_conv2d){.out = out, .kernel = 1});
    return comet_graph_relu(g, comet_graph_add(g, y, shortcut(g, name, x, in, out, stride)));
}

static comet_value stages(comet_graph *g, comet_value x, const resnet *net) {
    static const char *const names[4] = {"layer1", "layer2", "layer3", "layer4"};
    for (int stage = 0, in = 64; stage < 4; stage++) {
        int width = 64 << stage;
        for (int i = 0; i < net->blocks[stage]; i++, in = width * net->expansion)
            x = net->block(g, comet_layer_at(names[stage], i).text, x, in, width, stage > 0 && i == 0 ? 2 : 1);
    }
    return x;
}

static comet_value classify(comet_graph *g, comet_value x, int classes) {
    return comet_graph_linear(g, "fc", comet_layer_global_pool(g, x), classes, 1);
}

static comet_value imagenet(comet_graph *g, comet_value x, int classes, const resnet *net) {
    x = comet_layer_conv_norm(g, "", "conv1", "bn1", x,
                              &(comet_conv2d){.out = 64, .kernel = 7, .stride = 2, .padding = 3});
    x = comet_graph_max_pool(g, comet_graph_relu(g, x), &(comet_pool2d){.kernel = 3, .stride = 2, .padding = 1});
    return classify(g, stages(g, x, net), classes);
}

static const resnet net18 = {basic, 1, {2, 2, 2, 2}};
static const resnet net34 = {basic, 1, {3, 4, 6, 3}};
static const resnet net50 = {bottleneck, 4, {3, 4, 6, 3}};

comet_value comet_model_resnet18(comet_graph *g, comet_value x, int classes) {
    return imagenet(g, x, classes, &net18);
}

comet_value comet_model_resnet34(comet_graph *g, comet_value x, int classes) {
    return imagenet(g, x, classes, &net34);
}

comet_value comet_model_resnet50(comet_graph *g, comet_value x, int classes) {
    return imagenet(g, x, classes, &net50);
}

/* Images of 32x32 would be 8x8 behind the usual stem: this one keeps their size. */
comet_value comet_model_resnet18_cifar(comet_graph *g, comet_value x, int classes) {
    x = comet_layer_conv_norm(g, "", "conv1", "bn1", x, &(comet_conv2d){.out = 64, .kernel = 3, .padding = 1});
    return classify(g, stages(g, comet_graph_relu(g, x), &net18), classes);
}
