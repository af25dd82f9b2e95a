/* SPDX-License-Identifier: Apache-2.0 */
/* The first layer's filters, as little pictures in their colours. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/look/look.h"

enum { COLUMNS = 8, MOST_FILTERS = 64, WIDE = 240, LABEL = 64 };

/* Of a network: which filter stands at each place, and how it correlates with that of the first network there. */
typedef struct places {
    int filter[MOST_FILTERS];
    double correlation[MOST_FILTERS];
} places;

typedef struct mosaic {
    uint8_t *pixels;
    int width, height;
    char label[LABEL];
} mosaic;

typedef struct filters {
    int count, inputs, height, width; /* that are shown, and of one */
    int64_t all, values;              /* filters in all; values of one */
    double most;                      /* the largest |weight| of all networks */
} filters;

static filters measure(const look_case *c) {
    const int64_t *shape = c->networks[0].filter_shape;
    filters f = {.count = shape[0] < MOST_FILTERS ? (int)shape[0] : MOST_FILTERS,
                 .inputs = (int)shape[1],
                 .height = (int)shape[2],
                 .width = (int)shape[3],
                 .all = shape[0],
                 .values = shape[1] * shape[2] * shape[3]};
    for (int i = 0; i < c->count; i++)
        for (int64_t k = 0; k < f.all * f.values; k++)
            f.most = fmax(f.most, fabs((double)c->networks[i].filters[k]));
    return f;
}

/* ---- which one stands where ---- */

static double product(const filters *f, const float *a, const float *b) {
    double sum = 0;
    for (int64_t k = 0; k < f->values; k++)
        sum += (double)a[k] * (double)b[k];
    return sum;
}

static int is_placed(const places *p, int count, int filter) {
    for (int i = 0; i < count; i++)
        if (p->filter[i] == filter)
            return 1;
    return 0;
}

/* The largest first. */
static void place_first(const filters *f, const float *weights, places *p) {
    for (int i = 0; i < f->count; i++) {
        double most = -1;
        for (int k = 0; k < f->all; k++) {
            const double size = product(f, weights + k * f->values, weights + k * f->values);
            if (is_placed(p, i, k) || !(size > most))
                continue;
            most = size;
            p->filter[i] = k;
        }
        p->correlation[i] = 1;
    }
}

/* Each is used once: those that come first have the first choice. */
static void place_like(const filters *f, const float *first, const places *where, const float *weights, places *p) {
    for (int i = 0; i < f->count; i++) {
        const float *wanted = first + where->filter[i] * f->values;
        p->correlation[i] = -2;
        for (int k = 0; k < f->all; k++) {
            const float *one = weights + k * f->values;
            const double scale = sqrt(product(f, wanted, wanted)) * sqrt(product(f, one, one));
            const double found = scale > 0 ? product(f, wanted, one) / scale : 0;
            if (is_placed(p, i, k) || !(found > p->correlation[i]))
                continue;
            p->correlation[i] = found;
            p->filter[i] = k;
        }
    }
}

static void describe(const filters *f, const places *first, const places *p, char text[LABEL]) {
    double sum = 0;
    int same = 0;
    for (int i = 0; i < f->count; i++) {
        sum += p->correlation[i];
        same += p->filter[i] == first->filter[i];
    }
    snprintf(text, LABEL, "cosine %.3f, the same number: %d of %d", sum / f->count, same, f->count);
}

/* ---- pictures ---- */

static uint8_t shade(const filters *f, float weight) {
    return (uint8_t)lrint(127.5 + 127.5 * (f->most > 0 ? (double)weight / f->most : 0));
}

static void paint(const filters *f, const float *filter, mosaic *m, int place) {
    const int left = place % COLUMNS * (f->width + 1), top = place / COLUMNS * (f->height + 1);
    const int area = f->height * f->width;
    for (int y = 0; y < f->height; y++)
        for (int x = 0; x < f->width; x++) {
            uint8_t *to = m->pixels + 4 * ((size_t)(top + y) * (size_t)m->width + (size_t)(left + x));
            for (int channel = 0; channel < 3; channel++)
                to[channel] = shade(f, filter[(f->inputs < 3 ? 0 : channel) * area + y * f->width + x]);
            to[3] = 255;
        }
}

static int make(const filters *f, const float *weights, const places *p, mosaic *m) {
    const int rows = (f->count + COLUMNS - 1) / COLUMNS;
    m->width = COLUMNS * (f->width + 1) - 1;
    m->height = rows * (f->height + 1) - 1;
    m->pixels = calloc((size_t)m->width * (size_t)m->height, 4);
    if (!m->pixels)
        return fail_memory();
    for (int i = 0; i < f->count; i++)
        paint(f, weights + p->filter[i] * f->values, m, i);
    return DONE;
}

static void put(report *r, const look_case *c, const mosaic *mosaics) {
    report_picture pictures[LOOK_MOST];
    report_cell cells[LOOK_MOST];
    const char *columns[LOOK_MOST];
    char title[160];
    for (int i = 0; i < c->count; i++) {
        const mosaic *m = &mosaics[i];
        const int size = m->width * (WIDE / m->width > 1 ? WIDE / m->width : 1);
        pictures[i] = (report_picture){m->width, m->height, m->pixels, NULL, size, i ? m->label : NULL};
        cells[i] = (report_cell){&pictures[i], 1};
        columns[i] = c->networks[i].name.text;
    }
    snprintf(title, sizeof title, "Filters of the first layer, %.90s", c->networks[0].filter_layer);
    const report_gallery gallery = {
        .title = title,
        .text = "Weights as colours, 0 is grey, one scale for all networks. The first network's filters stand in the "
                "order of their size; beside each stands that of another network which is most like it (the cosine of "
                "their weights), each of them once. Below: the mean of that, and how many have the same number in "
                "both, as they should where both trainings began with the same values.",
        .columns = columns,
        .column_count = c->count,
        .row_count = 1,
        .cells = cells};
    report_pictures(r, &gallery);
}

int look_put_filters(report *r, const look_case *c) {
    mosaic mosaics[LOOK_MOST] = {{NULL, 0, 0, ""}};
    places first, own;
    int answer = DONE;
    if (!c->networks[0].filters)
        return DONE;
    const filters f = measure(c);
    place_first(&f, c->networks[0].filters, &first);
    for (int i = 0; i < c->count && answer == DONE; i++) {
        const float *weights = c->networks[i].filters;
        own = first;
        if (i > 0)
            place_like(&f, c->networks[0].filters, &first, weights, &own);
        describe(&f, &first, &own, mosaics[i].label);
        answer = make(&f, weights, &own, &mosaics[i]);
    }
    if (answer == DONE)
        put(r, c, mosaics);
    for (int i = 0; i < LOOK_MOST; i++)
        free(mosaics[i].pixels);
    return answer;
}
