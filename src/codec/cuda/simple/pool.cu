// SPDX-License-Identifier: Apache-2.0
// pool on the device: k x k averages of each map, decoded by repeating them (docs/codecs.md, section 3).
#include "codec/cuda/divide.cuh"
#include "codec/cuda/frame.cuh"
#include "codec/cuda/simple/maps.cuh"
#include "codec/cuda/values.cuh"

constexpr int THREADS = 256;

// The tensor is [outer][height][width][inner], the body [outer][pooled_height][pooled_width][inner].
struct pool_shape {
    u64 height, width, inner, block;
    u64 pooled_height, pooled_width;
    u64 units; // what threads do: pooled values or vectors of them (compressing), vectors of values (decompressing)
    u64 count; // values
    u64 bytes; // of the whole stream
    divider by_inner, by_width, by_height, by_block; // of units, pixels, rows: pooled ones when compressing
};

// ---- compressing ----

// A NaN becomes the one pattern: which NaN an addition gives differs between machines.
template <comet_dtype D> __device__ __forceinline__ u32 average(float sum, float n) {
    float mean = __fdiv_rn(sum, n);
    if (mean != mean)
        return D == COMET_F32 ? 0x7fc00000u : D == COMET_F16 ? 0x7e00u : 0x7fc0u;
    return pattern_for<D>(mean);
}

// Where the values of one pooled value (or vector) lie: `rows` rows of `loads` loads.
struct pool_window {
    u64 first;
    u32 rows, columns;
};

__device__ __forceinline__ pool_window window_of(const pool_shape &s, quotient pixel, u64 c) {
    quotient row = split(pixel.of, s.by_height);
    u64 y = row.rest * s.block, x = pixel.rest * s.block;
    pool_window w;
    w.first = ((row.of * s.height + y) * s.width + x) * s.inner + c;
    w.rows = (u32)min(s.block, s.height - y);
    w.columns = (u32)min(s.block, s.width - x);
    return w;
}

// V values a load: of V channels side by side (ACROSS), which have sums of their own, or of one row of the window.
template <comet_dtype D, int V, bool ACROSS>
__device__ __forceinline__ void add_window(const pool_shape &s, const pool_window &w, const void *tensor, float *sums) {
    u32 a_row = ACROSS ? w.columns : w.columns / V, loads = a_row * w.rows, column = 0;
    u64 at = w.first, step = (ACROSS ? 1 : V) * s.inner, next_row = (s.width - w.columns) * s.inner;
#pragma unroll 4
    for (u32 i = 0; i < loads; i++) {
        float x[V];
        load_values<D, V>(tensor, at, x);
        at += step;
        if (++column == a_row) {
            column = 0;
            at += next_row;
        }
#pragma unroll
        for (int v = 0; v < V; v++)
            sums[ACROSS ? v : 0] = __fadd_rn(sums[ACROSS ? v : 0], x[v]);
    }
}

template <comet_dtype D, int V, bool ACROSS>
__global__ static void __launch_bounds__(THREADS) compress_kernel(write_frame f, pool_shape s, const void *tensor) {
    u8 *body = begin_stream(f, s.bytes);
    if (!body)
        return;
    constexpr int SUMS = ACROSS ? V : 1, BYTES = SUMS * value_bytes<D>;
    u64 threads = (u64)gridDim.x * THREADS;
    for (u64 unit = (u64)blockIdx.x * THREADS + threadIdx.x; unit < s.units; unit += threads) {
        quotient channel = split(unit, s.by_inner);
        pool_window w = window_of(s, split(channel.of, s.by_width), channel.rest * SUMS);
        float sums[SUMS];
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            sums[i] = -0.0f; // what leaves every first value as it is
        add_window<D, V, ACROSS>(s, w, tensor, sums);
        u32 words[(BYTES + 3) / 4];
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            put_pattern<D>(words, i, average<D>(sums[i], (float)(w.rows * w.columns)));
        store_words<BYTES>(body + unit * BYTES, words);
    }
}

// ---- decompressing ----

