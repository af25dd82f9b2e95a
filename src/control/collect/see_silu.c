/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a SiLU, behind a batch norm or without one. */
#include <string.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "control/collect/call.h"
#include "control/collect/passes.h"

static int is_right(const comet_silu_pass *p) {
    const int given = (p->scale != NULL) + (p->gamma != NULL) + (p->beta != NULL);
    return given == 3 || (given == 0 && !p->normalised);
}

comet_status comet_take_silu(const comet_silu_pass *given, int how, comet_silu_pass *p, comet_silu_maps *m) {
    static const comet_silu_pass defaults = COMET_SILU_PASS_INIT;
    COMET_REQUIRE(given, "pass is NULL");
    COMET_TRY(comet_sized_read(p, sizeof *p, given, &defaults, "pass"));
    COMET_REQUIRE((how & COMET_MAPS_SHAPE) || is_right(p),
                  "pass must have all of scale, gamma and beta, or none, and normalised 0");
    COMET_TRY(comet_maps_of(p->input, "pass->input", how, &m->y));
    COMET_TRY(comet_maps_of(p->gradient, "pass->gradient", how, &m->dz));
    COMET_REQUIRE(comet_maps_alike(&m->y, &m->dz), "pass->gradient must have the shape of pass->input");
    return COMET_OK;
}

typedef struct silu_memory {
    comet_sums sums;
    float *zeros; /* in place of a norm's beta */
} silu_memory;

static size_t lay_out(const comet_silu_maps *maps, void *workspace, silu_memory *m) {
    comet_stats_memory all = {workspace, 0};
    m->sums.sums = comet_stats_place(&all, 1, comet_sums_bytes(maps->y.channels, 3));
    m->zeros = comet_stats_place(&all, (size_t)maps->y.channels, sizeof *m->zeros);
    comet_stats_place_strips(&all, &maps->y, &maps->dz, &m->sums);
    return all.bytes;
}

comet_status comet_stats_silu_workspace(const comet_silu_pass *pass, size_t *bytes) {
    comet_silu_pass p;
    comet_silu_maps maps;
    silu_memory m;
    comet_begin();
    COMET_TRY(comet_take_silu(pass, COMET_MAPS_SHAPE, &p, &maps));
    COMET_REQUIRE_POINTER(bytes);
    *bytes = lay_out(&maps, NULL, &m);
    return COMET_OK;
}

/*
 * What is stored is the norm's u, its output y, or y without any norm: an error of y is gamma times that of u, and
 * behind the norm's backward it is multiplied by gamma / deviation.
 */
comet_status comet_end_silu(const comet_silu_batch *b, comet_stats_silu *silu) {
    const int64_t channels = b->channels;
    double slope = 0, curve = 0, scale = 0;
    for (int64_t k = 0; k < channels; k++) {
        const double to_y = b->normalised ? (double)b->gamma[k] : 1;
        const double through = b->gamma ? (double)b->gamma[k] * (double)b->scale[k] : 1;
        slope += to_y * to_y * b->sums[k];
        curve += to_y * to_y * through * through * b->sums[channels + k];
        scale += b->sums[2 * channels + k];
    }
    silu->batches++;
    silu->derivative += slope / (double)channels / b->pixels;
    silu->curve_gain += curve / (double)channels / b->pixels;
    silu->scale_squares += scale / (double)channels;
    return comet_stats_finite((const double[]){slope, curve, scale}, 3);
}

static comet_status see(const comet_silu_pass *p, const comet_silu_maps *maps, const comet_stats_exec *exec,
                        comet_stats_silu *silu) {
    const int64_t channels = maps->y.channels;
    silu_memory m;
    (void)lay_out(maps, exec->workspace, &m);
    memset(m.zeros, 0, (size_t)channels * sizeof *m.zeros);
    comet_sums_silu(exec->threads, &maps->y, &maps->dz, p->beta ? p->beta : m.zeros, &m.sums);
    const comet_silu_batch batch = {.channels = channels,
                                    .pixels = (double)comet_maps_pixels(&maps->y),
                                    .gamma = p->gamma,
                                    .scale = p->scale,
                                    .sums = m.sums.sums,
                                    .normalised = p->normalised != 0};
    return comet_end_silu(&batch, silu);
}

comet_status comet_stats_see_silu(const comet_silu_pass *pass, const comet_stats_exec *exec, comet_stats_silu *silu) {
    comet_silu_pass p;
    comet_silu_maps maps;
    silu_memory m;
    comet_stats_exec how;
    fenv_t callers;
    comet_begin();
    COMET_TRY(comet_take_silu(pass, 0, &p, &maps));
    COMET_TRY(comet_stats_check_size(silu, sizeof *silu, "silu"));
    COMET_TRY(comet_stats_exec_of(exec, lay_out(&maps, NULL, &m), &how));
    comet_fp_enter(&callers);
    comet_status status = see(&p, &maps, &how, silu);
    comet_fp_leave(&callers);
    return status;
}
