// SPDX-License-Identifier: Apache-2.0
// Many values through eb and zvc on a GPU: made on the device, compressed and decompressed by the library, and checked
// on the device. fp32, fp16 and bf16, all modes, all ways to lie in memory. Not part of the ordinary tests.
//
//     cuda_eb [VALUES] [SEED]      VALUES: as 1e9 (the default) or 1e11; from 1e10 on some tensors have more than 2^32
//
// The checker shares nothing with the library and rounds nothing away. Patterns of all three types are exact as fp64.
// The difference d of two of them need not be (their exponents may be far apart), but it is computed with rounding up,
// and the bound B is a value of fp64: then RU(d) <= B if d <= B, as RU(d) is the least value of fp64 that is not below
// d, and RU(d) >= d > B otherwise. So the comparison is that of real numbers, for every pair of finite values.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comet/cuda.h"

namespace {

typedef unsigned long long u64;
typedef uint32_t u32;

enum { THREADS = 256, MOST_CHANNELS = 4096, DTYPES = 3 };
constexpr u64 USUAL_BYTES = 512ull << 20; // of a tensor as fp32
constexpr u64 LARGE_BYTES = 20ull << 30;  // the same where indices need more than 32 bits

enum Mode { NEAREST, STOCHASTIC, KEEP_MASK, GRID, ZVC, MODES };
const char *const mode_names[MODES] = {"nearest", "stochastic", "keep-mask", "grid", "zvc"};

// What values look like; MIXED: another kind every 4,096 values.
enum Kind { NORMAL, UNIFORM, RELU, SMOOTH, HEAVY, EDGES, SUBNORMAL, FEW, OUTLIERS, ANY_BITS, MIXED, KINDS };
const char *const kind_names[KINDS] = {"normal",    "uniform", "relu",     "smooth", "heavy", "edges",
                                       "subnormal", "few",     "outliers", "bits",   "mixed"};

void must(cudaError_t error, const char *what, int line) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "line %d: %s: %s\n", line, what, cudaGetErrorString(error));
    exit(2);
}

void must(comet_status status, const char *what, int line) {
    if (status == COMET_OK)
        return;
    fprintf(stderr, "line %d: %s: %s\n", line, what, comet_status_string(status));
    exit(2);
}

#define MUST(call) must((call), #call, __LINE__)

double now() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- random numbers, from a counter ----

