/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the errors of the tensors that are kept as they were do to gradients: computed when a backward comes, from what
 * it is given and what was kept. docs/measured.md says what is computed.
 */
#include <math.h>

#include "train/collect/collect_impl.h"

static comet_errors_kept kept_of(const comet_collect_kept *k, const float *values) {
    return (comet_errors_kept){values, k->first, k->width};
}

static const float *parameter_of(const comet_graph *g, const comet_node *node, int place) {
    return comet_node_parameter(g, node, place)->value;
}

static int node_of(const comet_op_call *call) {
    return (int)(call->node - call->graph->nodes);
}

static int is_layer(const comet_node *node) {
    return node->kind == COMET_OP_CONV || node->kind == COMET_OP_LINEAR;
}

/* What a backward reads, rebuilt from a tensor's channels: `source` is the norm or SiLU that it comes through, -1. */
static comet_errors_operand operand_of(const comet_collect *c, const comet_collect_kept *k, int source) {
    const comet_collect_tensor *t = &c->tensors[k->tensor];
    comet_errors_operand o = {.kept = kept_of(k, k->exact)};
    if (source < 0 || t->kind != COMET_SAVED_NORM)
        return o;
    const comet_node *norm = &c->graph->nodes[t->node];
    o.gamma = parameter_of(c->graph, norm, COMET_PARAMETER_WEIGHT);
    o.beta = parameter_of(c->graph, norm, COMET_PARAMETER_BIAS);
    if (c->graph->nodes[source].kind == COMET_OP_SILU)
        o.what = COMET_REBUILD_SILU;
    else if (c->keeping.turns[k->tensor].has_relu)
        o.what = COMET_REBUILD_RELU;
    return o;
}

/* ---- weights of layers ---- */

/* 2, 4, 8 or 16 channels of the other side, so that there are not many more sums than are wanted. */
enum { SUMS_WANTED = 144 };

typedef struct other_side {
    int first, count;
} other_side;

/* A number below `count` that follows from the turn: the channels of both sides are not to go in step. */
static int drawn(int64_t turn, int32_t tensor, int count) {
    uint64_t x = (uint64_t)turn * 0x9E3779B97F4A7C15u + (uint64_t)tensor * 0xBF58476D1CE4E5B9u;
    x ^= x >> 31;
    x *= 0x94D049BB133111EBu;
    x ^= x >> 29;
    return (int)(x % (uint64_t)count);
}

/* `channels` and `per_group` of the other side; `group`: of the first channel with an error. */
static other_side choose_others(const comet_collect *c, const comet_collect_kept *k, int taps, int channels,
                                int per_group, int group) {
    int count = COMET_ERRORS_OTHERS;
    while (count > 2 && count * k->width * taps > SUMS_WANTED)
        count /= 2;
    if (per_group < channels) { /* those of the groups that the kept channels are in */
        const int first = group * per_group, most = channels - first;
        count = per_group > 1 ? count : k->width;
        return (other_side){first, count < most ? count : most};
    }
    if (count >= channels)
        return (other_side){0, channels < COMET_ERRORS_OTHERS ? channels : COMET_ERRORS_OTHERS};
    return (other_side){drawn(c->keeping.turn, k->tensor, channels - count + 1), count};
}

/* Weights of groups: a pair that has none in common counts for nothing. */
static int count_values(const comet_errors_layer *l, int first) {
    const int64_t inputs = l->x->shape[3] / l->groups, outputs = l->dy->shape[3] / l->groups,
                  mine = l->exact ? inputs : outputs, others = l->exact ? outputs : inputs;
    int count = 0;
    for (int i = 0; i < l->count; i++)
        for (int j = 0; j < l->others; j++)
            count += (first + i) / mine == (l->other + j) / others;
    return count * l->kernel[0] * l->kernel[1];
}

