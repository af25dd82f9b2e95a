/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A report that opens in any browser: one HTML file, pictures as SVG inside it, nothing loaded from elsewhere. Built
 * section by section:
 *
 *     report_open(&r, "run.html", "resnet18 on cifar10", "eb at 0.3 beside none");
 *     report_table(&r, "Results", columns, 5, rows, 2);
 *     report_lines(&r, "Loss", "step", "loss", series, 2, REPORT_LOG_Y);
 *     report_bars(&r, "Ratio per layer", "", bars, 20);
 *     report_close(&r);          the file appears whole, or not at all
 */
#ifndef COMET_CMD_REPORT_H
#define COMET_CMD_REPORT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/file/atomic_file.h"

typedef struct report {
    FILE *file;
    const char *path;
    comet_atomic_file target;
    int figures;
} report;

typedef struct report_series {
    const char *name;
    const double *x, *y; /* y not finite: a gap */
    size_t count;
    /*
     * From 0: the same colour for the same group (seeds of a variant), which is called after its first series, up to
     * the last comma: "eb, seed 1" is "eb".
     */
    int group;
} report_series;

typedef struct report_bar {
    const char *name; /* a layer, say */
    double value;
    double part;       /* of the value, drawn darker: stored of raw; 0: none */
    const char *label; /* at its end; NULL: the value */
} report_bar;

/* Points that belong together: their own colour and a name in the legend. */
typedef struct report_cloud {
    const char *name;
    const double *x, *y;
    const char *const *labels; /* of each point, shown when it is pointed at; NULL: the name */
    size_t count;
} report_cloud;

/*
 * LOG_X, LOG_Y: values that are not positive are gaps. FROM_ZERO: zero is on the y axis. AREA: filled down to it.
 * EQUAL: both axes are logarithmic and have one range, with lines where y is x, twice x and half of x. SMOOTH: a long
 * series is drawn faintly, and over it its mean over a few points.
 */
enum {
    REPORT_LOG_Y = 1,
    REPORT_FROM_ZERO = 2,
    REPORT_AREA = 4,
    REPORT_LOG_X = 8,
    REPORT_EQUAL = 16,
    REPORT_SMOOTH = 32
};

/* DONE, or FAILED after a line on standard error. `path` must stay valid until the report is closed. */
int report_open(report *r, const char *path, const char *title, const char *subtitle);
void report_text(report *r, const char *paragraph);
void report_table(report *r, const char *title, const char *const *columns, int column_count, const char *const *cells,
                  int row_count); /* cells: row by row, NULL: empty; columns of numbers are set to the right */

/*
 * Any number of points: of long series what can be seen is drawn, no spike is lost. Values that have no place are left
 * out.
 */
void report_lines(report *r, const char *title, const char *x_axis, const char *y_axis, const report_series *series,
                  size_t count, int flags);

/* Points: LOG_X, LOG_Y or EQUAL; without EQUAL each cloud has its name beside it, if there is room. */
void report_scatter(report *r, const char *title, const char *x_axis, const char *y_axis, const report_cloud *clouds,
                    size_t count, int flags);
void report_bars(report *r, const char *title, const char *unit, const report_bar *bars, size_t count);

/* A little picture; the pixels are shown as they are, however large. */
typedef struct report_picture {
    int width, height;
    const uint8_t *pixels;  /* RGBA; with a palette one byte each */
    const uint8_t *palette; /* 256 times RGB; NULL: none */
    int size;               /* as wide as this on the page, in pixels */
    const char *label;      /* below it; NULL: none */
} report_picture;

/* Those of a row and column, side by side. */
typedef struct report_cell {
    const report_picture *pictures;
    int count;
} report_cell;

/*
 * Pictures in rows and columns, as PNG within the page. `cells`: row by row; rows[i] is the name of a row, notes[i]
 * smaller below it (either may be NULL).
 */
typedef struct report_gallery {
    const char *title, *text; /* text: below the title; NULL: none */
    const char *const *columns;
    int column_count;
    const char *const *rows, *const *notes;
    int row_count;
    const report_cell *cells;
} report_gallery;
void report_pictures(report *r, const report_gallery *gallery);

/* DONE, or FAILED after a line on standard error; then there is no file. */
int report_close(report *r);
void report_abandon(report *r); /* instead of close: nothing is left behind */

#endif
