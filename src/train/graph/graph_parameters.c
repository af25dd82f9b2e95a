/* SPDX-License-Identifier: Apache-2.0 */
/* The table of parameters and its memory. */
#include <string.h>

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

static int is_trained(const comet_parameter *p) {
    return p->kind < COMET_RUNNING_MEAN;
}

/* Each array starts at a multiple of the alignment, so that vector code may rely on it. */
static size_t array_bytes(const comet_parameter *p) {
    return ((size_t)p->count * sizeof(float) + COMET_ALIGNMENT - 1) / COMET_ALIGNMENT * COMET_ALIGNMENT;
}

size_t comet_graph_static_bytes(const comet_graph *g, int gradients) {
    size_t bytes = 0;
    for (int i = 0; i < g->parameter_count; i++)
        bytes += array_bytes(&g->parameters[i]) * (gradients && is_trained(&g->parameters[i]) ? 2 : 1);
    return bytes;
}

comet_status comet_graph_allocate(comet_graph *g, int gradients) {
    if (g->status != COMET_OK || g->memory)
        return COMET_ERROR_ARGUMENT;
    size_t bytes = comet_graph_static_bytes(g, gradients);
    char *next = comet_memory_take(g->allocator, bytes);
    if (!next)
        return COMET_ERROR_MEMORY;
    memset(next, 0, bytes);
    g->memory = next;
    g->memory_bytes = bytes;
    for (int i = 0; i < g->parameter_count; i++) {
        comet_parameter *p = &g->parameters[i];
        p->value = (float *)next;
        next += array_bytes(p);
        if (p->kind == COMET_NORM_WEIGHT || p->kind == COMET_RUNNING_VAR)
            for (int64_t k = 0; k < p->count; k++)
                p->value[k] = 1;
    }
    for (int i = 0; gradients && i < g->parameter_count; i++)
        if (is_trained(&g->parameters[i])) {
            g->parameters[i].gradient = (float *)next;
            next += array_bytes(&g->parameters[i]);
        }
    return COMET_OK;
}

size_t comet_graph_running_bytes(const comet_graph *g) {
    size_t bytes = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].kind >= COMET_RUNNING_MEAN)
            bytes += (size_t)g->parameters[i].count * sizeof(float);
    return bytes;
}

void comet_graph_copy_running(comet_graph *g, float *copy, int back) {
    for (int i = 0; copy && i < g->parameter_count; i++) {
        const comet_parameter *p = &g->parameters[i];
        if (p->kind < COMET_RUNNING_MEAN)
            continue;
        memcpy(back ? p->value : copy, back ? copy : p->value, (size_t)p->count * sizeof *copy);
        copy += p->count;
    }
}
