// SPDX-License-Identifier: Apache-2.0
// Compressing with eb and zvc: one warp a tile, one block a group of eight tiles at a time, one launch a tensor.
//
// A block looks at its tiles, quantises and plans. It then claims space with one atomic addition, hides that addition's latency
// behind the packing of its bytes in shared memory, and writes them out. The last block to end adds up the statistics and
// writes header and result.
//
// A block goes over its groups twice. The first time it does those whose tiles are all as they should be: no padding, every value
// within reach of 8-bit codes. What is left it does afterwards, with code that can do everything; written into one loop, that
// would cost the common case its registers.
#ifndef COMET_CODEC_CUDA_EB_COMPRESS_CUH
#define COMET_CODEC_CUDA_EB_COMPRESS_CUH

#include "codec/cuda/eb_args.cuh"
#include "codec/cuda/tile_encode.cuh"
#include "codec/cuda/tile_survey.cuh"

// How the kernel quantises: rounding to nearest alone, or whatever the stream's flags say.
enum Quantise { QUANTISE_FAST, QUANTISE_ANY };

// Blocks on a multiprocessor.
enum { COMPRESS_FAST_BLOCKS = 4, COMPRESS_ANY_BLOCKS = 3 };

enum { ENTRY_LEFT = 1 << 17 }; // in place of an entry: the tile is for the second loop

struct TileStats {
    double sum_abs, sum_squares;
    u32 nonzero, positive, nonfinite;
    int least, most;
};

struct CompressShared {
    alignas(16) u8 out[GROUP_TILES * NARROW_SLOT];
    alignas(16) u32 planes[GROUP_TILES][256]; // before that, the exchange of codes; of exact tiles, a row
    alignas(16) u32 high[GROUP_TILES][256];   // of wide tiles, the planes from 8 on
    alignas(16) u32 columns[GROUP_TILES][64];
    TileStats stats[GROUP_TILES];
    quantiser q;
    u32 entry[GROUP_TILES]; // | 1 << 16: wide; or ENTRY_LEFT
    u64 offset;             // of the group's tiles from the table's end
    u64 start;
    u32 is_last;
};

// ---- a tile's values ----

// Calls visit(a, e, channel) for every value of a thread.
template <int REACH, class Visit>
__device__ __forceinline__ void for_channels(const Geometry &g, const ChannelMap &map, u32 tile, const TileStart &s,
                                             u32 lane, Visit visit) {
    constexpr int WIDTH = reach_width(REACH);
    const TileChannels<REACH> channels(map, g, s, lane);
    for_pieces<REACH>(g, tile, s, lane, [&](int a, int e, u64 index, u64) {
        u32 channel = channels.of(e, index);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            bool same = i == 0 || reach_is_row(REACH); // a piece of a row lies in one map
            visit(a, e + i, same ? channel : channels.of(e + i, index + i));
        }
    });
}

// The patterns as they are stored exactly: those of the tensor, or of fp32 where a grid scales and shifts them.
template <int REACH, int DTYPE>
__device__ __forceinline__ void scale_patterns(const CompressArgs &args, u32 tile, const TileStart &s, u32 lane,
                                               u32 real, u32 (&p)[8][4]) {
    const GridTables &t = args.grid;
    for_channels<REACH>(args.geometry, args.channel_map, tile, s, lane, [&](int a, int e, u32 channel) {
        float x = exact_float_of_pattern<DTYPE>(p[a][e]);
        bool is_real = real >> (4 * a + e) & 1;
        if (is_real && (t.scale || t.shift))
            x = scaled(x, t.scale ? __ldg(t.scale + channel) : 1.0f, t.shift ? __ldg(t.shift + channel) : 0.0f);
        p[a][e] = is_real ? __float_as_uint(x) : 0;
    });
}

// ---- quantising ----

// A thread's biased codes, byte k of word `unit` e, into the exchange; then this lane's words u[m].
template <int REACH> __device__ __forceinline__ void exchange_codes(u32 (&w)[8], u32 lane, u32 *exchange, u32 (&u)[8]) {
    uint4 *units = (uint4 *)exchange;
    if (REACH == REACH_LAST1) {
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = w[m];
        return;
    }
    if (REACH == REACH_FLAT) { // w[j]: four columns of one row
#pragma unroll
        for (int j = 0; j < 8; j++)
            exchange[(32 * j + lane) ^ ((j & 1) << 2)] = w[j];
        __syncwarp();
        uint4 a = units[unit_place(2 * lane)], b = units[unit_place(2 * lane + 1)]; // rows 0 to 3, both halves of each
        u[0] = a.x, u[1] = a.z, u[2] = b.x, u[3] = b.z, u[4] = a.y, u[5] = a.w, u[6] = b.y, u[7] = b.w;
        transpose_bytes(u[0], u[1], u[2], u[3]);
        transpose_bytes(u[4], u[5], u[6], u[7]);
    } else { // w[4 i + e]: four rows of one column
#pragma unroll
        for (int i = 0; i < 2; i++)
            units[REACH == REACH_LAST4 ? lane + 32 * i : unit_place(lane + 32 * i)] =
                make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
        __syncwarp();
        if (REACH == REACH_LAST4) { // [m][channel]
#pragma unroll
            for (int m = 0; m < 8; m++)
                u[m] = exchange[32 * m + lane];
        } else {
            uint4 a = units[unit_place(2 * lane)], b = units[unit_place(2 * lane + 1)];
            u[0] = a.x, u[1] = a.y, u[2] = a.z, u[3] = a.w, u[4] = b.x, u[5] = b.y, u[6] = b.z, u[7] = b.w;
        }
    }
    __syncwarp();
}

