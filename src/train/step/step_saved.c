/* SPDX-License-Identifier: Apache-2.0 */
/* What a step saves, and how it comes back: entries of the plan as the holder understands them. */
#include "train/step/step_impl.h"

/* To measure a tensor before it is compressed takes a pass over it: the rms of the last step stands for it. */
static void use_last_rms(comet_codec_params *codec, double rms) {
    if (codec->codec != COMET_CODEC_EB || codec->bound_kind != COMET_BOUND_RELATIVE || rms <= 0)
        return;
    codec->bound_kind = COMET_BOUND_ABSOLUTE;
    codec->bound *= rms;
}

comet_codec_params comet_step_codec(const comet_step *s, int entry) {
    const comet_plan_entry *e = &s->plan->entries[entry];
    const comet_learned_entry *known = comet_learned_at(s->learned, entry);
    comet_codec_params codec = e->form.codec;
    codec.bound_kind = known->bound_kind;
    codec.bound = known->bound;
    if (s->plan->backend->fused_streams && e->kind == COMET_SAVED_VALUE)
        use_last_rms(&codec, known->rms);
    return codec;
}

comet_status comet_step_set_bounds(comet_step *s) {
    if (!s->holder || !s->holder->bounds)
        return COMET_OK;
    for (int i = 0; i < s->plan->entry_count; i++)
        s->bounds[i] = comet_plan_in_store(&s->plan->entries[i]) ? comet_step_codec(s, i).bound : 0;
    return s->holder->bounds(s->holder, s->bounds);
}

static comet_held held_of(const comet_step *s, int entry) {
    const comet_plan_entry *e = &s->plan->entries[entry];
    comet_held held = {.slot = entry,
                       .name = e->name,
                       .shape = *comet_value_shape(s->plan->graph, e->value),
                       .samples = s->plan->options.batch,
                       .parts = e->parts,
                       .form = e->form.form,
                       .offload = e->form.offload,
                       .codec = comet_step_codec(s, entry),
                       .memory = comet_step_at(s, e->buffer),
                       .capacity = e->capacity};
    held.codec.seed = s->options->seed ^ (s->options->step << 20) ^ ((uint64_t)s->options->rank << 48) ^
                      (uint64_t)(entry * COMET_PLAN_PARTS);
    return held;
}

/* ---- holding ---- */

static comet_status note_held(comet_step *s, int entry, comet_status status) {
    if (status == COMET_OK)
        comet_step_note_held(s, entry);
    if (status == COMET_ERROR_CAPACITY)
        s->refused = entry;
    return status;
}

comet_status comet_step_hold(comet_step *s, int entry, const void *values) {
    const comet_held held = held_of(s, entry);
    return note_held(s, entry, s->holder->hold(s->holder, &held, values));
}

comet_status comet_step_hold_output(comet_step *s, int entry, const comet_op_call *call) {
    const comet_held held = held_of(s, entry);
    return note_held(s, entry, s->holder->hold_output(s->holder, &held, call));
}

comet_status comet_step_hold_norm(comet_step *s, int entry, int output, const comet_op_call *call) {
    const comet_held held = held_of(s, entry);
    comet_held y = {0};
    if (output >= 0)
        y = held_of(s, output);
    comet_status status = s->holder->hold_norm(s->holder, &held, output >= 0 ? &y : NULL, call);
    (void)note_held(s, entry, status);
    return output >= 0 && status == COMET_OK ? note_held(s, output, status) : status;
}

uint64_t comet_step_learn(comet_step *s, comet_status status) {
    uint64_t bytes = 0;
    for (int i = 0; i < s->plan->entry_count; i++) {
        comet_held_report report;
        if (!s->held[i] || !s->holder->report(s->holder, i, &report))
            continue;
        const double rms = status == COMET_OK ? report.rms : comet_learned_at(s->learned, i)->rms;
        comet_learned_see(s->learned, i, report.bytes, rms);
        bytes += report.bytes;
    }
    return bytes;
}

/* ---- to the host and back ---- */

comet_status comet_step_move(comet_step *s, const comet_plan_move *m) {
    if (!m->is_back)
        return s->holder->gone(s->holder, m->entry);
    const comet_held held = held_of(s, m->entry);
    return s->holder->come_back(s->holder, &held, comet_step_at(s, m->buffer));
}

/* ---- using it ---- */

void comet_step_release(comet_step *s, int entry) {
    s->holder->release(s->holder, entry);
}

