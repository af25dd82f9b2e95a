// SPDX-License-Identifier: Apache-2.0
// group on the device: 2, 4 or 8 bits a value between the least and the greatest value of its group (docs/codecs.md,
// section 4).
#include <float.h>

#include "codec/cuda/divide.cuh"
#include "codec/cuda/frame.cuh"
#include "codec/cuda/values.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int OCTET = 8;       // values of a lane side by side: whole bytes of codes, and one draw of random bits
constexpr int MOST_SWEEPS = 4; // octets of a lane that are kept in registers between measuring and coding
constexpr int LEAST_LANES = 4; // 32 values
constexpr int READ_UNROLL = 4; // vectors of 16 bytes that a thread decodes at a time
constexpr float LEAST_RANGE = 0x1p-100f;

struct group_shape {
    u64 count, values, groups;
    u32 bits;
    u64 codes_at, bytes; // from the body's start; of the whole stream
    bool stochastic;
    u64 seed;
    u32 lanes;        // compressing: lanes of a warp that share a group, a power of two
    divider by_group; // decompressing: vectors a group
};

// ---- minimum and range ----

struct extent {
    int least, greatest; // patterns in the order of the values
};

// fp32 patterns as integers in the order of the values, -0 below +0; its own inverse.
__device__ __forceinline__ int order_of(int pattern) {
    return pattern ^ (int)((u32)(pattern >> 31) >> 1);
}

__device__ __forceinline__ void extend(extent *e, float x) {
    int pattern = __float_as_int(x), order = order_of(pattern);
    bool finite = (pattern & 0x7fffffff) < 0x7f800000;
    e->least = min(e->least, finite ? order : INT32_MAX);
    e->greatest = max(e->greatest, finite ? order : INT32_MIN);
}

// Over `lanes` neighbouring lanes, a power of two.
__device__ __forceinline__ extent reduce_lanes(extent e, u32 lanes) {
    if (lanes == 32)
        return {__reduce_min_sync(ALL_LANES, e.least), __reduce_max_sync(ALL_LANES, e.greatest)};
    for (u32 apart = lanes / 2; apart; apart /= 2) {
        e.least = min(e.least, __shfl_xor_sync(ALL_LANES, e.least, (int)apart));
        e.greatest = max(e.greatest, __shfl_xor_sync(ALL_LANES, e.greatest, (int)apart));
    }
    return e;
}

struct scale {
    float least, range, inverse, levels;
};

__device__ __forceinline__ scale scale_of(extent e, u32 bits) {
    scale s = {0.0f, 0.0f, 0.0f, (float)((1u << bits) - 1)};
    if (e.least > e.greatest)
        return s; // nothing finite
    s.least = __int_as_float(order_of(e.least));
    float width = __fsub_rn(__int_as_float(order_of(e.greatest)), s.least);
    if (width >= LEAST_RANGE) {
        s.range = width <= FLT_MAX ? width : FLT_MAX;
        s.inverse = __fdiv_rn(s.levels, s.range);
    }
    return s;
}

// ---- codes ----

// Values j .. j + 7 of a group of n at `first`; NaN, which counts for nothing and has code 0, behind the last. Octets
// that are cut short are left to patch_octet: a load without an alternative is one instruction, and several are in
// flight.
template <comet_dtype D>
__device__ __forceinline__ void load_octet(const void *tensor, u64 first, u32 j, u32 n, float *x) {
    constexpr int V = vector_values<D>;
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        x[i] = __int_as_float(0x7fc00000);
    if (j + OCTET <= n)
#pragma unroll
        for (int i = 0; i < OCTET; i += V)
            load_values<D, V>(tensor, first + j + i, x + i);
}

template <comet_dtype D>
__device__ __forceinline__ void patch_octet(const void *tensor, u64 first, u32 j, u32 n, float *x) {
    if (j < n && j + OCTET > n)
#pragma unroll
        for (int i = 0; i < OCTET; i++)
            if (j + i < n)
                x[i] = load_value<D>(tensor, first + j + i);
}

// A value's place between 0 and `levels`; NaN, and everything if the inverse is 0, at 0.
__device__ __forceinline__ float place(float x, const scale &s) {
    float p = __fmul_rn(__fsub_rn(x, s.least), s.inverse);
    p = p > 0.0f ? p : 0.0f;
    return p < s.levels ? p : s.levels;
}

