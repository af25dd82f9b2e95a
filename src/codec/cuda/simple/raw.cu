// SPDX-License-Identifier: Apache-2.0
// raw on the device: a copy (docs/codecs.md, section 1).
#include "codec/cuda/frame.cuh"

constexpr int THREADS = 256;
constexpr int UNROLL = 4;              // loads of 16 bytes in flight
constexpr u64 TILE = THREADS * UNROLL; // of vectors, done by a block at a time

__device__ __forceinline__ void copy_tile(const uint4 *from, uint4 *to, u64 vectors) {
    uint4 v[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
        if (threadIdx.x + i * THREADS < vectors)
            v[i] = from[threadIdx.x + i * THREADS];
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
        if (threadIdx.x + i * THREADS < vectors)
            to[threadIdx.x + i * THREADS] = v[i];
}

// Both sides are 16-byte aligned.
__device__ __forceinline__ void copy_bytes(const u8 *from, u8 *to, u64 bytes) {
    u64 vectors = bytes / 16;
    for (u64 first = blockIdx.x * TILE; first < vectors; first += gridDim.x * TILE)
        copy_tile((const uint4 *)from + first, (uint4 *)to + first, vectors - first);
    u64 last = vectors * 16 + threadIdx.x;
    if (blockIdx.x == 0 && last < bytes)
        to[last] = from[last];
}

__global__ static void __launch_bounds__(THREADS) compress_kernel(write_frame f, const u8 *from, u64 bytes) {
    u8 *body = begin_stream(f, STREAM_HEADER_BYTES + bytes);
    if (body)
        copy_bytes(from, body, bytes);
}

__global__ static void __launch_bounds__(THREADS) decompress_kernel(read_frame f, u8 *to, u64 bytes) {
    const u8 *stream = open_stream(f, STREAM_HEADER_BYTES + bytes);
    if (stream)
        copy_bytes(stream + STREAM_HEADER_BYTES, to, bytes);
}

static size_t body_max_bytes(const comet_tensor *tensor, const comet_codec_params *) {
    return (size_t)comet_tensor_count(tensor) * comet_dtype_size(tensor->dtype);
}

static cudaError_t compress(const cuda_compress_job *job) {
    u64 bytes = body_max_bytes(job->tensor, job->params);
    return launch(compress_kernel, grid_for(bytes, TILE * 16), THREADS, job->queue, write_frame_of(job),
                  (const u8 *)job->tensor->data, bytes);
}

static cudaError_t decompress(const cuda_decompress_job *job) {
    u64 bytes = body_max_bytes(job->tensor, job->params);
    return launch(decompress_kernel, grid_for(bytes, TILE * 16), THREADS, job->queue,
                  read_frame_of(job, STREAM_HEADER_BYTES + bytes), (u8 *)job->tensor->data, bytes);
}

const cuda_codec_vtable comet_cuda_raw = {nullptr, nullptr, body_max_bytes, nullptr, compress, decompress};
