/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution or linear layer on a device: from a pass to a record, and from that to comet_stats_layer. */
#include "base/fail.h"
#include "base/fp_environment.h"
#include "codec/cuda/runtime.h"
#include "control/collect/call.h"
#include "control/cuda/arguments.h"
#include "control/cuda/launch.h"

enum { ARRAYS = 2 }; /* of each tensor's sums */

/* dY's sums, then x's. */
static int64_t output_sums(const comet_layer_shape *s) {
    return s->what & COMET_STATS_OUTPUT ? ARRAYS * s->outputs : 0;
}

static size_t record_bytes(const comet_layer_shape *s) {
    const int64_t of_input = s->what & COMET_STATS_INPUT ? ARRAYS * s->inputs : 0;
    return sizeof(comet_layer_record) + (size_t)(output_sums(s) + of_input) * sizeof(double);
}

static size_t greater(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Each needs it when the one before is done. */
static size_t workspace_bytes(const comet_layer *l, uint32_t what) {
    size_t bytes = 0;
    if (what & COMET_STATS_OUTPUT)
        bytes = comet_stats_sums_bytes(&l->out, ARRAYS);
    if (what & COMET_STATS_INPUT)
        bytes = greater(bytes, comet_stats_sums_bytes(&l->in, ARRAYS));
    return what & COMET_STATS_COMMON ? greater(bytes, comet_stats_common_bytes(l)) : bytes;
}

/* Kernels count inputs of an output, and positions of an image, in 32 bits. */
static comet_status check_limits(const comet_layer *l, uint32_t what) {
    const int64_t taps = l->in.channels * l->kernel[0] * l->kernel[1], positions = l->out.height * l->out.width;
    if ((what & COMET_STATS_COMMON) && (taps > INT32_MAX || positions > INT32_MAX))
        return comet_fail(COMET_ERROR_UNSUPPORTED, "pass->what has COMMON, and the layer is larger than that supports");
    return COMET_OK;
}

static comet_status take(const comet_layer_pass *pass, int how, comet_layer_pass *p, comet_layer *l,
                         comet_layer_head *head) {
    int32_t device;
    fenv_t callers;
    COMET_TRY(comet_cuda_current(&device));
    COMET_TRY(comet_take_layer(pass, COMET_MAPS_DEVICE | how, p, l));
    COMET_TRY(check_limits(l, p->what));
    comet_fp_enter(&callers);
    *head = (comet_layer_head){.kind = COMET_RECORD_LAYER, .shape = comet_layer_shape_of(l, p->what)};
    if (p->what & COMET_STATS_COMMON)
        head->sample = comet_common_sample_of(l);
    comet_fp_leave(&callers);
    return COMET_OK;
}

comet_status comet_cuda_stats_layer_needs(const comet_layer_pass *pass, comet_cuda_stats_needs *needs) {
    comet_layer_pass p;
    comet_layer l;
    comet_layer_head head;
    comet_begin();
    COMET_TRY(take(pass, COMET_MAPS_SHAPE, &p, &l, &head));
    const comet_stats_bytes bytes = {record_bytes(&head.shape), workspace_bytes(&l, p.what)};
    return comet_stats_give_needs(bytes, needs);
}

comet_status comet_cuda_stats_see_layer(const comet_layer_pass *pass, const comet_stats_exec *exec,
                                        const comet_cuda_stats_slot *slot) {
    comet_layer_pass p;
    comet_layer l;
    comet_layer_job job = {.layer = &l};
    comet_stats_exec how;
    comet_begin();
    COMET_TRY(take(pass, 0, &p, &l, &job.head));
    COMET_TRY(comet_stats_check_device(p.input, "pass->input", l.in.channels));
    COMET_TRY(comet_stats_check_device(p.gradient, "pass->gradient", l.out.channels));
    COMET_TRY(comet_stats_check_table(l.weights, "pass->weights"));
    const comet_stats_bytes bytes = {record_bytes(&job.head.shape), workspace_bytes(&l, p.what)};
    COMET_TRY(comet_stats_device_exec(exec, slot, bytes, &how));
    job.record = slot->record;
    job.output = (double *)(job.record + 1);
    job.input = job.output + output_sums(&job.head.shape);
    job.workspace = how.workspace;
    job.queue = (cudaStream_t)how.queue;
    return comet_stats_give_record(comet_stats_launch_layer(&job), slot, bytes.record, &how);
}

/* ---- folding ---- */

static comet_sizes sizes_of(const double *sums, int64_t channels) {
    comet_sizes all = {0, 0};
    for (int64_t k = 0; k < channels; k++) {
        all.squares += sums[k];
        all.sizes += sums[channels + k];
    }
    return all;
}

static comet_status fold(const comet_layer_record *r, comet_stats_layer *layer) {
    const comet_layer_shape *shape = &r->head.shape;
    const double *output = (const double *)(r + 1);
    comet_layer_sums sums = {.gradient = r->gradient, .input = output + output_sums(shape)};
    if (shape->what & COMET_STATS_OUTPUT)
        sums.output = sizes_of(output, shape->outputs);
    if (shape->what & COMET_STATS_COMMON)
        sums.common = comet_common_end(&r->head.sample, r->outputs);
    return comet_end_layer(shape, &sums, layer);
}

comet_status comet_cuda_stats_fold_layer(const void *record, size_t bytes, comet_stats_layer *layer) {
    const comet_layer_record *r = record;
    fenv_t callers;
    comet_begin();
    COMET_TRY(comet_stats_check_size(layer, sizeof *layer, "layer"));
    COMET_TRY(comet_stats_check_record(record, bytes, sizeof *r, COMET_RECORD_LAYER));
    COMET_TRY(comet_stats_check_whole(bytes, record_bytes(&r->head.shape)));
    comet_fp_enter(&callers);
    const comet_status status = fold(r, layer);
    comet_fp_leave(&callers);
    return status;
}
