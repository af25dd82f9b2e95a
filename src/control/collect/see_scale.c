/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a channel scale (squeeze-excite). */
#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/sized.h"
#include "control/collect/call.h"
#include "control/collect/passes.h"

comet_status comet_take_scale(const comet_scale_pass *given, int how, comet_scale_maps *m) {
    static const comet_scale_pass defaults = COMET_SCALE_PASS_INIT;
    comet_scale_pass p;
    COMET_REQUIRE(given, "pass is NULL");
    COMET_TRY(comet_sized_read(&p, sizeof p, given, &defaults, "pass"));
    COMET_TRY(comet_maps_of(p.factors, "pass->factors", how, &m->s));
    COMET_TRY(comet_maps_of(p.gradient, "pass->gradient", how, &m->dy));
    COMET_REQUIRE(m->s.height == 1 && m->s.width == 1 && m->s.images == m->dy.images && m->s.channels == m->dy.channels,
                  "pass->factors must be one value of each image and channel of pass->gradient");
    return COMET_OK;
}

static size_t lay_out(const comet_scale_maps *maps, void *workspace, comet_sums *sums) {
    comet_stats_memory all = {workspace, 0};
    sums->sums = comet_stats_place(&all, 1, comet_sums_bytes(maps->s.channels, 3));
    comet_stats_place_strips(&all, &maps->s, &maps->dy, sums);
    return all.bytes;
}

comet_status comet_stats_scale_workspace(const comet_scale_pass *pass, size_t *bytes) {
    comet_scale_maps maps;
    comet_sums sums;
    comet_begin();
    COMET_TRY(comet_take_scale(pass, COMET_MAPS_SHAPE, &maps));
    COMET_REQUIRE_POINTER(bytes);
    *bytes = lay_out(&maps, NULL, &sums);
    return COMET_OK;
}

comet_status comet_end_scale(int64_t images, int64_t channels, const double *sums, comet_stats_scale *scale) {
    const double factors = (double)(images * channels);
    double gain = 0, squares = 0;
    for (int64_t k = 0; k < channels; k++) {
        gain += sums[k];
        squares += sums[channels + k];
    }
    scale->batches++;
    scale->gain += gain / factors;
    scale->squares += squares / factors;
    return comet_stats_finite((const double[]){gain, squares}, 2);
}

static comet_status see(const comet_scale_maps *maps, const comet_stats_exec *exec, comet_stats_scale *scale) {
    comet_sums memory;
    (void)lay_out(maps, exec->workspace, &memory);
    comet_sums_factors(exec->threads, &maps->s, &maps->dy, &memory);
    return comet_end_scale(maps->s.images, maps->s.channels, memory.sums, scale);
}

comet_status comet_stats_see_scale(const comet_scale_pass *pass, const comet_stats_exec *exec,
                                   comet_stats_scale *scale) {
    comet_scale_maps maps;
    comet_sums memory;
    comet_stats_exec how;
    fenv_t callers;
    comet_begin();
    COMET_TRY(comet_take_scale(pass, 0, &maps));
    COMET_TRY(comet_stats_check_size(scale, sizeof *scale, "scale"));
    COMET_TRY(comet_stats_exec_of(exec, lay_out(&maps, NULL, &memory), &how));
    comet_fp_enter(&callers);
    comet_status status = see(&maps, &how, scale);
    comet_fp_leave(&callers);
    return status;
}
