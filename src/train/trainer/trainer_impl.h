/* SPDX-License-Identifier: Apache-2.0 */
/* What a trainer is made of: for its parts. */
#ifndef COMET_TRAIN_TRAINER_IMPL_H
#define COMET_TRAIN_TRAINER_IMPL_H

#include "train/collect/collect.h"
#include "train/plan/learned.h"
#include "train/trainer/trainer.h"

/*
 * What is done to save memory beside what the forms ask for. It decides a plan, together with forms and sizes, and goes
 * into checkpoints.
 */
typedef struct comet_saving {
    int32_t segments; /* the network is cut into so many parts that are computed again, less the last; 0: it is not */
    int32_t held;     /* 16ths of all that is saved, from the end, which are not computed again */
    int32_t forced;   /* 1: whatever form is asked for is computed again; 0: only what was to be */
    int32_t offload;  /* 16ths of what would be kept in buffers that go to the file, the first first */
    /* what is larger than 1 - plain / 16 of the largest value is held as it is, whatever codec is asked for */
    int32_t plain;
} comet_saving;

/* What can be had without large memory: enough to say what training would take. */
typedef struct comet_trainer_parts {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_graph *graph;
    comet_backend *backend;
    comet_forms *forms;
    comet_plan *base;              /* everything kept: it has the prepared ops */
    comet_plan *plan, *evaluation; /* those that are run */
    comet_learned *learned;        /* of the plan */
    comet_saving saving;           /* of the plan */
    unsigned char *cut;            /* by value: 1: all behind it depends on it alone */
    unsigned char *again;          /* by value, for the saving that is tried: 1: computed again */
    uint64_t *seen;                /* sizes: trainer_estimates.c */
    uint64_t planned_streams;      /* comet_trainer_streams when the plan was made from sizes that steps have shown */
    size_t static_bytes;           /* weights, gradients, optimiser; what a controller needs */
    size_t library_bytes;          /* the backend's library's own */

    comet_message note; /* for whoever made it; empty: none */

    /* of a controller, if there is one */
    const comet_control_methods *methods;
    comet_control_options control_options;
    comet_collect *collect;
} comet_trainer_parts;

/* An update that is issued behind the gradients it is made of. */
typedef struct comet_trainer_early {
    int is_wanted, is_issued;
    double learning_rate, momentum;
    comet_guard_call guard;
    comet_update_call update;
    comet_step_tail tail;
} comet_trainer_early;

/* What gradients of fp16 are multiplied by; 0: nothing has changed it yet. */
typedef struct comet_trainer_scale {
    double now;
    int64_t calm; /* updates made since it changed */
} comet_trainer_scale;

struct comet_trainer {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_trainer_options options; /* of its strings only spill_directory may be read after comet_trainer_new */
    char *spill_directory;
    comet_trainer_parts parts;
    comet_holder *holder;
    size_t store_limit; /* of the holder; 0: none */
    void *buffers;      /* of both plans, which take turns */
    size_t buffer_bytes;
    float *state; /* of the optimiser */
    size_t state_bytes;
    double *means;       /* by parameter, for the mean momentum */
    size_t past_peak;    /* allocated, under plans before */
    size_t past_planned; /* of plans before, and of this one while streams were larger */
    comet_step *step, *evaluation;
    int settled; /* 1: the plan was made with sizes that steps have shown, or there is no room for a better one */
    int64_t updates, batches;

    comet_control *control; /* NULL: there is none */
    int collects;           /* 1: statistics of the update under way are wanted */
    comet_trainer_joint joint;
    int joint_images; /* of a measurement; 0: not known yet; -1: there is no room for any */

    float *running; /* statistics as they were before the update under way */
    size_t running_bytes;
    comet_span *spans;  /* of what is judged, by parameter; then running statistics alone, once more */
    int running_arrays; /* of these */
    comet_mean loss;    /* of its batches */
    double mean_loss;   /* when they are complete: what is judged, */
    int flawed;         /* and whether some trainer of the network found a flaw */
    comet_message flaw; /* the first of these that could not be run because it was not finite; empty: none */

