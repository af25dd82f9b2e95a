/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the backend keeps from call to call, on the device and page-locked on the host. It grows when more is
 * needed, and only then: a step that is like the one before allocates nothing. All zero: empty.
 */
#ifndef COMET_TRAIN_CUDA_TRANSFER_H
#define COMET_TRAIN_CUDA_TRANSFER_H

#include <cuda_runtime.h>
#include <stddef.h>

#include "comet/status.h"

/* ---- on the device ---- */

typedef struct comet_cuda_buffer {
    void *memory;
    size_t bytes;
} comet_cuda_buffer;

/* At least so many bytes. What was there is lost if it grows; work that uses it is waited for. */
comet_status comet_cuda_buffer_reserve(comet_cuda_buffer *buffer, size_t bytes);
void comet_cuda_buffer_free(comet_cuda_buffer *buffer);

/* ---- to the device: the host may fill one while the other is under way ---- */

typedef struct comet_cuda_upload {
    comet_cuda_buffer device;
    void *host[2];
    cudaEvent_t read[2]; /* recorded when a copy of it was issued; NULL: not made */
    size_t bytes;        /* of each */
    int now;             /* the one that is filled next */
} comet_cuda_upload;

/* Where to write up to `bytes`. Waits if both are still under way. */
comet_status comet_cuda_upload_begin(comet_cuda_upload *upload, size_t bytes, void **host);

/* Copies what was written to upload->device, on the queue. */
comet_status comet_cuda_upload_end(comet_cuda_upload *upload, size_t bytes, cudaStream_t queue);
void comet_cuda_upload_free(comet_cuda_upload *upload);

/* ---- from the device ---- */

/* What kernels leave for the host: a place on the device, and one for its copy. */
typedef struct comet_cuda_record {
    comet_cuda_buffer device;
    void *host;
    size_t host_bytes;
} comet_cuda_record;

comet_status comet_cuda_record_reserve(comet_cuda_record *record, size_t bytes);
comet_status comet_cuda_record_fetch(const comet_cuda_record *record, size_t bytes, cudaStream_t queue);
void comet_cuda_record_free(comet_cuda_record *record);

#endif
