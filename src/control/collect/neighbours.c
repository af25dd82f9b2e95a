/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seen at a few places of a map, all channels there, for offsets of up to REACH pixels: of errors when a tensor is
 * saved, of gradients in backward. Threads share the offsets: each offset's sum is the same however many there are.
 */
#include "control/collect/neighbours.h"

#include <string.h>

#include "base/vector/loop.h"
#include "control/collect/correlate.h"

enum { REACH = COMET_STATS_REACH, OFFSETS = COMET_STATS_OFFSETS, VALUES = 4096, LEAST_PLACES = 8, MOST_PLACES = 128 };
enum { GRAIN = (OFFSETS + COMET_ALIKE_BLOCKS - 1) / COMET_ALIKE_BLOCKS };

_Static_assert(OFFSETS == REACH + 1 + REACH * (2 * REACH + 1), "half of all offsets");

/* Half of all offsets: the other half is the same the other way round. */
typedef struct offset {
    int down, right;
} offset;

static offset offset_at(int i) {
    if (i <= REACH)
        return (offset){0, i};
    return (offset){1 + (i - REACH - 1) / (2 * REACH + 1), (i - REACH - 1) % (2 * REACH + 1) - REACH};
}

static int index_of(int down, int right) {
    return down == 0 ? right : REACH + 1 + (down - 1) * (2 * REACH + 1) + right + REACH;
}

static int places_of(const comet_maps *m) {
    const int64_t wanted = VALUES / m->channels, all = comet_maps_pixels(m);
    const int64_t places = wanted < LEAST_PLACES ? LEAST_PLACES : wanted > MOST_PLACES ? MOST_PLACES : wanted;
    return (int)(places < all ? places : all);
}

/* The same ones each time: a run that is resumed must decide as it would have. */
static int64_t place_at(const comet_maps *m, int i) {
    const uint64_t scrambled = ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    return (int64_t)((scrambled ^ scrambled >> 29) % (uint64_t)comet_maps_pixels(m));
}

/* The place at an offset; -1: outside. */
static int64_t moved(const comet_maps *m, int64_t place, offset by) {
    const int64_t x = place % m->width + by.right, y = place / m->width % m->height + by.down;
    return x < 0 || x >= m->width || y >= m->height ? -1 : place + (int64_t)by.down * m->width + by.right;
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
            const int64_t other = moved(w->m, place, offset_at(k));
            if (other < 0)
                continue;
            comet_alike_read(comet_maps_rows(w->m, other, 1, room), w->how, channels, b, on);
            comet_alike_errors(a, b, weight, on, channels, &w->sums[k]);
        }
    }
}

void comet_see_errors(comet_threads *threads, const comet_maps *values, const comet_alike_channels *how, float *memory,
                      comet_stats_alike *all, comet_stats_alike *on) {
    comet_alike_errors_sums sums[OFFSETS];
    const errors_work work = {values, how, memory, sums};
    memset(sums, 0, sizeof sums);
    comet_loop(threads, OFFSETS, GRAIN, errors_range, &work);
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
            const int64_t other = moved(g->maps, place, offset_at(k));
            if (other < 0)
                continue;
            g->read(g, other, room, b);
            w->sums[k] += comet_correlate_dot(a, b, channels);
        }
    }
}

void comet_see_gradient(comet_threads *threads, const comet_gradient *gradient, float *memory,
                        comet_stats_alike *found) {
    double sums[OFFSETS] = {0};
    const gradient_work work = {gradient, memory, sums};
    comet_loop(threads, OFFSETS, GRAIN, gradient_range, &work);
    for (int k = 0; k < OFFSETS; k++)
        found->part[k] = sums[0] > 0 ? sums[k] / sums[0] : k == 0;
}

/* ---- both ---- */

double comet_alike_together(const comet_stats_alike *errors, const comet_stats_alike *gradients,
                            const int32_t *stride) {
    double sum = 0;
    for (int k = 0; k < OFFSETS; k++) {
        const offset by = offset_at(k);
        const int64_t down = (int64_t)by.down * stride[0], right = (int64_t)by.right * stride[1];
        if (down > REACH || right > REACH || right < -REACH)
            continue;
        sum += (k ? 2 : 1) * errors->part[index_of((int)down, (int)right)] * gradients->part[k];
    }
    return sum;
}
