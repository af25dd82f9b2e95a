// SPDX-License-Identifier: Apache-2.0
// Statistics of a batch norm's input in one pass: moments by columns of rows, then by block, and by the block that is
// last with a group of maps, the channels' tables. Sums are formed in an order that the shape and the number of
// multiprocessors give.
#include "codec/cuda/norm/norm_launch.h"
#include "codec/cuda/norm/norm_moments.cuh"
#include "codec/cuda/values.cuh"

enum { STATISTICS_UNROLL = 4, FINISH_UNROLL = 8, MOST_VALUES = 8 };

struct DownShared {
    float2 values[MOST_VALUES][STATISTICS_THREADS / 2];
    float counts[STATISTICS_THREADS / 2];
};

struct MapsShared {
    float2 parts[STATISTICS_THREADS][2]; // of a vector: in the map it starts in, and in the next
    float counts[STATISTICS_THREADS];    // of each of its values
    Moments tree[STATISTICS_THREADS];
};

union StatisticsShared {
    DownShared down;
    MapsShared maps;
    Moments tree[STATISTICS_THREADS];
    u32 is_last;
};

template <comet_dtype D> __device__ __forceinline__ float value_in(const u32 (&w)[4], int i) {
    return float_of<D>(pattern_in<D>(w, i));
}

// Where a thread stands: in its block, and in the rows.
struct StatisticsPlace {
    u32 group, piece; // of the block
    u32 down, across;
    u32 vector;      // in the row
    bool has_column; // false: it only helps
    u32 extra_row;   // 1: its column goes on in the row behind the whole ones

    __device__ __forceinline__ StatisticsPlace(const NormStatisticsShape &s, u32 thread) {
        group = s.pieces == 1 ? blockIdx.x : blockIdx.x / s.pieces;
        piece = blockIdx.x - group * s.pieces;
        down = thread / s.width;
        across = thread - down * s.width;
        const u32 in_group = piece * s.width + across;
        vector = group * s.group + in_group;
        has_column = down < s.down && in_group < s.group && vector < s.length;
        extra_row = vector < s.extra;
    }
};

// ---- a thread's run down the rows ----

// FOLDS: there may be several rows in turn in each map.
template <bool FOLDS> struct StatisticsRows {
    const uint4 *at;
    u32 turn; // of a map's `fold` rows

    __device__ __forceinline__ StatisticsRows(const NormStatisticsArgs &args, const StatisticsPlace &p, u32 row) {
        const NormStatisticsShape &s = args.shape;
        u64 index = (u64)row * s.length + p.vector;
        turn = 0;
        if (FOLDS && s.fold > 1) {
            const u32 sample = row / s.fold, map = p.vector / s.unit;
            turn = row - sample * s.fold;
            index = ((u64)sample * s.length + (u64)map * s.unit) * s.fold + turn * s.unit + (p.vector - map * s.unit);
        }
        at = (const uint4 *)args.x + index;
    }
    __device__ __forceinline__ uint4 next(const NormStatisticsShape &s) {
        const uint4 v = __ldcs(at); // what others left in the L2 cache, the end of x among it, stays there
        at += s.step;
        if (FOLDS && (turn += s.part) >= s.fold) {
            turn -= s.fold;
            at += s.wrap;
        }
        return v;
    }
};