// Packs the codes `code(a, e)` of a thread's values into words for the exchange; `pack` takes four of them.
template <int REACH, class Pack> __device__ __forceinline__ void pack_words(u32 (&w)[8], Pack pack) {
    if (REACH == REACH_FLAT || REACH == REACH_LAST1) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[j] = pack(j, 0, j, 1, j, 2, j, 3);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                w[4 * i + e] = pack(4 * i, e, 4 * i + 1, e, 4 * i + 2, e, 4 * i + 3, e);
    }
}

template <int REACH>
__device__ __forceinline__ void codes_nearest(const float (&v)[8][4], float inverse, u32 lane, u32 *exchange,
                                              u32 (&u)[8]) {
    u32 w[8];
    pack_words<REACH>(w, [&](int a0, int e0, int a1, int e1, int a2, int e2, int a3, int e3) {
        return pack_nearest(v[a0][e0], v[a1][e1], v[a2][e2], v[a3][e3], inverse);
    });
    exchange_codes<REACH>(w, lane, exchange, u);
}

// Noise of a thread's values for stochastic rounding: made where a lane owns all eight columns, moved through `exchange`.
template <int REACH>
__device__ __forceinline__ void tile_noise(u32 tile, u64 seed, bool wide, u32 lane, u32 *exchange,
                                           float (&noise)[8][4]) {
#pragma unroll
    for (int i = 0; i < 32; i++) // filled in two rows at a time, and never left unset
        noise[i / 4][i % 4] = 0.0f;
#pragma unroll 1
    for (u32 half = 0; half < 2; half++) { // two rows at a time
#pragma unroll
        for (u32 k = 0; k < 2; k++)
            ((uint4 *)exchange)[32 * k + lane] = philox(make_uint4(tile, 0, 4 * lane + 2 * half + k, 0), seed);
        __syncwarp();
#pragma unroll
        for (int a = 0; a < 8; a++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 i = tile_index<REACH>(lane, a, e);
                if (i >> 9 == half)
                    noise[a][e] = noise_of(((const u16 *)exchange)[i & 511], wide);
            }
        __syncwarp();
    }
}

// The code of every value in any mode, as integers; 0 for padding.
template <int REACH>
__device__ __forceinline__ void codes_any(const CompressArgs &args, const quantiser_class &c, const float (&v)[8][4],
                                          u32 tile, const TileStart &s, u32 lane, u32 real, u32 *exchange,
                                          int (&q)[8][4]) {
    float noise[8][4];
    if (c.mode == QUANTISE_STOCHASTIC)
        tile_noise<REACH>(tile, args.seed, c.wide, lane, exchange, noise);
    if (c.mode == QUANTISE_GRID) {
        for_channels<REACH>(args.geometry, args.channel_map, tile, s, lane, [&](int a, int e, u32 channel) {
            bool is_real = real >> (4 * a + e) & 1;
            channel = is_real ? channel : 0;
            grid_channel g = quantiser_grid(&c, __ldg(args.grid.threshold + channel),
                                            args.grid.slope ? __ldg(args.grid.slope + channel) : 1.0f);
            q[a][e] = is_real ? code_grid(v[a][e], c.inverse, g) : 0;
        });
        return;
    }
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x = v[a][e];
            q[a][e] = c.mode == QUANTISE_NEAREST      ? code_nearest(x, c.inverse)
                      : c.mode == QUANTISE_STOCHASTIC ? code_stochastic(x, c.inverse, noise[a][e])
                      : c.mode == QUANTISE_KEEP_RISE  ? code_keep_rise(x, c.inverse)
                                                      : code_keep_tread(x, c.inverse);
        }
}

