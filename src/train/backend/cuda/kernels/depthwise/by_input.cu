// SPDX-License-Identifier: Apache-2.0
// Depthwise by input. With a stride of 2 a row of dy is added to all rows of dx that are in its windows; then the first
// two of them are complete. So two rows and two columns of dx are one pixel of what is walked over, and a filter of
// 5 x 5 has windows of 3 x 3 there. Rows and columns that padding puts before the image are left out when dx is
// written.
#include "train/backend/cuda/kernels/depthwise/walk.cuh"

constexpr int BACK_TOGETHER = 2;

// The gradient: its size, and the row and column of the first that is complete with a row and column of dy.
struct Back {
    Extent size;
    int up, left;
    int line; // bytes of a row
};

// Of rows 0 .. K - 1 from the first complete one on: `sums` moves on by two rows, and a row of dy is added. A pixel of
// column u in these has weights of columns j with an even u - j.
template <int K, int N, int U>
__device__ __forceinline__ void spread_row(const float (&v)[N][2], const float (&f)[K][K][2], float (&sums)[K][U][2]) {
#pragma unroll
    for (int i = 0; i < K; i++)
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float sum = i + 2 < K ? sums[i + 2 < K ? i + 2 : 0][u][k] : 0.0f;
#pragma unroll
                for (int j = u % 2; j < K; j += 2)
                    sum = fmaf(v[(u - j) / 2 + K / 2][k], f[i][j][k], sum);
                sums[i][u][k] = sum;
            }
}

template <int K, int U> __device__ __forceinline__ void move_two(float (&sums)[K][U][2]) {
#pragma unroll
    for (int i = 0; i < K; i++)
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                sums[i][u][k] = i + 2 < K ? sums[i + 2 < K ? i + 2 : 0][u][k] : 0.0f;
}

template <comet_dtype D, int K>
__global__ static void __launch_bounds__(MOST_THREADS, LEAST_BLOCKS<K>)
    back_kernel(Walk w, Back b, Sources s, const void *filter, u8 *dx) {
    constexpr int T = BACK_TOGETHER, DEPTH = K / 2 + 1, N = T + DEPTH - 1;
    __shared__ __align__(16) u8 ring[STAGES * STAGE_BYTES];
    __shared__ u32 places[PIECES];
    const Place p = place_of(w);
    const u32 channel = channel_of(w, p), out_pixel = w.channels * value_bytes<D>;
    const u32 own = (p.image * ROWS * w.span + p.group * T) * w.pitch + p.pair * 2 * value_bytes<D>;
    const int column = column_of<T>(w, p) * 2 + b.left, end = channel < w.channels ? b.size.columns : 0;
    float f[K][K][2], sums[K][2 * T][2] = {};
    load_filter<D, K>(filter, channel, w.channels, false, f);
    dx += (int64_t)p.image * b.size.rows * b.line + (int64_t)column * out_pixel + channel * value_bytes<D>;
    walk<D, 1, T, false>(w, p, s, ring, places, [&](const u8 *stage, const Cursor &c) {
        const int from = max(c.from(w) * 2 + b.up, 0), to = min((c.from(w) + w.band_rows) * 2 + b.up, b.size.rows);
        const int row = (c.row(w) - (DEPTH - 1)) * 2 + b.up;
        const bool has = has_rows<1>(w, c.row(w) - w.up);
        const u8 *memory = stage + own;
        u8 *line = from_here_on(dx + (int64_t)((int)c.image * b.size.rows + row) * b.line);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (has) {
                float v[N][2];
                load_pixels<D, N>(memory + (u32)r * w.span * w.pitch, w.pitch, v);
                spread_row<K, N, 2 * T>(v, f, sums);
            } else {
                move_two<K, 2 * T>(sums);
            }
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (row + 2 * r + i >= from && row + 2 * r + i < to)
                    store_pixels<D, 2 * T>(line + (int64_t)(2 * r + i) * b.line, out_pixel, column, end, sums[i]);
        }
    });
}

// ---- host ----

static int least_pixel(int padding) { // row or column of dy whose window begins at the first pixel, or one before it
    return padding / 2;
}

static int pixels_of(int size, int padding) {
    return (size - 1 + padding) / 2 - least_pixel(padding) + 1;
}

static cudaError_t launch_back(const comet_cuda_depthwise *c, const void *dy, const void *filter, void *dx,
                               cudaStream_t queue) {
    const int before = c->kernel / 2; // rows of dy that end in the same rows of dx as one and begin before it
    const Back b = {{c->height, c->width},
                    -(c->padding % 2),
                    -(c->padding_width % 2),
                    c->width * c->channels * (int)comet_dtype_size(c->dtype)};
    Task t = task_of(c);
    t.kernel = before + 1;
    t.stride = 1;
    t.together = BACK_TOGETHER;
    t.in = {c->out_height, c->out_width};
    t.out = {pixels_of(c->height, c->padding), pixels_of(c->width, c->padding_width)};
    t.up = before - least_pixel(c->padding);
    t.left = before - least_pixel(c->padding_width);
    const Walk w = walk_of(t);
    return with_dtype(c->dtype, [&](auto d) {
        constexpr comet_dtype D = decltype(d)::value;
        auto kernel = c->kernel == 3 ? back_kernel<D, 3> : back_kernel<D, 5>;
        return launch(kernel, blocks_of(w), threads_of(w), queue, w, b, Sources{(const u8 *)dy, NULL}, filter,
                      (u8 *)dx);
    });
}

cudaError_t comet_cuda_depthwise_by_input(const comet_cuda_depthwise *c, const void *dy, const void *filter, void *dx,
                                          cudaStream_t queue) {
    if (!are_aligned(dy, dx))
        return cudaErrorMisalignedAddress;
    return c->stride == 1 ? comet_cuda_depthwise_turned(c, dy, filter, dx, queue)
                          : launch_back(c, dy, filter, dx, queue);
}
