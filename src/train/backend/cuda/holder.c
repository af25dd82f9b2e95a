/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU's holder: streams in the plan's places, made and read by libcomet's kernels. Nothing here waits but `settle`,
 * and nothing is allocated but when the holder is made.
 */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "comet/cuda.h"
#include "train/backend/cuda/holder.h"
#include "train/backend/cuda/kernels/activation.h"
#include "train/backend/cuda/kernels/norm_tables.h"
#include "train/backend/cuda/offload.h"
#include "train/backend/cuda/ops/batch_norm.h"

typedef struct slot {
    comet_cuda_slot stream;
    comet_codec_params codec;
    int holds;    /* 1: and not released */
    int is_fresh; /* 1: and whether it fitted is not known yet */
    int is_norm, is_known, is_offloaded;
    int is_plain; /* held as it is */
    void *place;  /* of what is offloaded as it is: where it came back to */
    comet_held_report report;
} slot;

typedef struct holder {
    comet_holder base; /* first: a comet_holder * is a pointer to this */
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_backend_cuda *backend;
    int count;
    slot *slots;
    int *fresh; /* slots filled since the last settling */
    int fresh_count, held_count;
    /* On the device, and their copies in page-locked memory. */
    comet_cuda_result_place *results, *host_results;
    comet_cuda_held_words *words, *host_words;
    int32_t *status, *host_status; /* of all decoding */
    comet_cuda_upload bounds;      /* of the run: by slot, floats */
    comet_cuda_offload *offload;
} holder;

static comet_tensor tensor_of(const comet_holder *h, const comet_held *held, const void *values) {
    const comet_shape *s = &held->shape;
    comet_tensor t;
    comet_tensor_init_on(&t, h->backend->device, (void *)values, h->backend->dtype, COMET_NHWC, 4,
                         (int64_t[]){held->samples, s->height, s->width, s->channels});
    return t;
}

/* ---- bounds ---- */

static comet_status set_bounds(comet_holder *base, const double *bounds) {
    holder *h = (holder *)base;
    const size_t bytes = (size_t)h->count * sizeof(float);
    void *host;
    COMET_TRY(comet_cuda_upload_begin(&h->bounds, bytes, &host));
    for (int i = 0; i < h->count; i++) /* never above what is asked for */
        ((float *)host)[i] = (double)(float)bounds[i] > bounds[i] ? nextafterf((float)bounds[i], 0) : (float)bounds[i];
    return comet_cuda_upload_end(&h->bounds, bytes, h->backend->queue);
}

static const float *bound_at(const holder *h, int index) {
    return (const float *)h->bounds.device.memory + index;
}

/* An absolute bound is read on the device, where each run has its own. */
static void point_to_bound(const holder *h, int index, comet_codec_params *codec) {
    if (codec->codec == COMET_CODEC_EB && codec->bound_kind == COMET_BOUND_ABSOLUTE && codec->bound > 0)
        codec->device_bound = bound_at(h, index);
}

/* ---- holding ---- */

static slot *begin_slot(holder *h, const comet_held *held) {
    slot *s = &h->slots[held->slot];
    s->stream = (comet_cuda_slot){held->memory, held->capacity, NULL, &h->results[held->slot].result};
    s->codec = held->codec;
    s->codec.grid = NULL;
    point_to_bound(h, held->slot, &s->codec);
    s->is_norm = s->is_known = s->is_plain = 0;
    s->is_offloaded = held->offload;
    s->place = NULL;
    return s;
}

/* A stream that is made: on to the host, if it shall go there. All of its room: how much of it is used nobody knows. */
static comet_status send(holder *h, const comet_held *held) {
    const slot *s = &h->slots[held->slot];
    return s->is_offloaded ? comet_cuda_offload_out(h->offload, held->slot, s->stream.base, s->stream.capacity)
                           : COMET_OK;
}

static size_t raw_bytes(const holder *h, const comet_held *held) {
    return (size_t)(comet_shape_count(held->shape) * held->samples) * comet_dtype_size(h->base.backend->dtype);
}

/* Whether a stream fitted is to be found out; of what is held as it is there is nothing to know. */
static void note_held(holder *h, int index) {
    slot *s = &h->slots[index];
    h->held_count += !s->holds;
    s->holds = 1;
    if (s->is_plain || s->is_fresh)
        return;
    h->fresh[h->fresh_count++] = index;
    s->is_fresh = 1;
}

