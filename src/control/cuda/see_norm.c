/* SPDX-License-Identifier: Apache-2.0 */
/* A batch norm on a device: from a pass to a record, and from that to comet_stats_norm. */
#include "base/fail.h"
#include "base/fp_environment.h"
#include "codec/cuda/runtime.h"
#include "control/collect/call.h"
#include "control/collect/neighbours.h"
#include "control/cuda/arguments.h"
#include "control/cuda/launch.h"

static int arrays_of(const comet_norm_head *h) {
    return h->has_greatest ? COMET_NORM_SUMS + COMET_NORM_GREATEST : COMET_NORM_SUMS;
}

static size_t record_bytes(const comet_norm_head *h) {
    return sizeof(comet_norm_record) +
           (size_t)h->channels * ((size_t)arrays_of(h) * sizeof(double) + COMET_NORM_TABLES * sizeof(float));
}

static comet_status take(const comet_norm_pass *pass, int how, comet_norm_pass *p, comet_norm_rows *n,
                         comet_norm_head *head) {
    int32_t device;
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(comet_take_norm(pass, COMET_MAPS_DEVICE | how, p, n));
    *head = (comet_norm_head){.kind = COMET_RECORD_NORM,
                              .parts = p->parts,
                              .is_input = n->scale != NULL && !p->normalised,
                              .has_greatest = n->greatest,
                              .channels = n->x.channels,
                              .pixels = (double)comet_maps_pixels(&n->x)};
    return COMET_OK;
}

static comet_stats_bytes bytes_of(const comet_norm_rows *n, const comet_norm_head *h) {
    return (comet_stats_bytes){record_bytes(h), comet_stats_sums_bytes(&n->x, arrays_of(h))};
}

comet_status comet_cuda_stats_norm_needs(const comet_norm_pass *pass, comet_cuda_stats_needs *needs) {
    comet_norm_pass p;
    comet_norm_rows n;
    comet_norm_head head;
    comet_begin();
    COMET_TRY(take(pass, COMET_MAPS_SHAPE, &p, &n, &head));
    return comet_stats_give_needs(bytes_of(&n, &head), needs);
}

static comet_status check_device(const comet_norm_pass *p, int64_t channels) {
    COMET_TRY(comet_stats_check_device(p->values, "pass->values", channels));
    COMET_TRY(comet_stats_check_device(p->gradient, "pass->gradient", channels));
    COMET_TRY(comet_stats_check_table(p->scale, "pass->scale"));
    COMET_TRY(comet_stats_check_table(p->shift, "pass->shift"));
    COMET_TRY(comet_stats_check_table(p->gamma, "pass->gamma"));
    return comet_stats_check_table(p->beta, "pass->beta");
}

comet_status comet_cuda_stats_see_norm(const comet_norm_pass *pass, const comet_stats_exec *exec,
                                       const comet_cuda_stats_slot *slot) {
    comet_norm_pass p;
    comet_norm_rows n;
    comet_norm_job job = {.rows = &n};
    comet_stats_exec how;
    comet_begin();
    COMET_TRY(take(pass, 0, &p, &n, &job.head));
    COMET_TRY(check_device(&p, n.x.channels));
    const comet_stats_bytes bytes = bytes_of(&n, &job.head);
    COMET_TRY(comet_stats_device_exec(exec, slot, bytes, &how));
    job.scale = p.scale;
    job.part = p.part;
    job.record = slot->record;
    job.sums = (double *)(job.record + 1);
    job.tables = (float *)(job.sums + arrays_of(&job.head) * job.head.channels);
    job.workspace = how.workspace;
    job.queue = (cudaStream_t)how.queue;
    return comet_stats_give_record(comet_stats_launch_norm(&job), slot, bytes.record, &how);
}

/* ---- folding ---- */

static comet_status fold(const comet_norm_record *r, comet_stats_norm *norm) {
    const comet_norm_head *h = &r->head;
    const double *sums = (const double *)(r + 1);
    const float *tables = (const float *)(sums + arrays_of(h) * h->channels);
    const comet_norm_batch batch = {.channels = h->channels,
                                    .pixels = h->pixels,
                                    .gamma = tables,
                                    .scale = tables + h->channels,
                                    .inverse = tables + 2 * h->channels,
                                    .greatest = h->has_greatest ? tables + 3 * h->channels : NULL,
                                    .sums = sums,
                                    .is_input = h->is_input};
    comet_alike_of_gradient(r->gradient, &norm->gradient);
    return comet_end_norm(&batch, norm);
}

comet_status comet_cuda_stats_fold_norm(const void *record, size_t bytes, comet_stats_norm *norm) {
    const comet_norm_record *r = record;
    fenv_t callers;
    comet_begin();
    COMET_TRY(comet_stats_check_size(norm, sizeof *norm, "norm"));
    COMET_TRY(comet_stats_check_record(record, bytes, sizeof *r, COMET_RECORD_NORM));
    COMET_TRY(comet_stats_check_whole(bytes, record_bytes(&r->head)));
    COMET_REQUIRE(r->head.seen == r->head.parts, "record is of a batch of which not all parts were seen in order");
    comet_fp_enter(&callers);
    const comet_status status = fold(r, norm);
    comet_fp_leave(&callers);
    return status;
}
