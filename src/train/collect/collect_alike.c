/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of neighbours that are alike, and gradients that are: then what is added up over a map does not average out as independent errors do
 * (docs/theory.md, 5). Seen at a few places of a map, all channels there, for offsets of up to REACH pixels: of errors when a tensor is saved, of gradients in backward.
 * Threads share the offsets: each offset's sum is the same however many there are.
 */
#include <string.h>

#include "train/backend/cpu/alike.h"
#include "train/backend/cpu/loop.h"
#include "train/collect/collect_impl.h"

enum { REACH = COMET_ALIKE_REACH, VALUES = 4096, LEAST_PLACES = 8, MOST_PLACES = 128 };
enum { GRAIN = (COMET_ALIKE_OFFSETS + COMET_ALIKE_BLOCKS - 1) / COMET_ALIKE_BLOCKS };

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

/* Maps of some images, and places in them. */
typedef struct maps {
    int64_t images, channels;
    int height, width;
} maps;

static int places_of(const maps *m) {
    const int64_t wanted = VALUES / m->channels, all = m->images * m->height * m->width;
    const int64_t places = wanted < LEAST_PLACES ? LEAST_PLACES : wanted > MOST_PLACES ? MOST_PLACES : wanted;
    return (int)(places < all ? places : all);
}

/* The same ones each time: a run that is resumed must decide as it would have. */
static int64_t place_at(const maps *m, int i) {
    const uint64_t scrambled = ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    return (int64_t)((scrambled ^ scrambled >> 29) % (uint64_t)(m->images * m->height * m->width));
}

/* The place at an offset; -1: outside. */
static int64_t moved(const maps *m, int64_t place, offset by) {
    const int64_t x = place % m->width + by.right, y = place / m->width % m->height + by.down;
    return x < 0 || x >= m->width || y >= m->height ? -1 : place + (int64_t)by.down * m->width + by.right;
}

/* ---- errors ---- */

/* What is stored of a tensor. */
typedef struct stored {
    const float *values;
    comet_alike_channels how;
    int64_t channels;
} stored;

static void read_place(const stored *s, int64_t place, float *cells, float *on) {
    comet_alike_read(s->values + place * s->channels, &s->how, s->channels, cells, on);
}

/* As the layer behind a norm sees it, an error counts by the norm's scale. */
static void weigh(const stored *s, float *on) {
    for (int64_t c = 0; c < s->channels && s->how.gamma; c++)
        on[c] *= s->how.gamma[c] * s->how.gamma[c];
}

typedef struct errors_work {
    const stored *s;
    const maps *m;
    float *places; /* four arrays of channels for each block of offsets */
    comet_alike_errors_sums *sums;
} errors_work;

static void errors_range(const void *context, int64_t first, int64_t end) {
    const errors_work *w = context;
    const stored *s = w->s;
    float *a = w->places + first / GRAIN * 4 * s->channels;
    float *weight = a + s->channels, *b = weight + s->channels, *on = b + s->channels;
    for (int i = 0; i < places_of(w->m); i++) {
        const int64_t place = place_at(w->m, i);
        read_place(s, place, a, weight);
        weigh(s, weight);
        for (int k = (int)first; k < (int)end; k++) {
            const int64_t other = moved(w->m, place, offset_at(k));
            if (other < 0)
                continue;
            read_place(s, other, b, on);
            comet_alike_errors(a, b, weight, on, s->channels, &w->sums[k]);
        }
    }
}

static void see_errors(comet_collect *c, const stored *s, const maps *m, comet_collect_alike *plain,
                       comet_collect_alike *masked) {
    comet_alike_errors_sums sums[COMET_ALIKE_OFFSETS];
    const errors_work work = {s, m, c->places, sums};
    memset(sums, 0, sizeof sums);
    comet_loop(c->threads, COMET_ALIKE_OFFSETS, GRAIN, errors_range, &work);
    for (int k = 0; k < COMET_ALIKE_OFFSETS; k++) {
        plain->part[k] = sums[k].pairs > 0 ? sums[k].plain / sums[k].pairs : 0;
        masked->part[k] = sums[k].weights > 0 ? sums[k].masked / sums[k].weights : 0;
    }
}

void comet_collect_see_errors(comet_collect *c, comet_collect_tensor *t, const comet_plan_entry *e,
                              const comet_tensor *values, const comet_codec_grid *grid, double bound) {
    const maps m = {values->shape[0], values->shape[3], (int)values->shape[1], (int)values->shape[2]};
    stored s = {.values = values->data, .how = {.inverse_cell = (float)(0.5 / bound)}, .channels = m.channels};
    if (grid) {
        s.how.scale = grid->scale;
        s.how.shift = grid->shift;
        s.how.threshold = e->has_relu ? grid->threshold : NULL;
        s.how.gamma = comet_node_parameter(c->graph, &c->graph->nodes[e->node], COMET_PARAMETER_WEIGHT)->value;
    }
    t->has_alike = bound > 0;
    if (t->has_alike)
        see_errors(c, &s, &m, &t->plain, &t->masked);
}

/* ---- gradients ---- */

typedef struct gradient_work {
    const comet_collect_gradient *g;
    maps m;
    float *places; /* two arrays of channels for each block of offsets */
    double *sums;
} gradient_work;

static void gradient_range(const void *context, int64_t first, int64_t end) {
    const gradient_work *w = context;
    const comet_collect_gradient *g = w->g;
    float *a = w->places + first / GRAIN * 2 * g->channels, *b = a + g->channels;
    for (int i = 0; i < places_of(&w->m); i++) {
        const int64_t place = place_at(&w->m, i);
        g->read(g, place, a);
        for (int k = (int)first; k < (int)end; k++) {
            const int64_t other = moved(&w->m, place, offset_at(k));
            if (other < 0)
                continue;
            g->read(g, other, b);
            w->sums[k] += comet_statistics_dot(a, b, g->channels);
        }
    }
}

void comet_collect_see_gradient(comet_collect *c, const comet_collect_gradient *g, comet_collect_alike *found) {
    double sums[COMET_ALIKE_OFFSETS] = {0};
    const gradient_work work = {g, {g->images, g->channels, g->height, g->width}, c->places, sums};
    comet_loop(c->threads, COMET_ALIKE_OFFSETS, GRAIN, gradient_range, &work);
    for (int k = 0; k < COMET_ALIKE_OFFSETS; k++)
        found->part[k] = sums[0] > 0 ? sums[k] / sums[0] : k == 0;
}

/* ---- both ---- */

double comet_collect_together(const comet_collect_alike *errors, const comet_collect_alike *gradients, int stride) {
    double sum = 0;
    for (int k = 0; k < COMET_ALIKE_OFFSETS; k++) {
        const offset by = offset_at(k);
        if (by.down * stride > REACH || by.right * stride > REACH || by.right * stride < -REACH)
            continue;
        sum += (k ? 2 : 1) * errors->part[index_of(by.down * stride, by.right * stride)] * gradients->part[k];
    }
    return sum;
}
