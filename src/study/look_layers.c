/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers a look is about, and behind which op each is looked at. */
#include <stdio.h>

#include "study/look_impl.h"

/* The op that alone uses a value; -1. */
static int only_user(const comet_graph *g, comet_value v) {
    int user = -1;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].inputs; k++) {
            if (g->nodes[i].input[k] != v)
                continue;
            if (user >= 0)
                return -1;
            user = i;
        }
    return user;
}

/* What belongs to the layer before it. In an evaluation dropping changes nothing. */
static int belongs(comet_op_kind kind) {
    return kind == COMET_OP_BATCH_NORM || kind == COMET_OP_RELU || kind == COMET_OP_SILU || kind == COMET_OP_SIGMOID ||
           kind == COMET_OP_ADD || kind == COMET_OP_DROPOUT || kind == COMET_OP_STOCHASTIC_DEPTH;
}

static int is_layer(const comet_node *node) {
    return node->kind == COMET_OP_CONV || node->kind == COMET_OP_LINEAR;
}

static comet_value end_of(const comet_graph *g, comet_value v) {
    for (int user = only_user(g, v); user >= 0 && belongs(g->nodes[user].kind); user = only_user(g, v))
        v = g->nodes[user].output;
    return v;
}

static int is_there(const comet_look *look, comet_value v) {
    for (int i = 0; i < look->layer_count; i++)
        if (look->layers[i].value == v)
            return 1;
    return 0;
}

comet_status comet_look_find_layers(comet_look *look, const comet_graph *g, comet_message *message) {
    look->layers = comet_blocks_take(&look->blocks, (size_t)g->node_count, sizeof *look->layers);
    look->names = comet_blocks_take(&look->blocks, (size_t)g->node_count, sizeof *look->names);
    if (!look->layers || !look->names)
        return comet_message_memory(message);
    for (int i = 0; i < g->node_count; i++) {
        const comet_value v = is_layer(&g->nodes[i]) ? end_of(g, g->nodes[i].output) : -1;
        if (v < 0 || is_there(look, v))
            continue;
        char *name = look->names[look->layer_count];
        snprintf(name, COMET_NAME_BYTES, "%s", g->nodes[i].name);
        look->layers[look->layer_count++] = (comet_look_layer){name, v, *comet_value_shape(g, v)};
    }
    return COMET_OK;
}
