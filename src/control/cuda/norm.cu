// SPDX-License-Identifier: Apache-2.0
// A batch norm's backward: sums by channel, products of its gradient's neighbours, and the channels' tables.
#include "control/cuda/launch.h"
#include "control/cuda/neighbours.cuh"

struct NormMaps {
    Maps x, dy;
    const float *scale, *shift; // NULL: x is u
    const float *gamma, *beta;
    const u8 *mask;
    const comet_norm_head *seen; // a later part's: what was seen before it; else NULL
    int32_t part;
    u32 channels;
    bool has_relu;
};

// The mask's row that a part begins with. A record without the parts before it is not believed.
__device__ __forceinline__ u64 first_row(const NormMaps &n) {
    const comet_norm_head *h = n.seen;
    return h && h->kind == COMET_RECORD_NORM && h->seen == n.part ? (u64)h->pixels : 0;
}

struct NormChannel {
    float scale, shift, gamma, beta;
};

__device__ __forceinline__ NormChannel channel_of(const NormMaps &n, u32 channel) {
    NormChannel c = {1, 0, __ldg(n.gamma + channel), __ldg(n.beta + channel)};
    if (n.scale) {
        c.scale = __ldg(n.scale + channel);
        c.shift = __ldg(n.shift + channel);
    }
    return c;
}

__device__ __forceinline__ float u_of(const NormMaps &n, const NormChannel &c, float x) {
    return n.scale ? __fmaf_rn(c.scale, x, c.shift) : x;
}

// Bit i of the mask; without one, 1.
__device__ __forceinline__ bool mask_at(const NormMaps &n, u64 i) {
    return !n.mask || (n.mask[i / 8] >> (i % 8) & 1);
}

__device__ __forceinline__ bool is_on(const NormMaps &n, const NormChannel &c, float u, bool masked) {
    return n.mask ? masked : !n.has_relu || __fmaf_rn(c.gamma, u, c.beta) > 0;
}

template <comet_dtype DX, comet_dtype DY, int MAXIMA> struct NormTerms {
    static constexpr int SUMS = COMET_NORM_SUMS, GREATEST = MAXIMA;

    struct Channel {
        NormChannel c;
        u64 first; // row of the mask
    };
    struct Place {
        int64_t x, dy;
        u64 bit;
    };
    struct Values {
        float x, dy;
        bool masked;
    };
    NormMaps n;

    __device__ __forceinline__ Channel channel(u32 channel) const {
        return {channel_of(n, channel), first_row(n)};
    }
    __device__ __forceinline__ Place place(const Channel &c, u64 pixel, u32 channel) const {
        return {offset_of(n.x, pixel, channel), offset_of(n.dy, pixel, channel),
                (c.first + pixel) * n.channels + channel};
    }
    __device__ __forceinline__ Values load(const Place &p) const {
        return {value_by_offset<DX>(n.x, p.x), value_by_offset<DY>(n.dy, p.dy), mask_at(n, p.bit)};
    }
    __device__ __forceinline__ void add(const Channel &c, const Values &v, float *sums) const {
        const float u = u_of(n, c.c, v.x);
        const bool on = is_on(n, c.c, u, v.masked);
        const float g = on ? v.dy : 0;
        sums[0] += g * g;
        sums[1] += g * u;
        sums[2] += on ? 1.0f : 0.0f;
        if (GREATEST) {
            sums[3] = fabsf(g) > sums[3] ? fabsf(g) : sums[3];
            sums[4] = fabsf(u) > sums[4] ? fabsf(u) : sums[4];
        }
    }
};

// The gradient behind the ReLU, of a batch's first part.
template <comet_dtype DX, comet_dtype DY> struct NormGradient {
    NormMaps n;

    __device__ __forceinline__ float operator()(u64 pixel, u32 channel) const {
        const float dy = value_at<DY>(n.dy, pixel, channel);
        if (!n.has_relu)
            return dy;
        if (n.mask)
            return mask_at(n, pixel * n.channels + channel) ? dy : 0;
        const NormChannel c = channel_of(n, channel);
        return is_on(n, c, u_of(n, c, value_at<DX>(n.x, pixel, channel)), true) ? dy : 0;
    }
};

