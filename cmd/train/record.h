/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a run: its figures, and the curves that a report draws. It can travel through a pipe. */
#ifndef COMET_CMD_RECORD_H
#define COMET_CMD_RECORD_H

#include "cmd/memory/memory_mark.h"
#include "train/run/run.h"

enum { RECORD_NAME = 64, RECORD_POINTS = 800 };

typedef struct record_layer {
    char name[COMET_NAME_BYTES], form[COMET_FORM_TEXT];
    double raw, stored; /* bytes */
} record_layer;

/* A bound from a step on, in parts of the rms. */
typedef struct record_bound {
    int32_t layer;
    double step, bound;
    double factor; /* measured (docs/measured.md), when it was decided; 0: none is known */
} record_bound;

/* What all tensors together did to gradients, as it was measured in a step (docs/measured.md): parts of their rms. */
typedef struct record_joint {
    double step, error, predicted;
    int images;
} record_joint;

/* Plain data, all of it. */
typedef struct record_figures {
    char name[RECORD_NAME]; /* of the variant */
    uint64_t seed;
    int batch, height, width, channels;
    comet_status status; /* other than COMET_OK: `why` says it */
    comet_message why;
    comet_run_result result;
    size_t measured_peak_bytes; /* memory_mark.h */
    /* Of a GPU, by its driver: all there is, taken when the run began, and the most since; 0: of no GPU. */
    size_t gpu_bytes, gpu_first_bytes, gpu_most_bytes;
    /*
     * share of a controller's bounds that its ceiling had set, over tensors and steps since its first decision; -1:
     * none
     */
    double at_ceiling;
    size_t loss_count, evaluation_count, time_count, layer_count, bound_count, bounded_count, joint_count;
} record_figures;

typedef struct record {
    record_figures figures;
    double *loss_step, *loss, *ratio; /* each a mean over a few steps */
    double *evaluation_step, *accuracy;
    double *memory; /* planned, at each time of a step; MiB */
    record_layer *layers;
    record_joint *joint;
    record_bound *bounds;         /* a controller's decisions, in their order */
    char (*bounded)[RECORD_NAME]; /* names of the layers they are about */

    /* while it is filled */
    memory_mark mark;
    int64_t stride;
    comet_mean open_loss, open_ratio;
    size_t evaluation_capacity, bound_capacity, joint_capacity;
    unsigned char *is_at_ceiling; /* by layer of `bounded` */
    /* tensors times steps at the ceiling, and all of them, up to that step */
    double ceiling_steps, bound_steps, bounds_at;
} record;

/* Begins to measure. */
void record_begin(record *r, const char *name, const comet_run_options *run);

/* To be called with each event of the run. */
void record_event(record *r, const comet_run_event *event);

/* A controller's decision; and that its last ones are in force until this step. (record_event calls them.) */
void record_control(record *r, const comet_control_event *event);
void record_control_until(record *r, int64_t step);

/* As measured last; error 0: it was not. */
record_joint record_last_joint(const record *r);

/* What comet_run answered. */
void record_end(record *r, comet_status status, const comet_run_result *result, const comet_message *message);

void record_free(record *r);

/* The most that trainer and loaders were planned to hold; the data set is not in it, nor in what was measured. */
size_t record_planned_peak(const record *r);

/* Through a pipe. 1, or 0 if it did not arrive whole. */
int record_write(const record *r, int file);
int record_read(record *r, int file);

#endif
