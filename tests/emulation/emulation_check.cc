// SPDX-License-Identifier: Apache-2.0
// Checks the emulator itself: its instructions, collectives, order of execution, runtime API, and that broken kernels
// are caught.
#include <cuda_runtime.h>
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#include "codec/cuda/device.cuh"

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)
#define CHECK_BITS(a, b) CHECK(__float_as_uint(a) == __float_as_uint(b))

// ---- instructions, which need no kernel ----

static void check_integers() {
    CHECK(__popc(0xf0f0u) == 8 && __popcll(~0ull) == 64);
    CHECK(__clz(0) == 32 && __clz(1) == 31 && __clz(-1) == 0 && __clzll(0) == 64 && __clzll(1) == 63);
    CHECK(__ffs(0) == 0 && __ffs(8) == 4 && __ffsll(1ll << 40) == 41);
    CHECK(__brev(1u) == 0x80000000u && __brev(0x12345678u) == 0x1e6a2c48u && __brevll(1) == 1ull << 63);
    CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x7531u) == 0x77553311u);
    CHECK(permute<0x0123>(0x33221100u, 0u) == 0x00112233u);
    CHECK(permute<0xba98>(0x80ff7f01u, 0u) == 0xffff0000u);
    CHECK(logic3<0xca>(0xff00ff00u, 0x12345678u, 0x9abcdef0u) == 0x12bc56f0u); // a ? b : c
    CHECK(logic3<0x96>(1u, 3u, 5u) == (1u ^ 3u ^ 5u) && logic3<0xe8>(6u, 5u, 3u) == 7u);
    CHECK(__funnelshift_l(0x80000000u, 1u, 1) == 3u && __funnelshift_l(5u, 7u, 32) == 7u);
    CHECK(__funnelshift_lc(5u, 7u, 32) == 5u && __funnelshift_r(0u, 1u, 1) == 0x80000000u);
    CHECK(__funnelshift_rc(5u, 7u, 33) == 7u && __funnelshift_r(5u, 7u, 32) == 5u);
    CHECK(__umulhi(0xffffffffu, 0xffffffffu) == 0xfffffffeu && __mulhi(-1, 1) == -1);
    CHECK(__umul64hi(~0ull, ~0ull) == ~0ull - 1);
    CHECK(__fns(0x14u, 0, 2) == 4u && __fns(0x14u, 31, -1) == 4u && __fns(1u, 0, 2) == 0xffffffffu);
    CHECK(min(3, 5u) == 3u && max(-1, 2) == 2 && max(-1, 2u) == 0xffffffffu && min(1.0f, NAN) == 1.0f);
    CHECK(__vcmpeq4(0x01020304u, 0x01ff03ffu) == 0xff00ff00u && __vadd4(0xff010203u, 0x01010101u) == 0x00020304u);
    CHECK(__vmaxs4(0x80010000u, 0x7f800000u) == 0x7f010000u && __vsub2(0x00000001u, 0x00010002u) == 0xffffffffu);
    CHECK(__dp4a(0x01020304u, 0x01010101u, 1u) == 11u && __dp4a((int)0xff000000u, 0x02000000, 0) == -2);
}

static void check_conversions() {
    CHECK(__float2int_rn(2.5f) == 2 && __float2int_rn(3.5f) == 4 && __float2int_rn(-2.5f) == -2);
    CHECK(__float2int_rz(-2.9f) == -2 && __float2int_rd(-2.1f) == -3 && __float2int_ru(2.1f) == 3);
    CHECK(__float2int_rn(1e20f) == 0x7fffffff && __float2int_rn(-1e20f) == (int)0x80000000u &&
          __float2int_rn(NAN) == 0);
    CHECK(__float2uint_rn(-1.0f) == 0u && __float2uint_rn(5e9f) == 0xffffffffu && __float2uint_rz(3e9f) == 3000000000u);
    CHECK(__float2ll_rn(1e30f) == 0x7fffffffffffffffll && __double2ll_rd(-0.5) == -1);
    CHECK(__int2float_rn(16777217) == 16777216.0f && __int2float_ru(16777217) == 16777218.0f);
    CHECK(__uint2float_rz(0xffffffffu) == 4294967040.0f);
    CHECK(__float_as_uint(1.0f) == 0x3f800000u && __longlong_as_double(__double_as_longlong(-2.5)) == -2.5);
    CHECK(__hiloint2double(__double2hiint(0.1), __double2loint(0.1)) == 0.1);
    CHECK(float_of_f16(0x3c00u) == 1.0f && f16_of_float(65520.0f) == 0x7c00u && f16_of_float(0x1p-24f) == 1u);
    CHECK(bf16_of_float(1.00390625f) == 0x3f80u && bf16_of_float(1.01171875f) == 0x3f82u);
    CHECK(max3(-3, 5, 2) == 5 && max3(3u, 0x80000000u, 2u) == 0x80000000u && min3(3u, 0x80000000u, 2u) == 2u);
}

