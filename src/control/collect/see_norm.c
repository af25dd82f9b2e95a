/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a batch norm: sums by channel over the parts of a batch, and what follows from them. */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "control/collect/call.h"
#include "control/collect/neighbours.h"

/* ---- arguments ---- */

static comet_status check(const comet_norm_pass *p) {
    COMET_REQUIRE(p->scale && p->gamma && p->beta, "pass->%s is NULL",
                  !p->scale   ? "scale"
                  : !p->gamma ? "gamma"
                              : "beta");
    COMET_REQUIRE(p->part >= 0 && p->part < p->parts, "pass->part is %d of %d: it must be 0 to parts - 1", (int)p->part,
                  (int)p->parts);
    return COMET_OK;
}

static comet_status rows_of(const comet_norm_pass *given, int shape_only, comet_norm_pass *p, comet_norm_rows *n) {
    static const comet_norm_pass defaults = COMET_NORM_PASS_INIT;
    COMET_REQUIRE(given, "pass is NULL");
    COMET_TRY(comet_sized_read(p, sizeof *p, given, &defaults, "pass"));
    if (!shape_only)
        COMET_TRY(check(p));
    COMET_TRY(comet_maps_of(p->values, "pass->values", shape_only, &n->x));
    COMET_TRY(comet_maps_of(p->gradient, "pass->gradient", shape_only, &n->dy));
    n->scale = p->shift ? p->scale : NULL;
    n->shift = p->shift;
    n->gamma = p->gamma;
    n->beta = p->beta;
    n->mask = p->relu ? p->mask : NULL;
    n->relu = p->relu != 0;
    n->greatest = p->acgc != 0;
    COMET_REQUIRE(comet_maps_alike(&n->x, &n->dy), "pass->gradient must have the shape of pass->values");
    return COMET_OK;
}

/* ---- memory ---- */

typedef struct norm_memory {
    double *batch;  /* by channel, of all parts so far: first, so that it stays where it is */
    float *inverse; /* three arrays: 1 / deviation of what is stored, and acgc's two */
    comet_sums sums;
    float *places;
} norm_memory;

enum { SUMS = 3 };

static int64_t arrays_of(const comet_norm_rows *n) {
    return n->greatest ? COMET_SUMS_MOST_ARRAYS : SUMS;
}

static size_t lay_out(const comet_norm_rows *n, void *workspace, norm_memory *m) {
    comet_stats_memory all = {workspace, 0};
    const int64_t channels = n->x.channels;
    m->batch = comet_stats_place(&all, (size_t)(arrays_of(n) * channels), sizeof *m->batch);
    m->inverse = comet_stats_place(&all, 3 * (size_t)channels, sizeof *m->inverse);
    m->sums.sums = comet_stats_place(&all, 1, comet_sums_bytes(channels, (int)arrays_of(n)));
    comet_stats_place_strips(&all, &n->x, &n->dy, &m->sums);
    m->places = comet_stats_place(&all, comet_neighbours_floats(channels, COMET_GRADIENT_ARRAYS), sizeof *m->places);
    return all.bytes;
}

comet_status comet_stats_norm_workspace(const comet_norm_pass *pass, size_t *bytes) {
    comet_norm_pass p;
    comet_norm_rows n;
    norm_memory m;
    comet_begin();
    COMET_TRY(rows_of(pass, 1, &p, &n));
    COMET_REQUIRE_POINTER(bytes);
    *bytes = lay_out(&n, NULL, &m);
    return COMET_OK;
}

/* ---- a part ---- */

static void read_norm(const comet_gradient *g, int64_t place, float *room, float *values) {
    const comet_norm_rows *n = g->context;
    comet_norm_gradient(n, place, room, room + n->x.channels, values);
}

static void add_part(const comet_norm_rows *n, int is_first, const comet_stats_exec *exec, const norm_memory *m,
                     comet_stats_norm *norm) {
    const int64_t sums = SUMS * n->x.channels, all = arrays_of(n) * n->x.channels;
    const comet_gradient gradient = {&n->dy, read_norm, n};
    comet_sums_norm(exec->threads, n, &m->sums);
    if (is_first) {
        comet_see_gradient(exec->threads, &gradient, m->places, &norm->gradient);
        memset(m->batch, 0, (size_t)all * sizeof *m->batch);
    }
    for (int64_t i = 0; i < sums; i++)
        m->batch[i] += m->sums.sums[i];
    for (int64_t i = sums; i < all; i++)
        m->batch[i] = fmax(m->batch[i], m->sums.sums[i]);
}

