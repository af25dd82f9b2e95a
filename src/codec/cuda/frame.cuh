// SPDX-License-Identifier: Apache-2.0
// What surrounds a body in device memory: where the stream lies in its slot, its header, and the result. For the codecs
// whose header the host knows in full but for the number of bytes (raw, mask, pool, group, dct).
#ifndef COMET_CODEC_CUDA_FRAME_CUH
#define COMET_CODEC_CUDA_FRAME_CUH

#include "codec/cuda/cuda_impl.h"
#include "codec/cuda/device.cuh"

constexpr u64 STREAM_ALIGNMENT = 256;
constexpr u32 HEADER_WORDS = STREAM_HEADER_BYTES / 4;

// ---- host ----

// Where to write, and the header but for `bytes`.
struct write_frame {
    cuda_header header;
    u8 *base;
    u64 capacity;
    const u64 *start;
    comet_cuda_result *result;
};

// What must be read, and where.
struct read_frame {
    cuda_header header;
    const u8 *base;
    u64 capacity;
    const u64 *start;
    const comet_cuda_result *result;
    int32_t *status;
    bool any_bytes; // `bytes` is the kernel's to check
    bool any_dtype;
};

static inline write_frame write_frame_of(const cuda_compress_job *job) {
    return {job->header, (u8 *)job->slot.base, job->slot.capacity, job->slot.start, job->slot.result};
}

static inline read_frame read_frame_of(const cuda_decompress_job *job, u64 bytes) {
    read_frame f = {job->header,
                    (const u8 *)job->slot.base,
                    job->slot.capacity,
                    job->slot.start,
                    job->slot.result,
                    job->status,
                    false,
                    false};
    f.header.words[CUDA_HEADER_WORD_BYTES] = (u32)bytes;
    f.header.words[CUDA_HEADER_WORD_BYTES + 1] = (u32)(bytes >> 32);
    return f;
}

// Blocks for `items` at `a_block` each: at least one, for the header; above the limit kernels loop.
static inline dim3 grid_for(u64 items, u64 a_block) {
    const u64 most = 1 << 20;
    u64 blocks = items / a_block + (items % a_block != 0);
    return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}

// ---- writing ----

__device__ __forceinline__ u64 start_of(const write_frame &f) {
    return f.start ? *f.start : 0;
}

__device__ __forceinline__ bool stream_fits(u64 capacity, u64 start, u64 bytes) {
    return start % STREAM_ALIGNMENT == 0 && bytes <= capacity && start <= capacity - bytes;
}

__device__ __forceinline__ u8 *body_at(const write_frame &f, u64 start) {
    return f.base + start + STREAM_HEADER_BYTES;
}

static __device__ void write_result(comet_cuda_result *to, u64 start, u64 bytes, bool fits) {
    comet_cuda_result r = {};
    r.codec.bytes = bytes;
    r.start = start;
    r.end = fits ? (start + bytes + STREAM_ALIGNMENT - 1) / STREAM_ALIGNMENT * STREAM_ALIGNMENT : start;
    r.status = fits ? COMET_OK : COMET_ERROR_CAPACITY;
    *to = r;
}

// Header and result of a stream of `bytes`. One block of at least a warp does it.
static __device__ void finish_stream(const write_frame &f, u64 start, u64 bytes) {
    bool fits = stream_fits(f.capacity, start, bytes);
    u32 i = threadIdx.x;
    if (fits && i < HEADER_WORDS) {
        u32 word = i == CUDA_HEADER_WORD_BYTES       ? (u32)bytes
                   : i == CUDA_HEADER_WORD_BYTES + 1 ? (u32)(bytes >> 32)
                                                     : f.header.words[i];
        ((u32 *)(f.base + start))[i] = word;
    }
    if (i == 0)
        write_result(f.result, start, bytes, fits);
}

// For bodies whose size the host knows: the body's place, or NULL where it does not fit. Every thread calls it.
static __device__ u8 *begin_stream(const write_frame &f, u64 bytes) {
    u64 start = start_of(f);
    if (blockIdx.x == 0)
        finish_stream(f, start, bytes);
    return stream_fits(f.capacity, start, bytes) ? body_at(f, start) : nullptr;
}

// ---- reading ----

// The first error stays.
static __device__ void report(const read_frame &f, int32_t status) {
    atomicCAS((int *)f.status, (int)COMET_OK, (int)status);
}

// What is wrong if word i of the header is not the one expected: fields that the caller's tensor or parameters decide,
// or fields that no encoder writes otherwise.
static __device__ int32_t word_problem(u32 i, u32 found, u32 expected) {
    if (i == 0)
        return COMET_ERROR_CORRUPT;
    if (i == 1)
        return (found ^ expected) & 0xffffu ? COMET_ERROR_VERSION : COMET_ERROR_MISMATCH;
    bool callers = i == 2 || (i >= 7 && i <= 9) || i >= 16;
    return callers ? COMET_ERROR_MISMATCH : COMET_ERROR_CORRUPT;
}

static __device__ int32_t check_word(const read_frame &f, u32 i, u32 found) {
    u32 expected = f.header.words[i];
    if (i == CUDA_HEADER_WORD_CHECKSUM && f.header.words[CUDA_HEADER_WORD_FLAGS] >> 16 & STREAM_CHECKSUM)
        return COMET_OK; // only the CPU verifies it
    if (f.any_bytes && (i == CUDA_HEADER_WORD_BYTES || i == CUDA_HEADER_WORD_BYTES + 1))
        return COMET_OK;
    if (f.any_dtype && i == 1 && found >> 24 <= COMET_U8)
        found = (found & 0xffffffu) | (expected & 0xff000000u);
    return found == expected ? COMET_OK : word_problem(i, found, expected);
}

// The first problem of the header's words, in the first lane of the warp that calls it.
static __device__ int32_t check_header(const read_frame &f, const u8 *stream) {
    u32 lane = threadIdx.x;
    int32_t problem = check_word(f, lane, ((const u32 *)stream)[lane]);
    u32 bad = __ballot_sync(ALL_LANES, problem != COMET_OK);
    return __shfl_sync(ALL_LANES, problem, bad ? __ffs((int)bad) - 1 : 0);
}

// Where the stream begins; NULL if what is known to be there, `least` bytes, does not lie in the slot, or if
// compressing failed.
static __device__ const u8 *find_stream(const read_frame &f, u64 least, int32_t *problem) {
    u64 start = f.result ? f.result->start : f.start ? *f.start : 0;
    int32_t stored = f.result ? f.result->status : COMET_OK;
    bool fits = stream_fits(f.capacity, start, least);
    *problem = stored != COMET_OK ? stored : fits ? COMET_OK : COMET_ERROR_CORRUPT;
    return *problem == COMET_OK ? f.base + start : nullptr;
}

// The stream if its header is as it must be, else NULL and the status is set. Every thread of the block calls it and
// gets the same answer.
static __device__ const u8 *open_stream(const read_frame &f, u64 least) {
    int32_t problem;
    const u8 *stream = find_stream(f, least, &problem);
    if (stream && threadIdx.x < 32)
        problem = check_header(f, stream);
    if (threadIdx.x == 0 && problem != COMET_OK)
        report(f, problem);
    return __syncthreads_or(problem != COMET_OK) ? nullptr : stream;
}

#endif
