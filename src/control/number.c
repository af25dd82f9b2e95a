/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that decide: only operations that IEEE 754 fixes to the bit (frexp and ldexp are exact). */
#include <math.h>

#include "control/control.h"

static const double bound_steps = 16.0; /* 4 significant bits: steps of 6 to 12 % */

double comet_control_round(double x) {
    int exponent;
    double mantissa = frexp(x, &exponent); /* [1/2, 1) */
    return ldexp(floor(mantissa * bound_steps) / bound_steps, exponent);
}

int comet_control_is_amount(double x) {
    return x >= 0.0 && isfinite(x);
}

double comet_control_log2(double x) {
    int exponent;
    double mantissa = frexp(x, &exponent);
    return (double)exponent + 2.0 * (mantissa - 1.0);
}