// With a grid, how many of the finite values lie on the side where a ReLU is on.
template <int REACH>
__device__ __forceinline__ u32 count_on(const CompressArgs &args, const float (&v)[8][4], u32 tile, const TileStart &s,
                                        u32 lane, u32 real) {
    u32 on = 0;
    for_channels<REACH>(args.geometry, args.channel_map, tile, s, lane, [&](int a, int e, u32 channel) {
        float y = v[a][e];
        if (!(real >> (4 * a + e) & 1) || (__float_as_uint(y) & 0x7fffffffu) > LARGEST_FINITE)
            return;
        float threshold = __ldg(args.grid.threshold + channel);
        float slope = args.grid.slope ? __ldg(args.grid.slope + channel) : 1.0f;
        if (threshold != threshold)
            on += y > 0.0f;
        else
            on += slope < 0.0f ? y < threshold : y > threshold;
    });
    return __reduce_add_sync(ALL_LANES, on);
}

// ---- planning a tile ----

// A tile outside the tensor, or one without values.
__device__ __forceinline__ void clear_stats(TileStats &t) {
    t.sum_abs = t.sum_squares = 0.0;
    t.nonzero = t.positive = t.nonfinite = 0;
    t.least = 0x7fffffff;
    t.most = -0x7fffffff;
}

__device__ __forceinline__ void keep_stats(const Survey &s, TileStats &t) {
    t.sum_abs = s.sum_abs, t.sum_squares = s.sum_squares;
    t.nonzero = s.nonzero, t.positive = s.positive, t.nonfinite = s.nonfinite;
    t.least = s.least, t.most = s.most;
}

__device__ __forceinline__ u32 class_of(const quantiser &q, u32 magnitude) {
    u32 c = 0;
    while (c < QUANTISER_CLASSES && (q.classes[c].reach == 0 || magnitude > q.classes[c].reach))
        c++;
    return c;
}

// Loads the tile as it is stored exactly.
template <int REACH, int DTYPE, int QUANT>
__device__ __forceinline__ void load_exact(const CompressArgs &args, u32 tile, const TileStart &s, u32 lane,
                                           u32 (&p)[8][4], u32 &real) {
    load_patterns<REACH, DTYPE>(args.x, args.geometry, tile, s, lane, p, real);
    if (QUANT == QUANTISE_ANY && (args.flags & STREAM_GRID))
        scale_patterns<REACH, DTYPE>(args, tile, s, lane, real, p);
}

// The thread's values as the quantiser sees them.
template <int REACH, int DTYPE, int QUANT>
__device__ __forceinline__ void values_of(const CompressArgs &args, u32 tile, const TileStart &s, u32 lane,
                                          u32 (&p)[8][4], u32 real, float (&v)[8][4]) {
    const bool has_grid = QUANT == QUANTISE_ANY && (args.flags & STREAM_GRID);
    if (has_grid)
        scale_patterns<REACH, DTYPE>(args, tile, s, lane, real, p);
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            v[a][e] = has_grid ? __uint_as_float(p[a][e]) : float_of_pattern<DTYPE>(p[a][e]);
}

// Quantises a tile to narrow codes and plans it.
template <int REACH, int QUANT, bool PADDED>
__device__ __forceinline__ void plan_codes(const CompressArgs &args, CompressShared &shared, const quantiser_class &c,
                                           u32 class_index, const float (&v)[8][4], u32 tile, const TileStart &s,
                                           u32 lane, u32 warp, u32 real, TilePlan &plan) {
    u32 *exchange = shared.planes[warp], u[8];
    if (QUANT == QUANTISE_FAST || c.mode == QUANTISE_NEAREST) {
        codes_nearest<REACH>(v, c.inverse, lane, exchange, u);
    } else {
        int q[8][4];
        u32 w[8];
        codes_any<REACH>(args, c, v, tile, s, lane, real, exchange, q);
        pack_words<REACH>(w, [&](int a0, int e0, int a1, int e1, int a2, int e2, int a3, int e3) {
            return pack_codes(q[a0][e0], q[a1][e1], q[a2][e2], q[a3][e3]);
        });
        exchange_codes<REACH>(w, lane, exchange, u);
    }
    plan_narrow<REACH, PADDED>(args.geometry, s, lane, u, class_index, exchange, shared.columns[warp], plan);
}

// The same with codes of 16 bits.
template <int REACH, int QUANT>
__device__ __forceinline__ void
plan_wide_codes(const CompressArgs &args, CompressShared &shared, const quantiser_class &c, u32 class_index,
                const float (&v)[8][4], u32 tile, const TileStart &s, u32 lane, u32 warp, u32 real, TilePlan &plan) {
    int q[8][4];
    if (QUANT == QUANTISE_FAST)
#pragma unroll
        for (int i = 0; i < 32; i++)
            q[i / 4][i % 4] = code_nearest(v[i / 4][i % 4], c.inverse);
    else
        codes_any<REACH>(args, c, v, tile, s, lane, real, shared.planes[warp], q);
    WideStore store = {shared.planes[warp], shared.high[warp]};
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            put_wide_code(store, tile_index<REACH>(lane, a, e), q[a][e]);
    plan_wide<REACH>(args.geometry, tile, s, lane, class_index, store, shared.columns[warp], plan);
}

