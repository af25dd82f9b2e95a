// SPDX-License-Identifier: Apache-2.0
// Weight gradients of errors, for a few channels of both sides: a block has one tap and some positions of the output, a
// thread one position after the other, and all products of its channels in registers.
#include "train/backend/cuda/kernels/errors/operand.cuh"

constexpr int ERRORS = COMET_CUDA_ERRORS_WIDTH;
constexpr u32 WARPS = THREADS / 32;
constexpr u32 PARTIAL = COMET_CUDA_ERRORS_WORKSPACE / sizeof(double); // sums of blocks that there is room for
constexpr u32 POSITIONS_EACH = 4;                                     // of a thread, that make another block worth it

struct LayerKernel {
    comet_cuda_errors_layer l;
    u32 positions, slots; // of the batch's output; sums in all
    Divide by_map, by_row;
    bool vectors, other_vectors, kept_vectors; // whether so many channels can be read together
};

// Errors of the channels at one row: of x against what it was, or of dy as they are. Behind `count` they are 0.
template <comet_dtype D, bool EXACT>
__device__ __forceinline__ void load_errors(const LayerKernel &k, u64 row, u64 image, float (&errors)[ERRORS]) {
    const comet_cuda_errors_operand &of = k.l.of;
    const u32 count = (u32)k.l.count;
    load_some<COMET_F32, ERRORS>(of.values, row * (u32)of.width, count, k.kept_vectors, errors);
    if constexpr (EXACT) {
        float x[ERRORS];
        load_some<D, ERRORS>(k.l.x, row * (u32)k.l.x_channels + (u32)of.first, count, k.vectors, x);
#pragma unroll
        for (u32 i = 0; i < ERRORS; i++)
            errors[i] = i < count ? x[i] - rebuild<D>(of, errors[i], image, i) : 0.0f;
    }
}

// All positions of a thread: J channels of the other side, from the block's first.
template <comet_dtype D, bool EXACT, int J>
__device__ __forceinline__ void add_positions(const LayerKernel &k, u32 tap, u32 first, float (&sums)[ERRORS][J]) {
    const comet_cuda_errors_layer &l = k.l;
    const int down = (int)tap / l.kernel[1] - l.padding[0], right = (int)tap % l.kernel[1] - l.padding[1];
    const u32 left = (u32)l.others - first, channels = (u32)(EXACT ? l.dy_channels : l.x_channels);
    for (u32 p = (u32)thread_of_grid(); p < k.positions; p += gridDim.x * THREADS) {
        const Parts image = parts_of(p, k.by_map), at = parts_of(image.rest, k.by_row);
        const int y = (int)at.of * l.stride + down, x = (int)at.rest * l.stride + right;
        if (y < 0 || y >= l.x_size[0] || x < 0 || x >= l.x_size[1])
            continue;
        const u64 in = ((u64)image.of * (u32)l.x_size[0] + (u32)y) * (u32)l.x_size[1] + (u32)x;
        float errors[ERRORS], other[J];
        load_errors<D, EXACT>(k, EXACT ? in : p, image.of, errors);
        load_some<D, J>(EXACT ? l.dy : l.x, (EXACT ? p : in) * channels + (u32)l.other + first, left, k.other_vectors,
                        other);
#pragma unroll
        for (int i = 0; i < ERRORS; i++)
#pragma unroll
            for (int j = 0; j < J; j++)
                sums[i][j] = fmaf(errors[i], other[j], sums[i][j]);
    }
}

// Its grid: blocks of positions, taps, tiles of J other channels.
template <comet_dtype D, bool EXACT, int J>
__global__ static void __launch_bounds__(THREADS, 2) layer_kernel(LayerKernel k) {
    __shared__ float warps[WARPS][ERRORS * J];
    const u32 t = threadIdx.x, tap = blockIdx.y, first = blockIdx.z * J, count = (u32)k.l.count,
              others = (u32)k.l.others;
    float sums[ERRORS][J] = {};
    add_positions<D, EXACT, J>(k, tap, first, sums);
#pragma unroll
    for (int i = 0; i < ERRORS; i++)
#pragma unroll
        for (int j = 0; j < J; j++) {
            float sum = sums[i][j];
#pragma unroll
            for (int step = 16; step > 0; step /= 2)
                sum += __shfl_xor_sync(ALL_LANES, sum, step);
            if (t % 32 == 0)
                warps[t / 32][i * J + j] = sum;
        }
    __syncthreads();
    const u32 i = t / J, j = t % J;
    if (i >= count || first + j >= others)
        return;
    double sum = 0;
    for (u32 warp = 0; warp < WARPS; warp++)
        sum += (double)warps[warp][t];
    k.l.workspace[(u64)blockIdx.x * k.slots + (tap * count + i) * others + first + j] = sum;
}

