/* SPDX-License-Identifier: Apache-2.0 */
/* From what was seen of tensors and layers to what a controller is told of a tensor's uses. */
#include <math.h>
#include <string.h>

#include "train/collect/collect_impl.h"

/* ---- batches ---- */

void comet_collect_begin(comet_collect *c) {
    for (int32_t i = 0; i < c->count; i++)
        c->tensors[i].now = c->tensors[i].all = (comet_collect_stored){0};
    for (int i = 0; i < c->graph->node_count; i++)
        c->nodes[i] = (comet_collect_node){.wants = c->nodes[i].wants};
}

void comet_collect_batch_begin(comet_collect *c) {
    for (int32_t i = 0; i < c->count; i++)
        c->tensors[i].now = (comet_collect_stored){0};
}

static void add(comet_collect_stored *sum, const comet_collect_stored *more) {
    sum->count += more->count;
    sum->nonzero += more->nonzero;
    sum->squares += more->squares;
    sum->bytes += more->bytes;
    sum->bound += more->bound;
    sum->streams += more->streams;
}

void comet_collect_batch_end(comet_collect *c) {
    for (int32_t i = 0; i < c->count; i++)
        add(&c->tensors[i].all, &c->tensors[i].now);
}

void comet_collect_saved(comet_collect *c, const comet_plan_entry *e, const comet_tensor *values,
                         const comet_codec_grid *grid, const comet_codec_result *result) {
    const int32_t tensor = comet_collect_find(c, e);
    if (tensor < 0)
        return;
    if (values && c->tensors[tensor].now.streams == 0) /* the first part's images stand for all */
        comet_collect_see_errors(c, &c->tensors[tensor], e, values, grid, result->bound);
    const comet_collect_stored more = {.count = (double)result->stats.count,
                                       .nonzero = (double)result->stats.nonzero,
                                       .squares = result->stats.sum_squares,
                                       .bytes = (double)result->bytes,
                                       .bound = result->bound,
                                       .streams = 1};
    add(&c->tensors[tensor].now, &more);
}

/* ---- uses ---- */

static const comet_collect_node *node_at(const comet_collect *c, int node) {
    return &c->nodes[node];
}

/* A mean over the update's batches. */
static double mean(const comet_collect_node *n, double sum) {
    return sum / n->batches;
}

static double derivative_of(const comet_collect *c, const comet_collect_tensor *t, const comet_collect_use *u) {
    double derivative = t->all.nonzero / t->all.count;
    if (u->source >= 0)
        derivative = mean(node_at(c, u->source), node_at(c, u->source)->derivative);
    if (u->factor >= 0) /* taken as independent of what they multiply */
        derivative *= mean(node_at(c, u->factor), node_at(c, u->factor)->factor_squares);
    return derivative;
}

static double squares_of(const comet_parameter *p) {
    double sum = 0;
    for (int64_t i = 0; i < p->count; i++)
        sum += (double)p->gradient[i] * (double)p->gradient[i];
    return sum;
}

static double acgc_of_layer(const comet_collect *c, const comet_collect_tensor *t, const comet_collect_use *u) {
    const comet_node *node = &c->graph->nodes[u->node];
    const comet_parameter *weight = &c->graph->parameters[u->parameter];
    const int is_conv = node->kind == COMET_OP_CONV;
    return comet_acgc_conv(squares_of(weight), node_at(c, u->node)->output_squares, t->all.count,
                           is_conv ? (double)(node->as.conv.kernel * node->as.conv.kernel_width) : 1,
                           is_conv ? (double)node->as.conv.stride : 1);
}

static void layer_stats(const comet_collect *c, const comet_collect_tensor *t, const comet_collect_use *u,
                        comet_use_stats *s) {
    const comet_collect_node *n = node_at(c, u->node);
    const double channels = (double)comet_value_shape(c->graph, c->graph->nodes[u->node].output)->channels;
    s->derivative_squares = derivative_of(c, t, u) * mean(n, n->inside);
    s->gradient_squares = n->output_squares / channels;
    s->gradient_mean = n->positions > 0 ? n->output_sizes / (n->positions * channels) : 0;
    s->positions = n->positions;
    if (c->acgc)
        s->acgc = acgc_of_layer(c, t, u);
}