static uint32_t random_word() {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

// A float of any kind; every other one near 1, so that sums cancel.
static float random_float() {
    uint32_t w = random_word();
    return __uint_as_float(w & 1u ? w : (w & 0x81ffffffu) + 0x3f000000u);
}

static bool same_number(float a, float b) {
    return (a != a && b != b) || __float_as_uint(a) == __float_as_uint(b);
}

// The machine's own fused operation in that rounding mode. volatile: no compiler may move or fold it.
__attribute__((noinline)) static float machine_fma(float a, float b, float c, int mode) {
    volatile float x = a, y = b, z = c;
    fesetround(mode);
    volatile float r = fmaf(x, y, z);
    fesetround(FE_TONEAREST);
    return r;
}

__attribute__((noinline)) static float machine_multiply(float a, float b, int mode) {
    volatile float x = a, y = b;
    fesetround(mode);
    volatile float r = x * y;
    fesetround(FE_TONEAREST);
    return r;
}

static void check_rounding_of(float a, float b, float c) {
    CHECK(same_number(__fmaf_rn(a, b, c), machine_fma(a, b, c, FE_TONEAREST)));
    CHECK(same_number(__fmaf_rz(a, b, c), machine_fma(a, b, c, FE_TOWARDZERO)));
    CHECK(same_number(__fmaf_ru(a, b, c), machine_fma(a, b, c, FE_UPWARD)));
    CHECK(same_number(__fmaf_rd(a, b, c), machine_fma(a, b, c, FE_DOWNWARD)));
    CHECK(same_number(__fmul_rz(a, b), machine_multiply(a, b, FE_TOWARDZERO)));
    CHECK(same_number(__fmul_ru(a, b), machine_multiply(a, b, FE_UPWARD)));
    CHECK(same_number(__fmul_rd(a, b), machine_multiply(a, b, FE_DOWNWARD)));
    CHECK(same_number(__fadd_ru(a, c), machine_fma(1.0f, a, c, FE_UPWARD)));
    CHECK(same_number(__fsub_rd(a, c), machine_fma(1.0f, a, -c, FE_DOWNWARD)));
}

static void check_rounding() {
    const float special[] = {0.0f,      -0.0f,           1.0f,     -1.0f, 0x1p-149f, -0x1p-149f,
                             0x1p-126f, 0x1.fffffep127f, INFINITY, NAN};
    for (float a : special)
        for (float b : special)
            for (float c : special)
                check_rounding_of(a, b, c);
    for (int i = 0; i < 20000; i++)
        check_rounding_of(random_float(), random_float(), random_float());
    for (int i = 0; i < 20000; i++) { // results that cancel to almost nothing
        float a = random_float(), b = random_float();
        check_rounding_of(a, b, -(a * b));
    }
    CHECK_BITS(__fdiv_rn(1.0f, 3.0f), 0x1.555556p-2f);
    CHECK(__frcp_rn(4.0f) == 0.25f && __fsqrt_rn(2.0f) == 0x1.6a09e6p0f && __dsqrt_rn(4.0) == 2.0);
    CHECK(__float_as_uint(__fadd_rn(INFINITY, -INFINITY)) == 0x7fffffffu);
    CHECK(__double2float_ru(1.0000000001) == 0x1.000002p0f && __double2float_rz(1e300) == 0x1.fffffep127f);
}

// ---- collectives ----

template <class T> struct device_array {
    T *at = nullptr;
    explicit device_array(size_t n) {
        CHECK(cudaMalloc(&at, n * sizeof(T)) == cudaSuccess);
        CHECK(cudaMemset(at, 0, n * sizeof(T)) == cudaSuccess);
    }
    ~device_array() {
        CHECK(cudaFree(at) == cudaSuccess);
    }
    T &operator[](size_t i) const {
        return at[i];
    }
};

static __global__ void __launch_bounds__(64) votes(u32 *out) {
    u32 i = threadIdx.x, lane = i % 32;
    u32 ballot = __ballot_sync(ALL_LANES, lane % 3 == 0);
    int any = __any_sync(ALL_LANES, lane == 7), all = __all_sync(ALL_LANES, lane < 31);
    u32 same = __match_any_sync(ALL_LANES, lane / 8);
    int equal;
    u32 everyone = __match_all_sync(ALL_LANES, 5ull, &equal);
    out[i * 4] = ballot;
    out[i * 4 + 1] = (u32)(any | all << 1 | equal << 2);
    out[i * 4 + 2] = same;
    out[i * 4 + 3] = everyone;
}

static void check_votes() {
    device_array<u32> out(256);
    CHECK(launch(votes, 1, 64, nullptr, out.at) == cudaSuccess);
    for (u32 i = 0; i < 64; i++) {
        CHECK(out[i * 4] == 0x49249249u && out[i * 4 + 1] == 5u);
        CHECK(out[i * 4 + 2] == 0xffu << (i % 32 / 8 * 8) && out[i * 4 + 3] == 0xffffffffu);
    }
}

static __global__ void reductions(int *out) {
    u32 lane = threadIdx.x;
    int v = (int)lane - 16;
    int sum = __reduce_add_sync(ALL_LANES, v), least = __reduce_min_sync(ALL_LANES, v);
    int greatest = __reduce_max_sync(ALL_LANES, v);
    u32 ored = __reduce_or_sync(ALL_LANES, 1u << lane % 4), anded = __reduce_and_sync(ALL_LANES, lane | 64u);
    u32 xored = __reduce_xor_sync(ALL_LANES, lane), unsigned_least = __reduce_min_sync(ALL_LANES, (u32)v);
    int results[7] = {sum, least, greatest, (int)ored, (int)anded, (int)xored, (int)unsigned_least};
    for (int i = 0; i < 7; i++)
        out[lane * 7 + i] = results[i];
}

static void check_reductions() {
    device_array<int> out(32 * 7);
    CHECK(launch(reductions, 1, 32, nullptr, out.at) == cudaSuccess);
    const int expected[7] = {-16, -16, 15, 15, 64, 0, 0};
    for (int i = 0; i < 32 * 7; i++)
        CHECK(out[i] == expected[i % 7]);
}

static __global__ void shuffles(u64 *out, int width) {
    u32 lane = threadIdx.x;
    int at = (int)lane * 8;
    out[at] = (u64)__shfl_sync(ALL_LANES, (int)lane * 10, 5, width);
    out[at + 1] = __shfl_up_sync(ALL_LANES, lane, 3, width);
    out[at + 2] = __shfl_down_sync(ALL_LANES, (u64)lane << 40, 3, width) >> 40;
    out[at + 3] = (u64)__shfl_xor_sync(ALL_LANES, (float)lane, 9, width);
    out[at + 4] = (u64)__shfl_sync(ALL_LANES, (double)lane + 0.5, (int)lane + 1, width);
    out[at + 5] = (u64)__shfl_xor_sync(ALL_LANES, (u8)lane, 1, width);
    out[at + 6] = (u64)__shfl_down_sync(ALL_LANES, (long long)lane, 1);
    out[at + 7] = __shfl_up_sync(ALL_LANES, lane, 33); // only five bits of the distance count
}

static void check_shuffles(u32 width) {
    device_array<u64> out(256);
    CHECK(launch(shuffles, 1, 32, nullptr, out.at, (int)width) == cudaSuccess);
    for (u32 i = 0; i < 32; i++) {
        u32 first = i / width * width, last = first + width - 1;
        const u64 *o = &out[i * 8];
        CHECK(o[0] == (first + 5 % width) * 10);
        CHECK(o[1] == (i >= first + 3 ? i - 3 : i));
        CHECK(o[2] == (i + 3 <= last ? i + 3 : i));
        CHECK(o[3] == ((i ^ 9) <= last ? i ^ 9 : i));
        CHECK(o[4] == first + (i + 1) % width);
        CHECK(o[5] == ((i ^ 1) <= last ? i ^ 1 : i) && o[6] == (i < 31 ? i + 1 : i) && o[7] == (i > 0 ? i - 1 : 0));
    }
}

// Two halves of a warp go different ways, with masks of their own, as often as they like; then they meet.
static __global__ void diverging(u32 *out) {
    u32 lane = threadIdx.x, r = 0;
    if (lane < 16) {
        for (u32 i = 0; i < 5; i++)
            r += __popc(__ballot_sync(0x0000ffffu, lane & 1u));
    } else if (lane < 24) {
        r = __reduce_add_sync(0x00ff0000u, lane);
    } else {
        __syncwarp(0xff000000u);
        r = 1;
    }
    __syncwarp();
    out[lane] = __shfl_xor_sync(ALL_LANES, r, 16);
}

static void check_divergence() {
    device_array<u32> out(32);
    CHECK(launch(diverging, 1, 32, nullptr, out.at) == cudaSuccess);
    for (u32 i = 0; i < 32; i++)
        CHECK(out[i] == (i >= 16 ? 40u : i < 8 ? 156u : 1u));
}

// An inclusive scan over a block, by warps; the last threads leave early.
static __global__ void scan(const u32 *in, u32 *out, u32 n, u32 *total) {
    __shared__ u32 sums[32];
    u32 i = threadIdx.x, lane = i % 32, w = i / 32, at = blockIdx.x * blockDim.x + i;
    u32 v = at < n ? in[at] : 0;
#pragma unroll
    for (u32 step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(ALL_LANES, v, step);
        v += lane >= step ? other : 0;
    }
    if (lane == 31)
        sums[w] = v;
    __syncthreads();
    for (u32 k = 0; k < w; k++)
        v += sums[k];
    if (at >= n)
        return;
    out[at] = v;
    __syncthreads();
    if (i == 0)
        atomicAdd(total, 1u);
}

static void check_scan(u64 order) {
    emulation_set_block_order(order);
    emulation_set_thread_order(order);
    const u32 n = 5 * 256 - 100;
    device_array<u32> in(n), out(n), total(1);
    for (u32 i = 0; i < n; i++)
        in[i] = i * i;
    CHECK(launch(scan, (n + 255) / 256, 256, nullptr, in.at, out.at, n, total.at) == cudaSuccess);
    for (u32 i = 0, sum = 0; i < n; i++) {
        sum = (i % 256 ? sum : 0) + in[i];
        CHECK(out[i] == sum);
    }
    CHECK(total[0] == 5);
    emulation_reset();
}

static __global__ void barriers(int *out) {
    u32 i = threadIdx.x;
    int any = __syncthreads_or(i == 70), all = __syncthreads_and(i < 99), count = __syncthreads_count(i % 2);
    out[i] = any * 10000 + all * 1000 + count;
}

static void check_barriers() {
    device_array<int> out(100);
    CHECK(launch(barriers, 1, 100, nullptr, out.at) == cudaSuccess);
    for (int i = 0; i < 100; i++)
        CHECK(out[i] == 10050);
}

static __global__ void atomics(int *i, u32 *u, unsigned long long *l, float *f, double *d) {
    u32 t = threadIdx.x + blockIdx.x * blockDim.x;
    atomicAdd(&i[0], -1);
    atomicMin(&i[1], -(int)t);
    atomicMax(&i[2], (int)t);
    atomicAdd(&u[0], t);
    atomicOr(&u[1], 1u << t % 32);
    atomicAnd(&u[2], t | 0xf0u);
    atomicXor(&u[3], t);
    atomicAdd(&l[0], 1ull << 33);
    atomicMax(&l[1], (unsigned long long)t << 40);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    if (t == 3)
        CHECK(atomicCAS(&u[4], 7u, 9u) == 7u && atomicCAS(&u[4], 7u, 1u) == 9u && atomicExch(&u[5], 4u) == 7u);
}

static void check_atomics() {
    device_array<int> i(3);
    device_array<u32> u(6);
    device_array<unsigned long long> l(2);
    device_array<float> f(1);
    device_array<double> d(1);
    u[2] = 0xffu;
    u[4] = u[5] = 7u;
    CHECK(launch(atomics, 4, 64, nullptr, i.at, u.at, l.at, f.at, d.at) == cudaSuccess);
    CHECK(i[0] == -256 && i[1] == -255 && i[2] == 255 && u[0] == 255 * 128 && u[1] == 0xffffffffu && u[2] == 0xf0u);
    CHECK(u[3] == 0 && u[4] == 9 && u[5] == 4 && l[0] == 256ull << 33 && l[1] == 255ull << 40);
    CHECK(f[0] == 128.0f && d[0] == 64.0);
}

// A thread waits for another of its block by polling; its turn must end.
static __global__ void polling(u32 *flag, u32 *out) {
    if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0u) == 0)
            ;
        while (atomicOr(flag, 0u) != 2)
            __nanosleep(20);
        *out = 1;
    } else if (threadIdx.x == 33) {
        atomicExch(flag, 1u);
        __threadfence();
        atomicExch(flag, 2u);
    }
}

