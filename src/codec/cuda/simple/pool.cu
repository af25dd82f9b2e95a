// SPDX-License-Identifier: Apache-2.0
// pool on the device: k x k averages of each map, decoded by repeating them (docs/codecs.md, section 3).
#include "base/fail.h"
#include "codec/cuda/divide.cuh"
#include "codec/cuda/frame.cuh"
#include "codec/cuda/simple/maps.cuh"
#include "codec/cuda/values.cuh"

constexpr int THREADS = 256;

constexpr int STRIPES = 4;            // that a thread decodes at a time
constexpr u64 LONGEST = (u64)1 << 30; // row, or column, of a map: places in it are counted in 31 bits

// The tensor is [outer][height][width][inner], the body [outer][pooled_height][pooled_width][inner].
struct pool_shape {
    u64 height, width, inner, block;
    u64 pooled_height, pooled_width;
    u64 units; // what threads do: pooled values or vectors of them (compressing), stripes or vectors (decompressing)
    u64 count; // values
    u64 bytes; // of the whole stream
    divider by_inner, by_width, by_height; // of units, pixels, rows: pooled ones when compressing
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

// ---- decompressing: patterns are copied, so that only their bytes matter ----

template <int BYTES> using pattern_bytes = std::conditional_t<BYTES == 4, u32, u16>;

template <int BYTES> __device__ __forceinline__ void put_bytes(u32 *w, int i, u32 pattern) {
    put_pattern<BYTES == 4 ? COMET_F32 : COMET_BF16>(w, i, pattern);
}

// What the decoder divides by; everything is counted from where a block of threads begins, so that 31 bits suffice.
struct pool_reach {
    divider by_width, by_height; // where the block begins: as below
    Divide inner, width, height, block;
    bool across; // 16 bytes are of one pixel
};

// A stripe: 16 bytes that are the same in all rows of a block. Rows are a multiple of that.
struct pool_stripe {
    uint4 values;
    u64 to; // in units of 16 bytes
    u32 rows;
};

// 16 bytes of one row of blocks, which begins at `line`, from value x on.
template <int BYTES>
__device__ __forceinline__ uint4 repeat_values(const pattern_bytes<BYTES> *line, u32 x, const Divide &block) {
    const u32 first = block(x);
    u32 phase = x - first * block.divisor, words[4];
    line += first;
    if (block.divisor == 2) { // the common case
#pragma unroll
        for (int i = 0; i < 16 / BYTES; i += 2) {
            put_bytes<BYTES>(words, i, line[i / 2]);
            put_bytes<BYTES>(words, i + 1, line[i / 2]);
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
    u32 pattern = *line;
#pragma unroll
    for (int i = 0; i < 16 / BYTES; i++) {
        put_bytes<BYTES>(words, i, pattern);
        if (i + 1 < 16 / BYTES && ++phase == block.divisor) {
            phase = 0;
            pattern = *++line;
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// Where a block's first stripe lies.
struct stripe_origin {
    u64 from;      // its pooled row's first pixel
    u64 to;        // its map's first stripe
    u32 y, column; // pooled row of the map, stripe of the row
};

__device__ __forceinline__ stripe_origin origin_of(const pool_shape &s, const pool_reach &r, u64 unit) {
    const quotient line = split(unit, r.by_width), map = split(line.of, r.by_height);
    return {line.of * s.pooled_width, map.of * s.height * r.by_width.by, (u32)map.rest, (u32)line.rest};
}

// The stripe `offset` behind the origin. width: stripes a row; height: pooled rows a map; inner: stripes a pixel.
template <int BYTES>
__device__ __forceinline__ pool_stripe find_stripe(const pool_shape &s, const pool_reach &r, const u8 *body,
                                                   const stripe_origin &o, u32 offset) {
    const u32 lines = r.width(o.column + offset), column = o.column + offset - lines * r.width.divisor;
    const u32 maps = r.height(o.y + lines), y = (o.y + lines - maps * r.height.divisor) * r.block.divisor;
    const u32 height = (u32)s.height;
    const u64 from = o.from + (u64)lines * (u32)s.pooled_width;
    pool_stripe p;
    p.to = o.to + (u64)(maps * height + y) * r.width.divisor + column;
    p.rows = min(r.block.divisor, height - y);
    if (r.across) {
        const u32 pixel = r.inner(column), rest = column - pixel * r.inner.divisor;
        p.values = ((const uint4 *)body)[(from + r.block(pixel)) * r.inner.divisor + rest];
    } else {
        p.values = repeat_values<BYTES>((const pattern_bytes<BYTES> *)body + from, column * (16 / BYTES), r.block);
    }
    return p;
}

template <int BYTES>
__global__ static void __launch_bounds__(THREADS)
    decompress_stripes(read_frame f, pool_shape s, pool_reach r, uint4 *tensor) {
    const u8 *stream = open_stream(f, s.bytes);
    if (!stream)
        return;
    constexpr u32 A_BLOCK = THREADS * STRIPES;
    for (u64 unit = (u64)blockIdx.x * A_BLOCK; unit < s.units; unit += (u64)gridDim.x * A_BLOCK) {
        const stripe_origin origin = origin_of(s, r, unit);
        const u32 there = (u32)min(s.units - unit, (u64)A_BLOCK);
        pool_stripe p[STRIPES];
#pragma unroll
        for (int i = 0; i < STRIPES; i++) { // all are on their way before the first is written
            const u32 offset = threadIdx.x + i * THREADS;
            p[i].rows = 0;
            if (offset < there)
                p[i] = find_stripe<BYTES>(s, r, stream + STREAM_HEADER_BYTES, origin, offset);
        }
#pragma unroll
        for (int i = 0; i < STRIPES; i++) {
            uint4 *to = tensor + p[i].to;
#pragma unroll 1
            for (u32 y = 0; y < p[i].rows; y++, to += r.width.divisor)
                *to = p[i].values;
        }
    }
}

// Rows that are no multiple of 16 bytes: a walk over the values in order, and the pooled value of each.
template <int BYTES> struct pool_walk {
    const pattern_bytes<BYTES> *line; // the pooled row
    u32 at;                           // the pooled value's place in it
    u32 c, x, y;
    u32 x_phase, y_phase; // places inside a block
};

// Value `offset` behind one that lies in the map `first` at y, x, c.
template <int BYTES>
__device__ __forceinline__ pool_walk<BYTES> walk_to(const pool_shape &s, const pool_reach &r,
                                                    const pattern_bytes<BYTES> *body, u64 first, u32 y, u32 x, u32 c,
                                                    u32 offset) {
    pool_walk<BYTES> w;
    const u32 pixels = r.inner(c + offset), rows = r.width(x + pixels), maps = r.height(y + rows);
    w.c = c + offset - pixels * r.inner.divisor;
    w.x = x + pixels - rows * r.width.divisor;
    w.y = y + rows - maps * r.height.divisor;
    const u32 pooled_x = r.block(w.x), pooled_y = r.block(w.y);
    w.x_phase = w.x - pooled_x * r.block.divisor;
    w.y_phase = w.y - pooled_y * r.block.divisor;
    w.line = body + ((first + maps) * s.pooled_height + pooled_y) * s.pooled_width * s.inner;
    w.at = pooled_x * r.inner.divisor + w.c;
    return w;
}

// To the row's first value.
template <int BYTES>
__device__ __forceinline__ void walk_to_row(const pool_shape &s, const pool_reach &r, pool_walk<BYTES> *w) {
    w->at = w->x = w->x_phase = 0;
    w->y++, w->y_phase++;
    if (w->y == r.height.divisor) // rows of the next map begin a block too
        w->y = 0, w->y_phase = r.block.divisor;
    if (w->y_phase == r.block.divisor)
        w->y_phase = 0, w->line += s.pooled_width * s.inner;
}

template <int BYTES>
__device__ __forceinline__ void walk_on(const pool_shape &s, const pool_reach &r, pool_walk<BYTES> *w) {
    const u32 inner = r.inner.divisor;
    w->at++;
    if (++w->c < inner)
        return;
    w->c = 0;
    if (++w->x_phase == r.block.divisor)
        w->x_phase = 0;
    else
        w->at -= inner;
    if (++w->x == r.width.divisor)
        walk_to_row<BYTES>(s, r, w);
}

// The 16 bytes of values from `first` on, where the walk is; they may be of several pixels and rows.
template <int BYTES>
__device__ __forceinline__ void walk_values(const pool_shape &s, pool_walk<BYTES> w, const pool_reach &r, u64 first,
                                            pattern_bytes<BYTES> *to) {
    constexpr u32 V = 16 / BYTES;
    const u32 n = (u32)min((u64)V, s.count - first);
    to += first;
    if (n < V) {
        for (u32 i = 0; i < n; i++, walk_on<BYTES>(s, r, &w))
            to[i] = w.line[w.at];
        return;
    }
    u32 words[4];
#pragma unroll
    for (u32 i = 0; i < V; i++) {
        put_bytes<BYTES>(words, (int)i, w.line[w.at]);
        if (i + 1 < V)
            walk_on<BYTES>(s, r, &w);
    }
    store_words<16>(to, words);
}

template <int BYTES>
__global__ static void __launch_bounds__(THREADS)
    decompress_walk(read_frame f, pool_shape s, pool_reach r, pattern_bytes<BYTES> *tensor) {
    const u8 *stream = open_stream(f, s.bytes);
    if (!stream)
        return;
    constexpr u32 V = 16 / BYTES, A_BLOCK = THREADS * V;
    const pattern_bytes<BYTES> *body = (const pattern_bytes<BYTES> *)(stream + STREAM_HEADER_BYTES);
    for (u64 first = (u64)blockIdx.x * A_BLOCK; first < s.count; first += (u64)gridDim.x * A_BLOCK) {
        const quotient row = split(first, r.by_width), map = split(row.of, r.by_height);
        const u32 x = r.inner((u32)row.rest), c = (u32)row.rest - x * r.inner.divisor, offset = threadIdx.x * V;
        if (first + offset < s.count)
            walk_values<BYTES>(s, walk_to<BYTES>(s, r, body, map.of, (u32)map.rest, x, c, offset), r, first + offset,
                               tensor);
    }
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
    if (tensor->dtype == COMET_U8)
        return COMET_ERROR_UNSUPPORTED;
    if (comet_tensor_count(tensor) == 0) // nothing to count
        return COMET_OK;
    codec_maps m = comet_maps_of(tensor);
    if ((u64)m.height >= LONGEST || (u64)m.width * (u64)m.inner >= LONGEST)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "tensor has maps with rows or columns of %lld values or more",
                          (long long)LONGEST);
    return COMET_OK;
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

template <int BYTES> static cudaError_t launch_stripes(const cuda_decompress_job *job, pool_shape s) {
    const u64 a_row = s.width * s.inner * BYTES / 16;
    pool_reach r = {};
    s.units = (s.bytes - STREAM_HEADER_BYTES) / BYTES / (s.pooled_width * s.inner) * a_row;
    r.by_width = divider_of(a_row);
    r.by_height = divider_of(s.pooled_height);
    r.across = s.inner * BYTES % 16 == 0;
    r.inner = divide_by((u32)(s.inner * BYTES / 16 ? s.inner * BYTES / 16 : 1));
    r.width = divide_by((u32)a_row);
    r.height = divide_by((u32)s.pooled_height);
    r.block = divide_by((u32)s.block);
    return launch(decompress_stripes<BYTES>, grid_for(s.units, THREADS * STRIPES), THREADS, job->queue,
                  read_frame_of(job, s.bytes), s, r, (uint4 *)job->tensor->data);
}

// An empty tensor has no shape, and nothing to divide.
template <int BYTES> static cudaError_t launch_walk(const cuda_decompress_job *job, const pool_shape &s) {
    pool_reach r = {};
    if (s.count) {
        r.by_width = divider_of(s.width * s.inner);
        r.by_height = divider_of(s.height);
        r.inner = divide_by((u32)s.inner);
        r.width = divide_by((u32)s.width);
        r.height = divide_by((u32)s.height);
        r.block = divide_by((u32)s.block);
    }
    return launch(decompress_walk<BYTES>, grid_for(s.count, THREADS * (16 / BYTES)), THREADS, job->queue,
                  read_frame_of(job, s.bytes), s, r, (pattern_bytes<BYTES> *)job->tensor->data);
}

template <int BYTES> static cudaError_t launch_decompress(const cuda_decompress_job *job, const pool_shape &s) {
    const bool is_even = s.width * s.inner * BYTES % 16 == 0 && (s.inner == 1 || s.inner * BYTES % 16 == 0);
    return s.count && is_even ? launch_stripes<BYTES>(job, s) : launch_walk<BYTES>(job, s);
}

static cudaError_t decompress(const cuda_decompress_job *job) {
    const pool_shape s = shape_of(job->tensor, job->params);
    return job->tensor->dtype == COMET_F32 ? launch_decompress<4>(job, s) : launch_decompress<2>(job, s);
}

const cuda_codec_vtable comet_cuda_pool = {check, describe, body_max_bytes, nullptr, compress, decompress};
