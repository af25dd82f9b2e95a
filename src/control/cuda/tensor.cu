// SPDX-License-Identifier: Apache-2.0
// A tensor that is stored: what the codec said of it, and how alike the errors of neighbours will be.
#include "control/cuda/launch.h"
#include "control/cuda/neighbours.cuh"

// What is stored of a value, in cells of the rounding, and 1 or 0 for what is on or off: comet_alike_read.
struct Stored {
    float cells, on;
};

struct StoredTables {
    const float *scale, *shift, *threshold, *slope, *gamma;
    bool has_grid, has_relu;
};

__device__ __forceinline__ float table_at(const float *table, u32 channel, float otherwise) {
    return table ? __ldg(table + channel) : otherwise;
}

__device__ __forceinline__ Stored stored_of(const StoredTables &t, float x, u32 channel, float inverse_cell) {
    if (!t.has_grid)
        return {x * inverse_cell, x != 0 ? 1.0f : 0.0f};
    const float u = table_at(t.scale, channel, 1) * x + table_at(t.shift, channel, 0);
    if (!t.has_relu)
        return {u * inverse_cell, 1};
    const float above = u - __ldg(t.threshold + channel);
    const bool is_on = (table_at(t.slope, channel, 1) < 0 ? -above : above) > 0;
    return {u * inverse_cell, is_on ? 1.0f : 0.0f};
}

struct ErrorsArgs {
    Maps values;
    StoredTables tables;
    PlacesShape shape;
    const comet_codec_record *result;
    comet_alike_errors_sums *sums;
};

template <comet_dtype D> static __global__ void __launch_bounds__(PLACES_THREADS) errors_kernel(ErrorsArgs a) {
    comet_alike_errors_sums sums = {0, 0, 0, 0};
    const double bound = a.result->bound;
    const float inverse_cell = (float)(0.5 / bound);
    if (bound > 0)
        for_neighbours(a.shape, [&](u64 pixel, u64 other, u32 channel) {
            const Stored here = stored_of(a.tables, value_at<D>(a.values, pixel, channel), channel, inverse_cell);
            const Stored there = stored_of(a.tables, value_at<D>(a.values, other, channel), channel, inverse_cell);
            const float gamma = table_at(a.tables.gamma, channel, 1), weight = here.on * (gamma * gamma);
            const float product = comet_alike(there.cells - here.cells);
            sums.plain += (double)product;
            sums.pairs += 1;
            sums.masked += (double)(weight * there.on * product);
            sums.weights += (double)weight;
        });
    sums.plain = add_block(sums.plain);
    sums.pairs = add_block(sums.pairs);
    sums.masked = add_block(sums.masked);
    sums.weights = add_block(sums.weights);
    if (threadIdx.x == 0)
        a.sums[blockIdx.x] = sums;
}

static __global__ void stored_kernel(const comet_codec_record *result, int32_t has_values, comet_tensor_record *to) {
    to->kind = COMET_RECORD_TENSOR;
    to->has_values = has_values;
    to->result = *result;
}

static StoredTables tables_of(const comet_tensor_pass *p) {
    StoredTables t = {};
    t.gamma = p->gamma;
    if (p->grid) {
        t.has_grid = true;
        t.scale = p->grid->scale;
        t.shift = p->grid->shift;
    }
    if (p->relu) {
        t.has_relu = true;
        t.threshold = p->grid->threshold;
        t.slope = p->grid->slope ? p->grid->slope : p->gamma;
    }
    return t;
}

extern "C" cudaError_t comet_stats_launch_tensor(const comet_tensor_pass *p, const comet_maps *maps,
                                                 comet_tensor_record *record, cudaStream_t queue) {
    cudaError_t error = cudaSuccess;
    if (maps) {
        const ErrorsArgs a = {maps_of(maps), tables_of(p), places_shape_of(maps), p->result, record->errors};
        error = with_dtype(maps->dtype, [&](auto dtype) {
            return launch(errors_kernel<decltype(dtype)::value>, dim3(COMET_STATS_OFFSETS), dim3(PLACES_THREADS), queue,
                          a);
        });
    }
    return error == cudaSuccess
               ? launch(stored_kernel, dim3(1), dim3(1), queue, p->result, (int32_t)(maps != NULL), record)
               : error;
}