__host__ __device__ u64 mix(u64 z) {
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

__host__ __device__ float unit(u32 bits) { // 0 < u < 1
    return ((float)(bits >> 8) + 0.5f) * 0x1p-24f;
}

struct HostRng {
    u64 seed, counter;
    u64 next() {
        return mix(seed + 0x632be59bd9b4e019ull * ++counter);
    }
    u64 below(u64 n) {
        return next() % n;
    }
    float uniform() {
        return unit((u32)(next() >> 32));
    }
};

// ---- values ----

struct Making {
    u64 seed, count;
    float scale, bound;
    int kind, dtype, mode;
    const float *threshold; // a grid's, of the channel i / stride mod channels
    u64 stride, channels;
};

__device__ u32 pattern_of(int dtype, float v) {
    if (dtype == COMET_F32)
        return __float_as_uint(v);
    return dtype == COMET_F16 ? __half_as_ushort(__float2half_rn(v)) : __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

__device__ float normal(u64 r) {
    float radius = sqrtf(-2.0f * __logf(unit((u32)r)));
    return radius * __cosf(6.2831853f * unit((u32)(r >> 32)));
}

// v with all but its n leading bits cleared, as the format cuts its steps.
__device__ float cut(float v, int n) {
    return __uint_as_float(__float_as_uint(v) & (0xffffffffu << (24 - n)));
}

// On the edge of a bin or in its middle, for one of the steps that the format may use; counted from `from`, for a grid
// the threshold. How far away is decided for many values at once, as one that is far decides for its whole tile.
__device__ float on_edge(const Making &m, u64 i, u64 r, float from) {
    const int bits[8] = {1, 2, 3, 4, 6, 16, 16, 16}, reach[8] = {4, 14, 30, 60, 120, 124, 7000, 31000};
    float target = m.mode == STOCHASTIC || (r & 7) == 0 ? m.bound : 2.0f * m.bound;
    target *= (r >> 3 & 3) == 0 ? 1.0f : (r >> 3 & 3) == 1 ? 1.0f - 0x1p-6f : 1.0f - 0x1p-12f;
    float step = cut(target, bits[r >> 5 & 7]);
    int most = reach[mix(m.seed ^ 0xed9e ^ (i >> 13)) & 7], k = (int)((r >> 10) % (2 * (u64)most + 1)) - most;
    return from + ((float)k + ((r >> 40 & 1) ? 0.5f : 0.0f)) * step;
}

// A pattern a few places away; not past zero, and finite stays finite.
__device__ u32 nudged(int dtype, u32 p, int by) {
    u32 sign = dtype == COMET_F32 ? 0x80000000u : 0x8000u, magnitude = p & (sign - 1);
    u32 infinity = dtype == COMET_F32 ? 0x7f800000u : dtype == COMET_F16 ? 0x7c00u : 0x7f80u;
    int moved = (int)magnitude + by;
    return moved < 0 || moved >= (int)infinity ? p : (p & sign) | (u32)moved;
}

__device__ float plain_value(const Making &m, int kind, u64 i, u64 r) {
    float n = m.scale * normal(r);
    switch (kind) {
    case UNIFORM:
        return m.scale * (2.0f * unit((u32)r) - 1.0f);
    case RELU:
        return n > 0.0f ? n : 0.0f;
    case SMOOTH:
        return m.scale * __sinf(0.02f * (float)(i & 0xffff)) + 0.05f * n;
    case HEAVY:
        return ldexpf(n, (int)(r >> 60) - 8);
    case FEW:
        return (r >> 50 & 511) == 0 ? n : 0.0f;
    case OUTLIERS:
        return (r >> 50 & 1023) == 0 ? 3000.0f * n : n;
    default:
        return n;
    }
}

// NaN of any payload and infinities, in some of the tiles: a tile that has one is stored exactly.
__device__ u32 sprinkled(const Making &m, u64 i, u64 r, u32 p) {
    if ((mix(m.seed ^ 0x5eed ^ (i >> 10)) & 63) != 0 || (r >> 30 & 255) != 0)
        return p;
    u32 infinity = m.dtype == COMET_F32 ? 0x7f800000u : m.dtype == COMET_F16 ? 0x7c00u : 0x7f80u;
    u32 mask = m.dtype == COMET_F32 ? 0xffffffffu : 0xffffu;
    return ((u32)(r >> 40) & 1 ? (u32)mix(r) | infinity : infinity) & mask;
}

__device__ u32 value_at(const Making &m, u64 i) {
    u64 r = mix(m.seed + i * 0xd1342543de82ef95ull);
    int kind = m.kind == MIXED ? (int)(mix(m.seed ^ (i >> 12)) % MIXED) : m.kind;
    u32 mask = m.dtype == COMET_F32 ? 0xffffffffu : 0xffffu;
    if (kind == ANY_BITS)
        return (u32)(r >> 16) & mask;
    if (kind == SUBNORMAL)
        return (((u32)r & 1023) | ((r >> 60 & 1) ? (m.dtype == COMET_F32 ? 0x80000000u : 0x8000u) : 0)) & mask;
    if (kind == EDGES) {
        float from = m.mode == GRID ? m.threshold[i / m.stride % m.channels] : 0.0f;
        from = fabsf(from) <= 3e38f ? from : 0.0f;
        return nudged(m.dtype, pattern_of(m.dtype, on_edge(m, i, r, from)), (int)(r >> 45 & 7) - 4);
    }
    return sprinkled(m, i, r, pattern_of(m.dtype, plain_value(m, kind, i, r)));
}

__global__ void make_values(Making m, void *values) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < m.count; i += (u64)gridDim.x * THREADS) {
        u32 p = value_at(m, i);
        if (m.dtype == COMET_F32)
            ((u32 *)values)[i] = p;
        else
            ((uint16_t *)values)[i] = (uint16_t)p;
    }
}

// ---- the checker ----

struct Counts {
    u64 over_bound, zeros, mask, special, side, bits;
    u64 first; // index of the first value that is wrong
    u32 worst; // largest |x - x'| / bound, as the bits of a float
    u32 reserved;
};

u64 wrong(const Counts &c) {
    return c.over_bound + c.zeros + c.mask + c.special + c.side + c.bits;
}

struct Checking {
    const void *before, *after;
    u64 count;
    double bound;
    int dtype, mode; // of the input
    const float *scale, *shift, *threshold, *slope;
    u64 stride, channels;
    Counts *counts;
};

