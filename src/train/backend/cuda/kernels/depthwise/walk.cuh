// SPDX-License-Identifier: Apache-2.0
// How depthwise convolutions go over their tensors. A block has some channels of some columns, and goes down the rows.
// In each step it is given the rows that two rows of the output bring with them: they are copied to shared memory two
// steps ahead, with zeros for the padding, so that memory is busy while few registers wait for it. A thread has two
// channels of some neighbouring columns. What a row adds to the rows of its windows it adds at once, so that a row is
// read once, and sums (or, by filter, gradients) of the last rows are in registers.
//
// 'In' is the tensor whose rows have windows around them, 'out' that which has a pixel for each window.
#ifndef COMET_TRAIN_CUDA_DEPTHWISE_WALK_CUH
#define COMET_TRAIN_CUDA_DEPTHWISE_WALK_CUH

#include "train/backend/cuda/kernels/depthwise/depthwise.h"
#include "train/backend/cuda/kernels/vectors.cuh"

constexpr u32 STAGES = 3, STAGE_BYTES = 11264; // steps in shared memory, and what one takes at most
constexpr u32 PIECE = 16, PIECES = STAGE_BYTES / PIECE;
constexpr u32 MOST_PAIRS = 32;
constexpr u32 MOST_THREADS = 192; // of a block: six warps, of which registers are enough for twelve or eighteen
template <int K> constexpr u32 LEAST_BLOCKS = K == 3 ? 3 : 2;
constexpr u32 MOST_BLOCKS = 2112; // about, of a kernel whose blocks have several items: 16 for each multiprocessor
constexpr int ROWS = 2;           // of `out` in a step: what a step costs beside them is then less of it
constexpr int BAND_ROWS = 32;     // at most: longer maps are cut into bands, whose blocks run side by side

// A piece's place: how many pieces it lies behind the step's first, and a bit for the row that it is of: from IN_BIT on
// those of `in`, from OUT_BIT on those of `out`. No bit: it is nowhere.
constexpr u32 IN_BIT = 26, OUT_BIT = 30;

struct Extent {
    int rows, columns;
};

// Images are taken one after the other, and within them bands: these are items, some of which a block goes over.
struct Walk {
    Extent in, reached, out; // reached: what of `in` is in any window
    int up, left;            // rows and columns of padding
    u32 channels;
    u32 pairs, groups, images; // a block's channels by two; groups of columns; images side by side
    u32 chunks, tiles, parts;  // blocks: of channels, of columns, of items
    u32 items, items_of_block;
    int bands, band_rows, steps;         // steps of an item
    u32 span;                            // columns of `in` that a block has
    u32 pitch, stage_bytes;              // bytes of the block's channels of a pixel; of a step
    int in_line, out_line;               // bytes of a row of the tensor
    Divide by_piece, by_span, by_across; // pieces of a pixel; columns of `in` and of `out` that a block has
};

// Where a thread is in its block, and a block in its grid.
struct Place {
    u32 pair, group, image, chunk, tile, part;
};

__device__ __forceinline__ Place place_of(const Walk &w) {
    const u32 column = threadIdx.x / w.pairs, image = column / w.groups, above = blockIdx.x / w.chunks,
              part = above / w.tiles;
    return {threadIdx.x - column * w.pairs, column - image * w.groups, image,
            blockIdx.x - above * w.chunks,  above - part * w.tiles,    part};
}

__device__ __forceinline__ u32 channel_of(const Walk &w, const Place &p) {
    return (p.chunk * w.pairs + p.pair) * 2;
}

template <int T> __device__ __forceinline__ int column_of(const Walk &w, const Place &p) {
    return (int)(p.tile * w.groups + p.group) * T;
}

// A step of a block.
struct Cursor {
    int step, band;
    u32 image; // the first of those side by side
    __device__ __forceinline__ void advance(const Walk &w) {
        if (++step < w.steps)
            return;
        step = 0;
        if (++band < w.bands)
            return;
        band = 0;
        image += w.images;
    }
    // The first row, of the band and of the step.
    __device__ __forceinline__ int from(const Walk &w) const {
        return band * w.band_rows;
    }
    __device__ __forceinline__ int row(const Walk &w) const {
        return from(w) + step * ROWS;
    }
};

// ---- shared memory ----