    comet_trainer_early early;
    comet_trainer_scale scale;
    int too_large; /* of the last update: comet_trainer_result */

    void *hook; /* what the hooks made */
    const comet_step_ahead *ahead;
    const comet_step_clock *clock;
};

/* ---- trainer_update.c ---- */

/* Before the gradients of a batch behind which an update comes: it may be issued right behind them. */
void comet_trainer_update_early(comet_trainer *trainer, double learning_rate, double momentum);

/* What goes behind a batch's gradients; NULL: nothing. `is_last`: of its update. */
const comet_step_tail *comet_trainer_update_tail(const comet_trainer *trainer, int is_last);

/* Of an update that was issued. */
comet_status comet_trainer_update_await_guard(comet_trainer *trainer);

/* The update that may be made: makes it, or awaits it. */
comet_status comet_trainer_make_update(comet_trainer *trainer, double learning_rate, double momentum,
                                       comet_trainer_result *result, comet_message *message);

/* ---- trainer_scale.c ---- */

double comet_trainer_scale_now(const comet_trainer *trainer); /* 1: gradients are as they are */

/* Gradients were not finite: 1: they are multiplied by less from now on, and may be. */
int comet_trainer_scale_less(comet_trainer *trainer);
void comet_trainer_scale_made(comet_trainer *trainer); /* an update was */

/* ---- trainer_parts.c ---- */

/* All but the plan that is run. */
comet_status comet_trainer_parts_new(const comet_trainer_options *options, const comet_allocator *allocator,
                                     comet_trainer_parts *parts, comet_message *message);
void comet_trainer_parts_free(comet_trainer_parts *parts);
void comet_trainer_parts_strip(comet_trainer_parts *parts); /* frees all but graph, backend and the plan that is run */
size_t comet_trainer_parts_buffers(const comet_trainer_parts *parts); /* what both plans need, in whole pages */

/* `store_limit` 0: none. */
comet_trainer_bytes comet_trainer_parts_bytes(const comet_trainer_parts *parts, size_t store_limit);

/* ---- trainer_segments.c ---- */

void comet_trainer_find_cuts(comet_trainer_parts *parts); /* once */

/* Marks in parts->again what is computed again. */
void comet_trainer_mark(comet_trainer_parts *parts, const comet_saving *saving);

/* ---- trainer_budget.c ---- */

/* The smallest budget under which parts->plan runs, what is reserved and what the library takes included. */
size_t comet_trainer_need(const comet_trainer_parts *parts, const comet_trainer_options *options);

/* 1: what is held may be put elsewhere: there is a directory for a file, or it is a GPU, and the host has memory. */
int comet_trainer_offloads(const comet_trainer_parts *parts, const comet_trainer_options *options);

/* What the budget leaves to the store beside that plan; 0: no limit. */
size_t comet_trainer_store_limit(const comet_trainer_parts *parts, const comet_trainer_options *options);

/* Makes parts->plan under a saving that is given. */
comet_status comet_trainer_plan_with(comet_trainer_parts *parts, const comet_trainer_options *options,
                                     const comet_saving *saving, comet_message *message);

/*
 * Makes parts->plan: as asked, or with as little saving beside it as the budget needs. `least` (NULL: not wanted, which
 * is quicker if it fits) is the smallest budget that would do. COMET_ERROR_CAPACITY: none fits.
 */
comet_status comet_trainer_plan_within(comet_trainer_parts *parts, const comet_trainer_options *options, size_t *least,
                                       comet_message *message);

/* The form that is asked for, whatever the budget. */
void comet_trainer_ask_forms(const comet_trainer_parts *parts, comet_plan_entry *entry);

/* ---- trainer_memory.c ---- */

/* Holder, memory and steps for parts.plan; comet_trainer_give, also after an error. */
comet_status comet_trainer_take(comet_trainer *trainer, comet_message *message);
void comet_trainer_give(comet_trainer *trainer);
size_t comet_trainer_allocated(const comet_trainer *trainer); /* the most so far */

/* Under a plan that was there before: from a checkpoint. */
comet_status comet_trainer_go_on(comet_trainer *trainer, const comet_saving *saving, comet_message *message);

