/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `budget`: bounds of all tensors together. Each has a ladder of bounds between ceiling and floor, with the bytes
 * that its measured curve says and the error that its uses make; the least of one sum is sought within a limit on the
 * other.
 */
#include <math.h>

#include "base/memory.h"
#include "control/allocate.h"
#include "control/control.h"

typedef struct budget {
    comet_allocator allocator_copy;
    const comet_allocator *allocator; /* NULL or &allocator_copy */
    size_t bytes;                     /* of `items` */
    allocate_item *items;
} budget;

static comet_status create(const comet_control_view *view, void **instance) {
    const comet_allocator *allocator = view->options->allocator;
    budget *b = comet_memory_take(allocator, sizeof *b);
    if (!b)
        return COMET_ERROR_MEMORY;
    *b = (budget){.bytes = (size_t)view->count * sizeof *b->items};
    b->allocator = comet_memory_hold(&b->allocator_copy, allocator);
    b->items = comet_memory_take(allocator, b->bytes);
    if (!b->items) {
        comet_memory_give(allocator, b, sizeof *b);
        return COMET_ERROR_MEMORY;
    }
    *instance = b;
    return COMET_OK;
}

static void release(void *instance) {
    budget *b = instance;
    comet_memory_give(b->allocator, b->items, b->bytes);
    comet_memory_give(b->allocator, b, sizeof *b);
}

static int takes_part(const comet_control_tensor_view *tensor) {
    return tensor->observed && tensor->rms > 0.0;
}

/* Four bounds an octave, downwards from the ceiling, as they will be after rounding. */
static double ladder(const comet_control_options *o, const comet_control_tensor_view *tensor, int step) {
    static const double parts[4] = {1.0, 0.875, 0.75, 0.625};
    return comet_control_round(ldexp(o->ceiling * tensor->rms * parts[step % 4], -(step / 4)));
}

static double bytes_at(const comet_control_tensor_view *tensor, double ratio) {
    return (double)tensor->count * comet_control_curve_bits(&tensor->curve, ratio) / 8.0;
}

/* (sigma / momentum)^2 of one use. HUGE_VAL: any error would be too much. */
static double use_error(const comet_control_options *o, const comet_control_tensor_view *tensor, int32_t use,
                        double bound) {
    const comet_use_stats *stats = &tensor->uses[use].stats;
    double sensitivity = comet_error_sensitivity(tensor->uses[use].kind, stats);
    double sigma = comet_error_sigma(sensitivity, &o->shape, bound, tensor->rms);
    if (!(sigma > 0.0))
        return 0.0;
    return stats->momentum > 0.0 ? (sigma / stats->momentum) * (sigma / stats->momentum) : HUGE_VAL;
}

static double error_at(const comet_control_options *o, const comet_control_tensor_view *tensor, double bound) {
    double sum = 0.0;
    for (int32_t u = 0; u < tensor->use_count; u++)
        sum += use_error(o, tensor, u, bound);
    return sum;
}

static int32_t worst_use(const comet_control_options *o, const comet_control_tensor_view *tensor, double bound) {
    int32_t worst = -1;
    double most = 0.0;
    for (int32_t u = 0; u < tensor->use_count; u++) {
        double error = use_error(o, tensor, u, bound);
        if (error > most) {
            most = error;
            worst = u;
        }
    }
    return worst;
}

static int ladder_steps(const comet_control_options *o, const comet_control_tensor_view *tensor) {
    int steps = 1;
    while (steps < ALLOCATE_OPTIONS && ladder(o, tensor, steps) >= o->floor * tensor->rms)
        steps++;
    return steps;
}

/*
 * A use that can bear no error at all would spoil the sum for every other tensor: this one then has its finest bound,
 * outside of it.
 */
static void fill(allocate_item *item, const comet_control_options *o, const comet_control_tensor_view *tensor) {
    int steps = ladder_steps(o, tensor), wants_bytes = o->budget_bytes > 0.0;
    item->count = steps;
    item->chosen = 0;
    int bears_nothing = !isfinite(error_at(o, tensor, ladder(o, tensor, 0)));
    for (int k = 0; k < steps; k++) {
        double bound = ladder(o, tensor, k), bytes = bytes_at(tensor, bound / tensor->rms);
        double error = bears_nothing ? 0.0 : error_at(o, tensor, bound);
        item->price[k] = wants_bytes ? error : bytes;
        item->weight[k] = wants_bytes ? bytes : error;
    }
    if (bears_nothing) {
        item->price[0] = item->price[steps - 1];
        item->weight[0] = item->weight[steps - 1];
        item->count = 1;
    }
}

static double limit_of(const comet_control_view *view) {
    const comet_control_options *o = view->options;
    double limit = o->budget_bytes > 0.0 ? o->budget_bytes : o->budget_error;
    for (int32_t i = 0; i < view->count; i++) {
        const comet_control_tensor_view *tensor = &view->tensors[i];
        if (o->budget_bytes > 0.0 && !takes_part(tensor))
            limit -= bytes_at(tensor, o->warmup_bound);
        else if (o->budget_bytes == 0.0 && o->budget_error == 0.0 && takes_part(tensor))
            limit += (double)tensor->use_count * o->calibration * o->calibration;
    }
    return limit;
}

static comet_status assess(void *instance, const comet_control_view *view, comet_control_choice *choices) {
    budget *b = instance;
    const comet_control_options *o = view->options;
    int32_t items = 0;
    for (int32_t i = 0; i < view->count; i++)
        if (takes_part(&view->tensors[i]))
            fill(&b->items[items++], o, &view->tensors[i]);
    (void)comet_control_allocate(b->items, items, limit_of(view)); /* too little: the coarsest, or finest, there is */
    items = 0;
    for (int32_t i = 0; i < view->count; i++) {
        const comet_control_tensor_view *tensor = &view->tensors[i];
        if (!takes_part(tensor))
            continue;
        const allocate_item *item = &b->items[items++];
        int last = item->count == 1 ? ladder_steps(o, tensor) - 1 : item->chosen;
        double bound = ladder(o, tensor, last);
        choices[i] =
            (comet_control_choice){{COMET_BOUND_ABSOLUTE, bound}, COMET_LIMIT_BUDGET, worst_use(o, tensor, bound)};
    }
    return COMET_OK;
}

const comet_control_methods comet_control_budget = {
    .version = COMET_CONTROL_VERSION,
    .size = sizeof(comet_control_methods),
    .name = "budget",
    .needs = COMET_NEEDS_SQUARES | COMET_NEEDS_MOMENTUM | COMET_NEEDS_SIZES | COMET_NEEDS_MEASURED | COMET_NEEDS_JOINT,
    .create = create,
    .release = release,
    .assess = assess,
};
