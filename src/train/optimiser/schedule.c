/* SPDX-License-Identifier: Apache-2.0 */
#include "train/optimiser/schedule.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"constant", "step", "cosine", "one-cycle"};

comet_schedule comet_schedule_default(comet_schedule_kind kind, double rate, int64_t steps) {
    return (comet_schedule){.kind = kind,
                            .rate = rate,
                            .steps = steps,
                            .warmup_start = 0.01,
                            .every = steps < 4 ? 1 : (steps + 3) / 4,
                            .gamma = 0.1,
                            .rising = 0.3,
                            .divide = 25.0,
                            .divide_end = 1e4};
}

comet_status comet_schedule_find(const char *name, comet_schedule_kind *kind, comet_message *message) {
    for (int i = 0; i <= COMET_SCHEDULE_ONE_CYCLE; i++)
        if (strcmp(name, names[i]) == 0) {
            *kind = (comet_schedule_kind)i;
            return COMET_OK;
        }
    return comet_message_set(message, COMET_ERROR_ARGUMENT,
                             "there is no schedule '%.60s'; there are: constant, step, cosine, one-cycle", name);
}

const char *comet_schedule_name(comet_schedule_kind kind) {
    return kind >= COMET_SCHEDULE_CONSTANT && kind <= COMET_SCHEDULE_ONE_CYCLE ? names[kind] : NULL;
}

comet_status comet_schedule_check(const comet_schedule *s, comet_message *message) {
    if (!(s->rate > 0.0) || !isfinite(s->rate))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "a learning rate of %g is not possible", s->rate);
    if (s->steps < 1 || s->warmup < 0 || s->warmup >= s->steps)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "%lld steps of warm-up do not fit into %lld steps",
                                 (long long)s->warmup, (long long)s->steps);
    if (s->kind == COMET_SCHEDULE_STEP && (s->every < 1 || !(s->gamma > 0.0)))
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "a factor of %g every %lld steps is not possible",
                                 s->gamma, (long long)s->every);
    if (s->kind == COMET_SCHEDULE_ONE_CYCLE &&
        !(s->rising > 0.0 && s->rising < 1.0 && s->divide > 0.0 && s->divide_end > 0.0))
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "one-cycle cannot rise for a part of %g of its steps, from 1/%g to 1/%g", s->rising,
                                 s->divide, s->divide_end);
    return COMET_OK;
}

/* From `from` to `to` as `part` goes from 0 to 1. */
static double cosine(double from, double to, double part) {
    return to + (from - to) * (1.0 + cos(3.14159265358979323846 * part)) / 2.0;
}

static double power(double base, int64_t n) {
    double result = 1.0;
    for (; n > 0; n >>= 1, base *= base)
        result *= n & 1 ? base : 1.0;
    return result;
}

/* From low over high to end, the top being where PyTorch has it: at a position between steps, if need be. */
static double cycle(const comet_schedule *s, double step, double steps, double low, double high, double end) {
    double top = s->rising * steps - 1.0, last = steps - 1.0;
    if (step <= top)
        return cosine(low, high, top > 0.0 ? step / top : 1.0);
    return cosine(high, end, last > top ? (step - top) / (last - top) : 1.0);
}

double comet_schedule_rate(const comet_schedule *s, int64_t step) {
    step = step >= s->steps ? s->steps - 1 : step;
    if (step < s->warmup)
        return s->rate * (s->warmup_start + (1.0 - s->warmup_start) * (double)step / (double)s->warmup);
    int64_t at = step - s->warmup, steps = s->steps - s->warmup;
    double low = s->rate / s->divide;
    switch (s->kind) {
    case COMET_SCHEDULE_STEP:
        return s->rate * power(s->gamma, at / s->every);
    case COMET_SCHEDULE_COSINE:
        return cosine(s->rate, s->least, (double)at / (double)steps);
    case COMET_SCHEDULE_ONE_CYCLE:
        return cycle(s, (double)at, (double)steps, low, s->rate, low / s->divide_end);
    default:
        return s->rate;
    }
}

double comet_schedule_momentum(const comet_schedule *s, int64_t step) {
    if (s->kind != COMET_SCHEDULE_ONE_CYCLE || !(s->momentum_low > 0.0))
        return 0.0;
    step = step >= s->steps ? s->steps - 1 : step;
    if (step < s->warmup)
        return s->momentum_high;
    return cycle(s, (double)(step - s->warmup), (double)(s->steps - s->warmup), s->momentum_high, s->momentum_low,
                 s->momentum_high);
}
