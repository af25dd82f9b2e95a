/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a layer when its backward comes. */
#include <math.h>
#include <string.h>

#include "train/collect/collect_impl.h"

/* The rows and channels of a value, for the whole batch. */
typedef struct rows {
    int64_t count, channels;
} rows;

static rows rows_of(const comet_op_call *call, comet_value v) {
    const comet_shape *s = comet_value_shape(call->graph, v);
    return (rows){(int64_t)s->height * s->width * call->batch, s->channels};
}

static void count_read(comet_collect *c, rows r, int arrays) {
    c->read_bytes += (uint64_t)(r.count * r.channels) * (uint64_t)arrays * sizeof(float);
}

/* ---- convolutions and linear layers ---- */

static void read_output(const comet_collect_gradient *g, int64_t place, float *values) {
    memcpy(values, (const float *)g->context + place * g->channels, (size_t)g->channels * sizeof *values);
}

static comet_collect_gradient maps_of(const comet_op_call *call, int64_t images) {
    const comet_shape *s = comet_value_shape(call->graph, call->node->output);
    return (comet_collect_gradient){.images = images, .channels = s->channels, .height = s->height, .width = s->width};
}

static void see_output_map(comet_collect *c, const comet_op_call *call, comet_collect_node *n) {
    comet_collect_gradient maps = maps_of(call, call->batch);
    maps.read = read_output;
    maps.context = call->dy;
    comet_collect_see_gradient(c, &maps, &n->gradient);
}

static void see_output(comet_collect *c, const comet_op_call *call, comet_collect_node *n) {
    const rows r = rows_of(call, call->node->output);
    const comet_sizes sizes = comet_statistics_sizes(c->threads, call->dy, r.count * r.channels, c->scratch);
    n->output_squares += sizes.squares;
    n->output_sizes += sizes.sizes;
    if (call->node->kind == COMET_OP_CONV)
        see_output_map(c, call, n);
    count_read(c, r, 1);
}

/* ---- batch norms ---- */

static const float *value_of(const comet_op_call *call, const comet_node *node, int place) {
    return comet_node_parameter(call->graph, node, place)->value;
}

static comet_norm_rows norm_rows(const comet_collect *c, const comet_op_call *call, int64_t channels, int64_t first) {
    const float *side = call->side;
    return (comet_norm_rows){.x = call->x[0],
                             .dy = call->dy + first * channels,
                             .scale = call->normalised ? NULL : side,
                             .shift = call->normalised ? NULL : side + channels,
                             .gamma = value_of(call, call->node, COMET_PARAMETER_WEIGHT),
                             .beta = value_of(call, call->node, COMET_PARAMETER_BIAS),
                             .mask = call->relu ? call->mask : NULL,
                             .first = first,
                             .relu = call->relu,
                             .greatest = c->acgc};
}

static void read_norm(const comet_collect_gradient *g, int64_t place, float *values) {
    comet_statistics_norm_gradient(g->context, place, g->channels, values);
}

/* Of the first rows, which are whole images. */
static void see_norm_gradient(comet_collect *c, const comet_op_call *call, const comet_norm_rows *n, int64_t count) {
    comet_collect_gradient maps = maps_of(call, 0);
    maps.images = count / ((int64_t)maps.height * maps.width);
    maps.read = read_norm;
    maps.context = n;
    comet_collect_see_gradient(c, &maps, &c->nodes[call->node - call->graph->nodes].gradient);
}

/* Sums of some of the rows, into or added to c->channels. */
static void add_norm_rows(comet_collect *c, const comet_op_call *call, int64_t first, int64_t count, int64_t channels) {
    const comet_norm_rows n = norm_rows(c, call, channels, first);
    const int64_t sums = COMET_STATISTICS_ARRAYS * channels, all = comet_collect_arrays(c) * channels;
    comet_statistics_norm(c->threads, &n, count, channels, c->scratch);
    if (first == 0)
        see_norm_gradient(c, call, &n, count);
    if (first == 0)
        memset(c->channels, 0, (size_t)all * sizeof *c->channels);
    for (int64_t i = 0; i < sums; i++)
        c->channels[i] += c->scratch[i];
    for (int64_t i = sums; i < all; i++)
        c->channels[i] = fmax(c->channels[i], c->scratch[i]);
    count_read(c, (rows){count, channels}, 2);
}

/* AC-GC's is proportional to the sum of dX^2, which is seen at the layer before. */
static double acgc_of(comet_collect *c, const comet_norm_stats *norm, const double *sums) {
    const int64_t channels = norm->channels;
    float *greatest = c->inverse + channels;
    for (int64_t k = 0; k < channels; k++) {
        greatest[k] = (float)sums[3 * channels + k];
        greatest[channels + k] = (float)(sums[4 * channels + k] / (double)norm->inverse_deviation[k]);
    }
    const comet_acgc_norm_stats stats = {.norm = norm,
                                         .input_gradient_squares = 1,
                                         .nonzero = sums + 2 * channels,
                                         .greatest_gradient = greatest,
                                         .greatest_value = greatest + channels};
    return comet_acgc_norm(&stats);
}

