// SPDX-License-Identifier: Apache-2.0
// Count, mean and sum of squares around the mean, of values and of several such. Means are kept as differences from a
// value of the same channel, and sums of a run as differences from its first: what is squared is of the size of the
// standard deviation, not of the mean. Runs are short, so that the odd one that starts with outliers costs little.
#ifndef COMET_CODEC_CUDA_NORM_MOMENTS_CUH
#define COMET_CODEC_CUDA_NORM_MOMENTS_CUH

#include "codec/cuda/device.cuh"

struct Moments {
    float count, mean, squares;
};

// What b is to a when both become one: its share of the count, and the weight of the means' difference.
struct MomentsShare {
    float count, share, weight;

    __device__ __forceinline__ MomentsShare(float a, float b) {
        count = __fadd_rn(a, b);
        share = count > 0.0f ? __fdiv_rn(b, count) : 0.0f;
        weight = __fmul_rn(a, share);
    }
    __device__ __forceinline__ void merge(float &mean, float &squares, float b_mean, float b_squares) const {
        const float delta = __fsub_rn(b_mean, mean);
        mean = __fmaf_rn(delta, share, mean);
        squares = __fadd_rn(squares, __fmaf_rn(__fmul_rn(delta, weight), delta, b_squares));
    }
};

__device__ __forceinline__ Moments moments_of_both(Moments a, const Moments &b) {
    const MomentsShare s(a.count, b.count);
    s.merge(a.mean, a.squares, b.mean, b.squares);
    a.count = s.count;
    return a;
}

// Rounding may bring what is 0 below it. A NaN stays one.
__device__ __forceinline__ float moments_not_negative(float squares) {
    return squares < 0.0f ? 0.0f : squares;
}

// Many moments, one after the other.
struct MomentsRun {
    float pivot, count, sum, squares;

    __device__ __forceinline__ MomentsRun() : pivot(0.0f), count(0.0f), sum(0.0f), squares(0.0f) {}

    __device__ __forceinline__ void add(float n, float mean, float its_squares) {
        if (count == 0.0f)
            pivot = mean;
        const float d = __fsub_rn(mean, pivot), weighted = __fmul_rn(n, d);
        count = __fadd_rn(count, n);
        sum = __fadd_rn(sum, weighted);
        squares = __fadd_rn(squares, __fmaf_rn(weighted, d, its_squares));
    }
    __device__ __forceinline__ Moments moments() const {
        if (count == 0.0f)
            return Moments{0.0f, 0.0f, 0.0f};
        const float mean = __fdiv_rn(sum, count);
        return Moments{count, __fadd_rn(pivot, mean), moments_not_negative(__fmaf_rn(-sum, mean, squares))};
    }
};

// all[at], `count` of which lie `apart` from each other, index being the thread's number among them, to the first of
// them. By all threads of the block, each of which has written its own; others have index >= count.
__device__ __forceinline__ void moments_tree(Moments *all, u32 at, u32 index, u32 count, u32 apart) {
    while (count > 1) {
        const u32 half = (count + 1) / 2;
        __syncthreads();
        if (index < half && index + half < count)
            all[at] = moments_of_both(all[at], all[at + half * apart]);
        count = half;
    }
}

#endif
