/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of points: what should be equal, on logarithmic axes, around the line where it is. */
#include <math.h>

#include "report_impl.h"

enum { TOP = 30, BOTTOM = 46, LEFT = 74, RIGHT = 18, HEIGHT = 520 };

static int has_place(const report_cloud *cloud, size_t i, const report_axis *axis) {
    return report_axis_takes(axis, cloud->x[i]) && report_axis_takes(axis, cloud->y[i]);
}

/* Both axes have the same range. */
static void set_range(report_axis *axis, const report_cloud *clouds, size_t count) {
    for (size_t c = 0; c < count; c++)
        for (size_t i = 0; i < clouds[c].count; i++)
            if (has_place(&clouds[c], i, axis)) {
                report_axis_include(axis, clouds[c].x[i]);
                report_axis_include(axis, clouds[c].y[i]);
            }
}

static void draw_legend(report *r, const report_cloud *clouds, size_t count) {
    fputs("<ul class=\"legend\">\n", r->file);
    for (size_t c = 0; c < count; c++) {
        fprintf(r->file, "<li><i class=\"c%d\"></i>", report_colour((int)c));
        report_put(r, clouds[c].name);
        fputs("</li>\n", r->file);
    }
    fputs("</ul>\n", r->file);
}

/* From corner to corner as far as y = factor * x is inside. */
static void draw_diagonal(report *r, const report_axis *x, const report_axis *y, double factor, const char *class) {
    const double low = factor < 1 ? x->low / factor : x->low, high = factor < 1 ? x->high : x->high / factor;
    if (low < high)
        fprintf(r->file, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", class, report_axis_place(x, low),
                report_axis_place(y, low * factor), report_axis_place(x, high), report_axis_place(y, high * factor));
}

static void draw_cloud(report *r, const report_cloud *cloud, int colour, const report_axis *x, const report_axis *y) {
    char a[REPORT_NUMBER], b[REPORT_NUMBER];
    fprintf(r->file, "<g class=\"c%d\">", colour);
    for (size_t i = 0; i < cloud->count; i++) {
        if (!has_place(cloud, i, x))
            continue;
        fprintf(r->file, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>",
                report_axis_place(x, cloud->x[i]), report_axis_place(y, cloud->y[i]));
        report_put(r, cloud->labels ? cloud->labels[i] : cloud->name);
        fprintf(r->file, ": %s, %s</title></circle>\n", report_number(cloud->x[i], a), report_number(cloud->y[i], b));
    }
    fputs("</g>\n", r->file);
}

void report_scatter(report *r, const char *title, const char *x_axis, const char *y_axis, const report_cloud *clouds,
                    size_t count) {
    report_axis x = {.low = 1, .high = 0, .logarithmic = 1}, y;
    report_figure_open(r, title);
    set_range(&x, clouds, count);
    if (report_axis_is_empty(&x)) {
        fputs("<p class=\"empty\">No values.</p>\n", r->file);
        report_figure_close(r);
        return;
    }
    report_axis_finish(&x, 8, 1);
    y = x;
    x.from = LEFT;
    x.to = REPORT_WIDTH - RIGHT;
    y.from = HEIGHT - BOTTOM;
    y.to = TOP;
    draw_legend(r, clouds, count);
    report_svg_open(r, title, HEIGHT);
    report_frame(r, &x, &y, x_axis, y_axis);
    draw_diagonal(r, &x, &y, 1, "base");
    draw_diagonal(r, &x, &y, 2, "base dash");
    draw_diagonal(r, &x, &y, 0.5, "base dash");
    for (size_t c = 0; c < count; c++)
        draw_cloud(r, &clouds[c], report_colour((int)c), &x, &y);
    report_svg_close(r);
    report_figure_close(r);
}
