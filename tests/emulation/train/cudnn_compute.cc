// SPDX-License-Identifier: Apache-2.0
// Convolutions in plain loops: products and sums in fp64, rounded once.
#include <chrono>
#include <cstring>
#include <thread>

#include "base/half.h"
#include "cudnn_model.h"

namespace {

float read_value(cudnnDataType_t type, const void *tensor, int64_t i) {
    if (type == CUDNN_DATA_FLOAT)
        return ((const float *)tensor)[i];
    const uint16_t bits = ((const uint16_t *)tensor)[i];
    return type == CUDNN_DATA_HALF ? comet_f16_to_f32(bits) : comet_bf16_to_f32(bits);
}

void write_value(cudnnDataType_t type, void *tensor, int64_t i, float v) {
    if (type == CUDNN_DATA_FLOAT)
        ((float *)tensor)[i] = v;
    else
        ((uint16_t *)tensor)[i] = type == CUDNN_DATA_HALF ? comet_f16_of_f32(v) : comet_bf16_of_f32(v);
}

// To the 10 bits of mantissa that tensor cores take, to nearest.
float tf32_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    if ((bits & 0x7f800000u) != 0x7f800000u)
        bits = (bits + 0x1000u) & ~0x1fffu;
    memcpy(&v, &bits, 4);
    return v;
}

std::vector<double> read_tensor(const cudnn_job &job, int which) {
    const cudnn_convolution &c = job.convolution;
    std::vector<double> values((size_t)c.values(which));
    for (size_t i = 0; i < values.size(); i++) {
        const float v = read_value(c.type, job.tensors[which], (int64_t)i);
        values[i] = (double)(job.rounds && c.type == CUDNN_DATA_FLOAT ? tf32_of(v) : v);
    }
    return values;
}

int64_t at(const cudnn_convolution &c, int which, int64_t n, int64_t channel, int64_t h, int64_t w) {
    const int64_t *s = c.strides[which];
    return n * s[0] + channel * s[1] + h * s[2] + w * s[3];
}

// Calls use(x, filter, y) with the indices of all products of one value of y.
template <class Use>
void for_products(const cudnn_convolution &c, int64_t n, int64_t k, int64_t h, int64_t w, Use use) {
    const int64_t *x = c.extents[0], *f = c.extents[1], group = k / (f[0] / c.groups);
    const int64_t y_at = at(c, 2, n, k, h, w);
    for (int64_t r = 0; r < f[2]; r++)
        for (int64_t s = 0; s < f[3]; s++) {
            const int64_t row = h * c.stride[0] - c.pads[0] + r * c.dilation[0];
            const int64_t column = w * c.stride[1] - c.pads[1] + s * c.dilation[1];
            if (row < 0 || row >= x[2] || column < 0 || column >= x[3])
                continue;
            for (int64_t i = 0; i < f[1]; i++)
                use(at(c, 0, n, group * f[1] + i, row, column), at(c, 1, k, i, r, s), y_at);
        }
}

template <class Use> void for_all_products(const cudnn_convolution &c, Use use) {
    const int64_t *y = c.extents[2];
    for (int64_t n = 0; n < y[0]; n++)
        for (int64_t h = 0; h < y[2]; h++)
            for (int64_t w = 0; w < y[3]; w++)
                for (int64_t k = 0; k < y[1]; k++)
                    for_products(c, n, k, h, w, use);
}

// In the last bits of some values, but for zeros: sums of nothing are the same in any order.
float disturbed(float v, uint32_t by, size_t i) {
    uint32_t bits;
    if (by == 0 || v == 0 || i % 7 != by)
        return v;
    memcpy(&bits, &v, 4);
    bits ^= by;
    memcpy(&v, &bits, 4);
    return v;
}

void write_result(const cudnn_job &job, const std::vector<double> &sums) {
    const cudnn_convolution &c = job.convolution;
    const int result = c.result();
    for (size_t i = 0; i < sums.size(); i++) {
        const double sum = (double)c.alpha * sums[i];
        double v = job.disturbance ? (double)disturbed((float)sum, job.disturbance, i) : sum;
        if (c.beta != 0)
            v += (double)c.beta * (double)read_value(c.type, job.tensors[result], (int64_t)i);
        write_value(c.type, job.tensors[result], (int64_t)i, (float)v);
    }
}

} // namespace

// The workspace is written over, all of it: it may hold nothing that is needed.
void cudnn_compute(const cudnn_job &job) {
    const cudnn_convolution &c = job.convolution;
    const int result = c.result();
    std::vector<double> tensors[3];
    if (job.milliseconds > 0)
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(job.milliseconds));
    for (int i = 0; i < 3; i++)
        tensors[i] = i == result ? std::vector<double>((size_t)c.values(i), 0.0) : read_tensor(job, i);
    if (job.workspace_bytes > 0)
        memset(job.workspace, 0xff, (size_t)job.workspace_bytes);
    double *x = tensors[0].data(), *f = tensors[1].data(), *y = tensors[2].data();
    if (result == 2)
        for_all_products(c, [=](int64_t a, int64_t b, int64_t to) { y[to] += x[a] * f[b]; });
    else if (result == 1)
        for_all_products(c, [=](int64_t a, int64_t to, int64_t b) { f[to] += x[a] * y[b]; });
    else
        for_all_products(c, [=](int64_t to, int64_t a, int64_t b) { x[to] += f[a] * y[b]; });
    write_result(job, tensors[result]);
}
