/* SPDX-License-Identifier: Apache-2.0 */
/* A channel scale on a device: from a pass to a record, and from that to comet_stats_scale. */
#include "base/fail.h"
#include "base/fp_environment.h"
#include "codec/cuda/runtime.h"
#include "control/collect/call.h"
#include "control/cuda/arguments.h"
#include "control/cuda/launch.h"

static size_t record_bytes(const comet_scale_head *h) {
    return sizeof *h + (size_t)h->channels * COMET_SCALE_SUMS * sizeof(double);
}

static comet_status take(const comet_scale_pass *pass, int how, comet_scale_maps *m, comet_scale_head *head) {
    int32_t device;
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(comet_take_scale(pass, COMET_MAPS_DEVICE | how, m));
    *head = (comet_scale_head){.kind = COMET_RECORD_SCALE, .images = m->s.images, .channels = m->s.channels};
    return COMET_OK;
}

static comet_stats_bytes bytes_of(const comet_scale_maps *m, const comet_scale_head *h) {
    return (comet_stats_bytes){record_bytes(h), comet_stats_sums_bytes(&m->dy, COMET_SCALE_SUMS)};
}

comet_status comet_cuda_stats_scale_needs(const comet_scale_pass *pass, comet_cuda_stats_needs *needs) {
    comet_scale_maps maps;
    comet_scale_head head;
    comet_begin();
    COMET_TRY(take(pass, COMET_MAPS_SHAPE, &maps, &head));
    return comet_stats_give_needs(bytes_of(&maps, &head), needs);
}

comet_status comet_cuda_stats_see_scale(const comet_scale_pass *pass, const comet_stats_exec *exec,
                                        const comet_cuda_stats_slot *slot) {
    comet_scale_maps maps;
    comet_scale_job job = {.maps = &maps};
    comet_stats_exec how;
    comet_begin();
    COMET_TRY(take(pass, 0, &maps, &job.head));
    COMET_TRY(comet_stats_check_device(pass->factors, "pass->factors", maps.s.channels));
    COMET_TRY(comet_stats_check_device(pass->gradient, "pass->gradient", maps.s.channels));
    const comet_stats_bytes bytes = bytes_of(&maps, &job.head);
    COMET_TRY(comet_stats_device_exec(exec, slot, bytes, &how));
    job.record = slot->record;
    job.sums = (double *)(job.record + 1);
    job.workspace = how.workspace;
    job.queue = (cudaStream_t)how.queue;
    return comet_stats_give_record(comet_stats_launch_scale(&job), slot, bytes.record, &how);
}

comet_status comet_cuda_stats_fold_scale(const void *record, size_t bytes, comet_stats_scale *scale) {
    const comet_scale_head *h = record;
    fenv_t callers;
    comet_begin();
    COMET_TRY(comet_stats_check_size(scale, sizeof *scale, "scale"));
    COMET_TRY(comet_stats_check_record(record, bytes, sizeof *h, COMET_RECORD_SCALE));
    COMET_TRY(comet_stats_check_whole(bytes, record_bytes(h)));
    comet_fp_enter(&callers);
    const comet_status status = comet_end_scale(h->images, h->channels, (const double *)(h + 1), scale);
    comet_fp_leave(&callers);
    return status;
}
