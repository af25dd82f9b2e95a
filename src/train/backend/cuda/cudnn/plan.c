/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/cudnn/plan.h"

#include <string.h>

enum { MOST_CONFIGS = 64, MOST_NOTES = 32 };

typedef struct finder {
    const comet_cudnn_functions *call;
    cudnnHandle_t handle;
    const comet_cudnn_limits *limits;
} finder;

/* ---- reading a configuration ---- */

static uint32_t read_notes(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t engine,
                           cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
    int notes[MOST_NOTES] = {0}; /* enumerations of C */
    const int64_t count = comet_cudnn_get(d, engine, name, type, MOST_NOTES, notes);
    uint32_t bits = 0;
    for (int64_t i = 0; i < count && i < MOST_NOTES; i++)
        if (notes[i] >= 0 && notes[i] < 32)
            bits |= 1u << notes[i];
    return bits;
}

static void read_engine(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t config, comet_cudnn_plan *plan) {
    cudnnBackendDescriptor_t engine = comet_cudnn_make(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    comet_cudnn_get(d, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    comet_cudnn_get(d, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &plan->choice.engine);
    plan->notes = read_notes(d, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
    plan->behaviour = read_notes(d, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
}

/* cuDNN does not say how many there are before there are descriptors to put them in. */
static void read_knobs(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t config, comet_cudnn_choice *choice) {
    cudnnBackendDescriptor_t knobs[COMET_CUDNN_KNOBS];
    choice->knobs = -1;
    for (int i = 0; i < COMET_CUDNN_KNOBS; i++)
        knobs[i] = comet_cudnn_make(d, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    const int64_t count = comet_cudnn_get(d, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                          COMET_CUDNN_KNOBS, knobs);
    if (count >= COMET_CUDNN_KNOBS) /* there may be more */
        return;
    for (int64_t i = 0; i < count; i++) {
        int type = 0; /* an enumeration of C */
        comet_cudnn_get(d, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        comet_cudnn_get(d, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &choice->knob[i].value);
        choice->knob[i].type = type;
    }
    if (comet_cudnn_is_fine(d))
        choice->knobs = (int32_t)count;
}

/* Without the knobs a plan is as good, but for being made again. */
static int read_config(const finder *f, cudnnBackendDescriptor_t config, comet_cudnn_plan *plan, char *reason) {
    comet_cudnn_descriptors d;
    comet_cudnn_begin(&d, f->call);
    *plan = (comet_cudnn_plan){.descriptor = NULL};
    read_engine(&d, config, plan);
    const int fine = comet_cudnn_is_fine(&d);
    if (!fine && !*reason)
        memcpy(reason, d.reason, sizeof d.reason);
    read_knobs(&d, config, &plan->choice);
    comet_cudnn_clear(&d);
    return fine;
}

/* ---- making a plan ---- */

/* This is where engines refuse, and where kernels are compiled. */
static int finish_plan(const finder *f, cudnnBackendDescriptor_t config, comet_cudnn_plan *plan, char *reason) {
    comet_cudnn_descriptors d;
    cudnnHandle_t handle = f->handle;
    int64_t workspace = 0;
    comet_cudnn_begin(&d, f->call);
    cudnnBackendDescriptor_t p = comet_cudnn_make(&d, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    comet_cudnn_set(&d, p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    comet_cudnn_refer(&d, p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    comet_cudnn_finish(&d, "a plan", p);
    comet_cudnn_get(&d, p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace);
    plan->workspace = workspace > 0 ? (size_t)workspace : 0;
    if (comet_cudnn_is_fine(&d) && plan->workspace <= f->limits->workspace) {
        plan->descriptor = p; /* the caller's from here on */
        return 1;
    }
    if (!*reason && comet_cudnn_is_fine(&d))
        strcpy(reason, "cuDNN: no engine keeps to the limit on workspace");
    else if (!*reason)
        memcpy(reason, d.reason, sizeof d.reason);
    comet_cudnn_clear(&d);
    return 0;
}

static void try_config(const finder *f, cudnnBackendDescriptor_t config, comet_cudnn_plan_list *list) {
    comet_cudnn_plan plan;
    if (!read_config(f, config, &plan, list->reason))
        return;
    if (plan.notes & f->limits->refused) {
        if (!*list->reason)
            strcpy(list->reason, "cuDNN: no engine is as exact, or as reproducible, as was asked for");
        return;
    }
    const int compiled = plan.behaviour >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1;
    if ((compiled && list->compiled >= list->most_compiled) || !finish_plan(f, config, &plan, list->reason))
        return;
    list->compiled += compiled;
    list->plans[list->count++] = plan;
}

/* Configurations of a mode of the heuristics, best first, in `d`; how many. */
static int64_t ask(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                   cudnnBackendDescriptor_t configs[MOST_CONFIGS]) {
    cudnnBackendDescriptor_t h = comet_cudnn_make(d, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    comet_cudnn_refer(d, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    comet_cudnn_set(d, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    comet_cudnn_finish(d, "heuristics", h);
    int64_t count = comet_cudnn_get(d, h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, NULL);
    const int64_t room = COMET_CUDNN_OWNED - d->count;
    count = count < MOST_CONFIGS ? count : MOST_CONFIGS;
    count = count < room ? count : room;
    for (int64_t i = 0; i < count; i++)
        configs[i] = comet_cudnn_make(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    /* More may be announced than stand the check of support. */
    return count <= 0
               ? 0
               : comet_cudnn_get(d, h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, configs);
}

void comet_cudnn_plans_find(const comet_cudnn_functions *call, cudnnHandle_t handle, cudnnBackendDescriptor_t graph,
                            const comet_cudnn_limits *limits, comet_cudnn_plan_list *list) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    const finder f = {call, handle, limits};
    for (int mode = 0; mode < 2 && list->count == 0; mode++) {
        cudnnBackendDescriptor_t configs[MOST_CONFIGS] = {0};
        comet_cudnn_descriptors d;
        comet_cudnn_begin(&d, call);
        const int64_t count = ask(&d, graph, modes[mode], configs);
        for (int64_t i = 0; i < count && list->count < list->most; i++)
            try_config(&f, configs[i], list);
        if (!comet_cudnn_is_fine(&d) && !*list->reason)
            memcpy(list->reason, d.reason, sizeof d.reason);
        comet_cudnn_clear(&d);
    }
}

/* ---- a plan that was made before ---- */

static cudnnBackendDescriptor_t make_config(comet_cudnn_descriptors *d, cudnnBackendDescriptor_t graph,
                                            const comet_cudnn_choice *choice) {
    cudnnBackendDescriptor_t knobs[COMET_CUDNN_KNOBS];
    cudnnBackendDescriptor_t engine = comet_cudnn_make(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    comet_cudnn_refer(d, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    comet_cudnn_set(d, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &choice->engine);
    comet_cudnn_finish(d, "an engine", engine);
    for (int32_t i = 0; i < choice->knobs; i++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)choice->knob[i].type;
        knobs[i] = comet_cudnn_make(d, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        comet_cudnn_set(d, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        comet_cudnn_set(d, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &choice->knob[i].value);
        comet_cudnn_finish(d, "a knob", knobs[i]);
    }
    cudnnBackendDescriptor_t config = comet_cudnn_make(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    comet_cudnn_refer(d, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    if (choice->knobs > 0)
        comet_cudnn_set(d, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, choice->knobs,
                        knobs);
    comet_cudnn_finish(d, "a configuration", config);
    return config;
}

int comet_cudnn_plan_again(comet_cudnn_descriptors *d, cudnnHandle_t handle, cudnnBackendDescriptor_t graph,
                           const comet_cudnn_limits *limits, const comet_cudnn_choice *choice, comet_cudnn_plan *plan) {
    const finder f = {d->call, handle, limits};
    char reason[COMET_CUDNN_REASON_BYTES] = "";
    cudnnBackendDescriptor_t config = make_config(d, graph, choice);
    *plan = (comet_cudnn_plan){.descriptor = NULL};
    if (!comet_cudnn_is_fine(d) || !read_config(&f, config, plan, reason) || (plan->notes & limits->refused) ||
        !finish_plan(&f, config, plan, reason))
        return 0;
    plan->choice = *choice;
    return 1;
}

void comet_cudnn_plan_clear(const comet_cudnn_functions *call, comet_cudnn_plan *plan) {
    if (plan->descriptor)
        call->unmake(plan->descriptor);
    plan->descriptor = NULL;
}
