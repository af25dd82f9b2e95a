/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be updated and by whom; the arithmetic is in optimiser_rules.c. */
#include "train/optimiser/optimiser.h"

#include "base/parallel.h"
#include "train/optimiser/optimiser_rules.h"

comet_optimiser comet_optimiser_default(comet_optimiser_kind kind) {
    comet_optimiser o = {.kind = kind, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    if (kind == COMET_SGD)
        o.momentum = 0.9;
    else
        o.weight_decay = 0.01;
    return o;
}

static int is_part(double x) { /* false for NaN, too */
    return x >= 0.0 && x < 1.0;
}

comet_status comet_optimiser_check(const comet_optimiser *o, comet_message *message) {
    if (o->kind != COMET_SGD && o->kind != COMET_ADAMW)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "there is no such optimiser; there are sgd and adamw");
    if (!(o->weight_decay >= 0.0) || o->weight_decay > 1e6)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "a weight decay of %g is not possible",
                                 o->weight_decay);
    if (o->kind == COMET_SGD && !is_part(o->momentum))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "momentum is %g; it must be at least 0 and below 1",
                                 o->momentum);
    if (o->kind == COMET_SGD && o->nesterov && o->momentum == 0.0)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "Nesterov's rule needs a momentum above 0");
    if (o->kind == COMET_ADAMW && (!is_part(o->beta1) || !is_part(o->beta2) || !(o->epsilon > 0.0)))
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "AdamW's betas %g and %g must be at least 0 and below 1, its epsilon %g above 0",
                                 o->beta1, o->beta2, o->epsilon);
    return COMET_OK;
}

int comet_optimiser_arrays(const comet_optimiser *o) {
    return o->kind == COMET_ADAMW ? 2 : o->momentum > 0.0;
}

const char *comet_optimiser_array_name(const comet_optimiser *o, int array) {
    return o->kind == COMET_SGD ? "momentum" : array == 0 ? "first_moment" : "second_moment";
}

static int is_trained(const comet_parameter *p) {
    return p->kind < COMET_RUNNING_MEAN;
}

int64_t comet_optimiser_count(const comet_parameter *parameters, int count) {
    int64_t total = 0;
    for (int i = 0; i < count; i++)
        total += is_trained(&parameters[i]) ? parameters[i].count : 0;
    return total;
}

size_t comet_optimiser_bytes(const comet_optimiser *o, const comet_parameter *parameters, int count) {
    return (size_t)comet_optimiser_arrays(o) * (size_t)comet_optimiser_count(parameters, count) * sizeof(float);
}

/* ---- sharing the work ---- */

/* A parameter is cut into pieces whatever the number of threads: sums over them come out the same. */
enum { PIECES = 64, SMALL = 1 << 14 };

typedef struct job {
    comet_optimiser_rule rule;
    comet_parameter *parameter;
    float *state[COMET_OPTIMISER_MOST_ARRAYS];
    comet_optimiser_sum sums[PIECES];
    int wants_sums;
    unsigned workers;
} job;

static void update_piece(job *j, int piece) {
    const comet_parameter *p = j->parameter;
    int64_t first = p->count * piece / PIECES, end = p->count * (piece + 1) / PIECES;
    comet_optimiser_span span = {p->value + first, p->gradient + first, {NULL, NULL}, end - first};
    for (int a = 0; a < COMET_OPTIMISER_MOST_ARRAYS; a++)
        span.state[a] = j->state[a] ? j->state[a] + first : NULL;
    j->sums[piece] = comet_optimiser_apply(&j->rule, &span, j->wants_sums);
}

static void update_share(void *context, unsigned worker) {
    job *j = context;
    for (int piece = (int)worker; piece < PIECES; piece += (int)j->workers)
        update_piece(j, piece);
}

/* Of all pieces. */
static comet_optimiser_sum update_parameter(job *j, comet_threads *threads) {
    comet_optimiser_sum all = {.finite = 1};
    comet_parallel(threads, j->workers, update_share, j);
    for (int piece = 0; piece < PIECES; piece++) {
        all.sum += j->sums[piece].sum;
        all.finite &= j->sums[piece].finite;
    }
    return all;
}

static int is_decayed(const comet_optimiser *o, const comet_parameter *p) {
    return !o->decay_weights_only || p->kind == COMET_CONV_WEIGHT || p->kind == COMET_LINEAR_WEIGHT;
}

int comet_optimiser_update(const comet_optimiser *o, const comet_optimiser_step *step, comet_parameter *parameters,
                           int count, float *state, double *means, comet_threads *threads) {
    int broken = -1;
    int64_t total = comet_optimiser_count(parameters, count), first = 0;
    for (int i = 0; i < count; i++) {
        comet_parameter *p = &parameters[i];
        if (means)
            means[i] = 0.0;
        if (!is_trained(p))
            continue;
        job j = {.rule = comet_optimiser_rule_of(o, step, is_decayed(o, p)),
                 .parameter = p,
                 .wants_sums = means != NULL,
                 .workers = p->count < SMALL ? 1 : comet_threads_count(threads)};
        for (int a = 0; a < comet_optimiser_arrays(o); a++)
            j.state[a] = state + a * total + first;
        const comet_optimiser_sum all = update_parameter(&j, threads);
        if (means)
            means[i] = all.sum / (double)p->count;
        if (!all.finite && broken < 0)
            broken = i;
        first += p->count;
    }
    return broken;
}
