/* SPDX-License-Identifier: Apache-2.0 */
/* EfficientNet-B0: inverted bottlenecks with squeeze-excite and SiLU; torchvision's B0 has BN's usual epsilon. */
#include "train/models/models_impl.h"

typedef struct stage {
    int expand, kernel, stride, in, out, blocks;
} stage;

enum { STAGES = 7, BLOCKS = 16 };

static const stage stages[STAGES] = {
    {1, 3, 1, 32, 16, 1},  {6, 3, 2, 16, 24, 2},   {6, 5, 2, 24, 40, 2},   {6, 3, 2, 40, 80, 3},
    {6, 5, 1, 80, 112, 3}, {6, 5, 2, 112, 192, 4}, {6, 3, 1, 192, 320, 1},
};

/* Dropped with a probability that grows from 0 at the first block. */
static float drop_probability(int block) {
    return (float)(0.2 * block / BLOCKS);
}

static comet_value conv_norm_silu(comet_graph *g, const char *name, comet_value x, const comet_conv2d *conv) {
    return comet_graph_silu(g, comet_layer_conv_norm(g, name, "0", "1", x, conv));
}

static comet_value squeeze_excite(comet_graph *g, const char *name, comet_value x, int channels, int squeezed) {
    comet_value s = comet_graph_adaptive_average_pool(g, x, 1, 1);
    s = comet_graph_conv2d(g, comet_layer_in(name, "fc1").text, s,
                           &(comet_conv2d){.out = squeezed, .kernel = 1, .bias = 1});
    s = comet_graph_conv2d(g, comet_layer_in(name, "fc2").text, comet_graph_silu(g, s),
                           &(comet_conv2d){.out = channels, .kernel = 1, .bias = 1});
    return comet_graph_scale_channels(g, x, comet_graph_sigmoid(g, s));
}

/* Expand (where it does) -> depthwise -> squeeze-excite -> project; `block`: 0 .. BLOCKS - 1. */
static comet_value bottleneck(comet_graph *g, const char *name, comet_value x, const stage *s, int block) {
    comet_layer_name inner = comet_layer_in(name, "block");
    int module = 0, wide = s->in * s->expand;
    comet_value y = x;
    if (wide != s->in)
        y = conv_norm_silu(g, comet_layer_at(inner.text, module++).text, y, &(comet_conv2d){.out = wide, .kernel = 1});
    y = conv_norm_silu(
        g, comet_layer_at(inner.text, module++).text, y,
        &(comet_conv2d){
            .out = wide, .kernel = s->kernel, .stride = s->stride, .padding = s->kernel / 2, .groups = wide});
    y = squeeze_excite(g, comet_layer_at(inner.text, module++).text, y, wide, s->in / 4);
    y = comet_layer_conv_norm(g, comet_layer_at(inner.text, module).text, "0", "1", y,
                              &(comet_conv2d){.out = s->out, .kernel = 1});
    if (s->stride != 1 || s->in != s->out)
        return y;
    return comet_graph_add(g, comet_graph_stochastic_depth(g, y, drop_probability(block)), x);
}

static comet_value run_stages(comet_graph *g, comet_value x) {
    for (int i = 0, block = 0; i < STAGES; i++) {
        comet_layer_name name = comet_layer_at("features", i + 1);
        stage s = stages[i];
        for (int b = 0; b < stages[i].blocks; b++, block++) {
            x = bottleneck(g, comet_layer_at(name.text, b).text, x, &s, block);
            s.in = s.out;
            s.stride = 1;
        }
    }
    return x;
}

comet_value comet_model_efficientnet_b0(comet_graph *g, comet_value x, int classes) {
    x = conv_norm_silu(g, "features.0", x, &(comet_conv2d){.out = 32, .kernel = 3, .stride = 2, .padding = 1});
    x = run_stages(g, x);
    x = conv_norm_silu(g, "features.8", x, &(comet_conv2d){.out = 1280, .kernel = 1});
    x = comet_graph_dropout(g, comet_layer_global_pool(g, x), 0.2f);
    return comet_graph_linear(g, "classifier.1", x, classes, 1);
}
