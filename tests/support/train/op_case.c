/* SPDX-License-Identifier: Apache-2.0 */
#include "support/train/op_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "support/train/op_run.h"
#include "train/graph/op.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#endif

/* ---- values ---- */

static float rounded(comet_dtype dtype, float v) {
    uint8_t pattern[4];
    comet_loop_of_f32(dtype, &v, 1, pattern);
    comet_loop_to_f32(dtype, pattern, 1, &v);
    return v;
}

static float draw(const op_case *c, rng *r) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, NAN};
    const double spread = c->spread > 0 ? c->spread : 1;
    if (c->odd && rng_below(r, (uint64_t)c->odd) == 0)
        return odd[rng_below(r, sizeof odd / sizeof *odd)];
    return rounded(c->backend->dtype, (float)(spread * rng_gauss(r)));
}

static float *draw_values(const op_case *c, int64_t count, rng *r) {
    float *values = malloc((size_t)count * sizeof *values);
    if (!values)
        abort();
    for (int64_t i = 0; i < count; i++)
        values[i] = draw(c, r);
    return values;
}

/* Weights as products have them; statistics that a norm can have. */
static float draw_parameter(const op_case *c, const comet_parameter *p, rng *r) {
    switch (p->kind) {
    case COMET_CONV_WEIGHT:
    case COMET_LINEAR_WEIGHT:
        return rounded(c->backend->dtype, (float)(rng_gauss(r) / sqrt((double)p->fan_in)));
    case COMET_BIAS:
        return rounded(c->backend->dtype, (float)(0.3 * rng_gauss(r)));
    case COMET_NORM_WEIGHT:
        return (float)((rng_below(r, 4) ? 1 : -1) * (0.5 + rng_unit(r)));
    case COMET_RUNNING_VAR:
        return (float)(0.5 + rng_unit(r));
    default:
        return (float)(0.3 * rng_gauss(r));
    }
}

static op_values values_new(const op_run *run, rng *r) {
    const op_case *c = run->c;
    op_values v = {.y = NULL};
    for (int k = 0; k < run->node->inputs; k++)
        v.x[k] = draw_values(c, op_count(run, run->node->input[k]), r);
    v.dy = draw_values(c, op_count(run, run->node->output), r);
    for (int k = 0; k < OP_PARAMETERS; k++) {
        const comet_parameter *p = comet_node_parameter(run->graph, run->node, k);
        if (!p)
            continue;
        v.parameters[k] = malloc((size_t)p->count * sizeof(float));
        v.gradients[k] = malloc((size_t)p->count * sizeof(float));
        if (!v.parameters[k] || !v.gradients[k])
            abort();
        for (int64_t i = 0; i < p->count; i++) {
            v.parameters[k][i] = draw_parameter(c, p, r);
            v.gradients[k][i] = c->accumulate ? (float)rng_gauss(r) : NAN;
        }
    }
    return v;
}

/* Backward gets what the reference's forward made, as the dtype has it. */
static void take_forward(op_values *v, const op_run *reference) {
    const int64_t count = op_count(reference, reference->node->output);
    v->y = malloc((size_t)count * sizeof *v->y);
    if (!v->y)
        abort();
    for (int64_t i = 0; i < count; i++)
        v->y[i] = rounded(reference->c->backend->dtype, reference->results.y[i]);
    v->mask = reference->results.mask;
}

static void values_free(op_values *v) {
    for (int k = 0; k < 2; k++)
        free(v->x[k]);
    free(v->dy);
    free(v->y);
    for (int k = 0; k < OP_PARAMETERS; k++) {
        free(v->parameters[k]);
        free(v->gradients[k]);
    }
}

/* ---- comparing ---- */

static double greatest_of(const float *values, int64_t count) {
    double greatest = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            greatest = fmax(greatest, fabs((double)values[i]));
    return greatest;
}

/* Half of a unit in the last place: of a value, and of a denormal one. */
static double rounding(comet_dtype dtype, double value) {
    return dtype == COMET_F32 ? 0 : dtype == COMET_BF16 ? fabs(value) * 0x1p-8 : fmax(fabs(value) * 0x1p-11, 0x1p-25);
}

static int is_near(comet_dtype dtype, double got, double expected, double greatest, op_tolerance t) {
    const double nearest = (double)rounded(dtype, (float)expected);
    if (isnan(expected))
        return isnan(got);
    if (got == nearest)
        return 1;
    if (!isfinite(nearest) || !isfinite(got) || (t.of_value == 0 && t.of_greatest == 0))
        return 0;
    return fabs(got - expected) <=
           rounding(dtype, expected) + 0x1p-24 * (t.of_value * fabs(expected) + t.of_greatest * greatest);
}

