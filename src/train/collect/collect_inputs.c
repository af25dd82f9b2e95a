/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a layer's input x: how large it is, and how far outputs correlate with it. */
#include <math.h>

#include "train/collect/collect_impl.h"

/* Each input is seen at as many positions as there are outputs, but for those at which its tap is in the padding. */
void comet_collect_see_input(comet_collect *c, const comet_op_call *call, comet_collect_node *n) {
    const comet_shape *shape = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    const int64_t pixels = (int64_t)shape->height * shape->width * call->batch, channels = shape->channels;
    const double seen = (double)out->height * out->width * call->batch / (double)channels * comet_collect_inside(call);
    double squares = 0, variances = 0;
    comet_statistics_moments(c->threads, call->x[0], pixels, channels, c->scratch);
    for (int64_t k = 0; k < channels; k++) {
        const double mean = c->scratch[k] / (double)pixels, square = c->scratch[channels + k] / (double)pixels;
        squares += square;
        variances += fmax(square - mean * mean, 0) + 0 * square; /* NaN stays */
    }
    n->input_squares += squares * seen;
    n->input_variances += variances * seen;
    if (n->wants & COMET_WANT_COMMON)
        n->common_squares += comet_collect_common(c, call, c->scratch);
    c->read_bytes += (uint64_t)(pixels * channels) * sizeof(float);
}
