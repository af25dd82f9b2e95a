// SPDX-License-Identifier: Apache-2.0
// A convolution or linear layer: how large dY and x are, and products of dY's neighbours.
#include "control/cuda/launch.h"
#include "control/cuda/neighbours.cuh"

struct NoChannel {};

struct OneValue {
    float x;
};

template <comet_dtype D> struct OneMap {
    Maps x;

    typedef NoChannel Channel;
    typedef int64_t Place;
    typedef OneValue Values;

    __device__ __forceinline__ NoChannel channel(u32) const {
        return {};
    }
    __device__ __forceinline__ int64_t place(NoChannel, u64 pixel, u32 channel) const {
        return offset_of(x, pixel, channel);
    }
    __device__ __forceinline__ OneValue load(int64_t place) const {
        return {value_by_offset<D>(x, place)};
    }
    __device__ __forceinline__ float operator()(u64 pixel, u32 channel) const {
        return value_at<D>(x, pixel, channel);
    }
};

// dY^2 and |dY|
template <comet_dtype D> struct Sizes : OneMap<D> {
    static constexpr int SUMS = 2, GREATEST = 0;

    __device__ __forceinline__ void add(NoChannel, OneValue v, float *sums) const {
        sums[0] += v.x * v.x;
        sums[1] += fabsf(v.x);
    }
};

// x and x^2
template <comet_dtype D> struct Moments : OneMap<D> {
    static constexpr int SUMS = 2, GREATEST = 0;

    __device__ __forceinline__ void add(NoChannel, OneValue v, float *sums) const {
        sums[0] += v.x;
        sums[1] += v.x * v.x;
    }
};

extern "C" size_t comet_stats_sums_bytes(const comet_maps *m, int arrays) {
    return partial_bytes(plan_of(m), arrays);
}

template <comet_dtype D> static cudaError_t launch_output(const comet_layer_job *job) {
    const comet_maps *dy = &job->layer->out;
    Sizes<D> terms;
    terms.x = maps_of(dy);
    cudaError_t error = launch_sums(terms, dy, job->output, false, job->workspace, job->queue);
    return error == cudaSuccess ? launch_products<OneMap<D>>(terms, dy, job->record->gradient, job->queue) : error;
}

template <comet_dtype D> static cudaError_t launch_input(const comet_layer_job *job) {
    Moments<D> terms;
    terms.x = maps_of(&job->layer->in);
    return launch_sums(terms, &job->layer->in, job->input, false, job->workspace, job->queue);
}

extern "C" cudaError_t comet_stats_launch_layer(const comet_layer_job *job) {
    const u32 what = job->head.shape.what;
    cudaError_t error = cudaSuccess;
    if (what & COMET_STATS_OUTPUT)
        error =
            with_dtype(job->layer->out.dtype, [&](auto dtype) { return launch_output<decltype(dtype)::value>(job); });
    if (error == cudaSuccess && (what & COMET_STATS_INPUT))
        error = with_dtype(job->layer->in.dtype, [&](auto dtype) { return launch_input<decltype(dtype)::value>(job); });
    if (error == cudaSuccess && (what & COMET_STATS_COMMON))
        error = comet_stats_launch_common(job);
    return error == cudaSuccess ? launch_head(job->head, &job->record->head, job->queue) : error;
}
