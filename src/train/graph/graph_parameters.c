/* SPDX-License-Identifier: Apache-2.0 */
/* The table of parameters and its memory. */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/graph/graph_impl.h"

int comet_graph_parameters(const comet_graph *g) {
    return g->parameter_count;
}

comet_parameter *comet_graph_parameter(comet_graph *g, int index) {
    return index >= 0 && index < g->parameter_count ? &g->parameters[index] : NULL;
}

comet_parameter *comet_graph_parameter_named(comet_graph *g, const char *name) {
    for (int i = 0; i < g->parameter_count; i++)
        if (strcmp(g->parameters[i].name, name) == 0)
            return &g->parameters[i];
    return NULL;
}

/* 1: a weight, frozen or not; 0: a running statistic. */
static int is_weight(const comet_parameter *p) {
    return p->kind < COMET_RUNNING_MEAN;
}

/* Each array starts at a multiple of the alignment, so that vector code may rely on it. */
static size_t array_bytes(const comet_parameter *p) {
    return ((size_t)p->count * sizeof(float) + COMET_ALIGNMENT - 1) / COMET_ALIGNMENT * COMET_ALIGNMENT;
}

size_t comet_graph_static_bytes(const comet_graph *g, int gradients) {
    size_t bytes = 0;
    for (int i = 0; i < g->parameter_count; i++)
        bytes += array_bytes(&g->parameters[i]) * (gradients && comet_parameter_is_trained(&g->parameters[i]) ? 2 : 1);
    return bytes;
}

static char *place_values(comet_graph *g, int weights, char *next) {
    for (int i = 0; i < g->parameter_count; i++)
        if (is_weight(&g->parameters[i]) == weights) {
            g->parameters[i].space = g->space;
            g->parameters[i].value = (float *)next;
            next += array_bytes(&g->parameters[i]);
        }
    return next;
}

/* The values, running statistics behind the others, so that these can be copied at once; then the gradients. */
static void place_arrays(comet_graph *g, int gradients) {
    char *next = place_values(g, 1, g->memory);
    g->running = (float *)next;
    next = place_values(g, 0, next);
    g->gradient_bytes = g->memory_bytes - (size_t)(next - (char *)g->memory);
    for (int i = 0; gradients && i < g->parameter_count; i++)
        if (comet_parameter_is_trained(&g->parameters[i])) {
            g->parameters[i].gradient = (float *)next;
            next += array_bytes(&g->parameters[i]);
        }
}

static comet_status fill_arrays(comet_graph *g) {
    comet_status status = g->space->fill(g->space, g->memory, (int64_t)(g->memory_bytes / sizeof(float)), 0);
    for (int i = 0; i < g->parameter_count && status == COMET_OK; i++) {
        const comet_parameter *p = &g->parameters[i];
        if (p->kind == COMET_NORM_WEIGHT || p->kind == COMET_RUNNING_VAR)
            status = g->space->fill(g->space, p->value, p->count, 1);
    }
    return status;
}

/* Where a space has an order of its own for a convolution's weights. */
static comet_status arrange_weights(const comet_graph *g) {
    comet_status status = COMET_OK;
    for (int i = 0; g->space->arrange && i < g->parameter_count && status == COMET_OK; i++) {
        const comet_parameter *p = &g->parameters[i];
        if (p->kind != COMET_CONV_WEIGHT)
            continue;
        status = g->space->arrange(g->space, p->value, p->shape);
        if (status == COMET_OK && p->gradient)
            status = g->space->arrange(g->space, p->gradient, p->shape);
    }
    return status;
}

comet_status comet_graph_allocate(comet_graph *g, comet_space *space, int gradients) {
    if (g->status != COMET_OK || g->memory)
        return COMET_ERROR_ARGUMENT;
    const size_t bytes = comet_graph_static_bytes(g, gradients);
    COMET_TRY(space->take(space, bytes, &g->memory));
    g->space = space;
    g->memory_bytes = bytes;
    place_arrays(g, gradients);
    COMET_TRY(arrange_weights(g));
    return fill_arrays(g);
}

float *comet_graph_gradients(const comet_graph *g, int64_t *count) {
    *count = (int64_t)(g->gradient_bytes / sizeof(float));
    return *count ? (float *)((char *)g->memory + g->memory_bytes - g->gradient_bytes) : NULL;
}

size_t comet_graph_running_bytes(const comet_graph *g) {
    size_t bytes = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (!is_weight(&g->parameters[i]))
            bytes += array_bytes(&g->parameters[i]);
    return bytes;
}

comet_status comet_graph_copy_running(comet_graph *g, float *copy, int back) {
    const size_t bytes = comet_graph_running_bytes(g);
    if (!copy || bytes == 0)
        return COMET_OK;
    return g->space->copy(g->space, back ? g->running : copy, back ? copy : g->running, bytes);
}
