/* SPDX-License-Identifier: Apache-2.0 */
/* From what was seen of tensors and layers to the statistics of a use. */
#include <math.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "control/collect/call.h"
#include "control/collect/neighbours.h"

/* ---- arguments ---- */

/* What each kind cannot do without. */
typedef struct needs {
    int layer, norm, silu, scale;
} needs;

static const needs needed[COMET_USE_KINDS] = {
    [COMET_USE_CONV_WEIGHTS] = {.layer = 1},
    [COMET_USE_LINEAR_WEIGHTS] = {.layer = 1},
    [COMET_USE_NORM_SCALE] = {.norm = 1},
    [COMET_USE_NORM_INPUT] = {.layer = 1, .norm = 1},
    [COMET_USE_CURVE_INPUT] = {.layer = 1, .silu = 1},
    [COMET_USE_CHANNEL_SCALE] = {.layer = 1, .scale = 1},
};

/* A part that is given has its size and a batch; one that is needed is given. */
#define IS_SEEN(part, is_needed) ((part) ? (part)->size == sizeof *(part) && (part)->batches > 0 : !(is_needed))

static comet_status check(const comet_stats_use *u) {
    COMET_REQUIRE((unsigned)u->kind < COMET_USE_KINDS, "use->kind is %d, which is none", (int)u->kind);
    COMET_REQUIRE(!(u->momentum < 0), "use->momentum is %g: it must not be negative", u->momentum);
    COMET_REQUIRE(!(u->weight_gradient_squares < 0), "use->weight_gradient_squares is %g: it must not be negative",
                  u->weight_gradient_squares);
    const needs *n = &needed[u->kind];
    COMET_TRY(comet_stats_check_size(u->tensor, sizeof *u->tensor, "use->tensor"));
    COMET_REQUIRE(u->tensor->count > 0, "use->tensor has seen nothing");
    const char *unseen = !IS_SEEN(u->layer, n->layer)   ? "layer"
                         : !IS_SEEN(u->norm, n->norm)   ? "norm"
                         : !IS_SEEN(u->silu, n->silu)   ? "silu"
                         : !IS_SEEN(u->scale, n->scale) ? "scale"
                                                        : NULL;
    COMET_REQUIRE(!unseen, "use->%s is missing or has not seen a batch", unseen);
    return COMET_OK;
}

/* ---- each kind ---- */

/* Of what a layer reads, by what is stored. */
static double derivative_of(const comet_stats_use *u) {
    double derivative = u->tensor->nonzero / u->tensor->count;
    if (u->silu)
        derivative = u->silu->derivative / u->silu->batches;
    else if (u->norm)
        derivative = u->norm->derivative / u->norm->batches;
    return derivative;
}

static double acgc_of_layer(const comet_stats_use *u) {
    const comet_stats_layer *l = u->layer;
    const double stride = sqrt((double)l->stride[0] * l->stride[1]);
    return comet_acgc_conv(u->weight_gradient_squares, l->gradient_squares, u->tensor->count, l->kernel, stride);
}

static void weights_use(const comet_stats_use *u, comet_use_stats *s) {
    const comet_stats_layer *l = u->layer;
    double derivative = derivative_of(u);
    if (u->scale) /* taken as independent of what they multiply */
        derivative *= u->scale->squares / u->scale->batches;
    s->derivative_squares = derivative * (l->inside / l->batches);
    s->gradient_squares = l->gradient_squares / l->outputs;
    s->gradient_mean = l->gradient_sizes / (l->positions * l->outputs);
    s->positions = l->positions;
    s->samples = l->samples;
    s->buffer = u->buffer;
    s->acgc = acgc_of_layer(u);
}

/* What a channel has in common reaches a weight as far as its input correlates with u. */
static double norm_gain(const comet_stats_norm *n, const comet_stats_layer *l) {
    const double common = l->input_squares > 0 ? l->common_squares / l->input_squares : 0;
    return n->own_gain / n->batches + n->common_gain / n->batches * common;
}

/*
 * Errors that are alike where gradients are: more than independent ones add up to; never less than half of their
 * variance.
 */
static double correction_of(const comet_stats_use *u) {
    static const int32_t one[2] = {1, 1};
    const comet_stats_tensor *t = u->tensor;
    if (!t->has_alike)
        return 1;
    if (u->kind == COMET_USE_CONV_WEIGHTS)
        return sqrt(fmax(comet_alike_together(&t->passed, &u->layer->gradient, u->layer->stride), 0.5));
    if (u->kind == COMET_USE_NORM_SCALE || u->kind == COMET_USE_NORM_INPUT)
        return sqrt(fmax(comet_alike_together(&t->all, &u->norm->gradient, one), 0.5));
    return 1;
}

static void fill(const comet_stats_use *u, comet_use_stats *s) {
    switch (u->kind) {
    case COMET_USE_CONV_WEIGHTS:
    case COMET_USE_LINEAR_WEIGHTS:
        weights_use(u, s);
        break;
    case COMET_USE_NORM_SCALE: /* what is summed changes with u through a SiLU, too */
        s->derivative_squares = 1;
        s->gradient_squares = u->silu ? u->silu->scale_squares : u->norm->scale_squares;
        break;
    case COMET_USE_NORM_INPUT:
        s->error_gain = norm_gain(u->norm, u->layer);
        s->input_squares = u->layer->input_squares;
        s->acgc = u->norm->acgc > 0 ? u->norm->acgc / u->norm->batches * u->layer->gradient_squares : 0;
        break;
    case COMET_USE_CURVE_INPUT: /* a norm takes the mean of its errors away */
        s->error_gain = u->silu->curve_gain / u->silu->batches;
        s->input_squares = u->norm ? u->layer->input_variances : u->layer->input_squares;
        break;
    default:
        s->error_gain = u->scale->gain / u->scale->batches * derivative_of(u);
        s->input_squares = u->layer->input_squares;
    }
    s->correction = correction_of(u);
}

comet_status comet_stats_of_use(const comet_stats_use *use, comet_use_stats *stats) {
    static const comet_stats_use defaults = COMET_STATS_USE_INIT;
    comet_stats_use u;
    fenv_t callers;
    comet_begin();
    COMET_REQUIRE_POINTER(use);
    COMET_REQUIRE_POINTER(stats);
    COMET_TRY(comet_sized_read(&u, sizeof u, use, &defaults, "use"));
    COMET_TRY(check(&u));
    comet_fp_enter(&callers);
    *stats = (comet_use_stats){.momentum = u.momentum};
    fill(&u, stats);
    const double all[] = {stats->derivative_squares, stats->gradient_squares, stats->gradient_mean, stats->error_gain,
                          stats->input_squares,      stats->momentum,         stats->acgc,          stats->correction};
    const comet_status status = comet_stats_finite(all, (int)(sizeof all / sizeof *all));
    comet_fp_leave(&callers);
    return status;
}