// ---- the record ----

struct NormTablesArgs {
    comet_norm_head head;
    const float *gamma, *scale;
    const double *sums;
    float *tables;
};

// What comet_end_norm wants by channel, beside the sums.
static __global__ void __launch_bounds__(SUMS_THREADS) norm_tables_kernel(NormTablesArgs a) {
    const u64 c = (u64)blockIdx.x * SUMS_THREADS + threadIdx.x, channels = (u64)a.head.channels;
    if (c >= channels)
        return;
    const float scale = a.scale[c];
    a.tables[c] = a.gamma[c];
    a.tables[channels + c] = scale;
    a.tables[2 * channels + c] = comet_norm_inverse(scale, a.head.is_input);
    if (a.head.has_greatest) {
        a.tables[3 * channels + c] = (float)a.sums[3 * channels + c];
        a.tables[4 * channels + c] = comet_norm_greatest(a.sums[4 * channels + c], scale);
    }
}

// Parts that do not follow each other, or are not of the same batch, make no whole.
static __global__ void norm_head_kernel(comet_norm_head head, int32_t part, comet_norm_head *to) {
    const comet_norm_head before = *to;
    const bool follows = before.kind == head.kind && before.seen == part && before.parts == head.parts &&
                         before.channels == head.channels && before.has_greatest == head.has_greatest &&
                         before.is_input == head.is_input;
    head.seen = part == 0 ? 1 : follows ? part + 1 : -1;
    if (part > 0)
        head.pixels += before.pixels;
    *to = head;
}

// ---- host ----

static NormMaps norm_maps_of(const comet_norm_job *job) {
    const comet_norm_rows *r = job->rows;
    NormMaps n = {};
    n.x = maps_of(&r->x);
    n.dy = maps_of(&r->dy);
    n.scale = r->scale;
    n.shift = r->shift;
    n.gamma = r->gamma;
    n.beta = r->beta;
    n.mask = r->mask;
    n.seen = job->part > 0 ? &job->record->head : NULL;
    n.part = job->part;
    n.channels = (u32)r->x.channels;
    n.has_relu = r->relu != 0;
    return n;
}

template <comet_dtype DX, comet_dtype DY> static cudaError_t launch_norm_sums(const comet_norm_job *job) {
    const NormMaps n = norm_maps_of(job);
    const bool adds = job->part > 0;
    const comet_maps *x = &job->rows->x;
    cudaError_t error = cudaSuccess;
    if (job->head.has_greatest)
        error = launch_sums(NormTerms<DX, DY, COMET_NORM_GREATEST>{n}, x, job->sums, adds, job->workspace, job->queue);
    else
        error = launch_sums(NormTerms<DX, DY, 0>{n}, x, job->sums, adds, job->workspace, job->queue);
    if (error != cudaSuccess || adds)
        return error;
    return launch_products(NormGradient<DX, DY>{n}, &job->rows->dy, job->record->gradient, job->queue);
}

extern "C" cudaError_t comet_stats_launch_norm(const comet_norm_job *job) {
    cudaError_t error = with_dtypes(job->rows->x.dtype, job->rows->dy.dtype, [&](auto of_x, auto of_dy) {
        return launch_norm_sums<decltype(of_x)::value, decltype(of_dy)::value>(job);
    });
    if (error != cudaSuccess)
        return error;
    const NormTablesArgs tables = {job->head, job->rows->gamma, job->scale, job->sums, job->tables};
    error = launch(norm_tables_kernel, dim3((unsigned)((job->head.channels + SUMS_THREADS - 1) / SUMS_THREADS)),
                   dim3(SUMS_THREADS), job->queue, tables);
    if (error != cudaSuccess)
        return error;
    return launch(norm_head_kernel, dim3(1), dim3(1), job->queue, job->head, job->part, &job->record->head);
}
