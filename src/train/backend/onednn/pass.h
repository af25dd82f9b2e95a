/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A oneDNN primitive between tensors in the caller's layout: those that it wants in another are reordered in scratch
 * memory. All objects are made once; a run only sets pointers. A batch may be done in pieces of equally many samples,
 * one after the other, so that scratch memory is needed for one of them.
 */
#ifndef COMET_TRAIN_ONEDNN_PASS_H
#define COMET_TRAIN_ONEDNN_PASS_H

#include <stddef.h>

#include "train/backend/onednn/compat.h"

enum { COMET_PASS_TENSORS = 4 };

typedef struct comet_pass_tensor {
    int argument; /* DNNL_ARG_* */
    int is_output;
    dnnl_memory_t user, own; /* own NULL: the primitive takes the user's as it is */
    dnnl_primitive_t reorder;
    size_t offset; /* of own, in scratch */
    size_t stride; /* from one piece to the next; 0: the same for all */
} comet_pass_tensor;

typedef struct comet_pass {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t scratchpad;
    size_t scratch_bytes; /* of all */
    int pieces;
    int count;
    comet_pass_tensor tensors[COMET_PASS_TENSORS];
} comet_pass;

/*
 * Starts a pass around a primitive, which does one of the pieces; then each of its tensors is added, as `user` for a
 * piece.
 */
dnnl_status_t comet_pass_make(comet_pass *pass, dnnl_engine_t engine, dnnl_stream_t stream,
                              const_dnnl_primitive_desc_t pd, int pieces);
dnnl_status_t comet_pass_add(comet_pass *pass, int argument, int is_output, int has_samples, comet_dnnl_md user,
                             comet_dnnl_md wanted);
void comet_pass_destroy(comet_pass *pass);

/* `data`: the user's tensors in the order they were added; scratch: scratch_bytes, aligned to 64. */
dnnl_status_t comet_pass_run(const comet_pass *pass, void *const *data, void *scratch);

#endif
