// SPDX-License-Identifier: Apache-2.0
// How outputs of a layer correlate with its inputs, at some positions: control/collect/common.c for a device. First u,
// each output at each position of the sample; then, for each input, the sums of u x over the positions of an image and
// over all. Nothing of x is kept in between: it is read again.
#include "control/cuda/launch.h"
#include "control/cuda/neighbours.cuh"

constexpr int COMMON_WARPS = 4; // of a block that computes u
constexpr int COMMON_THREADS = 128;
constexpr int COMMON_TOGETHER = 4;

struct CommonArgs {
    const void *x;
    int64_t to_image, to_row, to_pixel, to_channel;
    int64_t in[2], out[2]; // height and width
    int kernel[2], stride[2], padding[2], dilation[2];
    u32 inputs, outputs;             // channels
    u32 group_inputs, group_outputs; // of a group
    u32 fan_in, blocks;              // blocks of inputs
    divider by_taps, by_kernel_width;
    const float *weights;
    const double *sums; // of x, by channel
    double pixels;
    comet_common_sample sample;
    float *means;   // by input channel and tap: the order of weights
    float *u;       // [output][position]
    double2 *own;   // [output][position]: u^2, u^2 x.x
    double2 *parts; // [output][block]: squares of sums in images, in all
    comet_common_output *found;
    int32_t places[COMET_COMMON_POSITIONS];
};

__device__ __forceinline__ u32 positions_of(const CommonArgs &a) {
    return (u32)(a.sample.images * a.sample.each);
}

// ---- means of inputs ----

// Part of the outputs along an axis at which a tap is not in the padding: comet_layer_tap_inside.
__device__ __forceinline__ double tap_inside(const CommonArgs &a, int axis, int64_t tap) {
    const int64_t first = tap * a.dilation[axis] - a.padding[axis], stride = a.stride[axis];
    const int64_t last = a.in[axis] - 1 - first;
    const int64_t from = first < 0 ? (stride - 1 - first) / stride : 0;
    const int64_t to = last < 0 ? 0 : last / stride + 1, end = to < a.out[axis] ? to : a.out[axis];
    return (double)(end > from ? end - from : 0) / (double)a.out[axis];
}

static __global__ void __launch_bounds__(COMMON_THREADS) means_kernel(CommonArgs a) {
    const u64 i = (u64)blockIdx.x * COMMON_THREADS + threadIdx.x;
    if (i >= (u64)a.inputs * a.by_taps.by)
        return;
    const quotient channel = split(i, a.by_taps), tap = split(channel.rest, a.by_kernel_width);
    const double inside = tap_inside(a, 0, (int64_t)tap.of) * tap_inside(a, 1, (int64_t)tap.rest);
    a.means[i] = (float)(a.sums[channel.of] * (inside / a.pixels));
}

// ---- inputs ----

// Where an output's kernel begins.
struct Corner {
    int64_t image, y, x; // image: its offset
};

__device__ __forceinline__ Corner corner_of(const CommonArgs &a, u32 position) {
    const int64_t place = a.places[position], image = position / (u32)a.sample.each;
    return {comet_common_which(image, a.sample.images, a.sample.batch) * a.to_image,
            place / a.out[1] * a.stride[0] - a.padding[0], place % a.out[1] * a.stride[1] - a.padding[1]};
}

// One input of a group: which channel, how far from the corner, and its mean.
struct Input {
    int64_t offset, down, right;
    float mean;
};

__device__ __forceinline__ Input input_of(const CommonArgs &a, u32 group, u32 k) {
    const quotient channel = split(k, a.by_taps), tap = split(channel.rest, a.by_kernel_width);
    const u64 all = (u64)group * a.group_inputs + channel.of;
    return {(int64_t)all * a.to_channel, (int64_t)tap.of * a.dilation[0], (int64_t)tap.rest * a.dilation[1],
            a.means[(u64)group * a.fan_in + k]};
}

// Without its mean; 0 in the padding.
template <comet_dtype D>
__device__ __forceinline__ float input_at(const CommonArgs &a, const Corner &c, const Input &i) {
    const int64_t y = c.y + i.down, x = c.x + i.right;
    float v = 0;
    if (y >= 0 && y < a.in[0] && x >= 0 && x < a.in[1])
        v = float_of<D>(((const pattern_of<D> *)a.x)[c.image + y * a.to_row + x * a.to_pixel + i.offset]);
    return v - i.mean;
}

