// SPDX-License-Identifier: Apache-2.0
// Batch normalisation beside the codec: what the kernels are called with, and the arithmetic of comet/cuda_norm.h.
#ifndef COMET_CODEC_CUDA_NORM_ARGS_CUH
#define COMET_CODEC_CUDA_NORM_ARGS_CUH

#include "codec/cuda/eb/eb_args.cuh"
#include "codec/cuda/tile/grid_table.cuh"

enum NormFrom { NORM_FROM_STREAM, NORM_FROM_X };
enum NormPass { NORM_SUMS, NORM_DX, NORM_MASKED_SUMS }; // masked: dz is made from dy first, and written

// Whether dy is asked for before the stream is decoded: where values have 16 bits there is room for it.
constexpr __host__ __device__ bool norm_asks_ahead(int reach, int dtype, int from) {
    return reach == REACH_LAST4 && dtype != COMET_F32 && from == NORM_FROM_STREAM;
}

// Whether codes say which values are on, four at once, before dy is unpacked: NormSide.
constexpr __host__ __device__ bool norm_reads_sides(int reach, int dtype, int from, int pass) {
    return norm_asks_ahead(reach, dtype, from) && pass != NORM_MASKED_SUMS;
}

// Blocks on a multiprocessor.
constexpr int norm_backward_blocks(int reach, int dtype, int from, int pass) {
    if (norm_asks_ahead(reach, dtype, from) && pass == NORM_SUMS)
        return 4;
    return from == NORM_FROM_STREAM ? 3 : 2; // two tensors in flight
}

// A layer's tables, in device memory.
struct NormTables {
    const float *scale, *shift, *threshold, *gamma, *beta;
    float floor; // 0 with a ReLU, else -Inf: y is never below
};

struct NormForwardArgs {
    CompressArgs codec; // geometry and channel map without a stream too
    NormTables tables;
    void *y;
};

// The same with more to do.
struct NormResidualArgs {
    NormForwardArgs forward;
    const void *add; // NULL: nothing is added
    CompressArgs y;
    u32 keeps_y; // the stream of y is written, too
};

// Whether the kernel with more to do writes the stream of y, too: where tiles of y are reached as those of u are.
constexpr __host__ __device__ bool residual_keeps_y(int reach) {
    return reach == REACH_LAST4 || reach == REACH_FLAT || reach == REACH_ROW4;
}

// Without a stream: every position is `length` vectors; a block walks down `a_walk` positions, `a_step` at a time,
// `a_row` vectors wide. Or, where that does not work out, values one after the other.
struct NormPlainArgs {
    const void *x, *add; // add: NULL, or what is added
    void *y;
    NormTables tables;
    u64 rows, a_walk;
    u32 length, a_row, a_step;
    u64 count;
    ChannelMap map;
};

struct NormPrepareArgs {
    const float *mean, *inverse_std, *gamma, *beta;
    float *shift, *threshold;
    u32 channels;
    u32 has_threshold; // a ReLU follows, and nothing is added before it
};

// How the sums of a channel are put together from those of blocks (channels last) or tiles.
struct NormSums {
    float2 *partial;      // {sum dz, sum dz * w} where channels come last, else {sum dz, sum dz * u}
    float4 *coefficients; // of dx by channel: {of dz, of w, constant, 0}
    float *dgamma, *dbeta;
    u64 entries; // channels last: partial sums in all; number j belongs to channel j mod C
    u32 slots;   // else: sums of a tile, one for each map that it may touch,
    u32 a_map;   // and the most tiles that a map touches
    u64 samples;
    u32 channels;
    double count; // values of a channel
};

struct NormBackwardArgs {
    DecompressArgs codec; // geometry and channel map without a stream too
    NormTables tables;
    const void *x, *dy;
    void *dx;
    NormSums sums;
};

// The mask comes from y: of NORM_MASKED_SUMS.
struct NormMaskedArgs : NormBackwardArgs {
    DecompressArgs y_codec; // the stream of y
    const void *y;          // NULL: there is a stream
    void *dz;
};

template <int PASS> struct NormArgsOf { typedef NormBackwardArgs Type; };
template <> struct NormArgsOf<NORM_MASKED_SUMS> { typedef NormMaskedArgs Type; };
template <int PASS> using NormArgs = typename NormArgsOf<PASS>::Type;

// ---- one channel ----

// The tables that follow from a channel's statistics and parameters.
__device__ __forceinline__ void norm_prepare(const NormPrepareArgs &args, u32 c, float mean, float inverse_std,
                                             float gamma, float beta) {
    float threshold = gamma < 0.0f ? __fdiv_ru(-beta, gamma) : __fdiv_rd(-beta, gamma);
    if (gamma == 0.0f)
        threshold = beta <= 0.0f ? INFINITY : -INFINITY;
    args.shift[c] = -__fmul_rn(mean, inverse_std);
    args.threshold[c] = args.has_threshold ? threshold : __uint_as_float(0x7fc00000u);
}

// ---- one value ----

// Any u, NaN and infinities included.
__device__ __forceinline__ bool norm_is_off(float u, float threshold, float gamma) {
    return gamma < 0.0f ? u >= threshold : u <= threshold;
}

// The threshold is rounded such that a channel is off exactly where this fma is not above 0.
__device__ __forceinline__ float norm_y(float u, float gamma, float beta, float floor) {
    return not_below(__fmaf_rn(gamma, u, beta), floor);
}

__device__ __forceinline__ float norm_y_added(float u, float gamma, float beta, float add, float floor) {
    return not_below(__fadd_rn(__fmaf_rn(gamma, u, beta), add), floor);
}

#endif
