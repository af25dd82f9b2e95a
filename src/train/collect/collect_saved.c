/* SPDX-License-Identifier: Apache-2.0 */
/* The batches of an update, and what is seen of a tensor when it is stored. */
#include "train/collect/collect_impl.h"

/* ---- updates and batches ---- */

void comet_collect_begin(comet_collect *c) {
    for (int32_t i = 0; i < c->count; i++) {
        c->tensors[i].now = (comet_stats_tensor)COMET_STATS_TENSOR_INIT;
        c->tensors[i].all = (comet_stats_tensor)COMET_STATS_TENSOR_INIT;
    }
    for (int i = 0; i < c->graph->node_count; i++)
        comet_collect_node_begin(c->graph, i, &c->nodes[i]);
    comet_collect_turns_begin(c);
    c->has_squares = 0;
    c->status = COMET_OK;
}

/* How alike values are goes on from batch to batch: the last one's that had some. */
static void set_alike(comet_stats_tensor *to, const comet_stats_tensor *from) {
    to->has_alike = from->has_alike;
    to->all = from->all;
    to->passed = from->passed;
}

void comet_collect_settle(comet_collect *c, int keep) {
    const comet_backend_statistics *statistics = c->backend->statistics;
    const comet_status status = statistics->settle ? statistics->settle(c->backend, keep) : COMET_OK;
    if (keep)
        comet_collect_check(c, status);
}

/* What a batch that failed has left under way is of no use. */
void comet_collect_batch_begin(comet_collect *c) {
    comet_collect_settle(c, 0);
    for (int32_t i = 0; i < c->count; i++) {
        comet_collect_tensor *t = &c->tensors[i];
        t->now = (comet_stats_tensor)COMET_STATS_TENSOR_INIT;
        set_alike(&t->now, &t->all);
    }
    c->has_squares = 0;
    comet_collect_turns_batch(c);
}

void comet_collect_batch_end(comet_collect *c) {
    comet_collect_settle(c, 1);
    for (int32_t i = 0; i < c->count; i++) {
        const comet_stats_tensor *now = &c->tensors[i].now;
        comet_stats_tensor *all = &c->tensors[i].all;
        set_alike(all, now);
        all->count += now->count;
        all->nonzero += now->nonzero;
        all->squares += now->squares;
        all->bytes += now->bytes;
        all->bound += now->bound;
        all->streams += now->streams;
    }
    comet_collect_turns_end(c);
}

/* ---- work that is recorded ---- */

/* Nothing changes from step to step but what is kept for measuring errors. */
uint64_t comet_collect_kind(const comet_collect *c) {
    return c->backend->statistics->settle && c->keeping.count == 0 ? (uint64_t)(uintptr_t)c : 0;
}

/* Beside its records, which are the backend's to put away, a step leaves no more than this on the host. */
void comet_collect_record(comet_collect *c) {
    c->status_before = c->status;
    c->read_before = c->read_bytes;
    c->status = COMET_OK;
}

comet_status comet_collect_end_record(comet_collect *c, uint64_t *read_bytes) {
    const comet_status status = c->status;
    *read_bytes = c->read_bytes - c->read_before;
    c->status = c->status_before;
    c->read_bytes = c->read_before;
    return status;
}

void comet_collect_replayed(comet_collect *c, uint64_t read_bytes) {
    c->read_bytes += read_bytes;
}

/* ---- a tensor that is stored ---- */

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
    comet_collect_check(c, statistics->see_tensor(c->backend, &pass, &exec, &t->now));
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
