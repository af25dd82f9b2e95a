/* SPDX-License-Identifier: Apache-2.0 */
/* What several models are made of. */
#include <stdio.h>

#include "train/models/models_impl.h"

comet_layer_name comet_layer_in(const char *block, const char *layer) {
    comet_layer_name name;
    snprintf(name.text, sizeof name.text, "%s%s%s", block, *block ? "." : "", layer);
    return name;
}

comet_layer_name comet_layer_at(const char *block, int index) {
    comet_layer_name name;
    snprintf(name.text, sizeof name.text, "%s.%d", block, index);
    return name;
}

comet_value comet_layer_conv_norm(comet_graph *g, const char *block, const char *conv_name, const char *norm_name,
                                  comet_value x, const comet_conv2d *conv) {
    x = comet_graph_conv2d(g, comet_layer_in(block, conv_name).text, x, conv);
    return comet_graph_batch_norm(g, comet_layer_in(block, norm_name).text, x);
}

comet_value comet_layer_global_pool(comet_graph *g, comet_value x) {
    return comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 1, 1));
}
