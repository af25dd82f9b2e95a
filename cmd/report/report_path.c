/* SPDX-License-Identifier: Apache-2.0 */
/* A series as the path of a drawing: pieces between gaps, thinned to what can be seen. */
#include "cmd/report/report_impl.h"

#include <math.h>

/* Up to so many points every one is drawn. */
enum { DRAW_ALL = 2000 };

typedef struct point {
    double x, y;
    size_t index;
} point;

/* The points of one pixel column. */
typedef struct column {
    int filled;
    double place;
    point first, least, greatest, last;
} column;

typedef struct pen {
    FILE *file;
    double base; /* the y that areas are closed along */
    int area, points;
    double last_x;
    size_t last_index;
} pen;

static void pen_to(pen *p, point to) {
    if (p->points && p->last_index == to.index)
        return;
    if (p->points == 0 && p->area)
        fprintf(p->file, "M%.1f %.1fL%.1f %.1f", to.x, p->base, to.x, to.y);
    else
        fprintf(p->file, "%c%.1f %.1f", p->points ? 'L' : 'M', to.x, to.y);
    p->points++;
    p->last_x = to.x;
    p->last_index = to.index;
}

static void pen_up(pen *p) {
    if (p->points && p->area)
        fprintf(p->file, "L%.1f %.1fZ", p->last_x, p->base);
    else if (p->points == 1)
        fputs("h0", p->file); /* of no length: its round ends make a dot */
    p->points = 0;
}

static void column_draw(column *c, pen *p) {
    if (!c->filled)
        return;
    int least_first = c->least.index < c->greatest.index;
    pen_to(p, c->first);
    pen_to(p, least_first ? c->least : c->greatest);
    pen_to(p, least_first ? c->greatest : c->least);
    pen_to(p, c->last);
    c->filled = 0;
}

static void column_add(column *c, pen *p, point next) {
    if (!c->filled || c->place != floor(next.x)) {
        column_draw(c, p);
        *c = (column){1, floor(next.x), next, next, next, next};
        return;
    }
    if (next.y < c->least.y)
        c->least = next;
    if (next.y > c->greatest.y)
        c->greatest = next;
    c->last = next;
}

int report_path_has(const report_series *s, size_t i, const report_axis *x, const report_axis *y) {
    return report_axis_takes(x, s->x[i]) && report_axis_takes(y, s->y[i]);
}

void report_path(report *r, const report_series *s, const report_axis *x, const report_axis *y, int area) {
    const double base = y->low < 0 && y->high > 0 ? report_axis_place(y, 0) : y->from;
    pen p = {.file = r->file, .base = base, .area = area};
    column c = {0};
    for (size_t i = 0; i < s->count; i++) {
        if (!report_path_has(s, i, x, y)) {
            column_draw(&c, &p);
            pen_up(&p);
            continue;
        }
        point next = {report_axis_place(x, s->x[i]), report_axis_place(y, s->y[i]), i};
        if (s->count > DRAW_ALL)
            column_add(&c, &p, next);
        else
            pen_to(&p, next);
    }
    column_draw(&c, &p);
    pen_up(&p);
}
