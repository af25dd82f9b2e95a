/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Controllers: they choose the error bound of each saved tensor while a network trains, from statistics of the
 * training itself.
 *
 *     comet_control_options options = COMET_CONTROL_OPTIONS_INIT;
 *     comet_control_new(comet_control_find("comet"), &options, tensors, count, &control);
 *     for each update i of the weights, from 0:
 *         forward, with comet_control_bound(control, t) for tensor t; backward
 *         if (comet_control_step(control, i, loss, gradients_are_finite) != COMET_CONTROL_GO_ON)
 *             put back what the step changed, and go on with i + 1 or stop
 *         update the weights
 *         if (comet_control_wants(control, i)) comet_control_observe(control, i, observations, n);
 *
 * Numbers in, bounds out: no I/O, no clock, no random numbers, no device. Decisions are made with + - * / and square
 * roots alone, and bounds are rounded down to 4 significant bits: the same observations give the same bounds on every
 * machine.
 *
 * A control belongs to one thread at a time. docs/theory.md has the theory; comet/error_model.h has it as functions.
 * comet/control_methods.h is for those who write a controller of their own.
 */
#ifndef COMET_CONTROL_H
#define COMET_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "comet/allocator.h"
#include "comet/codec.h"
#include "comet/error_model.h"
#include "comet/export.h"
#include "comet/init.h"
#include "comet/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comet_control comet_control;
typedef struct comet_control_methods comet_control_methods;
typedef struct comet_control_event comet_control_event;

typedef struct comet_control_bound_value {
    comet_bound_kind kind;
    double value;
} comet_control_bound_value;

/* ---- what is controlled ---- */

typedef struct comet_control_use {
    comet_use_kind kind;
    /*
     * Which parameter's gradient it reaches: a number of the caller's, or -1 for one that no other use reaches. Where
     * k uses (of any tensors) reach one gradient, each may add 1 / k of the variance allowed.
     */
    int32_t gradient;
} comet_control_use;

/* Only tensors whose error the controller sets: one that is kept exactly has no part in any gradient's share. */
typedef struct comet_control_tensor {
    const char *name; /* copied; 63 bytes count */
    int64_t count;    /* values; >= 1 */
    int32_t use_count;
    const comet_control_use *uses; /* copied. None: its error reaches no gradient, and only the ceiling limits it */
} comet_control_tensor;

typedef struct comet_control_options {
    size_t size; /* sizeof(comet_control_options) */

    /*
     * comet, comet:mean, and budget without a target: sigma of a gradient's error = calibration * mean |momentum|;
     * comet:paper: its bounds times this.
     */
    double calibration;

    /* All bounds but `fixed` ones; in units of the rms of the tensor's non-zeros. */
    double warmup_bound; /* until the first decision; relative */
    double floor, ceiling;

    /* When: the first decision is at the first observation from iteration `warmup` on. */
    int64_t warmup;
    int64_t window; /* iterations after which a decision is due */
    int64_t every;  /* statistics are wanted every so many iterations */
    /* 1: sooner, when a bound would move by more than `moved`; 0: only then, and observed only shortly before */
    int32_t adaptive;
    double moved;     /* 0.25: by a quarter */
    double smoothing; /* weight of a new observation against those before; 1: no smoothing */
    double loosen;    /* a decision makes a bound coarser at most by this factor; finer at once */

    comet_bound_kind fixed_kind; /* fixed */
    double fixed_bound;

    /*
     * budget. Bytes: the least error whose streams fit. Error: the least bytes with the sum over all uses of (sigma /
     * momentum)^2 at most this. Neither: an error of uses * calibration^2, which is what `comet` allows, but spread
     * for the least bytes. Not both.
     */
    double budget_bytes, budget_error;

    double acgc_e; /* acgc: e */

    /* Safety: comet_control_step. */
    double spike;       /* a loss is a spike from so many deviations above the mean of those before; 0: never */
    double tighten;     /* then, and after what is not finite, all bounds times this; 1: never */
    int64_t recover;    /* after so many iterations without trouble they double, up to what they were */
    int32_t most_skips; /* so many steps in a row that are not finite: COMET_CONTROL_STOP */

    comet_error_shape shape;

    /* Each decision; may be NULL. The event and its texts are valid during the call. */
    void (*log)(void *context, const comet_control_event *event);
    void *log_context;
    const comet_allocator *allocator; /* NULL: the C library's; its context must outlive the control */

    /* 1: what is predicted of a gradient's error is multiplied by measured factors, where there are; 0: it is not. */
    int32_t measured;
    /* The same of what all tensors cause together (comet_control_see_joint). */
    int32_t joint;
} comet_control_options;

