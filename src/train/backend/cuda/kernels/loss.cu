// SPDX-License-Identifier: Apache-2.0
// A block for each sample, in fp64 as on the CPU: there are a few hundred thousand logits in a batch, at most.
#include "train/backend/cuda/kernels/loss.h"

#include "codec/cuda/values.cuh"
#include "train/backend/cuda/kernels/blocks.cuh"

constexpr int THREADS = 256;

// A row of logits, and what its threads know of it together.
struct row {
    u64 first;
    int classes, label;
    double greatest, log_total, sum;
};

template <comet_dtype D> __device__ __forceinline__ void sum_up(const comet_cuda_loss_job &job, row &r) {
    float greatest = -INFINITY;
    double total = 0, sum = 0;
    for (int k = (int)threadIdx.x; k < r.classes; k += THREADS)
        greatest = fmaxf(greatest, load_value<D>(job.logits, r.first + k)); // not NaN; the sums have that
    r.greatest = (double)over_block<THREADS>(greatest, [](float a, float b) { return fmaxf(a, b); });
    for (int k = (int)threadIdx.x; k < r.classes; k += THREADS) {
        const double x = (double)load_value<D>(job.logits, r.first + k);
        total += exp(x - r.greatest);
        sum += x;
    }
    r.log_total = r.greatest + log(sum_of_block<THREADS>(total));
    r.sum = sum_of_block<THREADS>(sum);
}

// How many logits come before the label's; of equal ones the first comes first. With a NaN: all, and more.
template <comet_dtype D> __device__ __forceinline__ int rank_of(const comet_cuda_loss_job &job, const row &r) {
    const float own = load_value<D>(job.logits, r.first + r.label);
    int rank = 0, nans = 0;
    for (int k = (int)threadIdx.x; k < r.classes; k += THREADS) {
        const float x = load_value<D>(job.logits, r.first + k);
        nans |= isnan(x);
        rank += x > own || (x == own && k < r.label);
    }
    const int all = sum_of_block<THREADS>(rank);
    return __syncthreads_or(nans) ? r.classes + 5 : all;
}

template <comet_dtype D> __device__ __forceinline__ void write_gradient(const comet_cuda_loss_job &job, const row &r) {
    for (int k = (int)threadIdx.x; k < r.classes; k += THREADS) {
        const double x = (double)load_value<D>(job.logits, r.first + k);
        const double target = job.smoothing / r.classes + (k == r.label ? 1 - job.smoothing : 0);
        store_value<D>(job.dlogits, r.first + k, (float)((exp(x - r.log_total) - target) * job.scale));
    }
}

// dlogits may be the logits: each is read by the thread that writes it, after all sums.
template <comet_dtype D> __global__ static void __launch_bounds__(THREADS) sample_kernel(comet_cuda_loss_job job) {
    row r = {(u64)blockIdx.x * (u64)job.classes, job.classes, job.labels[blockIdx.x], 0, 0, 0};
    sum_up<D>(job, r);
    const int rank = rank_of<D>(job, r);
    if (threadIdx.x == 0) {
        const double own = (double)load_value<D>(job.logits, r.first + r.label);
        const double loss = r.log_total - (1 - job.smoothing) * own - job.smoothing / r.classes * r.sum;
        job.samples[blockIdx.x] = {loss, rank};
    }
    __syncthreads();
    if (job.dlogits)
        write_gradient<D>(job, r);
}

__global__ static void __launch_bounds__(THREADS) total_kernel(comet_cuda_loss_job job) {
    double loss = 0;
    int top1 = 0, top5 = 0;
    for (int i = (int)threadIdx.x; i < job.batch; i += THREADS) {
        const comet_cuda_loss_sample s = job.samples[i];
        loss += s.loss / job.batch;
        top1 += s.rank < 1;
        top5 += s.rank < 5;
    }
    loss = sum_of_block<THREADS>(loss);
    top1 = sum_of_block<THREADS>(top1);
    top5 = sum_of_block<THREADS>(top5);
    if (threadIdx.x == 0)
        *job.result = {loss, top1, top5};
}

cudaError_t comet_cuda_launch_loss(const comet_cuda_loss_job *job, comet_dtype dtype, cudaStream_t queue) {
    cudaError_t error = cudaSuccess;
    if (job->batch > 0)
        error = with_dtype(dtype, [&](auto d) {
            return launch(sample_kernel<decltype(d)::value>, dim3((unsigned)job->batch), dim3(THREADS), queue, *job);
        });
    return error == cudaSuccess ? launch(total_kernel, dim3(1), dim3(THREADS), queue, *job) : error;
}
