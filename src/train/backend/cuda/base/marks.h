/* SPDX-License-Identifier: Apache-2.0 */
/* Moments on the device's clock. All zero: none. */
#ifndef COMET_TRAIN_CUDA_MARKS_H
#define COMET_TRAIN_CUDA_MARKS_H

#include <cuda_runtime.h>

#include "comet/status.h"

enum { COMET_CUDA_MARKS = 2048 }; /* the most */

typedef struct comet_cuda_marks {
    cudaEvent_t events[COMET_CUDA_MARKS]; /* NULL: not made */
} comet_cuda_marks;

/* Behind what was issued to the queue. */
comet_status comet_cuda_marks_set(comet_cuda_marks *marks, int index, cudaStream_t queue);

/* Waits for the last of the first `count`; ms of each since the first. */
comet_status comet_cuda_marks_read(const comet_cuda_marks *marks, int count, double *ms);

void comet_cuda_marks_free(comet_cuda_marks *marks);

#endif