static int compare(const char *what, comet_dtype dtype, const float *got, const float *expected, int64_t count,
                   op_tolerance t, failure *f) {
    if (!got || !expected)
        return got == expected || failure_set(f, "%s: only one of them has it", what);
    const double greatest = greatest_of(expected, count);
    for (int64_t i = 0; i < count; i++)
        if (!is_near(dtype, (double)got[i], (double)expected[i], greatest, t))
            return failure_set(f, "%s[%lld of %lld] is %.9g, of the reference %.9g", what, (long long)i,
                               (long long)count, (double)got[i], (double)expected[i]);
    return 1;
}

/* A bit for each value that is not 0 or less; the last byte's other bits are 0. */
static int check_mask(const op_run *run, failure *f) {
    const int64_t count = op_count(run, run->node->output);
    for (int64_t i = 0; run->results.mask && i < (count + 7) / 8 * 8; i++) {
        const int bit = run->results.mask[i / 8] >> (i % 8) & 1, is_on = i < count && !(run->results.y[i] <= 0);
        if (bit != is_on)
            return failure_set(f, "mask: bit %lld of %lld is %d", (long long)i, (long long)count, bit);
    }
    return 1;
}

/* Places in windows; what else is kept is the backend's own affair. */
static int check_side(const op_run *run, const op_run *reference, failure *f) {
    if (run->node->kind != COMET_OP_MAX_POOL || run->kernel->side || !run->results.side)
        return 1;
    for (size_t i = 0; i < run->results.side_bytes; i++)
        if (run->results.side[i] != reference->results.side[i])
            return failure_set(f, "byte %zu of the places is %02x, of the reference's %02x", i, run->results.side[i],
                               reference->results.side[i]);
    return 1;
}

static int compare_parameters(const op_run *run, const op_run *reference, int gradients, failure *f) {
    const op_case *c = run->c;
    for (int k = 0; k < OP_PARAMETERS; k++) {
        const comet_parameter *p = comet_node_parameter(run->graph, run->node, k);
        const op_results *a = &run->results, *b = &reference->results;
        if (p && !compare(p->name, COMET_F32, gradients ? a->gradients[k] : a->parameters[k],
                          gradients ? b->gradients[k] : b->parameters[k], p->count,
                          gradients ? c->gradients : c->forward, f))
            return failure_prefix(f, gradients ? "gradient of" : "value of");
    }
    return 1;
}

static int compare_forward(const op_run *run, const op_run *reference, failure *f) {
    const comet_dtype dtype = run->backend->dtype;
    const int64_t count = op_count(run, run->node->output);
    return compare("y", dtype, run->results.y, reference->results.y, count, run->c->forward, f) &&
           (!run->results.again ||
            compare("y made again", dtype, run->results.again, reference->results.y, count, run->c->forward, f)) &&
           check_mask(run, f) && check_side(run, reference, f) && compare_parameters(run, reference, 0, f);
}

static int compare_backward(const op_run *run, const op_run *reference, failure *f) {
    static const char *const names[] = {"dx[0]", "dx[1]"};
    for (int k = 0; k < run->node->inputs; k++)
        if (!compare(names[k], run->backend->dtype, run->results.dx[k], reference->results.dx[k],
                     op_count(run, run->node->input[k]), run->c->backward, f))
            return 0;
    return compare_parameters(run, reference, 1, f);
}

/* ---- twice the same ---- */

static int same_bits(const char *what, const void *a, const void *b, size_t bytes, failure *f) {
    if (!a && !b)
        return 1;
    return (a && b && memcmp(a, b, bytes) == 0) || failure_set(f, "%s: not the same in two runs", what);
}

static int is_repeated(const op_run *run, const op_run *other, failure *f) {
    const op_results *a = &run->results, *b = &other->results;
    const size_t bytes = (size_t)op_count(run, run->node->output) * sizeof(float);
    int same = same_bits("y", a->y, b->y, bytes, f) && same_bits("side", a->side, b->side, a->side_bytes, f);
    for (int k = 0; k < run->node->inputs && same; k++)
        same = same_bits("dx", a->dx[k], b->dx[k], (size_t)op_count(run, run->node->input[k]) * sizeof(float), f);
    for (int k = 0; k < OP_PARAMETERS && same; k++) {
        const comet_parameter *p = comet_node_parameter(run->graph, run->node, k);
        same = !p || (same_bits(p->name, a->parameters[k], b->parameters[k], (size_t)p->count * sizeof(float), f) &&
                      same_bits(p->name, a->gradients[k], b->gradients[k], (size_t)p->count * sizeof(float), f));
    }
    return same;
}

/* ---- the case ---- */