/* An error in what the layer reads (exact), or in the gradient of what it makes (error). */
static void measure_layer(comet_collect *c, const comet_op_call *call, const comet_collect_kept *k,
                          const comet_errors_operand *exact, const comet_errors_kept *error,
                          comet_collect_measured *m) {
    const comet_node *node = call->node;
    comet_tensor x = comet_collect_tensor_of(call->backend, call->graph, node->input[0], call->batch),
                 dy = comet_collect_tensor_of(call->backend, call->graph, node->output, call->batch);
    comet_errors_layer l = {.x = &x,
                            .dy = &dy,
                            .kernel = {1, 1},
                            .stride = 1,
                            .groups = 1,
                            .exact = exact,
                            .error = error,
                            .workspace = c->keeping.workspace};
    x.data = (void *)call->x[0];
    dy.data = (void *)call->dy;
    if (node->kind == COMET_OP_CONV) {
        const comet_conv2d *conv = &node->as.conv;
        l.kernel[0] = conv->kernel;
        l.kernel[1] = conv->kernel_width;
        l.padding[0] = conv->padding;
        l.padding[1] = conv->padding_width;
        l.stride = conv->stride;
        l.groups = conv->groups;
    }
    const int taps = l.kernel[0] * l.kernel[1], others = (int)(exact ? dy.shape[3] : x.shape[3]),
              mine = (int)(exact ? x.shape[3] : dy.shape[3]);
    const other_side side = choose_others(c, k, taps, others, others / l.groups, k->first / (mine / l.groups));
    l.other = side.first;
    l.others = side.count;
    l.count = k->width;
    while (l.count > 1 && l.count * l.others * taps > COMET_ERRORS_SUMS)
        l.count--;
    const int values = count_values(&l, k->first);
    if (l.count * l.others * taps > COMET_ERRORS_SUMS || values == 0 || !x.data)
        return;
    comet_collect_check(c, c->backend->errors->layer(c->backend, &l, m->sums));
    m->values = values;
    m->count = l.count;
    m->other = l.other;
    m->others = l.others;
    m->seen++;
}

/* A view of a tensor that has other channels than the tensor is not measured. */
static void measure_input(comet_collect *c, const comet_op_call *call, comet_collect_kept *k,
                          const comet_collect_use *u, comet_collect_measured *m) {
    const comet_shape *read = comet_value_shape(c->graph, call->node->input[0]),
                      *kept = comet_value_shape(c->graph, c->tensors[k->tensor].value);
    comet_errors_operand exact = operand_of(c, k, u->source);
    if (read->channels != kept->channels || (int64_t)c->batch * read->height * read->width != k->rows)
        return;
    if (u->factor >= 0) {
        if (!k->has_factors)
            return;
        exact.factors = k->small;
    }
    measure_layer(c, call, k, &exact, NULL, m);
}

static void measure_output(comet_collect *c, const comet_op_call *call, const comet_collect_kept *k,
                           const comet_collect_use *u, comet_collect_measured *m) {
    const comet_shape *made = comet_value_shape(c->graph, call->node->output);
    const int is_own = u->kind == COMET_USE_CHANNEL_SCALE;
    const int64_t rows = is_own ? c->batch : k->rows;
    comet_errors_kept error = kept_of(k, is_own ? k->small : k->error);
    if ((is_own ? k->has_own : k->error != NULL) && (int64_t)c->batch * made->height * made->width == rows)
        measure_layer(c, call, k, NULL, &error, m);
}

/* ---- batch norms ---- */

static void norm_pass(const comet_op_call *call, const comet_collect_kept *k, int is_normalised, int part, int parts,
                      comet_tensor *x, comet_tensor *dy, comet_errors_norm *n) {
    const comet_node *node = call->node;
    const float *side = call->side;
    *x = comet_collect_tensor_of(call->backend, call->graph, node->input[0], call->batch / parts);
    *dy = comet_collect_tensor_of(call->backend, call->graph, node->output, call->batch / parts);
    x->data = (void *)call->x[0];
    dy->data = (char *)call->dy + (size_t)(part * comet_tensor_count(dy)) * comet_dtype_size(dy->dtype);
    *n = (comet_errors_norm){.x = x,
                             .dy = dy,
                             .scale = side,
                             .shift = side + comet_value_shape(call->graph, node->output)->channels,
                             .gamma = parameter_of(call->graph, node, COMET_PARAMETER_WEIGHT),
                             .beta = parameter_of(call->graph, node, COMET_PARAMETER_BIAS),
                             .normalised = call->normalised,
                             .relu = call->relu,
                             .mask = call->mask,
                             .row = part * x->shape[0] * x->shape[1] * x->shape[2],
                             .rows = k->rows,
                             .kept = kept_of(k, k->exact),
                             .kept_normalised = is_normalised,
                             .totals = k->totals};
}

