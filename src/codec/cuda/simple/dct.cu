// SPDX-License-Identifier: Apache-2.0
// dct on the device: JPEG-ACT as a baseline (docs/codecs.md, section 5). Compressing takes three kernels: one clears
// the workspace, one finds the channels' maxima, on which every code depends, and one does the rest: where a chunk's
// values go depends on how many all chunks before it have, which each chunk finds by looking back at what these have
// published.
#include "codec/cuda/frame.cuh"
#include "codec/cuda/simple/dct_block.cuh"
#include "codec/cuda/values.cuh"

constexpr int THREADS = DCT_THREADS;
constexpr int WARPS = THREADS / 32;
constexpr u64 RUN = 2048;               // values of a channel that a warp looks at for the maximum
constexpr u64 MAXIMA_THREADS = 1 << 18; // about as many as run at a time

// ---- workspace ----

struct dct_workspace {
    u64 *ticket; // the next chunk
    u64 *states; // of chunks
    u32 *maxima; // of channels, fp32 patterns
};

static u64 workspace_words(const dct_shape &s) {
    return 2 + 2 * s.chunks + s.channels;
}

static dct_workspace workspace_at(u8 *memory, const dct_shape &s) {
    dct_workspace w = {};
    if (s.count) {
        w.ticket = (u64 *)(memory + CUDA_WORKSPACE_ZEROED);
        w.states = w.ticket + 1;
        w.maxima = (u32 *)(w.states + s.chunks);
    }
    return w;
}

__global__ static void __launch_bounds__(THREADS) clear_kernel(u32 *words, u64 n) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < n; i += (u64)gridDim.x * THREADS)
        words[i] = 0;
}

// ---- maxima ----

// The finite magnitude's pattern, which orders as an unsigned integer; 0 if the value is not finite.
__device__ __forceinline__ u32 magnitude_of(float x) {
    u32 magnitude = __float_as_uint(x) & 0x7fffffffu;
    return magnitude < 0x7f800000u ? magnitude : 0;
}

__device__ __forceinline__ void raise_maximum(u32 *maximum, u32 to) {
    if (__ldcg(maximum) < to)
        atomicMax(maximum, to);
}

// Channels in runs: a warp takes a piece of a run at a time.
template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    maxima_of_runs(dct_shape s, const void *tensor, u32 *maxima, divider by_pieces, u64 pieces) {
    u32 lane = threadIdx.x % 32;
    for (u64 i = (u64)blockIdx.x * WARPS + threadIdx.x / 32; i < pieces; i += (u64)gridDim.x * WARPS) {
        quotient run = split(i, by_pieces);
        u64 first = run.of * s.channel_run + run.rest * RUN, n = min(RUN, s.channel_run - run.rest * RUN);
        u32 most = 0;
#pragma unroll 8
        for (u32 j = lane; j < n; j += 32)
            most = max(most, magnitude_of(load_value<D>(tensor, first + j)));
        most = __reduce_max_sync(ALL_LANES, most);
        if (lane == 0)
            raise_maximum(maxima + split(run.of, s.by_channels).rest, most);
    }
}

// Channels side by side: the number of threads is a multiple of theirs, so that a thread meets only one.
template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    maxima_across(dct_shape s, const void *tensor, u32 *maxima, u64 threads) {
    for (u64 t = (u64)blockIdx.x * THREADS + threadIdx.x; t < threads; t += (u64)gridDim.x * THREADS) {
        u32 most = 0;
#pragma unroll 8
        for (u64 i = t; i < s.count; i += threads)
            most = max(most, magnitude_of(load_value<D>(tensor, i)));
        raise_maximum(maxima + split(t, s.by_channels).rest, most);
    }
}

