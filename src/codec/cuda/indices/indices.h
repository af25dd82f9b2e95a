/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels are started with. Arguments are checked, there is at least one index, pointers are device memory. */
#ifndef COMET_CODEC_CUDA_INDICES_H
#define COMET_CODEC_CUDA_INDICES_H

#include <cuda_runtime.h>

#include "codec/indices/window.h"

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t comet_cuda_launch_pack(const comet_window *w, const int64_t *indices, void *packed, int32_t *status,
                                   cudaStream_t queue);
cudaError_t comet_cuda_launch_unpack(const comet_window *w, const void *packed, int64_t *indices, cudaStream_t queue);

#ifdef __cplusplus
}
#endif

#endif
