/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a codec provides for device memory: the GPU's counterpart of codec/codec_impl.h. codec_cuda.c checks arguments
 * and makes the header; a codec launches one kernel. Plain C, included by host code and by kernels.
 */
#ifndef COMET_CODEC_CUDA_IMPL_H
#define COMET_CODEC_CUDA_IMPL_H

#include <cuda_runtime.h>

#include "codec/stream_header.h"
#include "comet/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The header as the CPU would write it, but for what only the device knows: `bytes` of the stream, and `B` of eb. */
typedef struct cuda_header {
    uint32_t words[STREAM_HEADER_BYTES / 4];
} cuda_header;

enum {
    CUDA_HEADER_WORD_FLAGS = 2, /* its upper half */
    CUDA_HEADER_WORD_BOUND = 3,
    CUDA_HEADER_WORD_BYTES = 4, /* and 5 */
    CUDA_HEADER_WORD_CHECKSUM = 6
};

/* Arguments are checked, params complete (codec.c's defaults), the tensor contiguous and aligned. It may be empty. */
typedef struct cuda_compress_job {
    const comet_tensor *tensor;
    const comet_codec_params *params;
    cuda_header header;
    stream_header fields; /* what the header says, unpacked; bound and body_bytes are 0 */
    comet_cuda_slot slot;
    uint8_t *workspace; /* as large as workspace() said, made by comet_cuda_workspace_init */
    cudaStream_t queue;
} cuda_compress_job;

typedef struct cuda_decompress_job {
    const comet_tensor *tensor;
    const comet_codec_params *params;
    const comet_cuda_epilogue *epilogue; /* NULL: none */
    /*
     * What the stream's header must be, but for bytes and B; but for dtype where mask decodes into another, or an
     * epilogue does; and with params->checksum but for the checksum, which only the CPU verifies.
     */
    cuda_header header;
    stream_header fields;
    comet_cuda_slot slot;
    uint8_t *workspace;
    cudaStream_t queue;
    int32_t *status;
} cuda_decompress_job;

typedef struct cuda_codec_vtable {
    /* What the device does not do of what the CPU does. NULL: nothing is missing. */
    comet_status (*check)(const comet_tensor *tensor, const comet_codec_params *params);
    /* Fills the codec's own header fields (dtype, flags, parameter, wide_parameter, row); NULL: none. */
    void (*describe)(const comet_tensor *tensor, const comet_codec_params *params, stream_header *header);
    /* The most body bytes. */
    size_t (*body_max_bytes)(const comet_tensor *tensor, const comet_codec_params *params);
    /* Bytes of workspace, of which the first CUDA_WORKSPACE_ZEROED stay zero between calls. NULL: none. */
    size_t (*workspace)(const comet_tensor *tensor, const comet_codec_params *params);
    cudaError_t (*compress)(const cuda_compress_job *job);
    cudaError_t (*decompress)(const cuda_decompress_job *job);
} cuda_codec_vtable;

/* Bytes at the workspace's start that comet_cuda_workspace_init zeroes and every kernel leaves zero. */
enum { CUDA_WORKSPACE_ZEROED = 1024 };

extern const cuda_codec_vtable comet_cuda_raw, comet_cuda_eb, comet_cuda_zvc, comet_cuda_mask, comet_cuda_pool,
    comet_cuda_group, comet_cuda_dct;

#ifdef __cplusplus
}
#endif

#endif
