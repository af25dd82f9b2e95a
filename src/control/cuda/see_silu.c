/* SPDX-License-Identifier: Apache-2.0 */
/* A SiLU on a device: from a pass to a record, and from that to comet_stats_silu. */
#include "base/fail.h"
#include "base/fp_environment.h"
#include "codec/cuda/runtime.h"
#include "control/collect/call.h"
#include "control/cuda/arguments.h"
#include "control/cuda/launch.h"

static size_t record_bytes(const comet_silu_head *h) {
    return sizeof *h + (size_t)h->channels * (COMET_SILU_SUMS * sizeof(double) + COMET_SILU_TABLES * sizeof(float));
}

static comet_status take(const comet_silu_pass *pass, int how, comet_silu_pass *p, comet_silu_maps *m,
                         comet_silu_head *head) {
    int32_t device;
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(comet_take_silu(pass, COMET_MAPS_DEVICE | how, p, m));
    *head = (comet_silu_head){.kind = COMET_RECORD_SILU,
                              .normalised = p->normalised != 0,
                              .has_norm = p->gamma != NULL,
                              .channels = m->y.channels,
                              .pixels = (double)comet_maps_pixels(&m->y)};
    return COMET_OK;
}

static comet_stats_bytes bytes_of(const comet_silu_maps *m, const comet_silu_head *h) {
    return (comet_stats_bytes){record_bytes(h), comet_stats_sums_bytes(&m->y, COMET_SILU_SUMS)};
}

comet_status comet_cuda_stats_silu_needs(const comet_silu_pass *pass, comet_cuda_stats_needs *needs) {
    comet_silu_pass p;
    comet_silu_maps maps;
    comet_silu_head head;
    comet_begin();
    COMET_TRY(take(pass, COMET_MAPS_SHAPE, &p, &maps, &head));
    return comet_stats_give_needs(bytes_of(&maps, &head), needs);
}

static comet_status check_device(const comet_silu_pass *p, int64_t channels) {
    COMET_TRY(comet_stats_check_device(p->input, "pass->input", channels));
    COMET_TRY(comet_stats_check_device(p->gradient, "pass->gradient", channels));
    COMET_TRY(comet_stats_check_table(p->scale, "pass->scale"));
    COMET_TRY(comet_stats_check_table(p->gamma, "pass->gamma"));
    return comet_stats_check_table(p->beta, "pass->beta");
}

comet_status comet_cuda_stats_see_silu(const comet_silu_pass *pass, const comet_stats_exec *exec,
                                       const comet_cuda_stats_slot *slot) {
    comet_silu_pass p;
    comet_silu_maps maps;
    comet_silu_job job = {.maps = &maps};
    comet_stats_exec how;
    comet_begin();
    COMET_TRY(take(pass, 0, &p, &maps, &job.head));
    COMET_TRY(check_device(&p, maps.y.channels));
    const comet_stats_bytes bytes = bytes_of(&maps, &job.head);
    COMET_TRY(comet_stats_device_exec(exec, slot, bytes, &how));
    job.gamma = p.gamma;
    job.scale = p.scale;
    job.beta = p.beta;
    job.record = slot->record;
    job.sums = (double *)(job.record + 1);
    job.tables = (float *)(job.sums + COMET_SILU_SUMS * job.head.channels);
    job.workspace = how.workspace;
    job.queue = (cudaStream_t)how.queue;
    return comet_stats_give_record(comet_stats_launch_silu(&job), slot, bytes.record, &how);
}

comet_status comet_cuda_stats_fold_silu(const void *record, size_t bytes, comet_stats_silu *silu) {
    const comet_silu_head *h = record;
    fenv_t callers;
    comet_begin();
    COMET_TRY(comet_stats_check_size(silu, sizeof *silu, "silu"));
    COMET_TRY(comet_stats_check_record(record, bytes, sizeof *h, COMET_RECORD_SILU));
    COMET_TRY(comet_stats_check_whole(bytes, record_bytes(h)));
    const double *sums = (const double *)(h + 1);
    const float *tables = (const float *)(sums + COMET_SILU_SUMS * h->channels);
    const comet_silu_batch batch = {.channels = h->channels,
                                    .pixels = h->pixels,
                                    .gamma = h->has_norm ? tables : NULL,
                                    .scale = h->has_norm ? tables + h->channels : NULL,
                                    .sums = sums,
                                    .normalised = h->normalised};
    comet_fp_enter(&callers);
    const comet_status status = comet_end_silu(&batch, silu);
    comet_fp_leave(&callers);
    return status;
}
