/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a SiLU, behind a batch norm or without one. */
#include <string.h>

#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "control/collect/call.h"

typedef struct silu_maps {
    comet_maps y, dz;
} silu_maps;

static int is_right(const comet_silu_pass *p) {
    const int given = (p->scale != NULL) + (p->gamma != NULL) + (p->beta != NULL);
    return given == 3 || (given == 0 && !p->normalised);
}

static comet_status maps_of(const comet_silu_pass *given, int shape_only, comet_silu_pass *p, silu_maps *m) {
    static const comet_silu_pass defaults = COMET_SILU_PASS_INIT;
    COMET_REQUIRE(given, "pass is NULL");
    COMET_TRY(comet_sized_read(p, sizeof *p, given, &defaults, "pass"));
    COMET_REQUIRE(shape_only || is_right(p), "pass must have all of scale, gamma and beta, or none, and normalised 0");
    COMET_TRY(comet_maps_of(p->input, "pass->input", shape_only, &m->y));
    COMET_TRY(comet_maps_of(p->gradient, "pass->gradient", shape_only, &m->dz));
    COMET_REQUIRE(comet_maps_alike(&m->y, &m->dz), "pass->gradient must have the shape of pass->input");
    return COMET_OK;
}

typedef struct silu_memory {
    comet_sums sums;
    float *zeros; /* in place of a norm's beta */
} silu_memory;

static size_t lay_out(const silu_maps *maps, void *workspace, silu_memory *m) {
    comet_stats_memory all = {workspace, 0};
    m->sums.sums = comet_stats_place(&all, 1, comet_sums_bytes(maps->y.channels, 3));
    m->zeros = comet_stats_place(&all, (size_t)maps->y.channels, sizeof *m->zeros);
    comet_stats_place_strips(&all, &maps->y, &maps->dz, &m->sums);
    return all.bytes;
}

comet_status comet_stats_silu_workspace(const comet_silu_pass *pass, size_t *bytes) {
    comet_silu_pass p;
    silu_maps maps;
    silu_memory m;
    comet_begin();
    COMET_TRY(maps_of(pass, 1, &p, &maps));
    COMET_REQUIRE_POINTER(bytes);
    *bytes = lay_out(&maps, NULL, &m);
    return COMET_OK;
}

/*
 * What is stored is the norm's u, its output y, or y without any norm: an error of y is gamma times that of u, and
 * behind the norm's backward it is multiplied by gamma / deviation.
 */
static comet_status see(const comet_silu_pass *p, const silu_maps *maps, const comet_stats_exec *exec,
                        comet_stats_silu *silu) {
    const int64_t channels = maps->y.channels;
    const double pixels = (double)comet_maps_pixels(&maps->y);
    double slope = 0, curve = 0, scale = 0;
    silu_memory m;
    (void)lay_out(maps, exec->workspace, &m);
    memset(m.zeros, 0, (size_t)channels * sizeof *m.zeros);
    comet_sums_silu(exec->threads, &maps->y, &maps->dz, p->beta ? p->beta : m.zeros, &m.sums);
    const double *sums = m.sums.sums;
    for (int64_t k = 0; k < channels; k++) {
        const double to_y = p->normalised ? (double)p->gamma[k] : 1;
        const double through = p->gamma ? (double)p->gamma[k] * (double)p->scale[k] : 1;
        slope += to_y * to_y * sums[k];
        curve += to_y * to_y * through * through * sums[channels + k];
        scale += sums[2 * channels + k];
    }
    silu->batches++;
    silu->derivative += slope / (double)channels / pixels;
    silu->curve_gain += curve / (double)channels / pixels;
    silu->scale_squares += scale / (double)channels;
    return comet_stats_finite((const double[]){slope, curve, scale}, 3);
}

comet_status comet_stats_see_silu(const comet_silu_pass *pass, const comet_stats_exec *exec, comet_stats_silu *silu) {
    comet_silu_pass p;
    silu_maps maps;
    silu_memory m;
    comet_stats_exec how;
    fenv_t callers;
    comet_begin();
    COMET_TRY(maps_of(pass, 0, &p, &maps));
    COMET_TRY(comet_stats_check_size(silu, sizeof *silu, "silu"));
    COMET_TRY(comet_stats_exec_of(exec, lay_out(&maps, NULL, &m), &how));
    comet_fp_enter(&callers);
    comet_status status = see(&p, &maps, &how, silu);
    comet_fp_leave(&callers);
    return status;
}
