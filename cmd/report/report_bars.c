/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of bars: one to a row, its name at the left, its value at its end. */
#include <math.h>

#include "cmd/report/report_impl.h"

enum { NAME_CHARACTERS = 40, TOP = 24, BOTTOM = 28 };

typedef struct layout {
    report_axis x;
    double row, bar, font; /* heights */
    int has_parts;
} layout;

/* Many bars are low, so that a network of 160 layers is still one picture. */
static void set_heights(layout *l, size_t count) {
    l->row = count <= 16 ? 26 : count <= 48 ? 19 : count <= 96 ? 15 : 12;
    l->bar = floor(l->row * 0.72);
    l->font = fmin(12, l->row - 2);
}

static const char *bar_label(const report_bar *bar, const char *unit, char *text, size_t capacity) {
    if (bar->label)
        return bar->label;
    char number[REPORT_NUMBER];
    const int has_unit = unit && *unit && isfinite(bar->value);
    snprintf(text, capacity, "%s%s%s", report_number(bar->value, number), has_unit ? " " : "", has_unit ? unit : "");
    return text;
}

static void set_layout(layout *l, const char *unit, const report_bar *bars, size_t count) {
    int longest_name = 0, longest_label = 0;
    *l = (layout){.x = {.low = 0, .high = 0}};
    set_heights(l, count);
    for (size_t i = 0; i < count; i++) {
        char text[96];
        int name = report_characters(bars[i].name);
        int label = report_characters(bar_label(&bars[i], unit, text, sizeof text));
        longest_name = name > longest_name ? name : longest_name;
        longest_label = label > longest_label ? label : longest_label;
        report_axis_include(&l->x, bars[i].value);
        l->has_parts |= bars[i].part > 0;
    }
    longest_name = longest_name > NAME_CHARACTERS ? NAME_CHARACTERS : longest_name;
    longest_label = longest_label > NAME_CHARACTERS ? NAME_CHARACTERS : longest_label;
    double character = l->font * 0.6;
    report_axis_finish(&l->x, 6, 0);
    l->x.from = 14 + longest_name * character;
    l->x.to = REPORT_WIDTH - 14 - longest_label * character;
}

static void draw_grid(report *r, const layout *l, const char *unit, double bottom) {
    char text[REPORT_NUMBER];
    for (int i = 0; i < l->x.tick_count; i++) {
        double at = report_axis_place(&l->x, l->x.ticks[i]);
        const char *label = report_axis_label(&l->x, l->x.ticks[i], text);
        fprintf(r->file,
                "<path class=\"%s\" d=\"M%.1f %dV%.1f\"/><text x=\"%.1f\" y=\"14\" text-anchor=\"middle\">%s</text>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s",
                l->x.ticks[i] == 0 ? "base" : "grid", at, TOP, bottom, at, label, at, bottom + 17, label);
        if (i + 1 == l->x.tick_count && unit && *unit) {
            fputc(' ', r->file);
            report_put(r, unit);
        }
        fputs("</text>\n", r->file);
    }
}

static void draw_rectangle(report *r, const layout *l, const char *class, double value, double top) {
    double zero = report_axis_place(&l->x, 0), end = report_axis_place(&l->x, value);
    fprintf(r->file, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"1.5\"/>", class,
            fmin(zero, end), top, fabs(end - zero), l->bar);
}

static void draw_bar(report *r, const layout *l, const report_bar *bar, const char *unit, double top) {
    char text[96];
    const char *label = bar_label(bar, unit, text, sizeof text);
    double middle = top + l->row / 2 + l->font * 0.35, upper = top + (l->row - l->bar) / 2;
    int drawn = report_axis_takes(&l->x, bar->value);
    fputs("<g class=\"bar\"><title>", r->file);
    report_put(r, bar->name);
    fputs(": ", r->file);
    report_put(r, label);
    fprintf(r->file,
            "</title><text class=\"name\" style=\"font-size:%.0fpx\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">",
            l->font, l->x.from - 7, middle);
    report_put_short(r, bar->name, NAME_CHARACTERS);
    fputs("</text><g class=\"c0\">", r->file);
    if (drawn)
        draw_rectangle(r, l, l->has_parts ? "pale" : "whole", bar->value, upper);
    if (drawn && bar->part > 0)
        draw_rectangle(r, l, "part", fmin(bar->part, bar->value), upper);
    double end = report_axis_place(&l->x, drawn ? fmax(bar->value, 0) : 0);
    fprintf(r->file, "</g><text style=\"font-size:%.0fpx\" x=\"%.1f\" y=\"%.1f\">", l->font, end + 6, middle);
    report_put_short(r, label, NAME_CHARACTERS);
    fputs("</text></g>\n", r->file);
}

void report_bars(report *r, const char *title, const char *unit, const report_bar *bars, size_t count) {
    layout l;
    report_figure_open(r, title);
    if (count == 0) {
        fputs("<p class=\"empty\">No values.</p>\n", r->file);
        report_figure_close(r);
        return;
    }
    set_layout(&l, unit, bars, count);
    double bottom = TOP + l.row * (double)count;
    report_svg_open(r, title, bottom + BOTTOM);
    draw_grid(r, &l, unit, bottom);
    for (size_t i = 0; i < count; i++)
        draw_bar(r, &l, &bars[i], unit, TOP + l.row * (double)i);
    report_svg_close(r);
    report_figure_close(r);
}
