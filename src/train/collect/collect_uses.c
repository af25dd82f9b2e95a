/* SPDX-License-Identifier: Apache-2.0 */
/* What saved tensors are used for: each backward that reads one, and the gradient that an error in it reaches. */
#include "train/collect/collect_impl.h"
#include "train/plan/plan_impl.h"

static const comet_collect_use no_use = {.node = -1, .source = -1, .factor = -1, .reached = -1, .parameter = -1};

static comet_collect_tensor *tensor_at(comet_collect *c, int32_t index) {
    return index < 0 ? NULL : &c->tensors[index];
}

/* An error in a gradient that nobody computes is none. */
static int is_trained(const comet_graph *g, int node) {
    const comet_parameter *weight = comet_node_parameter(g, &g->nodes[node], COMET_PARAMETER_WEIGHT);
    return weight && comet_parameter_is_trained(weight);
}

static void add_use(comet_collect *c, comet_collect_tensor *t, comet_collect_use use, int reached, int wants) {
    if (!t || reached < 0 || !is_trained(c->graph, reached))
        return;
    if (t->use_count == COMET_COLLECT_MOST_USES) {
        c->too_many = 1;
        return;
    }
    use.reached = reached;
    use.parameter = c->graph->nodes[reached].parameter[COMET_PARAMETER_WEIGHT];
    t->uses[t->use_count++] = use;
    c->nodes[use.node].wants |= wants;
}

/* The trained convolution or linear layer that makes a value, through nodes that change nothing; -1. */
static int layer_before(const comet_plan *p, comet_value v) {
    const int node = p->graph->values[comet_plan_root(p, v)].producer;
    const int is_layer =
        node >= 0 && (p->graph->nodes[node].kind == COMET_OP_CONV || p->graph->nodes[node].kind == COMET_OP_LINEAR);
    return is_layer && is_trained(p->graph, node) ? node : -1;
}

/* What a backward reads as `v`: the tensor that it comes from, and how. */
typedef struct origin {
    int32_t tensor;
    int source;
} origin;

static origin origin_of(const comet_collect *c, const comet_plan *p, comet_value v) {
    v = comet_plan_root(p, v);
    const int norm = p->value_norm[v];
    if (norm < 0)
        return (origin){c->of_value[v], -1};
    const int node = p->entries[norm].node, producer = p->graph->values[v].producer;
    return (origin){c->of_norm[node], p->value_rebuild[v] == COMET_REBUILD_SILU ? producer : node};
}

/* 1: a product of channels and factors that is made again where it is needed. */
static int is_product(const comet_plan *p, comet_value v) {
    const int entry = p->value_entry[v], node = p->graph->values[v].producer;
    return entry >= 0 && node >= 0 && p->graph->nodes[node].kind == COMET_OP_SCALE &&
           p->entries[entry].form.form == COMET_FORM_RECOMPUTE;
}

static void layer_uses(comet_collect *c, const comet_plan *p, int i) {
    const comet_node *node = &p->graph->nodes[i];
    comet_collect_use use = no_use;
    comet_value x = comet_plan_root(p, node->input[0]);
    if (!is_trained(p->graph, i))
        return;
    use.kind = node->kind == COMET_OP_CONV ? COMET_USE_CONV_WEIGHTS : COMET_USE_LINEAR_WEIGHTS;
    use.node = i;
    if (is_product(p, x)) {
        use.factor = p->graph->values[x].producer;
        c->nodes[use.factor].wants |= COMET_WANT_FACTORS;
        x = p->graph->nodes[use.factor].input[0];
    }
    const origin from = origin_of(c, p, x);
    use.source = from.source;
    add_use(c, tensor_at(c, from.tensor), use, i, COMET_WANT_OUTPUT);
    if (from.source >= 0)
        c->nodes[from.source].wants |=
            p->graph->nodes[from.source].kind == COMET_OP_SILU ? COMET_WANT_SILU : COMET_WANT_NORM;
}