// Pieces of 16 bytes from `to` on: LINES rows of each of the block's images, columns from `left` on; `bit` is the
// first row's. Returns how many there are.
template <comet_dtype D, u32 LINES>
__device__ __forceinline__ u32 describe(const Walk &w, const Place &p, u32 *to, Extent tensor, int columns,
                                        const Divide &span, int left, u32 bit) {
    constexpr u32 VALUES = vector_values<D>;
    const u32 of_pixel = w.pitch / PIECE, count = w.images * LINES * span.divisor * of_pixel;
    for (u32 k = threadIdx.x; k < count; k += blockDim.x) {
        const Parts pixel = parts_of(k, w.by_piece), all = parts_of(pixel.of, span);
        const u32 image = all.of / LINES, line = all.of - image * LINES, piece = p.chunk * of_pixel + pixel.rest;
        const int column = left + (int)all.rest;
        const u32 at = ((image * (u32)tensor.rows + line) * (u32)tensor.columns + (u32)column) * (w.channels / VALUES);
        const bool is_there = column >= 0 && column < columns && piece * VALUES < w.channels;
        to[k] = is_there ? at + piece + (1u << (bit + line)) : 0;
    }
    return count;
}

// What is copied in each step: of `out` (NULL: nothing), the rows that begin there.
struct Sources {
    const u8 *in, *out;
};

__device__ __forceinline__ u32 bit_of(bool is_set, int bit) {
    return (is_set ? 1u : 0u) << bit;
}

// A row of images side by side. Rows of all images are fewer than 2^31.
__device__ __forceinline__ const u8 *line_at(const u8 *tensor, const Cursor &c, int rows, int row, int line) {
    return tensor + (int64_t)((int)c.image * rows + row) * line;
}

template <comet_dtype D, int S, bool BOTH>
__device__ __forceinline__ void ask(const Walk &w, const Cursor &c, const Sources &s, const u32 *places, u32 count,
                                    u8 *stage) {
    const int row = c.row(w), first = row * S - w.up;
    const u8 *in = from_here_on(line_at(s.in, c, w.in.rows, first, w.in_line)), *out = NULL;
    u32 there = 0;
#pragma unroll
    for (int a = 0; a < S * ROWS; a++)
        there |= bit_of((u32)(first + a) < (u32)w.reached.rows, (int)IN_BIT + a);
    if (BOTH) {
        out = from_here_on(line_at(s.out, c, w.out.rows, row, w.out_line));
#pragma unroll
        for (int a = 0; a < ROWS; a++)
            there |= bit_of(c.step * ROWS + a < w.band_rows && row + a < w.out.rows, (int)OUT_BIT + a);
    }
    for (u32 k = threadIdx.x; k < count; k += blockDim.x) {
        const u32 place = places[k];
        const u8 *tensor = BOTH && place >> OUT_BIT ? out : in;
        copy_ahead_or_zero(stage + k * PIECE, tensor + (u64)(place % (1u << IN_BIT)) * PIECE, place & there);
    }
}

// Goes over all of the block's steps: calls step(memory, cursor) for each. All threads of the block come here. A thread
// has T columns of `out`.
template <comet_dtype D, int S, int T, bool BOTH, class Step>
__device__ __forceinline__ void walk(const Walk &w, const Place &p, const Sources &s, u8 *ring, u32 *places,
                                     Step step) {
    const int across = (int)w.groups * T, column = (int)p.tile * across;
    u32 count = describe<D, S * ROWS>(w, p, places, w.in, w.reached.columns, w.by_span, column * S - w.left, IN_BIT);
    if (BOTH)
        count += describe<D, ROWS>(w, p, places + count, w.out, w.out.columns, w.by_across, column, OUT_BIT);
    const u32 first = p.part * w.items_of_block, image = first / (u32)w.bands;
    const u32 items = min(w.items - first, w.items_of_block), steps = items * (u32)w.steps;
    Cursor here = {0, (int)(first - image * (u32)w.bands), image * w.images}, ahead = here;
    u32 now = 0, next = (STAGES - 1) * w.stage_bytes; // where the step's rows are, and where rows are copied to
    __syncthreads();
    for (u32 i = 0; i < STAGES - 1; i++) {
        if (i < steps)
            ask<D, S, BOTH>(w, ahead, s, places, count, ring + i * w.stage_bytes);
        close_copies();
        ahead.advance(w);
    }
    for (u32 i = 0; i < steps; i++) {
        await_copies_before<STAGES - 2>();
        __syncthreads(); // all have copied this step's, and read that of the step before, which is written over now
        if (i + STAGES - 1 < steps)
            ask<D, S, BOTH>(w, ahead, s, places, count, ring + next);
        close_copies();
        ahead.advance(w);
        step((const u8 *)ring + now, here);
        here.advance(w);
        next = now;
        now = now == (STAGES - 1) * w.stage_bytes ? 0 : now + w.stage_bytes;
    }
}

// Whether any of a step's rows, of which the first is this, is not padding.
template <int S> __device__ __forceinline__ bool has_rows(const Walk &w, int first) {
    return first + S * ROWS > 0 && first < w.reached.rows;
}

// ---- values ----

