// SPDX-License-Identifier: Apache-2.0
// group on the device: 2, 4 or 8 bits a value between the least and the greatest value of its group (docs/codecs.md,
// section 4).
#include "codec/cuda/frame.cuh"
#include "codec/cuda/simple/group_codes.cuh"
#include "codec/cuda/values.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int SWEEPS = 4;       // octets that a lane has in registers at a time
constexpr int LEAST_LANES = 4;  // 32 values
constexpr int SMALL_BLOCKS = 4; // of compress_small on a multiprocessor
constexpr int READ_UNROLL = 4;  // vectors of 16 bytes that a thread decodes at a time

// ---- writing ----

__device__ __forceinline__ void write_pair(u8 *body, u64 group, const scale &s) {
    ((float2 *)body)[group] = make_float2(s.least, s.range);
}

// Where the codes of a group's octets begin.
__device__ __forceinline__ u8 *codes_of(const group_shape &g, u8 *body, u64 first_value) {
    return body + g.codes_at + first_value / OCTET * g.bits;
}

// ---- any group, by all threads of a warp or of a block ----

__device__ __forceinline__ u32 values_of(const group_shape &g, u64 group) {
    return (u32)min(g.values, g.count - group * g.values);
}

// Values j .. j + 7 of a group of n at `first`; NaN, which counts for nothing and has code 0, behind the last.
template <comet_dtype D>
__device__ __forceinline__ void load_octet(const void *tensor, u64 first, u32 j, u32 n, float (&x)[OCTET]) {
    constexpr int V = vector_values<D> < OCTET ? vector_values<D> : OCTET;
    if (j + OCTET <= n)
#pragma unroll
        for (int i = 0; i < OCTET; i += V)
            load_values<D, V>(tensor, first + j + i, x + i);
    else
#pragma unroll
        for (int i = 0; i < OCTET; i++)
            x[i] = j + i < n ? load_value<D>(tensor, first + j + i) : __int_as_float(0x7fc00000);
}

template <comet_dtype D>
__device__ __forceinline__ extent measure(const void *tensor, u64 first, u32 n, u32 thread, u32 threads) {
    extent e = {INT32_MAX, INT32_MIN};
#pragma unroll 4
    for (u32 j = thread * OCTET; j < n; j += threads * OCTET) {
        float x[OCTET];
        load_octet<D>(tensor, first, j, n, x);
#pragma unroll
        for (int i = 0; i < OCTET; i++)
            extend(&e, x[i]);
    }
    return e;
}

template <comet_dtype D>
__device__ __forceinline__ void write_group(const group_shape &g, const void *tensor, u8 *body, u64 group,
                                            const scale &s, u32 thread, u32 threads) {
    const u64 first = group * g.values;
    const u32 n = values_of(g, group);
    if (thread == 0)
        write_pair(body, group, s);
#pragma unroll 2
    for (u32 j = thread * OCTET; j < n; j += threads * OCTET) {
        float x[OCTET];
        load_octet<D>(tensor, first, j, n, x);
        const uint2 codes = g.stochastic ? round_random(g, x, s, group, j / OCTET) : round_nearest(x, s, g.base);
        if (j + OCTET <= n)
            store_codes(codes_of(g, body, first + j), g.bits, codes);
        else
            store_some(codes_of(g, body, first + j), g.bits, n - j, codes);
    }
}

// ---- groups of up to 1,024 values ----

// A group that is cut short, or has values or a range that are not finite. A function of its own, so that it costs the
// others no registers. By a warp.
template <comet_dtype D>
__device__ __noinline__ void compress_odd(const group_shape &g, const void *tensor, u8 *body, u64 group, u32 lane) {
    const extent e = reduce_warp(measure<D>(tensor, group * g.values, values_of(g, group), lane, 32));
    write_group<D>(g, tensor, body, group, scale_of(e, g.bits), lane, 32);
}