template <comet_dtype D>
static cudaError_t launch_maxima(const cuda_compress_job *job, const dct_shape &s, u32 *maxima) {
    const void *data = job->tensor->data;
    if (s.channel_run == 1 && s.channels > 1) {
        u64 a_channel = s.count / s.channels, slices = MAXIMA_THREADS / s.channels;
        slices = slices < 1 ? 1 : slices < a_channel ? slices : a_channel;
        u64 threads = slices * s.channels;
        return launch(maxima_across<D>, grid_for(threads, THREADS), THREADS, job->queue, s, data, maxima, threads);
    }
    u64 a_run = (s.channel_run + RUN - 1) / RUN, pieces = s.count / s.channel_run * a_run;
    return launch(maxima_of_runs<D>, grid_for(pieces, WARPS), THREADS, job->queue, s, data, maxima, divider_of(a_run),
                  pieces);
}

__device__ __forceinline__ void write_maxima(const dct_shape &s, const u32 *maxima, u8 *body) {
    for (u64 c = (u64)blockIdx.x * THREADS + threadIdx.x; c < s.channels; c += (u64)gridDim.x * THREADS)
        ((u32 *)body)[c] = maxima[c];
}

// ---- compressing blocks ----

// Column after column of codes through the first pass of a sweep's blocks.
template <comet_dtype D>
__device__ __forceinline__ void forward_columns(const dct_shape &s, const void *tensor, const u32 *maxima,
                                                u64 first_block, dct_chunk &k) {
    dct_column c = column_of(s, first_block);
    u64 x = min(c.block_column * DCT_SIDE + c.x, s.width - 1), first_row = c.block_row * DCT_SIDE;
    // rows may be of different channels; each thread of eight looks one up
    float scale = dct_scale(maxima[channel_of(s, c, threadIdx.x % DCT_SIDE)]), values[8];
    int codes[8], t[8];
#pragma unroll
    for (int y = 0; y < 8; y++)
        values[y] = load_value<D>(tensor, (min(first_row + y, s.rows - 1) * s.width + x) * s.inner + c.channel);
#pragma unroll
    for (int y = 0; y < 8; y++) {
        float of_row = __shfl_sync(ALL_LANES, scale, y, DCT_SIDE);
        codes[y] = dct_code(values[y], s.inner == 1 ? of_row : scale);
    }
    forward_pass(codes, t);
#pragma unroll
    for (int u = 0; u < 8; u++)
        k.turned[c.in_sweep][8 * u + c.x] = turn(t[u]);
}

// The second pass: a thread has the coefficients of one vertical frequency, those at 8 v + u.
__device__ __forceinline__ void forward_rows(const dct_shape &s, u64 first_block, u32 sweep, dct_chunk &k) {
    u32 b = threadIdx.x / DCT_SIDE, u = threadIdx.x % DCT_SIDE, in_chunk = sweep * DCT_SWEEP + b;
    int t[8], c[8];
    u64 mask = 0;
#pragma unroll
    for (int x = 0; x < 8; x++)
        t[x] = k.turned[b][8 * u + x];
    forward_pass(t, c);
#pragma unroll
    for (int v = 0; v < 8; v++) {
        int coefficient = quantise(c[v], divisor_bits(s.table, (int)u, v));
        k.coefficient[in_chunk][8 * v + u] = (u8)coefficient;
        u32 some = __ballot_sync(ALL_LANES, coefficient != 0);
        mask |= (u64)(some >> threadIdx.x % 32 / 8 * 8 & 0xffu) << 8 * v;
    }
    if (u == 0)
        k.mask[in_chunk] = first_block + b < s.blocks ? mask : 0;
}

// Coefficients that are not 0, side by side.
__device__ __forceinline__ void pack_values(const dct_chunk &k, u8 *packed) {
    u32 lane = threadIdx.x % 32;
    for (u32 b = threadIdx.x / 32; b < DCT_CHUNK; b += WARPS) {
        u64 mask = k.mask[b];
        u8 *to = packed + k.place[b];
        for (u32 i = lane; i < 64; i += 32)
            if (mask >> i & 1)
                to[rank_of(mask, i)] = k.coefficient[b][i];
    }
}

