// SPDX-License-Identifier: Apache-2.0
// What is done value by value with kept channels: keeping them, SiLUs; and channel scales, image by image.
#include "train/backend/cuda/kernels/errors/operand.cuh"

// ---- keeping ----

template <comet_dtype D> __global__ static void __launch_bounds__(THREADS) keep_kernel(comet_cuda_errors_keep k) {
    const KeptPlace p = kept_place<THREADS>((u32)k.width, (u64)k.rows);
    if (!p.is_there)
        return;
    const u32 channel = (u32)k.first + p.i;
    const float v = load_value<D>(k.values, p.row * (u64)k.channels + channel);
    k.kept[p.row * (u32)k.width + p.i] = fmaf(k.scale ? k.scale[channel] : 1.0f, v, k.shift ? k.shift[channel] : 0.0f);
}

cudaError_t comet_cuda_launch_errors_keep(const comet_cuda_errors_keep *job, cudaStream_t queue) {
    if (!is_width(job->width))
        return cudaErrorInvalidValue;
    return with_dtype(job->dtype, [&](auto d) {
        return launch(keep_kernel<decltype(d)::value>, blocks_of_rows(job->rows, job->width), THREADS, queue, *job);
    });
}

// ---- SiLUs ----

template <comet_dtype D> __global__ static void __launch_bounds__(THREADS) silu_kernel(comet_cuda_errors_silu s) {
    const u32 width = (u32)s.exact.width;
    const KeptPlace p = kept_place<THREADS>(width, (u64)s.rows);
    if (!p.is_there)
        return;
    const u64 at = p.row * (u64)s.channels + (u32)s.exact.first + p.i, kept = p.row * width + p.i;
    const float y = rebuild<D>(s.exact, s.exact.values[kept], 0, p.i);
    s.curve[kept] = s.sign * load_value<D>(s.dy, at) * (silu_slope<D>(y) - silu_slope<D>(load_value<D>(s.x, at)));
}

cudaError_t comet_cuda_launch_errors_silu(const comet_cuda_errors_silu *job, cudaStream_t queue) {
    if (!is_width(job->exact.width))
        return cudaErrorInvalidValue;
    return with_dtype(job->dtype, [&](auto d) {
        return launch(silu_kernel<decltype(d)::value>, blocks_of_rows(job->rows, job->exact.width), THREADS, queue,
                      *job);
    });
}

// ---- channel scales ----

constexpr u32 MAP_THREADS = 512; // of an image

template <comet_dtype D> __global__ static void __launch_bounds__(MAP_THREADS) scale_kernel(comet_cuda_errors_scale s) {
    __shared__ double lines[MAP_THREADS];
    const u32 width = (u32)s.exact.width, t = threadIdx.x;
    const u64 image = blockIdx.x, pixels = (u64)s.pixels;
    const u32 all = MAP_THREADS / width, line = t / width, i = t - line * width;
    double sum = 0;
    for (u64 pixel = line; pixel < pixels && line < all; pixel += all) {
        const u64 row = image * pixels + pixel, at = row * (u64)s.channels + (u32)s.exact.first + i;
        const float error = load_value<D>(s.x, at) - rebuild<D>(s.exact, s.exact.values[row * width + i], image, i);
        sum += (double)load_value<D>(s.dy, at) * (double)error;
    }
    lines[t] = sum;
    __syncthreads();
    if (t >= width)
        return;
    for (u32 k = 1; k < all; k++)
        sum += lines[k * width + i];
    const float factor = load_value<D>(s.factors, image * (u64)s.channels + (u32)s.exact.first + i);
    s.error[image * width + i] = (float)(sum * (double)(factor * (1 - factor)));
}

cudaError_t comet_cuda_launch_errors_scale(const comet_cuda_errors_scale *job, cudaStream_t queue) {
    if (!is_width(job->exact.width))
        return cudaErrorInvalidValue;
    return with_dtype(job->dtype, [&](auto d) {
        return launch(scale_kernel<decltype(d)::value>, dim3((u32)job->images), MAP_THREADS, queue, *job);
    });
}
