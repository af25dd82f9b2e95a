/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's holder: the activation store, with the batch norm's kernels before and behind it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/backend/cpu/batch_norm.h"
#include "train/backend/cpu/space.h"

enum { MOST_PARTS = 4 };

typedef struct slot {
    comet_store_handle handles[MOST_PARTS]; /* 0: none */
    int is_known;
    comet_held_report report;
} slot;

typedef struct holder {
    comet_holder base; /* first: a comet_holder * is a pointer to this */
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_store *store;
    int slot_count;
    slot *slots;
} holder;

/* What is to be held, as the codec sees it. */
typedef struct content {
    const float *values;
    const comet_codec_grid *grid; /* NULL: the values as they are */
    double rms;                   /* of the non-zeros, normalised by the grid; 0 or not finite: not known */
} content;

/* ---- holding ---- */

/* A part of the samples. */
static comet_tensor tensor_of(const comet_held *held, const float *values) {
    const comet_shape *s = &held->shape;
    comet_tensor t;
    comet_tensor_init(&t, (void *)values, COMET_F32, COMET_NHWC, 4,
                      (int64_t[]){held->samples / held->parts, s->height, s->width, s->channels});
    return t;
}

static int64_t part_values(const comet_held *held) {
    return comet_shape_count(held->shape) * (held->samples / held->parts);
}

/* With the rms known, a relative bound need not be preceded by a pass that measures it. */
static void make_absolute(comet_codec_params *codec, double rms) {
    if (codec->codec != COMET_CODEC_EB || codec->bound_kind != COMET_BOUND_RELATIVE || !(rms > 0 && rms <= DBL_MAX))
        return;
    codec->bound_kind = COMET_BOUND_ABSOLUTE;
    codec->bound *= rms;
}

static comet_status show(holder *h, const comet_held *held, int part, const comet_tensor *values,
                         const comet_codec_grid *grid, const comet_codec_record *result) {
    const comet_holder_watch *watch = h->base.watch;
    const comet_held_part shown = {&h->base, held, part, values, grid, result};
    return watch && watch->held ? watch->held(watch->context, &shown) : COMET_OK;
}

static comet_status hold_part(holder *h, const comet_held *held, int part, const content *c, comet_store_info *info) {
    const comet_tensor t = tensor_of(held, c->values + part * part_values(held));
    comet_codec_params codec = held->codec;
    codec.grid = c->grid;
    codec.seed ^= (uint64_t)part;
    make_absolute(&codec, c->rms);
    comet_store_item item = COMET_STORE_ITEM_INIT;
    item.name = held->name;
    item.form = held->form;
    item.offload = held->offload;
    item.codec = held->form == COMET_FORM_CODEC ? &codec : NULL;
    comet_status status = comet_store_save(h->store, &t, &item, &h->slots[held->slot].handles[part], info);
    return status == COMET_OK && item.codec ? show(h, held, part, &t, c->grid, &info->result) : status;
}

static comet_status hold_content(holder *h, const comet_held *held, const content *c) {
    slot *s = &h->slots[held->slot];
    double squares = 0, nonzero = 0;
    size_t bytes = 0;
    for (int part = 0; part < held->parts; part++) {
        comet_store_info info = {.size = sizeof info};
        COMET_TRY(hold_part(h, held, part, c, &info));
        bytes += (size_t)info.bytes.stored;
        squares += info.result.stats.sum_squares;
        nonzero += (double)info.result.stats.nonzero;
    }
    s->report = (comet_held_report){bytes, nonzero > 0 ? sqrt(squares / nonzero) : 0};
    s->is_known = 1;
    return COMET_OK;
}

static comet_status hold(comet_holder *base, const comet_held *held, const void *values) {
    return hold_content((holder *)base, held, &(content){.values = values});
}

static comet_status hold_output(comet_holder *base, const comet_held *held, const comet_op_call *given) {
    comet_op_call call = *given;
    content c = {.values = call.y};
    if (held->codec.bound_kind == COMET_BOUND_RELATIVE)
        call.rms = &c.rms;
    comet_status status = base->backend->kernels[call.node->kind]->forward(&call);
    return status == COMET_OK ? hold_content((holder *)base, held, &c) : status;
}

/*
 * The rms of a batch norm's normalised input, of its non-zeros: in a channel u has the variance
 * v / (v + epsilon) = 1 - epsilon scale^2. Channels without any variance are all zeros. 0: there are no others.
 */
static double normalised_rms(const comet_op_call *call) {
    const int64_t channels = comet_value_shape(call->graph, call->node->output)->channels;
    const float *scale = call->side;
    double sum = 0;
    int64_t count = 0;
    for (int64_t c = 0; c < channels; c++) {
        const double variance = 1 - (double)call->node->as.norm.epsilon * (double)scale[c] * (double)scale[c];
        if (variance <= 1e-6)
            continue;
        sum += variance;
        count++;
    }
    return count ? sqrt(sum / (double)count) : 0;
}

