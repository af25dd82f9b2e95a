/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.optim.SGD and AdamW, operation by operation. An update allocates nothing, and its bits do not depend on the
 * number of threads.
 */
#include <math.h>

#include "base/parallel.h"
#include "train/backend/cpu/kernels.h"
#include "train/backend/cpu/space.h"

enum { BLOCK = 1024 }; /* values updated, and then summed while they are near */

typedef struct span {
    float *value;
    const float *gradient;
    float *state[COMET_OPTIMISER_MOST_ARRAYS]; /* NULL: there is none */
    int64_t count;
} span;

typedef struct block_sum {
    double sum; /* of |momentum| (comet_update_call.means) if it is wanted, else 0 */
    int finite; /* 1: all values and all state are, after the update */
} block_sum;

/* ---- blocks ---- */

/* `direction`: the gradient with its decay, which is all that SGD without momentum has. */
static void sgd_directions(const comet_optimiser_rule *r, const float *value, const float *gradient, int64_t count,
                           float *direction) {
    float scale = r->scale, decay = r->decay;
    for (int64_t i = 0; i < count; i++)
        direction[i] = gradient[i] * scale + decay * value[i];
}

static void sgd_momentum(const comet_optimiser_rule *r, const float *direction, int64_t count, float *momentum) {
    float keep = r->momentum;
    for (int64_t i = 0; i < count; i++)
        momentum[i] = keep * momentum[i] + direction[i];
}

static void sgd_move(float rate, const float *restrict direction, int64_t count, float *restrict value) {
    for (int64_t i = 0; i < count; i++)
        value[i] -= rate * direction[i];
}

static void sgd_nesterov(const comet_optimiser_rule *r, const float *momentum, int64_t count, float *direction) {
    float ahead = r->momentum;
    for (int64_t i = 0; i < count; i++)
        direction[i] += ahead * momentum[i];
}

static double sum_of_sizes(const float *values, int64_t count) {
    double lanes[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int k = 0; k < 8; k++)
            lanes[k] += (double)fabsf(values[i + k]);
    for (; i < count; i++)
        lanes[0] += (double)fabsf(values[i]);
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static double sgd_block(const comet_optimiser_rule *r, const span *s, int wants_sum) {
    float direction[BLOCK];
    float *momentum = s->state[0];
    sgd_directions(r, s->value, s->gradient, s->count, direction);
    if (momentum)
        sgd_momentum(r, direction, s->count, momentum);
    if (momentum && r->nesterov)
        sgd_nesterov(r, momentum, s->count, direction);
    sgd_move(r->rate, momentum && !r->nesterov ? momentum : direction, s->count, s->value);
    return wants_sum ? sum_of_sizes(momentum ? momentum : direction, s->count) : 0.0;
}

static double adamw_block(const comet_optimiser_rule *r, const span *s, int wants_sum) {
    float *restrict value = s->value, *restrict first = s->state[0], *restrict second = s->state[1];
    for (int64_t i = 0; i < s->count; i++) {
        float g = s->gradient[i] * r->scale;
        first[i] = first[i] * r->momentum + r->one_less * g;
        second[i] = second[i] * r->beta2 + r->other * g * g;
        value[i] = value[i] * r->decay - r->rate * (first[i] / (sqrtf(second[i]) / r->root + r->epsilon));
    }
    return wants_sum ? sum_of_sizes(first, s->count) : 0.0;
}

/* While they are near: this costs little there, and a pass over all weights elsewhere. */
static int is_finite(const span *s) {
    int finite = comet_cpu_is_finite(NULL, s->value, s->count);
    for (int a = 0; a < COMET_OPTIMISER_MOST_ARRAYS; a++)
        finite &= !s->state[a] || comet_cpu_is_finite(NULL, s->state[a], s->count);
    return finite;
}

static block_sum apply(const comet_optimiser_rule *r, const span *whole, int wants_sum) {
    block_sum all = {.finite = 1};
    for (int64_t at = 0; at < whole->count; at += BLOCK) {
        span s = *whole;
        s.value += at;
        s.gradient += at;
        for (int a = 0; a < COMET_OPTIMISER_MOST_ARRAYS; a++)
            s.state[a] = whole->state[a] ? whole->state[a] + at : NULL;
        s.count = whole->count - at < BLOCK ? whole->count - at : BLOCK;
        all.sum += r->kind == COMET_SGD ? sgd_block(r, &s, wants_sum) : adamw_block(r, &s, wants_sum);
        all.finite &= is_finite(&s);
    }
    return all;
}

/* ---- parameters, shared out ---- */

/* A parameter is cut into pieces whatever the number of threads: sums over them come out the same. */
enum { PIECES = 64, SMALL = 1 << 14 };

typedef struct job {
    comet_optimiser_rule rule;
    comet_parameter *parameter;
    float *state[COMET_OPTIMISER_MOST_ARRAYS];
    block_sum sums[PIECES];
    int wants_sums;
    unsigned workers;
} job;

static void update_piece(job *j, int piece) {
    const comet_parameter *p = j->parameter;
    int64_t first = p->count * piece / PIECES, end = p->count * (piece + 1) / PIECES;
    span whole = {p->value + first, p->gradient + first, {NULL, NULL}, end - first};
    for (int a = 0; a < COMET_OPTIMISER_MOST_ARRAYS; a++)
        whole.state[a] = j->state[a] ? j->state[a] + first : NULL;
    j->sums[piece] = apply(&j->rule, &whole, j->wants_sums);
}

static void update_share(void *context, unsigned worker) {
    job *j = context;
    for (int piece = (int)worker; piece < PIECES; piece += (int)j->workers)
        update_piece(j, piece);
}

/* Of all pieces. */
static block_sum update_parameter(job *j, comet_threads *threads) {
    block_sum all = {.finite = 1};
    comet_parallel(threads, j->workers, update_share, j);
    for (int piece = 0; piece < PIECES; piece++) {
        all.sum += j->sums[piece].sum;
        all.finite &= j->sums[piece].finite;
    }
    return all;
}

comet_status comet_cpu_update(comet_update_call *call) {
    const comet_optimiser *o = call->optimiser;
    comet_threads *threads = call->backend->threads;
    const int64_t total = comet_optimiser_count(call->parameters, call->count);
    int64_t first = 0;
    call->broken = -1;
    for (int i = 0; i < call->count; i++) {
        comet_parameter *p = &call->parameters[i];
        if (call->means)
            call->means[i] = 0.0;
        if (!comet_parameter_is_trained(p))
            continue;
        job j = {.rule = comet_optimiser_rule_of(o, call->step, p),
                 .parameter = p,
                 .wants_sums = call->means != NULL,
                 .workers = p->count < SMALL ? 1 : comet_threads_count(threads)};
        for (int a = 0; a < comet_optimiser_arrays(o); a++)
            j.state[a] = call->state + a * total + first;
        const block_sum all = update_parameter(&j, threads);
        if (call->means)
            call->means[i] = all.sum / (double)p->count;
        if (!all.finite && call->broken < 0)
            call->broken = i;
        first += p->count;
    }
    return COMET_OK;
}