static void check_polling() {
    device_array<u32> flag(1), out(1);
    CHECK(launch(polling, 1, 64, nullptr, flag.at, out.at) == cudaSuccess && out[0] == 1);
}

static __global__ void indices(uint4 *out) {
    u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    u32 thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    uint4 v = make_uint4(block, thread, blockDim.x * blockDim.y * blockDim.z, gridDim.z);
    __stcs(&out[block * 24 + thread], v);
}

static void check_indices() {
    device_array<uint4> out(30 * 24);
    CHECK(launch(indices, dim3(2, 3, 5), dim3(4, 3, 2), nullptr, out.at) == cudaSuccess);
    for (u32 i = 0; i < 30 * 24; i++) {
        uint4 v = __ldg(&out[i]);
        CHECK(v.x == i / 24 && v.y == i % 24 && v.z == 24 && v.w == 5);
    }
}

// ---- order ----

static __global__ void tickets(u32 *next, u32 *out) {
    __shared__ u32 mine;
    if (threadIdx.x == 0)
        mine = atomicAdd(next, 1u);
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1)
        out[blockIdx.x] = mine;
}

static void check_order(u64 seed) {
    const u32 n = 37;
    device_array<u32> next(1), out(n);
    emulation_set_block_order(seed);
    CHECK(launch(tickets, n, 33, nullptr, next.at, out.at) == cudaSuccess);
    u32 in_order = 0;
    u64 seen = 0;
    for (u32 i = 0; i < n; i++) {
        in_order += out[i] == i;
        seen |= 1ull << out[i];
    }
    CHECK(seen == (1ull << n) - 1 && (in_order == n) == (seed == 0));
    emulation_reset();
}