static void again(comet_holder *base, int index) {
    note_held((holder *)base, index);
}

/* As it is, to the host. */
static comet_status hold_plain(holder *h, const comet_held *held, const void *values) {
    slot *s = begin_slot(h, held);
    const size_t bytes = raw_bytes(h, held);
    s->report = (comet_held_report){bytes, 0};
    s->is_known = s->is_plain = 1;
    note_held(h, held->slot);
    return comet_cuda_offload_out(h->offload, held->slot, values, bytes);
}

static comet_status show(holder *h, const comet_held *held, const comet_tensor *values, const comet_codec_grid *grid) {
    const comet_holder_watch *watch = h->base.watch;
    const comet_held_part shown = {&h->base, held, 0, values, grid, &h->results[held->slot].result.codec};
    return watch && watch->held ? watch->held(watch->context, &shown) : COMET_OK;
}

static comet_status hold(comet_holder *base, const comet_held *held, const void *values) {
    holder *h = (holder *)base;
    if (held->form == COMET_FORM_KEEP)
        return hold_plain(h, held, values);
    slot *s = begin_slot(h, held);
    const comet_tensor t = tensor_of(base, held, values);
    const comet_codec_exec exec = comet_cuda_exec(h->backend);
    COMET_TRY(comet_cuda_compress(&t, &s->codec, &exec, &s->stream, NULL));
    note_held(h, held->slot);
    COMET_TRY(show(h, held, &t, NULL));
    return send(h, held);
}

static comet_status hold_output(comet_holder *base, const comet_held *held, const comet_op_call *call) {
    COMET_TRY(base->backend->kernels[call->node->kind]->forward(call));
    return hold(base, held, call->y);
}

/* The bound in the units of the normalised input, made on the device if it is relative. */
static comet_status set_norm_bound(holder *h, const comet_held *held, const comet_op_call *call,
                                   const comet_cuda_norm *norm, slot *s) {
    comet_cuda_held_words *words = &h->words[held->slot];
    const int relative = s->codec.bound_kind == COMET_BOUND_RELATIVE;
    COMET_TRY(comet_cuda_norm_bound(norm->inverse_std, norm->shift, (double)call->node->as.norm.epsilon,
                                    bound_at(h, held->slot), norm->channels, &words->bound, &words->flaw,
                                    comet_cuda_queue(call)));
    if (relative)
        s->codec.device_bound = &words->bound;
    s->codec.bound_kind = COMET_BOUND_ABSOLUTE;
    return COMET_OK;
}

/* A stream of a sum that the norm's kernel can write beside that of its input. */
static int goes_along(const comet_held *output) {
    const comet_codec_params *c = &output->codec;
    return output->form == COMET_FORM_CODEC && c->codec == COMET_CODEC_EB && c->keep_mask && !c->checksum &&
           c->rounding == COMET_ROUND_NEAREST && c->bound_kind == COMET_BOUND_ABSOLUTE;
}

/* What a sum adds to the forward pass; NULL without one. `output` NULL: its stream is not made along with it. */
static const comet_cuda_norm_residual *residual_of(holder *h, const comet_op_call *call, const comet_held *output,
                                                   const comet_tensor *add, comet_cuda_norm_residual *residual) {
    if (!call->add)
        return NULL;
    *residual = (comet_cuda_norm_residual)COMET_CUDA_NORM_RESIDUAL_INIT;
    residual->add = add;
    if (output) {
        slot *s = begin_slot(h, output);
        residual->y_slot = &s->stream;
        residual->y_params = &s->codec;
    }
    return residual;
}

/* Output and stream, or streams, in one pass. */
static comet_status norm_streams(holder *h, const comet_held *held, const comet_held *along, const comet_op_call *call,
                                 const comet_cuda_norm *norm) {
    slot *s = begin_slot(h, held);
    const comet_tensor x = comet_cuda_tensor(call, call->node->input[0], call->x[0]),
                       y = comet_cuda_tensor(call, call->node->output, call->y),
                       add = comet_cuda_tensor(call, call->node->output, call->add);
    const comet_codec_exec exec = comet_cuda_exec(h->backend);
    comet_cuda_norm_residual residual;
    COMET_TRY(set_norm_bound(h, held, call, norm, s));
    COMET_TRY(comet_cuda_norm_forward(norm, &x, &y, &s->codec, &exec, &s->stream, NULL,
                                      residual_of(h, call, along, &add, &residual)));
    s->is_norm = 1;
    note_held(h, held->slot);
    COMET_TRY(send(h, held));
    if (!along)
        return COMET_OK;
    note_held(h, along->slot);
    return send(h, along);
}