/* Of the norm's scale; NULL: none. */
static comet_collect_measured *scale_of(const comet_collect_tensor *t, const comet_collect_kept *k, int node) {
    for (int u = 0; u < t->use_count; u++)
        if (t->uses[u].node == node && t->uses[u].kind == COMET_USE_NORM_SCALE)
            return &k->uses[u];
    return NULL;
}

/* The part's sums; with the last of them all of them are there. */
static void add_sums(comet_collect *c, const comet_errors_norm *n, comet_collect_measured *m) {
    comet_collect_check(c, c->backend->errors->norm(c->backend, n, m ? m->sums : NULL));
    if (!m)
        return;
    m->values = n->kept.width;
    m->seen++;
}

/* Sums of the part, if it is there for the first time; then the error of dX in it, when all sums are there. */
static void measure_norm(comet_collect *c, const comet_op_call *call, comet_collect_kept *k, int part, int parts,
                         int again) {
    const comet_collect_tensor *t = &c->tensors[k->tensor];
    const int is_once = t->kind == COMET_SAVED_NORM, has_second = k->second != NULL, is_last = part == parts - 1;
    comet_tensor x, dy;
    comet_errors_norm n;
    norm_pass(call, k, is_once, part, parts, &x, &dy, &n);
    n.curve = is_once && has_second ? k->second : NULL;
    n.workspace = c->keeping.workspace;
    if (!again)
        add_sums(c, &n, is_last ? scale_of(t, k, node_of(call)) : NULL);
    if (!again && !is_last)
        return;
    n.error = has_second ? k->second : k->exact;
    comet_collect_check(c, c->backend->errors->norm(c->backend, &n, NULL));
    k->error = n.error;
}

/* Of a norm stored once with a SiLU behind it: that one's backward has been. */
static int is_ready(const comet_collect_kept *k, const comet_collect_tensor *t) {
    return t->kind != COMET_SAVED_NORM || !k->second || k->has_curve;
}

static void norm_errors(comet_collect *c, const comet_op_call *call, int part, int parts, int again) {
    const int node = node_of(call);
    for (int i = 0; i < c->keeping.count; i++) {
        comet_collect_kept *k = &c->keeping.kept[i];
        const comet_collect_tensor *t = &c->tensors[k->tensor];
        int reads = 0;
        for (int u = 0; u < t->use_count; u++)
            reads |= t->uses[u].node == node;
        if (reads && comet_collect_is_whole(k) && is_ready(k, t))
            measure_norm(c, call, k, part, parts, again);
    }
}

/* ---- SiLUs and channel scales ---- */

/* Of a norm's u: for its backward. Of the SiLU's input itself: the error of its gradient. */
static void measure_silu(comet_collect *c, const comet_op_call *call, comet_collect_kept *k) {
    const int is_once = c->tensors[k->tensor].kind == COMET_SAVED_NORM;
    comet_tensor x = comet_collect_tensor_of(call->backend, call->graph, call->node->input[0], call->batch),
                 dy = comet_collect_tensor_of(call->backend, call->graph, call->node->output, call->batch);
    x.data = (void *)call->x[0];
    dy.data = (void *)call->dy;
    const int norm = is_once ? c->tensors[k->tensor].node : -1;
    const comet_errors_silu s = {
        .x = &x, .dy = &dy, .exact = operand_of(c, k, norm), .sign = is_once ? 1 : -1, .curve = k->second};
    comet_collect_check(c, c->backend->errors->silu(c->backend, &s));
    k->has_curve = is_once;
    k->error = is_once ? NULL : k->second;
}

static void measure_scale(comet_collect *c, const comet_op_call *call, comet_collect_kept *k,
                          const comet_collect_use *u) {
    comet_tensor x = comet_collect_tensor_of(call->backend, call->graph, call->node->input[0], call->batch),
                 s = comet_collect_tensor_of(call->backend, call->graph, call->node->input[1], call->batch),
                 dy = comet_collect_tensor_of(call->backend, call->graph, call->node->output, call->batch);
    x.data = (void *)call->x[0];
    s.data = (void *)call->x[1];
    dy.data = (void *)call->dy;
    const comet_errors_scale scale = {
        .x = &x, .factors = &s, .dy = &dy, .exact = operand_of(c, k, u->source), .error = k->small};
    comet_collect_check(c, c->backend->errors->scale(c->backend, &scale));
    k->has_own = 1;
}

