/* SPDX-License-Identifier: Apache-2.0 */
/* Which line is which: names at the lines' ends, or a legend above where that does not do. */
#include "cmd/report/report_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_HEIGHT = 16, CHARACTER_WIDTH = 8, LEAD = 26 };

static int is_first_of_group(const report_series *series, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (series[i].group == series[index].group)
            return 0;
    return 1;
}

/* A group of several is called after its first without what follows the last comma: "eb, seed 1" is "eb". */
static void name_group(const report_series *series, size_t count, size_t first, char name[REPORT_LABEL_BYTES]) {
    size_t members = 0;
    snprintf(name, REPORT_LABEL_BYTES, "%s", series[first].name);
    for (size_t i = first; i < count; i++)
        members += series[i].group == series[first].group;
    char *comma = members > 1 ? strrchr(name, ',') : NULL;
    if (comma)
        *comma = '\0';
}

void report_labels_find(report_labels *labels, const report_series *series, size_t count, int flags) {
    *labels = (report_labels){0};
    int longest = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_first_of_group(series, i))
            continue;
        char name[REPORT_LABEL_BYTES];
        name_group(series, count, i, name);
        if (labels->count < REPORT_LABELS_MOST) {
            report_label *label = &labels->items[labels->count];
            label->series = &series[i];
            memcpy(label->name, name, sizeof label->name);
        }
        labels->count++;
        int length = report_characters(name);
        longest = length > longest ? length : longest;
    }
    if (longest > REPORT_LABEL_CHARACTERS)
        longest = REPORT_LABEL_CHARACTERS;
    if (labels->count > 1 && labels->count <= REPORT_LABELS_MOST && !(flags & REPORT_AREA))
        labels->width = LEAD + longest * CHARACTER_WIDTH;
}

void report_labels_legend(report *r, const report_labels *labels, const report_series *series, size_t count) {
    if (labels->count <= 1 || labels->width > 0)
        return;
    fputs("<ul class=\"legend\">\n", r->file);
    for (size_t i = 0; i < count; i++) {
        if (!is_first_of_group(series, i))
            continue;
        char name[REPORT_LABEL_BYTES];
        name_group(series, count, i, name);
        fprintf(r->file, "<li><i class=\"c%d\"></i>", report_colour(series[i].group));
        report_put(r, name);
        fputs("</li>\n", r->file);
    }
    fputs("</ul>\n", r->file);
}

/* Where the first line of the group that has points ends; 0: none has. */
static int find_end(report_label *label, const report_series *series, size_t count, const report_axis *x,
                    const report_axis *y) {
    for (size_t s = 0; s < count; s++)
        for (size_t i = series[s].group == label->series->group ? series[s].count : 0; i-- > 0;)
            if (report_path_has(&series[s], i, x, y)) {
                label->x = report_axis_place(x, series[s].x[i]);
                label->y = label->place = report_axis_place(y, series[s].y[i]);
                return 1;
            }
    return 0;
}

static int by_place(const void *a, const void *b) {
    const report_label *first = a, *second = b;
    return first->y < second->y ? -1 : first->y > second->y;
}

/* Down from the top so that no two overlap, then up from the bottom so that none lies below it. */
static void move_apart(report_label *items, int count, const report_axis *y) {
    for (int i = 1; i < count; i++)
        items[i].place = fmax(items[i].place, items[i - 1].place + LINE_HEIGHT);
    double lowest = y->from;
    for (int i = count - 1; i >= 0; i--) {
        items[i].place = fmin(items[i].place, lowest);
        lowest = items[i].place - LINE_HEIGHT;
    }
}

static void draw_label(report *r, const report_label *label, const report_axis *x) {
    double text = x->to + LEAD - 4;
    fprintf(r->file, "<g class=\"c%d\"><path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1f\"/>",
            report_colour(label->series->group), label->x + 4, label->y, x->to + 5, label->y, text - 4, label->place);
    fprintf(r->file, "<text class=\"tag\" x=\"%.1f\" y=\"%.1f\">", text, label->place + 4);
    report_put_short(r, label->name, REPORT_LABEL_CHARACTERS);
    fputs("<title>", r->file);
    report_put(r, label->name);
    fputs("</title></text></g>\n", r->file);
}

void report_labels_draw(report *r, report_labels *labels, const report_series *series, size_t count,
                        const report_axis *x, const report_axis *y) {
    if (labels->width == 0)
        return;
    int drawn = 0;
    for (int i = 0; i < labels->count; i++)
        if (find_end(&labels->items[i], series, count, x, y))
            labels->items[drawn++] = labels->items[i];
    qsort(labels->items, (size_t)drawn, sizeof *labels->items, by_place);
    move_apart(labels->items, drawn, y);
    for (int i = 0; i < drawn; i++)
        draw_label(r, &labels->items[i], x);
}