// The type of the decoded values.
__host__ __device__ int output_dtype(int dtype, int mode) {
    return mode == GRID ? (int)COMET_F32 : dtype;
}

// Patterns to fp32, from the definition; every bit of a NaN is kept. Exact.
__device__ u32 widened(int dtype, u32 p) {
    if (dtype == COMET_F32)
        return p;
    if (dtype == COMET_BF16)
        return p << 16;
    u32 sign = (p & 0x8000u) << 16, exponent = p >> 10 & 31, fraction = p & 0x3ffu;
    if (exponent == 31)
        return sign | 0x7f800000u | fraction << 13;
    if (exponent == 0)
        return sign | __float_as_uint((float)fraction * 0x1p-24f);
    return sign | (exponent + 112) << 23 | fraction << 13;
}

__device__ bool is_finite(u32 p) {
    return (p & 0x7f800000u) != 0x7f800000u;
}

// What is stored of a value with a grid: fma(scale, x, shift).
__device__ u32 stored(const Checking &c, u32 p, u64 channel) {
    if (!c.scale && !c.shift)
        return p;
    if ((p & 0x7fffffffu) > 0x7f800000u)
        return p | 0x400000u; // arithmetic makes a NaN quiet
    float x = __uint_as_float(p);
    float y = __fmaf_rn(c.scale ? c.scale[channel] : 1.0f, x, c.shift ? c.shift[channel] : 0.0f);
    return y != y ? 0x7fc00000u : __float_as_uint(y);
}

__device__ void complain(Counts *n, u64 *which, u64 i) {
    atomicAdd(which, 1ull);
    atomicMin(&n->first, i);
}

__device__ void check_side(const Checking &c, u64 i, u64 channel, double x, double y) {
    double h = (double)c.threshold[channel];
    if (h != h)
        return;
    bool falls = c.slope && c.slope[channel] < 0.0f;
    if (falls ? (x < h) != (y < h) : (x > h) != (y > h))
        complain(c.counts, &c.counts->side, i);
}

// Both as patterns of fp32. Returns |x - x'| / bound.
__device__ float check_value(const Checking &c, u64 i, u64 channel, u32 before, u32 after) {
    Counts *n = c.counts;
    if (before == after)
        return 0.0f;
    if (c.bound == 0.0) {
        complain(n, &n->bits, i);
        return 0.0f;
    }
    if (!is_finite(before)) {
        complain(n, &n->special, i);
        return 0.0f;
    }
    double x = (double)__uint_as_float(before), y = (double)__uint_as_float(after);
    double error = x > y ? __dsub_ru(x, y) : __dsub_ru(y, x);
    if (!is_finite(after) || !(error <= c.bound))
        complain(n, &n->over_bound, i);
    if (c.mode == GRID)
        check_side(c, i, channel, x, y);
    else if (x == 0.0 && y != 0.0)
        complain(n, &n->zeros, i);
    if (c.mode == KEEP_MASK && ((x > 0.0) != (y > 0.0) || (x < 0.0) != (y < 0.0)))
        complain(n, &n->mask, i);
    return (float)(error / c.bound);
}

template <int BYTES> struct Four; // patterns, four at a time
template <> struct Four<4> {
    u32 p[4];
    __device__ Four(const void *from, u64 i) {
        uint4 v = ((const uint4 *)from)[i];
        p[0] = v.x, p[1] = v.y, p[2] = v.z, p[3] = v.w;
    }
};
template <> struct Four<2> {
    u32 p[4];
    __device__ Four(const void *from, u64 i) {
        uint2 v = ((const uint2 *)from)[i];
        p[0] = v.x & 0xffff, p[1] = v.x >> 16, p[2] = v.y & 0xffff, p[3] = v.y >> 16;
    }
};

// Memory is allocated in fours, so that the last ones can be read whole.
template <int IN, int OUT> __global__ void check_values(Checking c) {
    float worst = 0.0f;
    u64 fours = (c.count + 3) / 4;
    int out = output_dtype(c.dtype, c.mode);
    for (u64 f = (u64)blockIdx.x * THREADS + threadIdx.x; f < fours; f += (u64)gridDim.x * THREADS) {
        Four<IN> before(c.before, f);
        Four<OUT> after(c.after, f);
        for (int k = 0; k < 4; k++) {
            u64 i = 4 * f + (u64)k, channel = c.mode == GRID ? i / c.stride % c.channels : 0;
            if (i >= c.count)
                break;
            u32 x = widened(c.dtype, before.p[k]);
            x = c.mode == GRID ? stored(c, x, channel) : x;
            worst = fmaxf(worst, check_value(c, i, channel, x, widened(out, after.p[k])));
        }
    }
    for (int d = 16; d; d /= 2)
        worst = fmaxf(worst, __shfl_xor_sync(0xffffffffu, worst, d));
    if (threadIdx.x % 32 == 0 && worst > 0.0f)
        atomicMax(&c.counts->worst, __float_as_uint(worst));
}

