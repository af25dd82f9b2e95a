/* SPDX-License-Identifier: Apache-2.0 */
/* A series as the path of a drawing. */
#ifndef COMET_CMD_REPORT_PATH_H
#define COMET_CMD_REPORT_PATH_H

#include "cmd/report/report_impl.h"

/*
 * The `d` of a path, broken at gaps; a point between two gaps is a dot. Of more points than the drawing has room for it keeps, in each pixel
 * column, the first, the least, the greatest and the last, so that no spike is lost. `area`: each piece closed along zero, or the lower end of y.
 */
void report_path(report *r, const report_series *series, const report_axis *x, const report_axis *y, int area);

/* 1: point i has a place. */
int report_path_has(const report_series *series, size_t i, const report_axis *x, const report_axis *y);

#endif
