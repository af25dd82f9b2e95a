/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions through cuDNN: the library, a handle, and the plans that were made. A plan is chosen once for each
 * convolution, by running several and taking the fastest; whoever has the same convolution gets the same plan, as long
 * as this is there.
 */
#ifndef COMET_TRAIN_CUDA_CUDNN_H
#define COMET_TRAIN_CUDA_CUDNN_H

#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/cudnn/convolution.h"
#include "train/backend/cuda/cudnn/plan.h"

/*
 * For the current device, with the backend's options, queue and allocator, which are set. COMET_ERROR_UNSUPPORTED:
 * cuDNN is missing or too old; the message says which.
 */
comet_status comet_cudnn_new(const comet_backend_cuda *backend, comet_cudnn **cudnn, comet_message *message);

/* NULL is allowed. The queue has no more work of it. */
void comet_cudnn_free(comet_cudnn *cudnn);

size_t comet_cudnn_version(const comet_cudnn *cudnn);

/*
 * The plan of a convolution, which is the cache's. Where it has none, plans are timed, which takes memory of the device
 * for the tensors and waits for the queue; without that memory it is the first of cuDNN's heuristics.
 * COMET_ERROR_UNSUPPORTED: no engine does it within the options.
 */
comet_status comet_cudnn_plan_for(comet_cudnn *cudnn, const comet_cudnn_conv *conv, const comet_cudnn_plan **plan);

/*
 * What a plan is run on: arrays in the order of COMET_CUDNN_X, _W, _Y, and a workspace. Descriptors for two sets of
 * addresses are kept, since a step has the same ones again and again. All zeros at first; one for each plan.
 */
enum { COMET_CUDNN_PACKS = 2 };

typedef struct comet_cudnn_run {
    struct {
        cudnnBackendDescriptor_t pack; /* NULL: none */
        void *addresses[COMET_CUDNN_TENSORS + 1];
    } packs[COMET_CUDNN_PACKS];
    int next; /* to be replaced */
} comet_cudnn_run;

/* Issues it. Arrays and workspace are aligned to 16 bytes. */
comet_status comet_cudnn_execute(comet_cudnn *cudnn, const comet_cudnn_plan *plan, comet_cudnn_run *run,
                                 void *const tensors[COMET_CUDNN_TENSORS], void *workspace);
void comet_cudnn_run_clear(comet_cudnn *cudnn, comet_cudnn_run *run);

/* ---- choices, so that another run has the same ones ---- */

/*
 * As text, ended by a zero: the number of characters without it. Only what fits into `room` is written; of a text that
 * is too short nothing is to be used.
 */
size_t comet_cudnn_choices_write(const comet_cudnn *cudnn, char *text, size_t room);

/*
 * Plans that are made from now on are those of the text, where it has them and cuDNN still makes them; others are
 * timed. COMET_ERROR_MISMATCH: the text is of another version of cuDNN; COMET_ERROR_CORRUPT: it is no such text.
 * Nothing is kept of it then.
 */
comet_status comet_cudnn_choices_read(comet_cudnn *cudnn, const char *text);

/* How many convolutions were timed, and how many have a plan: for tests. */
int comet_cudnn_timed(const comet_cudnn *cudnn);
int comet_cudnn_planned(const comet_cudnn *cudnn);

#endif