__device__ __forceinline__ u32 output_of(const CommonArgs &a, u32 i) {
    return (u32)comet_common_which(i, a.sample.outputs, a.outputs);
}

// ---- outputs ----

// A warp for each output at each position.
template <comet_dtype D>
static __global__ void __launch_bounds__(COMMON_WARPS * 32) outputs_kernel(const CommonArgs a) {
    const u32 lane = threadIdx.x % 32, i = blockIdx.x * COMMON_WARPS + threadIdx.x / 32, positions = positions_of(a);
    if (i >= positions * (u32)a.sample.outputs)
        return;
    const u32 output = output_of(a, i / positions), group = output / a.group_outputs;
    const Corner corner = corner_of(a, i % positions);
    const float *weights = a.weights + (u64)output * a.fan_in;
    double u = 0, squares = 0;
#pragma unroll 4
    for (u32 k = lane; k < a.fan_in; k += 32) {
        const double x = (double)input_at<D>(a, corner, input_of(a, group, k));
        u += (double)weights[k] * x;
        squares += x * x;
    }
    u = add_warp(u);
    squares = add_warp(squares);
    if (lane == 0) {
        a.u[i] = (float)u;
        a.own[i] = make_double2(u * u, u * u * squares);
    }
}

// ---- sums of u x ----

struct SharedPositions {
    Corner corner[COMET_COMMON_POSITIONS];
    float u[COMET_COMMON_POSITIONS];
};

static __device__ void load_positions(const CommonArgs &a, u32 output, SharedPositions &s) {
    const u32 positions = positions_of(a);
    for (u32 p = threadIdx.x; p < positions; p += PLACES_THREADS) {
        s.corner[p] = corner_of(a, p);
        s.u[p] = a.u[output * positions + p];
    }
    __syncthreads();
}

// Sum of u x over positions p .. end - 1; several of them on their way at once.
template <comet_dtype D>
__device__ __forceinline__ double add_image(const CommonArgs &a, const SharedPositions &s, const Input &input, u32 p,
                                            u32 end) {
    double sum = 0;
    for (; p + COMMON_TOGETHER <= end; p += COMMON_TOGETHER) {
        float x[COMMON_TOGETHER];
#pragma unroll
        for (int t = 0; t < COMMON_TOGETHER; t++)
            x[t] = input_at<D>(a, s.corner[p + t], input);
#pragma unroll
        for (int t = 0; t < COMMON_TOGETHER; t++)
            sum += (double)(s.u[p + t] * x[t]);
    }
    for (; p < end; p++)
        sum += (double)(s.u[p] * input_at<D>(a, s.corner[p], input));
    return sum;
}

// A thread for each input; blocks of them for each output.
template <comet_dtype D> static __global__ void __launch_bounds__(PLACES_THREADS) inputs_kernel(const CommonArgs a) {
    __shared__ SharedPositions s;
    const u32 output = blockIdx.x / a.blocks, block = blockIdx.x % a.blocks, k = block * PLACES_THREADS + threadIdx.x;
    const u32 each = (u32)a.sample.each;
    double all = 0, in_images = 0;
    load_positions(a, output, s);
    if (k < a.fan_in) {
        const Input input = input_of(a, output_of(a, output) / a.group_outputs, k);
        for (u32 image = 0; image < (u32)a.sample.images; image++) {
            const double now = add_image<D>(a, s, input, image * each, (image + 1) * each);
            in_images += now * now;
            all += now;
        }
    }
    in_images = add_block(in_images);
    all = add_block(all * all);
    if (threadIdx.x == 0)
        a.parts[output * a.blocks + block] = make_double2(in_images, all);
}

__device__ __forceinline__ double2 add_pairs(const double2 *pairs, u32 count) {
    double2 sum = make_double2(0, 0);
    for (u32 i = threadIdx.x % 32; i < count; i += 32) {
        sum.x += pairs[i].x;
        sum.y += pairs[i].y;
    }
    return make_double2(add_warp(sum.x), add_warp(sum.y));
}

// A warp for each output.
static __global__ void __launch_bounds__(32 * COMET_COMMON_OUTPUTS) found_kernel(const CommonArgs a) {
    const u32 output = threadIdx.x / 32, positions = positions_of(a);
    if (output >= (u32)a.sample.outputs)
        return;
    const double2 own = add_pairs(a.own + output * positions, positions),
                  sums = add_pairs(a.parts + output * a.blocks, a.blocks);
    if (threadIdx.x % 32 == 0)
        a.found[output] = {{own.x, own.y}, sums.x, sums.y};
}

