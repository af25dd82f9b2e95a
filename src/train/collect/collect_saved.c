/* SPDX-License-Identifier: Apache-2.0 */
/* The batches of an update, and what is seen of a tensor when it is stored. */
#include "train/collect/collect_impl.h"

void comet_collect_begin(comet_collect *c) {
    for (int32_t i = 0; i < c->count; i++) {
        c->tensors[i].now = (comet_collect_stored){0};
        c->tensors[i].all = (comet_stats_tensor)COMET_STATS_TENSOR_INIT;
    }
    for (int i = 0; i < c->graph->node_count; i++)
        comet_collect_node_begin(c->graph, i, &c->nodes[i]);
    comet_collect_turns_begin(c);
    c->status = COMET_OK;
}

/* What a batch that failed has left under way is of no use. */
void comet_collect_batch_begin(comet_collect *c) {
    comet_collect_drop(c);
    for (int32_t i = 0; i < c->count; i++)
        c->tensors[i].now = (comet_collect_stored){0};
    comet_collect_turns_batch(c);
}

static void add_stream(comet_collect_tensor *t, const comet_stats_tensor *stream, int has_values) {
    comet_collect_stored *now = &t->now;
    now->count += stream->count;
    now->nonzero += stream->nonzero;
    now->squares += stream->squares;
    now->bytes += stream->bytes;
    now->bound += stream->bound;
    now->streams += stream->streams;
    if (!has_values)
        return;
    t->all.has_alike = stream->has_alike;
    t->all.all = stream->all;
    t->all.passed = stream->passed;
}

void comet_collect_drop(comet_collect *c) {
    const comet_backend_statistics *statistics = c->backend->statistics;
    if (statistics->settle)
        (void)statistics->settle(c->backend, 0);
    for (int32_t i = 0; i < c->count; i++)
        c->tensors[i].is_late = 0;
}

static void settle(comet_collect *c) {
    const comet_backend_statistics *statistics = c->backend->statistics;
    if (statistics->settle)
        comet_collect_check(c, statistics->settle(c->backend, 1));
    for (int32_t i = 0; i < c->count; i++) {
        comet_collect_tensor *t = &c->tensors[i];
        if (t->is_late)
            add_stream(t, &t->late, t->is_late == 2);
        t->is_late = 0;
    }
}

void comet_collect_batch_end(comet_collect *c) {
    settle(c);
    for (int32_t i = 0; i < c->count; i++) {
        const comet_collect_stored *now = &c->tensors[i].now;
        comet_stats_tensor *all = &c->tensors[i].all;
        all->count += now->count;
        all->nonzero += now->nonzero;
        all->squares += now->squares;
        all->bytes += now->bytes;
        all->bound += now->bound;
        all->streams += now->streams;
    }
    comet_collect_turns_end(c);
}

static const float *gamma_of(const comet_graph *g, const comet_plan_entry *e) {
    return comet_node_parameter(g, &g->nodes[e->node], COMET_PARAMETER_WEIGHT)->value;
}

void comet_collect_saved(comet_collect *c, const comet_plan_entry *e, const comet_tensor *values,
                         const comet_codec_grid *grid, const comet_codec_record *result) {
    const int32_t tensor = comet_collect_find(c, e);
    const comet_stats_exec exec = comet_collect_exec(c);
    const comet_backend_statistics *statistics = c->backend->statistics;
    comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
    if (tensor < 0)
        return;
    comet_collect_tensor *t = &c->tensors[tensor];
    pass.result = result;
    pass.values = t->now.streams > 0 ? NULL : values; /* the first part's images stand for all */
    pass.grid = grid;
    pass.gamma = grid ? gamma_of(c->graph, e) : NULL;
    pass.relu = grid && e->has_relu;
    if (t->is_late) /* another part of it */
        settle(c);
    t->late = (comet_stats_tensor)COMET_STATS_TENSOR_INIT;
    comet_collect_check(c, statistics->see_tensor(c->backend, &pass, &exec, &t->late));
    if (statistics->settle)
        t->is_late = pass.values ? 2 : 1;
    else
        add_stream(t, &t->late, pass.values != NULL);
    comet_collect_keep(c, tensor, values, grid);
}

size_t comet_collect_tensor_workspace(const comet_backend *b, const comet_graph *g, const comet_plan_entry *e,
                                      int batch) {
    const comet_shape *s = comet_value_shape(g, e->value);
    comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
    comet_tensor t;
    size_t bytes = 0;
    comet_tensor_init(&t, NULL, b->dtype, COMET_NHWC, 4, (int64_t[]){batch, s->height, s->width, s->channels});
    pass.values = &t;
    (void)comet_stats_tensor_workspace(&pass, &bytes);
    return bytes;
}