static __global__ void first_come(u32 *next, u32 *out) {
    out[threadIdx.x] = atomicAdd(next, 1u);
}

static void check_thread_order(u64 seed) {
    device_array<u32> next(1), out(64);
    emulation_set_thread_order(seed);
    CHECK(launch(first_come, 1, 64, nullptr, next.at, out.at) == cudaSuccess);
    u32 in_order = 0;
    for (u32 i = 0; i < 64; i++)
        in_order += out[i] == i;
    CHECK((in_order == 64) == (seed == 0));
    emulation_reset();
}

// ---- the runtime ----

static __global__ void add_one(u32 *p) {
    p[threadIdx.x]++;
}

static void check_graph() {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    device_array<u32> a(32), b(32);
    size_t nodes = 0;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(launch(add_one, 1, 32, stream, a.at) == cudaSuccess);
    CHECK(cudaMemcpyAsync(b.at, a.at, 128, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
    CHECK(cudaMemsetAsync(a.at, 0, 4, stream) == cudaSuccess);
    CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusActive);
    CHECK(a[0] == 0 && b[0] == 0);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusNone);
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess && nodes == 3);
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
    for (u32 i = 1; i <= 3; i++) {
        CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess);
        CHECK(a[0] == 0 && b[0] == 1 && a[31] == i && b[31] == i);
    }
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, nullptr) == cudaErrorInvalidValue && cudaGetLastError() == cudaErrorInvalidValue);
}

