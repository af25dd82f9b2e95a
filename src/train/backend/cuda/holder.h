/* SPDX-License-Identifier: Apache-2.0 */
/* What the CUDA backend asks its own holder for. */
#ifndef COMET_TRAIN_CUDA_HOLDER_H
#define COMET_TRAIN_CUDA_HOLDER_H

#include "train/backend/cuda/kernels/guard.h"
#include "train/backend/holder.h"

/* Where the device says of each slot whether all is well, into the job. NULL is allowed: there are no slots. */
void comet_cuda_holder_guard(const comet_holder *holder, comet_cuda_guard_job *job);

#endif
