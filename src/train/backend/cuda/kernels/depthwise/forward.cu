// SPDX-License-Identifier: Apache-2.0
// Depthwise forward, and with a stride of 1 by input, which is the same with the filter turned round.
#include "train/backend/cuda/kernels/depthwise/walk.cuh"

template <int S> constexpr int FORWARD_TOGETHER = S == 1 ? 4 : 2;

// Sums of the rows of windows that the step's rows are in, sums[d] of the row that began d steps ago; the first of the
// step's rows (A is 0) moves them on.
template <int K, int S, int A, int T, int N, int DEPTH>
__device__ __forceinline__ void add_row(const float (&v)[N][2], const float (&f)[K][K][2], float (&sums)[DEPTH][T][2]) {
#pragma unroll
    for (int d = DEPTH - 1; d >= 0; d--)
#pragma unroll
        for (int c = 0; c < T; c++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float sum = A > 0 ? sums[d][c][k] : d > 0 ? sums[d > 0 ? d - 1 : 0][c][k] : 0.0f;
                if (A + S * d < K)
#pragma unroll
                    for (int j = 0; j < K; j++)
                        sum = fmaf(v[c * S + j][k], f[A + S * d < K ? A + S * d : 0][j][k], sum);
                sums[d][c][k] = sum;
            }
}

// All rows that one row of the output brings with it.
template <comet_dtype D, int K, int S, int T, int DEPTH>
__device__ __forceinline__ void add_rows(const u8 *from, const Walk &w, const float (&f)[K][K][2],
                                         float (&sums)[DEPTH][T][2]) {
    constexpr int N = (T - 1) * S + K;
    float v[N][2];
    load_pixels<D, N>(from, w.pitch, v);
    add_row<K, S, 0, T, N, DEPTH>(v, f, sums);
    if (S > 1) {
        load_pixels<D, N>(from + w.span * w.pitch, w.pitch, v);
        add_row<K, S, S - 1, T, N, DEPTH>(v, f, sums);
    }
}

// As much padding.
template <int T, int DEPTH> __device__ __forceinline__ void move_on(float (&sums)[DEPTH][T][2]) {
#pragma unroll
    for (int d = DEPTH - 1; d >= 0; d--)
#pragma unroll
        for (int c = 0; c < T; c++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                sums[d][c][k] = d > 0 ? sums[d > 0 ? d - 1 : 0][c][k] : 0.0f;
}

template <comet_dtype D, int K, int S>
__global__ static void __launch_bounds__(MOST_THREADS, LEAST_BLOCKS<K>)
    forward_kernel(Walk w, Sources s, const void *filter, bool flipped, u8 *y) {
    constexpr int T = FORWARD_TOGETHER<S>, DEPTH = (K + S - 1) / S;
    __shared__ __align__(16) u8 ring[STAGES * STAGE_BYTES];
    __shared__ u32 places[PIECES];
    const Place p = place_of(w);
    const u32 channel = channel_of(w, p), out_pixel = w.channels * value_bytes<D>;
    const u32 own = (p.image * (S * ROWS) * w.span + p.group * T * S) * w.pitch + p.pair * 2 * value_bytes<D>;
    const int column = column_of<T>(w, p), end = channel < w.channels ? w.out.columns : 0;
    float f[K][K][2], sums[DEPTH][T][2] = {};
    load_filter<D, K>(filter, channel, w.channels, flipped, f);
    y += (int64_t)p.image * w.out.rows * w.out_line + (int64_t)column * out_pixel + channel * value_bytes<D>;
    walk<D, S, T, false>(w, p, s, ring, places, [&](const u8 *stage, const Cursor &c) {
        const int from = c.from(w), row = c.row(w) - (DEPTH - 1), to = min(from + w.band_rows, w.out.rows);
        const bool has = has_rows<S>(w, c.row(w) * S - w.up);
        const u8 *memory = stage + own;
        u8 *line = from_here_on(y + (int64_t)((int)c.image * w.out.rows + row) * w.out_line);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (has)
                add_rows<D, K, S, T, DEPTH>(memory + (u32)(r * S) * w.span * w.pitch, w, f, sums);
            else
                move_on<T, DEPTH>(sums);
            if (row + r >= from && row + r < to)
                store_pixels<D, T>(line + (int64_t)r * w.out_line, out_pixel, column, end, sums[DEPTH - 1]);
        }
    });
}

// ---- host ----

static cudaError_t launch_forward(Task t, const void *from, const void *filter, bool flipped, void *to,
                                  cudaStream_t queue) {
    if (!are_aligned(from, to))
        return cudaErrorMisalignedAddress;
    return with_dtype(t.dtype, [&](auto d) {
        return with_shape(t.kernel, t.stride, [&](auto k, auto s) {
            constexpr int S = decltype(s)::value;
            t.together = FORWARD_TOGETHER<S>;
            const Walk w = walk_of(t);
            return launch(forward_kernel<decltype(d)::value, decltype(k)::value, S>, blocks_of(w), threads_of(w), queue,
                          w, Sources{(const u8 *)from, NULL}, filter, flipped, (u8 *)to);
        });
    });
}

int comet_cuda_depthwise_takes(const comet_cuda_depthwise *c) {
    const int64_t pixel = (int64_t)c->channels * (int64_t)comet_dtype_size(c->dtype), most = MOST_BYTES;
    return (c->kernel == 3 || c->kernel == 5) && c->kernel_width == c->kernel && (c->stride == 1 || c->stride == 2) &&
           pixel % PIECE == 0 && pixel <= most / c->height / c->width && pixel <= most / c->out_height / c->out_width &&
           c->batch <= INT32_MAX / (c->height + 1) && c->batch <= INT32_MAX / (c->out_height + 1);
}

cudaError_t comet_cuda_depthwise_forward(const comet_cuda_depthwise *c, const void *x, const void *filter, void *y,
                                         cudaStream_t queue) {
    Task t = task_of(c);
    t.in = {c->height, c->width};
    t.out = {c->out_height, c->out_width};
    t.up = c->padding;
    t.left = c->padding_width;
    return launch_forward(t, x, filter, false, y, queue);
}

// What is in the gradient of a pixel was made with the filter's weights in the other order.
cudaError_t comet_cuda_depthwise_turned(const comet_cuda_depthwise *c, const void *dy, const void *filter, void *dx,
                                        cudaStream_t queue) {
    Task t = task_of(c);
    t.in = {c->out_height, c->out_width};
    t.out = {c->height, c->width};
    t.up = c->kernel - 1 - c->padding;
    t.left = c->kernel - 1 - c->padding_width;
    return launch_forward(t, dy, filter, true, dx, queue);
}