static comet_status show_norm(holder *h, const comet_held *held, const comet_op_call *call,
                              const comet_cuda_norm *norm) {
    const comet_tensor x = comet_cuda_tensor(call, call->node->input[0], call->x[0]);
    comet_codec_grid grid;
    COMET_TRY(comet_cuda_norm_grid(norm, &grid));
    return show(h, held, &x, &grid);
}

/* Statistics first, which the grid needs. */
static comet_status hold_norm(comet_holder *base, const comet_held *held, const comet_held *output,
                              const comet_op_call *call) {
    holder *h = (holder *)base;
    const comet_cuda_norm norm = comet_cuda_norm_of(call);
    const comet_held *along = output && goes_along(output) ? output : NULL;
    COMET_TRY(comet_cuda_batch_statistics(call));
    COMET_TRY(norm_streams(h, held, along, call, &norm));
    COMET_TRY(comet_cuda_norm_mask(call));
    COMET_TRY(show_norm(h, held, call, &norm));
    if (!output)
        return COMET_OK;
    const comet_tensor y = comet_cuda_tensor(call, call->node->output, call->y);
    return along ? show(h, output, &y, NULL) : hold(base, output, call->y);
}

/* ---- using it ---- */

/* ---- to the host and back ---- */

static comet_status gone(comet_holder *base, int index) {
    holder *h = (holder *)base;
    return h->slots[index].is_offloaded ? comet_cuda_offload_await(h->offload, index) : COMET_OK;
}

static comet_status come_back(comet_holder *base, const comet_held *held, void *memory) {
    holder *h = (holder *)base;
    slot *s = &h->slots[held->slot];
    s->place = s->stream.base = memory;
    return comet_cuda_offload_back(h->offload, held->slot, memory);
}

/* What is issued from here on finds what was held. */
static comet_status await_slot(holder *h, int index) {
    return gone(&h->base, index);
}

/* ---- decoding ---- */

/* `call` NULL: not a norm's. `epilogue` may be NULL. */
static comet_status decode(holder *h, const comet_held *held, const comet_op_call *call,
                           const comet_cuda_epilogue *epilogue, void *values) {
    slot *s = &h->slots[held->slot];
    const comet_tensor t = tensor_of(&h->base, held, values);
    const comet_codec_exec exec = comet_cuda_exec(h->backend);
    comet_codec_params codec = s->codec;
    comet_codec_grid grid;
    COMET_TRY(await_slot(h, held->slot));
    if (call) {
        const comet_cuda_norm norm = comet_cuda_norm_of(call);
        COMET_TRY(comet_cuda_norm_grid(&norm, &grid));
        codec.grid = &grid;
    }
    return comet_cuda_decompress(&s->stream, &codec, epilogue, &exec, &t, h->status);
}

static comet_status tell_loaded(holder *h, const comet_held *held, void *values) {
    const comet_holder_watch *watch = h->base.watch;
    return watch && watch->loaded ? watch->loaded(watch->context, held->slot, 0, values) : COMET_OK;
}

static comet_status load_part(comet_holder *base, const comet_held *held, int part, void *values) {
    holder *h = (holder *)base;
    const slot *s = &h->slots[held->slot];
    (void)part; /* there is one */
    if (held->form != COMET_FORM_KEEP)
        return decode(h, held, NULL, NULL, values);
    COMET_REQUIRE(s->place == values, "%s is not where it came back to", held->name);
    return await_slot(h, held->slot);
}

static comet_status load(comet_holder *base, const comet_held *held, void *values) {
    COMET_TRY(load_part(base, held, 0, values));
    return tell_loaded((holder *)base, held, values);
}

/* What a norm made, in the pass that decodes its input; a SiLU behind it in a second one. */
static comet_status load_rebuilt(comet_holder *base, const comet_held *held, const comet_op_call *call,
                                 comet_rebuild what, void *values) {
    holder *h = (holder *)base;
    const comet_cuda_norm norm = comet_cuda_norm_of(call);
    comet_cuda_epilogue epilogue = COMET_CUDA_EPILOGUE_INIT;
    epilogue.channels = norm.channels;
    epilogue.scale = norm.gamma;
    epilogue.shift = norm.beta;
    epilogue.relu = what == COMET_REBUILD_RELU;
    COMET_TRY(decode(h, held, call, &epilogue, values));
    if (what != COMET_REBUILD_SILU)
        return COMET_OK;
    return comet_cuda_silu_forward(values, values, comet_cuda_count(call, call->node->output), base->backend->dtype,
                                   h->backend->queue);
}

