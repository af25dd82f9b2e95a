/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory space: where a backend keeps activations, parameters, gradients, optimiser state and running statistics. It
 * may be the host's memory or a device's. Only the backend that owns a space reads or writes its memory directly: its
 * kernels, its holder. All others pass addresses on and use the calls below.
 *
 * Addresses in a space can be counted with (array + 1 is the next value), not followed.
 */
#ifndef COMET_TRAIN_SPACE_H
#define COMET_TRAIN_SPACE_H

#include <stddef.h>
#include <stdint.h>

#include "comet/status.h"

typedef struct comet_space comet_space;

/* Some values in a space. */
typedef struct comet_span {
    const float *values;
    int64_t count;
} comet_span;

struct comet_space {
    /* Memory aligned to 64 bytes, of any content. COMET_ERROR_MEMORY. */
    comet_status (*take)(comet_space *space, size_t bytes, void **memory);
    /* With the bytes that were asked for. NULL is allowed. */
    void (*give)(comet_space *space, void *memory, size_t bytes);
    /* From the host's memory, to it, and between two places of the space that do not overlap. */
    comet_status (*write)(comet_space *space, void *memory, const void *host, size_t bytes);
    comet_status (*read)(comet_space *space, void *host, const void *memory, size_t bytes);
    comet_status (*copy)(comet_space *space, void *to, const void *from, size_t bytes);
    comet_status (*fill)(comet_space *space, float *values, int64_t count, float value);
    /*
     * NULL, or: the values from here on are a convolution's weights, out x in x height x width, which the space may
     * keep in another order. `read` and `write` are in the order of the shape all the same, of any part of the array;
     * `copy` is only between arrays of one shape, whole. Of memory that is given back, this is forgotten.
     */
    comet_status (*arrange)(comet_space *space, float *values, const int64_t shape[4]);
    /* *first: the first span with a value that is infinite or NaN; -1: there is none. */
    comet_status (*find_nonfinite)(comet_space *space, const comet_span *spans, int count, int *first);
};

#endif