template <comet_dtype D> __device__ __forceinline__ void load_pair(const u8 *from, float (&v)[2]) {
    if constexpr (D == COMET_F32) {
        const float2 both = *(const float2 *)from;
        v[0] = both.x, v[1] = both.y;
    } else {
        const u32 both = *(const u32 *)from;
        v[0] = float_of<D>(both & 0xffffu);
        v[1] = D == COMET_F16 ? float_of_upper_f16(both) : __uint_as_float(both & 0xffff0000u);
    }
}

template <comet_dtype D> __device__ __forceinline__ void store_pair(u8 *to, const float (&v)[2]) {
    if constexpr (D == COMET_F32)
        *(float2 *)to = make_float2(v[0], v[1]);
    else
        *(u32 *)to = pair_of_floats<D == COMET_BF16>(v[0], v[1]);
}

// Pixels side by side.
template <comet_dtype D, int N>
__device__ __forceinline__ void load_pixels(const u8 *from, u32 pitch, float (&v)[N][2]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        load_pair<D>(from + (u32)i * pitch, v[i]);
}

// Those of them that are in columns 0 .. end - 1; `to` is the first one's, which is in column `first`.
template <comet_dtype D, int N>
__device__ __forceinline__ void store_pixels(u8 *to, u32 pitch, int first, int end, const float (&v)[N][2]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        if (first + i >= 0 && first + i < end)
            store_pair<D>(to + (u32)i * pitch, v[i]);
}

// Both channels' filters; `flipped`: from the last to the first.
template <comet_dtype D, int K>
__device__ __forceinline__ void load_filter(const void *filter, u32 channel, u32 channels, bool flipped,
                                            float (&f)[K][K][2]) {
#pragma unroll
    for (int i = 0; i < K * K; i++)
#pragma unroll
        for (int k = 0; k < 2; k++)
            f[i / K][i % K][k] =
                channel < channels
                    ? load_value<D>(filter, (u64)(channel + (u32)k) * (K * K) + (flipped ? K * K - 1 - i : i))
                    : 0.0f;
}

// ---- host ----

// What is to be walked over, before it is shared out.
struct Task {
    comet_dtype dtype;
    int batch, channels, kernel, stride, together; // together: columns of `out` that a thread has
    Extent in, out;
    int up, left;
    bool both; // rows of `out` are read, too, and a block may have several items
};

static inline Task task_of(const comet_cuda_depthwise *c) {
    Task t = {};
    t.dtype = c->dtype;
    t.batch = c->batch;
    t.channels = c->channels;
    t.kernel = c->kernel;
    t.stride = c->stride;
    return t;
}

constexpr u64 MOST_BYTES = (u64)PIECE << IN_BIT; // of images side by side

static inline u32 whole(u32 a, u32 b) {
    return (a + b - 1) / b;
}

static inline u32 span_of(const Task &t, u32 groups) {
    return (groups * (u32)t.together - 1) * (u32)t.stride + (u32)t.kernel;
}

static inline u32 stage_bytes_of(const Task &t, u32 pairs, u32 groups, u32 images) {
    const u32 across = t.both ? groups * (u32)t.together : 0;
    return images * ROWS * (span_of(t, groups) * (u32)t.stride + across) * pairs * 2 * (u32)comet_dtype_size(t.dtype);
}

static inline bool fits(const Task &t, u32 pairs, u32 groups, u32 images) {
    const u64 bytes = (u64)images * (u64)t.in.rows * (u64)t.in.columns * (u64)t.channels * comet_dtype_size(t.dtype);
    return pairs * groups * images <= MOST_THREADS && stage_bytes_of(t, pairs, groups, images) <= STAGE_BYTES &&
           bytes <= MOST_BYTES;
}

struct Share {
    u32 pairs, groups, images; // of a block
};

static inline u32 groups_of(const Task &t) {
    return whole((u32)t.out.columns, (u32)t.together);
}

static inline u32 chunks_of(const Task &t, u32 pairs) {
    return whole((u32)t.channels / 2, pairs);
}

// What a row of an image takes: whole warps, pieces, of which 16 take as long as a thread, and what every block has. It
// has shared memory, too, so that small ones would leave a multiprocessor with few warps.
static inline double cost_of(const Task &t, const Share &s) {
    const u32 threads = whole(s.pairs * s.groups * s.images, 32) * 32,
              pieces = stage_bytes_of(t, s.pairs, s.groups, s.images) / PIECE;
    return (double)chunks_of(t, s.pairs) * whole(groups_of(t), s.groups) * (threads + pieces / 16.0 + 64) / s.images;
}

// As many images as fit and leave none over, where a block has all columns.
static inline u32 images_of(const Task &t, u32 pairs, u32 groups) {
    u32 images = 1;
    for (u32 n = 2; groups == groups_of(t) && n <= (u32)t.batch && fits(t, pairs, groups, n); n++)
        if ((u32)t.batch % n == 0)
            images = n;
    return images;
}

