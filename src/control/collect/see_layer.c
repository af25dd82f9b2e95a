/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a convolution or linear layer: how large dY and x are, and how far outputs correlate with x. */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "control/collect/call.h"
#include "control/collect/layer.h"
#include "control/collect/neighbours.h"

/* ---- arguments ---- */

static int64_t expected_output(const comet_layer *l, int axis) {
    const int64_t in = axis ? l->in.width : l->in.height;
    const int64_t room = in + 2 * (int64_t)l->padding[axis] - (int64_t)l->dilation[axis] * (l->kernel[axis] - 1) - 1;
    return room < 0 ? 0 : room / l->stride[axis] + 1;
}

static int fits(const comet_layer *l) {
    for (int axis = 0; axis < 2; axis++)
        if (l->kernel[axis] < 1 || l->stride[axis] < 1 || l->padding[axis] < 0 || l->dilation[axis] < 1)
            return 0;
    return l->groups >= 1 && l->in.channels % l->groups == 0 && l->out.channels % l->groups == 0 &&
           l->in.images == l->out.images && l->out.height == expected_output(l, 0) &&
           l->out.width == expected_output(l, 1);
}

static int is_right(const comet_layer_pass *p) {
    const uint32_t all = COMET_STATS_OUTPUT | COMET_STATS_INPUT | COMET_STATS_COMMON;
    const int has_common = (p->what & COMET_STATS_COMMON) != 0;
    return p->what != 0 && (p->what & ~all) == 0 && (!has_common || (p->what & COMET_STATS_INPUT));
}

static comet_status layer_of(const comet_layer_pass *given, int shape_only, comet_layer_pass *p, comet_layer *l) {
    static const comet_layer_pass defaults = COMET_LAYER_PASS_INIT;
    COMET_REQUIRE(given, "pass is NULL");
    COMET_TRY(comet_sized_read(p, sizeof *p, given, &defaults, "pass"));
    COMET_REQUIRE(is_right(p), "pass->what is %u: it must be OUTPUT, INPUT, and COMMON only with INPUT", p->what);
    COMET_REQUIRE(shape_only || !(p->what & COMET_STATS_COMMON) || p->weights, "pass->weights is NULL");
    COMET_TRY(comet_maps_of(p->input, "pass->input", shape_only || !(p->what & COMET_STATS_INPUT), &l->in));
    COMET_TRY(comet_maps_of(p->gradient, "pass->gradient", shape_only || !(p->what & COMET_STATS_OUTPUT), &l->out));
    memcpy(l->kernel, p->kernel, sizeof l->kernel);
    memcpy(l->stride, p->stride, sizeof l->stride);
    memcpy(l->padding, p->padding, sizeof l->padding);
    memcpy(l->dilation, p->dilation, sizeof l->dilation);
    l->groups = p->groups;
    l->weights = p->weights;
    COMET_REQUIRE(fits(l), "pass->gradient does not have the shape that pass->input, kernel, stride, padding, dilation "
                           "and groups make");
    l->fan_in = l->in.channels / l->groups * l->kernel[0] * l->kernel[1];
    return COMET_OK;
}

/* ---- memory: dY's and x's are needed one after the other ---- */

typedef struct layer_memory {
    comet_sums output, input;
    float *places, *inputs;
} layer_memory;

static size_t lay_out(const comet_layer *l, uint32_t what, void *workspace, layer_memory *m) {
    comet_stats_memory of_output = {workspace, 0}, of_input = {workspace, 0};
    if (what & COMET_STATS_OUTPUT) {
        m->output.sums = comet_stats_place(&of_output, 1, comet_sums_bytes(1, 2));
        comet_stats_place_strips(&of_output, &l->out, NULL, &m->output);
        m->places = comet_stats_place(&of_output, comet_neighbours_floats(l->out.channels, COMET_GRADIENT_ARRAYS),
                                      sizeof *m->places);
    }
    if (what & COMET_STATS_INPUT) {
        m->input.sums = comet_stats_place(&of_input, 1, comet_sums_bytes(l->in.channels, 2));
        comet_stats_place_strips(&of_input, &l->in, NULL, &m->input);
    }
    if (what & COMET_STATS_COMMON)
        m->inputs = comet_stats_place(&of_input, comet_common_floats(l->fan_in), sizeof *m->inputs);
    return of_output.bytes > of_input.bytes ? of_output.bytes : of_input.bytes;
}