void comet_collect_forward(comet_collect *c, const comet_op_call *call) {
    comet_tensor s;
    if (call->node->kind != COMET_OP_SCALE || c->keeping.count == 0)
        return;
    s = comet_collect_tensor_of(call->backend, call->graph, call->node->input[1], call->batch);
    s.data = (void *)call->x[1];
    for (int i = 0; i < c->keeping.count; i++) {
        comet_collect_kept *k = &c->keeping.kept[i];
        const comet_collect_tensor *t = &c->tensors[k->tensor];
        int reads = 0;
        for (int u = 0; u < t->use_count; u++)
            reads |= t->uses[u].factor == node_of(call);
        if (!reads)
            continue;
        comet_collect_check(c, c->backend->errors->keep(c->backend, &s, NULL, k->first, k->width, k->small));
        k->has_factors = 1;
    }
}

/* ---- at a node's backward ---- */

static void measure_use(comet_collect *c, const comet_op_call *call, comet_collect_kept *k, int use) {
    const comet_collect_use *u = &c->tensors[k->tensor].uses[use];
    const int node = node_of(call);
    if (u->node == node && is_layer(call->node))
        measure_input(c, call, k, u, &k->uses[use]);
    else if (u->node == node && u->kind == COMET_USE_CURVE_INPUT)
        measure_silu(c, call, k);
    else if (u->node == node && u->kind == COMET_USE_CHANNEL_SCALE)
        measure_scale(c, call, k, u);
    else if (u->reached == node && is_layer(call->node))
        measure_output(c, call, k, u, &k->uses[use]);
}

/* 1: an earlier use of the tensor reaches the same gradient, and has the errors of both. */
static int is_shared(const comet_collect_tensor *t, int use) {
    for (int u = 0; u < use; u++)
        if (t->uses[u].parameter == t->uses[use].parameter)
            return 1;
    return 0;
}

void comet_collect_errors(comet_collect *c, const comet_op_call *call) {
    if (call->node->kind == COMET_OP_BATCH_NORM) {
        norm_errors(c, call, 0, 1, 0);
        return;
    }
    for (int i = 0; i < c->keeping.count; i++) {
        comet_collect_kept *k = &c->keeping.kept[i];
        const comet_collect_tensor *t = &c->tensors[k->tensor];
        for (int u = 0; u < t->use_count && comet_collect_is_whole(k); u++)
            if (t->uses[u].node == node_of(call) || !is_shared(t, u))
                measure_use(c, call, k, u);
    }
}

void comet_collect_part_errors(comet_collect *c, const comet_op_call *call, int part, int parts, int again) {
    norm_errors(c, call, part, parts, again);
}

/* ---- what follows ---- */

static double mean_square(const comet_collect_measured *m) {
    double sum = 0;
    for (int i = 0; i < COMET_ERRORS_SUMS; i++)
        sum += m->sums[i] * m->sums[i];
    return sum / m->values;
}

static double predicted_square(const comet_collect_tensor *t, int parameter, double bound,
                               const comet_use_stats *stats) {
    double sum = 0;
    for (int u = 0; u < t->use_count; u++) {
        const double sigma = comet_error_sensitivity(t->uses[u].kind, &stats[u]) * bound;
        sum += t->uses[u].parameter == parameter ? sigma * sigma : 0;
    }
    return sum;
}

/* Of the first use that reaches the gradient, for all that do. */
static void set_factors(const comet_collect_tensor *t, int use, const comet_collect_measured *m, double bound,
                        comet_use_stats *stats) {
    const int parameter = t->uses[use].parameter;
    const double predicted = predicted_square(t, parameter, bound, stats), measured = mean_square(m);
    const double factor = predicted > 0 && isfinite(measured) ? comet_error_factor(measured, predicted) : 0;
    for (int u = use; u < t->use_count; u++)
        if (t->uses[u].parameter == parameter)
            stats[u].factor = factor;
}

void comet_collect_factors(comet_collect *c, int32_t tensor, double bound, comet_use_stats *stats) {
    const comet_collect_tensor *t = &c->tensors[tensor];
    for (int i = 0; i < c->keeping.count; i++) {
        const comet_collect_kept *k = &c->keeping.kept[i];
        for (int u = 0; u < t->use_count && k->tensor == tensor; u++) {
            const comet_collect_measured *m = &k->uses[u];
            if (!is_shared(t, u) && m->seen > 0 && m->seen == c->keeping.batches)
                set_factors(t, u, m, bound, stats);
        }
    }
}