template <int REACH, int DTYPE, int QUANT>
__device__ __forceinline__ u32 plan_exact(const CompressArgs &args, u32 tile, const TileStart &s, u32 lane) {
    u32 p[8][4], real, marked = 0;
    load_exact<REACH, DTYPE, QUANT>(args, tile, s, lane, p, real);
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            marked += p[a][e] != 0;
    u32 both = __reduce_add_sync(ALL_LANES, marked | (u32)__popc(real) << 16);
    return exact_entry(both & 0xffff, both >> 16, args.dtype == COMET_F32 ? 4 : 2, !(args.flags & STREAM_GRID));
}

// ---- a group ----

__device__ __forceinline__ u32 totals_most(int ordered_value) {
    return (u32)ordered_value ^ 0x80000000u; // -> unsigned, same order; no finite value gives 0
}
__device__ __forceinline__ u32 totals_least(int ordered_value) {
    return ~totals_most(ordered_value);
}

// The group's statistics to the totals and its sums to the workspace. By warp 0.
__device__ __forceinline__ void publish_stats(const CompressShared &shared, Workspace *workspace, u32 group, u32 lane) {
    const TileStats &t = shared.stats[lane & 7];
    double a = t.sum_abs, b = t.sum_squares;
#pragma unroll
    for (int d = 4; d; d /= 2) { // tile i gets tile i + d
        a = __dadd_rn(a, __shfl_xor_sync(ALL_LANES, a, d));
        b = __dadd_rn(b, __shfl_xor_sync(ALL_LANES, b, d));
    }
    u32 once = lane < GROUP_TILES ? 1 : 0;
    u32 nonzero = __reduce_add_sync(ALL_LANES, once * t.nonzero),
        positive = __reduce_add_sync(ALL_LANES, once * t.positive),
        nonfinite = __reduce_add_sync(ALL_LANES, once * t.nonfinite);
    int least = __reduce_min_sync(ALL_LANES, t.least), most = __reduce_max_sync(ALL_LANES, t.most);
    if (lane != 0)
        return;
    workspace->sums[group] = make_double2(a, b);
    Totals *totals = &workspace->totals;
    if (nonzero)
        atomicAdd(&totals->nonzero, (unsigned long long)nonzero);
    if (positive)
        atomicAdd(&totals->positive, (unsigned long long)positive);
    if (nonfinite)
        atomicAdd(&totals->nonfinite, (unsigned long long)nonfinite);
    if (least <= most) {
        atomicMax(&totals->least, totals_least(least));
        atomicMax(&totals->most, totals_most(most));
    }
}

// ---- the end of a call ----

// Where groups may lie: behind header and table, at multiples of 16 from the stream's start.
__device__ __forceinline__ u64 payload_start(const CompressArgs &args) {
    return (STREAM_HEADER_BYTES + GROUP_BYTES * args.groups + 15) / 16 * 16;
}

// Sums over all groups: group i to accumulator i mod 256, then pairs. By the whole block; thread 0 has the result.
__device__ __forceinline__ double2 sum_groups(const Workspace *workspace, u64 groups, double2 *scratch) {
    double a = 0.0, b = 0.0;
#pragma unroll 4
    for (u64 i = threadIdx.x; i < groups; i += BLOCK_THREADS) {
        double2 s = __ldcg(&workspace->sums[i]);
        a = __dadd_rn(a, s.x);
        b = __dadd_rn(b, s.y);
    }
    scratch[threadIdx.x] = make_double2(a, b);
    __syncthreads();
    for (u32 half = BLOCK_THREADS / 2; half; half /= 2) {
        if (threadIdx.x < half) {
            double2 x = scratch[threadIdx.x], y = scratch[threadIdx.x + half];
            scratch[threadIdx.x] = make_double2(__dadd_rn(x.x, y.x), __dadd_rn(x.y, y.y));
        }
        __syncthreads();
    }
    return scratch[0];
}

// Takes the totals out, leaving zeros. By one thread.
__device__ __forceinline__ void take_stats(Totals *t, u64 count, double2 sums, comet_codec_stats *stats) {
    u32 least = atomicExch(&t->least, 0u), most = atomicExch(&t->most, 0u);
    stats->count = (int64_t)count;
    stats->nonzero = (int64_t)atomicExch(&t->nonzero, 0ull);
    stats->positive = (int64_t)atomicExch(&t->positive, 0ull);
    stats->nonfinite = (int64_t)atomicExch(&t->nonfinite, 0ull);
    stats->min = least ? __fadd_rn(unordered((int)(~least ^ 0x80000000u)), 0.0f) : 0.0f; // + 0: no -0
    stats->max = most ? __fadd_rn(unordered((int)(most ^ 0x80000000u)), 0.0f) : 0.0f;
    stats->sum_abs = sums.x;
    stats->sum_squares = sums.y;
}

