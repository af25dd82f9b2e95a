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

void comet_collect_batch_begin(comet_collect *c) {
    for (int32_t i = 0; i < c->count; i++)
        c->tensors[i].now = (comet_collect_stored){0};
    comet_collect_turns_batch(c);
}

void comet_collect_batch_end(comet_collect *c) {
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

static void add_stream(comet_collect_stored *now, const comet_stats_tensor *stream) {
    now->count += stream->count;
    now->nonzero += stream->nonzero;
    now->squares += stream->squares;
    now->bytes += stream->bytes;
    now->bound += stream->bound;
    now->streams += stream->streams;
}

static const float *gamma_of(const comet_graph *g, const comet_plan_entry *e) {
    return comet_node_parameter(g, &g->nodes[e->node], COMET_PARAMETER_WEIGHT)->value;
}

void comet_collect_saved(comet_collect *c, const comet_plan_entry *e, const comet_tensor *values,
                         const comet_codec_grid *grid, const comet_codec_record *result) {
    const int32_t tensor = comet_collect_find(c, e);
    const comet_stats_exec exec = comet_collect_exec(c);
    comet_stats_tensor stream = COMET_STATS_TENSOR_INIT;
    comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
    if (tensor < 0)
        return;
    comet_collect_tensor *t = &c->tensors[tensor];
    pass.result = result;
    pass.values = t->now.streams > 0 ? NULL : values; /* the first part's images stand for all */
    pass.grid = grid;
    pass.gamma = grid ? gamma_of(c->graph, e) : NULL;
    pass.relu = grid && e->has_relu;
    comet_collect_check(c, c->backend->statistics->see_tensor(c->backend, &pass, &exec, &stream));
    add_stream(&t->now, &stream);
    comet_collect_keep(c, tensor, values, grid);
    if (!pass.values)
        return;
    t->all.has_alike = stream.has_alike;
    t->all.all = stream.all;
    t->all.passed = stream.passed;
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