#define COMET_CONTROL_OPTIONS_INIT                                                                                     \
    COMET_INIT(                                                                                                        \
        comet_control_options, COMET_FIELD(calibration) = 1.0, COMET_FIELD(warmup_bound) = 0.3,                        \
        COMET_FIELD(floor) = 0.01, COMET_FIELD(ceiling) = 0.4, COMET_FIELD(warmup) = 50, COMET_FIELD(window) = 1000,   \
        COMET_FIELD(every) = 10, COMET_FIELD(adaptive) = 1, COMET_FIELD(moved) = 0.25, COMET_FIELD(smoothing) = 0.25,  \
        COMET_FIELD(loosen) = 2.0, COMET_FIELD(fixed_kind) = COMET_BOUND_RELATIVE, COMET_FIELD(fixed_bound) = 0.3,     \
        COMET_FIELD(acgc_e) = 1.0, COMET_FIELD(spike) = 6.0, COMET_FIELD(tighten) = 0.25, COMET_FIELD(recover) = 100,  \
        COMET_FIELD(most_skips) = 20, COMET_FIELD(measured) = 1, COMET_FIELD(joint) = 1)

/* ---- life ---- */

/* "comet", "comet:mean", "comet:paper", "acgc", "fixed", "budget"; NULL for any other name. */
COMET_API const comet_control_methods *comet_control_find(const char *name);

/* The names in order, NULL behind the last. */
COMET_API const char *comet_control_name(int index);

/* NULL if the options are in order, else one line that says which is not and what it must be. Static storage. */
COMET_API const char *comet_control_check(const comet_control_options *options);

/*
 * `methods`: comet_control_find's, or the caller's own, which must outlive the control. COMET_ERROR_ARGUMENT: methods
 * are NULL (an unknown name), comet_control_check finds something, a tensor has no values or an unknown use.
 * COMET_ERROR_VERSION: methods of another version.
 */
COMET_API comet_status comet_control_new(const comet_control_methods *methods, const comet_control_options *options,
                                         const comet_control_tensor *tensors, int32_t count, comet_control **control);

/* NULL is allowed. */
COMET_API void comet_control_free(comet_control *control);

/*
 * What a controller reads of an observation. Who observes may leave out the rest: it costs time to collect. The rms
 * is read by all: floor and ceiling are in units of it.
 */
enum {
    COMET_NEEDS_SQUARES = 1,   /* derivative_squares, gradient_squares, error_gain, input_squares, correction */
    COMET_NEEDS_MEAN = 2,      /* gradient_mean, positions, samples */
    COMET_NEEDS_MOMENTUM = 4,  /* momentum, buffer */
    COMET_NEEDS_ACGC = 8,      /* acgc */
    COMET_NEEDS_SIZES = 16,    /* comet_control_observation.sizes */
    COMET_NEEDS_MEASURED = 32, /* factor: of some tensors in turn (docs/measured.md); not if options.measured is 0 */
    COMET_NEEDS_JOINT = 64     /* comet_control_see_joint, now and then; not if options.joint is 0 */
};

/* Of the control's methods: `fixed` needs nothing, 0. */
COMET_API uint32_t comet_control_needs(const comet_control *control);

/* ---- each iteration ---- */

/* The bound of a tensor now. An index out of range: relative 0, which is lossless. */
COMET_API comet_control_bound_value comet_control_bound(const comet_control *control, int32_t tensor);

/*
 * The rms of a tensor's non-zeros in the step just made, where it is known, as it is from the codec's statistics: the
 * ceiling of the next step's bound is in units of it, although bounds are decided seldom, from rms that were
 * smoothed. Neither negative nor infinite nor NaN, or it is ignored; 0: unknown.
 */
COMET_API void comet_control_see_rms(comet_control *control, int32_t tensor, double rms);

typedef enum comet_control_action {
    COMET_CONTROL_GO_ON = 0,
    COMET_CONTROL_SKIP = 1, /* not finite: weights, momentum and running statistics stay as they were before the step */
    COMET_CONTROL_STOP = 2  /* the same, options.most_skips times in a row: smaller bounds do not help */
} comet_control_action;

/* After backward, before the update. `finite`: loss and all gradients are. */
COMET_API comet_control_action comet_control_step(comet_control *control, int64_t iteration, double loss, int finite);

/* 1: statistics of this iteration are wanted. */
COMET_API int comet_control_wants(const comet_control *control, int64_t iteration);

/* A bound tried, and what the stream took. */
typedef struct comet_control_size {
    double bound; /* absolute */
    double bytes;
} comet_control_size;

typedef struct comet_control_observation {
    int32_t tensor;
    int32_t size_count;
    double rms;                      /* of the non-zeros: sqrt(sum of squares / non-zeros) */
    const comet_use_stats *uses;     /* one for each use, in the tensor's order; NULL: the rms and sizes alone */
    const comet_control_size *sizes; /* budget; the bound in force is enough, others make its curve better */
} comet_control_observation;

/*
 * Statistics of some or all tensors; then, if one is due, a decision. An observation with a number that is negative
 * or not finite is left out whole, and logged. COMET_ERROR_ARGUMENT: no such tensor, or an iteration before the last
 * one; nothing has changed then.
 */
COMET_API comet_status comet_control_observe(comet_control *control, int64_t iteration,
                                             const comet_control_observation *observations, int32_t count);

/*
 * The measured factor of a tensor's use (docs/measured.md), smoothed; 1: it was not measured, or there is no such use.
 * *measured, which may be NULL: how often it was.
 */