// Each of these breaks a capture; `expected` is what the call itself returns.
static void check_breaks_capture(cudaError_t (*call)(cudaStream_t), cudaError_t expected) {
    cudaStream_t stream;
    cudaGraph_t graph;
    CHECK(cudaStreamCreate(&stream) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(call(stream) == expected);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaGetLastError() == cudaErrorStreamCaptureInvalidated && cudaGetLastError() == cudaSuccess);
}

static void check_capture_errors() {
    static void *p;
    check_breaks_capture([](cudaStream_t s) { return cudaStreamSynchronize(s); }, cudaErrorStreamCaptureUnsupported);
    check_breaks_capture([](cudaStream_t s) { return cudaStreamQuery(s); }, cudaErrorStreamCaptureUnsupported);
    check_breaks_capture([](cudaStream_t) { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported);
    check_breaks_capture([](cudaStream_t) { return cudaMalloc(&p, 8); }, cudaErrorStreamCaptureUnsupported);
    check_breaks_capture([](cudaStream_t) { return cudaMallocHost(&p, 8); }, cudaErrorStreamCaptureUnsupported);
    device_array<u32> a(32);
    static u32 *at;
    at = a.at;
    check_breaks_capture([](cudaStream_t) { return launch(add_one, 1, 32, nullptr, at); },
                         cudaErrorStreamCaptureImplicit);
    check_breaks_capture([](cudaStream_t) { return cudaMemset(at, 0, 4); }, cudaErrorStreamCaptureImplicit);
    CHECK(a[0] == 0 &&
          cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaGetLastError() == cudaErrorStreamCaptureUnsupported);
}

// Calls that could disturb a capture are allowed to a thread that says so.
static void check_relaxed_thread() {
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaEvent_t event = nullptr;
    void *p = nullptr;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK(cudaEventCreate(&event) == cudaSuccess && cudaEventRecord(event) == cudaSuccess);
    CHECK(cudaStreamCreate(&stream) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess && mode == cudaStreamCaptureModeGlobal);
    CHECK(cudaMalloc(&p, 8) == cudaSuccess && cudaFree(p) == cudaSuccess && cudaEventQuery(event) == cudaSuccess);
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess && mode == cudaStreamCaptureModeRelaxed);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaEventDestroy(event) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess);
}

