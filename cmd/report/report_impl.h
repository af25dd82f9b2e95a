/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a report share: text that is safe in HTML, axes, the figure around a picture, lines in it. */
#ifndef COMET_CMD_REPORT_IMPL_H
#define COMET_CMD_REPORT_IMPL_H

#include "cmd/report/report.h"

/* ---- text ---- */

/* Escaped; what HTML or XML may not contain (control characters, damaged UTF-8) becomes U+FFFD. NULL: nothing. */
void report_put(report *r, const char *text);

/* The same, cut to `most` characters, the last of which is then an ellipsis. */
void report_put_short(report *r, const char *text, int most);

int report_characters(const char *text);

/* Four digits that matter: "0.1234", "1234", "1.5e-7", "n/a" if it is not finite. Returns `text`. */
enum { REPORT_NUMBER = 32 };
const char *report_number(double value, char text[REPORT_NUMBER]);

/* The style sheet, for the head of the page. */
extern const char report_style[];
extern const char report_style_pictures[]; /* behind it: a compiler need not take longer texts in one piece */

/* ---- figures ---- */

/* Drawings are this wide, in units that are pixels on a wide screen. */
enum { REPORT_WIDTH = 960 };

/* A figure with its number and title; between the two calls come a legend, if any, and one svg. */
void report_figure_open(report *r, const char *title);
void report_figure_close(report *r);

void report_svg_open(report *r, const char *title, double height);
void report_svg_close(report *r);

/* The colours repeat behind these. */
enum { REPORT_COLOURS = 7 };
int report_colour(int group);

/* A picture as PNG, in base64 (report_png.c); 0: there is no memory, and nothing was put. */
int report_put_png(report *r, const report_picture *picture);

/* ---- axes ---- */

enum { REPORT_TICKS_MOST = 24 };

typedef struct report_axis {
    double low, high; /* values at its ends */
    double from, to;  /* and their places in the drawing */
    int logarithmic;
    int whole; /* no ticks between integers: epochs, steps */
    double ticks[REPORT_TICKS_MOST];
    int tick_count;
    double step; /* between ticks; 0 on a logarithmic axis */
} report_axis;

/* 1: it has a place on the axis. Values beyond 1e300 have none: their differences would overflow. */
int report_axis_takes(const report_axis *axis, double value);

/* Widens the range to `value`, if it takes it. An axis begins empty: low > high. */
void report_axis_include(report_axis *axis, double value);
int report_axis_is_empty(const report_axis *axis);

/*
 * About `wanted` ticks at round values; `snap`: the ends are moved out to ticks. A range of one value gets some room.
 */
void report_axis_finish(report_axis *axis, int wanted, int snap);

double report_axis_place(const report_axis *axis, double value);

/* As many decimals as the steps need. Returns `text`. */
const char *report_axis_label(const report_axis *axis, double value, char text[REPORT_NUMBER]);

/* Both axes with their ticks and names, and the lines of the grid (report_lines.c). */
void report_frame(report *r, const report_axis *x, const report_axis *y, const char *x_name, const char *y_name);

/* ---- a series as the path of a drawing (report_path.c) ---- */

/*
 * The `d` of a path, broken at gaps; a point between two gaps is a dot. Of more points than the drawing has room for it
 * keeps, in each pixel column, the first, the least, the greatest and the last, so that no spike is lost. `area`: each
 * piece closed along zero, or the lower end of y.
 */
void report_path(report *r, const report_series *series, const report_axis *x, const report_axis *y, int area);

/* 1: point i has a place. */
int report_path_has(const report_series *series, size_t i, const report_axis *x, const report_axis *y);

/*
 * Means of a series' y over a few points around each, fewer towards the ends (report_smooth.c), to be freed; NULL: it
 * is too short for that, or there is no memory.
 */
double *report_smooth(const report_series *series);

/* ---- which line is which: names at the lines' ends, or a legend (report_labels.c) ---- */

enum { REPORT_LABELS_MOST = 8, REPORT_LABEL_CHARACTERS = 22, REPORT_LABEL_BYTES = 256 };

typedef struct report_label {
    const report_series *series; /* the first of its group */
    char name[REPORT_LABEL_BYTES];
    double x, y;  /* the end of its line */
    double place; /* of the text */
} report_label;

typedef struct report_labels {
    report_label items[REPORT_LABELS_MOST];
    int count;    /* groups in all, which may be more than the items */
    double width; /* that the names need at the right; 0: none stand there */
} report_labels;

/* Before the axes have places: finds the groups and the room they need. One group needs no name. */
void report_labels_find(report_labels *labels, const report_series *series, size_t count, int flags);

/*
 * A list above the drawing, where there are too many for the ends of the lines, or areas, which differ in the middle
 * and end alike.
 */
void report_labels_legend(report *r, const report_labels *labels, const report_series *series, size_t count);

/* At the ends of the lines, moved apart where they would overlap. */
void report_labels_draw(report *r, report_labels *labels, const report_series *series, size_t count,
                        const report_axis *x, const report_axis *y);

#endif
