// SPDX-License-Identifier: Apache-2.0
// Prototype of the `eb` code tiles on the GPU (docs/format.md, sections 2 and 3): fp32, rounding to nearest, class 0. See README.md.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#ifndef STEP_BITS
#define STEP_BITS 16 // significant bits of the step; 15 or less decodes with one FMA
#endif
#ifndef C_BLOCKS
#define C_BLOCKS 5 // blocks of 256 threads a multiprocessor the compressor is compiled for
#endif
#ifndef P2_UNROLL
#define P2_UNROLL 2 // planes whose columns are written in one pass of the loop
#endif
// Experiments: what a part of the format costs, or a change would give. NO_PREDICT: direct only; NO_SINGLE: no single columns;
// HALF_DECIDE: the choice looks at even columns only; CARRY: differences of the 32-bit word of four codes instead of its bytes.
#ifndef D_BLOCKS
#define D_BLOCKS 6
#endif

typedef uint32_t u32;
typedef uint64_t u64;
typedef uint8_t u8;

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        cudaError_t e_ = (x);                                                                                          \
        if (e_ != cudaSuccess) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e_));                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

constexpr u32 FULL = 0xffffffffu;
constexpr u32 HIGH = 0x80808080u;
constexpr u32 LOW7 = 0x7f7f7f7fu;
constexpr int TILE_MAX = 1088; // bytes of a narrow code tile, at most 1066, and room for alignment

struct Divide { // n / d for n < 2^31
    u32 d, mul, shift;
    __host__ void set(u32 v) {
        d = v;
        shift = 0;
        while ((1ull << shift) < v)
            shift++;
        mul = (u32)(((1ull << 32) * ((1ull << shift) - v)) / v + 1);
    }
    __device__ u32 operator()(u32 n) const {
        return (__umulhi(n, mul) + n) >> shift;
    }
};

struct Geometry {
    u32 C, S, positions, tiles, groups, inner; // inner: tiles 0 .. inner-1 hold no padding
    Divide byS, byC;
};

struct Quantiser {
    float s, inv, reach, zero; // zero: -(2^15 + 128) * s
};

enum Mode { // C = 1: S a multiple of 8, of 4, of 2, any, S = 8; C a multiple of 4
    ROW4 = 0,
    ROW2 = 1,
    ROW1 = 2,
    NHWC4 = 3,
    FLAT8 = 4,
    ROW8 = 5
};
constexpr int SWEEP_S = 64; // rows up to this long, not a multiple of 8, are decoded in order of memory

// ---------------------------------------------------------------------------------------------------------------------

template <u32 SEL> __device__ __forceinline__ u32 prmt(u32 a, u32 b) {
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "n"(SEL));
    return r;
}
__device__ __forceinline__ u32 sign_bytes(u32 a) {
    return prmt<0xba98>(a, 0);
}

// bytes a - b
__device__ __forceinline__ u32 sub4(u32 a, u32 b) {
    u32 t = (a | HIGH) - (b & LOW7);
    return t ^ ((a ^ ~b) & HIGH);
}

template <u32 LUT> __device__ __forceinline__ u32 lop3(u32 a, u32 b, u32 c) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(LUT));
    return r;
}
__device__ __forceinline__ u32 pick(u32 mask, u32 a, u32 b) {
    return lop3<0xca>(mask, a, b);
} // mask ? a : b, bit by bit
__device__ __forceinline__ u32 fold(u32 v) {
    return lop3<0x78>(v, sign_bytes(v), LOW7);
} // v ^ (sign & 0x7f)
__device__ __forceinline__ u32 fold_biased(u32 v) {
    return lop3<0x87>(v, sign_bytes(v), LOW7);
}

template <int SH, u32 M> __device__ __forceinline__ void exchange(u32 &a, u32 &b) {
    u32 x = pick(M, a, b << SH);
    u32 y = pick(M, a >> SH, b);
    a = x;
    b = y;
}

// 4 x 4 bytes
__device__ __forceinline__ void transpose4(u32 &a, u32 &b, u32 &c, u32 &d) {
    u32 ab0 = prmt<0x5140>(a, b), ab1 = prmt<0x7362>(a, b), cd0 = prmt<0x5140>(c, d), cd1 = prmt<0x7362>(c, d);
    a = prmt<0x5410>(ab0, cd0), b = prmt<0x7632>(ab0, cd0), c = prmt<0x5410>(ab1, cd1), d = prmt<0x7632>(ab1, cd1);
}