COMET_API double comet_control_factor(const comet_control *control, int32_t tensor, int32_t use, int64_t *measured);

/* The error of one gradient with all tensors compressed, beside what is predicted of it. */
typedef struct comet_control_joint {
    int32_t gradient; /* comet_control_use.gradient */
    double measured;  /* variance: the mean square of its values' errors */
    double predicted; /* the sum over all uses that reach it of (sensitivity * bound)^2, without joint factors */
} comet_control_joint;

/*
 * What was measured with all tensors compressed, of some or all gradients: from then on the predictions of uses contain
 * it. A use that ends in a gradient has that gradient's measured over predicted sigma as its joint factor. An error in
 * dX (NORM_INPUT, CURVE_INPUT, CHANNEL_SCALE) goes on to all layers before: such a use has the root mean square over
 * the gradients of no greater number, so gradients must be numbered in the order of the network. Numbers that are
 * negative, not finite, or predicted as 0 are left out. Joint factors are smoothed, and part of the state.
 * COMET_ERROR_ARGUMENT: `seen` is NULL with a count above 0.
 */
COMET_API comet_status comet_control_see_joint(comet_control *control, const comet_control_joint *seen, int32_t count);

/* A use's joint factor, smoothed; 1: there is none. *times, which may be NULL: how often it was seen. */
COMET_API double comet_control_joint_factor(const comet_control *control, int32_t tensor, int32_t use, int64_t *times);

/*
 * For a control that takes the place of another, with other tensors: a factor that the other one has learnt, and how
 * often it was measured. Nothing happens where there is no such use, or where the numbers are not above 0 and finite.
 */
COMET_API void comet_control_set_factor(comet_control *control, int32_t tensor, int32_t use, double factor,
                                        int64_t measured);

/* ---- log ---- */

/* Why something was decided. "Of all tensors": `before` and `after` are safety's factor. */
typedef enum comet_control_cause {
    COMET_CAUSE_START = 0,     /* the control was made */
    COMET_CAUSE_FIRST = 1,     /* warm-up has ended */
    COMET_CAUSE_WINDOW = 2,    /* options.window iterations have passed */
    COMET_CAUSE_MOVED = 3,     /* statistics have moved */
    COMET_CAUSE_LOOSENING = 4, /* the last decision stopped at options.loosen on its way */
    COMET_CAUSE_ASKED = 5,     /* a plug-in's step asked for it */
    COMET_CAUSE_SPIKE = 6,     /* of all tensors: the loss jumped */
    COMET_CAUSE_NONFINITE = 7, /* of all tensors: the step was not finite */
    COMET_CAUSE_RECOVERY = 8,  /* of all tensors: no trouble for options.recover iterations */
    COMET_CAUSE_IGNORED = 9    /* an observation that cannot be right */
} comet_control_cause;

/* What set the bound. */
typedef enum comet_control_limit {
    COMET_LIMIT_WARMUP = 0,  /* not observed yet */
    COMET_LIMIT_USE = 1,     /* the error that a use allows; comet_control_event.use says which */
    COMET_LIMIT_FLOOR = 2,   /* options.floor: the use would want less */
    COMET_LIMIT_CEILING = 3, /* options.ceiling */
    COMET_LIMIT_LOOSEN = 4,  /* options.loosen: more at the next observation */
    COMET_LIMIT_FIXED = 5,   /* options.fixed_bound */
    COMET_LIMIT_BUDGET = 6,  /* its share of the budget */
    COMET_LIMIT_PLUGIN = 7
} comet_control_limit;

COMET_API const char *comet_control_cause_text(comet_control_cause cause);
COMET_API const char *comet_control_limit_text(comet_control_limit limit);

struct comet_control_event {
    int64_t iteration;
    int32_t tensor;   /* -1: all */
    const char *name; /* of the tensor; "*": all */
    comet_control_cause cause;
    comet_control_limit limit;
    int32_t use; /* which of the tensor's was tightest; -1: none */
    comet_control_bound_value before, after;
    double rms, sensitivity, momentum; /* of that use, smoothed; the exact form's sensitivity; 0 where unknown */
    double factor;                     /* measured, of that use, which the sensitivity contains; 1: not measured */
    double joint;                      /* its joint factor, likewise */
    double tightness;                  /* what safety multiplies all bounds with; 1 when all is well */
    double loss;                       /* SPIKE and NONFINITE */
    const char *text;                  /* the cause in words */
};

/* ---- state, for checkpoints ---- */

/* The bytes that comet_control_save writes now. */
COMET_API size_t comet_control_state_bytes(const comet_control *control);

/* COMET_ERROR_CAPACITY: fewer bytes than that. */
COMET_API comet_status comet_control_save(const comet_control *control, void *state, size_t bytes);

/*
 * Into a control made with the same methods, tensors and options: it then decides as the saved one would have.
 * COMET_ERROR_CORRUPT, _CHECKSUM, _VERSION: not such a state; COMET_ERROR_MISMATCH: of other methods or tensors.
 * After an error nothing has changed, but for what a plug-in's own `load` may have done.
 */
COMET_API comet_status comet_control_load(comet_control *control, const void *state, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