// Channels of different groups have no weight in common.
__device__ __forceinline__ bool is_weight(const comet_cuda_errors_layer &l, u32 slot) {
    const int error = l.of.first + (int)(slot / (u32)l.others) % l.count, other = l.other + (int)(slot % (u32)l.others);
    const int inputs = l.x_channels / l.groups, outputs = l.dy_channels / l.groups;
    return l.is_exact ? error / inputs == other / outputs : error / outputs == other / inputs;
}

// A warp has a sum, its lanes those of blocks.
__global__ static void __launch_bounds__(THREADS) layer_totals_kernel(LayerKernel k, u32 blocks) {
    const u32 slot = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (slot >= k.slots)
        return;
    double sum = 0;
    for (u32 block = lane; block < blocks; block += 32)
        sum += k.l.workspace[(u64)block * k.slots + slot];
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, step);
    if (lane == 0)
        k.l.sums[slot] = is_weight(k.l, slot) ? sum : 0.0;
}

// ---- host ----

// Whether channels from `first` on begin at a vector in every row.
static bool begins_with_vectors(comet_dtype dtype, const void *tensor, int channels, int first) {
    const int n = 16 / (int)comet_dtype_size(dtype);
    return first % n == 0 && has_vectors(channels, n, tensor);
}

static LayerKernel kernel_of(const comet_cuda_errors_layer *l) {
    const u32 map = (u32)(l->dy_size[0] * l->dy_size[1]);
    return {*l,
            (u32)l->images * map,
            (u32)(l->kernel[0] * l->kernel[1] * l->count * l->others),
            divide_by(map),
            divide_by((u32)l->dy_size[1]),
            l->is_exact && begins_with_vectors(l->dtype, l->x, l->x_channels, l->of.first),
            begins_with_vectors(l->dtype, l->is_exact ? l->dy : l->x, l->is_exact ? l->dy_channels : l->x_channels,
                                l->other),
            begins_with_vectors(COMET_F32, l->of.values, l->of.width, 0)};
}

static u32 blocks_of(const LayerKernel &k) {
    const u32 each = THREADS * POSITIONS_EACH, wanted = (k.positions + each - 1) / each, most = PARTIAL / k.slots;
    return wanted < most ? wanted : most;
}

template <comet_dtype D, bool EXACT>
static cudaError_t launch_sums(const LayerKernel &k, u32 blocks, cudaStream_t queue) {
    const u32 taps = (u32)(k.l.kernel[0] * k.l.kernel[1]), others = (u32)k.l.others;
    if (others <= 2)
        return launch(layer_kernel<D, EXACT, 2>, dim3(blocks, taps, 1), THREADS, queue, k);
    return launch(layer_kernel<D, EXACT, 8>, dim3(blocks, taps, (others + 7) / 8), THREADS, queue, k);
}

cudaError_t comet_cuda_launch_errors_layer(const comet_cuda_errors_layer *job, cudaStream_t queue) {
    const u64 positions = (u64)job->images * (u64)job->dy_size[0] * (u64)job->dy_size[1];
    if (!is_width(job->of.width) || job->count < 1 || job->count > job->of.width || job->others < 1 || positions < 1 ||
        !can_count(positions) || job->kernel[0] * job->kernel[1] * job->count * job->others > COMET_CUDA_ERRORS_SUMS)
        return cudaErrorInvalidValue;
    const LayerKernel k = kernel_of(job);
    const u32 blocks = blocks_of(k);
    const cudaError_t error = with_dtype(job->dtype, [&](auto d) {
        return with_bool(job->is_exact != 0, [&](auto exact) {
            return launch_sums<decltype(d)::value, decltype(exact)::value>(k, blocks, queue);
        });
    });
    return error == cudaSuccess
               ? launch(layer_totals_kernel, dim3((k.slots + WARPS - 1) / WARPS), THREADS, queue, k, blocks)
               : error;
}