// bit b of byte k of word m <-> bit m of byte k of word b
__device__ __forceinline__ void butterfly(u32 (&w)[8]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        exchange<4, 0x0f0f0f0fu>(w[i], w[i + 4]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        exchange<2, 0x33333333u>(w[(i & 1) + (i & 2) * 2], w[(i & 1) + (i & 2) * 2 + 2]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        exchange<1, 0x55555555u>(w[2 * i], w[2 * i + 1]);
}

__device__ __forceinline__ u32 shared_address(const void *p) {
    return (u32)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ u32 unit_swizzle(u32 u) {
    return u ^ ((u >> 3) & 1);
}

// Where value (k, lane, m) lies, or ~0 for padding. Slow paths only.
__device__ __forceinline__ u64 place(const Geometry &g, u32 t, u32 lane, u32 k, u32 m) {
    u32 L = 32 * t + lane, p8 = g.byC(L), c = L - p8 * g.C, P = 8 * p8 + m;
    u64 position = (u64)P + 3ull * g.S * g.byS(P) + (u64)k * g.S;
    return position < g.positions ? position * g.C + c : ~0ull;
}

struct Stats {
    float negative, positive, least, most, sum,
        square; // the counts start at 2^23, where adding anything in (0, 1] rounded up adds 1
};
__device__ __forceinline__ float max_nan(float a, float b) { // a NaN stays
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
__device__ __forceinline__ void count(float &n, float x) {
    n = __fmaf_ru(x, 0x1p-128f, n);
} // one more if x > 0 (and finite)

__device__ __forceinline__ u32 pack4(float x0, float x1, float x2, float x3, float inv) {
    // Biases such that the packed bits are (q0 + 128) + (q1 + 128) 2^8 + ...; all even, so that ties go as without them.
    u32 a = __float_as_uint(__fmaf_rn(x0, inv, 12582912.f + 0x80));
    u32 b = __float_as_uint(__fmaf_rn(x1, inv, 12582912.f + 0x80));
    u32 c = __float_as_uint(__fmaf_rn(x2, inv, 12582912.f + 0x140));
    u32 d = __float_as_uint(__fmaf_rn(x3, inv, 12582912.f + 0xf4));
    return a + (b << 8) + (c << 16) + (d << 24);
}

template <bool STATS>
__device__ __forceinline__ u32 take4(float x0, float x1, float x2, float x3, const Quantiser &q, Stats &st) {
    if (STATS) {
        float sum = __fadd_rn(__fadd_rn(__fadd_rn(fabsf(x0), fabsf(x1)), fabsf(x2)), fabsf(x3));
        float sq = __fmaf_rn(x3, x3, __fmaf_rn(x2, x2, __fmaf_rn(x1, x1, __fmul_rn(x0, x0))));
        st.sum = __fadd_rn(st.sum, sum);
        st.square = __fadd_rn(st.square, sq);
        st.least = fminf(fminf(fminf(fminf(st.least, x0), x1), x2), x3);
        st.most = max_nan(max_nan(max_nan(max_nan(st.most, x0), x1), x2), x3);
        count(st.negative, -x0), count(st.negative, -x1), count(st.negative, -x2), count(st.negative, -x3);
        count(st.positive, x0), count(st.positive, x1), count(st.positive, x2), count(st.positive, x3);
    } else {
        st.most = max_nan(max_nan(max_nan(max_nan(st.most, fabsf(x0)), fabsf(x1)), fabsf(x2)), fabsf(x3));
    }
    return pack4(x0, x1, x2, x3, q.inv);
}

// Reads tile t; u[m] gets the biased codes of column m of this lane, byte k = row k.
template <int MODE, bool STATS>
__device__ __forceinline__ void load_codes(const float *__restrict__ x, const Geometry &g, const Quantiser &q, u32 t,
                                           u32 lane, uint4 *ex, u32 (&u)[8], Stats &st) {
    bool inner = t < g.inner;
    if (MODE == FLAT8) {
        float4 f[8];
        const u32 pos = 1024 * t + 4 * lane;
        const float *at = x + pos;
        if (inner) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                f[j] = __ldcs((const float4 *)(at + 128 * j));
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                f[j].x = pos + 128 * j < g.positions ? at[128 * j] : 0.f;
                f[j].y = pos + 128 * j + 1 < g.positions ? at[128 * j + 1] : 0.f;
                f[j].z = pos + 128 * j + 2 < g.positions ? at[128 * j + 2] : 0.f;
                f[j].w = pos + 128 * j + 3 < g.positions ? at[128 * j + 3] : 0.f;
            }
        }
#pragma unroll
        for (int j = 0; j < 8; j++)
            ((u32 *)ex)[(32 * j + lane) ^ ((j & 1) << 2)] = take4<STATS>(f[j].x, f[j].y, f[j].z, f[j].w, q, st);
        __syncwarp();
        uint4 a = ex[unit_swizzle(2 * lane)], b = ex[unit_swizzle(2 * lane + 1)]; // words k, half
        u[0] = a.x, u[1] = a.z, u[2] = b.x, u[3] = b.z, u[4] = a.y, u[5] = a.w, u[6] = b.y, u[7] = b.w;
        transpose4(u[0], u[1], u[2], u[3]);
        transpose4(u[4], u[5], u[6], u[7]);
        __syncwarp();
        return;
    }
    float v[2][4][4]; // [unit][k][column or channel]
    if (MODE == NHWC4) {
        u32 L = 32 * t + 4 * (lane & 7), p8 = g.byC(L), c = L - p8 * g.C;
        u64 row = (u64)g.S * g.C;
        u32 P = 8 * p8 + (lane >> 3), pos[2] = {P + 3 * g.S * g.byS(P), P + 4 + 3 * g.S * g.byS(P + 4)};
        const float *at[2] = {x + (u64)pos[0] * g.C + c, x + (u64)pos[1] * g.C + c};
        auto get = [&](int i, int k) {
            float4 f = __ldcs((const float4 *)(at[i] + k * row));
            v[i][k][0] = f.x, v[i][k][1] = f.y, v[i][k][2] = f.z, v[i][k][3] = f.w;
        };
        if (inner) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                get(i >> 2, i & 3);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                v[i >> 2][i & 3][0] = v[i >> 2][i & 3][1] = v[i >> 2][i & 3][2] = v[i >> 2][i & 3][3] = 0.f;
                if (pos[i >> 2] + (i & 3) * g.S < g.positions)
                    get(i >> 2, i & 3);
            }
        }
    } else {
        constexpr int V = MODE == ROW4 || MODE == ROW8 || MODE == FLAT8 ? 4 : MODE == ROW2 ? 2 : 1;
        u32 at[2][4 / V];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 P = 256 * t + 4 * (lane + 32 * i), band = g.byS(P), pos = P + 3 * g.S * band, p = P - band * g.S;
#pragma unroll
            for (int j = 0; j < 4; j += V) {
                at[i][j / V] = pos;
                p += V, pos += V;
                if (p == g.S)
                    p = 0, pos += 3 * g.S;
            }
        }
        if (inner) {
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j += V)
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        const float *from = x + at[i][j / V] + (u64)k * g.S;
                        if (V == 4) {
                            float4 f = __ldcs((const float4 *)from);
                            v[i][k][0] = f.x, v[i][k][1] = f.y, v[i][k][2] = f.z, v[i][k][3] = f.w;
                        } else if (V == 2) {
                            float2 f = __ldg((const float2 *)from);
                            v[i][k][j] = f.x, v[i][k][j + 1] = f.y;
                        } else {
                            v[i][k][j] = __ldg(from);
                        }
                    }
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        u32 o = at[i][j / V] + j % V + k * g.S;
                        v[i][k][j] = o < g.positions ? __ldg(x + o) : 0.f;
                    }
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint4 w;
        w.x = take4<STATS>(v[i][0][0], v[i][1][0], v[i][2][0], v[i][3][0], q, st);
        w.y = take4<STATS>(v[i][0][1], v[i][1][1], v[i][2][1], v[i][3][1], q, st);
        w.z = take4<STATS>(v[i][0][2], v[i][1][2], v[i][2][2], v[i][3][2], q, st);
        w.w = take4<STATS>(v[i][0][3], v[i][1][3], v[i][2][3], v[i][3][3], q, st);
        ex[MODE == NHWC4 ? lane + 32 * i : unit_swizzle(lane + 32 * i)] = w; // NHWC: [m][channel / 4]
    }
    __syncwarp();
    if (MODE == NHWC4) {
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = ((const u32 *)ex)[32 * m + lane];
    } else {
        uint4 a = ex[unit_swizzle(2 * lane)], b = ex[unit_swizzle(2 * lane + 1)];
        u[0] = a.x, u[1] = a.y, u[2] = a.z, u[3] = a.w, u[4] = b.x, u[5] = b.y, u[6] = b.z, u[7] = b.w;
    }
    __syncwarp();
}

__device__ __forceinline__ u32 scan32(u32 v, u32) { // inclusive
#pragma unroll
    for (int d = 1; d < 32; d *= 2)
        asm volatile("{ .reg .pred p; .reg .u32 t; shfl.sync.up.b32 t|p, %0, %1, 0, -1; @p add.u32 %0, %0, t; }"
                     : "+r"(v)
                     : "r"(d));
    return v;
}