// One vector's columns: first sums of differences from the first row's values, then moments.
template <comet_dtype D> struct StatisticsColumns {
    static constexpr int VALUES = vector_values<D>;
    float pivot[VALUES], mean[VALUES], squares[VALUES], count;

    __device__ __forceinline__ void take(const uint4 &v) {
        const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            const float d = __fsub_rn(value_in<D>(w, i), pivot[i]);
            mean[i] = __fadd_rn(mean[i], d);
            squares[i] = __fmaf_rn(d, d, squares[i]);
        }
    }
    // The first values are what differences are taken from; of three, those between, lest it be an outlier.
    __device__ __forceinline__ void start(const uint4 (&v)[STATISTICS_UNROLL], bool has_three) {
        const u32 a[4] = {v[0].x, v[0].y, v[0].z, v[0].w}, b[4] = {v[1].x, v[1].y, v[1].z, v[1].w};
        const u32 c[4] = {v[2].x, v[2].y, v[2].z, v[2].w};
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            const float x = value_in<D>(a, i), y = value_in<D>(b, i), z = value_in<D>(c, i);
            pivot[i] = has_three ? fmaxf(fminf(x, y), fminf(fmaxf(x, y), z)) : x;
        }
    }
    template <bool FOLDS>
    __device__ __forceinline__ void walk(const NormStatisticsShape &s, StatisticsRows<FOLDS> rows, u32 number) {
        count = (float)number;
#pragma unroll 1
        for (u32 row = 0; row < number; row += STATISTICS_UNROLL) {
            const u32 left = number - row;
            uint4 v[STATISTICS_UNROLL];
#pragma unroll
            for (u32 i = 0; i < STATISTICS_UNROLL; i++)
                if (i < left)
                    v[i] = rows.next(s);
            if (row == 0)
                start(v, left >= 3);
#pragma unroll
            for (u32 i = 0; i < STATISTICS_UNROLL; i++)
                if (i < left)
                    take(v[i]);
        }
    }
    // base(i): the value that column i's mean is to be a difference from.
    template <class Base> __device__ __forceinline__ void finish(Base base) {
        const float inverse = __frcp_rn(count);
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            const float sum = mean[i], part = __fmul_rn(sum, inverse);
            mean[i] = __fadd_rn(__fsub_rn(pivot[i], base(i)), part);
            squares[i] = moments_not_negative(__fmaf_rn(-sum, part, squares[i]));
        }
    }
    __device__ __forceinline__ void clear() {
        count = 0.0f;
#pragma unroll
        for (int i = 0; i < VALUES; i++)
            mean[i] = squares[i] = 0.0f;
    }
};

// ---- the first values of channels ----

