/* SPDX-License-Identifier: Apache-2.0 */
/* How far errors reach on their way back to the input, for people, for programs and as a picture. */
#ifndef COMET_CMD_REACH_H
#define COMET_CMD_REACH_H

#include "cmd/study/assess.h"
#include "study/reach.h"

typedef struct reach_case {
    const assess_case *circumstances;
    const comet_reach *reach;
    double sigma;
} reach_case;

/* Tables or JSON; and a report, unless `report` is NULL. */
int reach_show(const reach_case *c, int as_json, const char *report);

int reach_report(const char *path, const reach_case *c); /* reach_report.c */

/* The bound of tensors, as it was given. */
static inline const char *reach_bound(const reach_case *c) {
    return c->circumstances->bounds.items[0];
}

/*
 * Of all sources that are tensors, or that are not, and that reach another layer: the median, the least and the
 * greatest of how many times an error has grown on its way to the first layer it reaches. count 0: there is none.
 */
typedef struct reach_growth {
    int count;
    double median, least, greatest;
} reach_growth;

reach_growth reach_growth_of(const comet_reach *reach, int tensors);

#endif