// TPW tiles a warp; a block is one group of 8 tiles.
template <int MODE, bool STATS, int TPW>
__global__ void __launch_bounds__(256 / TPW, (STATS ? C_BLOCKS - 1 : C_BLOCKS) * TPW)
    compress_kernel(const float *__restrict__ x, Geometry g, Quantiser q, u8 *__restrict__ table, u8 *__restrict__ body,
                    u64 *cursor, u64 *total_out, float *__restrict__ stats) {
    __shared__ __align__(16) u8 s_out[8 * TILE_MAX];
    __shared__ __align__(16) u32 s_plane[8][256]; // [slot][lane]; before that, the exchange buffer
    __shared__ __align__(16) u32 s_col[8][64];    // ballots, then {ballot, place} of each column
    __shared__ uint16_t s_entry[8];
    __shared__ u64 s_offset;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 lt = (1u << lane) - 1, group = gridDim.x - 1 - blockIdx.x; // the ragged end first

    u32 meta[TPW], colState[TPW], colBallot[TPW], colData[TPW], firstWord[TPW];
#pragma unroll
    for (int tt = 0; tt < TPW; tt++) {
        const u32 local = warp * TPW + tt, t = group * 8 + local;
        u32 *plane = s_plane[local], *col = s_col[local];
        u32 entry = 0;
        meta[tt] = 0, colState[tt] = 0, colBallot[tt] = 0, colData[tt] = 0, firstWord[tt] = 0;
        if (t < g.tiles) {
            u32 u[8];
            Stats st = {8388608.f, 8388608.f, INFINITY, STATS ? -INFINITY : 0.f, 0, 0};
            load_codes<MODE, STATS>(x, g, q, t, lane, (uint4 *)plane, u, st);
            const bool bad = !((STATS ? max_nan(-st.least, st.most) : st.most) <= q.reach);
            if (STATS) {
                u32 n = __reduce_add_sync(FULL, (__float_as_uint(st.negative) & 0xffff) | __float_as_uint(st.positive)
                                                                                              << 16);
#pragma unroll
                for (int d = 1; d < 32; d *= 2) {
                    st.least = fminf(st.least, __shfl_xor_sync(FULL, st.least, d));
                    st.most = fmaxf(st.most, __shfl_xor_sync(FULL, st.most, d));
                    st.sum = __fadd_rn(st.sum, __shfl_xor_sync(FULL, st.sum, d));
                    st.square = __fadd_rn(st.square, __shfl_xor_sync(FULL, st.square, d));
                }
                if (lane == 0) {
                    float4 *o = (float4 *)(stats + 8ull * t);
                    o[0] = make_float4(__uint_as_float(n & 0xffff), __uint_as_float(n >> 16), st.least, st.most);
                    o[1] = make_float4(st.sum, st.square, 0, 0);
                }
            }
            // residuals, folded, both ways
            u32 fu[8], fd[8];
            u32 previous;
            if (MODE == NHWC4) {
                previous = u[0];
            } else {
                previous = __shfl_up_sync(FULL, u[7], 1);
                if (lane == 0)
                    previous = u[0];
            }
            int gain = 0;
            u32 anyU = 0, anyD = 0;
#ifndef NO_PREDICT
#pragma unroll
            for (int m = 0; m < 8; m++) {
                u32 before =
                    prmt<0x2104>(u[m], m ? u[m - 1] : previous); // k-1 of the same column; row 0: the column before
#ifdef CARRY
                fd[m] = u[m] - before + HIGH;
#else
                fd[m] = sub4(u[m], before);
#endif
            }
            if (t >= g.inner) { // the residual of padding is 0
                const u32 p8 = MODE == NHWC4 ? g.byC(32 * t + lane) : 32 * t + lane;
#pragma unroll
                for (int m = 0; m < 8; m++) {
                    u32 pos = 8 * p8 + m + 3 * g.S * g.byS(8 * p8 + m), real = 0;
                    if (pos < g.positions)
                        real |= 0xff;
                    if (pos + g.S < g.positions)
                        real |= 0xff00;
                    if (pos + 2 * g.S < g.positions)
                        real |= 0xff0000;
                    if (pos + 3 * g.S < g.positions)
                        real |= 0xff000000;
#ifdef CARRY
                    fd[m] = pick(real, fd[m], HIGH);
#else
                    fd[m] &= real;
#endif
                }
            }
#endif
#pragma unroll
            for (int m = 0; m < 8; m++) {
                fu[m] = fold_biased(u[m]);
                anyU |= fu[m];
#ifndef NO_PREDICT
#ifdef CARRY
                fd[m] = fold_biased(fd[m]);
#else
                fd[m] = fold(fd[m]);
#endif
                anyD |= fd[m];
#ifdef HALF_DECIDE
                if (m % 2 == 0)
                    gain += 2 * (__popc(fu[m]) - __popc(fd[m]));
#else
                gain += __popc(fu[m]) - __popc(fd[m]);
#endif
#else
                fd[m] = 0;
#endif
            }
#ifdef NO_PREDICT
            const bool predicted = false;
#else
            gain = __reduce_add_sync(FULL, gain);
            const bool predicted = gain > 128;
#endif
            u32 any = __reduce_or_sync(FULL, predicted ? anyD : anyU);
            any |= any >> 16;
            any = (any | any >> 8) & 0xff;
            if (__any_sync(FULL, bad)) {
                u32 n = 1024;
                if (t >= g.inner) {
                    n = 0;
#pragma unroll 1
                    for (int i = 0; i < 32; i++)
                        n += place(g, t, lane, i & 3, i >> 2) != ~0ull;
                    n = __reduce_add_sync(FULL, n);
                }
                entry = 4 * n | 2u << 13;
            } else if (any || predicted) {
                const u32 n = 32 - __clz(any & 0x7f), sign = any >> 7, planes = n + sign;
                u32 w[8];
#pragma unroll
                for (int m = 0; m < 8; m++)
                    w[m] = predicted ? fd[m] : fu[m];
                butterfly(w);
#pragma unroll
                for (int b = 0; b < 8; b++) {
                    if (b < 7 ? b < n : sign) {
                        u32 slot = b < 7 ? b : n;
                        uint4 r;
                        r.x = __ballot_sync(FULL, w[b] & 0xffu);
                        r.y = __ballot_sync(FULL, w[b] & 0xff00u);
                        r.z = __ballot_sync(FULL, w[b] & 0xff0000u);
                        r.w = __ballot_sync(FULL, w[b] & 0xff000000u);
                        if (lane == 0)
                            *(uint4 *)(col + 4 * slot) = r;
                        plane[32 * slot + lane] = w[b];
                    }
                }
                __syncwarp();
                // this lane now stands for column k of plane `slot`
                u32 ballot = lane < 4 * planes ? col[lane] : 0;
                u32 count = __popc(ballot), state = count >= 28 ? 2 : count ? 1 : 0, data = count >= 28 ? 32 : count;
#ifndef NO_SINGLE
                if (count == 1) {
                    u32 from = 31 - __clz(ballot);
                    u32 byte = ((const u8 *)plane)[128 * (lane >> 2) + 4 * from + (lane & 3)];
                    if (!(byte & (byte - 1))) {
                        state = 3;
                        ballot = 8 * from + (31 - __clz(byte)); // the byte to be stored
                    }
                }
#endif
                u32 mine = data | (state == 1 ? 1u << 16 : 0), sum = scan32(mine, lane);
                u32 all = __shfl_sync(FULL, sum, 31), some = all >> 16;
                sum -= mine;
                u32 firsts = 0;
                if (predicted) {
                    if (MODE == NHWC4) {
                        u32 f = fu[0] & 0xff, o = __reduce_or_sync(FULL, f), fn = 32 - __clz(o & 0x7f), fs = o >> 7;
                        firstWord[tt] = 0;
#pragma unroll
                        for (u32 b = 0; b < 7; b++)
                            if (b < fn) {
                                u32 r = __ballot_sync(FULL, f & 1 << b);
                                if (lane == b)
                                    firstWord[tt] = r;
                            }
                        if (fs) {
                            u32 r = __ballot_sync(FULL, f >> 7);
                            if (lane == fn)
                                firstWord[tt] = r;
                        }
                        firsts = 1 + 4 * (fn + fs);
                        meta[tt] = fn << 24 | fs << 28;
                    } else {
                        firstWord[tt] = __shfl_sync(FULL, u[0], 0) ^ 0x80; // low byte
                        firsts = 1;
                    }
                }
                u32 header = 1 + planes + firsts + 4 * some;
                entry = header + (all & 0xffff);
                meta[tt] |= header | (n | sign << 4 | (predicted ? 0x80u : 0)) << 16;
                colState[tt] = state, colBallot[tt] = ballot, colData[tt] = sum;
            }
        }
        if (lane == 0)
            s_entry[local] = entry;
    }
    __syncthreads();
    u32 e = lane < 8 ? s_entry[lane] : 0, size = e & 0x1fff;
    const bool raw = __any_sync(FULL, e >> 13);
    u64 claimed = 0;
    u32 room = 0;
    if (warp == 0) { // the answer is used after the columns are written
        room = (__reduce_add_sync(FULL, size) + 15) & ~15u;
        if (lane == 0)
            claimed = atomicAdd((unsigned long long *)cursor, (1ull << 44) | room);
        if (lane < 8)
            *(uint16_t *)(table + 24ull * group + 8 + 2 * lane) = (uint16_t)e;
    }
#pragma unroll
    for (int tt = 0; tt < TPW; tt++) {
        const u32 local = warp * TPW + tt;
        u32 begin = __reduce_add_sync(FULL, lane < local ? size : 0), own = __shfl_sync(FULL, e, local);
        if (own == 0 || own >> 13)
            continue;
        u8 *out = s_out + (raw ? local * TILE_MAX : begin);
        const u32 head = meta[tt] >> 16 & 0xff, n = head & 15, planes = n + (head >> 4 & 1), header = meta[tt] & 0xffff;
        u32 state = colState[tt], ballot = colBallot[tt], at = header + (colData[tt] & 0xffff);
        // header
        u32 flags = state << 2 * (lane & 3);
        flags |= __shfl_xor_sync(FULL, flags, 1);
        flags |= __shfl_xor_sync(FULL, flags, 2);
        if (lane == 0)
            out[0] = head;
        if ((lane & 3) == 0 && lane < 4 * planes)
            out[1 + (lane >> 2)] = flags;
        u32 next = 1 + planes;
        if (head & 0x80) {
            if (MODE == NHWC4) {
                u32 f = meta[tt] >> 24, nf = (f & 15) + (f >> 4);
                if (lane == 0)
                    out[next] = f;
                next++;
                if (lane < nf) {
                    u8 *o = out + next + 4 * lane;
                    u32 v = firstWord[tt];
                    o[0] = v, o[1] = v >> 8, o[2] = v >> 16, o[3] = v >> 24;
                }
                next += 4 * nf;
            } else {
                if (lane == 0)
                    out[next] = firstWord[tt];
                next++;
            }
        }
        if (state == 1) {
            u8 *o = out + next + 4 * (colData[tt] >> 16);
            o[0] = ballot, o[1] = ballot >> 8, o[2] = ballot >> 16, o[3] = ballot >> 24;
        }
        if (state == 3)
            out[at] = ballot;
        // columns
        u32 base = shared_address(out) + at - 1;
        ((uint2 *)s_col[local])[lane] = make_uint2(state == 1 ? ballot : state == 2 ? FULL : 0, base);
        __syncwarp();
        const u32 up = 31 - lane;
        constexpr int UNROLL = P2_UNROLL;
#pragma unroll UNROLL
        for (u32 slot = 0; slot < planes; slot++) {
            u32 w = s_plane[local][32 * slot + lane];
            uint4 a = ((const uint4 *)s_col[local])[2 * slot], b = ((const uint4 *)s_col[local])[2 * slot + 1];
            auto put = [&](u32 mask, u32 to, u32 byte) {
                u32 mine = mask << up;
                asm volatile("{ .reg .pred p; setp.lt.s32 p, %0, 0; @p st.shared.u8 [%1], %2; }" ::"r"(mine),
                             "r"(to + __popc(mine)), "r"(byte)
                             : "memory");
            };
            put(a.x, a.y, w);
            put(a.z, a.w, w >> 8);
            put(b.x, b.y, w >> 16);
            put(b.z, b.w, w >> 24);
        }
    }
    if (threadIdx.x == 0) {
        u64 at = claimed & ((1ull << 44) - 1);
        if ((claimed >> 44) == g.groups - 1) { // everyone has claimed: leave the cursor ready for the next call
            *cursor = 0;
            *total_out = at + room;
        }
        s_offset = at;
        *(u64 *)(table + 24ull * group) = at;
    }
    __syncthreads();
    u8 *to = body + s_offset;
    if (!raw) {
        u32 sum = __reduce_add_sync(FULL, size);
        for (u32 i = threadIdx.x * 16; i < sum; i += 16 * blockDim.x)
            *(uint4 *)(to + i) = *(const uint4 *)(s_out + i);
        return;
    }
#pragma unroll 1
    for (int tt = 0; tt < TPW; tt++) { // slow: byte by byte
        const u32 local = warp * TPW + tt, t = group * 8 + local;
        u32 begin = __reduce_add_sync(FULL, lane < local ? size : 0), own = __shfl_sync(FULL, e, local);
        if (own >> 13 == 0) {
            for (u32 i = lane; i < own; i += 32)
                to[begin + i] = s_out[local * TILE_MAX + i];
            continue;
        }
        if (t < g.inner) { // aligned words, each made of two values
            u8 *d = to + begin;
            const u32 shift = 8 * ((u32)(u64)d & 3);
            u32 *word = (u32 *)(d - (shift >> 3));
            u32 last = 0;
#pragma unroll 4
            for (int i = lane; i < 1024; i += 32) {
                u32 v = __float_as_uint(x[place(g, t, i >> 3 & 31, i >> 8, i & 7)]),
                    before = __shfl_up_sync(FULL, v, 1);
                if (lane == 0)
                    before = last;
                last = __shfl_sync(FULL, v, 31);
                u32 o = __funnelshift_l(before, v, shift);
                if (i || !shift)
                    word[i] = o;
                else
                    for (u32 b = shift; b < 32; b += 8)
                        d[(b - shift) >> 3] = v >> (b - shift);
            }
            if (lane < shift >> 3)
                ((u8 *)(word + 1024))[lane] = last >> (32 - shift) >> 8 * lane;
            continue;
        }
        u32 done = 0;
#pragma unroll 1
        for (int k = 0; k < 4; k++)
#pragma unroll 1
            for (int j = 0; j < 8; j++) { // i = 256 k + 32 j + lane
                u64 o = place(g, t, 4 * j + (lane >> 3), k, lane & 7);
                u32 here = __ballot_sync(FULL, o != ~0ull);
                if (o != ~0ull) {
                    u8 *d = to + begin + 4 * (done + __popc(here & lt));
                    u32 v = __float_as_uint(x[o]);
                    d[0] = v, d[1] = v >> 8, d[2] = v >> 16, d[3] = v >> 24;
                }
                done += __popc(here);
            }
    }
}

