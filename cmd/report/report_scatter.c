/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of points: of what should be equal, around the line where it is, or of one figure against another. */
#include <math.h>

#include "cmd/report/report_impl.h"

enum {
    TOP = 30,
    BOTTOM = 46,
    LEFT = 74,
    RIGHT = 18,
    HEIGHT = 520,
    NAMES_MOST = 32,
    NAME_HEIGHT = 15,
    CHARACTER_WIDTH = 8
};

static int has_place(const report_cloud *cloud, size_t i, const report_axis *x, const report_axis *y) {
    return report_axis_takes(x, cloud->x[i]) && report_axis_takes(y, cloud->y[i]);
}

static void set_ranges(report_axis *x, report_axis *y, const report_cloud *clouds, size_t count, int flags) {
    for (size_t c = 0; c < count; c++)
        for (size_t i = 0; i < clouds[c].count; i++)
            if (has_place(&clouds[c], i, x, y)) {
                report_axis_include(x, clouds[c].x[i]);
                report_axis_include(flags & REPORT_EQUAL ? x : y, clouds[c].y[i]);
            }
    if (flags & REPORT_EQUAL)
        *y = *x;
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
        if (!has_place(cloud, i, x, y))
            continue;
        fprintf(r->file, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>",
                report_axis_place(x, cloud->x[i]), report_axis_place(y, cloud->y[i]));
        report_put(r, cloud->labels ? cloud->labels[i] : cloud->name);
        fprintf(r->file, ": %s, %s</title></circle>\n", report_number(cloud->x[i], a), report_number(cloud->y[i], b));
    }
    fputs("</g>\n", r->file);
}

/* Names that are drawn already, so that no two lie over each other. */
typedef struct names {
    struct {
        double left, right, y;
    } at[NAMES_MOST];
    int count;
} names;

static int is_free(const names *drawn, double left, double right, double y) {
    for (int i = 0; i < drawn->count; i++)
        if (left < drawn->at[i].right && right > drawn->at[i].left && fabs(y - drawn->at[i].y) < NAME_HEIGHT)
            return 0;
    return drawn->count < NAMES_MOST;
}

/*
 * Beside its rightmost point: to the right, or to the left where there is no room, level with it, above or below. Where
 * all of these places are taken the legend has to do.
 */
static void draw_name(report *r, names *drawn, const report_cloud *cloud, const report_axis *x, const report_axis *y) {
    static const double below[] = {4, -12, 20};
    size_t at = cloud->count;
    for (size_t i = 0; i < cloud->count; i++)
        if (has_place(cloud, i, x, y) && (at == cloud->count || cloud->x[i] > cloud->x[at]))
            at = i;
    if (at == cloud->count)
        return;
    const double width = CHARACTER_WIDTH * report_characters(cloud->name), place = report_axis_place(x, cloud->x[at]);
    for (int way = 0; way < 6; way++) {
        const int is_left = way & 1;
        const double left = is_left ? place - 8 - width : place + 8;
        const double level = report_axis_place(y, cloud->y[at]) + below[way / 2];
        if (left < x->from || left + width > x->to || level > y->from - 4 || !is_free(drawn, left, left + width, level))
            continue;
        drawn->at[drawn->count].left = left;
        drawn->at[drawn->count].right = left + width;
        drawn->at[drawn->count++].y = level;
        fprintf(r->file, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\"%s>", place + (is_left ? -8 : 8), level,
                is_left ? " text-anchor=\"end\"" : "");
        report_put(r, cloud->name);
        fputs("</text>\n", r->file);
        return;
    }
}

static void draw_clouds(report *r, const report_axis *x, const report_axis *y, const report_cloud *clouds, size_t count,
                        int flags) {
    if (flags & REPORT_EQUAL) {
        draw_diagonal(r, x, y, 1, "base");
        draw_diagonal(r, x, y, 2, "base dash");
        draw_diagonal(r, x, y, 0.5, "base dash");
    }
    for (size_t c = 0; c < count; c++)
        draw_cloud(r, &clouds[c], report_colour((int)c), x, y);
    names drawn = {.count = 0};
    for (size_t c = 0; c < count && !(flags & REPORT_EQUAL); c++)
        draw_name(r, &drawn, &clouds[c], x, y);
}

void report_scatter(report *r, const char *title, const char *x_axis, const char *y_axis, const report_cloud *clouds,
                    size_t count, int flags) {
    report_axis x = {.low = 1, .high = 0, .logarithmic = (flags & (REPORT_LOG_X | REPORT_EQUAL)) != 0}, y = x;
    y.logarithmic = (flags & (REPORT_LOG_Y | REPORT_EQUAL)) != 0;
    report_figure_open(r, title);
    set_ranges(&x, &y, clouds, count, flags);
    if (report_axis_is_empty(&x)) {
        fputs("<p class=\"empty\">No values.</p>\n", r->file);
        report_figure_close(r);
        return;
    }
    report_axis_finish(&x, 8, 1);
    report_axis_finish(&y, 8, 1);
    x.from = LEFT;
    x.to = REPORT_WIDTH - RIGHT;
    y.from = HEIGHT - BOTTOM;
    y.to = TOP;
    draw_legend(r, clouds, count);
    report_svg_open(r, title, HEIGHT);
    report_frame(r, &x, &y, x_axis, y_axis);
    draw_clouds(r, &x, &y, clouds, count, flags);
    report_svg_close(r);
    report_figure_close(r);
}
