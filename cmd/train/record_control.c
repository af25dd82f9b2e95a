/* SPDX-License-Identifier: Apache-2.0 */
/* A controller's decisions, for a picture. */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/train/record.h"

static void add(record *r, int32_t layer, double step, double bound) {
    record_figures *f = &r->figures;
    if (f->bound_count == r->bound_capacity) {
        size_t capacity = r->bound_capacity ? 2 * r->bound_capacity : 256;
        record_bound *bounds = realloc(r->bounds, capacity * sizeof *bounds);
        if (!bounds)
            return;
        r->bounds = bounds;
        r->bound_capacity = capacity;
    }
    r->bounds[f->bound_count++] = (record_bound){layer, step, bound};
}

/* A layer that was not heard of before gets its name; 0 if there is no memory for it. */
static int know(record *r, const comet_control_event *event) {
    record_figures *f = &r->figures;
    size_t wanted = (size_t)event->tensor + 1;
    if (wanted > f->bounded_count) {
        char(*names)[RECORD_NAME] = realloc(r->bounded, wanted * sizeof *names);
        if (!names)
            return 0;
        r->bounded = names;
        unsigned char *flags = realloc(r->is_at_ceiling, wanted);
        if (!flags)
            return 0;
        r->is_at_ceiling = flags;
        for (size_t i = f->bounded_count; i < wanted; i++)
            names[i][0] = 0, flags[i] = 0;
        f->bounded_count = wanted;
    }
    snprintf(r->bounded[event->tensor], RECORD_NAME, "%s", event->name);
    return 1;
}

/* The last bound of a layer; NULL: none yet. */
static const record_bound *last_of(const record *r, int32_t layer) {
    for (size_t i = r->figures.bound_count; i > 0; i--)
        if (r->bounds[i - 1].layer == layer)
            return &r->bounds[i - 1];
    return NULL;
}

static double relative(const comet_control_event *event, comet_control_bound_value bound) {
    return bound.kind == COMET_BOUND_RELATIVE ? bound.value : event->rms > 0 ? bound.value / event->rms : 0;
}

/* ---- how many are at the ceiling ---- */

static void count_ceiling(record *r, double step) {
    size_t held = 0;
    for (size_t i = 0; i < r->figures.bounded_count; i++)
        held += r->is_at_ceiling[i];
    r->ceiling_steps += (double)held * (step - r->bounds_at);
    r->bound_steps += (double)r->figures.bounded_count * (step - r->bounds_at);
    r->bounds_at = step;
}

/* ---- bounds ---- */

/* All times a factor: what safety does, but for the floor. */
static void change_all(record *r, double step, double factor) {
    for (size_t i = 0; i < r->figures.bounded_count; i++) {
        const record_bound *last = last_of(r, (int32_t)i);
        if (last)
            add(r, (int32_t)i, step, last->bound * factor);
    }
}

void record_control(record *r, const comet_control_event *event) {
    double step = (double)event->iteration + 1;
    if (event->cause == COMET_CAUSE_IGNORED)
        return;
    if (event->tensor < 0) {
        change_all(r, step, event->before.value > 0 ? event->after.value / event->before.value : 1);
        return;
    }
    count_ceiling(r, step); /* before one is added */
    if (!know(r, event))
        return;
    r->is_at_ceiling[event->tensor] = event->limit == COMET_LIMIT_CEILING;
    double before = relative(event, event->before), after = relative(event, event->after);
    if (!last_of(r, event->tensor))
        add(r, event->tensor, 0, before);
    if (last_of(r, event->tensor) && last_of(r, event->tensor)->bound != after)
        add(r, event->tensor, step, after);
}

void record_control_until(record *r, int64_t step) {
    change_all(r, (double)step, 1);
    count_ceiling(r, (double)step);
    if (r->bound_steps > 0)
        r->figures.at_ceiling = r->ceiling_steps / r->bound_steps;
}