// Header and result. By the last block, when all others have ended.
__device__ __forceinline__ void finish(const CompressArgs &args, CompressShared &shared) {
    double2 sums = sum_groups(args.workspace, args.groups, (double2 *)shared.out);
    Totals *totals = &args.workspace->totals;
    if (threadIdx.x == 0)
        shared.offset = atomicExch(&totals->claimed, 0ull);
    __syncthreads();
    const u64 bytes = payload_start(args) + shared.offset;
    const bool fits = shared.start % 256 == 0 && shared.start <= args.capacity && bytes <= args.capacity - shared.start;
    if (threadIdx.x == 0) {
        comet_cuda_result r;
        memset(&r, 0, sizeof r);
        r.codec.bytes = bytes;
        r.codec.bound = (double)shared.q.bound;
        r.codec.tiles = (int64_t)args.geometry.tiles;
        r.codec.tiles_exact = (int64_t)atomicExch(&totals->tiles_exact, 0ull);
        r.codec.tiles_wide = (int64_t)atomicExch(&totals->tiles_wide, 0ull);
        take_stats(totals, args.count, sums, &r.codec.stats);
        r.start = shared.start;
        r.end = fits ? (shared.start + bytes + 255) / 256 * 256 : shared.start;
        r.status = fits ? COMET_OK : COMET_ERROR_CAPACITY;
        *args.result = r;
    }
    if (fits && threadIdx.x < STREAM_HEADER_BYTES / 4) {
        u32 i = threadIdx.x, word = args.header.words[i];
        word = i == CUDA_HEADER_WORD_BOUND       ? __float_as_uint(shared.q.bound)
               : i == CUDA_HEADER_WORD_BYTES     ? (u32)bytes
               : i == CUDA_HEADER_WORD_BYTES + 1 ? (u32)(bytes >> 32)
                                                 : word;
        ((u32 *)(args.base + shared.start))[i] = word;
    }
}

// Whether this block is the last one to come here; everything the others wrote before is visible then.
__device__ __forceinline__ bool is_last_block(Totals *totals, CompressShared &shared) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        shared.is_last = atomicAdd(&totals->done, 1u) == gridDim.x - 1;
        if (shared.is_last) {
            totals->done = 0;
            __threadfence();
        }
    }
    __syncthreads();
    return shared.is_last;
}

// ---- writing a group ----

// Copies a narrow tile from shared memory to any address.
__device__ __forceinline__ void copy_tile(const u8 *from, u32 bytes, u8 *to, u32 lane) {
    u32 head = (u32)(4 - ((u64)to & 3)) & 3; // to the first aligned word
    head = min(head, bytes);
    if (lane < head)
        to[lane] = from[lane];
    u32 words = (bytes - head) / 4, done = head + 4 * words;
    for (u32 i = lane; i < words; i += 32) { // from is 4-byte aligned
        u32 a = *(const u32 *)(from + 4 * i), b = *(const u32 *)(from + 4 * i + 4);
        *(u32 *)(to + head + 4 * i) = __funnelshift_r(a, b, 8 * head);
    }
    if (lane < bytes - done)
        to[done + lane] = from[done + lane];
}

template <int REACH, int DTYPE, int QUANT>
__device__ __forceinline__ void write_special(const CompressArgs &args, CompressShared &shared, const TilePlan &plan,
                                              u32 tile, u32 lane, u32 warp, u8 *to) {
    u32 kind = plan.entry >> ENTRY_KIND_SHIFT;
    if (kind == KIND_CODES && plan.wide) {
        WideStore store = {shared.planes[warp], shared.high[warp]};
        write_wide<REACH>(plan, lane, store, shared.columns[warp], to);
    } else if (kind == KIND_CODES) {
        copy_tile(shared.out + warp * NARROW_SLOT, plan.entry & ENTRY_SIZE_MASK, to, lane);
    } else {
        u32 p[8][4], real;
        TileStart s = tile_start<REACH>(args.geometry, tile);
        load_exact<REACH, DTYPE, QUANT>(args, tile, s, lane, p, real);
        u32 value_bytes = args.dtype == COMET_F32 ? 4 : 2;
        write_exact<REACH>(p, real, lane, kind, value_bytes, shared.planes[warp], shared.columns[warp], to);
    }
}

