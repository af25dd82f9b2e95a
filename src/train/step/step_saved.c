/* SPDX-License-Identifier: Apache-2.0 */
/* What a step saves, and how it comes back. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "train/step/step_impl.h"

static comet_store_handle *handle_of(const comet_step *s, int entry, int part) {
    return &s->handles[entry * COMET_PLAN_PARTS + part];
}

size_t comet_step_handles_bytes(const comet_plan *p) {
    return ((size_t)p->entry_count * COMET_PLAN_PARTS + 1) * sizeof(comet_store_handle);
}

void comet_step_release(comet_step *s, int entry) {
    for (comet_store_handle *h = handle_of(s, entry, 0); h < handle_of(s, entry + 1, 0); h++) {
        if (*h)
            comet_store_release(s->store, *h);
        *h = 0;
    }
}

void comet_step_release_all(comet_step *s) {
    for (int i = 0; i < s->plan->entry_count; i++)
        comet_step_release(s, i);
}

/* A part of an entry's samples. */
static comet_tensor tensor_of(const comet_step *s, const comet_plan_entry *e, void *data, int samples) {
    const comet_shape *shape = comet_value_shape(s->plan->graph, e->value);
    comet_tensor t;
    comet_tensor_init(&t, data, COMET_F32, COMET_NHWC, 4,
                      (int64_t[]){samples, shape->height, shape->width, shape->channels});
    return t;
}

/* With the rms known, a relative bound need not be preceded by a pass that measures it. */
static void make_absolute(comet_codec_params *codec, double rms) {
    if (codec->codec != COMET_CODEC_EB || codec->bound_kind != COMET_BOUND_RELATIVE || !(rms > 0 && rms <= DBL_MAX))
        return;
    codec->bound_kind = COMET_BOUND_ABSOLUTE;
    codec->bound *= rms;
}

static comet_status show(const comet_step *s, const comet_plan_entry *e, const comet_tensor *values,
                         const comet_codec_grid *grid, comet_store_handle handle, const comet_codec_result *result) {
    const comet_step_saved saved = {
        .entry = e, .values = values, .grid = grid, .store = s->store, .handle = handle, .result = result};
    return s->options->watch->saved(s->options->watch->context, &saved);
}

/* What all parts of an entry come to. */
typedef struct saved_sums {
    size_t stored;
    double squares, nonzero;
} saved_sums;

static comet_status save_part(comet_step *s, int entry, int part, const comet_step_content *content, float *data,
                              saved_sums *sums) {
    const comet_plan_entry *e = &s->plan->entries[entry];
    const comet_tensor t = tensor_of(s, e, data, s->plan->options.batch / e->parts);
    comet_codec_params codec = e->form.codec;
    codec.grid = content->grid;
    make_absolute(&codec, content->rms);
    codec.seed = s->options->seed ^ (s->options->step << 20) ^ (uint64_t)(entry * COMET_PLAN_PARTS + part);
    comet_store_item item = COMET_STORE_ITEM_INIT;
    item.name = e->name;
    item.form = e->form.form;
    item.offload = e->form.offload;
    item.codec = e->form.form == COMET_FORM_CODEC ? &codec : NULL;
    comet_store_info info = {.size = sizeof info};
    comet_status status = comet_store_save(s->store, &t, &item, handle_of(s, entry, part), &info);
    if (status == COMET_OK) {
        sums->stored += (size_t)info.bytes.stored;
        sums->squares += info.result.stats.sum_squares;
        sums->nonzero += (double)info.result.stats.nonzero;
    }
    if (status == COMET_OK && s->options->collect && item.codec)
        comet_collect_saved(s->options->collect, e, &t, content->grid, &info.result);
    if (status == COMET_OK && s->options->watch && item.codec)
        status = show(s, e, &t, content->grid, *handle_of(s, entry, part), &info.result);
    return status;
}

