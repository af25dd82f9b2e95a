/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How saved tensors are held, as a user says it, turned into a plan's choices.
 *
 *     none              kept as they are
 *     eb, eb:0.1        error-bounded, the bound times the rms of what is stored (default: `error_rel`)
 *     pool:2            inputs of convolutions averaged over k x k; batch norms' inputs kept, ReLUs as a mask
 *     group:4, dct, zvc likewise, by that codec
 *     offload           as they are, in the spill file
 *     recompute         computed again from the nearest values that are kept
 *     eb+offload, ...   a stream, in the spill file
 *
 * Overrides are rules for layers, separated by commas, the last that fits wins: "layer1.*=eb:0.1,conv1=none". '*' and
 * '?' as in a shell.
 */
#ifndef COMET_TRAIN_FORMS_H
#define COMET_TRAIN_FORMS_H

#include "train/plan/plan.h"

typedef struct comet_forms comet_forms;

/* `overrides` may be NULL. COMET_ERROR_ARGUMENT, with a line that says what would be right. */
comet_status comet_forms_new(const char *codec, double error_rel, const char *overrides,
                             const comet_allocator *allocator, comet_forms **forms, comet_message *message);
void comet_forms_free(comet_forms *forms);

/* For comet_plan_options: choose, with the forms as its context. */
void comet_forms_choose(void *forms, comet_plan_entry *entry);

/* COMET_ERROR_ARGUMENT, with a line, if an override names no layer of the graph. */
comet_status comet_forms_check(const comet_forms *forms, const comet_graph *graph, comet_message *message);

/* 1: some form of it wants a spill file. */
int comet_forms_offloads(const comet_forms *forms);

/* 1: some of it is to be computed again. */
int comet_forms_recomputes(const comet_forms *forms);

/* "eb:0.3", "pool:2", "keep", "eb+offload", ...: for tables. */
enum { COMET_FORM_TEXT = 32 };
void comet_form_format(const comet_plan_entry *entry, char text[COMET_FORM_TEXT]);

#endif