// base/philox.h
__device__ __forceinline__ void philox(u32 (&c)[4], u64 key) {
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        u64 p0 = (u64)0xD2511F53u * c[0], p1 = (u64)0xCD9E8D57u * c[2];
        c[0] = (u32)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (u32)p1;
        c[2] = (u32)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (u32)p0;
    }
}

// Adding 2^23 leaves the nearest integer, ties to even, in the low bits.
__device__ __forceinline__ void round_nearest(const float *x, const scale &s, u32 (&codes)[OCTET]) {
#pragma unroll
    for (int i = 0; i < OCTET; i++)
        codes[i] = __float_as_uint(__fadd_rn(place(x[i], s), 0x1p23f)) & 0xffu;
}

__device__ __forceinline__ void round_random(const float *x, const scale &s, u64 seed, u64 group, u32 octet,
                                             u32 (&codes)[OCTET]) {
    u32 r[4] = {(u32)group, (u32)(group >> 32), octet, 1};
    philox(r, seed);
#pragma unroll
    for (int i = 0; i < OCTET; i++) {
        int bits = (int)(r[i / 2] >> 16 * (i % 2) & 0xffffu);
        float sum = __fadd_rn(place(x[i], s), __fmul_rn((float)(2 * bits + 1), 0x1p-17f));
        codes[i] = (u32)(int)(sum < s.levels ? sum : s.levels); // the sum may round up to levels + 1
    }
}

// BITS * 8 bits.
template <int BITS> __device__ __forceinline__ u64 pack(const u32 (&codes)[OCTET]) {
    u32 low = 0, high = 0; // four codes each
#pragma unroll
    for (int i = 0; i < 4; i++) {
        low |= codes[i] << BITS * i;
        high |= codes[4 + i] << BITS * i;
    }
    return low | (u64)high << 4 * BITS;
}

// n of the octet's codes are there; those behind are 0.
__device__ __forceinline__ void store_codes(u8 *to, u32 bits, u32 n, const u32 (&codes)[OCTET]) {
    u64 packed = bits == 2 ? pack<2>(codes) : bits == 4 ? pack<4>(codes) : pack<8>(codes);
    if (n < OCTET)
        for (u32 i = 0; 8 * i < n * bits; i++)
            to[i] = (u8)(packed >> 8 * i);
    else if (bits == 2)
        *(u16 *)to = (u16)packed;
    else if (bits == 4)
        *(u32 *)to = (u32)packed;
    else
        *(u64 *)to = packed;
}

// The octet from value j of the group's n on.
__device__ __forceinline__ void write_octet(const group_shape &g, u8 *body, u64 group, u32 j, u32 n, const float *x,
                                            const scale &s) {
    u32 codes[OCTET];
    if (g.stochastic)
        round_random(x, s, g.seed, group, j / OCTET, codes);
    else
        round_nearest(x, s, codes);
    u64 octet = (group * g.values + j) / OCTET;
    store_codes(body + g.codes_at + octet * g.bits, g.bits, min(n - j, (u32)OCTET), codes);
}

__device__ __forceinline__ void write_pair(u8 *body, u64 group, const scale &s) {
    ((float2 *)body)[group] = make_float2(s.least, s.range);
}

// ---- compressing ----

__device__ __forceinline__ u32 values_of(const group_shape &g, u64 group) {
    return group < g.groups ? (u32)min(g.values, g.count - group * g.values) : 0;
}

