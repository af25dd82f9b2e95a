// SPDX-License-Identifier: Apache-2.0
// What a block of the compressor leaves in the workspace about its group, and what the last block makes of all of them.
//
// Every block adds its bytes and a 1 to one counter; the answer tells it where its group goes and whether it was the
// last to ask. That last one waits until all others have said that their records are written, adds those up in the
// order of docs/format.md, section 5, and writes header and result. (It waits for blocks that are already running: they
// asked before.)
#ifndef COMET_CODEC_CUDA_EB_RECORDS_CUH
#define COMET_CODEC_CUDA_EB_RECORDS_CUH

#include "codec/cuda/eb/eb_args.cuh"
#include "codec/cuda/tile/survey.cuh"

// Statistics of a tile, in shared memory.
struct TileStats {
    double sum_abs, sum_squares;
    uint2 counts; // non-zero | positive << 16; not finite
    int2 range;   // least, most
};

// A tile outside the tensor, or one without values.
__device__ __forceinline__ void clear_stats(TileStats &t) {
    t.sum_abs = t.sum_squares = 0.0;
    t.counts = make_uint2(0, 0);
    t.range = make_int2(0x7fffffff, -0x7fffffff);
}

// By the whole warp: lane 0 has all but sum_squares, lane SQUARES_LANE has that.
__device__ __forceinline__ void keep_stats(const Survey &s, u32 lane, TileStats &t) {
    if (lane == SQUARES_LANE)
        t.sum_squares = s.sum;
    if (lane == 0) {
        t.sum_abs = s.sum;
        t.counts = make_uint2(s.nonzero | s.positive << 16, s.nonfinite);
        t.range = make_int2(s.least, s.most);
    }
}

// ---- claiming ----

enum { CLAIM_UNIT = 16, CLAIM_COUNT_SHIFT = 36 };

// By one thread. The answer comes late: do something else before using it.
__device__ __forceinline__ unsigned long long claim_room(Totals *totals, u32 room) {
    return atomicAdd(&totals->claimed, 1ull << CLAIM_COUNT_SHIFT | room / CLAIM_UNIT);
}

// What the answer says: bytes, and groups, that were claimed before.
__device__ __forceinline__ u64 claimed_bytes(unsigned long long answer) {
    return (answer & ((1ull << CLAIM_COUNT_SHIFT) - 1)) * CLAIM_UNIT;
}
__device__ __forceinline__ u64 claimed_groups(unsigned long long answer) {
    return answer >> CLAIM_COUNT_SHIFT;
}

// ---- records ----

// Numbers as ordered() makes them, as unsigned ones in the same order of which none is 0; and in the opposite order.
__device__ __forceinline__ u32 totals_most(int ordered_value) {
    return (u32)ordered_value ^ 0x80000000u;
}
__device__ __forceinline__ u32 totals_least(int ordered_value) {
    return ~totals_most(ordered_value);
}

// A group's record: its sums, as the upper halves of fp64; non-zero | positive << 16; not
// finite | exact << 16 | wide << 24. At most 8,192 values and 8 tiles.

// A sum rounded to 21 significant bits, the upper half of an fp64, and back.
__device__ __forceinline__ u32 upper_half(double sum) {
    return (u32)(((u64)__double_as_longlong(sum) + 0x80000000u) >> 32);
}
__device__ __forceinline__ double sum_of(u32 half) {
    return __hiloint2double((int)half, 0);
}

// What the totals said of the range some time ago. Most groups need not tell that theirs is inside.
__device__ __forceinline__ uint2 range_so_far(const Totals *totals) {
    return make_uint2(__ldcg(&totals->least), __ldcg(&totals->most));
}

// Leaves the statistics of a group's tiles. By one warp.
__device__ __forceinline__ void write_record(const TileStats *stats, u32 exact, u32 wide, uint2 range_known,
                                             Totals *totals, uint4 *record, u32 lane) {
    const TileStats &t = stats[lane & 7];
    double a = t.sum_abs, b = t.sum_squares;
#pragma unroll
    for (int d = 4; d; d /= 2) { // tile i gets tile i + d
        a = __dadd_rn(a, __shfl_xor_sync(ALL_LANES, a, d));
        b = __dadd_rn(b, __shfl_xor_sync(ALL_LANES, b, d));
    }
    u32 once = lane < GROUP_TILES ? ~0u : 0;
    u32 both = __reduce_add_sync(ALL_LANES, once & t.counts.x),
        nonfinite = __reduce_add_sync(ALL_LANES, once & t.counts.y);
    int least = __reduce_min_sync(ALL_LANES, t.range.x), most = __reduce_max_sync(ALL_LANES, t.range.y);
    if (lane != 0)
        return;
    *record = make_uint4(upper_half(a), upper_half(b), both, nonfinite | exact << 16 | wide << 24);
    if (least <= most && totals_least(least) > range_known.x)
        atomicMax(&totals->least, totals_least(least));
    if (least <= most && totals_most(most) > range_known.y)
        atomicMax(&totals->most, totals_most(most));
}

// Says that what the calling thread wrote of its group can be read.
__device__ __forceinline__ void record_is_written(Totals *totals) {
    add_released(&totals->done, 1u);
}

// ---- the end of a call ----

// This code runs once a call, while everything else waits, and comes from memory that no cache holds: the shorter, the
// faster.

// What all records say together.
struct Summary {
    double sum_abs, sum_squares;
    u64 counts[5]; // non-zero, positive, not finite; tiles: exact, wide
};

struct SummaryScratch { // shared memory
    double2 sums[BLOCK_THREADS];
    u64 counts[BLOCK_THREADS / 32][5];
    Summary all;
};

