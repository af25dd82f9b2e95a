// SPDX-License-Identifier: Apache-2.0
// mask on the device: one bit a value, set where the value is greater than 0 (docs/codecs.md, section 2).
// A warp does 1,024 values at a time: 32 words of the mask, one a lane.
#include "codec/cuda/frame.cuh"
#include "codec/cuda/values.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr u64 TILE = 1024; // values

// ---- compressing ----

// Whether a pattern is one of 1 .. infinity; NaN lies above.
template <comet_dtype D> __device__ __forceinline__ bool is_positive(u32 pattern) {
    if constexpr (D == COMET_F32)
        return pattern - 1u < 0x7f800000u;
    else if constexpr (D == COMET_U8)
        return pattern != 0;
    else
        return ((pattern - 1u) & 0xffffu) < (D == COMET_F16 ? 0x7c00u : 0x7f80u);
}

template <comet_dtype D> __device__ __forceinline__ u32 pattern_of_word(u32 word, int i) {
    if constexpr (D == COMET_F32)
        return word;
    else
        return word >> 8 * value_bytes<D> * i & ((1u << 8 * value_bytes<D>)-1);
}

// The lowest 32 / APART bits, so far apart.
template <int APART> __device__ __forceinline__ u32 spread(u32 v) {
    if constexpr (APART == 2) {
        v = (v | v << 8) & 0x00ff00ffu;
        v = (v | v << 4) & 0x0f0f0f0fu;
        v = (v | v << 2) & 0x33333333u;
        v = (v | v << 1) & 0x55555555u;
    } else if constexpr (APART == 4) {
        v = (v | v << 12) & 0x000f000fu;
        v = (v | v << 6) & 0x03030303u;
        v = (v | v << 3) & 0x11111111u;
    }
    return v;
}

// The lane's word of a whole tile's mask. Memory is read a word a lane, which holds P values; ballot p has the bits of
// the values p, P + p, 2 P + p, ... of 32 words: those of P words of the mask.
template <comet_dtype D> __device__ __forceinline__ u32 mask_word(const u32 *words, u32 lane) {
    constexpr int P = 4 / value_bytes<D>, LOADS = 32 / P;
    u32 loaded[LOADS], ballots[P] = {};
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        loaded[i] = words[32 * i + lane];
#pragma unroll
    for (int i = 0; i < LOADS; i++)
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 ballot = __ballot_sync(ALL_LANES, is_positive<D>(pattern_of_word<D>(loaded[i], p)));
            if (lane / P == (u32)i)
                ballots[p] = ballot;
        }
    u32 mask = 0;
#pragma unroll
    for (int p = 0; p < P; p++)
        mask |= spread<P>(ballots[p] >> 32 / P * (lane % P) & (u32)(((u64)1 << 32 / P) - 1)) << p;
    return mask;
}