unsigned blocks_for(u64 items) {
    u64 blocks = (items + THREADS - 1) / THREADS;
    return (unsigned)(blocks < 1 ? 1 : blocks < 16384 ? blocks : 16384);
}

void launch_check(const Checking &c, cudaStream_t queue) {
    unsigned blocks = blocks_for((c.count + 3) / 4);
    if (c.dtype == COMET_F32)
        check_values<4, 4><<<blocks, THREADS, 0, queue>>>(c);
    else if (c.mode == GRID)
        check_values<2, 4><<<blocks, THREADS, 0, queue>>>(c);
    else
        check_values<2, 2><<<blocks, THREADS, 0, queue>>>(c);
    MUST(cudaGetLastError());
}

// ---- the checker itself is checked ----

constexpr size_t NOTHING = ~(size_t)0;

struct Fault {
    const char *what;
    int mode;
    double bound;
    float before, after;
    size_t count; // offset of what must be counted; NOTHING: it is right
};

u64 faults_missed(void *memory) {
    const float inf = INFINITY;
    const Fault faults[] = {
        {"within the bound", NEAREST, 0.5, 1.0f, 1.5f, NOTHING},
        {"just over the bound", NEAREST, 0.5, 1.0f, 1.5000001f, offsetof(Counts, over_bound)},
        {"over by less than fp64 can tell", NEAREST, 0.5, 0.5f, -0x1p-149f, offsetof(Counts, over_bound)},
        {"not finite any more", NEAREST, 0.5, 1.0f, inf, offsetof(Counts, over_bound)},
        {"a zero lost", NEAREST, 0.5, 0.0f, 0x1p-149f, offsetof(Counts, zeros)},
        {"-0 became 0", NEAREST, 0.5, -0.0f, 0.0f, NOTHING},
        {"an infinity lost", NEAREST, 0.5, inf, 3e38f, offsetof(Counts, special)},
        {"a sign lost", KEEP_MASK, 0.5, 0x1p-149f, 0.0f, offsetof(Counts, mask)},
        {"a side lost", GRID, 0.5, 0.25f, 0.1875f, offsetof(Counts, side)},
        {"the side kept", GRID, 0.5, 0.1875f, -0.25f, NOTHING},
        {"a bit lost", ZVC, 0.0, -0.0f, 0.0f, offsetof(Counts, bits)},
    };
    u64 missed = 0;
    const float threshold = 0.1875f;
    float *values = (float *)memory;
    Counts *counts = (Counts *)((char *)memory + 256);
    for (const Fault &f : faults) {
        float host[9] = {f.before, 1, 1, 1, f.after, 1, 1, 1, threshold};
        Counts found, none = {};
        none.first = ~0ull;
        MUST(cudaMemcpy(values, host, sizeof host, cudaMemcpyHostToDevice));
        MUST(cudaMemcpy(counts, &none, sizeof none, cudaMemcpyHostToDevice));
        Checking c = {values, values + 4, 1, f.bound, COMET_F32, f.mode, NULL, NULL, values + 8, NULL, 1, 1, counts};
        launch_check(c, NULL);
        MUST(cudaMemcpy(&found, counts, sizeof found, cudaMemcpyDeviceToHost));
        u64 seen = f.count == NOTHING ? 0 : *(const u64 *)((const char *)&found + f.count);
        if (wrong(found) != seen || seen != (f.count != NOTHING)) {
            printf("the checker does not see: %s\n", f.what);
            missed++;
        }
    }
    return missed;
}

// ---- round trips ----

struct Shape {
    comet_layout layout;
    int ndim;
    int64_t shape[4]; // shape[0] is made to fill the tensor
};