/* What a channel has in common reaches a weight as far as its input correlates with u. */
static double norm_gain(const comet_collect_node *norm, const comet_collect_node *layer) {
    const double common = layer->input_squares > 0 ? layer->common_squares / layer->input_squares : 0;
    return mean(norm, norm->own_gain) + mean(norm, norm->common_gain) * common;
}

/* Errors that are alike where gradients are: more than independent ones add up to; never less than half of their variance. */
static double correction_of(const comet_collect *c, const comet_collect_tensor *t, const comet_collect_use *u) {
    const comet_node *node = &c->graph->nodes[u->node];
    const comet_collect_node *n = node_at(c, u->node);
    if (!t->has_alike)
        return 1;
    if (u->kind == COMET_USE_CONV_WEIGHTS)
        return sqrt(fmax(comet_collect_together(&t->masked, &n->gradient, node->as.conv.stride), 0.5));
    if (u->kind == COMET_USE_NORM_SCALE || u->kind == COMET_USE_NORM_INPUT)
        return sqrt(fmax(comet_collect_together(&t->plain, &n->gradient, 1), 0.5));
    return 1;
}

static void use_stats(const comet_collect *c, const comet_collect_tensor *t, const comet_collect_use *u,
                      comet_use_stats *s) {
    const comet_collect_node *n = node_at(c, u->node), *reached = node_at(c, u->reached);
    switch (u->kind) {
    case COMET_USE_CONV_WEIGHTS:
    case COMET_USE_LINEAR_WEIGHTS:
        layer_stats(c, t, u, s);
        break;
    case COMET_USE_NORM_SCALE: /* what is summed changes with u through a SiLU, too */
        s->derivative_squares = 1;
        s->gradient_squares = u->source >= 0 ? node_at(c, u->source)->scale_squares : n->scale_squares;
        break;
    case COMET_USE_NORM_INPUT:
        s->error_gain = norm_gain(n, reached);
        s->input_squares = reached->input_squares;
        if (c->acgc)
            s->acgc = mean(n, n->acgc) * reached->output_squares;
        break;
    case COMET_USE_CURVE_INPUT: /* a norm takes the mean of its errors away */
        s->error_gain = mean(n, n->curve_gain);
        s->input_squares = t->kind == COMET_SAVED_NORM ? reached->input_variances : reached->input_squares;
        break;
    default:
        s->error_gain = mean(n, n->channel_gain) * derivative_of(c, t, u);
        s->input_squares = reached->input_squares;
    }
}

/* ---- observations ---- */

static double momentum_of(const comet_collect_update *u, int parameter) {
    const comet_optimiser *o = u->optimiser;
    if (o->kind == COMET_ADAMW)
        return comet_momentum_adam(u->means[parameter], u->momentum > 0 ? u->momentum : o->beta1, u->updates);
    const double momentum = o->momentum > 0 && u->momentum > 0 ? u->momentum : o->momentum;
    return comet_momentum_sgd(u->means[parameter], momentum, u->updates);
}

/* 1: all layers that say something of it had their backward. */
static int is_seen(const comet_collect *c, const comet_collect_tensor *t) {
    if (!(t->all.count > 0))
        return 0;
    for (int i = 0; i < t->use_count; i++) {
        const int nodes[] = {t->uses[i].node, t->uses[i].source, t->uses[i].factor, t->uses[i].reached};
        for (size_t k = 0; k < sizeof nodes / sizeof *nodes; k++)
            if (nodes[k] >= 0 && node_at(c, nodes[k])->wants && !(node_at(c, nodes[k])->batches > 0))
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
    for (int i = 0; i < t->use_count; i++) {
        stats[i] = (comet_use_stats){.momentum = momentum_of(update, t->uses[i].parameter)};
        use_stats(c, t, &t->uses[i], &stats[i]);
        stats[i].correction = correction_of(c, t, &t->uses[i]);
    }
    const double batches = t->all.count / (double)t->values;
    c->sizes[tensor] = (comet_control_size){t->all.bound / t->all.streams, t->all.bytes / batches};
    *o = (comet_control_observation){.tensor = tensor,
                                     .size_count = 1,
                                     .rms = t->all.nonzero > 0 ? sqrt(t->all.squares / t->all.nonzero) : 0,
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
    return comet_control_observe(control, iteration, c->observations, count);
}
