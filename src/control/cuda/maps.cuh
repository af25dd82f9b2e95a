// SPDX-License-Identifier: Apache-2.0
// Maps of a batch in device memory: control/collect/maps.h for kernels. Pixels are counted in the order N, H, W.
#ifndef COMET_CONTROL_CUDA_MAPS_CUH
#define COMET_CONTROL_CUDA_MAPS_CUH

#include "codec/cuda/divide.cuh"
#include "codec/cuda/values.cuh"
#include "control/cuda/record.h"

struct Maps {
    const void *data;
    divider by_map, by_row;
    int64_t to_image, to_row, to_channel;
    int64_t step;       // to the next pixel of a row; of a map, of the batch:
    bool has_even_maps; // all pixels of a map are one step apart
    bool is_even;       // all pixels of the batch
};

// A stride along an extent of 1 says nothing.
static inline Maps maps_of(const comet_maps *m) {
    Maps r = {m->data, {}, {}, m->to_image, m->to_row, m->to_channel, m->to_pixel, false, false};
    const int64_t pixels = m->height * m->width;
    r.by_map = divider_of((u64)pixels);
    r.by_row = divider_of((u64)m->width);
    r.step = m->width > 1 ? m->to_pixel : m->height > 1 ? m->to_row : m->to_image;
    r.has_even_maps = m->width == 1 || m->height == 1 || m->to_row == m->width * m->to_pixel;
    r.is_even = r.has_even_maps && (m->images == 1 || m->to_image == pixels * r.step);
    return r;
}

// Where a pixel's first channel is, in values.
__device__ __forceinline__ int64_t offset_of(const Maps &m, u64 pixel) {
    if (m.is_even)
        return (int64_t)pixel * m.step;
    quotient in_batch = split(pixel, m.by_map);
    int64_t image = (int64_t)in_batch.of * m.to_image;
    if (m.has_even_maps)
        return image + (int64_t)in_batch.rest * m.step;
    quotient in_map = split(in_batch.rest, m.by_row);
    return image + (int64_t)in_map.of * m.to_row + (int64_t)in_map.rest * m.step;
}

__device__ __forceinline__ int64_t offset_of(const Maps &m, u64 pixel, u32 channel) {
    return offset_of(m, pixel) + (int64_t)channel * m.to_channel;
}

template <comet_dtype D> __device__ __forceinline__ float value_by_offset(const Maps &m, int64_t offset) {
    return float_of<D>(((const pattern_of<D> *)m.data)[offset]);
}

template <comet_dtype D> __device__ __forceinline__ float value_at(const Maps &m, u64 pixel, u32 channel) {
    return value_by_offset<D>(m, offset_of(m, pixel, channel));
}

// ---- host ----

// with_dtype for two tensors.
template <class Run> static inline cudaError_t with_dtypes(comet_dtype a, comet_dtype b, Run run) {
    return with_dtype(a, [&](auto of_a) { return with_dtype(b, [&](auto of_b) { return run(of_a, of_b); }); });
}

#endif