const Shape shapes[] = {
    {COMET_NCHW, 4, {0, 64, 56, 56}},  {COMET_NCHW, 4, {0, 256, 28, 28}}, {COMET_NCHW, 4, {0, 512, 7, 7}},
    {COMET_NCHW, 4, {0, 3, 224, 224}}, {COMET_NCHW, 4, {0, 37, 13, 13}},  {COMET_NCHW, 4, {0, 24, 30, 50}},
    {COMET_NCHW, 4, {0, 5, 33, 129}},  {COMET_NCHW, 4, {0, 16, 9, 70}},   {COMET_NHWC, 4, {0, 56, 56, 64}},
    {COMET_NHWC, 4, {0, 28, 28, 256}}, {COMET_NHWC, 4, {0, 7, 7, 512}},   {COMET_NHWC, 4, {0, 14, 14, 37}},
    {COMET_NHWC, 4, {0, 9, 11, 3}},    {COMET_NHWC, 4, {0, 5, 5, 1001}},  {COMET_FLAT, 1, {0}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct Trip {
    comet_tensor in, out;
    comet_codec_params params;
    comet_codec_grid grid;
    Making making;
    int shape;
};

struct Bench {
    cudaStream_t queue;
    void *before, *after, *memory, *workspace;
    u64 most_bytes; // of a tensor as fp32
    size_t capacity, workspace_bytes;
    float *tables; // scale, shift, threshold, slope: MOST_CHANNELS each
    float *host_tables;
    comet_cuda_result *result, *host_result;
    int32_t *status;
    Counts *counts;
    HostRng rng;
    Counts sum[DTYPES][MODES];
    u64 values[DTYPES][MODES], tiles, tiles_exact, tiles_wide, trips, failed;
};

u64 inner_values(const Shape &s) {
    u64 n = 1;
    for (int d = 1; d < s.ndim; d++)
        n *= (u64)s.shape[d];
    return n;
}

u64 channels_of(const Shape &s) {
    return s.layout == COMET_NHWC ? (u64)s.shape[s.ndim - 1] : s.layout == COMET_NCHW ? (u64)s.shape[1] : 1;
}

u64 channel_stride(const Shape &s) {
    return s.layout == COMET_NCHW ? (u64)(s.shape[2] * s.shape[3]) : 1;
}

// Up to `most` values, mostly nearly as many; the last tile and the last group are ragged.
void choose_tensor(Bench *b, Trip *t, u64 most) {
    comet_dtype dtype = (comet_dtype)b->rng.below(DTYPES);
    t->shape = (int)b->rng.below(SHAPES);
    Shape s = shapes[t->shape];
    u64 fit = b->most_bytes / 4, inner = inner_values(s); // a grid's output is fp32
    fit = most < fit ? most : fit;
    s.shape[0] = (int64_t)(fit / inner ? fit / inner : 1);
    if (s.shape[0] > 100)
        s.shape[0] -= (int64_t)b->rng.below(100);
    MUST(comet_tensor_init_on(&t->in, comet_device{COMET_CUDA, 0}, b->before, dtype, s.layout, s.ndim, s.shape));
    t->out = t->in;
    t->out.data = b->after;
}

void choose_grid(Bench *b, Trip *t) {
    u64 channels = channels_of(shapes[t->shape]);
    float *scale = b->host_tables, *shift = scale + MOST_CHANNELS, *threshold = shift + MOST_CHANNELS,
          *slope = threshold + MOST_CHANNELS;
    for (u64 c = 0; c < channels; c++) {
        scale[c] = 2.0f * b->rng.uniform() - 1.0f;
        shift[c] = t->making.scale * (2.0f * b->rng.uniform() - 1.0f);
        threshold[c] = b->rng.below(16)  ? t->making.scale * (2.0f * b->rng.uniform() - 1.0f)
                       : b->rng.below(2) ? NAN
                                         : 0.0f;
        slope[c] = 2.0f * b->rng.uniform() - 1.0f;
    }
    MUST(cudaMemcpyAsync(b->tables, b->host_tables, 4 * MOST_CHANNELS * sizeof(float), cudaMemcpyHostToDevice,
                         b->queue));
    // values at edges are made of the stored value itself
    bool moves = t->making.kind != EDGES && b->rng.below(2);
    t->grid = {(int64_t)channels, moves ? b->tables : NULL, moves ? b->tables + MOST_CHANNELS : NULL,
               b->tables + 2 * MOST_CHANNELS, b->rng.below(2) ? b->tables + 3 * MOST_CHANNELS : NULL};
    t->params.grid = &t->grid;
    t->out.dtype = COMET_F32;
}

void choose(Bench *b, Trip *t, u64 most) {
    static const float scales[] = {1.0f, 1.0f, 1.0f, 1e-3f, 50.0f, 1e-6f};
    static const Kind kinds[] = {NORMAL, NORMAL, UNIFORM,   RELU, RELU,     SMOOTH,   SMOOTH, HEAVY, EDGES, EDGES,
                                 EDGES,  EDGES,  SUBNORMAL, FEW,  OUTLIERS, ANY_BITS, MIXED,  MIXED, MIXED, MIXED};
    enum { PICKS = sizeof kinds / sizeof *kinds };
    memset(t, 0, sizeof *t);
    choose_tensor(b, t, most);
    int mode = b->rng.below(20) == 0 ? (int)ZVC : (int)b->rng.below(ZVC);
    const Shape &s = shapes[t->shape];
    float scale = scales[b->rng.below(6)];
    // from finer than the data to coarser; powers of two often, as they are the borders of the classes
    float bound = ldexpf(scale * (b->rng.below(3) ? 1.0f + b->rng.uniform() : 1.0f), -(int)b->rng.below(14));
    bound = b->rng.below(32) ? bound : 0.0f;
    t->making = {b->rng.next(), (u64)comet_tensor_count(&t->in), scale,
                 bound,         (int)kinds[b->rng.below(PICKS)], (int)t->in.dtype,
                 mode,          b->tables + 2 * MOST_CHANNELS,   channel_stride(s),
                 channels_of(s)};
    comet_codec_params defaults = COMET_CODEC_PARAMS_INIT;
    t->params = defaults;
    t->params.codec = mode == ZVC ? COMET_CODEC_ZVC : COMET_CODEC_EB;
    t->params.bound = (double)bound;
    t->params.keep_mask = mode == KEEP_MASK;
    t->params.rounding = mode == STOCHASTIC ? COMET_ROUND_STOCHASTIC : COMET_ROUND_NEAREST;
    t->params.seed = b->rng.next();
    if (b->rng.below(8) == 0 && bound > 0.0f) {
        t->params.bound_kind = COMET_BOUND_RELATIVE;
        t->params.bound = 0.05 + 0.4 * (double)b->rng.uniform();
    }
    if (mode == GRID)
        choose_grid(b, t);
}

// The bound that holds is at most the one asked for, and nearly that.
bool bound_is_right(const Trip *t, const comet_codec_record *r) {
    double wanted = t->making.mode == ZVC ? 0.0 : t->params.bound;
    if (t->params.bound_kind == COMET_BOUND_RELATIVE)
        wanted *= r->stats.nonzero ? sqrt(r->stats.sum_squares / (double)r->stats.nonzero) : 0.0;
    wanted = wanted > 0x1p100 ? 0x1p100 : wanted < 0x1p-100 ? 0.0 : wanted;
    return r->bound <= wanted && r->bound >= wanted * (1.0 - 0x1p-22);
}

void describe(const Trip *t, const char *what) {
    const Shape &s = shapes[t->shape];
    printf("FAILED: %s: %s %s, values %s, bound %g (%s), scale %g, %s [%lld %lld %lld %lld], seed of values %llu\n",
           what, comet_dtype_name(t->in.dtype), mode_names[t->making.mode], kind_names[t->making.kind], t->params.bound,
           t->params.bound_kind ? "relative" : "absolute", (double)t->making.scale,
           s.layout == COMET_NCHW   ? "nchw"
           : s.layout == COMET_NHWC ? "nhwc"
                                    : "flat",
           (long long)t->in.shape[0], (long long)s.shape[1], (long long)s.shape[2], (long long)s.shape[3],
           (u64)t->making.seed);
}

void add_counts(Counts *to, const Counts &c) {
    to->over_bound += c.over_bound, to->zeros += c.zeros, to->mask += c.mask;
    to->special += c.special, to->side += c.side, to->bits += c.bits;
    to->worst = to->worst > c.worst ? to->worst : c.worst;
}

// Values, there and back. Returns the result that compressing left.
comet_cuda_result there_and_back(Bench *b, const Trip *t, int32_t *status) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.queue = b->queue, exec.workspace = b->workspace, exec.workspace_bytes = b->workspace_bytes;
    comet_cuda_slot slot = {b->memory, b->capacity, NULL, b->result};
    make_values<<<blocks_for(t->making.count), THREADS, 0, b->queue>>>(t->making, b->before);
    MUST(cudaGetLastError());
    MUST(cudaMemsetAsync(b->after, 0xff, t->making.count * comet_dtype_size(t->out.dtype), b->queue)); // NaN
    MUST(comet_cuda_compress(&t->in, &t->params, &exec, &slot, b->host_result));
    MUST(comet_cuda_decompress(&slot, &t->params, NULL, &exec, &t->out, b->status));
    MUST(cudaMemcpyAsync(status, b->status, sizeof *status, cudaMemcpyDeviceToHost, b->queue));
    MUST(cudaStreamSynchronize(b->queue)); // the checker needs the bound
    return *b->host_result;
}

Counts check(Bench *b, const Trip *t, double bound) {
    Counts counts = {};
    counts.first = ~0ull;
    const comet_codec_grid *g = &t->grid;
    MUST(cudaMemcpyAsync(b->counts, &counts, sizeof counts, cudaMemcpyHostToDevice, b->queue));
    Checking c = {b->before,        b->after,           t->making.count, bound,        t->making.dtype,
                  t->making.mode,   g->scale,           g->shift,        g->threshold, g->slope,
                  t->making.stride, t->making.channels, b->counts};
    launch_check(c, b->queue);
    MUST(cudaMemcpyAsync(&counts, b->counts, sizeof counts, cudaMemcpyDeviceToHost, b->queue));
    MUST(cudaStreamSynchronize(b->queue));
    return counts;
}

void round_trip(Bench *b, u64 most) {
    Trip t;
    int32_t status;
    choose(b, &t, most);
    comet_cuda_result r = there_and_back(b, &t, &status);
    int dtype = t.making.dtype, mode = t.making.mode;
    b->trips++;
    b->values[dtype][mode] += t.making.count;
    b->tiles += (u64)r.codec.tiles, b->tiles_exact += (u64)r.codec.tiles_exact,
        b->tiles_wide += (u64)r.codec.tiles_wide;
    if (r.status != COMET_OK || status != COMET_OK || !bound_is_right(&t, &r.codec)) {
        describe(&t, r.status != COMET_OK ? "compress" : status != COMET_OK ? "decompress" : "the bound");
        MUST(cudaMemset(b->status, 0, sizeof *b->status));
        b->failed++;
        return;
    }
    Counts counts = check(b, &t, r.codec.bound);
    add_counts(&b->sum[dtype][mode], counts);
    if (wrong(counts)) {
        describe(&t, "values");
        printf("  bound %llu, zeros %llu, mask %llu, special %llu, side %llu, bits %llu; first at %llu\n",
               counts.over_bound, counts.zeros, counts.mask, counts.special, counts.side, counts.bits, counts.first);
        b->failed++;
    }
}

// ---- the program ----

void bench_new(Bench *b, u64 seed, u64 most_bytes) {
    Shape flat = {COMET_FLAT, 1, {(int64_t)(most_bytes / 4)}};
    comet_tensor t;
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    memset(b, 0, sizeof *b);
    b->rng = {seed, 0};
    b->most_bytes = most_bytes;
    MUST(cudaStreamCreateWithFlags(&b->queue, cudaStreamNonBlocking));
    MUST(comet_tensor_init(&t, NULL, COMET_F32, flat.layout, flat.ndim, flat.shape));
    MUST(comet_cuda_max_bytes(&t, &p, &b->capacity));
    b->capacity += 1 << 20; // other layouts have a few more groups
    MUST(comet_cuda_workspace(&t, &p, &b->workspace_bytes));
    b->workspace_bytes += 1 << 20;
    MUST(cudaMalloc(&b->before, most_bytes + 256));
    MUST(cudaMalloc(&b->after, most_bytes + 256));
    MUST(cudaMalloc(&b->memory, b->capacity));
    MUST(cudaMalloc(&b->workspace, b->workspace_bytes));
    MUST(cudaMalloc((void **)&b->tables, 4 * MOST_CHANNELS * sizeof(float)));
    MUST(cudaMalloc((void **)&b->result, sizeof *b->result));
    MUST(cudaMalloc((void **)&b->status, sizeof *b->status));
    MUST(cudaMalloc((void **)&b->counts, sizeof *b->counts));
    MUST(cudaMallocHost((void **)&b->host_result, sizeof *b->host_result));
    MUST(cudaMallocHost((void **)&b->host_tables, 4 * MOST_CHANNELS * sizeof(float)));
    memset(b->host_tables, 0, 4 * MOST_CHANNELS * sizeof(float));
    MUST(cudaMemset(b->status, 0, sizeof *b->status));
    MUST(cudaMemset(b->before, 0, most_bytes + 256));
    MUST(comet_cuda_workspace_init(b->workspace, b->workspace_bytes, b->queue));
}

void bench_free(Bench *b) {
    void *const device[] = {b->before, b->after, b->memory, b->workspace, b->tables, b->result, b->status, b->counts};
    for (void *p : device)
        MUST(cudaFree(p));
    MUST(cudaFreeHost(b->host_result));
    MUST(cudaFreeHost(b->host_tables));
    MUST(cudaStreamDestroy(b->queue));
}

u64 values_done(const Bench *b) {
    u64 sum = 0;
    for (int d = 0; d < DTYPES; d++)
        for (int m = 0; m < MODES; m++)
            sum += b->values[d][m];
    return sum;
}

// A few tensors of more than 2^32 values, where there is memory for them. Their counts are added to b's.
void run_large(Bench *b) {
    static Bench large;
    size_t available, total;
    MUST(cudaMemGetInfo(&available, &total));
    if (available < 4 * LARGE_BYTES) {
        printf("no tensors of more than 2^32 values: %.0f GiB are free, %.0f are needed\n", (double)available * 0x1p-30,
               (double)(4 * LARGE_BYTES) * 0x1p-30);
        return;
    }
    bench_new(&large, b->rng.next(), LARGE_BYTES);
    for (int i = 0; i < 8; i++)
        round_trip(&large, ~0ull);
    for (int d = 0; d < DTYPES; d++)
        for (int m = 0; m < MODES; m++) {
            add_counts(&b->sum[d][m], large.sum[d][m]);
            b->values[d][m] += large.values[d][m];
        }
    b->tiles += large.tiles, b->tiles_exact += large.tiles_exact, b->tiles_wide += large.tiles_wide;
    b->trips += large.trips, b->failed += large.failed;
    bench_free(&large);
}

void run(Bench *b, double most) {
    double start = now(), said = start;
    if (most >= 1e10)
        run_large(b);
    for (u64 done = values_done(b); (double)done < most; done = values_done(b)) {
        double left = most - (double)done;
        round_trip(b, left < 1e9 ? (u64)left : 1000000000ull);
        if (now() - said < 2.0)
            continue;
        said = now();
        double part = (double)values_done(b) / most;
        fprintf(stderr, "%.3g values, %3.0f %%, %.0f s, about %.0f s to go, %llu failed\n", (double)values_done(b),
                100.0 * part, said - start, (said - start) * (1.0 - part) / part, b->failed);
    }
    printf("%.1f s\n", now() - start);
}

int report(const Bench *b) {
    u64 bad = b->failed;
    printf("%-5s %-10s %15s %10s %6s %6s %8s %6s %6s %12s\n", "dtype", "mode", "values", "over bound", "zeros", "mask",
           "special", "side", "bits", "worst/bound");
    for (int d = 0; d < DTYPES; d++)
        for (int m = 0; m < MODES; m++) {
            const Counts &c = b->sum[d][m];
            float worst;
            memcpy(&worst, &c.worst, sizeof worst);
            printf("%-5s %-10s %15llu %10llu %6llu %6llu %8llu %6llu %6llu %12.9f\n", comet_dtype_name((comet_dtype)d),
                   mode_names[m], b->values[d][m], c.over_bound, c.zeros, c.mask, c.special, c.side, c.bits,
                   (double)worst);
            bad += wrong(c);
        }
    printf("%llu values in %llu round trips, %llu of them failed; %.1f %% of the tiles exact, %.1f %% wide\n",
           values_done(b), b->trips, b->failed, 100.0 * (double)b->tiles_exact / (double)b->tiles,
           100.0 * (double)b->tiles_wide / (double)b->tiles);
    return bad ? 1 : 0;
}

} // namespace

int main(int argc, char **argv) {
    double most = argc > 1 ? strtod(argv[1], NULL) : 1e9;
    u64 seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (u64)time(NULL);
    comet_status usable = comet_cuda_check(0);
    if (usable != COMET_OK) {
        printf("no device: %s\n", comet_status_string(usable));
        return 77;
    }
    if (!(most >= 1.0)) {
        fprintf(stderr, "cuda_eb [VALUES] [SEED]\n");
        return 2;
    }
    static Bench b;
    bench_new(&b, seed, USUAL_BYTES);
    printf("seed %llu\n", seed);
    fflush(stdout);
    if (faults_missed(b.before))
        return 1;
    run(&b, most);
    int bad = report(&b);
    bench_free(&b);
    return bad;
}
