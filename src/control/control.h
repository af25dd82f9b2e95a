/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A control and its parts. comet/control.h and comet/control_methods.h are the interfaces; each part below has a file
 * of its own.
 */
#ifndef COMET_CONTROL_CONTROL_H
#define COMET_CONTROL_CONTROL_H

#include "comet/control_methods.h"

enum { CONTROL_NAME_BYTES = 64 };

/* What methods do not see of a tensor. */
typedef struct control_tensor {
    char name[CONTROL_NAME_BYTES];
    comet_control_bound_value target; /* of the last decision: where the bound would be but for options.loosen */
    double rms;                       /* of the last step; 0: unknown */
    int32_t limit;                    /* comet_control_limit, of the bound as decided */
    int32_t use;                      /* the tightest; -1: none */
} control_tensor;

typedef struct control_safety {
    double tightness; /* 1: all is well */
    double loss_mean, loss_variance;
    int64_t losses;     /* that mean and variance are of */
    int64_t trouble_at; /* iteration of the last spike or step that was not finite; -1: none */
    int64_t eased_at;   /* and of the last recovery */
    int64_t skips;      /* in a row */
} control_safety;

struct comet_control {
    comet_control_options options; /* the allocator in it points to `allocator`, or is NULL */
    comet_allocator allocator;
    size_t bytes; /* of this block: the struct and all arrays below */
    const comet_control_methods *methods;
    void *instance;

    int32_t count, use_count; /* */
    comet_control_tensor_view *tensors;
    comet_control_use_view *uses; /* of all tensors */
    control_tensor *own;
    comet_control_choice *choices; /* room for one assessment */

    int64_t iteration;  /* of the last observation or step; -1: none */
    int64_t decided_at; /* */
    int64_t decisions;
    int64_t loosening; /* 1: the last decision stopped on its way */
    int64_t asked;     /* 1: the methods want a decision */
    control_safety safety;
};

/* NULL: there is no such use. */
const comet_control_use_view *comet_control_find_use(const comet_control *control, int32_t tensor, int32_t use);

/* ---- decide.c ---- */

comet_control_view comet_control_view_of(const comet_control *control);

/* Fills control->choices: where each bound shall be, held between floor and ceiling and rounded. */
comet_status comet_control_assess(comet_control *control);

/* Makes the choices the bounds, one event each. */
void comet_control_commit(comet_control *control, comet_control_cause cause);

/* 1: a choice is far from the target that was last decided. */
int comet_control_has_moved(const comet_control *control);

/* An event of a tensor, or of all (-1), filled with what is known; then sent with comet_control_send. */
comet_control_event comet_control_event_of(const comet_control *control, int32_t tensor, comet_control_cause cause);
void comet_control_send(const comet_control *control, const comet_control_event *event);

/* ---- number.c ---- */

/* Down to 4 significant bits. x >= 0 and finite. */
double comet_control_round(double x);

/* 1: finite and not negative. */
int comet_control_is_amount(double x);

/* ---- curve.c ---- */

/* A measured size, of weight `smoothing` against what is there. */
void comet_control_curve_add(comet_control_curve *curve, double ratio, double bits, double smoothing);

/* ---- the methods ---- */

extern const comet_control_methods comet_control_comet, comet_control_mean, comet_control_paper, comet_control_acgc,
    comet_control_fixed, comet_control_budget;

#endif