// ---- host ----

static u32 blocks_of(const comet_layer *l) {
    return (u32)((l->fan_in + PLACES_THREADS - 1) / PLACES_THREADS);
}

static size_t taps_of(const comet_layer *l) {
    return (size_t)l->kernel[0] * (size_t)l->kernel[1];
}

// One array behind the other, those of double2 first.
static size_t lay_out(const comet_layer *l, void *workspace, CommonArgs *a) {
    const size_t outputs = COMET_COMMON_OUTPUTS, positions = COMET_COMMON_POSITIONS;
    const size_t own = outputs * positions, parts = outputs * blocks_of(l), u = outputs * positions,
                 means = (size_t)l->in.channels * taps_of(l);
    if (a) {
        a->own = (double2 *)workspace;
        a->parts = a->own + own;
        a->u = (float *)(a->parts + parts);
        a->means = a->u + u;
    }
    return (own + parts) * sizeof(double2) + (u + means) * sizeof(float);
}

extern "C" size_t comet_stats_common_bytes(const comet_layer *l) {
    return lay_out(l, NULL, NULL);
}

static void set_shape(CommonArgs *a, const comet_layer *l) {
    const int64_t in[2] = {l->in.height, l->in.width}, out[2] = {l->out.height, l->out.width};
    for (int axis = 0; axis < 2; axis++) {
        a->in[axis] = in[axis];
        a->out[axis] = out[axis];
        a->kernel[axis] = l->kernel[axis];
        a->stride[axis] = l->stride[axis];
        a->padding[axis] = l->padding[axis];
        a->dilation[axis] = l->dilation[axis];
    }
    a->inputs = (u32)l->in.channels;
    a->outputs = (u32)l->out.channels;
    a->group_inputs = a->inputs / (u32)l->groups;
    a->group_outputs = a->outputs / (u32)l->groups;
    a->fan_in = (u32)l->fan_in;
    a->blocks = blocks_of(l);
    a->by_taps = divider_of(taps_of(l));
    a->by_kernel_width = divider_of((u64)l->kernel[1]);
}

static CommonArgs args_of(const comet_layer_job *job) {
    const comet_layer *l = job->layer;
    int64_t places[COMET_COMMON_POSITIONS];
    CommonArgs a = {};
    a.x = l->in.data;
    a.to_image = l->in.to_image;
    a.to_row = l->in.to_row;
    a.to_pixel = l->in.to_pixel;
    a.to_channel = l->in.to_channel;
    set_shape(&a, l);
    a.weights = l->weights;
    a.sums = job->input;
    a.pixels = job->head.shape.pixels;
    a.sample = job->head.sample;
    a.found = job->record->outputs;
    lay_out(l, job->workspace, &a);
    comet_common_draw(&a.sample, places);
    for (int i = 0; i < a.sample.images * a.sample.each; i++)
        a.places[i] = (int32_t)places[i];
    return a;
}

template <comet_dtype D> static cudaError_t launch_common(const CommonArgs &a, cudaStream_t queue) {
    const u64 means = a.inputs * a.by_taps.by;
    const u32 outputs = (u32)a.sample.outputs, warps = outputs * (u32)(a.sample.images * a.sample.each);
    cudaError_t error = launch(means_kernel, dim3((unsigned)((means + COMMON_THREADS - 1) / COMMON_THREADS)),
                               dim3(COMMON_THREADS), queue, a);
    if (error == cudaSuccess)
        error = launch(outputs_kernel<D>, dim3((warps + COMMON_WARPS - 1) / COMMON_WARPS), dim3(32 * COMMON_WARPS),
                       queue, a);
    if (error == cudaSuccess)
        error = launch(inputs_kernel<D>, dim3(outputs * a.blocks), dim3(PLACES_THREADS), queue, a);
    if (error == cudaSuccess)
        error = launch(found_kernel, dim3(1), dim3(32 * COMET_COMMON_OUTPUTS), queue, a);
    return error;
}

extern "C" cudaError_t comet_stats_launch_common(const comet_layer_job *job) {
    const CommonArgs a = args_of(job);
    return with_dtype(job->layer->in.dtype,
                      [&](auto dtype) { return launch_common<decltype(dtype)::value>(a, job->queue); });
}
