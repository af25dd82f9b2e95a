/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seen at a few places of a map, all channels there, for offsets of up to REACH pixels: of errors when a tensor is
 * saved, of gradients in backward. Threads share the offsets: each offset's sum is the same however many there are.
 */
#include "control/collect/neighbours.h"

#include <string.h>

#include "base/vector/loop.h"
#include "control/collect/correlate.h"
#include "control/collect/places.h"

enum { REACH = COMET_STATS_REACH, OFFSETS = COMET_STATS_OFFSETS };
enum { GRAIN = (OFFSETS + COMET_ALIKE_BLOCKS - 1) / COMET_ALIKE_BLOCKS };

_Static_assert(OFFSETS == REACH + 1 + REACH * (2 * REACH + 1), "half of all offsets");

static int index_of(int down, int right) {
    return down == 0 ? right : REACH + 1 + (down - 1) * (2 * REACH + 1) + right + REACH;
}

static int places_of(const comet_maps *m) {
    return comet_places_of(comet_maps_pixels(m), m->channels);
}

static int64_t place_at(const comet_maps *m, int i) {
    return comet_place_at(comet_maps_pixels(m), i);
}

static int64_t moved(const comet_maps *m, int64_t place, int offset) {
    return comet_place_moved(m->height, m->width, place, comet_offset_at(offset));
}

/* ---- errors ---- */

/* As the layer behind a norm sees it, an error counts by the norm's scale. */
static void weigh(const float *gamma, int64_t channels, float *on) {
    for (int64_t c = 0; c < channels && gamma; c++)
        on[c] *= gamma[c] * gamma[c];
}

typedef struct errors_work {
    const comet_maps *m;
    const comet_alike_channels *how;
    float *memory; /* arrays of channels for each block of offsets */
    comet_alike_errors_sums *sums;
} errors_work;

static void errors_range(const void *context, int64_t first, int64_t end) {
    const errors_work *w = context;
    const int64_t channels = w->m->channels;
    float *a = w->memory + first / GRAIN * comet_errors_arrays(w->m) * channels;
    float *weight = a + channels, *b = weight + channels, *on = b + channels, *room = on + channels;
    for (int i = 0; i < places_of(w->m); i++) {
        const int64_t place = place_at(w->m, i);
        comet_alike_read(comet_maps_rows(w->m, place, 1, room), w->how, channels, a, weight);
        weigh(w->how->gamma, channels, weight);
        for (int k = (int)first; k < (int)end; k++) {
            const int64_t other = moved(w->m, place, k);
            if (other < 0)
                continue;
            comet_alike_read(comet_maps_rows(w->m, other, 1, room), w->how, channels, b, on);
            comet_alike_errors(a, b, weight, on, channels, &w->sums[k]);
        }
    }
}

void comet_see_errors(comet_threads *threads, const comet_maps *values, const comet_alike_channels *how, float *memory,
                      comet_alike_errors_sums *sums) {
    const errors_work work = {values, how, memory, sums};
    memset(sums, 0, OFFSETS * sizeof *sums);
    comet_loop(threads, OFFSETS, GRAIN, errors_range, &work);
}

void comet_alike_of_errors(const comet_alike_errors_sums *sums, comet_stats_alike *all, comet_stats_alike *on) {
    for (int k = 0; k < OFFSETS; k++) {
        all->part[k] = sums[k].pairs > 0 ? sums[k].plain / sums[k].pairs : 0;
        on->part[k] = sums[k].weights > 0 ? sums[k].masked / sums[k].weights : 0;
    }
}

/* ---- gradients ---- */

typedef struct gradient_work {
    const comet_gradient *g;
    float *memory; /* arrays of channels for each block of offsets: two rows, and room for reading */
    double *sums;
} gradient_work;

static void gradient_range(const void *context, int64_t first, int64_t end) {
    const gradient_work *w = context;
    const comet_gradient *g = w->g;
    const int64_t channels = g->maps->channels;
    float *a = w->memory + first / GRAIN * COMET_GRADIENT_ARRAYS * channels, *b = a + channels, *room = b + channels;
    for (int i = 0; i < places_of(g->maps); i++) {
        const int64_t place = place_at(g->maps, i);
        g->read(g, place, room, a);
        for (int k = (int)first; k < (int)end; k++) {
            const int64_t other = moved(g->maps, place, k);
            if (other < 0)
                continue;
            g->read(g, other, room, b);
            w->sums[k] += comet_correlate_dot(a, b, channels);
        }
    }
}

void comet_see_gradient(comet_threads *threads, const comet_gradient *gradient, float *memory, double *sums) {
    const gradient_work work = {gradient, memory, sums};
    memset(sums, 0, OFFSETS * sizeof *sums);
    comet_loop(threads, OFFSETS, GRAIN, gradient_range, &work);
}

void comet_alike_of_gradient(const double *sums, comet_stats_alike *found) {
    for (int k = 0; k < OFFSETS; k++)
        found->part[k] = sums[0] > 0 ? sums[k] / sums[0] : k == 0;
}

/* ---- both ---- */

double comet_alike_together(const comet_stats_alike *errors, const comet_stats_alike *gradients,
                            const int32_t *stride) {
    double sum = 0;
    for (int k = 0; k < OFFSETS; k++) {
        const comet_offset by = comet_offset_at(k);
        const int64_t down = (int64_t)by.down * stride[0], right = (int64_t)by.right * stride[1];
        if (down > REACH || right > REACH || right < -REACH)
            continue;
        sum += (k ? 2 : 1) * errors->part[index_of((int)down, (int)right)] * gradients->part[k];
    }
    return sum;
}