// The group's row of the table. By warp 0.
__device__ __forceinline__ void write_table(u8 *table, u32 group, u64 offset, u32 entry, u32 lane) {
    u32 next = __shfl_down_sync(ALL_LANES, entry, 1);
    u32 *row = (u32 *)(table + GROUP_BYTES * (u64)group);
    if (lane < GROUP_TILES && lane % 2 == 0)
        row[2 + lane / 2] = (entry & 0xffff) | next << 16;
    if (lane < 2)
        row[lane] = (u32)(offset >> 32 * lane);
}

// ---- a group's tiles ----

// Looks on while a tensor is compressed: observe(tile, s, lane, v, real) gets every tile's values, scaled and shifted by a grid;
// some tiles come twice.
struct NoObserver {
    __device__ __forceinline__ void operator()(u32, const TileStart &, u32, const float (&)[8][4], u32) const {}
};

// A tile of a group whose tiles have no padding. False: it is not one for the first loop.
template <int REACH, int DTYPE, int QUANT, class Observer>
__device__ __forceinline__ bool compress_common(const CompressArgs &args, CompressShared &shared, u32 tile, u32 lane,
                                                u32 warp, TilePlan &plan, const Observer &observe) {
    const bool has_grid = QUANT == QUANTISE_ANY && (args.flags & STREAM_GRID);
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    u32 p[8][4];
    float v[8][4];
    load_inner<REACH, DTYPE>(args.x, args.geometry, tile, s, lane, p);
    values_of<REACH, DTYPE, QUANT>(args, tile, s, lane, p, ~0u, v);
    observe(tile, s, lane, v, ~0u);
    const Range range = range_of(v);
    const u32 magnitude = magnitude_of(range), class_index = class_of(shared.q, magnitude);
    if (!sums_fit_f32(magnitude) || class_index == QUANTISER_CLASSES || shared.q.classes[class_index].wide)
        return false;
    Survey survey;
    survey_plain<REACH>(v, range, survey);
    if (has_grid)
        survey.positive = count_on<REACH>(args, v, tile, s, lane, ~0u);
    if (lane == 0)
        keep_stats(survey, shared.stats[warp]);
    plan_codes<REACH, QUANT, false>(args, shared, shared.q.classes[class_index], class_index, v, tile, s, lane, warp,
                                    ~0u, plan);
    return true;
}

// Any tile.
template <int REACH, int DTYPE, int QUANT, class Observer>
__device__ __forceinline__ void compress_any(const CompressArgs &args, CompressShared &shared, u32 tile, u32 lane,
                                             u32 warp, TilePlan &plan, const Observer &observe) {
    const bool has_grid = QUANT == QUANTISE_ANY && (args.flags & STREAM_GRID);
    const TileStart s = tile_start<REACH>(args.geometry, tile);
    u32 p[8][4], real;
    float v[8][4];
    Survey survey;
    load_patterns<REACH, DTYPE>(args.x, args.geometry, tile, s, lane, p, real);
    values_of<REACH, DTYPE, QUANT>(args, tile, s, lane, p, real, v);
    observe(tile, s, lane, v, real);
    survey_careful<REACH>(v, real, survey);
    if (has_grid)
        survey.positive = count_on<REACH>(args, v, tile, s, lane, real);
    if (lane == 0)
        keep_stats(survey, shared.stats[warp]);
    const u32 class_index = class_of(shared.q, survey.magnitude), value_bytes = args.dtype == COMET_F32 ? 4 : 2;
    bool exact = class_index == QUANTISER_CLASSES;
    if (!exact) {
        const quantiser_class &c = shared.q.classes[class_index];
        if (c.wide)
            plan_wide_codes<REACH, QUANT>(args, shared, c, class_index, v, tile, s, lane, warp, real, plan);
        else
            plan_codes<REACH, QUANT, true>(args, shared, c, class_index, v, tile, s, lane, warp, real, plan);
        u32 count = __reduce_add_sync(ALL_LANES, (u32)__popc(real)); // a code tile must be smaller than the raw one
        exact = plan.entry != 0 && plan.entry >= count * value_bytes;
    }
    if (exact) {
        plan.wide = false;
        plan.entry = plan_exact<REACH, DTYPE, QUANT>(args, tile, s, lane);
    }
}

// What a block needs to know before it can quantise.
__device__ __forceinline__ void prepare(const CompressArgs &args, CompressShared &shared) {
    if (threadIdx.x == 0) {
        if (args.bound_is_known)
            shared.q = args.q;
        else
            quantiser_of(bound_of(args.bound, (comet_dtype)args.dtype), (comet_dtype)args.dtype, args.flags, &shared.q);
        shared.start = args.start ? *args.start : 0;
    }
    __syncthreads();
}

