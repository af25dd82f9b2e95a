/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph's memory, its nodes and its first problem. The layers are in graph_layers.c, parameters in
 * graph_parameters.c.
 */
#include "train/graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "train/graph/graph_impl.h"

comet_status comet_graph_new(const comet_allocator *allocator, comet_graph **graph) {
    if (!graph)
        return COMET_ERROR_ARGUMENT;
    comet_graph *g = comet_memory_take(allocator, sizeof *g);
    if (!g)
        return COMET_ERROR_MEMORY;
    memset(g, 0, sizeof *g);
    g->allocator = comet_memory_hold(&g->allocator_copy, allocator);
    g->input = g->output = -1;
    *graph = g;
    return COMET_OK;
}

void comet_graph_free(comet_graph *g) {
    if (!g)
        return;
    const comet_allocator *allocator = g->allocator;
    for (int i = 0; i < g->parameter_count; i++)
        comet_memory_give(allocator, (void *)g->parameters[i].name, COMET_NAME_BYTES);
    if (g->space)
        g->space->give(g->space, g->memory, g->memory_bytes);
    comet_memory_give(allocator, g->parameters, g->parameter_room * sizeof *g->parameters);
    comet_memory_give(allocator, g->nodes, g->node_room * sizeof *g->nodes);
    comet_memory_give(allocator, g->values, g->value_room * sizeof *g->values);
    comet_memory_give(allocator, g, sizeof *g);
}

comet_value comet_graph_fail(comet_graph *g, comet_status status, const char *format, ...) {
    if (g->status == COMET_OK) {
        char text[sizeof g->message.text];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        g->status = comet_message_set(&g->message, status, "%s", text);
    }
    return -1;
}

static comet_value no_memory(comet_graph *g) {
    return comet_graph_fail(g, COMET_ERROR_MEMORY, "out of memory while the network is built");
}

static comet_value add_value(comet_graph *g, comet_shape shape, int producer) {
    const size_t count = (size_t)g->value_count;
    void *values = comet_array_reserve(g->allocator, g->values, count, count + 1, &g->value_room, sizeof *g->values);
    if (!values)
        return no_memory(g);
    g->values = values;
    g->values[g->value_count] = (comet_value_info){shape, producer};
    return g->value_count++;
}

comet_value comet_graph_input(comet_graph *g, int height, int width, int channels) {
    if (g->status != COMET_OK)
        return -1;
    if (g->input >= 0)
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "a network has one input");
    if (height < 1 || width < 1 || channels < 1 || height > 65536 || width > 65536 || channels > 65536)
        return comet_graph_fail(g, COMET_ERROR_ARGUMENT, "an input of %d x %d x %d", height, width, channels);
    return g->input = add_value(g, (comet_shape){height, width, channels}, -1);
}

void comet_graph_output(comet_graph *g, comet_value logits) {
    if (g->status != COMET_OK)
        return;
    if (logits < 0 || logits >= g->value_count || g->output >= 0 || logits == g->input) {
        comet_graph_fail(g, COMET_ERROR_ARGUMENT, "the output is not a value of the network, or set already");
        return;
    }
    if (g->values[logits].shape.height != 1 || g->values[logits].shape.width != 1)
        comet_graph_fail(g, COMET_ERROR_ARGUMENT, "the output must be a vector: flatten it");
    g->output = logits;
}

static int valid_inputs(comet_graph *g, int inputs, comet_value a, comet_value b) {
    return a >= 0 && a < g->value_count && (inputs < 2 || (b >= 0 && b < g->value_count));
}

/*
 * An op without a name of its own is called after the block of the layer before it, so that a pattern for a block means
 * its sums and ReLUs, too: "layer1.0.relu.11" behind "layer1.0.bn2".
 */
