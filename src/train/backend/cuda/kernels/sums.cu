// SPDX-License-Identifier: Apache-2.0
#include "train/backend/cuda/kernels/sums.h"

#include "codec/cuda/values.cuh"
#include "train/backend/cuda/kernels/blocks.cuh"

constexpr int THREADS = 256;
constexpr int MOST_PARTS = COMET_CUDA_SQUARES_PARTS;
constexpr int64_t PART = 32 * THREADS; // values that make another part worth it

// ---- squares ----

__global__ static void __launch_bounds__(THREADS) squares_kernel(const float *values, u64 count, double *partial) {
    double sum = 0;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < count; i += (u64)gridDim.x * THREADS)
        sum += (double)values[i] * (double)values[i];
    sum = sum_of_block<THREADS>(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ static void __launch_bounds__(THREADS) total_kernel(const double *partial, int parts, double *result) {
    double sum = 0;
    for (int i = (int)threadIdx.x; i < parts; i += THREADS)
        sum += partial[i];
    sum = sum_of_block<THREADS>(sum);
    if (threadIdx.x == 0)
        *result = sum;
}

cudaError_t comet_cuda_launch_squares(const float *values, int64_t count, double *partial, double *sum,
                                      cudaStream_t queue) {
    const int64_t wanted = (count + PART - 1) / PART;
    const int parts = wanted < MOST_PARTS ? (int)wanted : MOST_PARTS;
    cudaError_t error = cudaSuccess;
    if (parts > 0)
        error = launch(squares_kernel, dim3((unsigned)parts), dim3(THREADS), queue, values, (u64)count, partial);
    return error == cudaSuccess ? launch(total_kernel, dim3(1), dim3(THREADS), queue, partial, parts, sum) : error;
}

// ---- columns ----

// 32 columns a block, whose rows its warps share.
template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    sum_rows_kernel(float *sum, const void *values, u64 rows, u64 columns, int accumulate) {
    constexpr u32 WARPS = THREADS / 32;
    __shared__ double parts[WARPS][32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 column = (u64)blockIdx.x * 32 + lane;
    double own = 0;
    if (column < columns)
        for (u64 row = warp; row < rows; row += WARPS)
            own += (double)load_value<D>(values, row * columns + column);
    parts[warp][lane] = own;
    __syncthreads();
    if (warp > 0 || column >= columns)
        return;
    for (u32 other = 1; other < WARPS; other++)
        own += parts[other][lane];
    sum[column] = accumulate ? (float)((double)sum[column] + own) : (float)own;
}

cudaError_t comet_cuda_launch_sum_rows(float *sum, const void *values, int64_t rows, int64_t columns, int accumulate,
                                       comet_dtype dtype, cudaStream_t queue) {
    const dim3 blocks((unsigned)((columns + 31) / 32));
    return with_dtype(dtype, [&](auto d) {
        return launch(sum_rows_kernel<decltype(d)::value>, blocks, dim3(THREADS), queue, sum, values, (u64)rows,
                      (u64)columns, accumulate);
    });
}