// The entries of a group's tiles, one in each of lanes 0 to 7; and what follows from them.
struct GroupPlan {
    u32 entry, bytes, room; // room: bytes, rounded up to units of 16
    u32 begin;              // of this warp's tile
};

__device__ __forceinline__ GroupPlan group_plan(const CompressShared &shared, u32 lane, u32 warp) {
    GroupPlan g;
    g.entry = shared.entry[lane & 7];
    u32 size = lane < GROUP_TILES ? g.entry & ENTRY_SIZE_MASK : 0;
    g.bytes = __reduce_add_sync(ALL_LANES, size);
    g.room = (g.bytes + 15) & ~15u;
    g.begin = __reduce_add_sync(ALL_LANES, lane < warp ? size : 0);
    return g;
}

// Where the group goes in the stream, from what was claimed; 0 if it does not fit.
__device__ __forceinline__ u64 place_group(const CompressArgs &args, const CompressShared &shared, u32 room) {
    u64 at = payload_start(args) + shared.offset;
    bool fits = shared.start % 256 == 0 && shared.start <= args.capacity && at + room <= args.capacity - shared.start;
    return fits ? at : 0;
}

// Claims space for a group of planned narrow tiles, packs them and writes them out. By all warps.
template <int REACH>
__device__ __forceinline__ void write_common(const CompressArgs &args, CompressShared &shared, u32 group, u32 lane,
                                             u32 warp, const TilePlan &plan, const GroupPlan &g) {
    unsigned long long claimed = 0;
    if (threadIdx.x == 0) // the answer is used after the columns are written
        claimed = atomicAdd(&args.workspace->totals.claimed, (unsigned long long)g.room);
    if (warp == 1)
        publish_stats(shared, args.workspace, group, lane);
    if (plan.entry)
        write_narrow<REACH>(plan, lane, shared.planes[warp], shared.columns[warp], shared.out, g.begin);
    if (threadIdx.x < g.room - g.bytes)
        shared.out[g.bytes + threadIdx.x] = 0;
    if (threadIdx.x == 0)
        shared.offset = claimed;
    __syncthreads();
    const u64 at = place_group(args, shared, g.room);
    if (at == 0)
        return;
    u8 *stream = args.base + shared.start;
    if (warp == 2)
        write_table(stream + STREAM_HEADER_BYTES, group, at - STREAM_HEADER_BYTES - GROUP_BYTES * args.groups, g.entry,
                    lane);
    for (u32 i = 16 * threadIdx.x; i < g.room; i += 16 * BLOCK_THREADS)
        *(uint4 *)(stream + at + i) = *(const uint4 *)(shared.out + i);
}

// The same for a group of any tiles.
template <int REACH, int DTYPE, int QUANT>
__device__ __forceinline__ void write_any(const CompressArgs &args, CompressShared &shared, u32 group, u32 lane,
                                          u32 warp, const TilePlan &plan, const GroupPlan &g) {
    Totals *totals = &args.workspace->totals;
    if (threadIdx.x == 0)
        shared.offset = atomicAdd(&totals->claimed, (unsigned long long)g.room);
    if (warp == 1)
        publish_stats(shared, args.workspace, group, lane);
    if (plan.entry && !plan.wide && plan.entry >> ENTRY_KIND_SHIFT == KIND_CODES)
        write_narrow<REACH>(plan, lane, shared.planes[warp], shared.columns[warp], shared.out, warp * NARROW_SLOT);
    u32 exact = __popc(__ballot_sync(ALL_LANES, lane < GROUP_TILES && (g.entry >> ENTRY_KIND_SHIFT & 3) != 0)),
        wide = __popc(__ballot_sync(ALL_LANES, lane < GROUP_TILES && (g.entry >> 16 & 1)));
    if (threadIdx.x == 0 && exact)
        atomicAdd(&totals->tiles_exact, (unsigned long long)exact);
    if (threadIdx.x == 0 && wide)
        atomicAdd(&totals->tiles_wide, (unsigned long long)wide);
    __syncthreads();
    const u64 at = place_group(args, shared, g.room);
    if (at == 0)
        return;
    u8 *stream = args.base + shared.start;
    if (warp == 2)
        write_table(stream + STREAM_HEADER_BYTES, group, at - STREAM_HEADER_BYTES - GROUP_BYTES * args.groups, g.entry,
                    lane);
    if (plan.entry)
        write_special<REACH, DTYPE, QUANT>(args, shared, plan, group * GROUP_TILES + warp, lane, warp,
                                           stream + at + g.begin);
    if (threadIdx.x < g.room - g.bytes)
        stream[at + g.bytes + threadIdx.x] = 0;
}