/* From the sums over all rows: numbers for an error of variance 1 in what is stored, u or the input itself. */
static void end_norm(comet_collect *c, const comet_op_call *call, comet_collect_node *n) {
    const rows r = rows_of(call, call->node->output);
    const float *side = call->side;
    comet_norm_stats norm = {.channels = r.channels,
                             .positions = (double)r.count,
                             .gamma = value_of(call, call->node, COMET_PARAMETER_WEIGHT),
                             .inverse_deviation = c->inverse,
                             .scale_gradient = c->channels + r.channels,
                             .gradient_squares = c->channels,
                             .slope_squares = c->channels + 2 * r.channels,
                             .fan_in = 1};
    double squares = 0;
    for (int64_t k = 0; k < r.channels; k++) {
        const double of_u = call->normalised ? 1 : (double)side[k];
        c->inverse[k] = (float)((double)side[k] * of_u);
        squares += c->channels[k] * of_u * of_u;
    }
    n->batches++;
    n->scale_squares += squares / (double)r.channels;
    n->derivative += comet_norm_derivative(&norm);
    const double both = comet_norm_input_gain(&norm);
    norm.fan_in = (double)INFINITY;
    n->own_gain += comet_norm_input_gain(&norm);
    n->common_gain += both - comet_norm_input_gain(&norm);
    if (c->acgc) {
        norm.inverse_deviation = side;
        n->acgc += acgc_of(c, &norm, c->channels);
    }
}

/* ---- SiLU ---- */

/*
 * What is stored is the norm's u, its output y, or y without any norm: an error of y is gamma times that of u, and behind the norm's backward it is
 * multiplied by gamma / deviation.
 */
static void see_silu(comet_collect *c, const comet_op_call *call, const float *side, comet_collect_node *n) {
    const rows r = rows_of(call, call->node->output);
    const int before = call->graph->values[call->node->input[0]].producer;
    const comet_node *norm = side ? &call->graph->nodes[before] : NULL;
    const float *gamma = norm ? value_of(call, norm, COMET_PARAMETER_WEIGHT) : NULL;
    const int of_u = norm && c->of_norm[before] >= 0;
    double slope = 0, curve = 0, scale = 0;
    memset(c->inverse, 0, (size_t)r.channels * sizeof *c->inverse);
    comet_statistics_silu(c->threads, call->x[0], call->dy,
                          norm ? value_of(call, norm, COMET_PARAMETER_BIAS) : c->inverse, r.count, r.channels,
                          c->scratch);
    for (int64_t k = 0; k < r.channels; k++) {
        const double to_y = of_u ? (double)gamma[k] : 1, through = norm ? (double)gamma[k] * (double)side[k] : 1;
        slope += to_y * to_y * c->scratch[k];
        curve += to_y * to_y * through * through * c->scratch[r.channels + k];
        scale += c->scratch[2 * r.channels + k];
    }
    n->batches++;
    n->derivative += slope / (double)r.channels / (double)r.count;
    n->curve_gain += curve / (double)r.channels / (double)r.count;
    n->scale_squares += scale / (double)r.channels;
    count_read(c, r, 2);
}

/* ---- channel scales ---- */

static void see_factors(comet_collect *c, const comet_op_call *call, comet_collect_node *n) {
    const rows r = rows_of(call, call->node->output);
    const int64_t pixels = r.count / call->batch;
    const double factors = (double)(call->batch * r.channels);
    double gain = 0, squares = 0;
    comet_statistics_factors(c->threads, call->x[1], call->dy, call->batch, pixels, r.channels, c->scratch);
    for (int64_t k = 0; k < r.channels; k++) {
        gain += c->scratch[k];
        squares += c->scratch[r.channels + k];
    }
    n->batches++;
    n->channel_gain += gain / factors;
    n->factor_squares += squares / factors;
    count_read(c, r, 1);
}

/* ---- during a step ---- */

static comet_collect_node *node_of(comet_collect *c, const comet_op_call *call) {
    return &c->nodes[call->node - call->graph->nodes];
}

static void see_layer(comet_collect *c, const comet_op_call *call, comet_collect_node *n) {
    if (n->wants & COMET_WANT_OUTPUT)
        see_output(c, call, n);
    if (n->wants & COMET_WANT_INPUT)
        comet_collect_see_input(c, call, n);
    n->batches++;
    n->inside += comet_collect_inside(call);
    n->positions += (double)rows_of(call, call->node->output).count;
}

void comet_collect_backward(comet_collect *c, const comet_op_call *call, const float *norm_side) {
    comet_collect_node *n = node_of(c, call);
    if (n->wants & (COMET_WANT_OUTPUT | COMET_WANT_INPUT))
        see_layer(c, call, n);
    if (n->wants & COMET_WANT_NORM) {
        const rows r = rows_of(call, call->node->output);
        add_norm_rows(c, call, 0, r.count, r.channels);
        end_norm(c, call, n);
    }
    if (n->wants & COMET_WANT_SILU)
        see_silu(c, call, norm_side, n);
    if (n->wants & COMET_WANT_FACTORS)
        see_factors(c, call, n);
}

void comet_collect_part(comet_collect *c, const comet_op_call *call, int part, int parts) {
    comet_collect_node *n = node_of(c, call);
    const rows r = rows_of(call, call->node->output);
    const int64_t count = r.count / parts;
    if (!(n->wants & COMET_WANT_NORM))
        return;
    add_norm_rows(c, call, part * count, count, r.channels);
    if (part == parts - 1)
        end_norm(c, call, n);
}
