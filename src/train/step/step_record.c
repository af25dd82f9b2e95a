/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that is issued once and replayed. A kind of step is issued the first time, so that all memory that it takes by
 * the way is there, and recorded the second time.
 */
#include <stdio.h>
#include <string.h>

#include "train/step/step_impl.h"

/* ---- keys ---- */

static uint64_t with_bytes(uint64_t hash, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t with_number(uint64_t hash, int64_t number) {
    return with_bytes(hash, &number, sizeof number);
}

static uint64_t with_real(uint64_t hash, double number) {
    return with_bytes(hash, &number, sizeof number);
}

/* What of a codec's parameters is an argument; its bound is not, but whether there is one is. */
static uint64_t with_codec(uint64_t hash, const comet_codec_params *p) {
    hash = with_number(hash, p->codec);
    hash = with_number(hash, p->bound_kind);
    hash = with_number(hash, p->bound > 0);
    return p->bound_kind == COMET_BOUND_RELATIVE ? with_real(hash, p->bound) : hash;
}

/* 1: none of the run's work depends on what the host does beside it. */
static int can_be_recorded(const comet_step *s) {
    const comet_step_options *o = s->options;
    return s->plan->backend->record && !o->watch && !o->clock && !o->sight &&
           (!o->collect || comet_collect_kind(o->collect));
}

/* 0: the run cannot be replayed. */
static uint64_t key_of(const comet_step *s) {
    const comet_step_options *o = s->options;
    uint64_t hash = 0xcbf29ce484222325u;
    hash = with_number(hash, o->count);
    hash = with_real(hash, (double)o->smoothing);
    hash = with_real(hash, (double)o->gradient_scale);
    hash = with_number(hash, o->accumulate);
    hash = with_number(hash, (int64_t)o->seed);
    hash = with_number(hash, o->rank);
    if (o->collect)
        hash = with_number(hash, (int64_t)comet_collect_kind(o->collect));
    hash = with_number(hash, o->bytes != NULL);
    if (o->normalisation)
        hash = with_bytes(hash, o->normalisation, sizeof *o->normalisation);
    for (int i = 0; s->holder && i < s->plan->entry_count; i++) {
        if (!comet_plan_in_store(&s->plan->entries[i]))
            continue;
        const comet_codec_params codec = comet_step_codec(s, i);
        if (codec.rounding == COMET_ROUND_STOCHASTIC)
            return 0;
        hash = with_codec(hash, &codec);
    }
    return hash ? hash : 1;
}

/* ---- kinds ---- */

static void forget(comet_step *s, comet_step_kind *kind) {
    const comet_backend *backend = s->plan->backend;
    int *held = kind->held;
    for (int i = 0; i < COMET_STEP_PARTS; i++)
        if (kind->parts[i])
            backend->recording_free(s->plan->backend, kind->parts[i]);
    *kind = (comet_step_kind){.held = held};
}

int comet_step_is_recorded(const comet_step *s) {
    int is = 0;
    for (int i = 0; i < COMET_STEP_RECORDINGS; i++)
        is |= s->kinds[i].parts[0] != NULL;
    return is;
}

const char *comet_step_refusal(const comet_step *s) {
    return s->refusal;
}

void comet_step_forget_kinds(comet_step *s) {
    for (int i = 0; i < COMET_STEP_RECORDINGS; i++)
        forget(s, &s->kinds[i]);
}

/* The one of this key, which may be new: in place of that which was not used for the longest time. */
static comet_step_kind *find(comet_step *s, uint64_t key) {
    comet_step_kind *oldest = &s->kinds[0];
    for (int i = 0; i < COMET_STEP_RECORDINGS; i++) {
        if (s->kinds[i].key == key)
            return &s->kinds[i];
        if (s->kinds[i].last_used < oldest->last_used)
            oldest = &s->kinds[i];
    }
    forget(s, oldest);
    oldest->key = key;
    return oldest;
}

static comet_status give_inputs(const comet_step *s) {
    const comet_plan *p = s->plan;
    const comet_step_options *o = s->options;
    const int count = o->count > 0 ? o->count : p->options.batch;
    const comet_step_inputs inputs = {.bytes = p->options.input_bytes ? o->bytes : NULL,
                                      .byte_count =
                                          comet_shape_count(*comet_value_shape(p->graph, p->graph->input)) * count,
                                      .labels = o->labels,
                                      .label_count = count,
                                      .classes = comet_value_shape(p->graph, p->graph->output)->channels,
                                      .step = o->step};
    return p->backend->inputs(p->backend, &inputs);
}

comet_status comet_step_choose_kind(comet_step *s) {
    s->kind = s->counted = NULL;
    s->runs++;
    if (!can_be_recorded(s))
        return COMET_OK;
    const uint64_t key = key_of(s);
    comet_step_kind *kind = key ? find(s, key) : NULL;
    if (!kind)
        return COMET_OK;
    s->counted = kind;
    kind->last_used = s->runs;
    if (kind->runs == 0 || kind->is_refused)
        return COMET_OK;
    s->kind = kind;
    return give_inputs(s);
}

/* Of one that broke off not all kernels may have run, and one that runs for the first time may not be recorded. */
void comet_step_count_kind(comet_step *s) {
    if (s->counted)
        s->counted->runs++;
}

/* ---- parts ---- */

/* It is issued from here on; and if that is not final, the next run of the kind is recorded again. */
static void stop_recording(comet_step *s, int is_final) {
    comet_step_kind *kind = s->kind;
    if (is_final && !s->refusal[0])
        (void)snprintf(s->refusal, sizeof s->refusal, "%s", *comet_last_error() ? comet_last_error() : "no reason");
    const comet_step_kind was = *kind;
    forget(s, kind);
    *kind = (comet_step_kind){
        .key = was.key, .runs = 1, .is_refused = is_final, .last_used = was.last_used, .held = was.held};
    s->kind = NULL;
}

/* What could not be seen for a controller cannot be recorded. */
static comet_status work_seen(comet_step *s, int part, comet_status (*work)(comet_step *s)) {
    comet_collect *collect = s->options->collect;
    if (!collect)
        return work(s);
    comet_collect_record(collect);
    const comet_status status = work(s), seen = comet_collect_end_record(collect, &s->kind->read_bytes[part]);
    return status == COMET_OK ? seen : status;
}

static comet_status record(comet_step *s, int part, comet_status (*work)(comet_step *s)) {
    comet_backend *backend = s->plan->backend;
    comet_step_kind *kind = s->kind;
    comet_status status = backend->record(backend);
    if (status == COMET_OK)
        status = work_seen(s, part, work);
    status = backend->end_record(backend, status, &kind->parts[part]);
    memcpy(kind->held, s->order, (size_t)s->held_count * sizeof *kind->held);
    kind->held_count = s->held_count;
    kind->next_move[part] = s->next_move;
    return status;
}

/* What the host knows after work that nobody issued. */
static void remember(comet_step *s, int part) {
    const comet_step_kind *kind = s->kind;
    s->next_move = kind->next_move[part];
    if (s->options->collect)
        comet_collect_replayed(s->options->collect, kind->read_bytes[part]);
    for (int i = 0; part == 0 && i < kind->held_count; i++) { /* all is held in forward */
        comet_step_note_held(s, kind->held[i]);
        s->holder->again(s->holder, kind->held[i]);
    }
}

/* COMET_OK: the part is under way. Else nothing was issued. */
static comet_status replay(comet_step *s, int part, comet_status (*work)(comet_step *s)) {
    const comet_backend *backend = s->plan->backend;
    comet_step_kind *kind = s->kind;
    if (!kind->parts[part]) {
        const comet_status status = record(s, part, work);
        if (status != COMET_OK)
            return status;
    }
    const comet_status status = backend->replay(s->plan->backend, kind->parts[part]);
    if (status == COMET_OK)
        remember(s, part);
    return status;
}

comet_status comet_step_issue(comet_step *s, int part, comet_status (*work)(comet_step *s)) {
    const int next_move = s->next_move;
    if (!s->kind)
        return work(s);
    const comet_status status = replay(s, part, work);
    if (status == COMET_OK)
        return COMET_OK;
    stop_recording(s, status != COMET_ERROR_MISMATCH);
    s->next_move = next_move;
    return work(s);
}