static void shuffle(uint64_t seed) {
#ifdef COMET_CUDA_EMULATION
    emulation_set_block_order(seed);
    emulation_set_thread_order(seed);
#else
    (void)seed;
#endif
}

static int run_all(op_run *run, const op_case *c, op_values *v, const op_run *reference, failure *f) {
    return op_run_new(run, c, c->backend, f) && op_run_write_parameters(run, v, f) && op_run_forward(run, v, f) &&
           compare_forward(run, reference, f) && op_run_backward(run, v, f) && compare_backward(run, reference, f);
}

/* `plain`: the case as the reference is asked. */
static int agrees(const op_case *c, const op_case *plain, op_run runs[3], op_values *v, failure *f) {
    rng r = rng_seed(c->random);
    if (!op_run_new(&runs[0], plain, c->reference, f))
        return failure_prefix(f, "the reference");
    *v = values_new(&runs[0], &r);
    if (!op_run_write_parameters(&runs[0], v, f) || !op_run_forward(&runs[0], v, f))
        return failure_prefix(f, "the reference");
    take_forward(v, &runs[0]);
    if (!op_run_backward(&runs[0], v, f))
        return failure_prefix(f, "the reference");
    for (int i = 1; i < 3; i++) {
        shuffle(i == 1 ? 0 : c->random + 1);
        if (!run_all(&runs[i], c, v, &runs[0], f))
            return 0;
    }
    return is_repeated(&runs[1], &runs[2], f);
}

static int describe(const op_case *c, failure *f) {
    failure ignored;
    comet_graph *g = NULL;
    const comet_node *node;
    if (!op_graph_new(c, &g, &node, &ignored))
        return 0;
    const comet_shape *in = comet_value_shape(g, node->input[0]), *out = comet_value_shape(g, node->output);
    failure_prefix(
        f, "%s of %s, %d x %d x %d x %d to %d x %d x %d, values %llu%s%s%s, y over %d, dx over %d, without %u",
        comet_op_name(node->kind), comet_dtype_name(c->backend->dtype), c->batch, in->height, in->width, in->channels,
        out->height, out->width, out->channels, (unsigned long long)c->random, c->mask ? ", mask" : "",
        c->relu ? ", ReLU" : "", c->accumulate ? ", added" : "", c->y_over - 1, (int)c->dx_over, c->no_dx);
    comet_graph_free(g);
    return 0;
}

int op_case_agrees(const op_case *c, failure *f) {
    op_run runs[3];
    op_values v;
    op_case plain = *c; /* the reference is not asked to write over anything */
    plain.y_over = 0;
    plain.dx_over = OP_BESIDE;
    memset(runs, 0, sizeof runs);
    memset(&v, 0, sizeof v);
    const int fine = agrees(c, &plain, runs, &v, f);
    for (int i = 0; i < 3; i++)
        op_run_free(&runs[i]);
    values_free(&v);
    shuffle(0);
    return fine || describe(c, f);
}

/* Where a plan may put the first input's gradient (train/plan/plan_backward.c). */
static op_over draw_over(const op_case *c, const comet_node *node, unsigned traits, rng *r) {
    const int beside = c->backend->fused_streams && node->kind == COMET_OP_BATCH_NORM;
    const int has_need = (traits & (COMET_NEEDS_X0 | COMET_NEEDS_Y)) || ((traits & COMET_NEEDS_SIGN) && !c->mask);
    switch (rng_below(r, 3)) {
    case 0:
        return (traits & COMET_DX_OVER_DY) ? OP_OVER_DY : OP_BESIDE;
    case 1:
        return (traits & COMET_DX_OVER_NEED) && has_need && !beside ? OP_OVER_NEED : OP_BESIDE;
    default:
        return OP_BESIDE;
    }
}

void op_case_vary(op_case *c, rng *r) {
    failure ignored;
    comet_graph *g = NULL;
    const comet_node *node;
    c->random = rng_next(r);
    c->seed = rng_next(r);
    c->step = rng_below(r, 1000);
    c->first_sample = (int64_t)rng_below(r, 3) * c->batch;
    c->mask = c->has_mask && !c->evaluation && rng_below(r, 2);
    c->accumulate = (int)rng_below(r, 2);
    if (op_graph_new(c, &g, &node, &ignored)) {
        const unsigned traits = comet_op_traits(g, node);
        const uint64_t over = (traits & COMET_Y_OVER_X) ? (node->kind == COMET_OP_ADD ? 3 : 2) : 1;
        c->y_over = (int)rng_below(r, over);
        c->no_dx = rng_below(r, 4) ? 0 : (unsigned)rng_below(r, 1u << node->inputs);
        c->dx_over = draw_over(c, node, traits, r);
    }
    comet_graph_free(g);
}
