// SPDX-License-Identifier: Apache-2.0
#include "train/backend/cuda/kernels/sums.h"

#include "codec/cuda/values.cuh"
#include "train/backend/cuda/kernels/blocks.cuh"

constexpr int THREADS = 256;

// ---- squares ----

// The last entry that begins at this part or before: entries without values have no parts.
__device__ __forceinline__ int entry_of(const comet_cuda_squared *table, int count, int part) {
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (table[middle].first_part <= part)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

__global__ static void __launch_bounds__(THREADS)
    squares_kernel(const comet_cuda_squared *table, int count, double *partial) {
    const comet_cuda_squared entry = table[entry_of(table, count, (int)blockIdx.x)];
    const u64 part = blockIdx.x - (u32)entry.first_part, values = (u64)entry.count;
    double sum = 0;
    for (u64 i = part * THREADS + threadIdx.x; i < values; i += (u64)entry.parts * THREADS)
        sum += (double)entry.values[i] * (double)entry.values[i];
    sum = sum_of_block<THREADS>(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

// A block for each entry.
__global__ static void __launch_bounds__(THREADS)
    totals_kernel(const comet_cuda_squared *table, const double *partial, double *sums) {
    const comet_cuda_squared entry = table[blockIdx.x];
    double sum = 0;
    for (int i = (int)threadIdx.x; i < entry.parts; i += THREADS)
        sum += partial[entry.first_part + i];
    sum = sum_of_block<THREADS>(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

cudaError_t comet_cuda_launch_squares(const comet_cuda_squared *table, int count, int parts, double *partial,
                                      double *sums, cudaStream_t queue) {
    cudaError_t error = cudaSuccess;
    if (parts > 0)
        error = launch(squares_kernel, dim3((unsigned)parts), dim3(THREADS), queue, table, count, partial);
    return error == cudaSuccess
               ? launch(totals_kernel, dim3((unsigned)count), dim3(THREADS), queue, table, partial, sums)
               : error;
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