// Groups of up to SWEEPS * 256 values: a warp, or a part of one, has a group in registers.
template <comet_dtype D, int SWEEPS>
__global__ static void __launch_bounds__(THREADS) compress_small(write_frame f, group_shape g, const void *tensor) {
    u8 *body = begin_stream(f, g.bytes);
    if (!body)
        return;
    u32 a_warp = 32 / g.lanes, lane = threadIdx.x % 32, part = lane % g.lanes;
    u64 warps = (u64)gridDim.x * WARPS;
    for (u64 w = (u64)blockIdx.x * WARPS + threadIdx.x / 32; w * a_warp < g.groups; w += warps) {
        u64 group = w * a_warp + lane / g.lanes;
        u32 n = values_of(g, group);
        float x[SWEEPS][OCTET];
        extent e = {INT32_MAX, INT32_MIN};
#pragma unroll
        for (int i = 0; i < SWEEPS; i++)
            load_octet<D>(tensor, group * g.values, (i * g.lanes + part) * OCTET, n, x[i]);
        if (n % OCTET)
#pragma unroll
            for (int i = 0; i < SWEEPS; i++)
                patch_octet<D>(tensor, group * g.values, (i * g.lanes + part) * OCTET, n, x[i]);
#pragma unroll
        for (int i = 0; i < SWEEPS * OCTET; i++)
            extend(&e, x[i / OCTET][i % OCTET]);
        scale s = scale_of(reduce_lanes(e, g.lanes), g.bits);
        if (part == 0 && n)
            write_pair(body, group, s);
#pragma unroll
        for (int i = 0; i < SWEEPS; i++)
            if ((i * g.lanes + part) * OCTET < n)
                write_octet(g, body, group, (i * g.lanes + part) * OCTET, n, x[i], s);
    }
}

__device__ __forceinline__ extent reduce_block(extent e) {
    __shared__ extent of_warps[WARPS];
    e = reduce_lanes(e, 32);
    __syncthreads(); // the last group's have been read
    if (threadIdx.x % 32 == 0)
        of_warps[threadIdx.x / 32] = e;
    __syncthreads();
    e = of_warps[0];
    for (int i = 1; i < WARPS; i++)
        e = {min(e.least, of_warps[i].least), max(e.greatest, of_warps[i].greatest)};
    return e;
}

// Larger groups: a block reads its group twice, the second time out of a cache.
template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS) compress_large(write_frame f, group_shape g, const void *tensor) {
    u8 *body = begin_stream(f, g.bytes);
    if (!body)
        return;
    for (u64 group = blockIdx.x; group < g.groups; group += gridDim.x) {
        u32 n = values_of(g, group);
        extent e = {INT32_MAX, INT32_MIN};
        float x[OCTET];
#pragma unroll 4
        for (u32 j = threadIdx.x * OCTET; j < n; j += THREADS * OCTET) {
            load_octet<D>(tensor, group * g.values, j, n, x);
            patch_octet<D>(tensor, group * g.values, j, n, x);
            for (int i = 0; i < OCTET; i++)
                extend(&e, x[i]);
        }
        scale s = scale_of(reduce_block(e), g.bits);
        if (threadIdx.x == 0)
            write_pair(body, group, s);
#pragma unroll 2
        for (u32 j = threadIdx.x * OCTET; j < n; j += THREADS * OCTET) {
            load_octet<D>(tensor, group * g.values, j, n, x);
            patch_octet<D>(tensor, group * g.values, j, n, x);
            write_octet(g, body, group, j, n, x, s);
        }
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

static u32 lanes_for(u64 values) {
    u32 lanes = LEAST_LANES;
    while (lanes < 32 && lanes * OCTET < values)
        lanes *= 2;
    return lanes;
}

static group_shape shape_of(const comet_tensor *tensor, const comet_codec_params *p) {
    group_shape g = {};
    g.count = (u64)comet_tensor_count(tensor);
    g.values = (u64)p->group_values;
    g.groups = (g.count + g.values - 1) / g.values;
    g.bits = (u32)p->group_bits;
    g.codes_at = g.groups * sizeof(float2);
    g.bytes = STREAM_HEADER_BYTES + g.codes_at + (g.count * g.bits + 7) / 8;
    g.stochastic = p->rounding == COMET_ROUND_STOCHASTIC;
    g.seed = p->seed;
    g.lanes = lanes_for(g.values);
    g.by_group = divider_of(g.values * comet_dtype_size(tensor->dtype) / 16);
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
    dim3 grid = grid_for(g.groups, WARPS * (32 / g.lanes));
    if (g.values <= 32 * OCTET)
        return launch(compress_small<D, 1>, grid, THREADS, job->queue, f, g, data);
    if (g.values <= 32 * OCTET * MOST_SWEEPS)
        return launch(compress_small<D, MOST_SWEEPS>, grid, THREADS, job->queue, f, g, data);
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