// `packed` to any address; it has four bytes more than are copied.
__device__ __forceinline__ void copy_packed(const u32 *packed, u32 bytes, u8 *to) {
    u32 head = min((u32)(-(uintptr_t)to & 3), bytes), words = (bytes - head) / 4, done = head + 4 * words;
    for (u32 i = threadIdx.x; i < words; i += THREADS) {
        u64 pair = packed[i] | (u64)packed[i + 1] << 32;
        ((u32 *)(to + head))[i] = (u32)(pair >> 8 * head);
    }
    if (threadIdx.x < head)
        to[threadIdx.x] = ((const u8 *)packed)[threadIdx.x];
    if (threadIdx.x < bytes - done)
        to[done + threadIdx.x] = ((const u8 *)packed)[done + threadIdx.x];
}

// ---- looking back ----

// What a chunk has published of itself, in the top bits of its state: nothing, its own values, or those of all up to
// its end.
constexpr u64 STATE_OWN = (u64)1 << 62, STATE_ALL = (u64)2 << 62, STATE_VALUE = STATE_OWN - 1;

__device__ __forceinline__ void publish(u64 *state, u64 v) {
    atomicExch((unsigned long long *)state, (unsigned long long)v);
}

// Waits until the chunk is at least started on. Chunks are taken in order, so those before run, or have run.
__device__ __forceinline__ u64 wait_for(u64 *state) {
    for (;;) {
        u64 v = *(volatile u64 *)state;
        if (v)
            return v;
        __threadfence();
    }
}

__device__ __forceinline__ u64 sum_of_lanes(u64 v) {
    for (int apart = 16; apart; apart /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, apart);
    return v;
}

// The values of all chunks before this one; a warp does it, 32 chunks at a time.
__device__ __forceinline__ u64 values_before(u64 *states, u64 chunk) {
    u32 lane = threadIdx.x % 32;
    u64 sum = 0;
    for (u64 end = chunk; end; end = end > 32 ? end - 32 : 0) {
        u64 state = lane < end ? wait_for(&states[end - 1 - lane]) : 0;
        u32 all = __ballot_sync(ALL_LANES, state >> 63);
        u32 last = all ? (u32)__ffs((int)all) - 1 : 31; // of those that count
        sum += sum_of_lanes(lane <= last ? state & STATE_VALUE : 0);
        if (all)
            break;
    }
    return sum;
}

// The chunk's offset among the values. A warp calls it.
__device__ __forceinline__ u64 find_offset(u64 *states, u64 chunk, u32 values) {
    u64 offset = values_before(states, chunk);
    if (threadIdx.x == 0)
        publish(&states[chunk], STATE_ALL | (offset + values));
    return offset;
}

// ---- the kernels that compress ----