static void check_forked_capture(bool joins) {
    cudaStream_t first = nullptr, second = nullptr;
    cudaEvent_t fork = nullptr, back = nullptr;
    cudaGraph_t graph;
    device_array<u32> a(32);
    CHECK(cudaStreamCreate(&first) == cudaSuccess && cudaStreamCreate(&second) == cudaSuccess);
    CHECK(cudaEventCreate(&fork) == cudaSuccess &&
          cudaEventCreateWithFlags(&back, cudaEventDisableTiming) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(cudaEventRecord(fork, first) == cudaSuccess && cudaStreamWaitEvent(second, fork) == cudaSuccess);
    CHECK(launch(add_one, 1, 32, second, a.at) == cudaSuccess && a[5] == 0);
    CHECK(cudaEventRecord(back, second) == cudaSuccess);
    if (joins)
        CHECK(cudaStreamWaitEvent(first, back) == cudaSuccess);
    CHECK(cudaStreamEndCapture(first, &graph) == (joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
    CHECK(launch(add_one, 1, 32, second, a.at) == cudaSuccess && a[5] == 1);
    CHECK(!joins || cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaEventDestroy(fork) == cudaSuccess && cudaEventDestroy(back) == cudaSuccess);
    CHECK(cudaStreamDestroy(first) == cudaSuccess && cudaStreamDestroy(second) == cudaSuccess);
    cudaGetLastError();
}

static void check_memory() {
    u32 host[4] = {1, 2, 3, 4};
    u32 *p = nullptr, *h = nullptr;
    cudaPointerAttributes attributes;
    uint64_t live = emulation_live_allocations();
    CHECK(cudaMalloc(&p, 16) == cudaSuccess && (uintptr_t)p % 256 == 0 && cudaMallocHost(&h, 16) == cudaSuccess);
    CHECK(emulation_live_allocations() == live + 1);
    CHECK(cudaMemcpy(p, host, 16, cudaMemcpyHostToDevice) == cudaSuccess && p[3] == 4);
    CHECK(cudaMemcpyAsync(h, p + 1, 12, cudaMemcpyDeviceToHost, nullptr) == cudaSuccess && h[0] == 2);
    CHECK(cudaMemcpy(p, host, 20, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(host, p, 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemset(host, 0, 4) == cudaErrorInvalidValue && cudaFree(host) == cudaErrorInvalidValue);
    CHECK(cudaPointerGetAttributes(&attributes, p + 3) == cudaSuccess && attributes.type == cudaMemoryTypeDevice);
    CHECK(cudaPointerGetAttributes(&attributes, h) == cudaSuccess && attributes.type == cudaMemoryTypeHost);
    CHECK(cudaPointerGetAttributes(&attributes, host) == cudaSuccess && attributes.type == cudaMemoryTypeUnregistered);
    CHECK(cudaFree(h) == cudaErrorInvalidValue && cudaFreeHost(h) == cudaSuccess && cudaFree(p) == cudaSuccess);
    CHECK(cudaFree(p) == cudaErrorInvalidValue && cudaFree(nullptr) == cudaSuccess);
    emulation_set_memory(1000);
    CHECK(cudaMalloc(&p, 1001) == cudaErrorMemoryAllocation && cudaMalloc(&p, 0) == cudaSuccess && !p);
    emulation_reset();
    CHECK(cudaGetLastError() == cudaSuccess && emulation_live_allocations() == live);
}

static void check_failures() {
    void *p = nullptr;
    emulation_fail_next(cudaErrorMemoryAllocation, 1);
    CHECK(cudaDeviceSynchronize() == cudaSuccess && cudaMalloc(&p, 8) == cudaErrorMemoryAllocation);
    CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess && cudaMalloc(&p, 8) == cudaSuccess && cudaFree(p) == cudaSuccess);
    device_array<u32> a(32);
    uint64_t launches = emulation_launches(), calls = emulation_calls();
    emulation_fail_from(cudaErrorIllegalAddress, 0);
    CHECK(launch(add_one, 1, 32, nullptr, a.at) == cudaErrorIllegalAddress && a[0] == 0);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    emulation_reset();
    CHECK(launch(add_one, 1, 32, nullptr, a.at) == cudaSuccess && a[0] == 1);
    CHECK(emulation_launches() == launches + 1 && emulation_calls() == calls + 3);
    CHECK(launch(add_one, 0, 32, nullptr, a.at) == cudaErrorInvalidConfiguration);
    CHECK(launch(add_one, 1, 1025, nullptr, a.at) == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CHECK(!strcmp(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice") && cudaErrorLaunchFailure == 719);
}

static void check_devices() {
    int n = -1, value = 0;
    CHECK(cudaGetDeviceCount(&n) == cudaSuccess && n == 1);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && value == 9);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess && value == 4);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 1) == cudaErrorInvalidDevice);
    CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice && cudaSetDevice(0) == cudaSuccess);
    emulation_set_devices(0, cudaErrorNoDevice);
    CHECK(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0 && cudaDeviceSynchronize() == cudaErrorNoDevice);
    emulation_set_devices(1, cudaErrorInsufficientDriver);
    CHECK(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver);
    CHECK(cudaDriverGetVersion(&value) == cudaSuccess && value < CUDART_VERSION);
    emulation_set_devices(2, cudaSuccess);
    CHECK(cudaSetDevice(1) == cudaSuccess && cudaGetDevice(&n) == cudaSuccess && n == 1);
    emulation_reset();
    CHECK(cudaGetDevice(&n) == cudaSuccess && n == 0);
}

// ---- broken kernels ----

static __global__ void barrier_for_some() {
    if (threadIdx.x < 40)
        __syncthreads();
    else
        __syncwarp();
}

static __global__ void two_barriers() {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

static __global__ void different_collectives() {
    if (threadIdx.x % 2)
        __ballot_sync(ALL_LANES, 1);
    else
        __any_sync(ALL_LANES, 1);
}

static __global__ void mask_of_the_dead() {
    if (threadIdx.x == 3)
        return;
    __syncwarp();
}

static __global__ void mask_without_me() {
    __syncwarp(0xfffffffeu);
}

static __global__ void misaligned(u8 *p) {
    atomicAdd((u32 *)(void *)(p + 2), 1u);
}

static __global__ void waits_for_a_later_block(u32 *p) {
    if (blockIdx.x == 0)
        while (atomicAdd(p, 0u) == 0)
            ;
    atomicAdd(p, 1u);
}

// Lanes read what others wrote without a barrier between, for all that a vote orders.
static __global__ void racing(u32 *out, bool ordered) {
    __shared__ u32 values[32];
    values[threadIdx.x] = threadIdx.x;
    __ballot_sync(ALL_LANES, 1);
    if (ordered)
        __syncwarp();
    out[threadIdx.x] = values[threadIdx.x ^ 1];
}

static void check_no_race() {
    device_array<u32> out(32);
    CHECK(launch(racing, 3, 32, nullptr, out.at, true) == cudaSuccess && out[5] == 4);
}

static __global__ void writes_behind(u8 *p, u32 bytes) {
    p[bytes] = 1;
}

static void write_behind() {
    u8 *p = nullptr;
    cudaMalloc(&p, 100);
    launch(writes_behind, 1, 1, nullptr, p, 100u);
    cudaFree(p);
}

static u8 *victim;

struct broken {
    const char *message;
    void (*run)();
};

#if defined(__SANITIZE_ADDRESS__)
#define EMULATION_OVERFLOW "heap-buffer-overflow"
#else
#define EMULATION_OVERFLOW "" // fails in either way: at the write, or when the memory is freed
#endif

static const broken BROKEN[] = {
    {"deadlock", [] { launch(barrier_for_some, 1, 64, nullptr); }},
    {"divergent", [] { launch(two_barriers, 1, 64, nullptr); }},
    {"mismatched", [] { launch(different_collectives, 1, 32, nullptr); }},
    {"ended", [] { launch(mask_of_the_dead, 1, 32, nullptr); }},
    {"does not have", [] { launch(diverging, 1, 31, nullptr, (u32 *)(void *)victim); }},
    {"does not name", [] { launch(mask_without_me, 1, 32, nullptr); }},
    {"misaligned", [] { launch(misaligned, 1, 1, nullptr, victim); }},
    {"poll", [] { launch(waits_for_a_later_block, 2, 1, nullptr, (u32 *)(void *)victim); }},
    {EMULATION_OVERFLOW, write_behind},
    {"outside a kernel", [] { __syncthreads(); }},
#ifdef __SANITIZE_THREAD__
    {"data race", [] { launch(racing, 1, 32, nullptr, (u32 *)(void *)victim, false); }},
#endif
};

// In a process of its own, which must abort and say so.
static void check_broken(const broken &b) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], 2);
        b.run();
        exit(0); // where ThreadSanitizer says that it found something
    }
    close(ends[1]);
    std::vector<char> text(1 << 16);
    size_t n = 0;
    for (ssize_t got; n + 1 < text.size() && (got = read(ends[0], &text[n], text.size() - 1 - n)) > 0;)
        n += (size_t)got;
    close(ends[0]);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    bool failed =
        (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) || (WIFEXITED(status) && WEXITSTATUS(status) != 0);
    bool caught = failed && strstr(text.data(), b.message);
    CHECK(caught);
    if (!caught)
        fprintf(stderr, "expected '%s', got status %d and: %s\n", b.message, status, text.data());
}

