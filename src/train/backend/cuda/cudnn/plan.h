/* SPDX-License-Identifier: Apache-2.0 */
/* Execution plans: which engine computes a graph, and how it is set. */
#ifndef COMET_TRAIN_CUDA_CUDNN_PLAN_H
#define COMET_TRAIN_CUDA_CUDNN_PLAN_H

#include "train/backend/cuda/cudnn/descriptors.h"

enum { COMET_CUDNN_KNOBS = 32 };

/* An engine's number and the values of its knobs: a plan can be made of them again. */
typedef struct comet_cudnn_choice {
    int64_t engine;
    int32_t knobs; /* -1: more than can be told */
    struct {
        int64_t type, value;
    } knob[COMET_CUDNN_KNOBS];
} comet_cudnn_choice;

typedef struct comet_cudnn_plan {
    cudnnBackendDescriptor_t descriptor; /* NULL: there is none */
    size_t workspace;                    /* bytes */
    uint32_t notes, behaviour;           /* a bit for each CUDNN_NUMERICAL_NOTE_*, CUDNN_BEHAVIOR_NOTE_* */
    comet_cudnn_choice choice;
} comet_cudnn_plan;

/* What a plan must not be. */
typedef struct comet_cudnn_limits {
    uint32_t refused; /* numerical notes */
    size_t workspace; /* the most */
} comet_cudnn_limits;

typedef struct comet_cudnn_plan_list {
    comet_cudnn_plan *plans; /* room for `most` */
    int most, count;
    int compiled;      /* of those, made by engines that compile their kernels, which takes half a second or more */
    int most_compiled; /* no more of them */
    /* Why there is none. */
    char reason[COMET_CUDNN_REASON_BYTES];
} comet_cudnn_plan_list;

/*
 * Plans for a finished graph that keep to the limits, in the order of the heuristics: of mode A, and of the fall-back
 * where that has none. The caller's, to be cleared also if there are none.
 */
void comet_cudnn_plans_find(const comet_cudnn_functions *call, cudnnHandle_t handle, cudnnBackendDescriptor_t graph,
                            const comet_cudnn_limits *limits, comet_cudnn_plan_list *list);

/*
 * The plan of a choice, made of descriptors in `d`, which were begun. 0: there is none now, or it does not keep to the
 * limits.
 */
int comet_cudnn_plan_again(comet_cudnn_descriptors *d, cudnnHandle_t handle, cudnnBackendDescriptor_t graph,
                           const comet_cudnn_limits *limits, const comet_cudnn_choice *choice, comet_cudnn_plan *plan);

/* Also of one that is not there. */
void comet_cudnn_plan_clear(const comet_cudnn_functions *call, comet_cudnn_plan *plan);

#endif