// ---------------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ u32 unaligned(u32 address) { // u32 in shared memory; reads up to 8 bytes
    u32 a, b;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(a) : "r"(address & ~3u));
    asm volatile("ld.shared.u32 %0, [%1+4];" : "=r"(b) : "r"(address & ~3u));
    return __funnelshift_r(a, b, 8 * (address & 3));
}

template <int K> __device__ __forceinline__ float decode(u32 word, const Quantiser &q) {
    float f = __uint_as_float(prmt<0x7504 | K << 4>(word, 0x47000000u)); // 2^15 + q + 128
#if STEP_BITS <= 15
    return __fmaf_rn(f, q.s, q.zero);
#else
    return __fmul_rn(__fadd_rn(f, -32896.f), q.s);
#endif
}

template <int MODE, int WPB>
__global__ void __launch_bounds__(32 * WPB, D_BLOCKS * 8 / WPB)
    decompress_kernel(float *__restrict__ y, Geometry g, Quantiser q, const u8 *__restrict__ table,
                      const u8 *__restrict__ body) {
    constexpr bool SWEEP = MODE == ROW4 || MODE == ROW2 || MODE == ROW1;
    __shared__ __align__(16) u8 s_tile[WPB][SWEEP ? 1024 + 6 * SWEEP_S + 16 : TILE_MAX + 16];
    __shared__ __align__(16) u32 s_col[WPB][64];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 t = (gridDim.x - 1 - blockIdx.x) * WPB + warp; // the ragged end first
    if (t >= g.tiles)
        return;
    const u8 *group = table + 24ull * (t >> 3);
    u32 e = lane < 8 ? __ldg((const uint16_t *)(group + 8) + lane) : 0;
    u64 from = __ldg((const unsigned long long *)group);
    from += __reduce_add_sync(FULL, lane < (t & 7) ? e & 0x1fff : 0);
    const u32 entry = __shfl_sync(FULL, e, t & 7), size = entry & 0x1fff;
    if (entry >> 13 && t < g.inner) {
        const u8 *d = body + from;
        const u32 shift = 8 * ((u32)(u64)d & 3);
        const u32 *word = (const u32 *)(d - (shift >> 3));
#pragma unroll 2
        for (int i = lane; i < 1024; i += 32) {
            u32 a = __ldg(word + i), b = shift ? __ldg(word + i + 1) : 0;
            y[place(g, t, i >> 3 & 31, i >> 8, i & 7)] = __uint_as_float(__funnelshift_r(a, b, shift));
        }
        return;
    }
    if (entry >> 13) { // raw, slow
        u32 done = 0;
#pragma unroll 1
        for (int k = 0; k < 4; k++)
#pragma unroll 1
            for (int j = 0; j < 8; j++) {
                u64 o = place(g, t, 4 * j + (lane >> 3), k, lane & 7);
                u32 here = __ballot_sync(FULL, o != ~0ull);
                if (o != ~0ull) {
                    const u8 *d = body + from + 4 * (done + __popc(here & ((1u << lane) - 1)));
                    y[o] = __uint_as_float(d[0] | d[1] << 8 | d[2] << 16 | (u32)d[3] << 24);
                }
                done += __popc(here);
            }
        return;
    }
    u32 w[8]; // biased codes
    uint4 *ex = (uint4 *)s_tile[warp];
    if (size == 0) {
#pragma unroll
        for (int m = 0; m < 8; m++)
            w[m] = HIGH;
    } else {
        const u32 skew = (u32)from & 15, chunks = (skew + size + 15) >> 4;
        const uint4 *src = (const uint4 *)(body + (from - skew));
        for (u32 i = lane; i < chunks; i += 32)
            ex[i] = __ldg(src + i);
        __syncwarp();
        u8 *tile = s_tile[warp] + skew;
        const u32 tileAddress = shared_address(tile);
        const u32 head = tile[0], n = head & 15, sign = head >> 4 & 1, planes = n + sign;
        const bool predicted = head & 0x80;
        u32 state = lane < 4 * planes ? tile[1 + (lane >> 2)] >> 2 * (lane & 3) & 3 : 0;
        u32 next = 1 + planes, first = 0;
        if (predicted) {
            if (MODE == NHWC4) {
                u32 f = tile[next], nf = f & 15, total = nf + (f >> 4);
                u32 p = lane < total ? unaligned(tileAddress + next + 1 + 4 * lane) : 0;
#pragma unroll
                for (int b = 6; b >= 0; b--)
                    if (b < nf)
                        first = __funnelshift_l(__shfl_sync(FULL, p, b) << (31 - lane), first, 1);
                if (f >> 4 && __shfl_sync(FULL, p, nf) >> lane & 1)
                    first = ~first;
                next += 1 + 4 * total;
            } else {
                first = tile[next++];
            }
        }
        const u32 some = __ballot_sync(FULL, state == 1);
        u32 ballot = 0, count = 0;
        if (state == 1) {
            ballot = unaligned(tileAddress + next + 4 * __popc(some & ((1u << lane) - 1)));
            count = __popc(ballot);
        }
        if (state == 2)
            ballot = FULL, count = 32;
        if (state == 3)
            count = 1;
        u32 at = next + 4 * __popc(some) + scan32(count, lane) - count;
        if (state == 3) {
            u32 v = tile[at];
            ballot = 1u << (v >> 3);
            tile[at] = 1u << (v & 7);
        }
        ((uint2 *)s_col[warp])[lane] = make_uint2(ballot, tileAddress + at - 1);
        __syncwarp();
        const u32 up = 31 - lane;
#pragma unroll
        for (int b = 0; b < 8; b++) {
            w[b] = 0;
            if (b < 7 ? b < n : sign) {
                u32 slot = b < 7 ? b : n;
                uint4 c = ((const uint4 *)s_col[warp])[2 * slot], d = ((const uint4 *)s_col[warp])[2 * slot + 1];
                u32 m0 = c.x << up, m1 = c.z << up, m2 = d.x << up,
                    m3 = d.z << up;                   // top bit: this lane's byte is stored
                auto get = [&](u32 mine, u32 from_) { // another byte of the tile if not
                    u32 v;
                    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(from_ + __popc(mine)) : "memory");
                    return v;
                };
                u32 v0 = get(m0, c.y), v1 = get(m1, c.w), v2 = get(m2, d.y), v3 = get(m3, d.w);
                u32 have = prmt<0x5410>(prmt<0x00fb>(m0, m1), prmt<0x00fb>(m2, m3));
                w[b] = (v0 + (v1 << 8) + (v2 << 16) + (v3 << 24)) & have;
            }
        }
        u32 s = w[7];
#pragma unroll
        for (int b = 0; b < 7; b++)
            w[b] ^= s;
#ifdef CARRY
        w[7] = ~s; // bias
#else
        if (!predicted)
            w[7] = ~s; // bias
#endif
        butterfly(w);
        if (predicted) {
            u32 c[8];
            c[0] = w[0];
#pragma unroll
            for (int m = 1; m < 8; m++)
                c[m] = c[m - 1] + w[m];
#ifdef CARRY
            u32 row = (first + 128 + (MODE != NHWC4 ? scan32(c[7], lane) - c[7] : 0)) & 0xff;
#pragma unroll
            for (int m = 0; m < 8; m++) {
                u32 v = w[m] - HIGH + row;
                w[m] = v * 0x01010101u;
                row = v & 0xff;
            }
#else
            u32 add = first + 128;
            if (MODE != NHWC4)
                add += scan32(c[7], lane) - c[7];
#pragma unroll
            for (int m = 0; m < 8; m++) {
                // sums along k in two fields of 16 bits; byte 0 is replaced by the code of row 0
                u32 row = (c[m] + add) & 0xff;
                u32 even = prmt<0x5254>(w[m], row); // row, 0, byte 2, 0
                u32 odd = prmt<0x4341>(w[m], 0);    // byte 1, 0, byte 3, 0
                even *= 0x10001u;
                odd *= 0x10001u;
                u32 p02 = even + (odd << 16), p13 = even + odd;
                w[m] = prmt<0x6240>(p02, p13);
            }
#endif
        }
    }
    __syncwarp();
    const bool inner = t < g.inner;
    if (MODE == NHWC4) {
#pragma unroll
        for (int m = 0; m < 8; m++)
            ((u32 *)ex)[32 * m + lane] = w[m];
        __syncwarp();
        u32 L = 32 * t + 4 * (lane & 7), p8 = g.byC(L), c = L - p8 * g.C;
        u64 row = (u64)g.S * g.C;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 v = ex[lane + 32 * i];
            u32 P = 8 * p8 + (lane >> 3) + 4 * i, pos = P + 3 * g.S * g.byS(P);
            float *at = y + (u64)pos * g.C + c;
            float4 f[4] = {make_float4(decode<0>(v.x, q), decode<0>(v.y, q), decode<0>(v.z, q), decode<0>(v.w, q)),
                           make_float4(decode<1>(v.x, q), decode<1>(v.y, q), decode<1>(v.z, q), decode<1>(v.w, q)),
                           make_float4(decode<2>(v.x, q), decode<2>(v.y, q), decode<2>(v.z, q), decode<2>(v.w, q)),
                           make_float4(decode<3>(v.x, q), decode<3>(v.y, q), decode<3>(v.z, q), decode<3>(v.w, q))};
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (inner || pos + k * g.S < g.positions)
                    __stcs((float4 *)(at + k * row), f[k]);
        }
    } else if (MODE == FLAT8) {
        transpose4(w[0], w[1], w[2], w[3]);
        transpose4(w[4], w[5], w[6], w[7]);
        ex[unit_swizzle(2 * lane)] = make_uint4(w[0], w[4], w[1], w[5]);
        ex[unit_swizzle(2 * lane + 1)] = make_uint4(w[2], w[6], w[3], w[7]);
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 8; j++) {
            u32 v = ((const u32 *)ex)[(32 * j + lane) ^ ((j & 1) << 2)], pos = 1024 * t + 128 * j + 4 * lane;
            float4 f = make_float4(decode<0>(v, q), decode<1>(v, q), decode<2>(v, q), decode<3>(v, q));
            if (inner) {
                __stcs((float4 *)(y + pos), f);
            } else {
                if (pos < g.positions)
                    y[pos] = f.x;
                if (pos + 1 < g.positions)
                    y[pos + 1] = f.y;
                if (pos + 2 < g.positions)
                    y[pos + 2] = f.z;
                if (pos + 3 < g.positions)
                    y[pos + 3] = f.w;
            }
        }
    } else if (SWEEP && g.S <= SWEEP_S) {
        // Codes as bytes in order of memory; 0, which no biased code is, where a byte belongs to another tile.
        constexpr int V = MODE == ROW4 ? 4 : MODE == ROW2 ? 2 : 1;
        u8 *lin = s_tile[warp];
#pragma unroll
        for (int i = 0; i < (1024 + 6 * SWEEP_S + 16) / 16; i += 32)
            if (i + lane < (1024 + 6 * SWEEP_S + 16) / 16)
                ex[i + lane] = make_uint4(0, 0, 0, 0);
        __syncwarp();
        transpose4(w[0], w[1], w[2], w[3]); // words k, bytes m
        transpose4(w[4], w[5], w[6], w[7]);
        u32 P = 256 * t, start = (P + 3 * g.S * g.byS(P)) & ~3u;
        P += 8 * lane;
        u32 band = g.byS(P), pos = P + 3 * g.S * band, p = P - band * g.S;
#pragma unroll
        for (int j = 0; j < 8; j += V) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                u32 o = pos + k * g.S, v = w[(j & 4) + k] >> 8 * (j & 3);
                u8 *d = lin + (o - start);
                if (inner) {
                    if (V == 4)
                        *(u32 *)d = v;
                    else if (V == 2)
                        *(uint16_t *)d = v;
                    else
                        *d = v;
                } else {
#pragma unroll
                    for (int e_ = 0; e_ < V; e_++)
                        if (o + e_ < g.positions)
                            d[e_] = v >> 8 * e_;
                }
            }
            p += V, pos += V;
            if (p == g.S)
                p = 0, pos += 3 * g.S;
        }
        __syncwarp();
        P = 256 * t + 255;
        u32 quads = ((P + 3 * g.S * g.byS(P) + 3 * g.S - start) >> 2) + 1;