// Those of a vector's columns, packed. By the row's first vectors themselves where they have the channels in order.
template <comet_dtype D>
__device__ __forceinline__ uint4 first_values(const NormStatisticsArgs &args, const StatisticsPlace &p) {
    const NormStatisticsShape &s = args.shape;
    if (s.inner == 1 && s.copies == 1)
        return __ldg((const uint4 *)args.x + p.vector);
    const u32 value = p.vector * vector_values<D>, map = value / s.inner;
    u32 rest = value - map * s.inner, channel = map % s.channels, w[4];
#pragma unroll
    for (int i = 0; i < vector_values<D>; i++) {
        put_pattern<D>(w, i, __ldg((const pattern_of<D> *)args.x + channel * s.channel_stride));
        if (++rest == s.inner) {
            rest = 0;
            channel = channel + 1 == s.channels ? 0 : channel + 1;
        }
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

// All that a thread reads.
template <comet_dtype D, bool MAPS>
__device__ __forceinline__ void walk_down(const NormStatisticsArgs &args, StatisticsColumns<D> &columns) {
    const NormStatisticsShape &s = args.shape;
    const StatisticsPlace place(s, thread_number()); // asked for again behind the rows: registers are short meanwhile
    const u32 row = blockIdx.y * s.down + place.down, rows = s.rounds + (row < s.rest + place.extra_row);
    columns.clear();
    if (!place.has_column || rows == 0)
        return;
    const uint4 first = first_values<D>(args, place);
    columns.walk(s, StatisticsRows<MAPS>(args, place, row), rows);
    const u32 w[4] = {first.x, first.y, first.z, first.w};
    columns.finish([&](int i) { return value_in<D>(w, i); });
}

// ---- from threads to the block ----

// The columns of all threads below each other, to the first.
template <comet_dtype D>
__device__ __forceinline__ void add_down(const NormStatisticsShape &s, const StatisticsPlace &p, DownShared &shared,
                                         StatisticsColumns<D> &columns) {
    constexpr int VALUES = vector_values<D>;
    for (u32 count = s.down, half; count > 1; count = half) {
        half = (count + 1) / 2;
        const u32 slot = (p.down >= half ? p.down - half : p.down) * s.width + p.across;
        if (p.down >= half && p.down < count) {
            shared.counts[slot] = columns.count;
#pragma unroll
            for (int i = 0; i < VALUES; i++)
                shared.values[i][slot] = make_float2(columns.mean[i], columns.squares[i]);
        }
        __syncthreads();
        if (p.down + half < count) {
            const MomentsShare share(columns.count, shared.counts[slot]);
#pragma unroll
            for (int i = 0; i < VALUES; i++) {
                const float2 other = shared.values[i][slot];
                share.merge(columns.mean[i], columns.squares[i], other.x, other.y);
            }
            columns.count = share.count;
        }
        __syncthreads();
    }
}

__device__ __forceinline__ float2 *partial_of(const NormStatisticsArgs &args, u32 chunk, u32 map) {
    const NormStatisticsShape &s = args.shape;
    return args.partial + ((u64)chunk * (s.channels * s.copies) + map) * s.entries;
}

// Small maps: the columns as they are.
template <comet_dtype D>
__device__ __forceinline__ void put_columns(const NormStatisticsArgs &args, const StatisticsPlace &p,
                                            const StatisticsColumns<D> &columns) {
    if (p.down != 0 || !p.has_column)
        return;
    float4 *to = (float4 *)(partial_of(args, blockIdx.y, 0) + p.vector * vector_values<D>);
#pragma unroll
    for (int i = 0; i < vector_values<D>; i += 2)
        to[i / 2] = make_float4(columns.mean[i], columns.squares[i], columns.mean[i + 1], columns.squares[i + 1]);
}

// Values [from, to) of a vector, which have the same count.
template <comet_dtype D>
__device__ __forceinline__ float2 part_of(const StatisticsColumns<D> &columns, u32 from, u32 to) {
    MomentsRun run;
#pragma unroll
    for (u32 i = 0; i < vector_values<D>; i++)
        if (from <= i && i < to)
            run.add(columns.count, columns.mean[i], columns.squares[i]);
    const Moments m = run.moments();
    return make_float2(m.mean, m.squares);
}

// The maps that a block has seen, or its parts of them: several threads each, then a tree.
template <comet_dtype D>
__device__ __forceinline__ void put_maps(const NormStatisticsArgs &args, const StatisticsPlace &p, MapsShared &shared,
                                         const StatisticsColumns<D> &columns) {
    constexpr u32 VALUES = vector_values<D>;
    const NormStatisticsShape &s = args.shape;
    // counted in values, from the start of the map that the block starts in
    const u32 offset = p.piece * s.width * VALUES, first_map = offset / s.inner, begin = offset - first_map * s.inner;
    const u32 vectors = min(min(s.width, s.group - p.piece * s.width),
                            s.length - p.group * s.group - p.piece * s.width); // the block's
    const u32 end = begin + vectors * VALUES, maps = (end + s.inner - 1) / s.inner;
    if (p.down == 0 && p.has_column) {
        const u32 at = begin + p.across * VALUES, split = s.inner - at % s.inner;
        shared.parts[p.across][0] = part_of<D>(columns, 0, split);
        shared.parts[p.across][1] = part_of<D>(columns, split, VALUES);
        shared.counts[p.across] = columns.count;
    }
    __syncthreads();
    const u32 each = STATISTICS_THREADS / maps, map = threadIdx.x / each, index = threadIdx.x - map * each;
    MomentsRun run;
    if (map < maps) {
        const u32 from = max(map * s.inner, begin) - begin, to = min((map + 1) * s.inner, end) - begin;
        for (u32 v = from / VALUES + index; v * VALUES < to; v += each) {
            const u32 low = max(from, v * VALUES), high = min(to, (v + 1) * VALUES);
            const float2 part = shared.parts[v][low != v * VALUES];
            run.add(__fmul_rn(shared.counts[v], (float)(high - low)), part.x, part.y);
        }
    }
    shared.tree[threadIdx.x] = run.moments();
    moments_tree(shared.tree, threadIdx.x, map < maps ? index : each, each, 1);
    if (index == 0 && map < maps) {
        const Moments m = shared.tree[threadIdx.x];
        partial_of(args, blockIdx.y, p.group * s.maps_a_group + first_map + map)[p.piece] =
            make_float2(m.mean, m.squares);
    }
}

// ---- from blocks to channels ----

// Whether this block is the last of those with the same counter; it can see what all of them wrote then.
__device__ __forceinline__ bool is_last_block(const NormStatisticsArgs &args, u32 counter, u32 *shared) {
    const NormStatisticsShape &s = args.shape;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence(); // what all threads of the block wrote
        const u32 groups = min(s.groups_a_counter, s.groups - counter * s.groups_a_counter);
        *shared = atomicAdd(args.counters + counter, 1u) + 1 == groups * s.pieces * s.chunks;
        if (*shared)
            args.counters[counter] = 0;
        __threadfence();
    }
    __syncthreads();
    const bool is_last = *shared;
    __syncthreads();
    return is_last;
}

// Values in a row that entry `entry` of a map stands for: [from, to), none if it is empty.
struct StatisticsEntry {
    u32 values, in_extra; // in_extra: of these, in the row behind the whole ones

    template <comet_dtype D, bool MAPS>
    static __device__ __forceinline__ StatisticsEntry of(const NormStatisticsShape &s, u32 map, u32 entry) {
        u32 from = map * s.inner + entry, to = from + 1;
        if (MAPS) {
            from = map * s.inner, to = from + s.inner;
            if (s.pieces > 1) {
                const u32 group = (map / s.maps_a_group) * s.group, start = group + entry * s.width;
                from = max(from, start * vector_values<D>);
                to = min(to, min(start + s.width, group + s.group) * vector_values<D>);
            }
        }
        const u32 extra = s.extra * vector_values<D>;
        if (to <= from)
            return {0, 0};
        return {to - from, extra <= from ? 0 : min(to, extra) - from};
    }
};

// Rows of a chunk.
__device__ __forceinline__ u32 rows_of(const NormStatisticsShape &s, u32 chunk, u32 extra_row) {
    const u32 before = chunk * s.down, last = s.rest + extra_row;
    return s.rounds * s.down + (last <= before ? 0 : min(last - before, s.down));
}

// Moments of a channel: those of entries first, first + step .. of it, and of chunks likewise.
template <comet_dtype D, bool MAPS>
__device__ __forceinline__ Moments channel_moments(const NormStatisticsArgs &args, u32 channel, u32 thread,
                                                   u32 threads) {
    const NormStatisticsShape &s = args.shape;
    const u32 all = s.copies * s.entries, a_step = min(all, threads), step = threads / a_step;
    const u32 row = thread / a_step, first = thread - row * a_step;
    MomentsRun run;
    for (u32 e = first; e < all && row < step; e += a_step) {
        const u32 copy = e / s.entries, entry = e - copy * s.entries;
        const u32 map = copy * s.channels + channel;
        const StatisticsEntry in = StatisticsEntry::of<D, MAPS>(s, map, entry);
        const float2 *from = partial_of(args, 0, map) + entry;
        const u64 a_chunk = (u64)(s.channels * s.copies) * s.entries;
        if (in.values == 0)
            continue;
#pragma unroll 1
        for (u32 chunk = row; chunk < s.chunks; chunk += FINISH_UNROLL * step) {
            float2 part[FINISH_UNROLL];
#pragma unroll
            for (u32 i = 0; i < FINISH_UNROLL; i++)
                if (chunk + i * step < s.chunks)
                    part[i] = __ldcg(from + (chunk + i * step) * a_chunk);
#pragma unroll
            for (u32 i = 0; i < FINISH_UNROLL; i++)
                if (chunk + i * step < s.chunks) {
                    const float whole = (float)rows_of(s, chunk + i * step, 0) * (float)(in.values - in.in_extra);
                    const float longer = (float)rows_of(s, chunk + i * step, 1) * (float)in.in_extra;
                    run.add(__fadd_rn(whole, longer), part[i].x, part[i].y);
                }
        }
    }
    return run.moments();
}

// The values behind the last whole vector.
template <comet_dtype D>
__device__ __forceinline__ void add_rest(const NormStatisticsArgs &args, u32 channel, float base, Moments &m) {
    const NormStatisticsShape &s = args.shape;
    const u64 first = s.vectors * vector_values<D>;
    for (u32 i = 0; i < s.behind; i++)
        if ((s.extra * vector_values<D> + i) / s.inner % s.channels == channel)
            m = moments_of_both(m, Moments{1.0f, __fsub_rn(load_value<D>(args.x, first + i), base), 0.0f});
}

// What a channel's numbers are made of beside its moments. It is asked for before they are known: one wait for all.
struct StatisticsChannel {
    float base, running_mean, running_variance, gamma, beta; // base: what its mean is a difference from

    template <comet_dtype D> __device__ __forceinline__ void load(const NormStatisticsArgs &args, u32 c) {
        base = load_value<D>(args.x, c * args.shape.channel_stride);
        running_mean = args.running_mean ? args.running_mean[c] : 0.0f;
        running_variance = args.running_variance ? args.running_variance[c] : 0.0f;
        gamma = args.prepare.shift ? args.prepare.gamma[c] : 0.0f;
        beta = args.prepare.shift ? args.prepare.beta[c] : 0.0f;
    }
};

__device__ __forceinline__ float running_of(double momentum, float before, double value) {
    const double kept = __dmul_rn(__dsub_rn(1.0, momentum), (double)before);
    return (float)__dadd_rn(kept, __dmul_rn(momentum, value));
}

__device__ __forceinline__ void put_channel(const NormStatisticsArgs &args, u32 c, const StatisticsChannel &from,
                                            const Moments &m) {
    const double mean = __dadd_rn((double)from.base, (double)m.mean), squares = (double)m.squares;
    const double variance = __ddiv_rn(squares, args.count);
    const float rounded = (float)mean;
    const float inverse_std = (float)__ddiv_rn(1.0, __dsqrt_rn(__dadd_rn(variance, args.epsilon)));
    args.mean[c] = rounded;
    args.inverse_std[c] = inverse_std;
    if (args.running_mean)
        args.running_mean[c] = running_of(args.momentum, from.running_mean, mean);
    if (args.running_variance)
        args.running_variance[c] = running_of(args.momentum, from.running_variance,
                                              __ddiv_rn(squares, args.count > 1.0 ? args.count - 1.0 : 1.0));
    if (args.prepare.shift)
        norm_prepare(args.prepare, c, rounded, inverse_std, from.gamma, from.beta);
    if (c == 0 && args.batches)
        atomicAdd((unsigned long long *)args.batches, 1ull); // nobody waits for what was there
}

// All channels of a counter's groups.
template <comet_dtype D, bool MAPS>
__device__ __forceinline__ void put_channels(const NormStatisticsArgs &args, u32 counter, Moments *tree) {
    const NormStatisticsShape &s = args.shape;
    const u32 a_counter = s.groups_a_counter * s.maps_a_group, begin = counter * a_counter;
    const u32 end = begin + min(a_counter, s.channels - begin);
    const u32 abreast = min(end - begin, (u32)STATISTICS_THREADS), threads = STATISTICS_THREADS / abreast;
    const u32 index = threadIdx.x / abreast;
    for (u32 first = begin; first < end; first += abreast) {
        const u32 c = first + (threadIdx.x - index * abreast);
        const bool has_channel = c < end && index < threads;
        StatisticsChannel channel = {};
        if (has_channel && index == 0)
            channel.load<D>(args, c);
        if (has_channel)
            tree[threadIdx.x] = channel_moments<D, MAPS>(args, c, index, threads);
        moments_tree(tree, threadIdx.x, has_channel ? index : threads, threads, abreast);
        if (has_channel && index == 0) {
            Moments m = tree[threadIdx.x];
            add_rest<D>(args, c, channel.base, m);
            put_channel(args, c, channel, m);
        }
        __syncthreads(); // the tree has been read
    }
}

template <int DTYPE, bool MAPS>
__global__ void __launch_bounds__(STATISTICS_THREADS, 1)
    norm_statistics_kernel(const __grid_constant__ NormStatisticsArgs args) {
    constexpr comet_dtype D = (comet_dtype)DTYPE;
    __shared__ StatisticsShared shared;
    const NormStatisticsShape &s = args.shape;
    StatisticsColumns<D> columns;
    walk_down<D, MAPS>(args, columns);
    const StatisticsPlace place(s, thread_number());
    add_down<D>(s, place, shared.down, columns);
    if (MAPS)
        put_maps<D>(args, place, shared.maps, columns);
    else
        put_columns<D>(args, place, columns);
    const u32 counter = place.group / s.groups_a_counter;
    if (is_last_block(args, counter, &shared.is_last))
        put_channels<D, MAPS>(args, counter, shared.tree);
}

cudaError_t comet_norm_launch_statistics(comet_dtype dtype, const NormStatisticsArgs &args, cudaStream_t queue) {
    const NormStatisticsShape &s = args.shape;
    const dim3 blocks(s.groups * s.pieces, s.chunks);
    return with_dtype(dtype, [&](auto d) {
        return s.is_maps ? launch(norm_statistics_kernel<d.value, true>, blocks, STATISTICS_THREADS, queue, args)
                         : launch(norm_statistics_kernel<d.value, false>, blocks, STATISTICS_THREADS, queue, args);
    });
}
