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

/* ---- memory: one block, and a workspace when it is known what is wanted ---- */

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
    const size_t count = (size_t)c->count;
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
    c->spans = place(l, (size_t)p->graph->parameter_count, sizeof *c->spans);
    c->squares = place(l, (size_t)p->graph->parameter_count, sizeof *c->squares);
}

static comet_collect *take(const comet_plan *p, int acgc, const comet_allocator *allocator) {
    comet_collect counted = {.acgc = acgc};
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
    c->acgc = acgc;
    c->allocator = comet_memory_hold(&c->allocator_copy, allocator);
    l = (layout){(char *)c, 0};
    lay_out(c, p, &l);
    return c;
}

static size_t most(size_t a, size_t b) {
    return a > b ? a : b;
}

static int take_workspace(comet_collect *c, const comet_plan *p) {
    size_t bytes = 1;
    for (int i = 0; i < p->n; i++)
        bytes =
            most(bytes, comet_collect_node_workspace(p->backend, p->graph, i, c->batch, c->nodes[i].wants, c->acgc));
    for (int i = 0; i < p->entry_count; i++)
        if (is_controlled(&p->entries[i]))
            bytes = most(bytes, comet_collect_tensor_workspace(p->backend, p->graph, &p->entries[i], c->batch));
    comet_space *space = c->backend->space;
    c->workspace_bytes = space->take(space, bytes, &c->workspace) == COMET_OK ? bytes : 0;
    return c->workspace_bytes != 0;
}

comet_stats_exec comet_collect_exec(const comet_collect *c) {
    return (comet_stats_exec){.size = sizeof(comet_stats_exec),
                              .threads = c->backend->threads,
                              .workspace = c->workspace,
                              .workspace_bytes = c->workspace_bytes};
}

void comet_collect_check(comet_collect *c, comet_status status) {
    if (status != COMET_OK && status != COMET_ERROR_DIVERGED && c->status == COMET_OK)
        c->status = status;
}

void comet_collect_free(comet_collect *c) {
    if (!c)
        return;
    comet_collect_settle(c, 0);
    if (c->workspace_bytes)
        c->backend->space->give(c->backend->space, c->workspace, c->workspace_bytes);
    comet_collect_give_turns(c);
    comet_memory_give(c->allocator, c, c->bytes);
}

size_t comet_collect_bytes(const comet_collect *c) {
    return c->bytes + c->workspace_bytes + c->bytes_of_turns;
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
        *t = (comet_collect_tensor){.kind = e->kind,
                                    .value = e->value,
                                    .node = e->node,
                                    .values = (int64_t)comet_plan_value_count(p, e->value)};
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

comet_status comet_collect_new(const comet_plan *plan, uint32_t needs, const comet_allocator *allocator,
                               comet_collect **collect, comet_message *message) {
    comet_collect *c = take(plan, (needs & COMET_NEEDS_ACGC) != 0, allocator);
    if (!c)
        return comet_message_memory(message);
    c->graph = plan->graph;
    c->backend = plan->backend;
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
    if (!take_workspace(c, plan) || (needs & COMET_NEEDS_MEASURED && !comet_collect_take_turns(c, plan))) {
        comet_collect_free(c);
        return comet_message_memory(message);
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