/* A norm's input as it was held: of any dtype, as its stream is in fp32. */
static comet_status decode_norm(holder *h, const comet_held *held, const comet_op_call *call, void *values) {
    comet_cuda_epilogue rounded = COMET_CUDA_EPILOGUE_INIT;
    rounded.channels = comet_cuda_norm_of(call).channels;
    return decode(h, held, call, h->base.backend->dtype == COMET_F32 ? NULL : &rounded, values);
}

/* For those who look: the gradient behind a sum's ReLU in dadd, then what was held in dx's place. */
static comet_status show_loaded(holder *h, const comet_held *held, const comet_held *output,
                                const comet_op_call *call) {
    if (call->dadd && call->relu && !call->mask) {
        const void *y = output ? call->dx[0] : call->y;
        if (output)
            COMET_TRY(decode(h, output, NULL, NULL, call->dx[0]));
        COMET_TRY(comet_cuda_relu_backward(y, NULL, call->dy, call->dadd, comet_cuda_count(call, call->node->output),
                                           h->base.backend->dtype, h->backend->queue));
    }
    COMET_TRY(decode_norm(h, held, call, call->dx[0]));
    return tell_loaded(h, held, call->dx[0]);
}

/* What has been shown is a norm whose sum has no ReLU any more: its gradient is in dadd. */
static comet_op_call as_shown(const comet_op_call *call) {
    comet_op_call shown = *call;
    if (call->dadd && call->relu) {
        shown.dy = call->dadd;
        shown.relu = 0;
    }
    return shown;
}

static comet_status norm_backward(comet_holder *base, const comet_held *held, const comet_held *output,
                                  const comet_op_call *given, int by_parts) {
    holder *h = (holder *)base;
    comet_op_call call = *given;
    comet_cuda_norm_source source = {.status = h->status};
    (void)by_parts;
    COMET_TRY(comet_cuda_norm_unmask(&call));
    if (held && base->watch && base->watch->loaded) {
        COMET_TRY(show_loaded(h, held, output, &call));
        call = as_shown(&call);
    }
    if (held) {
        COMET_TRY(await_slot(h, held->slot));
        source.stream = &h->slots[held->slot].stream;
        source.codec = &h->slots[held->slot].codec;
    }
    if (output) {
        COMET_TRY(await_slot(h, output->slot));
        source.output = &h->slots[output->slot].stream;
        source.output_codec = &h->slots[output->slot].codec;
    }
    return comet_cuda_norm_back(&call, &source);
}

/* The place is the plan's. */
static void release(comet_holder *base, int index) {
    holder *h = (holder *)base;
    h->held_count -= h->slots[index].holds;
    h->slots[index].holds = 0;
}

/* ---- what it says ---- */

static void learn(holder *h, int index) {
    const comet_codec_record *r = &h->host_results[index].result.codec;
    const double rms = r->stats.nonzero > 0 ? sqrt(r->stats.sum_squares / (double)r->stats.nonzero) : 0;
    h->slots[index].report = (comet_held_report){r->bytes, rms};
    h->slots[index].is_known = 1;
    h->slots[index].is_fresh = 0;
}

/* The first slot, in the order they were filled, with which something is wrong. */
static comet_status find_wrong(const holder *h, int *wrong) {
    for (int i = 0; i < h->fresh_count; i++) {
        const int index = h->fresh[i];
        *wrong = index;
        if (h->slots[index].is_norm && h->host_words[index].flaw)
            return COMET_ERROR_DIVERGED;
        if (h->host_results[index].result.status != COMET_OK)
            return (comet_status)h->host_results[index].result.status;
    }
    *wrong = -1;
    return (comet_status)*h->host_status;
}

static comet_status fetch(const holder *h, void *host, const void *device, size_t bytes) {
    return comet_cuda_status(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, h->backend->queue));
}