#pragma unroll 4
        for (u32 i = lane; i < quads; i += 32) {
            u32 v = ((const u32 *)lin)[i];
            float *at = y + start + 4 * i;
            float4 f = make_float4(decode<0>(v, q), decode<1>(v, q), decode<2>(v, q), decode<3>(v, q));
            if (!((v - 0x01010101u) & ~v & HIGH)) {
                __stcs((float4 *)at, f);
            } else if (v) {
                if (v & 0xff)
                    at[0] = f.x;
                if (v & 0xff00)
                    at[1] = f.y;
                if (v & 0xff0000)
                    at[2] = f.z;
                if (v & 0xff000000)
                    at[3] = f.w;
            }
        }
    } else {
        constexpr int V = MODE == ROW4 || MODE == ROW8 || MODE == FLAT8 ? 4 : MODE == ROW2 ? 2 : 1;
        ex[unit_swizzle(2 * lane)] = make_uint4(w[0], w[1], w[2], w[3]);
        ex[unit_swizzle(2 * lane + 1)] = make_uint4(w[4], w[5], w[6], w[7]);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint4 v4 = ex[unit_swizzle(lane + 32 * i)];
            u32 v[4] = {v4.x, v4.y, v4.z, v4.w};
            u32 P = 256 * t + 4 * (lane + 32 * i), band = g.byS(P), pos = P + 3 * g.S * band, p = P - band * g.S;
#pragma unroll
            for (int j = 0; j < 4; j += V) {
                float f[4][V];
#pragma unroll
                for (int a = 0; a < V; a++)
                    f[0][a] = decode<0>(v[j + a], q), f[1][a] = decode<1>(v[j + a], q),
                    f[2][a] = decode<2>(v[j + a], q), f[3][a] = decode<3>(v[j + a], q);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    float *at = y + pos + (u64)k * g.S;
                    if (inner) {
                        if (V == 4)
                            __stcs((float4 *)at, make_float4(f[k][0], f[k][1 % V], f[k][2 % V], f[k][3 % V]));
                        else if (V == 2)
                            *(float2 *)at = make_float2(f[k][0], f[k][1 % V]);
                        else
                            *at = f[k][0];
                    } else {
#pragma unroll
                        for (int a = 0; a < V; a++)
                            if (pos + k * g.S + a < g.positions)
                                at[a] = f[k][a];
                    }
                }
                if (V < 4) {
                    p += V, pos += V;
                    if (p == g.S)
                        p = 0, pos += 3 * g.S;
                }
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------

__global__ void read_kernel(const float4 *x, size_t n, float *out) {
    float a = 0;
    size_t i = blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (i + 256 * k < n) {
            float4 f = __ldcs(x + i + 256 * k);
            a += f.x + f.y + f.z + f.w;
        }
    if (a == 1.2345e30f)
        *out = a;
}
__global__ void write_kernel(float4 *y, size_t n) {
    size_t i = blockIdx.x * 1024 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (i + 256 * k < n)
            __stcs(y + i + 256 * k, make_float4(1, 2, 3, k));
}

struct Checked {
    float worst;
    unsigned violations, zeros, wrong;
};
__global__ void check_kernel(const float *x, const float *y, size_t n, Quantiser q, float bound, Checked *out) {
    float worst = 0;
    unsigned violations = 0, zeros = 0, wrong = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        float a = x[i], b = y[i];
        if (__float_as_uint(a) == __float_as_uint(b))
            continue;
        double err = fabs((double)a - (double)b);
        worst = fmaxf(worst, (float)err);
        violations += !(err <= (double)bound);
        zeros += a == 0.f && b != 0.f;
        float code = rintf(__fmaf_rn(a, q.inv, 12582912.f) - 12582912.f);
        wrong += !(__fmul_rn(code, q.s) == b || __float_as_uint(a) == __float_as_uint(b));
    }
    atomicMax((int *)&out->worst, __float_as_int(worst));
    atomicAdd(&out->violations, violations);
    atomicAdd(&out->zeros, zeros);
    atomicAdd(&out->wrong, wrong);
}

