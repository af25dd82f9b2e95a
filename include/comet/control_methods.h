/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Controllers of one's own: a table of methods, given to comet_control_new in place of comet_control_find's.
 *
 * What is common to all controllers - collecting, smoothing, when to decide, warm-up, floor, ceiling, rounding,
 * safety, log, state - is done around the methods; they only turn what is known into bounds. The library's own are
 * written against this interface.
 */
#ifndef COMET_CONTROL_METHODS_H
#define COMET_CONTROL_METHODS_H

#include "comet/control.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_control_use_view {
    comet_use_kind kind;
    int32_t gradient;
    double share;          /* of the sigma allowed: 1 / sqrt(uses that reach the gradient) */
    comet_use_stats stats; /* smoothed */
    int64_t measured;      /* how often stats.factor was; 0: it is 0, which is 1 */
    int64_t jointed;       /* the same of stats.joint */
} comet_control_use_view;

enum { COMET_CONTROL_CURVE_POINTS = 20 };

/* Measured sizes, one point for each half octave of bound / rms that was seen. */
typedef struct comet_control_curve {
    double position[COMET_CONTROL_CURVE_POINTS]; /* comet_control_log2 of bound / rms */
    double bits[COMET_CONTROL_CURVE_POINTS];     /* a value; 0: none seen */
} comet_control_curve;

typedef struct comet_control_tensor_view {
    const char *name;
    int64_t count;
    int32_t use_count;
    const comet_control_use_view *uses;
    int64_t observed;                /* how often its uses were; 0: nothing but warm-up is safe */
    double rms;                      /* smoothed; 0: unknown */
    comet_control_curve curve;       /* */
    comet_control_bound_value bound; /* as last decided, without safety's factor */
} comet_control_tensor_view;

typedef struct comet_control_view {
    size_t size;
    int64_t iteration;
    const comet_control_options *options;
    const comet_control_tensor_view *tensors;
    int32_t count;
} comet_control_view;

typedef struct comet_control_choice {
    comet_control_bound_value bound; /* INFINITY: nothing limits it but the ceiling */
    comet_control_limit limit;
    int32_t use; /* -1: none */
} comet_control_choice;

enum {
    COMET_CONTROL_VERSION = 4,
    COMET_CONTROL_AT_ONCE = 1, /* flag: needs no statistics: asked when the control is made, and only then */
    COMET_CONTROL_AS_IS = 2 /* flag: bounds are not held between floor and ceiling, nor loosened slowly, nor rounded */
};

struct comet_control_methods {
    uint32_t version; /* COMET_CONTROL_VERSION */
    uint32_t flags;
    size_t size; /* sizeof(comet_control_methods) */
    const char *name;
    uint32_t needs; /* COMET_NEEDS_...: what `assess` reads; the rest may be 0 */
    /* An instance. May be NULL: then that is the instance. */
    comet_status (*create)(const comet_control_view *view, void **instance);
    void (*release)(void *instance);
    /*
     * Writes a choice for every tensor, from the view alone (and the instance). Called at every observation from
     * warm-up's end on; not every call becomes a decision. `choices` hold the warm-up bound when it is called: a
     * tensor may be left at that.
     */
    comet_status (*assess)(void *instance, const comet_control_view *view, comet_control_choice *choices);
    /* After each step. 1: decide at the next observation. May be NULL. */
    int (*step)(void *instance, int64_t iteration, double loss, int finite);
    /* What the instance remembers; NULL, all three: nothing. `load` checks what it is given. */
    size_t (*state_bytes)(const void *instance);
    void (*save)(const void *instance, void *state);
    comet_status (*load)(void *instance, const void *state, size_t bytes);
};

/* log2 without libm: exact at powers of two, linear between, at most 0.087 below. x > 0 and finite. */
COMET_API double comet_control_log2(double x);

/*
 * Bits a value at bound / rms: between measured points linear in comet_control_log2, outside them, or without any, by
 * a typical slope.
 */
COMET_API double comet_control_curve_bits(const comet_control_curve *curve, double ratio);

#ifdef __cplusplus
}
#endif

#endif
