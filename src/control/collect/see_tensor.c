/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is seen of a tensor when it is stored: what the codec says of it, and how alike the errors of neighbours will
 * be.
 */
#include <math.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "control/collect/call.h"
#include "control/collect/neighbours.h"
#include "control/collect/passes.h"

/* ---- arguments ---- */

comet_status comet_check_stored(const comet_codec_record *result) {
    COMET_REQUIRE(result->bound >= 0 && isfinite(result->bound),
                  "pass->result->bound is %g: it must be finite and not negative", result->bound);
    COMET_REQUIRE(result->stats.count > 0, "pass->result->stats are of no values");
    return COMET_OK;
}

static int fits(const comet_tensor_pass *p, const comet_maps *m) {
    return p->grid ? p->grid->channels == m->channels && (!p->relu || p->grid->threshold) : !p->relu;
}

comet_status comet_take_tensor(const comet_tensor_pass *given, int how, comet_tensor_pass *p, comet_maps *m) {
    static const comet_tensor_pass defaults = COMET_TENSOR_PASS_INIT;
    COMET_REQUIRE(given, "pass is NULL");
    COMET_TRY(comet_sized_read(p, sizeof *p, given, &defaults, "pass"));
    COMET_REQUIRE((how & COMET_MAPS_SHAPE) || p->result, "pass->result is NULL");
    if (!p->values)
        return COMET_OK;
    COMET_TRY(comet_maps_of(p->values, "pass->values", how, m));
    COMET_REQUIRE(fits(p, m), "pass->grid must have the channels of pass->values and, with relu, a threshold");
    return COMET_OK;
}

/* ---- memory ---- */

typedef struct tensor_memory {
    float *places;
    float *scale, *shift, *gamma; /* in place of those that a grid, or the caller, leaves out */
} tensor_memory;

static float *place_if(comet_stats_memory *all, int is_needed, int64_t channels) {
    return is_needed ? comet_stats_place(all, (size_t)channels, sizeof(float)) : NULL;
}

static size_t lay_out(const comet_tensor_pass *p, const comet_maps *maps, void *workspace, tensor_memory *m) {
    comet_stats_memory all = {workspace, 0};
    if (!p->values)
        return 0;
    m->places =
        comet_stats_place(&all, comet_neighbours_floats(maps->channels, comet_errors_arrays(maps)), sizeof *m->places);
    m->scale = place_if(&all, p->grid && !p->grid->scale, maps->channels);
    m->shift = place_if(&all, p->grid && !p->grid->shift, maps->channels);
    m->gamma = place_if(&all, p->relu && !p->gamma, maps->channels);
    return all.bytes;
}

comet_status comet_stats_tensor_workspace(const comet_tensor_pass *pass, size_t *bytes) {
    comet_tensor_pass p;
    comet_maps maps;
    tensor_memory m;
    comet_begin();
    COMET_TRY(comet_take_tensor(pass, COMET_MAPS_SHAPE, &p, &maps));
    COMET_REQUIRE_POINTER(bytes);
    *bytes = lay_out(&p, &maps, NULL, &m);
    return COMET_OK;
}

/* ---- errors ---- */

static const float *or_constant(const float *given, float *room, float value, int64_t count) {
    for (int64_t i = 0; i < count && !given; i++)
        room[i] = value;
    return given ? given : room;
}

/* The side on which a ReLU is on is the grid's slope's; gamma is what the error is multiplied with. */
static comet_alike_channels channels_of(const comet_tensor_pass *p, const comet_maps *maps, const tensor_memory *m) {
    comet_alike_channels how = {.gamma = p->gamma, .inverse_cell = (float)(0.5 / p->result->bound)};
    if (p->grid) {
        how.scale = or_constant(p->grid->scale, m->scale, 1, maps->channels);
        how.shift = or_constant(p->grid->shift, m->shift, 0, maps->channels);
    }
    if (p->relu) {
        how.threshold = p->grid->threshold;
        how.slope = or_constant(p->grid->slope ? p->grid->slope : p->gamma, m->gamma, 1, maps->channels);
    }
    return how;
}

static void see_errors(const comet_tensor_pass *p, const comet_maps *maps, const comet_stats_exec *exec,
                       comet_alike_errors_sums *sums) {
    tensor_memory m;
    (void)lay_out(p, maps, exec->workspace, &m);
    const comet_alike_channels how = channels_of(p, maps, &m);
    comet_see_errors(exec->threads, maps, &how, m.places, sums);
}

comet_status comet_end_tensor(const comet_codec_record *result, int has_values, const comet_alike_errors_sums *errors,
                              comet_stats_tensor *tensor) {
    if (has_values)
        tensor->has_alike = result->bound > 0;
    if (has_values && tensor->has_alike)
        comet_alike_of_errors(errors, &tensor->all, &tensor->passed);
    tensor->count += (double)result->stats.count;
    tensor->nonzero += (double)result->stats.nonzero;
    tensor->squares += result->stats.sum_squares;
    tensor->bytes += (double)result->bytes;
    tensor->bound += result->bound;
    tensor->streams++;
    return result->stats.nonfinite ? COMET_ERROR_DIVERGED : COMET_OK;
}

comet_status comet_stats_see_tensor(const comet_tensor_pass *pass, const comet_stats_exec *exec,
                                    comet_stats_tensor *tensor) {
    comet_tensor_pass p;
    comet_maps maps;
    tensor_memory m;
    comet_stats_exec how;
    comet_alike_errors_sums errors[COMET_STATS_OFFSETS];
    fenv_t callers;
    comet_begin();
    COMET_TRY(comet_take_tensor(pass, 0, &p, &maps));
    COMET_TRY(comet_check_stored(p.result));
    COMET_TRY(comet_stats_check_size(tensor, sizeof *tensor, "tensor"));
    COMET_TRY(comet_stats_exec_of(exec, lay_out(&p, &maps, NULL, &m), &how));
    comet_fp_enter(&callers);
    if (p.values && p.result->bound > 0)
        see_errors(&p, &maps, &how, errors);
    const comet_status status = comet_end_tensor(p.result, p.values != NULL, errors, tensor);
    comet_fp_leave(&callers);
    return status;
}

/* ---- for an observation ---- */

double comet_stats_tensor_rms(const comet_stats_tensor *t) {
    return t->nonzero > 0 ? sqrt(t->squares / t->nonzero) : 0;
}

comet_control_size comet_stats_tensor_size(const comet_stats_tensor *t, int64_t values) {
    const double batches = t->count / (double)values;
    return (comet_control_size){t->streams > 0 ? t->bound / t->streams : 0, batches > 0 ? t->bytes / batches : 0};
}