// The last tile: `left` values, less than a tile, one by one.
template <comet_dtype D> __device__ void write_last(const pattern_of<D> *values, u32 left, u32 lane, u8 *to) {
    for (u32 byte = lane; byte * 8 < left; byte += 32) {
        u32 bits = 0;
        for (u32 i = 0; i < 8 && byte * 8 + i < left; i++)
            bits |= (u32)is_positive<D>(values[byte * 8 + i]) << i;
        to[byte] = (u8)bits;
    }
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    compress_kernel(write_frame f, const pattern_of<D> *values, u64 count, u64 bytes) {
    u8 *body = begin_stream(f, bytes);
    if (!body)
        return;
    u32 lane = threadIdx.x % 32;
    for (u64 tile = (u64)blockIdx.x * WARPS + threadIdx.x / 32; tile * TILE < count; tile += (u64)gridDim.x * WARPS) {
        u64 first = tile * TILE, left = count - first;
        if (left >= TILE)
            ((u32 *)(body + first / 8))[lane] = mask_word<D>((const u32 *)(values + first), lane);
        else
            write_last<D>(values + first, (u32)left, lane, body + first / 8);
    }
}

// ---- decompressing ----

template <comet_dtype D>
constexpr u32 one = D == COMET_F32    ? 0x3f800000u
                    : D == COMET_F16  ? 0x3c00u
                    : D == COMET_BF16 ? 0x3f80u
                                      : 1u;

// 16 bytes of ones and zeros by the lowest bits.
template <comet_dtype D> __device__ __forceinline__ uint4 expand(u32 bits) {
    constexpr int A_WORD = 4 / value_bytes<D>, WIDTH = 8 * value_bytes<D>;
    u32 w[4] = {};
#pragma unroll
    for (int i = 0; i < vector_values<D>; i++)
        w[i / A_WORD] |= bits >> i & 1u ? one<D> << WIDTH % 32 * (i % A_WORD) : 0u;
    return make_uint4(w[0], w[1], w[2], w[3]);
}

// A whole tile, 16 bytes a lane and step, from the lanes' words of the mask.
template <comet_dtype D> __device__ __forceinline__ void read_tile(u32 mask, u32 lane, uint4 *to) {
    constexpr int V = vector_values<D>;
#pragma unroll
    for (int step = 0; step < 32 / V; step++) {
        u32 first = (32 * step + lane) * V; // of the lane's values
        u32 word = __shfl_sync(ALL_LANES, mask, (int)(first / 32));
        to[32 * step + lane] = expand<D>(word >> first % 32);
    }
}

template <comet_dtype D> __device__ void read_last(const u8 *from, u32 left, u32 lane, pattern_of<D> *to) {
    for (u32 i = lane; i < left; i += 32)
        to[i] = from[i / 8] >> i % 8 & 1 ? (pattern_of<D>)one<D> : (pattern_of<D>)0;
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    decompress_kernel(read_frame f, pattern_of<D> *values, u64 count, u64 bytes) {
    const u8 *stream = open_stream(f, bytes);
    if (!stream)
        return;
    const u8 *body = stream + STREAM_HEADER_BYTES;
    if (blockIdx.x == 0 && threadIdx.x == 0 && count % 8 && body[count / 8] >> count % 8)
        report(f, COMET_ERROR_CORRUPT); // a bit behind the last value
    u32 lane = threadIdx.x % 32;
    for (u64 tile = (u64)blockIdx.x * WARPS + threadIdx.x / 32; tile * TILE < count; tile += (u64)gridDim.x * WARPS) {
        u64 first = tile * TILE, left = count - first;
        if (left >= TILE)
            read_tile<D>(((const u32 *)(body + first / 8))[lane], lane, (uint4 *)(values + first));
        else
            read_last<D>(body + first / 8, (u32)left, lane, values + first);
    }
}

// ---- host ----

static size_t body_max_bytes(const comet_tensor *tensor, const comet_codec_params *) {
    return ((size_t)comet_tensor_count(tensor) + 7) / 8;
}

// u8 too: a mask may be wanted as such.
template <class Run> static cudaError_t with_any_dtype(comet_dtype dtype, Run run) {
    return dtype == COMET_U8 ? run(std::integral_constant<comet_dtype, COMET_U8>()) : with_dtype(dtype, run);
}

static cudaError_t compress(const cuda_compress_job *job) {
    u64 count = (u64)comet_tensor_count(job->tensor),
        bytes = STREAM_HEADER_BYTES + body_max_bytes(job->tensor, job->params);
    return with_any_dtype(job->tensor->dtype, [&](auto dtype) {
        constexpr comet_dtype D = decltype(dtype)::value;
        return launch(compress_kernel<D>, grid_for(count, TILE * WARPS), THREADS, job->queue, write_frame_of(job),
                      (const pattern_of<D> *)job->tensor->data, count, bytes);
    });
}

static cudaError_t decompress(const cuda_decompress_job *job) {
    u64 count = (u64)comet_tensor_count(job->tensor),
        bytes = STREAM_HEADER_BYTES + body_max_bytes(job->tensor, job->params);
    read_frame f = read_frame_of(job, bytes);
    f.any_dtype = true;
    return with_any_dtype(job->tensor->dtype, [&](auto dtype) {
        constexpr comet_dtype D = decltype(dtype)::value;
        return launch(decompress_kernel<D>, grid_for(count, TILE * WARPS), THREADS, job->queue, f,
                      (pattern_of<D> *)job->tensor->data, count, bytes);
    });
}

const cuda_codec_vtable comet_cuda_mask = {nullptr, nullptr, body_max_bytes, nullptr, compress, decompress};
