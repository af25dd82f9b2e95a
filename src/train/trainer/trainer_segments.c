/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which values are computed again. The network is cut at values that everything behind them depends on alone (the
 * output of a residual block, any value of a plain network), into parts that would save about the same number of bytes.
 * The values at the cuts are held; those between them are computed again, a part at a time, when backward comes to it.
 * The last part is held as well: backward starts with it.
 */
#include <string.h>

#include "train/plan/plan_impl.h"
#include "train/trainer/trainer_impl.h"

/* The last node that reads a value, the loss for the output. */
static int last_reader(const comet_graph *g, comet_value v) {
    int last = v == g->output ? g->node_count : -1;
    for (int i = g->values[v].producer + 1; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].inputs; k++)
            if (g->nodes[i].input[k] == v && last < i)
                last = i;
    return last;
}

/* 1: nothing made before it is read after it. */
static int is_cut(const comet_graph *g, comet_value v) {
    const int producer = g->values[v].producer;
    for (int w = 0; w < g->value_count; w++)
        if (w != v && g->values[w].producer <= producer && last_reader(g, w) > producer)
            return 0;
    return 1;
}

void comet_trainer_find_cuts(comet_trainer_parts *parts) {
    for (int v = 0; v < parts->graph->value_count; v++)
        parts->cut[v] = (unsigned char)is_cut(parts->graph, v);
}

/* The entry of the value that a node makes, NULL if no backward needs it. */
static const comet_plan_entry *entry_of(const comet_plan *base, int node) {
    for (int i = 0; i < comet_plan_entries(base); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(base, i);
        if (e->kind == COMET_SAVED_VALUE && e->node == node)
            return e;
    }
    return NULL;
}

static size_t total_of(const comet_plan *base) {
    size_t bytes = 0;
    for (int i = 0; i < comet_plan_entries(base); i++)
        if (comet_plan_get_entry(base, i)->kind == COMET_SAVED_VALUE)
            bytes += comet_plan_get_entry(base, i)->raw_bytes;
    return bytes;
}

void comet_trainer_mark(comet_trainer_parts *parts, const comet_saving *saving) {
    const comet_graph *g = parts->graph;
    memset(parts->again, 0, (size_t)g->value_count);
    if (saving->segments == 0)
        return;
    const size_t total = total_of(parts->base), part = total / (size_t)saving->segments;
    const size_t held = total / 16 * (size_t)saving->held, tail = held > part ? held : part;
    size_t before = 0, since_hold = 0, since_cut = 0;
    comet_value cut = -1;
    for (int i = 0; i < g->node_count && before + tail < total; i++) {
        const comet_plan_entry *e = entry_of(parts->base, i);
        if (!e)
            continue;
        parts->again[e->value] = 1;
        before += e->raw_bytes;
        since_hold += e->raw_bytes;
        since_cut += e->raw_bytes;
        if (parts->cut[e->value]) {
            cut = e->value;
            since_cut = 0;
        }
        if (since_hold > part && cut >= 0) {
            parts->again[cut] = 0;
            since_hold = since_cut;
            cut = -1;
        }
    }
}