// The second loop, over the groups marked in `left`: a function of its own, so that it costs the first no registers.
template <int REACH, int DTYPE, int QUANT, class Observer>
__device__ __noinline__ void compress_rest(const CompressArgs &args, CompressShared &shared, u64 left,
                                           const Observer &observe) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Geometry &g = args.geometry;
    for (u32 group = blockIdx.x; left; group += gridDim.x, left >>= 1) {
        if (!(left & 1))
            continue;
        const u32 tile = group * GROUP_TILES + warp;
        TilePlan plan;
        plan.entry = 0;
        plan.wide = false;
        if (tile < g.tiles)
            compress_any<REACH, DTYPE, QUANT>(args, shared, tile, lane, warp, plan, observe);
        else if (lane == 0)
            clear_stats(shared.stats[warp]);
        if (lane == 0)
            shared.entry[warp] = plan.entry | (plan.wide ? 1u << 16 : 0);
        __syncthreads();
        write_any<REACH, DTYPE, QUANT>(args, shared, group, lane, warp, plan, group_plan(shared, lane, warp));
        __syncthreads(); // shared.out has been read
    }
}

template <int REACH, int DTYPE, int QUANT, class Observer>
__device__ __forceinline__ void compress_groups(const CompressArgs &args, CompressShared &shared,
                                                const Observer &observe) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, groups = (u32)args.groups;
    const Geometry &g = args.geometry;
    prepare(args, shared);
    u64 left = 0;
    u32 round = 0;
    for (u32 group = blockIdx.x; group < groups; group += gridDim.x, round++) {
        TilePlan plan;
        plan.entry = 0;
        plan.wide = false;
        const bool inner = group * GROUP_TILES + GROUP_TILES <= g.inner;
        bool common = inner && compress_common<REACH, DTYPE, QUANT>(args, shared, group * GROUP_TILES + warp, lane,
                                                                    warp, plan, observe);
        if (lane == 0)
            shared.entry[warp] = common ? plan.entry : (u32)ENTRY_LEFT;
        const u32 next = (group + gridDim.x) * GROUP_TILES;
        if (next + GROUP_TILES <= g.inner)
            prefetch_inner<REACH, DTYPE>(args.x, g, next + warp, lane);
        __syncthreads();
        const GroupPlan all = group_plan(shared, lane, warp);
        if (__any_sync(ALL_LANES, all.entry == ENTRY_LEFT)) {
            left |= 1ull << round;
            __syncthreads(); // the entries have been read
            continue;
        }
        write_common<REACH>(args, shared, group, lane, warp, plan, all);
    }
    if (left)
        compress_rest<REACH, DTYPE, QUANT>(args, shared, left, observe);
    if (is_last_block(&args.workspace->totals, shared))
        finish(args, shared);
}

// ---- statistics alone, for a relative bound ----

template <int REACH, int DTYPE>
__device__ __forceinline__ void survey_group(const CompressArgs &args, CompressShared &shared) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u32 group = blockIdx.x, tile = group * GROUP_TILES + warp; // an empty tensor has a block and no group
    const Geometry &g = args.geometry;
    if (tile < g.tiles) {
        u32 p[8][4], real;
        float v[8][4];
        const TileStart s = tile_start<REACH>(g, tile);
        load_patterns<REACH, DTYPE>(args.x, g, tile, s, lane, p, real);
        values_of<REACH, DTYPE, QUANTISE_ANY>(args, tile, s, lane, p, real, v);
        Survey survey;
        survey_careful<REACH>(v, real, survey);
        if (lane == 0)
            keep_stats(survey, shared.stats[warp]);
    } else if (lane == 0) {
        clear_stats(shared.stats[warp]);
    }
    __syncthreads();
    if (warp == 0)
        publish_stats(shared, args.workspace, group, lane);
    if (!is_last_block(&args.workspace->totals, shared))
        return;
    double2 sums = sum_groups(args.workspace, args.groups, (double2 *)shared.out);
    if (threadIdx.x == 0)
        take_stats(&args.workspace->totals, args.count, sums, &args.workspace->own);
}

// ---- kernels ----

template <int REACH, int DTYPE>
__global__ void __launch_bounds__(BLOCK_THREADS, 3) eb_survey_kernel(const __grid_constant__ CompressArgs args) {
    __shared__ CompressShared shared;
    survey_group<REACH, DTYPE>(args, shared);
}

template <int REACH, int DTYPE, int QUANT>
__global__ void __launch_bounds__(BLOCK_THREADS, QUANT == QUANTISE_FAST ? COMPRESS_FAST_BLOCKS : COMPRESS_ANY_BLOCKS)
    eb_compress_kernel(const __grid_constant__ CompressArgs args) {
    __shared__ CompressShared shared;
    compress_groups<REACH, DTYPE, QUANT>(args, shared, NoObserver());
}

#endif