static void name_after(const comet_graph *g, comet_node *node) {
    const int before = g->values[node->input[0]].producer;
    const char *name = before >= 0 ? g->nodes[before].name : "";
    const char *end = strrchr(name, '.');
    if (end && g->nodes[before].parameter[COMET_PARAMETER_WEIGHT] < 0) /* its own kind and number */
        while (end > name && *--end != '.')
            ;
    const int length = end && *end == '.' ? (int)(end - name) : 0;
    const int most = (int)(sizeof node->name - 48); /* the kind and a number have room behind it */
    snprintf(node->name, sizeof node->name, "%.*s%s%s.%d", length < most ? length : most, name, length ? "." : "",
             comet_op_name(node->kind), g->node_count);
}

comet_node *comet_graph_add_node(comet_graph *g, comet_op_kind kind, const char *name, int inputs, comet_value a,
                                 comet_value b, comet_shape shape) {
    if (g->status != COMET_OK)
        return NULL;
    if (!valid_inputs(g, inputs, a, b)) {
        comet_graph_fail(g, COMET_ERROR_ARGUMENT, "%s: its input is not a value of this network", comet_op_name(kind));
        return NULL;
    }
    if (name && strlen(name) + sizeof ".running_mean" > COMET_NAME_BYTES) {
        comet_graph_fail(g, COMET_ERROR_ARGUMENT, "%s: the name is too long", name);
        return NULL;
    }
    const size_t count = (size_t)g->node_count;
    void *nodes = comet_array_reserve(g->allocator, g->nodes, count, count + 1, &g->node_room, sizeof *g->nodes);
    if (!nodes) {
        no_memory(g);
        return NULL;
    }
    g->nodes = nodes;
    comet_value output = add_value(g, shape, g->node_count);
    if (output < 0)
        return NULL;
    comet_node *node = &g->nodes[g->node_count];
    *node = (comet_node){.kind = kind, .inputs = inputs, .input = {a, inputs > 1 ? b : -1}, .output = output};
    for (int i = 0; i < COMET_NODE_PARAMETERS; i++)
        node->parameter[i] = -1;
    if (name)
        snprintf(node->name, sizeof node->name, "%s", name);
    else
        name_after(g, node);
    g->node_count++;
    return node;
}

void comet_graph_add_parameter(comet_graph *g, int place, const char *suffix, comet_parameter_kind kind, int ndim,
                               const int64_t *shape, int fan_in, int fan_out) {
    if (g->status != COMET_OK)
        return;
    comet_node *node = &g->nodes[g->node_count - 1];
    char *name = comet_memory_take(g->allocator, COMET_NAME_BYTES);
    const size_t count = (size_t)g->parameter_count;
    void *parameters = name ? comet_array_reserve(g->allocator, g->parameters, count, count + 1, &g->parameter_room,
                                                  sizeof(comet_parameter))
                            : NULL;
    if (!parameters) {
        comet_memory_give(g->allocator, name, COMET_NAME_BYTES);
        no_memory(g);
        return;
    }
    g->parameters = parameters;
    snprintf(name, COMET_NAME_BYTES, "%.*s%s", (int)(COMET_NAME_BYTES - sizeof ".running_mean"), node->name, suffix);
    comet_parameter *p = &g->parameters[g->parameter_count];
    *p = (comet_parameter){.name = name, .kind = kind, .ndim = ndim, .count = 1, .fan_in = fan_in, .fan_out = fan_out};
    for (int i = 0; i < ndim; i++) {
        p->shape[i] = shape[i];
        p->count *= shape[i];
    }
    if (comet_graph_parameter_named(g, name))
        comet_graph_fail(g, COMET_ERROR_ARGUMENT, "%s: two layers have this name", node->name);
    node->parameter[place] = g->parameter_count++;
}

comet_status comet_graph_check(const comet_graph *g, comet_message *message) {
    if (g->status != COMET_OK)
        return comet_message_set(message, g->status, "%s", g->message.text);
    if (g->input < 0 || g->output < 0)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "the network has no %s",
                                 g->input < 0 ? "input" : "output");
    return COMET_OK;
}

comet_shape comet_graph_shape(const comet_graph *g, comet_value x) {
    return x >= 0 && x < g->value_count ? g->values[x].shape : (comet_shape){0, 0, 0};
}