/* The SiLU that is alone behind a norm whose stored input it is rebuilt from; -1. */
static int silu_behind(const comet_plan *p, int norm) {
    for (int i = norm + 1; i < p->n; i++)
        if (p->graph->nodes[i].kind == COMET_OP_SILU && p->graph->nodes[i].input[0] == p->graph->nodes[norm].output)
            return i;
    return -1;
}

static void norm_uses(comet_collect *c, const comet_plan *p, int i) {
    const int before = layer_before(p, p->graph->nodes[i].input[0]);
    const int stored_once = p->norm_entry[i] >= 0, silu = stored_once ? silu_behind(p, i) : -1;
    comet_collect_tensor *t =
        tensor_at(c, stored_once ? c->of_norm[i] : c->of_value[comet_plan_root(p, p->graph->nodes[i].input[0])]);
    comet_collect_use use = no_use;
    use.kind = COMET_USE_NORM_SCALE;
    use.node = i;
    use.source = silu;
    add_use(c, t, use, i, COMET_WANT_NORM);
    use.source = -1;
    use.kind = COMET_USE_NORM_INPUT;
    add_use(c, t, use, before, COMET_WANT_NORM);
    if (t && before >= 0)
        c->nodes[before].wants |= COMET_WANT_INPUT | COMET_WANT_COMMON | (c->acgc ? COMET_WANT_OUTPUT : 0);
}

/* A SiLU reads its input: a norm's output, or what a layer made. */
static void silu_uses(comet_collect *c, const comet_plan *p, int i) {
    const comet_value y = p->graph->nodes[i].input[0];
    const int maker = p->graph->values[y].producer;
    const int norm = maker >= 0 && p->graph->nodes[maker].kind == COMET_OP_BATCH_NORM ? maker : -1;
    const int before = layer_before(p, norm >= 0 ? p->graph->nodes[norm].input[0] : y);
    comet_collect_tensor *t = tensor_at(c, origin_of(c, p, y).tensor);
    comet_collect_use use = no_use;
    use.kind = COMET_USE_CURVE_INPUT;
    use.node = i;
    add_use(c, t, use, before, COMET_WANT_SILU);
    if (t && before >= 0)
        c->nodes[before].wants |= COMET_WANT_INPUT;
}

/* The factors' gradient is a sum over x; behind a sigmoid it reaches the layer that made them. */
static void scale_uses(comet_collect *c, const comet_plan *p, int i) {
    const comet_node *node = &p->graph->nodes[i];
    const int sigmoid = p->graph->values[node->input[1]].producer;
    const int squashed = sigmoid >= 0 && p->graph->nodes[sigmoid].kind == COMET_OP_SIGMOID;
    const int before = squashed ? layer_before(p, p->graph->nodes[sigmoid].input[0]) : -1;
    const origin from = origin_of(c, p, node->input[0]);
    comet_collect_tensor *t = tensor_at(c, from.tensor);
    comet_collect_use use = no_use;
    use.kind = COMET_USE_CHANNEL_SCALE;
    use.node = i;
    use.source = from.source;
    add_use(c, t, use, before, COMET_WANT_FACTORS);
    if (t && before >= 0)
        c->nodes[before].wants |= COMET_WANT_INPUT;
}

void comet_collect_find_uses(comet_collect *c, const comet_plan *p) {
    for (int i = 0; i < p->n; i++) {
        const comet_op_kind kind = p->graph->nodes[i].kind;
        if (p->nodes[i].skip || p->nodes[i].dy < 0)
            continue;
        if (kind == COMET_OP_CONV || kind == COMET_OP_LINEAR)
            layer_uses(c, p, i);
        else if (kind == COMET_OP_BATCH_NORM)
            norm_uses(c, p, i);
        else if (kind == COMET_OP_SILU)
            silu_uses(c, p, i);
        else if (kind == COMET_OP_SCALE)
            scale_uses(c, p, i);
    }
}