/* ---- the batch ---- */

/* AC-GC's is proportional to the sum of dX^2, which is seen at the layer before. */
static double acgc_of(const comet_norm_stats *stats, const double *sums, float *greatest) {
    const int64_t channels = stats->channels;
    for (int64_t k = 0; k < channels; k++) {
        greatest[k] = (float)sums[3 * channels + k];
        greatest[channels + k] = (float)(sums[4 * channels + k] / (double)stats->inverse_deviation[k]);
    }
    const comet_acgc_norm_stats acgc = {.norm = stats,
                                        .input_gradient_squares = 1,
                                        .nonzero = sums + 2 * channels,
                                        .greatest_gradient = greatest,
                                        .greatest_value = greatest + channels};
    return comet_acgc_norm(&acgc);
}

/* Of the output by what is stored: behind a ReLU only where it is on. */
static double derivative_of(const comet_norm_rows *n, const comet_norm_stats *stats) {
    double sum = 0;
    if (!n->scale)
        return comet_norm_derivative(stats);
    for (int64_t k = 0; k < stats->channels; k++) {
        const double slope = (double)n->gamma[k] * (double)n->scale[k];
        sum += slope * slope * stats->slope_squares[k] / stats->positions;
    }
    return sum / (double)stats->channels;
}

/* From the sums over all rows: numbers for an error of variance 1 in what is stored, u or the input itself. */
static comet_status end_batch(const comet_norm_rows *n, const float *scale, double pixels, const norm_memory *m,
                              comet_stats_norm *norm) {
    const int64_t channels = n->x.channels;
    comet_norm_stats stats = {.channels = channels,
                              .positions = pixels,
                              .gamma = n->gamma,
                              .inverse_deviation = m->inverse,
                              .scale_gradient = m->batch + channels,
                              .gradient_squares = m->batch,
                              .slope_squares = m->batch + 2 * channels,
                              .fan_in = 1};
    double squares = 0;
    for (int64_t k = 0; k < channels; k++) {
        const double of_u = n->scale ? (double)scale[k] : 1;
        m->inverse[k] = (float)((double)scale[k] * of_u);
        squares += m->batch[k] * of_u * of_u;
    }
    const double derivative = derivative_of(n, &stats), both = comet_norm_input_gain(&stats);
    stats.fan_in = (double)INFINITY;
    const double own = comet_norm_input_gain(&stats);
    stats.inverse_deviation = scale;
    const double acgc = n->greatest ? acgc_of(&stats, m->batch, m->inverse + channels) : 0;
    norm->batches++;
    norm->scale_squares += squares / (double)channels;
    norm->derivative += derivative;
    norm->own_gain += own;
    norm->common_gain += both - own;
    norm->acgc += acgc;
    return comet_stats_finite((const double[]){squares, derivative, both, own, acgc}, 5);
}

static comet_status see(const comet_norm_pass *p, const comet_norm_rows *n, const comet_stats_exec *exec,
                        comet_stats_norm *norm) {
    norm_memory m;
    (void)lay_out(n, exec->workspace, &m);
    add_part(n, p->part == 0, exec, &m, norm);
    norm->pixels = (double)n->first + (double)comet_maps_pixels(&n->x);
    if (p->part < p->parts - 1)
        return COMET_OK;
    const double pixels = norm->pixels;
    norm->pixels = 0;
    return end_batch(n, p->scale, pixels, &m, norm);
}

comet_status comet_stats_see_norm(const comet_norm_pass *pass, const comet_stats_exec *exec, comet_stats_norm *norm) {
    comet_norm_pass p;
    comet_norm_rows n;
    norm_memory m;
    comet_stats_exec how;
    fenv_t callers;
    comet_begin();
    COMET_TRY(rows_of(pass, 0, &p, &n));
    COMET_TRY(comet_stats_check_size(norm, sizeof *norm, "norm"));
    COMET_REQUIRE(p.part == 0 || norm->pixels > 0, "pass->part is %d, and norm has not seen those before", (int)p.part);
    COMET_TRY(comet_stats_exec_of(exec, lay_out(&n, NULL, &m), &how));
    n.first = p.part == 0 ? 0 : (int64_t)norm->pixels;
    comet_fp_enter(&callers);
    comet_status status = see(&p, &n, &how, norm);
    comet_fp_leave(&callers);
    return status;
}
