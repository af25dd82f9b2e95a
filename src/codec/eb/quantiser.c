/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/eb/quantiser.h"

#include "codec/eb/quantiser_steps.h"

float comet_quantiser_bound(double bound, comet_dtype dtype) {
    return quantiser_bound(bound, dtype);
}

void comet_quantiser_init(quantiser *q, float bound, comet_dtype dtype, unsigned flags) {
    *q = (quantiser){.bound = bound, .dtype = dtype};
    quantiser_init(q, flags);
}

grid_channel comet_quantiser_grid(const quantiser_class *c, float threshold, float slope) {
    return quantiser_grid(c, threshold, slope);
}
