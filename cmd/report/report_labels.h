/* SPDX-License-Identifier: Apache-2.0 */
/* Which line is which: names at the lines' ends, or a legend above where that does not do. */
#ifndef COMET_CMD_REPORT_LABELS_H
#define COMET_CMD_REPORT_LABELS_H

#include "cmd/report/report_path.h"

enum { REPORT_LABELS_MOST = 8, REPORT_LABEL_CHARACTERS = 22 };

typedef struct report_label {
    const report_series *series; /* the first of its group */
    double x, y;                 /* the end of its line */
    double place;                /* of the text */
} report_label;

typedef struct report_labels {
    report_label items[REPORT_LABELS_MOST];
    int count;    /* groups in all, which may be more than the items */
    double width; /* that the names need at the right; 0: none stand there */
} report_labels;

/* Before the axes have places: finds the groups and the room they need. One group needs no name. */
void report_labels_find(report_labels *labels, const report_series *series, size_t count, int flags);

/* A list above the drawing, where there are too many for the ends of the lines, or areas, which differ in the middle and end alike. */
void report_labels_legend(report *r, const report_labels *labels, const report_series *series, size_t count);

/* At the ends of the lines, moved apart where they would overlap. */
void report_labels_draw(report *r, report_labels *labels, const report_series *series, size_t count,
                        const report_axis *x, const report_axis *y);

#endif
