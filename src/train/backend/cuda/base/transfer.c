/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/base/transfer.h"

#include "base/fail.h"
#include "codec/cuda/runtime.h"

enum { UNIT = 4096 }; /* sizes are rounded up to it: batches of almost the same size share memory */

static size_t rounded(size_t bytes) {
    return bytes ? (bytes + UNIT - 1) / UNIT * UNIT : UNIT;
}

/* ---- on the device ---- */

void comet_cuda_buffer_free(comet_cuda_buffer *buffer) {
    if (buffer->memory)
        (void)cudaFree(buffer->memory);
    *buffer = (comet_cuda_buffer){NULL, 0};
}

comet_status comet_cuda_buffer_reserve(comet_cuda_buffer *buffer, size_t bytes) {
    if (buffer->memory && buffer->bytes >= bytes)
        return COMET_OK;
    comet_cuda_buffer_free(buffer);
    COMET_TRY(comet_cuda_status(cudaMalloc(&buffer->memory, rounded(bytes))));
    buffer->bytes = rounded(bytes);
    return COMET_OK;
}

/* ---- to the device ---- */

void comet_cuda_upload_free(comet_cuda_upload *upload) {
    for (int i = 0; i < 2; i++) {
        if (upload->read[i]) {
            (void)cudaEventSynchronize(upload->read[i]);
            (void)cudaEventDestroy(upload->read[i]);
        }
        if (upload->host[i])
            (void)cudaFreeHost(upload->host[i]);
    }
    comet_cuda_buffer_free(&upload->device);
    *upload = (comet_cuda_upload){.now = 0};
}

static comet_status make_pair(comet_cuda_upload *upload, size_t bytes) {
    comet_cuda_upload_free(upload);
    COMET_TRY(comet_cuda_buffer_reserve(&upload->device, bytes));
    for (int i = 0; i < 2; i++) {
        COMET_TRY(comet_cuda_status(cudaMallocHost(&upload->host[i], rounded(bytes))));
        COMET_TRY(comet_cuda_status(cudaEventCreateWithFlags(&upload->read[i], cudaEventDisableTiming)));
    }
    upload->bytes = rounded(bytes);
    return COMET_OK;
}

comet_status comet_cuda_upload_begin(comet_cuda_upload *upload, size_t bytes, void **host) {
    if (upload->bytes < bytes || !upload->bytes)
        COMET_TRY(make_pair(upload, bytes));
    COMET_TRY(comet_cuda_status(cudaEventSynchronize(upload->read[upload->now])));
    *host = upload->host[upload->now];
    return COMET_OK;
}

comet_status comet_cuda_upload_end(comet_cuda_upload *upload, size_t bytes, cudaStream_t queue) {
    const int now = upload->now;
    upload->now = 1 - now;
    if (bytes)
        COMET_TRY(comet_cuda_status(
            cudaMemcpyAsync(upload->device.memory, upload->host[now], bytes, cudaMemcpyHostToDevice, queue)));
    return comet_cuda_status(cudaEventRecord(upload->read[now], queue));
}

/* ---- from the device ---- */

void comet_cuda_record_free(comet_cuda_record *record) {
    if (record->host)
        (void)cudaFreeHost(record->host);
    comet_cuda_buffer_free(&record->device);
    *record = (comet_cuda_record){.host = NULL};
}

comet_status comet_cuda_record_reserve(comet_cuda_record *record, size_t bytes) {
    if (record->host && record->host_bytes >= bytes)
        return COMET_OK;
    comet_cuda_record_free(record);
    COMET_TRY(comet_cuda_buffer_reserve(&record->device, bytes));
    COMET_TRY(comet_cuda_status(cudaMallocHost(&record->host, rounded(bytes))));
    record->host_bytes = rounded(bytes);
    return COMET_OK;
}

comet_status comet_cuda_record_fetch(const comet_cuda_record *record, size_t bytes, cudaStream_t queue) {
    return comet_cuda_status(
        cudaMemcpyAsync(record->host, record->device.memory, bytes, cudaMemcpyDeviceToHost, queue));
}
