/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/look/colours.h"

#include <math.h>

/* Viridis (Smith & van der Walt, in the public domain), at nine places as far from each other. */
static const uint8_t anchors[9][3] = {{68, 1, 84},    {71, 44, 122}, {59, 81, 139},  {44, 113, 142}, {33, 144, 141},
                                      {39, 173, 129}, {92, 200, 99}, {170, 220, 50}, {253, 231, 37}};

void colours_palette(uint8_t palette[3 * COLOURS]) {
    for (int i = 0; i < COLOURS; i++) {
        const double at = 8.0 * i / (COLOURS - 1);
        const int from = at < 7 ? (int)at : 7;
        for (int k = 0; k < 3; k++)
            palette[3 * i + k] =
                (uint8_t)lrint(anchors[from][k] + (at - from) * (anchors[from + 1][k] - anchors[from][k]));
    }
}

uint8_t colours_index(double value, double low, double high) {
    if (!isfinite(value) || !(high > low))
        return 0;
    const double part = (value - low) / (high - low);
    return (uint8_t)lrint((COLOURS - 1) * fmin(fmax(part, 0), 1));
}
