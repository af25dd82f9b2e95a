/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comet plan: what training would take, asked of the trainer without its memory, and shown as text, JSON or a report.
 */
#ifndef COMET_CMD_PLAN_H
#define COMET_CMD_PLAN_H

#include "train/run/run.h"

typedef struct plan_request {
    comet_trainer_options trainer; /* with --data completed from it */
    const char *data_name;         /* --data as it was given, or NULL */
    comet_dataset *data;
    const char *report; /* a file, or NULL */
    int json, help;
} plan_request;

/* One way of training, and what it takes. */
typedef struct plan_case {
    comet_fit fit;
    comet_plan *plan;
    comet_graph *graph;
    comet_backend *backend;
    const comet_plan_entry **entries; /* of the plan, in the order of the layers */
    int entry_count;
} plan_case;

typedef struct plan_answer {
    plan_case shown;    /* within --memory if it fits; else, or without a limit, as asked for */
    int fits;           /* --memory, or there is none */
    int largest_batch;  /* that fits --memory; 0: none does */
    plan_case baseline; /* for the report: the same network with everything kept */
} plan_answer;

/* Where the peak comes from. */
typedef struct plan_totals {
    size_t static_bytes, buffer_bytes, stream_bytes, library_bytes;
    size_t data_bytes;              /* data set and prefetch; 0: not known */
    size_t peak_bytes;              /* of all these */
    size_t raw_bytes, stored_bytes; /* of all that is saved */
    size_t spilled_bytes;           /* in the file: what is offloaded, and streams that the limit leaves no room for */
    size_t recomputed_bytes;        /* of the raw ones, not held at all */
    int estimates, entries;
} plan_totals;

extern const char plan_help[];

int plan_options_read(plan_request *r, int argc, char **argv);
void plan_request_free(plan_request *r);

int plan_ask(const plan_request *r, plan_answer *answer);
void plan_answer_free(plan_answer *answer);
plan_totals plan_sum(const plan_request *r, const plan_case *shown);

/* Words that all ways to show a plan share. */
enum { PLAN_TEXT = 640 };
const char *plan_kind_name(comet_saved_kind kind);
void plan_request_text(const comet_trainer_options *options, char text[PLAN_TEXT]);
void plan_budget_text(const plan_request *r, const plan_answer *answer, char text[PLAN_TEXT]); /* --memory is given */
void plan_estimates_text(const plan_request *r, const plan_answer *answer, char text[PLAN_TEXT]);

void plan_print(const plan_request *r, const plan_answer *answer);
void plan_print_json(const plan_request *r, const plan_answer *answer);
int plan_write_report(const plan_request *r, const plan_answer *answer);

#endif
