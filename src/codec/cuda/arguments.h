/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what all public calls on a device are given. Host code: device memory is not read. */
#ifndef COMET_CODEC_CUDA_ARGUMENTS_H
#define COMET_CODEC_CUDA_ARGUMENTS_H

#include "comet/cuda.h"

/* What CUDA's own allocations are aligned to; what kernels read in one piece. */
enum { COMET_CUDA_ALIGN_MEMORY = 256, COMET_CUDA_ALIGN_VALUES = 16 };

/* COMET_ERROR_ARGUMENT, with `name` in the reason, for a pointer that is not aligned. NULL is aligned. */
comet_status comet_cuda_check_aligned(const void *pointer, size_t alignment, const char *name);

/* A tensor of this device, contiguous and aligned, as kernels need it. */
comet_status comet_cuda_check_tensor(const comet_tensor *tensor, const char *name, int32_t device);

/* `writes`: a result will be left there. */
comet_status comet_cuda_check_slot(const comet_cuda_slot *slot, int writes);

/* `needed` is not 0. */
comet_status comet_cuda_check_workspace(const comet_codec_exec *exec, size_t needed);

/* The word that a device's status goes to. */
comet_status comet_cuda_check_status_word(const int32_t *status);

#endif
