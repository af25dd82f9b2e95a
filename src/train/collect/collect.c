/* SPDX-License-Identifier: Apache-2.0 */
/* A collector's memory, and the list of tensors. */
#include "train/collect/collect.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "train/collect/collect_impl.h"
#include "train/plan/plan_impl.h"

/* 1: its bound is the controller's to set. */
static int is_controlled(const comet_plan_entry *e) {
    return (e->kind == COMET_SAVED_VALUE || e->kind == COMET_SAVED_NORM) && e->form.form == COMET_FORM_CODEC &&
           e->form.codec.codec == COMET_CODEC_EB && !e->form.fixed;
}

/* ---- memory: one block ---- */

typedef struct layout {
    char *memory; /* NULL: only counted */
    size_t bytes;
} layout;

static void *place(layout *l, size_t count, size_t size) {
    void *at = l->memory ? l->memory + l->bytes : NULL;
    l->bytes += (count * size + COMET_ALIGNMENT - 1) / COMET_ALIGNMENT * COMET_ALIGNMENT;
    return at;
}

static void lay_out(comet_collect *c, const comet_plan *p, layout *l) {
    const size_t count = (size_t)c->count, channels = (size_t)c->most_channels;
    (void)place(l, 1, sizeof *c);
    c->tensors = place(l, count, sizeof *c->tensors);
    c->list = place(l, count, sizeof *c->list);
    c->list_uses = place(l, count * COMET_COLLECT_MOST_USES, sizeof *c->list_uses);
    c->observations = place(l, count, sizeof *c->observations);
    c->stats = place(l, count * COMET_COLLECT_MOST_USES, sizeof *c->stats);
    c->sizes = place(l, count, sizeof *c->sizes);
    c->of_value = place(l, (size_t)p->graph->value_count, sizeof *c->of_value);
    c->of_norm = place(l, (size_t)p->n, sizeof *c->of_norm);
    c->nodes = place(l, (size_t)p->n, sizeof *c->nodes);
    c->scratch = place(l, 1, comet_statistics_bytes(c->most_channels, comet_collect_arrays(c)));
    c->channels = place(l, (size_t)comet_collect_arrays(c) * channels, sizeof *c->channels);
    c->inverse = place(l, 3 * channels, sizeof *c->inverse);
    c->places = place(l, 4 * channels * COMET_ALIKE_BLOCKS, sizeof *c->places);
    c->inputs = place(l, (size_t)c->most_inputs * COMET_COLLECT_COMMON, sizeof *c->inputs);
}

/* Of what is summed by channel: the inputs of layers, and of norms, activations and channel scales, whose outputs have as many. */
static int64_t most_channels(const comet_graph *g) {
    int64_t most = 1;
    for (int i = 0; i < g->node_count; i++) {
        const int channels = comet_value_shape(g, g->nodes[i].input[0])->channels;
        most = channels > most ? channels : most;
    }
    return most;
}

/* Of one output of a layer before a batch norm. */
static int64_t most_inputs(const comet_plan *p) {
    const comet_graph *g = p->graph;
    int64_t most = 1;
    for (int i = 0; i < g->node_count; i++) {
        const int before =
            g->nodes[i].kind == COMET_OP_BATCH_NORM ? g->values[comet_plan_root(p, g->nodes[i].input[0])].producer : -1;
        const int weight = before < 0 ? -1 : g->nodes[before].parameter[COMET_PARAMETER_WEIGHT];
        if (weight < 0)
            continue;
        const int64_t inputs = g->parameters[weight].count / comet_value_shape(g, g->nodes[before].output)->channels;
        most = inputs > most ? inputs : most;
    }
    return most;
}

static comet_collect *take(const comet_plan *p, int acgc, const comet_allocator *allocator) {
    comet_collect counted = {.most_channels = most_channels(p->graph), .most_inputs = most_inputs(p), .acgc = acgc};
    layout l = {NULL, 0};
    for (int i = 0; i < p->entry_count; i++)
        counted.count += is_controlled(&p->entries[i]);
    lay_out(&counted, p, &l);
    comet_collect *c = comet_memory_take(allocator, l.bytes);
    if (!c)
        return NULL;
    memset(c, 0, l.bytes);
    c->bytes = l.bytes;
    c->count = counted.count;
    c->most_channels = counted.most_channels;
    c->most_inputs = counted.most_inputs;
    c->acgc = acgc;
    if (allocator) {
        c->allocator_copy = *allocator;
        c->allocator = &c->allocator_copy;
    }
    l = (layout){(char *)c, 0};
    lay_out(c, p, &l);
    return c;
}

void comet_collect_free(comet_collect *c) {
    if (!c)
        return;
    comet_allocator copy = c->allocator_copy;
    comet_memory_give(c->allocator ? &copy : NULL, c, c->bytes);
}

size_t comet_collect_bytes(const comet_collect *c) {
    return c->bytes;
}

/* ---- the list ---- */

static void list_tensors(comet_collect *c, const comet_plan *p) {
    int32_t next = 0;
    for (int v = 0; v < p->graph->value_count; v++)
        c->of_value[v] = -1;
    for (int i = 0; i < p->n; i++)
        c->of_norm[i] = -1;
    for (int i = 0; i < p->entry_count; i++) {
        const comet_plan_entry *e = &p->entries[i];
        if (!is_controlled(e))
            continue;
        comet_collect_tensor *t = &c->tensors[next];
        *t = (comet_collect_tensor){
            .kind = e->kind, .value = e->value, .node = e->node, .values = (int64_t)(e->raw_bytes / sizeof(float))};
        snprintf(t->name, sizeof t->name, "%s", e->name);
        *(e->kind == COMET_SAVED_NORM ? &c->of_norm[e->node] : &c->of_value[e->value]) = next++;
    }
}

static void list_uses(comet_collect *c) {
    for (int32_t i = 0; i < c->count; i++) {
        const comet_collect_tensor *t = &c->tensors[i];
        comet_control_use *uses = c->list_uses + (size_t)i * COMET_COLLECT_MOST_USES;
        for (int u = 0; u < t->use_count; u++)
            uses[u] = (comet_control_use){t->uses[u].kind, t->uses[u].parameter};
        c->list[i] = (comet_control_tensor){t->name, t->values, t->use_count, uses};
    }
}

comet_status comet_collect_new(const comet_plan *plan, int acgc, const comet_allocator *allocator,
                               comet_collect **collect, comet_message *message) {
    comet_collect *c = take(plan, acgc, allocator);
    if (!c)
        return comet_message_memory(message);
    c->graph = plan->graph;
    c->threads = plan->backend->threads;
    c->batch = plan->options.batch;
    list_tensors(c, plan);
    comet_collect_find_uses(c, plan);
    list_uses(c);
    if (c->too_many) {
        comet_collect_free(c);
        return comet_message_set(message, COMET_ERROR_UNSUPPORTED,
                                 "a tensor is read by more than %d layers: no controller can set its bound; give one",
                                 COMET_COLLECT_MOST_USES);
    }
    *collect = c;
    return COMET_OK;
}

const comet_control_tensor *comet_collect_tensors(const comet_collect *c, int32_t *count) {
    *count = c->count;
    return c->list;
}

int32_t comet_collect_find(const comet_collect *c, const comet_plan_entry *e) {
    if (!is_controlled(e))
        return -1;
    return e->kind == COMET_SAVED_NORM ? c->of_norm[e->node] : c->of_value[e->value];
}

uint64_t comet_collect_read_bytes(const comet_collect *c) {
    return c->read_bytes;
}