// The first pooled pixel of the pooled row that belongs to a row.
__device__ __forceinline__ u64 pooled_line(const pool_shape &s, u64 row) {
    quotient map = split(row, s.by_height);
    return (map.of * s.pooled_height + divide(map.rest, s.by_block)) * s.pooled_width;
}

// 16 bytes of one pixel, which lie side by side in the body too.
template <comet_dtype D>
__device__ __forceinline__ void repeat_pixel(const pool_shape &s, const uint4 *from, u64 unit, uint4 *to) {
    quotient channel = split(unit, s.by_inner), pixel = split(channel.of, s.by_width);
    u64 pooled = pooled_line(s, pixel.of) + divide(pixel.rest, s.by_block);
    to[unit] = from[pooled * s.by_inner.by + channel.rest];
}

// A walk over the values in order, and the pooled value of each. The phases are places inside a block.
struct pool_walk {
    u64 x, y, c;
    u64 line, pooled_x; // the pooled row's first pixel, and the pixel in it
    u32 x_phase, y_phase;
};

__device__ __forceinline__ pool_walk walk_to(const pool_shape &s, u64 value) {
    quotient channel = split(value, s.by_inner), pixel = split(channel.of, s.by_width);
    quotient map = split(pixel.of, s.by_height);
    quotient across = split(pixel.rest, s.by_block), down = split(map.rest, s.by_block);
    u64 line = (map.of * s.pooled_height + down.of) * s.pooled_width;
    return {pixel.rest, map.rest, channel.rest, line, across.of, (u32)across.rest, (u32)down.rest};
}

__device__ __forceinline__ void walk_on(const pool_shape &s, pool_walk *w) {
    if (++w->c < s.inner)
        return;
    w->c = 0;
    if (++w->x_phase == s.block) {
        w->x_phase = 0;
        w->pooled_x++;
    }
    if (++w->x < s.width)
        return;
    w->x = w->pooled_x = w->x_phase = 0;
    w->y++, w->y_phase++;
    if (w->y == s.height) { // rows of the next map begin a block too
        w->y = 0;
        w->y_phase = (u32)s.block;
    }
    if (w->y_phase == s.block) {
        w->y_phase = 0;
        w->line += s.pooled_width;
    }
}