comet_status comet_step_normalise(const comet_step *s, void *values, int again) {
    const comet_plan *p = s->plan;
    const comet_shape *shape = comet_value_shape(p->graph, p->graph->input);
    const comet_images_call call = {.backend = p->backend,
                                    .normalisation = s->options->normalisation,
                                    .bytes = s->options->bytes,
                                    .count = s->options->count > 0 ? s->options->count : p->options.batch,
                                    .batch = p->options.batch,
                                    .pixels = (int64_t)shape->height * shape->width,
                                    .channels = shape->channels,
                                    .values = values,
                                    .again = again};
    return p->backend->images(&call);
}

comet_status comet_step_look_ahead(const comet_step *s) {
    const comet_plan *p = s->plan;
    const comet_step_ahead *ahead = s->options->ahead;
    const uint8_t *bytes = ahead && p->backend->images_ahead ? ahead->next(ahead->context) : NULL;
    const comet_shape *shape = comet_value_shape(p->graph, p->graph->input);
    return bytes ? p->backend->images_ahead(p->backend, bytes, comet_shape_count(*shape) * p->options.batch) : COMET_OK;
}

comet_status comet_step_load(comet_step *s, const comet_plan_load *l) {
    const comet_plan_entry *e = &s->plan->entries[l->entry];
    void *values = comet_step_at(s, l->buffer);
    if (e->form.bytes)
        return comet_step_normalise(s, values, 1);
    const comet_held held = held_of(s, l->entry);
    comet_status status;
    if (l->rebuild == COMET_REBUILD_NOTHING)
        status = s->holder->load(s->holder, &held, values);
    else {
        comet_op_call norm = comet_plan_call(s->plan, e->node);
        norm.side = comet_step_at(s, s->plan->nodes[e->node].side);
        status = s->holder->load_rebuilt(s->holder, &held, &norm, l->rebuild, values);
    }
    if (l->is_last)
        comet_step_release(s, l->entry);
    return status;
}

/* Whoever looks at a norm with a sum sees it without: the holder has the gradient behind the sum's ReLU in dadd. */
static comet_op_call seen_call(const comet_op_call *call) {
    comet_op_call seen = *call;
    if (call->dadd && call->relu) {
        seen.dy = call->dadd;
        seen.relu = 0;
    }
    return seen;
}

comet_status comet_step_norm_backward(comet_step *s, const comet_plan_load *input, const comet_plan_load *sign,
                                      const comet_op_call *call) {
    const comet_op_call seen = seen_call(call);
    const int by_parts = input && input->use == COMET_LOAD_NORM_BY_PARTS;
    comet_held held = {0}, y = {0};
    if (input) {
        held = held_of(s, input->entry);
        s->norm = (comet_step_norm){&seen, input->entry, held.parts, by_parts, 0};
    }
    if (sign)
        y = held_of(s, sign->entry);
    comet_status status = s->holder->norm_backward(s->holder, input ? &held : NULL, sign ? &y : NULL, call, by_parts);
    s->norm.call = NULL;
    if (input && input->is_last)
        comet_step_release(s, input->entry);
    if (sign && sign->is_last)
        comet_step_release(s, sign->entry);
    return status;
}

/* ---- whom the holder tells ---- */

comet_status comet_step_see_held(void *step, const comet_held_part *part) {
    const comet_step *s = step;
    const comet_step_watch *watch = s->options->watch;
    const comet_plan_entry *e = &s->plan->entries[part->held->slot];
    if (s->options->collect)
        comet_collect_saved(s->options->collect, e, part->values, part->grid, part->result);
    return watch && watch->saved ? watch->saved(watch->context, &(comet_step_saved){e, part}) : COMET_OK;
}

/* A norm's input is looked at while it is there, each part once; by parts, twice. */
static void collect_norm(comet_step *s, int part) {
    comet_step_norm *n = &s->norm;
    const int again = part != n->seen;
    if (again && !n->by_parts)
        return;
    n->seen += !again;
    if (n->by_parts)
        comet_collect_part(s->options->collect, n->call, part, n->parts, again);
    else if (n->seen == n->parts)
        comet_collect_backward(s->options->collect, n->call, NULL);
}

comet_status comet_step_see_loaded(void *step, int slot, int part, void *values) {
    comet_step *s = step;
    const comet_step_watch *watch = s->options->watch;
    const comet_plan_entry *e = &s->plan->entries[slot];
    comet_status status = COMET_OK;
    if (watch && watch->loaded) {
        const int64_t count = comet_shape_count(e->shape) * (s->plan->options.batch / e->parts);
        const comet_step_loaded loaded = {e, s->plan->graph, s->options->step, part * count, count, values};
        status = watch->loaded(watch->context, &loaded);
    }
    if (s->options->collect && s->norm.call && s->norm.slot == slot && status == COMET_OK)
        collect_norm(s, part);
    return status;
}
