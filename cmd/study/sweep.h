/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings with errors put into one layer after the other, beside trainings without. */
#ifndef COMET_CMD_SWEEP_H
#define COMET_CMD_SWEEP_H

#include "cmd/study/compare.h"
#include "train/graph/graph_impl.h"

/*
 * The runs are a comparison's: variant 0 without errors, then each layer at each sigma, the sigmas of a layer together.
 */
typedef struct sweep_plan {
    compare_plan compare;   /* the first member: views are given it */
    const char *on, *shape; /* "gradient" or "activation"; "normal" or "uniform" */
    const char **layers;    /* or patterns */
    int layer_count;
    const double *sigmas;
    const char *const *sigma_texts;
    int sigma_count;
} sweep_plan;

static inline int sweep_variant(const sweep_plan *plan, int layer, int sigma) {
    return 1 + layer * plan->sigma_count + sigma;
}

/* ---- sweep_variants.c ---- */

/* What the names of a plan live in. */
typedef struct sweep_memory {
    char (*names)[COMET_NAME_BYTES];
    const char **layers;
    char (*rules)[COMET_NAME_BYTES + 64];
    const char **variants;
} sweep_memory;

/* Fills the plan's layers and variants from --layers. The plan's run, sigmas, `on` and `shape` must be there. */
int sweep_name_variants(const char *layers, sweep_plan *plan, sweep_memory *memory);
void sweep_memory_free(sweep_memory *memory);
int sweep_apply(const compare_plan *plan, const char *variant, comet_run_options *run); /* compare_plan.apply */

/* ---- sweep_print.c ---- */

/* Mean accuracy of a variant over the seeds that it has; NaN without any. */
double sweep_accuracy(const compare_results *results, int variant);

/* Of a comparison that is a sweep_plan's: for study_views. */
void sweep_print(const compare_plan *compare, const compare_results *results);
void sweep_print_json(const compare_plan *compare, const compare_results *results);
int sweep_report(const char *path, const compare_plan *compare, const compare_results *results);

#endif