comet_status comet_step_save(comet_step *s, int entry, const comet_step_content *content) {
    comet_plan_entry *e = &s->plan->entries[entry];
    const size_t values = e->raw_bytes / sizeof(float) / (size_t)e->parts;
    saved_sums sums = {0};
    comet_status status = COMET_OK;
    for (int part = 0; part < e->parts && status == COMET_OK; part++)
        status = save_part(s, entry, part, content, content->data + (size_t)part * values, &sums);
    if (status != COMET_OK) {
        s->refused = status == COMET_ERROR_CAPACITY ? entry : -1;
        return status;
    }
    s->stored_bytes += sums.stored;
    e->last_bytes = sums.stored;
    e->rms = sums.nonzero > 0 ? sqrt(sums.squares / sums.nonzero) : 0;
    if (e->is_estimate == 1 || e->stored_bytes < sums.stored)
        e->stored_bytes = sums.stored;
    if (e->is_estimate)
        e->is_estimate = 2; /* seen */
    return COMET_OK;
}

/* Errors on purpose. */
static void inject(const comet_step *s, int entry, int part, float *data) {
    const comet_graph *g = s->plan->graph;
    const comet_plan_entry *e = &s->plan->entries[entry];
    const comet_node *norm = e->kind == COMET_SAVED_NORM ? &g->nodes[e->node] : NULL;
    const int64_t count = (int64_t)(e->raw_bytes / sizeof *data) / e->parts;
    const comet_inject_place place = {.gamma =
                                          norm ? comet_node_parameter(g, norm, COMET_PARAMETER_WEIGHT)->value : NULL,
                                      .beta = norm ? comet_node_parameter(g, norm, COMET_PARAMETER_BIAS)->value : NULL,
                                      .step = s->options->step,
                                      .first = part * count,
                                      .count = count};
    comet_inject_values(s->options->inject, e, &place, data);
}

comet_status comet_step_load_part(const comet_step *s, int entry, int part, float *data) {
    const comet_plan_entry *e = &s->plan->entries[entry];
    const comet_tensor t = tensor_of(s, e, data, s->plan->options.batch / e->parts);
    comet_status status = comet_store_load(s->store, *handle_of(s, entry, part), &t);
    if (status == COMET_OK && s->options->inject && comet_inject_concerns(s->options->inject, e))
        inject(s, entry, part, data);
    return status;
}

void comet_step_normalise(const comet_step *s, float *values) {
    const comet_plan *p = s->plan;
    const comet_shape *shape = comet_value_shape(p->graph, p->graph->input);
    const int64_t batch = p->options.batch, count = s->options->count > 0 ? s->options->count : batch;
    const int64_t pixels = (int64_t)shape->height * shape->width;
    comet_normalise(s->options->normalisation, shape->channels, s->options->bytes, count * pixels, values);
    memset(values + count * pixels * shape->channels, 0,
           (size_t)((batch - count) * pixels * shape->channels) * sizeof *values);
}

comet_status comet_step_load(comet_step *s, const comet_plan_load *l) {
    const comet_plan *p = s->plan;
    const comet_plan_entry *e = &p->entries[l->entry];
    if (e->form.bytes) {
        comet_step_normalise(s, comet_step_at(s, l->buffer));
        return COMET_OK;
    }
    const size_t values = e->raw_bytes / sizeof(float) / (size_t)e->parts;
    float *data = comet_step_at(s, l->buffer);
    comet_status status = COMET_OK;
    for (int part = 0; part < e->parts && status == COMET_OK; part++)
        status = comet_step_load_part(s, l->entry, part, data + (size_t)part * values);
    if (status == COMET_OK && l->rebuild != COMET_REBUILD_NOTHING) {
        comet_op_call call = comet_plan_call(p, e->node);
        call.y = data;
        p->backend->rebuild(&call, l->rebuild);
    }
    if (l->is_last)
        comet_step_release(s, l->entry);
    return status;
}
