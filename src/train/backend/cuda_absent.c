/* SPDX-License-Identifier: Apache-2.0 */
/* train/backend/cuda.h in a build without CUDA or without the headers of its libraries. */
#include "train/backend/cuda.h"

comet_status comet_backend_cuda_new(const comet_backend_cuda_options *options, const comet_allocator *allocator,
                                    comet_backend **backend, comet_message *message) {
    (void)options, (void)allocator, (void)backend;
    return comet_message_set(message, COMET_ERROR_NO_DEVICE,
                             "this comet was built without CUDA, or without the headers of cuDNN 9 and cuBLASLt");
}

comet_status comet_backend_cuda_memory(int32_t device, size_t *free_bytes, size_t *total_bytes) {
    (void)device, (void)free_bytes, (void)total_bytes;
    return COMET_ERROR_NO_DEVICE;
}