__device__ __forceinline__ void write_tables(const dct_shape &s, const dct_chunk &k, u64 chunk, u64 offset, u8 *body) {
    u64 block = chunk * DCT_CHUNK + threadIdx.x;
    if (threadIdx.x < DCT_CHUNK && block < s.blocks)
        store_u64(body + s.masks_at + 8 * block, k.mask[threadIdx.x]);
    if (threadIdx.x == 0)
        store_u64(body + s.offsets_at + 8 * chunk, offset);
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    compress_blocks(write_frame f, dct_shape s, dct_workspace w, const void *tensor) {
    __shared__ dct_chunk k;
    __shared__ u32 packed[DCT_CHUNK * 64 / 4 + 1];
    __shared__ u64 taken, offset;
    u64 start = start_of(f), fixed = STREAM_HEADER_BYTES + s.rest_at;
    bool tables_fit = stream_fits(f.capacity, start, fixed);
    u8 *body = body_at(f, start);
    if (tables_fit)
        write_maxima(s, w.maxima, body);
    for (;;) {
        if (threadIdx.x == 0)
            taken = atomicAdd((unsigned long long *)w.ticket, 1ull);
        __syncthreads();
        u64 chunk = taken;
        if (chunk >= s.chunks)
            return;
        for (u32 sweep = 0; sweep < DCT_SWEEPS; sweep++) {
            u64 first_block = chunk * DCT_CHUNK + sweep * DCT_SWEEP;
            forward_columns<D>(s, tensor, w.maxima, first_block, k);
            __syncthreads();
            forward_rows(s, first_block, sweep, k);
            __syncthreads();
        }
        place_values(k);
        if (threadIdx.x == 0)
            publish(&w.states[chunk], STATE_OWN | k.values);
        pack_values(k, (u8 *)packed);
        if (threadIdx.x < 32) {
            u64 found = find_offset(w.states, chunk, k.values);
            if (threadIdx.x == 0)
                offset = found;
        }
        __syncthreads();
        if (tables_fit)
            write_tables(s, k, chunk, offset, body);
        u64 bytes = fixed + offset + k.values;
        if (stream_fits(f.capacity, start, bytes))
            copy_packed(packed, k.values, body + s.rest_at + offset);
        if (chunk == s.chunks - 1)
            finish_stream(f, start, bytes);
        __syncthreads();
    }
}

// A run of codes, or values, and the scale, or step, of each. It looks the channel up only where it changes.
struct dct_walk {
    u64 channel, in_run;
};

__device__ __forceinline__ dct_walk walk_to(const dct_shape &s, u64 value) {
    quotient run = split(value, s.by_run);
    return {split(run.of, s.by_channels).rest, run.rest};
}

// Whether the next value is of another channel, or run.
__device__ __forceinline__ bool walk_on(const dct_shape &s, dct_walk *w) {
    if (++w->in_run < s.channel_run)
        return false;
    w->in_run = 0;
    w->channel = w->channel + 1 < s.channels ? w->channel + 1 : 0;
    return true;
}

// Maps smaller than 8 x 8, or none: four codes a thread.
template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS)
    compress_codes(write_frame f, dct_shape s, const u32 *maxima, const void *tensor, u64 bytes) {
    u8 *body = begin_stream(f, bytes);
    if (!body)
        return;
    write_maxima(s, maxima, body);
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i * 4 < s.count; i += (u64)gridDim.x * THREADS) {
        u32 n = (u32)min((u64)4, s.count - i * 4), codes = 0;
        float x[4] = {};
        if (n == 4)
            load_values<D, 4>(tensor, i * 4, x);
        else
            for (u32 j = 0; j < n; j++)
                x[j] = load_value<D>(tensor, i * 4 + j);
        dct_walk at = walk_to(s, i * 4);
        float scale = dct_scale(maxima[at.channel]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            codes |= (u32)(dct_code(x[j], scale) & 0xff) << 8 * j;
            if (walk_on(s, &at))
                scale = dct_scale(maxima[at.channel]);
        }
        u8 *to = body + s.rest_at + i * 4;
        if (n == 4)
            *(u32 *)to = codes;
        else
            for (u32 j = 0; j < n; j++)
                to[j] = (u8)(codes >> 8 * j);
    }
}

// ---- decompressing ----

__device__ __forceinline__ float step_of(const read_frame &f, const u8 *body, u64 channel) {
    u32 maximum = ((const u32 *)body)[channel];
    if (maximum >= 0x7f800000u) // negative, infinite or NaN
        report(f, COMET_ERROR_CORRUPT);
    return dct_step(maximum);
}

// The chunk's masks, and where its values are; NULL if the table, the masks and the size of the body do not agree on
// that.
__device__ __forceinline__ const u8 *read_masks(const dct_shape &s, const u8 *body, u64 value_bytes, u64 chunk,
                                                dct_chunk &k) {
    u64 block = chunk * DCT_CHUNK + threadIdx.x;
    if (threadIdx.x < DCT_CHUNK)
        k.mask[threadIdx.x] = block < s.blocks ? load_u64(body + s.masks_at + 8 * block) : 0;
    __syncthreads();
    place_values(k);
    const u8 *offsets = body + s.offsets_at + 8 * chunk;
    u64 at = load_u64(offsets), next = chunk + 1 < s.chunks ? load_u64(offsets + 8) : value_bytes;
    bool valid = at <= value_bytes && k.values <= value_bytes - at && at + k.values == next && (chunk > 0 || at == 0);
    return valid ? body + s.rest_at + at : nullptr;
}