static float cut(float v, int bits) {
    u32 b;
    memcpy(&b, &v, 4);
    b &= ~0u << (24 - bits);
    memcpy(&v, &b, 4);
    return v;
}

static cudaStream_t stream;

struct Variant {
    bool stats;
    int tpw, wpb;
};

template <int MODE>
static void launch_compress_mode(Variant v, const float *x, const Geometry &g, const Quantiser &q, u8 *table, u8 *body,
                                 u64 *cursor, float *stats) {
    if (v.stats)
        compress_kernel<MODE, true, 1><<<g.groups, 256, 0, stream>>>(x, g, q, table, body, cursor, cursor + 1, stats);
    else if (v.tpw == 2)
        compress_kernel<MODE, false, 2><<<g.groups, 128, 0, stream>>>(x, g, q, table, body, cursor, cursor + 1, stats);
    else
        compress_kernel<MODE, false, 1><<<g.groups, 256, 0, stream>>>(x, g, q, table, body, cursor, cursor + 1, stats);
}
static void launch_compress(int mode, Variant v, const float *x, const Geometry &g, const Quantiser &q, u8 *table,
                            u8 *body, u64 *cursor, float *stats) {
    switch (mode) {
    case ROW4:
        launch_compress_mode<ROW4>(v, x, g, q, table, body, cursor, stats);
        break;
    case ROW2:
        launch_compress_mode<ROW2>(v, x, g, q, table, body, cursor, stats);
        break;
    case ROW8:
        launch_compress_mode<ROW4>(v, x, g, q, table, body, cursor, stats);
        break;
    case FLAT8:
        launch_compress_mode<FLAT8>(v, x, g, q, table, body, cursor, stats);
        break;
    case ROW1:
        launch_compress_mode<ROW1>(v, x, g, q, table, body, cursor, stats);
        break;
    default:
        launch_compress_mode<NHWC4>(v, x, g, q, table, body, cursor, stats);
    }
}
template <int MODE>
static void launch_decompress_mode(Variant v, float *y, const Geometry &g, const Quantiser &q, const u8 *table,
                                   const u8 *body) {
    if (v.wpb == 4)
        decompress_kernel<MODE, 4><<<(g.tiles + 3) / 4, 128, 0, stream>>>(y, g, q, table, body);
    else
        decompress_kernel<MODE, 8><<<(g.tiles + 7) / 8, 256, 0, stream>>>(y, g, q, table, body);
}
static void launch_decompress(int mode, Variant v, float *y, const Geometry &g, const Quantiser &q, const u8 *table,
                              const u8 *body) {
    switch (mode) {
    case ROW4:
        launch_decompress_mode<ROW4>(v, y, g, q, table, body);
        break;
    case ROW2:
        launch_decompress_mode<ROW2>(v, y, g, q, table, body);
        break;
    case ROW8:
        launch_decompress_mode<ROW8>(v, y, g, q, table, body);
        break;
    case FLAT8:
        launch_decompress_mode<FLAT8>(v, y, g, q, table, body);
        break;
    case ROW1:
        launch_decompress_mode<ROW1>(v, y, g, q, table, body);
        break;
    default:
        launch_decompress_mode<NHWC4>(v, y, g, q, table, body);
    }
}