static comet_status settle(comet_holder *base, int *refused) {
    holder *h = (holder *)base;
    const cudaStream_t queue = h->backend->queue;
    *refused = -1;
    COMET_TRY(fetch(h, h->host_results, h->results, (size_t)h->count * sizeof *h->results));
    COMET_TRY(fetch(h, h->host_words, h->words, (size_t)h->count * sizeof *h->words));
    COMET_TRY(fetch(h, h->host_status, h->status, sizeof *h->status));
    COMET_TRY(comet_cuda_status(cudaStreamSynchronize(queue)));
    for (int i = 0; i < h->fresh_count; i++)
        learn(h, h->fresh[i]);
    const comet_status status = find_wrong(h, refused);
    h->fresh_count = 0;
    return status;
}

void comet_cuda_holder_guard(const comet_holder *base, comet_cuda_guard_job *job) {
    const holder *h = (const holder *)base;
    if (!h)
        return;
    job->results = h->results;
    job->words = h->words;
    job->slots = h->count;
    job->decoded = h->status;
}

static int report(comet_holder *base, int index, comet_held_report *found) {
    const slot *s = &((holder *)base)->slots[index];
    *found = s->report;
    return s->is_known;
}

static comet_holder_stats stats(comet_holder *base) {
    return (comet_holder_stats){.entries = ((const holder *)base)->held_count};
}

/* ---- making one ---- */

static void holder_free(comet_holder *base) {
    holder *h = (holder *)base;
    const comet_allocator *allocator = h->allocator;
    (void)cudaStreamSynchronize(h->backend->queue);
    comet_cuda_offload_free(h->offload);
    comet_cuda_upload_free(&h->bounds);
    (void)cudaFree(h->results);
    (void)cudaFree(h->words);
    (void)cudaFree(h->status);
    (void)cudaFreeHost(h->host_results);
    (void)cudaFreeHost(h->host_words);
    (void)cudaFreeHost(h->host_status);
    comet_memory_give(allocator, h->slots, (size_t)h->count * sizeof *h->slots);
    comet_memory_give(allocator, h->fresh, (size_t)h->count * sizeof *h->fresh);
    comet_memory_give(allocator, h, sizeof *h);
}

static comet_status take_pair(void **device, void **host, size_t bytes, cudaStream_t queue) {
    COMET_TRY(comet_cuda_status(cudaMalloc(device, bytes)));
    COMET_TRY(comet_cuda_status(cudaHostAlloc(host, bytes, cudaHostAllocDefault)));
    memset(*host, 0, bytes);
    return comet_cuda_status(cudaMemsetAsync(*device, 0, bytes, queue));
}

static comet_status make(holder *h) {
    const size_t count = (size_t)h->count;
    const cudaStream_t queue = h->backend->queue;
    h->slots = comet_memory_take(h->allocator, count * sizeof *h->slots);
    h->fresh = comet_memory_take(h->allocator, count * sizeof *h->fresh);
    if (!h->slots || !h->fresh)
        return COMET_ERROR_MEMORY;
    memset(h->slots, 0, count * sizeof *h->slots);
    COMET_TRY(comet_cuda_offload_new(h->count, queue, h->allocator, &h->offload));
    COMET_TRY(take_pair((void **)&h->results, (void **)&h->host_results, count * sizeof *h->results, queue));
    COMET_TRY(take_pair((void **)&h->words, (void **)&h->host_words, count * sizeof *h->words, queue));
    return take_pair((void **)&h->status, (void **)&h->host_status, sizeof *h->status, queue);
}

comet_status comet_cuda_holder_new(comet_backend *backend, const comet_holder_options *options, comet_holder **made) {
    holder *h = comet_memory_take(options->allocator, sizeof *h);
    if (!h)
        return COMET_ERROR_MEMORY;
    *h = (holder){.base = {.backend = backend,
                           .bounds = set_bounds,
                           .hold = hold,
                           .hold_output = hold_output,
                           .hold_norm = hold_norm,
                           .load = load,
                           .load_rebuilt = load_rebuilt,
                           .norm_backward = norm_backward,
                           .load_part = load_part,
                           .gone = gone,
                           .come_back = come_back,
                           .release = release,
                           .again = again,
                           .settle = settle,
                           .report = report,
                           .stats = stats,
                           .free = holder_free},
                  .backend = (comet_backend_cuda *)backend,
                  .count = options->slots > 0 ? options->slots : 1};
    h->allocator = comet_memory_hold(&h->allocator_copy, options->allocator);
    comet_status status = comet_cuda_status(cudaSetDevice(h->backend->options.device));
    if (status == COMET_OK)
        status = make(h);
    if (status != COMET_OK) {
        holder_free(&h->base);
        return status;
    }
    *made = &h->base;
    return COMET_OK;
}
