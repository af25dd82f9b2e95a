// SPDX-License-Identifier: Apache-2.0
// A batch norm's backward with what is stored of its input and as it was, for kept channels: four sums, and what they
// and each value make of dX.
#include "train/backend/cuda/kernels/errors/operand.cuh"

constexpr u32 SUMS = 4, MOST = SUMS * COMET_CUDA_ERRORS_WIDTH;
constexpr u32 MOST_BLOCKS = COMET_CUDA_ERRORS_WORKSPACE / sizeof(double) / MOST;
constexpr u32 ROWS_EACH = 8; // that make another block worth it

// Of one value: the gradient with what was stored and as it was, and u.
struct NormPair {
    float g_stored, g, u_stored, u;
};

// What is the same for all values of a channel.
struct NormChannel {
    float scale, shift, gamma, beta;
};

__device__ __forceinline__ NormChannel channel_of(const comet_cuda_errors_norm &n, u32 i) {
    const u32 c = (u32)n.first + i;
    const bool shifts = !n.normalised || !n.kept_normalised;
    return {n.scale[c], shifts ? n.shift[c] : 0.0f, n.gamma[c], n.beta[c]};
}

template <comet_dtype D>
__device__ __forceinline__ NormPair pair_at(const comet_cuda_errors_norm &n, const NormChannel &c, u64 row, u32 i) {
    const u64 at = row * (u64)n.channels + (u32)n.first + i, bit = (u64)(n.first_row * n.channels) + at,
              kept = ((u64)n.first_row + row) * (u32)n.width + i;
    const float x = load_value<D>(n.x, at), v = n.kept[kept];
    NormPair p = {load_value<D>(n.dy, at), 0.0f, n.normalised ? x : fmaf(c.scale, x, c.shift),
                  n.kept_normalised ? v : fmaf(c.scale, v, c.shift)};
    if (n.relu && !(n.mask ? n.mask[bit / 8] >> (bit % 8) & 1 : fmaf(c.gamma, p.u_stored, c.beta) > 0))
        p.g_stored = 0;
    p.g = p.g_stored + (n.curve ? n.curve[kept] : 0.0f);
    return p;
}

// ---- sums ----

template <comet_dtype D> __global__ static void __launch_bounds__(THREADS) norm_sums_kernel(comet_cuda_errors_norm n) {
    __shared__ double parts[SUMS][THREADS];
    const u32 width = (u32)n.width, t = threadIdx.x;
    const KeptPlace p = kept_place<THREADS>(width, (u64)n.rows);
    double sums[SUMS] = {};
    if (p.is_there) {
        const NormChannel c = channel_of(n, p.i);
        for (u64 row = p.row; row < (u64)n.rows; row += (u64)gridDim.x * p.lines) {
            const NormPair v = pair_at<D>(n, c, row, p.i);
            sums[0] += (double)v.g_stored;
            sums[1] += (double)v.g_stored * (double)v.u_stored;
            sums[2] += (double)v.g;
            sums[3] += (double)v.g * (double)v.u;
        }
    }
#pragma unroll
    for (u32 k = 0; k < SUMS; k++)
        parts[k][t] = sums[k];
    __syncthreads();
    if (t >= SUMS * width)
        return;
    const u32 i = t / SUMS, k = t % SUMS;
    double sum = 0;
    for (u32 line = 0; line < p.lines; line++)
        sum += parts[k][line * width + i];
    n.workspace[blockIdx.x * SUMS * width + t] = sum;
}

// One block: a warp has some of the sums, its lanes those of blocks.
__global__ static void __launch_bounds__(THREADS) norm_totals_kernel(comet_cuda_errors_norm n, u32 blocks) {
    __shared__ double totals[MOST];
    const u32 t = threadIdx.x, lane = t % 32, count = SUMS * (u32)n.width;
    for (u32 slot = t / 32; slot < count; slot += THREADS / 32) {
        double sum = 0;
        for (u32 k = lane; k < blocks; k += 32)
            sum += n.workspace[k * count + slot];
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            sum += __shfl_xor_sync(ALL_LANES, sum, step);
        if (lane == 0)
            n.totals[slot] = totals[slot] = n.first_row > 0 ? n.totals[slot] + sum : sum;
    }
    __syncthreads();
    if (n.scale_errors && t < (u32)n.width)
        n.scale_errors[t] = totals[SUMS * t + 1] - totals[SUMS * t + 3];
}

// ---- the error of dX ----

template <comet_dtype D> __global__ static void __launch_bounds__(THREADS) norm_error_kernel(comet_cuda_errors_norm n) {
    const KeptPlace p = kept_place<THREADS>((u32)n.width, (u64)n.rows);
    if (!p.is_there)
        return;
    const double *sums = n.totals + SUMS * p.i, inverse = 1 / (double)n.all_rows;
    const NormChannel c = channel_of(n, p.i);
    const NormPair v = pair_at<D>(n, c, p.row, p.i);
    const double own = (double)v.g_stored - (double)v.g, mean = (sums[0] - sums[2]) * inverse,
                 common = ((double)v.u_stored * sums[1] - (double)v.u * sums[3]) * inverse;
    n.error[((u64)n.first_row + p.row) * (u32)n.width + p.i] =
        (float)((double)c.gamma * (double)c.scale * (own - mean - common));
}

// ---- host ----

cudaError_t comet_cuda_launch_errors_norm_sums(const comet_cuda_errors_norm *job, cudaStream_t queue) {
    if (!is_width(job->width) || job->rows < 1)
        return cudaErrorInvalidValue;
    const u64 lines = THREADS / (u32)job->width,
              wanted = ((u64)job->rows + lines * ROWS_EACH - 1) / (lines * ROWS_EACH);
    const u32 blocks = wanted < MOST_BLOCKS ? (u32)wanted : MOST_BLOCKS;
    const cudaError_t error = with_dtype(job->dtype, [&](auto d) {
        return launch(norm_sums_kernel<decltype(d)::value>, dim3(blocks), THREADS, queue, *job);
    });
    return error == cudaSuccess ? launch(norm_totals_kernel, dim3(1), THREADS, queue, *job, blocks) : error;
}

cudaError_t comet_cuda_launch_errors_norm(const comet_cuda_errors_norm *job, cudaStream_t queue) {
    if (!is_width(job->width))
        return cudaErrorInvalidValue;
    return with_dtype(job->dtype, [&](auto d) {
        return launch(norm_error_kernel<decltype(d)::value>, blocks_of_rows(job->rows, job->width), THREADS, queue,
                      *job);
    });
}