__device__ __forceinline__ void unpack_values(const u8 *values, dct_chunk &k) {
    u32 lane = threadIdx.x % 32;
    for (u32 b = threadIdx.x / 32; b < DCT_CHUNK; b += WARPS) {
        u64 mask = k.mask[b];
        const u8 *from = values + k.place[b];
        for (u32 i = lane; i < 64; i += 32)
            k.coefficient[b][i] = mask >> i & 1 ? from[rank_of(mask, i)] : (u8)0;
    }
}

__device__ __forceinline__ void inverse_rows(const dct_shape &s, u32 sweep, dct_chunk &k) {
    u32 b = threadIdx.x / DCT_SIDE, u = threadIdx.x % DCT_SIDE;
    int c[8], t[8];
#pragma unroll
    for (int v = 0; v < 8; v++)
        c[v] = (int8_t)k.coefficient[sweep * DCT_SWEEP + b][8 * v + u] * (1 << divisor_bits(s.table, (int)u, v));
    inverse_pass(c, t);
#pragma unroll
    for (int x = 0; x < 8; x++)
        k.turned[b][8 * u + x] = turn(t[x]);
}

template <comet_dtype D>
__device__ __forceinline__ void inverse_columns(const read_frame &f, const dct_shape &s, const u8 *body,
                                                u64 first_block, const dct_chunk &k, void *tensor) {
    dct_column c = column_of(s, first_block);
    u64 x = c.block_column * DCT_SIDE + c.x, first_row = c.block_row * DCT_SIDE;
    float step = step_of(f, body, channel_of(s, c, threadIdx.x % DCT_SIDE)), steps[8];
    int t[8], codes[8];
#pragma unroll
    for (int y = 0; y < 8; y++)
        steps[y] = __shfl_sync(ALL_LANES, step, y, DCT_SIDE);
#pragma unroll
    for (int u = 0; u < 8; u++)
        t[u] = k.turned[c.in_sweep][8 * u + c.x];
    inverse_pass(t, codes);
    if (!c.there || x >= s.width)
        return;
#pragma unroll
    for (int y = 0; y < 8; y++)
        if (first_row + y < s.rows) {
            int code = min(max((codes[y] + (1 << 19)) >> 20, -128), 127);
            store_value<D>(tensor, ((first_row + y) * s.width + x) * s.inner + c.channel,
                           dct_value(code, s.inner == 1 ? steps[y] : step));
        }
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS) decompress_blocks(read_frame f, dct_shape s, void *tensor) {
    __shared__ dct_chunk k;
    u64 fixed = STREAM_HEADER_BYTES + s.rest_at;
    const u8 *stream = open_stream(f, fixed);
    if (!stream)
        return;
    const u8 *body = stream + STREAM_HEADER_BYTES;
    u64 bytes = load_u64(stream + 4 * CUDA_HEADER_WORD_BYTES);
    if (bytes < fixed || bytes > f.capacity - (u64)(stream - f.base)) {
        report(f, COMET_ERROR_CORRUPT);
        return;
    }
    for (u64 chunk = blockIdx.x; chunk < s.chunks; chunk += gridDim.x) {
        const u8 *values = read_masks(s, body, bytes - fixed, chunk, k);
        if (!values) {
            report(f, COMET_ERROR_CORRUPT);
            __syncthreads();
            continue;
        }
        unpack_values(values, k);
        __syncthreads();
        for (u32 sweep = 0; sweep < DCT_SWEEPS; sweep++) {
            inverse_rows(s, sweep, k);
            __syncthreads();
            inverse_columns<D>(f, s, body, chunk * DCT_CHUNK + sweep * DCT_SWEEP, k, tensor);
            __syncthreads();
        }
    }
}

