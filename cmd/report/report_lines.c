/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of lines: axes, grid, the series, and their names. */
#include <math.h>
#include <stdlib.h>

#include "cmd/report/report_impl.h"

enum { TOP = 30, BOTTOM = 46, LEFT = 64, RIGHT = 18, HEIGHT = 380 };

/* A series of no more points than this has a dot, with its values, on each. */
enum { DOTS_MOST = 60 };

static void set_ranges(report_axis *x, report_axis *y, const report_series *series, size_t count, int flags) {
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < series[s].count; i++)
            if (report_path_has(&series[s], i, x, y)) {
                report_axis_include(x, series[s].x[i]);
                x->whole &= series[s].x[i] == floor(series[s].x[i]);
                report_axis_include(y, series[s].y[i]);
            }
    if (flags & REPORT_FROM_ZERO && !report_axis_is_empty(y))
        report_axis_include(y, 0);
}

static void draw_x_ticks(report *r, const report_axis *x, const report_axis *y) {
    char text[REPORT_NUMBER];
    for (int i = 0; i < x->tick_count; i++) {
        double at = report_axis_place(x, x->ticks[i]);
        fprintf(r->file,
                "<path class=\"base\" d=\"M%.1f %.1fv5\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                at, y->from, at, y->from + 19, report_axis_label(x, x->ticks[i], text));
    }
}

static void draw_y_ticks(report *r, const report_axis *x, const report_axis *y) {
    char text[REPORT_NUMBER];
    for (int i = 0; i < y->tick_count; i++) {
        double at = report_axis_place(y, y->ticks[i]);
        fprintf(r->file,
                "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                x->from, at, x->to, x->from - 8, at + 4, report_axis_label(y, y->ticks[i], text));
    }
}

void report_frame(report *r, const report_axis *x, const report_axis *y, const char *x_name, const char *y_name) {
    draw_y_ticks(r, x, y);
    fprintf(r->file, "<path class=\"base\" d=\"M%.1f %.1fH%.1f\"/>\n", x->from, y->from, x->to);
    draw_x_ticks(r, x, y);
    fprintf(r->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", (x->from + x->to) / 2, y->from + 39);
    report_put(r, x_name);
    fputs("</text>\n<text x=\"4\" y=\"12\">", r->file);
    report_put(r, y_name);
    fputs("</text>\n", r->file);
}

static void draw_dots(report *r, const report_series *s, const report_axis *x, const report_axis *y) {
    char a[REPORT_NUMBER], b[REPORT_NUMBER];
    for (size_t i = 0; i < s->count; i++) {
        if (!report_path_has(s, i, x, y))
            continue;
        fprintf(r->file, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>", report_axis_place(x, s->x[i]),
                report_axis_place(y, s->y[i]));
        report_put(r, s->name);
        fprintf(r->file, ": %s at %s</title></circle>\n", report_number(s->y[i], b), report_number(s->x[i], a));
    }
}

/* What a line's tooltip says: its name and range. */
static void put_summary(report *r, const report_series *s, const report_axis *x, const report_axis *y) {
    char low[REPORT_NUMBER], high[REPORT_NUMBER], last[REPORT_NUMBER];
    report_axis own = {.low = 1, .high = 0, .logarithmic = y->logarithmic};
    size_t end = 0;
    for (size_t i = 0; i < s->count; i++)
        if (report_path_has(s, i, x, y)) {
            report_axis_include(&own, s->y[i]);
            end = i;
        }
    report_put(r, s->name);
    if (!report_axis_is_empty(&own))
        fprintf(r->file, ": %s to %s, at the end %s", report_number(own.low, low), report_number(own.high, high),
                report_number(s->y[end], last));
}

/* The values themselves, behind their means. */
static void draw_faint(report *r, const report_series *s, const report_axis *x, const report_axis *y) {
    fputs("<path class=\"line faint\" d=\"", r->file);
    report_path(r, s, x, y, 0);
    fputs("\"/>\n", r->file);
}

static void draw_series(report *r, const report_series *values, const report_axis *x, const report_axis *y, int flags) {
    double *means = flags & REPORT_SMOOTH ? report_smooth(values) : NULL;
    report_series drawn = *values, *s = &drawn;
    fprintf(r->file, "<g class=\"c%d\">", report_colour(s->group));
    if (means) {
        draw_faint(r, values, x, y);
        drawn.y = means;
    }
    if (flags & REPORT_AREA) {
        fputs("<path class=\"area\" d=\"", r->file);
        report_path(r, s, x, y, 1);
        fputs("\"/>\n", r->file);
    }
    fprintf(r->file, "<path class=\"line%s%s\" d=\"", s->count > DOTS_MOST && !means ? " many" : "",
            s->group >= REPORT_COLOURS ? " dash" : "");
    report_path(r, s, x, y, 0);
    fputs("\"><title>", r->file);
    put_summary(r, values, x, y);
    fputs("</title></path>\n", r->file);
    if (s->count <= DOTS_MOST)
        draw_dots(r, s, x, y);
    fputs("</g>\n", r->file);
    free(means);
}

void report_lines(report *r, const char *title, const char *x_axis, const char *y_axis, const report_series *series,
                  size_t count, int flags) {
    report_axis x = {.low = 1, .high = 0, .whole = 1}, y = {.low = 1, .high = 0, .logarithmic = flags & REPORT_LOG_Y};
    report_labels labels;
    report_figure_open(r, title);
    set_ranges(&x, &y, series, count, flags);
    if (report_axis_is_empty(&y)) {
        fputs("<p class=\"empty\">No values.</p>\n", r->file);
        report_figure_close(r);
        return;
    }
    report_axis_finish(&x, 10, 0);
    report_axis_finish(&y, 6, 1);
    report_labels_find(&labels, series, count, flags);
    report_labels_legend(r, &labels, series, count);
    x.from = LEFT;
    x.to = REPORT_WIDTH - RIGHT - labels.width;
    y.from = HEIGHT - BOTTOM;
    y.to = TOP;
    report_svg_open(r, title, HEIGHT);
    report_frame(r, &x, &y, x_axis, y_axis);
    for (size_t s = 0; s < count; s++)
        draw_series(r, &series[s], &x, &y, flags);
    report_labels_draw(r, &labels, series, count, &x, &y);
    report_svg_close(r);
    report_figure_close(r);
}
