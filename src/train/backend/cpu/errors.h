/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of gradients (train/backend/errors.h) on a CPU. */
#ifndef COMET_TRAIN_CPU_ERRORS_H
#define COMET_TRAIN_CPU_ERRORS_H

#include <math.h>

#include "base/isa.h"
#include "base/vector/math.h"
#include "train/backend/backend.h"

extern const comet_backend_errors comet_cpu_errors;

/* One value of an operand: of kept channel i, in that row, which is of that image. */
COMET_INLINE float comet_errors_rebuild(const comet_errors_operand *o, int64_t row, int64_t image, int i) {
    const int c = o->kept.first + i;
    float v = o->kept.values[row * o->kept.width + i];
    if (o->gamma)
        v = fmaf(o->gamma[c], v, o->beta[c]);
    if (o->what == COMET_REBUILD_RELU)
        v = v > 0 ? v : 0;
    else if (o->what == COMET_REBUILD_SILU)
        v *= comet_sigmoidf(v);
    return o->factors ? v * o->factors[image * o->kept.width + i] : v;
}

size_t comet_cpu_errors_workspace(comet_backend *backend, int64_t pixels, int width);
comet_status comet_cpu_errors_layer(comet_backend *backend, const comet_errors_layer *layer, double *sums);

#endif