// What a thread adds up.
struct RecordSum {
    double sum_abs, sum_squares;
    u64 nonzero, positive;
    u32 rare; // not 0: a record counts something else
};

// The records of groups threadIdx.x, + 256, ...: group i belongs to accumulator i mod 256.
__device__ __forceinline__ RecordSum add_records(const uint4 *records, u32 groups) {
    constexpr u32 BATCH = 7; // read at once
    RecordSum s = {};
#pragma unroll 1
    for (u32 done = 0; done < groups; done += BATCH * BLOCK_THREADS) {
        const u32 first = done + threadIdx.x;
        uint4 r[BATCH];
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            r[i] = make_uint4(0, 0, 0, 0);
            if (first + i * BLOCK_THREADS < groups)
                r[i] = __ldcg(records + first + i * BLOCK_THREADS);
        }
        __syncwarp(); // all are on their way before the first is used
        u32 nonzero = 0, positive = 0;
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            s.sum_abs = __dadd_rn(s.sum_abs, sum_of(r[i].x)), s.sum_squares = __dadd_rn(s.sum_squares, sum_of(r[i].y));
            nonzero += r[i].z & 0xffff, positive += r[i].z >> 16;
            s.rare |= r[i].w;
        }
        s.nonzero += nonzero, s.positive += positive;
    }
    return s;
}

// Over a warp, of numbers below 2^48.
__device__ __forceinline__ u64 sum_lanes(u64 v) {
    u64 low = __reduce_add_sync(ALL_LANES, (u32)v & 0xffffff), high = __reduce_add_sync(ALL_LANES, (u32)(v >> 24));
    return low + (high << 24);
}

// The counts that are mostly 0. By the whole block.
static __device__ __noinline__ void add_rare(const uint4 *records, u32 groups, SummaryScratch &scratch) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u64 n[3] = {};
#pragma unroll 1
    for (u32 i = threadIdx.x; i < groups; i += BLOCK_THREADS) {
        u32 w = __ldcg(&records[i].w);
        n[0] += w & 0xffff, n[1] += w >> 16 & 0xff, n[2] += w >> 24;
    }
#pragma unroll
    for (int i = 0; i < 3; i++) {
        u64 sum = sum_lanes(n[i]);
        if (lane == 0)
            scratch.counts[warp][2 + i] = sum;
    }
}

// Pairs of accumulators at distance 128, 64, ..., 1. By the whole block; after it scratch.all has the result.
__device__ __forceinline__ void summarise(const uint4 *records, u32 groups, SummaryScratch &scratch) {
    constexpr int WARPS = BLOCK_THREADS / 32;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const RecordSum mine = add_records(records, groups);
    scratch.sums[threadIdx.x] = make_double2(mine.sum_abs, mine.sum_squares);
    u64 nonzero = sum_lanes(mine.nonzero), positive = sum_lanes(mine.positive);
    if (lane < 5)
        scratch.counts[warp][lane] = lane == 0 ? nonzero : lane == 1 ? positive : 0;
    if (__syncthreads_or((int)mine.rare)) {
        add_rare(records, groups, scratch);
        __syncthreads();
    }
    if (warp == 0) {
        double2 x[WARPS];
#pragma unroll
        for (int i = 0; i < WARPS; i++)
            x[i] = scratch.sums[32 * i + lane];
#pragma unroll
        for (int d = WARPS / 2; d; d /= 2)
#pragma unroll
            for (int i = 0; i < d; i++)
                x[i] = make_double2(__dadd_rn(x[i].x, x[i + d].x), __dadd_rn(x[i].y, x[i + d].y));
        TileSums<REACH_FLAT, double> sums; // the same pairs of lanes as for a tile
        sums.start(x[0].x, x[0].y, lane);
        double sum = sums.rest();
        if (lane % SQUARES_LANE == 0)
            *(lane ? &scratch.all.sum_squares : &scratch.all.sum_abs) = sum;
    } else if (warp == 1 && lane < 5) {
        u64 n = 0;
#pragma unroll
        for (int i = 0; i < WARPS; i++)
            n += scratch.counts[i][lane];
        scratch.all.counts[lane] = n;
    }
    __syncthreads();
}

// Takes the range out of the totals, which are left zero. By one thread.
__device__ __forceinline__ void stats_of(const Summary &s, uint2 range, Totals *totals, u64 count,
                                         comet_codec_stats *stats) {
    stats->count = (int64_t)count;
    stats->nonzero = (int64_t)s.counts[0];
    stats->positive = (int64_t)s.counts[1];
    stats->nonfinite = (int64_t)s.counts[2];
    stats->min = range.x ? __fadd_rn(unordered((int)(~range.x ^ 0x80000000u)), 0.0f) : 0.0f; // + 0: no -0
    stats->max = range.y ? __fadd_rn(unordered((int)(range.y ^ 0x80000000u)), 0.0f) : 0.0f;
    stats->sum_abs = s.sum_abs;
    stats->sum_squares = s.sum_squares;
    totals->least = totals->most = 0;
}

// Waits for the other blocks' records. By the whole block that was last to claim.
__device__ __forceinline__ void await_records(Totals *totals, u64 groups) {
    if (threadIdx.x == 0) {
        while (load_acquired(&totals->done) < (u32)groups)
            ;
        totals->done = 0;
        totals->claimed = 0;
    }
    __syncthreads();
}

// Whether this block is the last one to come here; everything the others wrote before is visible then. For kernels that
// do not claim.
__device__ __forceinline__ bool is_last_block(Totals *totals, u32 *answer) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *answer = atomicAdd(&totals->done, 1u) == gridDim.x - 1;
        if (*answer) {
            totals->done = 0;
            __threadfence();
        }
    }
    __syncthreads();
    return *answer;
}

#endif
