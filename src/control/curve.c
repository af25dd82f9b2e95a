/* SPDX-License-Identifier: Apache-2.0 */
/* Bits a value against the bound, from what streams have taken. */
#include "control/control.h"

/*
 * Typical of `eb` on saved activations: a tenth of the rms 10.5 x smaller than fp32, 0.3 of it 18.1 x
 * (bench/results/codec-cpu.md).
 */
static const double typical_ratio = 0.1, typical_bits = 3.05, typical_slope = 0.81;
static const double least_bits = 0.04; /* a tile of zeros has a place in the table */

static const double first_octave = -8.0, points_an_octave = 2.0;

void comet_control_curve_add(comet_control_curve *curve, double ratio, double bits, double smoothing) {
    double position = comet_control_log2(ratio), bin = (position - first_octave) * points_an_octave;
    int last = COMET_CONTROL_CURVE_POINTS - 1, i = bin < 0.0 ? 0 : bin > (double)last ? last : (int)bin;
    if (curve->bits[i] > 0.0) {
        position = curve->position[i] + smoothing * (position - curve->position[i]);
        bits = curve->bits[i] + smoothing * (bits - curve->bits[i]);
    }
    curve->position[i] = position;
    curve->bits[i] = bits;
}

static double at_least(double bits) {
    return bits > least_bits ? bits : least_bits;
}

double comet_control_curve_bits(const comet_control_curve *curve, double ratio) {
    double position = comet_control_log2(ratio);
    int below = -1, above = -1;
    for (int i = 0; i < COMET_CONTROL_CURVE_POINTS && above < 0; i++) {
        if (curve->bits[i] > 0.0 && curve->position[i] <= position)
            below = i;
        else if (curve->bits[i] > 0.0)
            above = i;
    }
    if (below >= 0 && above >= 0) {
        double from = curve->position[below], to = curve->position[above];
        double part = (position - from) / (to - from);
        return at_least(curve->bits[below] + part * (curve->bits[above] - curve->bits[below]));
    }
    int known = below >= 0 ? below : above;
    double at = known < 0 ? comet_control_log2(typical_ratio) : curve->position[known];
    double bits = known < 0 ? typical_bits : curve->bits[known];
    return at_least(bits - typical_slope * (position - at));
}