// Where a lane's octets lie, counted from the first value of the warp's groups: at `at`, and further on by `next` from
// sweep to sweep, as far as `limit`.
struct lane_place {
    u32 group, j; // of the first, and from which value of that group on
    u32 at, next, limit;
    bool has_values; // else the lane reads what the first one of its group does, which changes no range
};

__device__ __forceinline__ lane_place place_of(const group_shape &g, u32 whole, u32 lane) {
    const u32 values = (u32)g.values, j = (lane & ((1u << g.lanes_log) - 1)) * OCTET;
    lane_place p;
    p.group = lane >> g.lanes_log;
    p.has_values = j < values;
    p.j = p.has_values ? j : 0;
    p.at = p.group * values + p.j;
    p.next = g.next_group * values + g.next_value;
    p.limit = whole * values;
    return p;
}

// What lies behind the limit is read from where there is something: the group's first values change no range either,
// and what is no whole group's is not used.
template <comet_dtype D>
__device__ __forceinline__ void load_sweeps(const void *tensor, u64 first_value, const lane_place &p,
                                            float (&x)[SWEEPS][OCTET]) {
    constexpr int V = vector_values<D>;
    const u8 *from = (const u8 *)tensor + first_value * value_bytes<D>;
#pragma unroll
    for (int i = 0; i < SWEEPS; i++) {
        const u32 at = p.at + i * p.next, there = at < p.limit ? at : 0;
#pragma unroll
        for (int v = 0; v < OCTET; v += V)
            load_values<D, V>(from + there * value_bytes<D>, v, x[i] + v);
    }
}

// The span of the group of sweep `lane mod SWEEPS`: each of the lanes that share groups gets one, so that their scales
// are found at once.
__device__ __forceinline__ span span_of_sweep(const group_shape &g, const float (&x)[SWEEPS][OCTET], u32 lane) {
    span all[SWEEPS];
#pragma unroll
    for (int i = 0; i < SWEEPS; i++)
        all[i] = span_of(x[i]);
    if (g.next_group == 0) // all are one group's
        all[0] = all[1] = all[2] = all[3] = both(both(all[0], all[1]), both(all[2], all[3]));
#pragma unroll
    for (int i = 0; i < SWEEPS; i++)
        all[i] = reduce_span(all[i], g.lanes_log);
    const span low = lane & 1 ? all[1] : all[0], high = lane & 1 ? all[3] : all[2];
    return lane & 2 ? high : low;
}

// The codes of a lane's octets, of which the lanes from `from` on have the scales.
__device__ __forceinline__ void round_sweeps(const group_shape &g, const float (&x)[SWEEPS][OCTET], const scale &mine,
                                             u32 from, u64 first, const lane_place &p, uint2 (&codes)[SWEEPS]) {
#pragma unroll
    for (int i = 0; i < SWEEPS; i++) {
        scale s = mine;
        s.least = __shfl_sync(ALL_LANES, mine.least, (int)(from + i));
        s.inverse = __shfl_sync(ALL_LANES, mine.inverse, (int)(from + i));
        codes[i] = g.stochastic
                       ? round_random(g, x[i], s, first + p.group + i * g.next_group, (p.j + i * g.next_value) / OCTET)
                       : round_plain(x[i], s.least, s.inverse, g.base);
    }
}

// Those behind the limit are not there, and those that are not plain are left to compress_odd.
__device__ __forceinline__ void store_sweeps(const group_shape &g, u8 *to, const lane_place &p, u32 plain, u32 from,
                                             const uint2 (&codes)[SWEEPS]) {
    to += p.at / OCTET * g.bits;
    const u32 step = p.next / OCTET * g.bits;
#pragma unroll
    for (int i = 0; i < SWEEPS; i++)
        if (p.at + i * p.next < p.limit && plain >> (from + i) & 1)
            store_codes(to + i * step, g.bits, codes[i]);
}

