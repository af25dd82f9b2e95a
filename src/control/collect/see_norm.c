/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a batch norm: sums by channel over the parts of a batch, and what follows from them. */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "control/collect/call.h"
#include "control/collect/neighbours.h"
#include "control/collect/passes.h"

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

comet_status comet_take_norm(const comet_norm_pass *given, int how, comet_norm_pass *p, comet_norm_rows *n) {
    static const comet_norm_pass defaults = COMET_NORM_PASS_INIT;
    COMET_REQUIRE(given, "pass is NULL");
    COMET_TRY(comet_sized_read(p, sizeof *p, given, &defaults, "pass"));
    if (!(how & COMET_MAPS_SHAPE))
        COMET_TRY(check(p));
    COMET_TRY(comet_maps_of(p->values, "pass->values", how, &n->x));
    COMET_TRY(comet_maps_of(p->gradient, "pass->gradient", how, &n->dy));
    n->scale = p->shift ? p->scale : NULL;
    n->shift = p->shift;
    n->gamma = p->gamma;
    n->beta = p->beta;
    n->mask = p->relu ? p->mask : NULL;
    n->first = 0;
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
    COMET_TRY(comet_take_norm(pass, COMET_MAPS_SHAPE, &p, &n));
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
        double products[COMET_STATS_OFFSETS];
        comet_see_gradient(exec->threads, &gradient, m->places, products);
        comet_alike_of_gradient(products, &norm->gradient);
        memset(m->batch, 0, (size_t)all * sizeof *m->batch);
    }
    for (int64_t i = 0; i < sums; i++)
        m->batch[i] += m->sums.sums[i];
    for (int64_t i = sums; i < all; i++)
        m->batch[i] = fmax(m->batch[i], m->sums.sums[i]);
}

/* ---- the batch ---- */

/* AC-GC's is proportional to the sum of dX^2, which is seen at the layer before. */
static double acgc_of(const comet_norm_batch *b, const comet_norm_stats *stats) {
    const comet_acgc_norm_stats acgc = {.norm = stats,
                                        .input_gradient_squares = 1,
                                        .nonzero = b->sums + 2 * b->channels,
                                        .greatest_gradient = b->greatest,
                                        .greatest_value = b->greatest + b->channels};
    return comet_acgc_norm(&acgc);
}

/* Of the output by what is stored: behind a ReLU only where it is on. */
static double derivative_of(const comet_norm_batch *b, const comet_norm_stats *stats) {
    double sum = 0;
    if (!b->is_input)
        return comet_norm_derivative(stats);
    for (int64_t k = 0; k < stats->channels; k++) {
        const double slope = (double)b->gamma[k] * (double)b->scale[k];
        sum += slope * slope * stats->slope_squares[k] / stats->positions;
    }
    return sum / (double)stats->channels;
}

comet_status comet_end_norm(const comet_norm_batch *b, comet_stats_norm *norm) {
    const int64_t channels = b->channels;
    comet_norm_stats stats = {.channels = channels,
                              .positions = b->pixels,
                              .gamma = b->gamma,
                              .inverse_deviation = b->inverse,
                              .scale_gradient = b->sums + channels,
                              .gradient_squares = b->sums,
                              .slope_squares = b->sums + 2 * channels,
                              .fan_in = 1};
    double squares = 0;
    for (int64_t k = 0; k < channels; k++) {
        const double of_u = b->is_input ? (double)b->scale[k] : 1;
        squares += b->sums[k] * of_u * of_u;
    }
    const double derivative = derivative_of(b, &stats), both = comet_norm_input_gain(&stats);
    stats.fan_in = (double)INFINITY;
    const double own = comet_norm_input_gain(&stats);
    stats.inverse_deviation = b->scale;
    const double acgc = b->greatest ? acgc_of(b, &stats) : 0;
    norm->batches++;
    norm->scale_squares += squares / (double)channels;
    norm->derivative += derivative;
    norm->own_gain += own;
    norm->common_gain += both - own;
    norm->acgc += acgc;
    return comet_stats_finite((const double[]){squares, derivative, both, own, acgc}, 5);
}

/* From the sums over all rows: numbers for an error of variance 1 in what is stored, u or the input itself. */
static comet_status end_batch(const comet_norm_rows *n, const comet_norm_pass *p, double pixels, const norm_memory *m,
                              comet_stats_norm *norm) {
    const float *scale = p->scale;
    const int64_t channels = n->x.channels;
    float *greatest = m->inverse + channels;
    const comet_norm_batch batch = {.channels = channels,
                                    .pixels = pixels,
                                    .gamma = n->gamma,
                                    .scale = scale,
                                    .inverse = m->inverse,
                                    .greatest = n->greatest ? greatest : NULL,
                                    .sums = m->batch,
                                    .is_input = n->scale != NULL && !p->normalised};
    for (int64_t k = 0; k < channels; k++) {
        m->inverse[k] = comet_norm_inverse(scale[k], batch.is_input);
        if (n->greatest) {
            greatest[k] = (float)m->batch[3 * channels + k];
            greatest[channels + k] = comet_norm_greatest(m->batch[4 * channels + k], scale[k]);
        }
    }
    return comet_end_norm(&batch, norm);
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
    return end_batch(n, p, pixels, &m, norm);
}

comet_status comet_stats_see_norm(const comet_norm_pass *pass, const comet_stats_exec *exec, comet_stats_norm *norm) {
    comet_norm_pass p;
    comet_norm_rows n;
    norm_memory m;
    comet_stats_exec how;
    fenv_t callers;
    comet_begin();
    COMET_TRY(comet_take_norm(pass, 0, &p, &n));
    COMET_TRY(comet_stats_check_size(norm, sizeof *norm, "norm"));
    COMET_REQUIRE(p.part == 0 || norm->pixels > 0, "pass->part is %d, and norm has not seen those before", (int)p.part);
    COMET_TRY(comet_stats_exec_of(exec, lay_out(&n, NULL, &m), &how));
    n.first = p.part == 0 ? 0 : (int64_t)norm->pixels;
    comet_fp_enter(&callers);
    comet_status status = see(&p, &n, &how, norm);
    comet_fp_leave(&callers);
    return status;
}
