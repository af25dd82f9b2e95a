/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a convolution or linear layer: how large dY and x are, and how far outputs correlate with x. */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "control/collect/call.h"
#include "control/collect/neighbours.h"
#include "control/collect/passes.h"

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

/* Of a tensor that is not to be seen only the shape is read. */
static int how_of(int how, uint32_t what, uint32_t needed) {
    return what & needed ? how : how | COMET_MAPS_SHAPE;
}

comet_status comet_take_layer(const comet_layer_pass *given, int how, comet_layer_pass *p, comet_layer *l) {
    const int shape_only = how & COMET_MAPS_SHAPE;
    static const comet_layer_pass defaults = COMET_LAYER_PASS_INIT;
    COMET_REQUIRE(given, "pass is NULL");
    COMET_TRY(comet_sized_read(p, sizeof *p, given, &defaults, "pass"));
    COMET_REQUIRE(is_right(p), "pass->what is %u: it must be OUTPUT, INPUT, and COMMON only with INPUT", p->what);
    COMET_REQUIRE(shape_only || !(p->what & COMET_STATS_COMMON) || p->weights, "pass->weights is NULL");
    COMET_TRY(comet_maps_of(p->input, "pass->input", how_of(how, p->what, COMET_STATS_INPUT), &l->in));
    COMET_TRY(comet_maps_of(p->gradient, "pass->gradient", how_of(how, p->what, COMET_STATS_OUTPUT), &l->out));
    memcpy(l->kernel, p->kernel, sizeof l->kernel);
    memcpy(l->stride, p->stride, sizeof l->stride);
    memcpy(l->padding, p->padding, sizeof l->padding);
    memcpy(l->dilation, p->dilation, sizeof l->dilation);
    l->groups = p->groups;
    l->weights = p->what & COMET_STATS_COMMON ? p->weights : NULL;
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
    COMET_TRY(comet_take_layer(pass, COMET_MAPS_SHAPE, &p, &l));
    COMET_REQUIRE_POINTER(bytes);
    *bytes = lay_out(&l, p.what, NULL, &m);
    return COMET_OK;
}

/* ---- what is seen ---- */

static void read_output(const comet_gradient *g, int64_t place, float *room, float *values) {
    memcpy(values, comet_maps_rows(g->maps, place, 1, room), (size_t)g->maps->channels * sizeof *values);
}

/* ---- what it says ---- */

comet_layer_shape comet_layer_shape_of(const comet_layer *l, uint32_t what) {
    return (comet_layer_shape){.outputs = l->out.channels,
                               .inputs = l->in.channels,
                               .positions = (double)comet_maps_pixels(&l->out),
                               .samples = (double)l->out.images,
                               .pixels = (double)comet_maps_pixels(&l->in),
                               .inside = comet_layer_inside(l),
                               .kernel = (double)l->kernel[0] * l->kernel[1],
                               .what = what,
                               .stride = {l->stride[0], l->stride[1]}};
}

static comet_status add_output(const comet_layer_sums *sums, comet_stats_layer *layer) {
    layer->gradient_squares += sums->output.squares;
    layer->gradient_sizes += sums->output.sizes;
    comet_alike_of_gradient(sums->gradient, &layer->gradient);
    return comet_stats_finite((const double[]){sums->output.squares, sums->output.sizes}, 2);
}

/* Each input is seen at as many positions as there are outputs, but for those at which its tap is in the padding. */
static comet_status add_input(const comet_layer_shape *shape, const comet_layer_sums *sums, comet_stats_layer *layer) {
    const double seen = shape->positions / (double)shape->inputs * shape->inside;
    double squares = 0, variances = 0;
    for (int64_t k = 0; k < shape->inputs; k++) {
        const double mean = sums->input[k] / shape->pixels, square = sums->input[shape->inputs + k] / shape->pixels;
        squares += square;
        variances += fmax(square - mean * mean, 0) + 0 * square; /* NaN stays */
    }
    layer->input_squares += squares * seen;
    layer->input_variances += variances * seen;
    layer->common_squares += sums->common;
    return comet_stats_finite((const double[]){squares, variances, sums->common}, 3);
}

comet_status comet_end_layer(const comet_layer_shape *shape, const comet_layer_sums *sums, comet_stats_layer *layer) {
    comet_status of_output = COMET_OK, of_input = COMET_OK;
    if (shape->what & COMET_STATS_OUTPUT)
        of_output = add_output(sums, layer);
    if (shape->what & COMET_STATS_INPUT)
        of_input = add_input(shape, sums, layer);
    layer->batches++;
    layer->inside += shape->inside;
    layer->positions += shape->positions;
    layer->samples += shape->samples;
    layer->outputs = (double)shape->outputs;
    layer->kernel = shape->kernel;
    memcpy(layer->stride, shape->stride, sizeof layer->stride);
    return of_output != COMET_OK ? of_output : of_input;
}

/* dY's sums are taken out of the workspace before x's lie there. */
static comet_status see(const comet_layer *l, uint32_t what, const comet_stats_exec *exec, comet_stats_layer *layer) {
    const comet_layer_shape shape = comet_layer_shape_of(l, what);
    const comet_gradient gradient = {.maps = &l->out, .read = read_output};
    double products[COMET_STATS_OFFSETS];
    comet_layer_sums sums = {.gradient = products};
    layer_memory m = {0};
    (void)lay_out(l, what, exec->workspace, &m);
    if (what & COMET_STATS_OUTPUT) {
        sums.output = comet_sums_sizes(exec->threads, &l->out, &m.output);
        comet_see_gradient(exec->threads, &gradient, m.places, products);
    }
    if (what & COMET_STATS_INPUT) {
        comet_sums_moments(exec->threads, &l->in, &m.input);
        sums.input = m.input.sums;
    }
    if (what & COMET_STATS_COMMON)
        sums.common = comet_layer_common(exec->threads, l, m.input.sums, m.inputs);
    return comet_end_layer(&shape, &sums, layer);
}

comet_status comet_stats_see_layer(const comet_layer_pass *pass, const comet_stats_exec *exec,
                                   comet_stats_layer *layer) {
    comet_layer_pass p;
    comet_layer l;
    layer_memory m;
    comet_stats_exec how;
    fenv_t callers;
    comet_begin();
    COMET_TRY(comet_take_layer(pass, 0, &p, &l));
    COMET_TRY(comet_stats_check_size(layer, sizeof *layer, "layer"));
    COMET_TRY(comet_stats_exec_of(exec, lay_out(&l, p.what, NULL, &m), &how));
    comet_fp_enter(&callers);
    comet_status status = see(&l, p.what, &how, layer);
    comet_fp_leave(&callers);
    return status;
}