// Median time of one call in microseconds; call(i) uses buffer i. `batch` > 1: that many calls in a graph, replayed.
template <class F> static double median_us(int runs, int batch, F call) {
    std::vector<cudaEvent_t> ev(runs + 1);
    for (auto &e : ev)
        CHECK(cudaEventCreate(&e));
    int k = 0;
    for (int i = 0; i < 5; i++)
        call(k++);
    CHECK(cudaStreamSynchronize(stream));
    cudaGraphExec_t replay = nullptr;
    if (batch > 1) {
        cudaGraph_t graph;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < batch; i++)
            call(i);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&replay, graph, 0));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaGraphLaunch(replay, stream));
    }
    CHECK(cudaEventRecord(ev[0], stream));
    for (int r = 0; r < runs; r++) {
        if (replay)
            CHECK(cudaGraphLaunch(replay, stream));
        else
            call(k++);
        CHECK(cudaEventRecord(ev[r + 1], stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGetLastError());
    std::vector<float> ms(runs);
    for (int r = 0; r < runs; r++)
        CHECK(cudaEventElapsedTime(&ms[r], ev[r], ev[r + 1]));
    for (auto &e : ev)
        cudaEventDestroy(e);
    if (replay)
        cudaGraphExecDestroy(replay);
    std::sort(ms.begin(), ms.end());
    return 1000.0 * ms[runs / 2] / batch;
}

static Geometry geometry(size_t n, int C, int W, bool nhwc) {
    Geometry g;
    g.C = nhwc ? C : 1;
    g.positions = n / g.C;
    g.S = W >= 8 && g.positions / W >= 16 ? W : 8;
    u64 bands = (g.positions + 4ull * g.S - 1) / (4ull * g.S), whole = g.positions / (4ull * g.S);
    g.tiles = ((bands * g.S + 7) / 8 * g.C + 31) / 32;
    g.groups = (g.tiles + 7) / 8;
    g.inner = whole * g.S / 8 * g.C / 32;
    g.byS.set(g.S);
    g.byC.set(g.C);
    return g;
}
static int mode_of(const Geometry &g) {
    return g.C > 1 ? NHWC4 : g.S == 8 ? FLAT8 : g.S % 8 == 0 ? ROW8 : g.S % 4 == 0 ? ROW4 : g.S % 2 == 0 ? ROW2 : ROW1;
}
static Quantiser quantiser(float bound) {
    Quantiser q;
    q.s = cut(2 * bound * (1 - 1.f / 4096), STEP_BITS);
    q.inv = 1.f / q.s;
    q.reach = 127 * q.s;
    q.zero = -32896.f * q.s;
    return q;
}

// Odd shapes, edges, outliers, NaN.
static int selftest(u8 *px, u8 *py, u8 *ps, u64 *cursor, float *stats, Checked *checked) {
    int failed = 0, runs = 0;
    const int shapes[][4] = {{1, 1, 1, 1},     {3, 5, 7, 9},     {2, 8, 20, 20}, {2, 12, 17, 23}, {5, 40, 10, 10},
                             {3, 36, 14, 14},  {1, 64, 56, 56},  {7, 44, 5, 5},  {2, 4, 33, 31},  {1, 1, 1, 5001},
                             {2, 144, 28, 28}, {9, 100, 11, 11}, {1, 8, 40, 8},  {4, 4, 3, 1030}};
    u32 seed = 1;
    auto rnd = [&] { return (seed = seed * 1664525u + 1013904223u) >> 8; };
    for (auto &sh : shapes)
        for (int nhwc = 0; nhwc < 2; nhwc++)
            for (int kind = 0; kind < 5; kind++)
                for (int stat = 0; stat < 3; stat++) {
                    int C = sh[1], W = sh[3];
                    if (nhwc && C % 4)
                        continue;
                    size_t n = (size_t)sh[0] * C * sh[2] * W;
                    std::vector<float> x(n);
                    for (size_t i = 0; i < n; i++) {
                        float r = (rnd() % 20001 - 10000.f) / 10000, smooth = 20 * sinf(i * 0.01f);
                        x[i] = kind == 0   ? r * 12
                               : kind == 1 ? smooth + r * 0.3f
                               : kind == 2 ? (rnd() % 50 ? 0 : r)
                               : kind == 3 ? r * 4 + (rnd() % 3000 ? 0 : 1000)
                                           : fmaxf(0, r);
                        if (kind == 3 && rnd() % 5000 == 0)
                            x[i] = NAN;
                    }
                    Geometry g = geometry(n, C, W, nhwc);
                    Quantiser q = quantiser(0.1f);
                    u8 *table = ps, *body = ps + (((size_t)24 * g.groups + 255) & ~(size_t)255);
                    CHECK(cudaMemcpy(px, x.data(), n * 4, cudaMemcpyHostToDevice));
                    CHECK(cudaMemset(py, 0x7b, n * 4 + 256));
                    CHECK(cudaMemset(ps, 0xa5, (size_t)g.groups * (32768 + 256)));
                    CHECK(cudaMemset(checked, 0, sizeof(Checked)));
                    Variant v = {stat == 1, stat == 2 ? 2 : 1, stat == 2 ? 4 : 8};
                    launch_compress(mode_of(g), v, (float *)px, g, q, table, body, cursor, stats);
                    launch_decompress(mode_of(g), v, (float *)py, g, q, table, body);
                    check_kernel<<<64, 256, 0, stream>>>((float *)px, (float *)py, n, q, 0.1f, checked);
                    Checked r;
                    CHECK(cudaMemcpy(&r, checked, sizeof r, cudaMemcpyDeviceToHost));
                    u32 behind[2];
                    CHECK(cudaMemcpy(behind, py + n * 4, 8, cudaMemcpyDeviceToHost));
                    runs++;
                    if (stat == 1 && kind != 3) {
                        std::vector<float> part(8ull * g.tiles);
                        CHECK(cudaMemcpy(part.data(), stats, part.size() * 4, cudaMemcpyDeviceToHost));
                        u64 neg = 0, pos = 0, rneg = 0, rpos = 0;
                        float least = INFINITY, most = -INFINITY, rl = INFINITY, rm = -INFINITY;
                        double sum = 0, sq = 0, rs = 0, rq = 0;
                        for (u32 i = 0; i < g.tiles; i++) {
                            u32 c[2];
                            memcpy(c, &part[8 * i], 8);
                            neg += c[0], pos += c[1], least = fminf(least, part[8 * i + 2]),
                                                      most = fmaxf(most, part[8 * i + 3]), sum += part[8 * i + 4],
                                                      sq += part[8 * i + 5];
                        }
                        for (float f : x)
                            rneg += f<0, rpos += f> 0, rl = fminf(rl, f), rm = fmaxf(rm, f), rs += fabs(f),
                                                       rq += (double)f * f;
                        bool pad = g.inner != g.tiles; // padding is counted as 0 in least and most here
                        if (neg != rneg || pos != rpos || (!pad && (least != rl || most != rm)) ||
                            fabs(sum - rs) > 1e-5 * rs || fabs(sq - rq) > 1e-5 * rq) {
                            failed++;
                            printf("FAIL statistics: %llu %llu, %llu %llu\n", (unsigned long long)neg,
                                   (unsigned long long)rneg, (unsigned long long)pos, (unsigned long long)rpos);
                        }
                    }
                    if (r.violations | r.zeros | r.wrong || behind[0] != 0x7b7b7b7bu) {
                        failed++;
                        if (failed < 20)
                            printf("FAIL %dx%dx%dx%d nhwc %d kind %d variant %d mode %d: worst %g viol %u zeros %u "
                                   "wrong %u of %zu\n",
                                   sh[0], C, sh[2], W, nhwc, kind, stat, mode_of(g), r.worst, r.violations, r.zeros,
                                   r.wrong, n);
                    }
                }
    printf("selftest: %d runs, %d failed\n", runs, failed);
    return failed;
}

int main(int argc, char **argv) {
    // usage: codec_gpu FOLDER [small|main|variants] [filter]
    std::string folder = argc > 1 ? argv[1] : ".carry", what = argc > 2 ? argv[2] : "main",
                filter = argc > 3 ? argv[3] : "";
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, 0));
    printf("# %s, %d SMs, step of %d bits, C_BLOCKS %d, D_BLOCKS %d, %s\n", prop.name, prop.multiProcessorCount,
           STEP_BITS, C_BLOCKS, D_BLOCKS, what.c_str());
    const size_t POOL = (size_t)1200 << 20;
    u8 *pool_x, *pool_y, *pool_s;
    CHECK(cudaMalloc(&pool_x, POOL));
    CHECK(cudaMalloc(&pool_y, POOL));
    CHECK(cudaMalloc(&pool_s, POOL + ((size_t)64 << 20)));
    float *stats;
    u64 *cursor;
    Checked *checked;
    CHECK(cudaMalloc(&stats, 64 << 20));
    CHECK(cudaMalloc(&cursor, 16));
    CHECK(cudaMalloc(&checked, sizeof(Checked)));
    CHECK(cudaMemset(cursor, 0, 16));
    CHECK(cudaStreamCreate(&stream)); // a blocking one: plain calls wait for it
    if (what == "selftest")
        return selftest(pool_x, pool_y, pool_s, cursor, stats, checked) != 0;
    FILE *list = fopen((folder + "/list").c_str(), "r");
    if (!list)
        return perror("list"), 1;
    std::vector<double> sizes = what == "small" ? std::vector<double>{1, 4} : std::vector<double>{100};
    printf("%-28s %4s %4s %5s %3s | %6s %5s %5s | %7s %7s %7s | %6s %6s %6s | %7s %s\n", "tensor", "lay", "MiB", "eb",
           "var", "ratio", "pred%", "raw%", "copy us", "comp us", "deco us", "c/copy", "d/copy", "c GB/s", "err/B",
           "viol zero wrong");
    char name[256];
    int N, C, H, W;
    double rms;
    while (fscanf(list, "%255s %d %d %d %d %lf", name, &N, &C, &H, &W, &rms) == 6) {
        for (int nhwc = 0; nhwc < 2; nhwc++) {
            std::string file = folder + "/" + name + (nhwc ? ".nhwc" : ".nchw");
            FILE *f = fopen(file.c_str(), "rb");
            if (!f)
                continue;
            if (!filter.empty() && file.find(filter) == std::string::npos)
                continue;
            size_t sample = (size_t)C * H * W;
            std::vector<float> one(sample * N);
            if (fread(one.data(), 4, one.size(), f) != one.size())
                return fprintf(stderr, "short %s\n", file.c_str()), 1;
            fclose(f);
            for (double mib : sizes) {
                size_t samples = std::max<size_t>(1, (size_t)llround(mib * 1048576 / 4 / sample)), n = samples * sample;
                Geometry g = geometry(n, C, W, nhwc);
                int mode = mode_of(g);
                size_t bytes = n * 4, stride = (bytes + 255) & ~(size_t)255,
                       tableBytes = ((size_t)24 * g.groups + 255) & ~(size_t)255;
                size_t streamStride = tableBytes + (size_t)g.groups * 8 * 4096 + 256;
                int bufs = std::min<size_t>(POOL / std::max(stride, streamStride),
                                            std::max<size_t>(4, ((size_t)400 << 20) / stride));
                for (int b = 0; b < bufs; b++) {
                    float *x = (float *)(pool_x + b * stride);
                    for (size_t s = 0; s < samples; s += N)
                        CHECK(cudaMemcpyAsync(x + s * sample, one.data(), std::min<size_t>(N, samples - s) * sample * 4,
                                              cudaMemcpyHostToDevice));
                    if (b == 0)
                        CHECK(cudaDeviceSynchronize());
                }
                CHECK(cudaDeviceSynchronize());
                auto X = [&](int i) { return (float *)(pool_x + (size_t)(i % bufs) * stride); };
                auto Y = [&](int i) { return (float *)(pool_y + (size_t)(i % bufs) * stride); };
                auto T = [&](int i) { return pool_s + (size_t)(i % bufs) * streamStride; };
                auto B = [&](int i) { return T(i) + tableBytes; };
                int runs = 25, batch = mib < 50 ? std::min(bufs, 200) : 1;
                if (what == "main" || what == "small")
                    printf("# floors for %zu bytes: read %.2f us, write %.2f us\n", bytes,
                           median_us(runs, batch,
                                     [&](int i) {
                                         read_kernel<<<(n / 4 + 1023) / 1024, 256, 0, stream>>>((float4 *)X(i), n / 4,
                                                                                                stats);
                                     }),
                           median_us(runs, batch, [&](int i) {
                               write_kernel<<<(n / 4 + 1023) / 1024, 256, 0, stream>>>((float4 *)Y(i), n / 4);
                           }));
                for (double eb : {0.1, 0.3}) {
                    float bound = (float)(eb * rms);
                    if (bound > eb * rms)
                        bound = nextafterf(bound, 0);
                    Quantiser q = quantiser(bound);
                    std::vector<Variant> variants = {{false, 1, 8}};
                    if (what == "variants")
                        variants = {{false, 1, 8}, {false, 2, 4}, {true, 1, 8}};
                    if (what == "main")
                        variants = {{false, 1, 8}, {true, 1, 8}};
                    for (Variant v : variants) {
                        double copy = median_us(runs, batch, [&](int i) {
                            CHECK(cudaMemcpyAsync(Y(i), X(i), bytes, cudaMemcpyDeviceToDevice, stream));
                        });
                        double comp = median_us(runs, batch, [&](int i) {
                            launch_compress(mode, v, X(i), g, q, T(i), B(i), cursor, stats);
                        });
                        CHECK(cudaMemset(pool_y, 0x7b, stride * bufs));
                        double deco =
                            median_us(runs, batch, [&](int i) { launch_decompress(mode, v, Y(i), g, q, T(i), B(i)); });
                        CHECK(cudaMemset(checked, 0, sizeof(Checked)));
                        for (int b = 0; b < (mib < 50 ? 2 : bufs); b++)
                            check_kernel<<<1024, 256, 0, stream>>>(X(b), Y(b), n, q, bound, checked);
                        Checked r;
                        CHECK(cudaMemcpy(&r, checked, sizeof r, cudaMemcpyDeviceToHost));
                        std::vector<u8> table((size_t)24 * g.groups);
                        CHECK(cudaMemcpy(table.data(), T(0), table.size(), cudaMemcpyDeviceToHost));
                        u64 total = 0, rawTiles = 0;
                        std::vector<u8> bodyHost(16);
                        u64 pred = 0, probed = 0;
                        for (u32 i = 0; i < g.groups; i++) {
                            u64 off;
                            memcpy(&off, &table[24 * i], 8);
                            for (int k = 0; k < 8; k++) {
                                uint16_t e;
                                memcpy(&e, &table[24 * i + 8 + 2 * k], 2);
                                if (i % 64 == 0 && e && !(e >> 13)) {
                                    u8 head;
                                    CHECK(cudaMemcpy(&head, B(0) + off, 1, cudaMemcpyDeviceToHost));
                                    probed++, pred += head >> 7;
                                }
                                total += e & 0x1fff, off += e & 0x1fff;
                                rawTiles += e >> 13 == 2;
                            }
                        }
                        total += table.size() + 128;
                        std::string shortName = name;
                        size_t cutAt = shortName.find("efficientnet_");
                        if (cutAt == 0)
                            shortName = "eff" + shortName.substr(12);
                        printf("%-28s %4s %4.0f %5.1f %d%d%c | %6.2f %5.1f %5.2f | %7.2f %7.2f %7.2f | %6.3f %6.3f "
                               "%6.0f | %7.4f %u %u %u%s\n",
                               shortName.c_str(),
                               nhwc            ? "NHWC"
                               : mode == FLAT8 ? "flat"
                               : mode == ROW8  ? "row8"
                               : mode == ROW4  ? "row4"
                               : mode == ROW2  ? "row2"
                                               : "row1",
                               mib, eb, v.tpw, v.wpb, v.stats ? 's' : '-', (double)bytes / total,
                               100.0 * pred / std::max<u64>(1, probed), 100.0 * rawTiles / g.tiles, copy, comp, deco,
                               comp / copy, deco / copy, bytes / comp * 1e-3, r.worst / bound, r.violations, r.zeros,
                               r.wrong, r.violations | r.zeros | r.wrong ? "  <-- BAD" : "");
                        fflush(stdout);
                    }
                }
            }
        }
    }
    return 0;
}