/*
 * A step found no room for an entry of the plan: another plan, that knows more of sizes. COMET_ERROR_CAPACITY: none
 * fits.
 */
comet_status comet_trainer_replan(comet_trainer *trainer, int refused_entry, comet_message *message);

/*
 * After a batch. Under a budget the plan is made again after the first, which knew guesses only, and whenever streams
 * have become clearly smaller: what was spilled or computed again for them need not be any more.
 */
comet_status comet_trainer_settle(comet_trainer *trainer, comet_message *message);

/* ---- trainer_control.c ---- */

/* What the options say, and the tensors: with the other parts. */
comet_status comet_trainer_control_parts(comet_trainer_parts *parts, const comet_trainer_options *options,
                                         comet_message *message);
comet_status comet_trainer_control_new(comet_trainer *trainer, comet_message *message);
void comet_trainer_control_free(comet_trainer *trainer);

/* Before the first batch of an update; before each, as plans may change: the bounds. */
void comet_trainer_control_begin(comet_trainer *trainer);
void comet_trainer_control_bounds(comet_trainer *trainer);

/* After each batch. */
void comet_trainer_control_batch(comet_trainer *trainer);

/* After the update. */
comet_status comet_trainer_control_observe(comet_trainer *trainer, double momentum, comet_message *message);

/* ---- trainer_joint.c ---- */

/* Before an update, with its first batch: measures the errors of gradients, if it is time to. */
comet_status comet_trainer_joint_measure(comet_trainer *trainer, const uint8_t *pixels, const int32_t *labels,
                                         comet_message *message);
void comet_trainer_joint_free(comet_trainer *trainer);

/* ---- trainer_judge.c ---- */

comet_status comet_trainer_judge_new(comet_trainer *trainer, comet_message *message); /* when there is a graph */
void comet_trainer_judge_free(comet_trainer *trainer);

/* The update that a batch belongs to, from 0; of the last one that was trained, of `batches` - 1. */
int64_t comet_trainer_iteration(const comet_trainer *trainer, int64_t batches);

/* Before the first batch of an update; after each: `flaw` says why it could not be run, NULL: it was. */
comet_status comet_trainer_judge_begin(comet_trainer *trainer);
void comet_trainer_judge_batch(comet_trainer *trainer, double loss, const comet_message *flaw);

/* When the last one was: what other trainers of the network must know of this one. */
comet_status comet_trainer_judge_complete(comet_trainer *trainer);

/*
 * When gradients are complete. *go_on 0: the update is not finite, and running statistics are as they were before it.
 * COMET_ERROR_DIVERGED: and there is no controller to skip it, or it has skipped too many.
 */
comet_status comet_trainer_judge(comet_trainer *trainer, int *go_on, comet_message *message);

/* COMET_ERROR_DIVERGED: an update from finite gradients was too much for a parameter, and was made. */
comet_status comet_trainer_ruined(comet_trainer *trainer, int parameter, comet_message *message);

/* ---- trainer_estimates.c ---- */

comet_status comet_trainer_seen_new(comet_trainer_parts *parts, comet_message *message); /* when there is a graph */
void comet_trainer_seen_free(comet_trainer_parts *parts);                                /* while there is one */
void comet_trainer_learn(comet_trainer_parts *parts); /* from parts->learned, after a step */

/*
 * To be called every so many batches. What was seen before the last two such calls is forgotten: sizes in the plan may
 * become smaller.
 */
enum { COMET_TRAINER_WINDOW = 64 };
void comet_trainer_forget(comet_trainer_parts *parts);
uint64_t comet_trainer_streams(const comet_trainer_parts *parts); /* the sum of what is known */
size_t comet_trainer_most_seen(const comet_trainer_parts *parts, const comet_plan_entry *entry); /* 0: not known */

void comet_trainer_recall(comet_trainer_parts *parts); /* what is known, into what is learned of the plan */

/* The entry's stream did not fit where this much was thought to do: it is taken to be larger. 0: it cannot be. */
int comet_trainer_expect_more(comet_trainer_parts *parts, int entry);

#endif