// The best of all shares; of equal ones that with more pairs, and then with more groups.
static inline Share share_of(const Task &t) {
    const u32 piece = 8 / (u32)comet_dtype_size(t.dtype), all = (u32)t.channels / 2, groups = groups_of(t);
    const u32 most = all < MOST_PAIRS ? all : MOST_PAIRS, least = all < MOST_PAIRS / 2 ? all : MOST_PAIRS / 2;
    Share best = {};
    for (u32 pairs = most; pairs >= least; pairs -= piece)
        for (u32 tiles = 1; tiles <= groups; tiles++) {
            const u32 of_block = whole(groups, tiles);
            if (!fits(t, pairs, of_block, 1))
                continue;
            const Share s = {pairs, of_block, images_of(t, pairs, of_block)};
            if (best.pairs == 0 || cost_of(t, s) < cost_of(t, best))
                best = s;
            if (of_block * pairs < 32) // fewer still are never better
                break;
        }
    return best;
}

// Partial sums are an eighth of what is read at most.
static inline u32 most_parts(const Task &t, const Walk &w) {
    const u64 pixels = (u64)t.batch * (u64)(t.in.rows * (u64)t.in.columns + t.out.rows * (u64)t.out.columns);
    const u64 of_bytes = pixels * comet_dtype_size(t.dtype) / (8 * sizeof(float) * w.tiles * t.kernel * t.kernel);
    const u32 of_blocks = whole(MOST_BLOCKS, w.chunks * w.tiles);
    return of_bytes == 0 ? 1 : of_bytes < of_blocks ? (u32)of_bytes : of_blocks;
}

static inline void share_rows(const Task &t, Walk &w) {
    const int depth = (t.kernel + t.stride - 1) / t.stride;
    w.bands = (t.out.rows + BAND_ROWS - 1) / BAND_ROWS;
    w.band_rows = (t.out.rows + w.bands - 1) / w.bands;
    w.steps = (w.band_rows + depth - 1 + ROWS - 1) / ROWS;
    w.items = (u32)t.batch / w.images * (u32)w.bands;
    const u32 most = t.both ? most_parts(t, w) : w.items;
    w.items_of_block = whole(w.items, most < w.items ? most : w.items);
    w.parts = whole(w.items, w.items_of_block);
}

static inline void share_columns(const Task &t, Walk &w) {
    const Share s = share_of(t);
    w.pairs = s.pairs;
    w.groups = s.groups;
    w.images = s.images;
    w.chunks = chunks_of(t, s.pairs);
    w.tiles = whole(groups_of(t), s.groups);
    w.span = span_of(t, s.groups);
    w.pitch = s.pairs * 2 * (u32)comet_dtype_size(t.dtype);
    w.stage_bytes = stage_bytes_of(t, s.pairs, s.groups, s.images);
    w.by_piece = divide_by(w.pitch / PIECE);
    w.by_span = divide_by(w.span);
    w.by_across = divide_by(w.groups * (u32)t.together);
}

static inline int less(int a, int b) {
    return a < b ? a : b;
}

// Shapes alone decide: sums are the same on all devices.
static inline Walk walk_of(const Task &t) {
    Walk w = {};
    w.in = t.in;
    w.out = t.out;
    w.up = t.up;
    w.left = t.left;
    w.channels = (u32)t.channels;
    w.reached.rows = less(t.in.rows, (t.out.rows - 1) * t.stride - t.up + t.kernel);
    w.reached.columns = less(t.in.columns, (t.out.columns - 1) * t.stride - t.left + t.kernel);
    w.in_line = t.in.columns * t.channels * (int)comet_dtype_size(t.dtype);
    w.out_line = t.out.columns * t.channels * (int)comet_dtype_size(t.dtype);
    share_columns(t, w);
    share_rows(t, w);
    return w;
}

static inline dim3 blocks_of(const Walk &w) {
    return dim3(w.chunks * w.tiles * w.parts);
}

static inline dim3 threads_of(const Walk &w) {
    return dim3(w.pairs * w.groups * w.images);
}

// By input with a stride of 1, where windows are those of forward.
cudaError_t comet_cuda_depthwise_turned(const comet_cuda_depthwise *c, const void *dy, const void *filter, void *dx,
                                        cudaStream_t queue);

// Calls run(kernel, stride), both std::integral_constants.
template <class Run> static inline cudaError_t with_shape(int kernel, int stride, Run run) {
    typedef std::integral_constant<int, 1> One;
    typedef std::integral_constant<int, 2> Two;
    typedef std::integral_constant<int, 3> Three;
    typedef std::integral_constant<int, 5> Five;
    if (kernel == 3)
        return stride == 1 ? run(Three(), One()) : run(Three(), Two());
    return stride == 1 ? run(Five(), One()) : run(Five(), Two());
}

#endif