comet_status comet_stats_layer_workspace(const comet_layer_pass *pass, size_t *bytes) {
    comet_layer_pass p;
    comet_layer l;
    layer_memory m;
    comet_begin();
    COMET_TRY(layer_of(pass, 1, &p, &l));
    COMET_REQUIRE_POINTER(bytes);
    *bytes = lay_out(&l, p.what, NULL, &m);
    return COMET_OK;
}

/* ---- what is seen ---- */

static void read_output(const comet_gradient *g, int64_t place, float *room, float *values) {
    memcpy(values, comet_maps_rows(g->maps, place, 1, room), (size_t)g->maps->channels * sizeof *values);
}

static comet_status see_output(const comet_layer *l, const comet_stats_exec *exec, const layer_memory *m,
                               comet_stats_layer *layer) {
    const comet_sizes sizes = comet_sums_sizes(exec->threads, &l->out, &m->output);
    const comet_gradient gradient = {.maps = &l->out, .read = read_output};
    layer->gradient_squares += sizes.squares;
    layer->gradient_sizes += sizes.sizes;
    comet_see_gradient(exec->threads, &gradient, m->places, &layer->gradient);
    return comet_stats_finite((const double[]){sizes.squares, sizes.sizes}, 2);
}

/* Each input is seen at as many positions as there are outputs, but for those at which its tap is in the padding. */
static comet_status see_input(const comet_layer *l, double inside, const comet_stats_exec *exec, const layer_memory *m,
                              comet_stats_layer *layer) {
    const int64_t pixels = comet_maps_pixels(&l->in), channels = l->in.channels;
    const double seen = (double)comet_maps_pixels(&l->out) / (double)channels * inside, *sums = m->input.sums;
    double squares = 0, variances = 0, common = 0;
    comet_sums_moments(exec->threads, &l->in, &m->input);
    for (int64_t k = 0; k < channels; k++) {
        const double mean = sums[k] / (double)pixels, square = sums[channels + k] / (double)pixels;
        squares += square;
        variances += fmax(square - mean * mean, 0) + 0 * square; /* NaN stays */
    }
    if (l->weights)
        common = comet_layer_common(exec->threads, l, sums, m->inputs);
    layer->input_squares += squares * seen;
    layer->input_variances += variances * seen;
    layer->common_squares += common;
    return comet_stats_finite((const double[]){squares, variances, common}, 3);
}

static comet_status see(const comet_layer *l, uint32_t what, const comet_stats_exec *exec, comet_stats_layer *layer) {
    const double inside = comet_layer_inside(l);
    comet_status of_output = COMET_OK, of_input = COMET_OK;
    layer_memory m = {0};
    (void)lay_out(l, what, exec->workspace, &m);
    if (what & COMET_STATS_OUTPUT)
        of_output = see_output(l, exec, &m, layer);
    if (what & COMET_STATS_INPUT)
        of_input = see_input(l, inside, exec, &m, layer);
    layer->batches++;
    layer->inside += inside;
    layer->positions += (double)comet_maps_pixels(&l->out);
    layer->outputs = (double)l->out.channels;
    layer->kernel = (double)l->kernel[0] * l->kernel[1];
    memcpy(layer->stride, l->stride, sizeof layer->stride);
    return of_output != COMET_OK ? of_output : of_input;
}

comet_status comet_stats_see_layer(const comet_layer_pass *pass, const comet_stats_exec *exec,
                                   comet_stats_layer *layer) {
    comet_layer_pass p;
    comet_layer l;
    layer_memory m;
    comet_stats_exec how;
    fenv_t callers;
    comet_begin();
    COMET_TRY(layer_of(pass, 0, &p, &l));
    COMET_TRY(comet_stats_check_size(layer, sizeof *layer, "layer"));
    COMET_TRY(comet_stats_exec_of(exec, lay_out(&l, p.what, NULL, &m), &how));
    if (!(p.what & COMET_STATS_COMMON))
        l.weights = NULL;
    comet_fp_enter(&callers);
    comet_status status = see(&l, p.what, &how, layer);
    comet_fp_leave(&callers);
    return status;
}