// Writes a lane's octets of `whole` groups from `first` on. Bit `l` of the answer: the group of sweep `l mod SWEEPS` of
// lane l is done; another one is for compress_odd.
template <comet_dtype D>
__device__ __forceinline__ u32 compress_sweeps(const group_shape &g, const void *tensor, u8 *body, u64 first, u32 whole,
                                               u32 lane) {
    const lane_place p = place_of(g, whole, lane);
    const u32 part = lane & ((1u << g.lanes_log) - 1), from = lane - part;
    float x[SWEEPS][OCTET];
    uint2 codes[SWEEPS];
    scale s;
    load_sweeps<D>(tensor, first * g.values, p, x);
    const bool is_plain = find_scale(span_of_sweep(g, x, lane), g.bits, &s);
    const u32 plain = __ballot_sync(ALL_LANES, is_plain);
    round_sweeps(g, x, s, from, first, p, codes);
    const u32 group = p.group + part * g.next_group; // of a group that has all sweeps, SWEEPS times the same
    if (part < SWEEPS && is_plain && group < whole)
        write_pair(body, first + group, s);
    if (p.has_values)
        store_sweeps(g, codes_of(g, body, first * g.values), p, plain, from, codes);
    return plain;
}

// The groups of a warp from `first` on.
template <comet_dtype D>
__device__ __forceinline__ void compress_groups(const group_shape &g, const void *tensor, u8 *body, u64 first,
                                                u32 lane) {
    const u32 whole = g.whole > first ? (u32)min(g.whole - first, (u64)g.a_warp) : 0;
    const u32 plain = whole ? compress_sweeps<D>(g, tensor, body, first, whole, lane) : ALL_LANES;
    const bool has_rest = whole < g.a_warp && first + whole < g.groups;
    if (plain == ALL_LANES && !has_rest)
        return;
#pragma unroll 1
    for (u32 i = 0; i < whole; i++) {
        const u32 sweep = g.next_group ? i / g.next_group : 0, from = (i - sweep * g.next_group) << g.lanes_log;
        if (!(plain >> (from + sweep) & 1))
            compress_odd<D>(g, tensor, body, first + i, lane);
    }
    if (has_rest)
        compress_odd<D>(g, tensor, body, first + whole, lane);
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS, SMALL_BLOCKS)
    compress_small(const __grid_constant__ write_frame f, const __grid_constant__ group_shape g, const void *tensor) {
    u8 *body = begin_stream(f, g.bytes);
    if (!body)
        return;
    const u64 step = (u64)gridDim.x * WARPS * g.a_warp;
    for (u64 first = ((u64)blockIdx.x * WARPS + threadIdx.x / 32) * g.a_warp; first < g.groups; first += step)
        compress_groups<D>(g, tensor, body, first, threadIdx.x % 32);
}

// ---- larger groups: a block reads its group twice, the second time out of a cache ----

