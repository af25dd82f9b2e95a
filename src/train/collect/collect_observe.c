/* SPDX-License-Identifier: Apache-2.0 */
/* From what was seen of tensors and layers to what a controller is told of a tensor's uses. */
#include "train/collect/collect_impl.h"

/* ---- momentum ---- */

typedef struct momentum_means {
    double in_gradients, as_it_is; /* in units of the gradient; of the optimiser's own numbers */
} momentum_means;

/* Errors are judged beside it: it is as large as the gradients that were seen. */
static momentum_means momentum_of(const comet_collect_update *u, int parameter) {
    const comet_optimiser *o = u->optimiser;
    const double scale = u->scale > 0 ? u->scale : 1, mean = u->means[parameter];
    if (o->kind == COMET_ADAMW) {
        const double beta1 = u->momentum > 0 ? u->momentum : o->beta1;
        return (momentum_means){scale * comet_momentum_adam(mean, beta1, u->updates), scale * mean};
    }
    const double momentum = o->momentum > 0 && u->momentum > 0 ? u->momentum : o->momentum;
    return (momentum_means){scale * comet_momentum_sgd(mean, momentum, u->updates), scale * mean};
}

/* ---- gradients of parameters ---- */

static int reads_weights(const comet_collect_use *u) {
    return u->kind == COMET_USE_CONV_WEIGHTS || u->kind == COMET_USE_LINEAR_WEIGHTS;
}

static void choose_spans(comet_collect *c) {
    for (int i = 0; i < c->graph->parameter_count; i++)
        c->spans[i] = (comet_span){NULL, 0};
    for (int32_t i = 0; i < c->count; i++)
        for (int u = 0; u < c->tensors[i].use_count; u++) {
            const comet_collect_use *use = &c->tensors[i].uses[u];
            const comet_parameter *p = &c->graph->parameters[use->parameter];
            if (reads_weights(use))
                c->spans[use->parameter] = (comet_span){p->gradient, p->count};
        }
}

void comet_collect_squares(comet_collect *c) {
    if (!c->acgc || c->has_squares)
        return;
    choose_spans(c);
    for (int i = 0; i < c->graph->parameter_count; i++)
        c->squares[i] = 0;
    comet_collect_check(c,
                        c->backend->statistics->squares(c->backend, c->spans, c->graph->parameter_count, c->squares));
    c->has_squares = 1;
}

/* Where nobody asked for them before the batch ended. */
static void await_squares(comet_collect *c) {
    if (!c->acgc || c->has_squares)
        return;
    comet_collect_squares(c);
    comet_collect_settle(c, 1);
}

/* ---- uses ---- */

static const comet_collect_node *node_at(const comet_collect *c, int node) {
    return &c->nodes[node];
}

/* The norm or SiLU that a layer's input is rebuilt from. */
static void set_source(const comet_collect *c, int source, comet_stats_use *s) {
    if (source < 0)
        return;
    if (c->graph->nodes[source].kind == COMET_OP_SILU)
        s->silu = &node_at(c, source)->seen.silu;
    else
        s->norm = &node_at(c, source)->seen.norm;
}

static void set_parts(const comet_collect *c, const comet_collect_tensor *t, const comet_collect_use *u,
                      comet_stats_use *s) {
    const comet_collect_node *n = node_at(c, u->node);
    s->layer = u->kind == COMET_USE_NORM_SCALE ? NULL : &node_at(c, u->reached)->seen.layer;
    switch (u->kind) {
    case COMET_USE_CONV_WEIGHTS:
    case COMET_USE_LINEAR_WEIGHTS:
        set_source(c, u->source, s);
        s->scale = u->factor >= 0 ? &node_at(c, u->factor)->seen.scale : NULL;
        s->weight_gradient_squares = c->acgc ? c->squares[u->parameter] : 0;
        break;
    case COMET_USE_NORM_SCALE:
        s->norm = &n->seen.norm;
        set_source(c, u->source, s);
        break;
    case COMET_USE_NORM_INPUT:
        s->norm = &n->seen.norm;
        break;
    case COMET_USE_CURVE_INPUT:
        s->silu = &n->seen.silu;
        s->norm = t->kind == COMET_SAVED_NORM ? &node_at(c, t->node)->seen.norm : NULL;
        break;
    default:
        s->scale = &n->seen.scale;
        set_source(c, u->source, s);
    }
}

static comet_status stats_of(const comet_collect *c, const comet_collect_tensor *t, const comet_collect_use *u,
                             momentum_means momentum, comet_use_stats *stats) {
    comet_stats_use use = COMET_STATS_USE_INIT;
    use.kind = u->kind;
    use.tensor = &t->all;
    use.momentum = momentum.in_gradients;
    use.buffer = momentum.as_it_is;
    set_parts(c, t, u, &use);
    return comet_stats_of_use(&use, stats);
}

/* ---- observations ---- */

/* 1: all layers that say something of it had their backward. */
static int is_seen(const comet_collect *c, const comet_collect_tensor *t) {
    if (!(t->all.count > 0))
        return 0;
    for (int i = 0; i < t->use_count; i++) {
        const int nodes[] = {t->uses[i].node, t->uses[i].source, t->uses[i].factor, t->uses[i].reached};
        for (size_t k = 0; k < sizeof nodes / sizeof *nodes; k++)
            if (nodes[k] >= 0 && node_at(c, nodes[k])->wants &&
                !comet_collect_node_is_seen(c->graph, nodes[k], node_at(c, nodes[k])))
                return 0;
    }
    return 1;
}

const comet_control_observation *comet_collect_observation(comet_collect *c, const comet_collect_update *update,
                                                           int32_t tensor) {
    const comet_collect_tensor *t = &c->tensors[tensor];
    comet_use_stats *stats = c->stats + (size_t)tensor * COMET_COLLECT_MOST_USES;
    comet_control_observation *o = &c->observations[tensor];
    if (!is_seen(c, t))
        return NULL;
    await_squares(c);
    for (int i = 0; i < t->use_count; i++)
        comet_collect_check(c, stats_of(c, t, &t->uses[i], momentum_of(update, t->uses[i].parameter), &stats[i]));
    c->sizes[tensor] = comet_stats_tensor_size(&t->all, t->values);
    comet_collect_factors(c, tensor, c->sizes[tensor].bound, stats);
    *o = (comet_control_observation){.tensor = tensor,
                                     .size_count = 1,
                                     .rms = comet_stats_tensor_rms(&t->all),
                                     .uses = stats,
                                     .sizes = &c->sizes[tensor]};
    return o;
}

comet_status comet_collect_observe(comet_collect *c, const comet_collect_update *update, comet_control *control,
                                   int64_t iteration) {
    int32_t count = 0;
    for (int32_t i = 0; i < c->count; i++) { /* moved together: an observation's own arrays stay where they are */
        const comet_control_observation *o = comet_collect_observation(c, update, i);
        if (o)
            c->observations[count++] = *o;
    }
    if (c->status != COMET_OK)
        return c->status;
    return comet_control_observe(control, iteration, c->observations, count);
}
