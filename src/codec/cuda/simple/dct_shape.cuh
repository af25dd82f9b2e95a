// SPDX-License-Identifier: Apache-2.0
// dct: what lies where in the tensor and in the body, codes and their scales (docs/codecs.md, section 5).
#ifndef COMET_CODEC_CUDA_DCT_SHAPE_CUH
#define COMET_CODEC_CUDA_DCT_SHAPE_CUH

#include "codec/cuda/divide.cuh"
#include "codec/cuda/simple/maps.cuh"
#include "comet/codec.h"

constexpr int DCT_SIDE = 8;
constexpr int DCT_CHUNK = 128; // blocks that share an entry in the table of offsets

struct dct_shape {
    u64 count, channels, channel_run; // value i belongs to channel i / channel_run % channels
    bool transform;
    u64 rows, width, inner, block_columns, blocks, chunks;
    u64 offsets_at, masks_at, rest_at; // in the body; rest: values or codes
    u32 table;
    divider by_inner, by_columns, by_channel_rows, by_channels, by_run;
};

static inline dct_shape dct_shape_of(const comet_tensor *tensor, const comet_codec_params *params) {
    dct_shape s = {};
    s.count = (u64)comet_tensor_count(tensor);
    s.table = (u32)params->dct_table;
    if (s.count == 0)
        return s; // the body is empty; its channels could be more than fit anywhere
    codec_maps m = comet_maps_of(tensor);
    s.channels = (u64)m.channels, s.channel_run = (u64)m.channel_run;
    s.transform = m.has_maps && m.height >= DCT_SIDE && m.width >= DCT_SIDE;
    if (s.transform) {
        s.rows = (u64)(m.outer * m.height), s.width = (u64)m.width, s.inner = (u64)m.inner;
        s.block_columns = (s.width + DCT_SIDE - 1) / DCT_SIDE;
        s.blocks = (s.rows + DCT_SIDE - 1) / DCT_SIDE * s.block_columns * s.inner;
        s.chunks = (s.blocks + DCT_CHUNK - 1) / DCT_CHUNK;
        s.by_inner = divider_of(s.inner);
        s.by_columns = divider_of(s.block_columns);
        // where planes are maps (inner = 1), rows of a channel; with a single channel all of them
        s.by_channel_rows = divider_of(s.channels > 1 && s.inner == 1 ? s.channel_run / s.width : s.rows);
    }
    s.by_channels = divider_of(s.channels);
    s.by_run = divider_of(s.channel_run);
    s.offsets_at = s.channels * 4;
    s.masks_at = s.offsets_at + s.chunks * 8;
    s.rest_at = s.masks_at + s.blocks * 8;
    return s;
}

static inline u64 dct_body_bound(const dct_shape &s) {
    return s.rest_at + (s.transform ? s.blocks * 64 : s.count);
}

// ---- codes ----

// JPEG-ACT's 4.5 / (max + 1e-5), times 32. No overflow: max + 1e-5 is 1e-5 to FLT_MAX.
__device__ __forceinline__ float dct_scale(u32 maximum) {
    return __fdiv_rn(144.0f, __fadd_rn(__uint_as_float(maximum), 1e-5f));
}

__device__ __forceinline__ float dct_step(u32 maximum) {
    return __fdiv_rn(__fadd_rn(__uint_as_float(maximum), 1e-5f), 144.0f);
}

// To the nearest integer, ties to even: adding 1.5 * 2^23 leaves it in the low bits. NaN is 0.
__device__ __forceinline__ int dct_code(float x, float scale) {
    float v = __fmul_rn(x, scale);
    v = v == v ? v : 0.0f;
    v = v > -128.0f ? v : -128.0f;
    v = v < 127.0f ? v : 127.0f;
    return (int8_t)__float_as_uint(__fadd_rn(v, 0x1.8p23f));
}

__device__ __forceinline__ float dct_value(int code, float step) {
    return __fmul_rn((float)code, step);
}

// Tables in the body are 4-byte aligned.
__device__ __forceinline__ u64 load_u64(const u8 *from) {
    return ((const u32 *)from)[0] | (u64)((const u32 *)from)[1] << 32;
}

__device__ __forceinline__ void store_u64(u8 *to, u64 v) {
    ((u32 *)to)[0] = (u32)v;
    ((u32 *)to)[1] = (u32)(v >> 32);
}

#endif