__device__ __forceinline__ extent reduce_block(extent e) {
    __shared__ extent of_warps[WARPS];
    e = reduce_warp(e);
    __syncthreads(); // the last group's have been read
    if (threadIdx.x % 32 == 0)
        of_warps[threadIdx.x / 32] = e;
    __syncthreads();
    e = of_warps[0];
    for (int i = 1; i < WARPS; i++)
        e = {min(e.least, of_warps[i].least), max(e.greatest, of_warps[i].greatest)};
    return e;
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    compress_large(const __grid_constant__ write_frame f, const __grid_constant__ group_shape g, const void *tensor) {
    u8 *body = begin_stream(f, g.bytes);
    if (!body)
        return;
    for (u64 group = blockIdx.x; group < g.groups; group += gridDim.x) {
        const extent e = reduce_block(measure<D>(tensor, group * g.values, values_of(g, group), threadIdx.x, THREADS));
        write_group<D>(g, tensor, body, group, scale_of(e, g.bits), threadIdx.x, THREADS);
    }
}

// ---- decompressing ----

// A vector's codes, BYTES that lie at a multiple of that.
template <int BYTES> __device__ __forceinline__ u64 load_codes(const u8 *from) {
    if constexpr (BYTES == 8)
        return *(const u64 *)from;
    else if constexpr (BYTES == 4)
        return *(const u32 *)from;
    else if constexpr (BYTES == 2)
        return *(const u16 *)from;
    else
        return *from;
}

__device__ __forceinline__ bool pair_is_valid(float2 pair) {
    return fabsf(pair.x) <= FLT_MAX && pair.y >= 0.0f && pair.y <= FLT_MAX;
}

template <int BITS> __device__ __forceinline__ float step_of(float2 pair) {
    return __fdiv_rn(pair.y, (float)((1u << BITS) - 1));
}

// One rounding above the greatest value could be infinity.
__device__ __forceinline__ float value_of(u32 code, float step, float least) {
    float v = __fmaf_rn((float)code, step, least);
    return v < FLT_MAX ? v : FLT_MAX;
}

template <comet_dtype D, int BITS>
__device__ __forceinline__ void store_vector(float2 pair, u64 codes, void *tensor, u64 at) {
    constexpr int V = vector_values<D>;
    float step = step_of<BITS>(pair), y[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        y[i] = value_of((u32)(codes >> BITS * i) & ((1u << BITS) - 1), step, pair.x);
    store_values<D, V>(tensor, at, y);
}

// The values behind the last whole vector, less than one; a bit behind their codes is an error.
template <comet_dtype D, int BITS>
__device__ void read_last(const read_frame &f, const group_shape &g, const u8 *body, void *tensor) {
    float2 pair = ((const float2 *)body)[g.groups - 1];
    u32 n = (u32)(g.count % vector_values<D>), used = n * BITS % 8;
    const u8 *codes = body + g.codes_at + (g.count - n) * BITS / 8;
    if (!pair_is_valid(pair) || (used && codes[n * BITS / 8] >> used)) {
        report(f, COMET_ERROR_CORRUPT);
        return;
    }
    for (u32 i = 0; i < n; i++) {
        u32 code = codes[i * BITS / 8] >> i * BITS % 8 & ((1u << BITS) - 1);
        store_value<D>(tensor, g.count - n + i, value_of(code, step_of<BITS>(pair), pair.x));
    }
}

// READ_UNROLL vectors from `first` on, THREADS apart, of `there` that are left.
template <comet_dtype D, int BITS>
__device__ __forceinline__ void read_tile(const read_frame &f, const group_shape &g, const u8 *body, void *tensor,
                                          u64 first, u64 there) {
    constexpr int V = vector_values<D>, BYTES = V * BITS / 8;
    float2 pairs[READ_UNROLL];
    u64 codes[READ_UNROLL];
    quotient group = split(first, g.by_group);
    const float2 *pair = (const float2 *)body + group.of;
    const u8 *code = body + g.codes_at + first * BYTES;
#pragma unroll
    for (int i = 0; i < READ_UNROLL; i++) {
        u32 vector = threadIdx.x + i * THREADS;
        bool is_there = vector < there;
        pairs[i] = is_there ? pair[divide_small((u32)group.rest + vector, g.by_group)] : make_float2(0.0f, 0.0f);
        codes[i] = is_there ? load_codes<BYTES>(code + vector * BYTES) : 0;
    }
#pragma unroll
    for (int i = 0; i < READ_UNROLL; i++) {
        u32 vector = threadIdx.x + i * THREADS;
        if (!pair_is_valid(pairs[i]))
            report(f, COMET_ERROR_CORRUPT);
        else if (vector < there)
            store_vector<D, BITS>(pairs[i], codes[i], tensor, (first + vector) * V);
    }
}

template <comet_dtype D, int BITS>
__global__ static void __launch_bounds__(THREADS) decompress_kernel(read_frame f, group_shape g, void *tensor) {
    const u8 *stream = open_stream(f, g.bytes);
    if (!stream)
        return;
    constexpr u64 TILE = THREADS * READ_UNROLL, V = vector_values<D>;
    const u8 *body = stream + STREAM_HEADER_BYTES;
    u64 vectors = g.count / V;
    for (u64 first = blockIdx.x * TILE; first < vectors; first += gridDim.x * TILE)
        read_tile<D, BITS>(f, g, body, tensor, first, vectors - first);
    if (blockIdx.x == 0 && threadIdx.x == 0 && g.count % V)
        read_last<D, BITS>(f, g, body, tensor);
}

// ---- host ----

constexpr u64 A_SWEEP = 32 * OCTET; // values that a warp has at once

static void set_sweeps(group_shape *g) {
    u32 lanes = LEAST_LANES;
    g->lanes_log = 2;
    while (lanes < 32 && lanes * OCTET < g->values)
        lanes *= 2, g->lanes_log++;
    const bool is_one = g->values > A_SWEEP; // one group a warp, or several in each sweep
    g->next_group = is_one ? 0 : 32 / lanes;
    g->next_value = is_one ? (u32)A_SWEEP : 0;
    g->a_warp = is_one ? 1 : SWEEPS * g->next_group;
    g->whole = g->count / g->values;
}

static group_shape shape_of(const comet_tensor *tensor, const comet_codec_params *p) {
    group_shape g = {};
    g.count = (u64)comet_tensor_count(tensor);
    g.values = (u64)p->group_values;
    g.groups = (g.count + g.values - 1) / g.values;
    g.bits = (u32)p->group_bits;
    g.base = 1u << g.bits;
    g.codes_at = g.groups * sizeof(float2);
    g.bytes = STREAM_HEADER_BYTES + g.codes_at + (g.count * g.bits + 7) / 8;
    g.stochastic = p->rounding == COMET_ROUND_STOCHASTIC;
    g.seed = p->seed;
    g.by_group = divider_of(g.values * comet_dtype_size(tensor->dtype) / 16);
    set_sweeps(&g);
    return g;
}

static comet_status check(const comet_tensor *tensor, const comet_codec_params *) {
    return tensor->dtype == COMET_U8 ? COMET_ERROR_UNSUPPORTED : COMET_OK;
}

static void describe(const comet_tensor *, const comet_codec_params *params, stream_header *header) {
    if (params->rounding == COMET_ROUND_STOCHASTIC)
        header->flags |= STREAM_STOCHASTIC;
    header->parameter = (uint32_t)params->group_bits;
    header->wide_parameter = (uint64_t)params->group_values;
}

static size_t body_max_bytes(const comet_tensor *tensor, const comet_codec_params *params) {
    return shape_of(tensor, params).bytes - STREAM_HEADER_BYTES;
}

template <comet_dtype D> static cudaError_t launch_compress(const cuda_compress_job *job, const group_shape &g) {
    write_frame f = write_frame_of(job);
    const void *data = job->tensor->data;
    if (g.values <= A_SWEEP * SWEEPS)
        return launch(compress_small<D>, grid_for(g.groups, WARPS * g.a_warp), THREADS, job->queue, f, g, data);
    return launch(compress_large<D>, grid_for(g.groups, 1), THREADS, job->queue, f, g, data);
}

static cudaError_t compress(const cuda_compress_job *job) {
    group_shape g = shape_of(job->tensor, job->params);
    return with_dtype(job->tensor->dtype, [&](auto dtype) { return launch_compress<decltype(dtype)::value>(job, g); });
}

template <comet_dtype D, int BITS>
static cudaError_t launch_decompress(const cuda_decompress_job *job, const group_shape &g) {
    return launch(decompress_kernel<D, BITS>, grid_for(g.count, (u64)vector_values<D> * THREADS * READ_UNROLL), THREADS,
                  job->queue, read_frame_of(job, g.bytes), g, job->tensor->data);
}

static cudaError_t decompress(const cuda_decompress_job *job) {
    group_shape g = shape_of(job->tensor, job->params);
    return with_dtype(job->tensor->dtype, [&](auto dtype) {
        constexpr comet_dtype D = decltype(dtype)::value;
        return g.bits == 2   ? launch_decompress<D, 2>(job, g)
               : g.bits == 4 ? launch_decompress<D, 4>(job, g)
                             : launch_decompress<D, 8>(job, g);
    });
}

const cuda_codec_vtable comet_cuda_group = {check, describe, body_max_bytes, nullptr, compress, decompress};