// 16 bytes of values, which may be of several pixels and rows.
template <comet_dtype D>
__device__ __forceinline__ void repeat_values(const pool_shape &s, const pattern_of<D> *from, u64 unit, u8 *to) {
    constexpr int V = vector_values<D>;
    u64 first = unit * V;
    u32 n = (u32)min((u64)V, s.count - first), words[4];
    pool_walk w = walk_to(s, first);
#pragma unroll
    for (int i = 0; i < V; i++) {
        u32 pattern = i < (int)n ? from[(w.line + w.pooled_x) * s.inner + w.c] : 0u;
        put_pattern<D>(words, i, pattern);
        if (i + 1 < (int)n)
            walk_on(s, &w);
    }
    if (n == V) {
        store_words<16>(to + unit * 16, words);
        return;
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        if (i < (int)n)
            ((pattern_of<D> *)to)[first + i] = (pattern_of<D>)pattern_in<D>(words, i);
}

template <comet_dtype D, bool ACROSS>
__global__ static void __launch_bounds__(THREADS) decompress_kernel(read_frame f, pool_shape s, void *tensor) {
    const u8 *stream = open_stream(f, s.bytes);
    if (!stream)
        return;
    const u8 *body = stream + STREAM_HEADER_BYTES;
    u64 threads = (u64)gridDim.x * THREADS;
    for (u64 unit = (u64)blockIdx.x * THREADS + threadIdx.x; unit < s.units; unit += threads)
        if constexpr (ACROSS)
            repeat_pixel<D>(s, (const uint4 *)body, unit, (uint4 *)tensor);
        else
            repeat_values<D>(s, (const pattern_of<D> *)body, unit, (u8 *)tensor);
}

// ---- host ----

static u64 div_up(u64 a, u64 b) {
    return (a + b - 1) / b;
}

// Without the units and what divides them.
static pool_shape shape_of(const comet_tensor *tensor, const comet_codec_params *params) {
    pool_shape s = {};
    s.bytes = STREAM_HEADER_BYTES;
    s.count = (u64)comet_tensor_count(tensor);
    if (s.count == 0)
        return s;
    codec_maps m = comet_maps_of(tensor);
    s.height = (u64)m.height, s.width = (u64)m.width, s.inner = (u64)m.inner, s.block = (u64)params->pool_block;
    s.pooled_height = div_up(s.height, s.block);
    s.pooled_width = div_up(s.width, s.block);
    s.bytes += (u64)m.outer * s.pooled_height * s.pooled_width * s.inner * comet_dtype_size(tensor->dtype);
    return s;
}

static comet_status check(const comet_tensor *tensor, const comet_codec_params *) {
    return tensor->dtype == COMET_U8 ? COMET_ERROR_UNSUPPORTED : COMET_OK;
}

static void describe(const comet_tensor *, const comet_codec_params *params, stream_header *header) {
    header->parameter = (uint32_t)params->pool_block;
}

static size_t body_max_bytes(const comet_tensor *tensor, const comet_codec_params *params) {
    return shape_of(tensor, params).bytes - STREAM_HEADER_BYTES;
}

template <comet_dtype D, int V, bool ACROSS>
static cudaError_t launch_compress(const cuda_compress_job *job, pool_shape s) {
    constexpr u64 A_UNIT = ACROSS ? V : 1;
    s.units = (s.bytes - STREAM_HEADER_BYTES) / value_bytes<D> / A_UNIT;
    s.by_inner = divider_of(s.inner / A_UNIT);
    s.by_width = divider_of(s.pooled_width);
    s.by_height = divider_of(s.pooled_height);
    return launch(compress_kernel<D, V, ACROSS>, grid_for(s.units, THREADS), THREADS, job->queue, write_frame_of(job),
                  s, job->tensor->data);
}

// Loads of V values of a row start at multiples of V, if rows and blocks do.
static bool rows_allow(const pool_shape &s, u64 v) {
    return s.inner == 1 && s.width % v == 0 && s.block % v == 0;
}

template <comet_dtype D> static cudaError_t choose_compress(const cuda_compress_job *job, const pool_shape &s) {
    constexpr int V = vector_values<D>;
    if (s.inner % V == 0)
        return launch_compress<D, V, true>(job, s);
    if (rows_allow(s, V))
        return launch_compress<D, V, false>(job, s);
    if (rows_allow(s, 4))
        return launch_compress<D, 4, false>(job, s);
    if (rows_allow(s, 2))
        return launch_compress<D, 2, false>(job, s);
    return launch_compress<D, 1, false>(job, s);
}

static cudaError_t compress(const cuda_compress_job *job) {
    pool_shape s = shape_of(job->tensor, job->params);
    return with_dtype(job->tensor->dtype, [&](auto dtype) { return choose_compress<decltype(dtype)::value>(job, s); });
}

template <comet_dtype D, bool ACROSS>
static cudaError_t launch_decompress(const cuda_decompress_job *job, pool_shape s) {
    constexpr u64 V = vector_values<D>;
    s.units = div_up(s.count, V);
    s.by_inner = divider_of(ACROSS ? s.inner / V : s.inner);
    s.by_width = divider_of(s.width);
    s.by_height = divider_of(s.height);
    s.by_block = divider_of(s.block);
    return launch(decompress_kernel<D, ACROSS>, grid_for(s.units, THREADS), THREADS, job->queue,
                  read_frame_of(job, s.bytes), s, job->tensor->data);
}

static cudaError_t decompress(const cuda_decompress_job *job) {
    pool_shape s = shape_of(job->tensor, job->params);
    return with_dtype(job->tensor->dtype, [&](auto dtype) {
        constexpr comet_dtype D = decltype(dtype)::value;
        return s.inner % vector_values<D> == 0 ? launch_decompress<D, true>(job, s)
                                               : launch_decompress<D, false>(job, s);
    });
}

const cuda_codec_vtable comet_cuda_pool = {check, describe, body_max_bytes, nullptr, compress, decompress};