template <comet_dtype D>
__global__ static void __launch_bounds__(THREADS) decompress_codes(read_frame f, dct_shape s, void *tensor, u64 bytes) {
    const u8 *stream = open_stream(f, bytes);
    if (!stream)
        return;
    const u8 *body = stream + STREAM_HEADER_BYTES;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i * 4 < s.count; i += (u64)gridDim.x * THREADS) {
        u32 n = (u32)min((u64)4, s.count - i * 4), codes = 0;
        const u8 *from = body + s.rest_at + i * 4;
        if (n == 4)
            codes = *(const u32 *)from;
        else
            for (u32 j = 0; j < n; j++)
                codes |= (u32)from[j] << 8 * j;
        dct_walk at = walk_to(s, i * 4);
        float x[4], step = step_of(f, body, at.channel);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[j] = dct_value((int8_t)(codes >> 8 * j), step);
            if (walk_on(s, &at))
                step = step_of(f, body, at.channel);
        }
        if (n == 4)
            store_values<D, 4>(tensor, i * 4, x);
        else
            for (u32 j = 0; j < n; j++)
                store_value<D>(tensor, i * 4 + j, x[j]);
    }
}

// ---- host ----

static comet_status check(const comet_tensor *tensor, const comet_codec_params *) {
    return tensor->dtype == COMET_U8 ? COMET_ERROR_UNSUPPORTED : COMET_OK;
}

static void describe(const comet_tensor *, const comet_codec_params *params, stream_header *header) {
    header->parameter = (uint32_t)params->dct_table;
}

static size_t body_max_bytes(const comet_tensor *tensor, const comet_codec_params *params) {
    return dct_body_bound(dct_shape_of(tensor, params));
}

static size_t workspace(const comet_tensor *tensor, const comet_codec_params *params) {
    dct_shape s = dct_shape_of(tensor, params);
    return s.count ? CUDA_WORKSPACE_ZEROED + workspace_words(s) * 4 : 0;
}

template <comet_dtype D> static cudaError_t launch_compress(const cuda_compress_job *job, const dct_shape &s) {
    write_frame f = write_frame_of(job);
    const void *data = job->tensor->data;
    dct_workspace w = workspace_at(job->workspace, s);
    if (s.count) {
        u64 words = workspace_words(s);
        cudaError_t error = launch(clear_kernel, grid_for(words, THREADS), THREADS, job->queue, (u32 *)w.ticket, words);
        if (error == cudaSuccess)
            error = launch_maxima<D>(job, s, w.maxima);
        if (error != cudaSuccess)
            return error;
    }
    if (s.transform)
        return launch(compress_blocks<D>, grid_for(s.chunks, 1), THREADS, job->queue, f, s, w, data);
    return launch(compress_codes<D>, grid_for(s.count, THREADS * 4), THREADS, job->queue, f, s, w.maxima, data,
                  STREAM_HEADER_BYTES + dct_body_bound(s));
}

static cudaError_t compress(const cuda_compress_job *job) {
    dct_shape s = dct_shape_of(job->tensor, job->params);
    return with_dtype(job->tensor->dtype, [&](auto dtype) { return launch_compress<decltype(dtype)::value>(job, s); });
}

template <comet_dtype D> static cudaError_t launch_decompress(const cuda_decompress_job *job, const dct_shape &s) {
    u64 bytes = STREAM_HEADER_BYTES + dct_body_bound(s);
    read_frame f = read_frame_of(job, bytes);
    f.any_bytes = s.transform;
    if (s.transform)
        return launch(decompress_blocks<D>, grid_for(s.chunks, 1), THREADS, job->queue, f, s, job->tensor->data);
    return launch(decompress_codes<D>, grid_for(s.count, THREADS * 4), THREADS, job->queue, f, s, job->tensor->data,
                  bytes);
}

static cudaError_t decompress(const cuda_decompress_job *job) {
    dct_shape s = dct_shape_of(job->tensor, job->params);
    return with_dtype(job->tensor->dtype,
                      [&](auto dtype) { return launch_decompress<decltype(dtype)::value>(job, s); });
}

const cuda_codec_vtable comet_cuda_dct = {check, describe, body_max_bytes, workspace, compress, decompress};
