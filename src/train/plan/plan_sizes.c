/* SPDX-License-Identifier: Apache-2.0 */
/* What an entry will take, as far as it is known before. */
#include <math.h>

#include "train/plan/plan_impl.h"

/*
 * Values of a bell curve in steps of twice the bound have about 1.0 + log2(1 / bound) bits, bound in parts of the rms;
 * seen in networks being trained on photographs were 3.1 bits and less at 0.3, hence 1.4.
 */
static size_t guess_eb(const comet_plan_entry *e, size_t values) {
    if (e->form.codec.bound_kind != COMET_BOUND_RELATIVE || e->form.codec.bound <= 0)
        return e->raw_bytes;
    const double bits = 1.4 - log2(e->form.codec.bound);
    const size_t bytes = (size_t)((double)values * fmax(bits, 0.5) / 8);
    return bytes < e->raw_bytes ? bytes : e->raw_bytes;
}

/* A guess, until a step has shown the size. */
static size_t guess(const comet_plan *p, const comet_plan_entry *e) {
    const size_t values = comet_plan_value_count(p, e->value);
    if (e->form.form != COMET_FORM_CODEC)
        return e->form.form == COMET_FORM_RECOMPUTE ? 0 : e->form.bytes ? values : e->raw_bytes;
    switch (e->form.codec.codec) {
    case COMET_CODEC_EB:
        return guess_eb(e, values);
    case COMET_CODEC_ZVC:
        return e->raw_bytes * 3 / 4;
    case COMET_CODEC_MASK:
        return values / 8;
    case COMET_CODEC_POOL:
        return e->raw_bytes / (size_t)(e->form.codec.pool_block * e->form.codec.pool_block);
    case COMET_CODEC_GROUP:
        return values * (size_t)e->form.codec.group_bits / 8 + values / 8;
    case COMET_CODEC_DCT:
        return e->raw_bytes / 8;
    default:
        return e->raw_bytes;
    }
}

/* Bounds that do not depend on values, of a part. An entry that no codec takes has none: saving it will say so. */
static void set_bounds(comet_plan *p, comet_plan_entry *e) {
    static const float no_threshold = 0; /* its address alone is looked at */
    const comet_codec_grid grid = {.channels = e->shape.channels, .threshold = &no_threshold};
    comet_codec_params codec = e->form.codec;
    comet_tensor t;
    comet_tensor_init(&t, NULL, p->backend->dtype, COMET_NHWC, 4,
                      (int64_t[]){p->options.batch / e->parts, e->shape.height, e->shape.width, e->shape.channels});
    codec.grid = e->kind == COMET_SAVED_NORM ? &grid : NULL;
    const comet_status status = p->backend->measure(p->backend, &t, &codec, &e->worst_bytes, &e->scratch_bytes);
    if (status != COMET_OK)
        e->worst_bytes = e->scratch_bytes = 0;
    if (status != COMET_OK && status != COMET_ERROR_ARGUMENT && status != COMET_ERROR_UNSUPPORTED)
        p->status = status;
    if (p->allocator && !p->backend->fused_streams) /* the store makes a stream beside the block it stays in */
        e->scratch_bytes += e->worst_bytes;
    e->worst_bytes *= (size_t)e->parts;
}

void comet_plan_set_size(comet_plan *p, comet_plan_entry *e) {
    e->is_estimate = e->form.form == COMET_FORM_CODEC;
    e->stored_bytes = guess(p, e);
    e->buffer = e->back_buffer = -1;
    e->worst_bytes = e->scratch_bytes = 0;
    if (e->is_estimate)
        set_bounds(p, e);
}
