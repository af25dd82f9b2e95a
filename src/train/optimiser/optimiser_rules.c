/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.SGD and AdamW, operation by operation. */
#include "train/optimiser/optimiser_rules.h"

#include <math.h>

#include "train/backend/cpu/statistics.h"

enum { BLOCK = 1024 }; /* values updated, and then summed while they are near */

/* beta^n by squaring: the same bits everywhere, which pow does not promise. */
static double power(double base, int64_t n) {
    double result = 1.0;
    for (; n > 0; n >>= 1, base *= base)
        result *= n & 1 ? base : 1.0;
    return result;
}

static comet_optimiser_rule sgd_rule(const comet_optimiser *o, const comet_optimiser_step *step, int decayed) {
    double momentum = o->momentum > 0.0 && step->momentum > 0.0 ? step->momentum : o->momentum;
    return (comet_optimiser_rule){.kind = COMET_SGD,
                                  .nesterov = o->nesterov,
                                  .scale = (float)step->gradient_scale,
                                  .decay = decayed ? (float)o->weight_decay : 0.0f,
                                  .rate = (float)step->learning_rate,
                                  .momentum = (float)momentum};
}

static comet_optimiser_rule adamw_rule(const comet_optimiser *o, const comet_optimiser_step *step, int decayed) {
    double beta1 = step->momentum > 0.0 ? step->momentum : o->beta1;
    double decay = decayed ? step->learning_rate * o->weight_decay : 0.0;
    return (comet_optimiser_rule){.kind = COMET_ADAMW,
                                  .scale = (float)step->gradient_scale,
                                  .decay = (float)(1.0 - decay),
                                  .rate = (float)(step->learning_rate / (1.0 - power(beta1, step->number))),
                                  .momentum = (float)beta1,
                                  .one_less = (float)(1.0 - beta1),
                                  .beta2 = (float)o->beta2,
                                  .other = (float)(1.0 - o->beta2),
                                  .root = (float)sqrt(1.0 - power(o->beta2, step->number)),
                                  .epsilon = (float)o->epsilon};
}

comet_optimiser_rule comet_optimiser_rule_of(const comet_optimiser *o, const comet_optimiser_step *step, int decayed) {
    return o->kind == COMET_SGD ? sgd_rule(o, step, decayed) : adamw_rule(o, step, decayed);
}

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

static double sgd_block(const comet_optimiser_rule *r, const comet_optimiser_span *s, int wants_sum) {
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

static double adamw_block(const comet_optimiser_rule *r, const comet_optimiser_span *s, int wants_sum) {
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
static int is_finite(const comet_optimiser_span *s) {
    int finite = comet_statistics_finite(NULL, s->value, s->count);
    for (int a = 0; a < COMET_OPTIMISER_MOST_ARRAYS; a++)
        finite &= !s->state[a] || comet_statistics_finite(NULL, s->state[a], s->count);
    return finite;
}

comet_optimiser_sum comet_optimiser_apply(const comet_optimiser_rule *r, const comet_optimiser_span *span,
                                          int wants_sum) {
    comet_optimiser_sum all = {.finite = 1};
    for (int64_t at = 0; at < span->count; at += BLOCK) {
        comet_optimiser_span s = *span;
        s.value += at;
        s.gradient += at;
        for (int a = 0; a < COMET_OPTIMISER_MOST_ARRAYS; a++)
            s.state[a] = span->state[a] ? span->state[a] + at : NULL;
        s.count = span->count - at < BLOCK ? span->count - at : BLOCK;
        all.sum += r->kind == COMET_SGD ? sgd_block(r, &s, wants_sum) : adamw_block(r, &s, wants_sum);
        all.finite &= is_finite(&s);
    }
    return all;
}