/* The input is held between its statistics, which the grid needs, and the output, which may be written over it. */
static comet_status hold_norm(comet_holder *base, const comet_held *held, const comet_held *output,
                              const comet_op_call *call) {
    (void)output; /* of sums that norms compute, which is not done on a CPU */
    comet_codec_grid grid;
    comet_cpu_norm_statistics(call);
    comet_cpu_norm_grid(call, &grid);
    if (!comet_cpu_is_finite(NULL, grid.scale, grid.channels) || !comet_cpu_is_finite(NULL, grid.shift, grid.channels))
        return COMET_ERROR_DIVERGED;
    const content c = {call->x[0], &grid, normalised_rms(call)};
    comet_status status = hold_content((holder *)base, held, &c);
    return status == COMET_OK ? comet_cpu_norm_output(call) : status;
}

/* ---- using it ---- */

static comet_status load_part(comet_holder *base, const comet_held *held, int part, void *values) {
    holder *h = (holder *)base;
    const comet_tensor t = tensor_of(held, values);
    return comet_store_load(h->store, h->slots[held->slot].handles[part], &t);
}

static comet_status load_watched(comet_holder *base, const comet_held *held, int part, float *values) {
    const comet_holder_watch *watch = base->watch;
    comet_status status = load_part(base, held, part, values);
    return status == COMET_OK && watch && watch->loaded ? watch->loaded(watch->context, held->slot, part, values)
                                                        : status;
}

static comet_status load(comet_holder *base, const comet_held *held, void *values) {
    comet_status status = COMET_OK;
    for (int part = 0; part < held->parts && status == COMET_OK; part++)
        status = load_watched(base, held, part, (float *)values + part * part_values(held));
    return status;
}

static comet_status load_rebuilt(comet_holder *base, const comet_held *held, const comet_op_call *call,
                                 comet_rebuild what, void *values) {
    comet_status status = load(base, held, values);
    if (status == COMET_OK)
        comet_cpu_norm_rebuild(call, what, values);
    return status;
}

typedef struct source {
    comet_holder *holder;
    const comet_held *held;
    float *values;
} source;

static comet_status fetch(void *context, int part) {
    const source *s = context;
    return load_watched(s->holder, s->held, part, s->values);
}

static comet_status norm_backward(comet_holder *base, const comet_held *held, const comet_held *output,
                                  const comet_op_call *call, int by_parts) {
    (void)output;
    source s = {base, held, (float *)call->x[0]};
    if (by_parts)
        return comet_cpu_norm_backward_by_parts(call, &(comet_norm_parts){held->parts, fetch, &s});
    comet_status status = load(base, held, s.values);
    return status == COMET_OK ? comet_cpu_batch_norm.backward(call) : status;
}

static void release(comet_holder *base, int index) {
    holder *h = (holder *)base;
    for (int part = 0; part < MOST_PARTS; part++) {
        comet_store_handle *handle = &h->slots[index].handles[part];
        if (*handle)
            comet_store_release(h->store, *handle);
        *handle = 0;
    }
}

/* ---- what it says ---- */

static int report(comet_holder *base, int index, comet_held_report *found) {
    const slot *s = &((holder *)base)->slots[index];
    *found = s->report;
    return s->is_known;
}

static comet_holder_stats stats(comet_holder *base) {
    comet_store_stats s = {.size = sizeof s};
    if (comet_store_get_stats(((holder *)base)->store, &s) != COMET_OK)
        return (comet_holder_stats){0};
    return (comet_holder_stats){(size_t)s.peak_used_bytes, s.live.spilled, (int64_t)s.entries};
}

/* ---- making one ---- */

static void holder_free(comet_holder *base) {
    holder *h = (holder *)base;
    const comet_allocator *allocator = h->allocator;
    for (int i = 0; h->slots && i < h->slot_count; i++)
        release(base, i);
    comet_store_free(h->store);
    comet_memory_give(allocator, h->slots, (size_t)h->slot_count * sizeof *h->slots);
    comet_memory_give(allocator, h, sizeof *h);
}

static comet_status make(holder *h, const comet_holder_options *options) {
    comet_store_options o = COMET_STORE_OPTIONS_INIT;
    o.limit_bytes = options->limit_bytes;
    o.spill_directory = options->spill_directory;
    o.spill_limit_bytes = options->spill_limit_bytes;
    o.threads = h->base.backend->threads;
    o.allocator = h->allocator;
    h->slot_count = options->slots;
    h->slots = comet_memory_take(h->allocator, (size_t)h->slot_count * sizeof *h->slots);
    if (!h->slots)
        return COMET_ERROR_MEMORY;
    memset(h->slots, 0, (size_t)h->slot_count * sizeof *h->slots);
    return comet_store_new(&o, &h->store);
}

comet_status comet_cpu_holder_new(comet_backend *backend, const comet_holder_options *options, comet_holder **made) {
    holder *h = comet_memory_take(options->allocator, sizeof *h);
    if (!h)
        return COMET_ERROR_MEMORY;
    *h = (holder){.base = {.backend = backend,
                           .hold = hold,
                           .hold_output = hold_output,
                           .hold_norm = hold_norm,
                           .load = load,
                           .load_rebuilt = load_rebuilt,
                           .norm_backward = norm_backward,
                           .load_part = load_part,
                           .release = release,
                           .report = report,
                           .stats = stats,
                           .free = holder_free}};
    h->allocator = comet_memory_hold(&h->allocator_copy, options->allocator);
    comet_status status = make(h, options);
    if (status != COMET_OK) {
        holder_free(&h->base);
        return status;
    }
    *made = &h->base;
    return COMET_OK;
}
