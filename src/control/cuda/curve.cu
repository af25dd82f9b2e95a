// SPDX-License-Identifier: Apache-2.0
// The backward of a SiLU and of a channel scale: sums by channel, as control/collect/sums_curve.c makes them.
#include "base/vector/math.h"
#include "control/cuda/launch.h"
#include "control/cuda/neighbours.cuh"

struct TwoPlaces {
    int64_t a, b;
};

struct TwoValues {
    float a, b;
};

// ---- SiLU ----

template <comet_dtype DY, comet_dtype DZ> struct SiluTerms {
    static constexpr int SUMS = COMET_SILU_SUMS, GREATEST = 0;

    struct Channel {
        float beta;
    };
    typedef TwoPlaces Place;
    typedef TwoValues Values;

    Maps y, dz;
    const float *beta; // NULL: 0

    __device__ __forceinline__ Channel channel(u32 channel) const {
        return {beta ? __ldg(beta + channel) : 0.0f};
    }
    __device__ __forceinline__ Place place(const Channel &, u64 pixel, u32 channel) const {
        return {offset_of(y, pixel, channel), offset_of(dz, pixel, channel)};
    }
    __device__ __forceinline__ Values load(const Place &p) const {
        return {value_by_offset<DY>(y, p.a), value_by_offset<DZ>(dz, p.b)};
    }
    __device__ __forceinline__ void add(const Channel &c, const Values &v, float *sums) const {
        const float x = v.a, g = v.b, s = comet_sigmoidf(x), slope = s * (1.0f + x * (1.0f - s));
        const float curve = g * (s * (1.0f - s) * (2.0f + x * (1.0f - 2.0f * s)));
        const float scale = g * slope + curve * (x - c.beta);
        sums[0] += slope * slope;
        sums[1] += curve * curve;
        sums[2] += scale * scale;
    }
};

struct SiluTablesArgs {
    const float *gamma, *scale;
    float *tables;
    u64 channels;
};

static __global__ void __launch_bounds__(SUMS_THREADS) silu_tables_kernel(SiluTablesArgs a) {
    const u64 c = (u64)blockIdx.x * SUMS_THREADS + threadIdx.x;
    if (c >= a.channels)
        return;
    a.tables[c] = a.gamma[c];
    a.tables[a.channels + c] = a.scale[c];
}

static cudaError_t launch_silu_tables(const comet_silu_job *job) {
    const SiluTablesArgs a = {job->gamma, job->scale, job->tables, (u64)job->head.channels};
    return launch(silu_tables_kernel, dim3((unsigned)((a.channels + SUMS_THREADS - 1) / SUMS_THREADS)),
                  dim3(SUMS_THREADS), job->queue, a);
}

extern "C" cudaError_t comet_stats_launch_silu(const comet_silu_job *job) {
    const comet_maps *y = &job->maps->y, *dz = &job->maps->dz;
    cudaError_t error = with_dtypes(y->dtype, dz->dtype, [&](auto of_y, auto of_dz) {
        const SiluTerms<decltype(of_y)::value, decltype(of_dz)::value> terms = {maps_of(y), maps_of(dz), job->beta};
        return launch_sums(terms, y, job->sums, false, job->workspace, job->queue);
    });
    if (error == cudaSuccess && job->head.has_norm)
        error = launch_silu_tables(job);
    return error == cudaSuccess ? launch_head(job->head, job->record, job->queue) : error;
}

// ---- channel scale ----

// A factor is one of each image and channel: it is read again for each pixel, and its square counts at the first.
template <comet_dtype DS, comet_dtype DY> struct FactorTerms {
    static constexpr int SUMS = COMET_SCALE_SUMS, GREATEST = 0;

    struct Channel {};
    struct Place {
        int64_t s, dy;
        bool is_first;
    };
    struct Values {
        float s, dy;
        bool is_first;
    };

    Maps s, dy;

    __device__ __forceinline__ Channel channel(u32) const {
        return {};
    }
    __device__ __forceinline__ Place place(const Channel &, u64 pixel, u32 channel) const {
        const quotient image = split(pixel, dy.by_map);
        return {offset_of(s, image.of, channel), offset_of(dy, pixel, channel), image.rest == 0};
    }
    __device__ __forceinline__ Values load(const Place &p) const {
        return {value_by_offset<DS>(s, p.s), value_by_offset<DY>(dy, p.dy), p.is_first};
    }
    __device__ __forceinline__ void add(const Channel &, const Values &v, float *sums) const {
        const float slope = v.s * (1.0f - v.s), g = slope * v.dy;
        sums[0] += g * g;
        sums[1] += v.is_first ? v.s * v.s : 0.0f;
    }
};

extern "C" cudaError_t comet_stats_launch_scale(const comet_scale_job *job) {
    const comet_maps *s = &job->maps->s, *dy = &job->maps->dy;
    cudaError_t error = with_dtypes(s->dtype, dy->dtype, [&](auto of_s, auto of_dy) {
        const FactorTerms<decltype(of_s)::value, decltype(of_dy)::value> terms = {maps_of(s), maps_of(dy)};
        return launch_sums(terms, dy, job->sums, false, job->workspace, job->queue);
    });
    return error == cudaSuccess ? launch_head(job->head, job->record, job->queue) : error;
}