static void check_broken_kernels() {
    device_array<u8> memory(256);
    victim = memory.at;
    for (const broken &b : BROKEN)
        check_broken(b);
}

// ---- speed ----

static __global__ void busy(u32 *out) {
    u32 v = threadIdx.x;
    for (int i = 0; i < 100; i++)
        v += __shfl_xor_sync(ALL_LANES, v, i % 32);
    out[threadIdx.x] = v;
}

static double seconds() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_speed() {
    device_array<u32> out(256);
    launch(busy, 1, 256, nullptr, out.at);
    double begin = seconds();
    launch(busy, 20, 256, nullptr, out.at);
    printf("a block of 256 threads with 100 shuffles each: %.2f ms\n", (seconds() - begin) * 1e3 / 20);
}

int main() {
    check_integers();
    check_conversions();
    check_rounding();
    check_votes();
    check_reductions();
    for (u32 width = 1; width <= 32; width *= 2)
        check_shuffles(width);
    check_divergence();
    for (u64 order = 0; order < 4; order++) {
        check_scan(order);
        check_order(order);
        check_thread_order(order);
    }
    check_barriers();
    check_atomics();
    check_polling();
    check_indices();
    check_graph();
    check_capture_errors();
    check_relaxed_thread();
    check_forked_capture(true);
    check_forked_capture(false);
    check_memory();
    check_failures();
    check_devices();
    check_no_race();
    check_broken_kernels();
    print_speed();
    printf("%d failures\n", failures);
    return failures != 0;
}
