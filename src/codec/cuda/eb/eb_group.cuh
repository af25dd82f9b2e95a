// SPDX-License-Identifier: Apache-2.0
// What a block of the compressor has in shared memory, how a tile is planned, and how a group of eight is written:
// space is claimed with one atomic addition, whose latency hides behind the packing of the bytes.
#ifndef COMET_CODEC_CUDA_EB_GROUP_CUH
#define COMET_CODEC_CUDA_EB_GROUP_CUH

#include "codec/cuda/eb/eb_rare.cuh"
#include "codec/cuda/eb/eb_records.cuh"

enum { ENTRY_WIDE = 1 << 16, ENTRY_LEFT = 1 << 17 }; // beside an entry: codes of 16 bits; in its place: not done

// A warp's own 4 KiB, for one thing after the other.
enum {
    SCRATCH_WORDS = 1024, // rare tiles: their values, then their planes
    SCRATCH_PLANES = 0,   // 256 words: the exchange of codes, then their planes
    SCRATCH_HIGH = 256,   // 256 words: of 16-bit codes, the planes from 8 on
    SCRATCH_TABLE = 512,  // numbers of channels; then a mixed group's narrow tile
    SCRATCH_BALLOTS = 960 // 64 words: of the tile's columns
};

// What a block knows of its group, however its tiles are stored.
struct GroupShared {
    TileStats stats[GROUP_TILES];
    quantiser q;
    u32 entry[GROUP_TILES]; // | ENTRY_WIDE, or ENTRY_LEFT
    uint2 range_known;      // range_so_far
    u64 start;
    u64 offset;  // of the group, from the table's end
    u64 payload; // bytes claimed up to and with this group
    u8 *to;      // where the group goes; NULL: it does not fit
    u32 is_last; // no group has yet to claim
};

struct CompressShared : GroupShared {
    union {
        alignas(16) u32 scratch[GROUP_TILES][SCRATCH_WORDS];
        alignas(16) u8 out[GROUP_TILES * NARROW_SLOT]; // a common group's tiles, when all are planned
        SummaryScratch summary;                        // when all else is done
    };
    alignas(16) u32 columns[GROUP_TILES][COLUMN_WORDS];
};

// The warps that do what a group needs once. The last one seldom has bytes to copy, for which its record would have to
// wait.
enum { WARP_OF_CLAIM = 0, WARP_OF_TABLE = 1, WARP_OF_RECORD = GROUP_TILES - 1 };

// The end of the tensor, which takes longer where it has padding, comes first.
__device__ __forceinline__ u32 group_of_block() {
    return gridDim.x - 1 - blockIdx.x;
}

// ---- the quantiser ----

// Finds the one that depends on a bound in device memory. It is there after a barrier.
[[maybe_unused]] static __device__ __noinline__ void find_quantiser(const CompressArgs &args, CompressShared &shared) {
    if (threadIdx.x == 0)
        quantiser_of(bound_of(args.bound, (comet_dtype)args.dtype), (comet_dtype)args.dtype, args.flags, &shared.q);
    __syncwarp(); // or a warp may come to the barrier in two parts
}

__device__ __forceinline__ const quantiser &quantiser_in(const CompressArgs &args, const CompressShared &shared) {
    return args.bound_is_known ? args.q : shared.q;
}

// The first class that reaches so far; QUANTISER_CLASSES: none does.
__device__ __forceinline__ u32 class_of(const quantiser &q, u32 magnitude) {
    u32 c = 0;
    while (c < QUANTISER_CLASSES && (q.classes[c].reach == 0 || magnitude > q.classes[c].reach))
        c++;
    return c;
}

// ---- the range ----

// What the totals say of the range, before the tile's own is added. By the warp that will write the group's record.
__device__ __forceinline__ void note_range(const CompressArgs &args, CompressShared &shared, u32 lane, u32 warp) {
    if (warp == WARP_OF_RECORD && lane == 0)
        shared.range_known = range_so_far(&args.workspace->totals);
}

// ---- padding ----

template <int DTYPE> constexpr u32 VALUE_BYTES = DTYPE == COMET_F32 ? 4 : 2;

// Codes of padding in a lane's words become `none`; real[m] gets 0xff where there is none. How many values there are.
template <int REACH>
__device__ __forceinline__ u32 drop_padding(const Geometry &g, u32 tile, const TileStart &s, u32 lane, u32 none,
                                            u32 (&u)[8], u32 (&real)[8]) {
    u32 bits = 0;
#pragma unroll
    for (int m = 0; m < 8; m++) {
        real[m] = tile < g.inner ? ~0u : real_bytes<REACH>(g, s, lane, m);
        u[m] = choose(real[m], u[m], none);
        bits += __popc(real[m]);
    }
    return __reduce_add_sync(ALL_LANES, bits) / 8;
}

// ---- a rare tile ----

template <int REACH, int DTYPE, class Observer>
__device__ __forceinline__ void compress_rare(const CompressArgs &args, CompressShared &shared, u32 tile, u32 lane,
                                              u32 warp, TilePlan &plan, const Observer &observe) {
    const Geometry &g = args.geometry;
    const TileStart s = tile_start<REACH>(g, tile);
    const quantiser &q = quantiser_in(args, shared);
    u32 *values = shared.scratch[warp], low[8], high[8], is_real[8];
    Survey survey;
    const u32 real = rare_load<REACH, DTYPE>(args, tile, s, lane, values, observe);
    rare_survey<REACH, DTYPE>(args, values, s, lane, real, survey);
    if (args.with_stats)
        keep_stats(survey, lane, shared.stats[warp]);
    const u32 class_index = class_of(q, survey.magnitude);
    const u32 exact = rare_exact_entry<REACH>(args, values, lane, real);
    const u32 raw = __reduce_add_sync(ALL_LANES, (u32)__popc(real)) * (args.dtype == COMET_F32 ? 4 : 2);
    plan.wide = false;
    plan.entry = exact;
    if (class_index == QUANTISER_CLASSES)
        return;
    rare_quantise<REACH, DTYPE>(args, q.classes[class_index], values, tile, s, lane);
    rare_codes(values, lane, low, high, is_real);
    if (class_index == QUANTISER_WIDE) {
        plan_wide<REACH>(lane, low, high, is_real, {values + SCRATCH_PLANES, values + SCRATCH_HIGH},
                         values + SCRATCH_BALLOTS, plan);
    } else {
#pragma unroll
        for (int m = 0; m < 8; m++)
            low[m] ^= SIGN_BITS;
        __syncwarp(); // the values have been read
        plan_narrow<REACH, true>(lane, low, is_real, class_index, values + SCRATCH_PLANES, values + SCRATCH_BALLOTS,
                                 plan);
    }
    if (plan.entry != 0 && plan.entry >= raw) { // a code tile must be smaller than the raw one
        plan.wide = false;
        plan.entry = exact;
    }
}

// ---- the end of a call ----

// Statistics of all groups, from their records; without those, how many tiles were rare.
template <class Shared>
__device__ __forceinline__ void finish_stats(const CompressArgs &args, Shared &shared, comet_codec_record *r) {
    Totals *totals = &args.workspace->totals;
    if (args.with_stats) {
        const uint2 range = range_so_far(totals);
        summarise(args.records, (u32)args.groups, shared.summary);
        const Summary &summary = shared.summary.all;
        if (threadIdx.x != 0)
            return;
        r->tiles_exact = (int64_t)summary.counts[3];
        r->tiles_wide = (int64_t)summary.counts[4];
        stats_of(summary, range, totals, args.count, &r->stats);
    } else if (threadIdx.x == 0) {
        __threadfence(); // what other groups added before they claimed
        const unsigned long long tiles = __ldcg(&totals->tiles);
        r->tiles_exact = (int64_t)(u32)tiles;
        r->tiles_wide = (int64_t)(tiles >> 32);
        r->stats = comet_codec_stats{};
        r->stats.count = (int64_t)args.count;
        totals->tiles = 0;
    }
}

// Header and result; `payload`: bytes claimed by all groups. By the last block, when all records are written. Shared: a
// GroupShared with a `summary`.
template <class Shared>
static __device__ __noinline__ void finish(const CompressArgs &args, Shared &shared, u64 payload) {
    finish_stats(args, shared, &args.result->codec);
    const u64 bytes = args.payload_start + payload;
    const float bound = args.bound_is_known ? args.q.bound : shared.q.bound;
    const bool fits = shared.start % 256 == 0 && shared.start <= args.capacity && bytes <= args.capacity - shared.start;
    if (threadIdx.x == 0) {
        comet_cuda_result *r = args.result;
        r->codec.bytes = bytes;
        r->codec.bound = (double)bound;
        r->codec.tiles = (int64_t)args.geometry.tiles;
        r->start = shared.start;
        r->end = fits ? (shared.start + bytes + 255) / 256 * 256 : shared.start;
        r->status = fits ? COMET_OK : COMET_ERROR_CAPACITY;
        r->reserved = 0;
    }
    if (fits && threadIdx.x < STREAM_HEADER_BYTES / 4) {
        u32 i = threadIdx.x, word = args.header.words[i];
        word = i == CUDA_HEADER_WORD_BOUND       ? __float_as_uint(bound)
               : i == CUDA_HEADER_WORD_BYTES     ? (u32)bytes
               : i == CUDA_HEADER_WORD_BYTES + 1 ? (u32)(bytes >> 32)
                                                 : word;
        ((u32 *)(args.base + shared.start))[i] = word;
    }
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

// A tile of a mixed group. The slot holds a narrow one's bytes.
template <int REACH, int DTYPE, int LOADS>
__device__ __forceinline__ void write_special(const CompressArgs &args, CompressShared &shared, const TilePlan &plan,
                                              u32 tile, u32 lane, u32 warp, u8 *to) {
    u32 kind = plan.entry >> ENTRY_KIND_SHIFT, *scratch = shared.scratch[warp];
    if (kind == KIND_CODES && plan.wide) {
        write_wide<REACH>(plan, lane, {scratch + SCRATCH_PLANES, scratch + SCRATCH_HIGH}, scratch + SCRATCH_BALLOTS,
                          shared.columns[warp], to);
    } else if (kind == KIND_CODES) {
        copy_tile((const u8 *)(scratch + SCRATCH_TABLE), plan.entry & ENTRY_SIZE_MASK, to, lane);
    } else { // planning may have used the place of its values
        const TileStart s = tile_start<REACH>(args.geometry, tile);
        rare_load<REACH, DTYPE>(args, tile, s, lane, scratch, Unobserved<LOADS>());
        rare_write_exact<REACH>(args, scratch, s, tile < args.geometry.inner, lane, kind, to);
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

// The entries of a group's tiles, one in each of lanes 0 to 7; and what follows from them.
struct GroupPlan {
    u32 entry, bytes, room; // room: bytes, rounded up to units of 16
    u32 begin;              // of this warp's tile
};

__device__ __forceinline__ GroupPlan group_plan(const GroupShared &shared, u32 lane, u32 warp) {
    GroupPlan g;
    g.entry = shared.entry[lane & 7];
    u32 size = lane < GROUP_TILES ? g.entry & ENTRY_SIZE_MASK : 0;
    u32 both = __reduce_add_sync(ALL_LANES, size | (lane < warp ? size << 16 : 0)); // at most 33,000 each
    g.bytes = both & 0xffffu;
    g.room = (g.bytes + 15) & ~15u;
    g.begin = both >> 16;
    return g;
}

__device__ __forceinline__ u64 stream_start(const CompressArgs &args) {
    return args.start ? *args.start : 0;
}

// What the answer to a claim means, for all threads to see. By one thread.
__device__ __forceinline__ void take_claim(const CompressArgs &args, GroupShared &shared, u32 room, u64 start,
                                           unsigned long long answer) {
    const u64 before = claimed_bytes(answer), at = args.payload_start + before;
    const bool fits = start % 256 == 0 && start <= args.capacity && at + room <= args.capacity - start;
    shared.start = start;
    shared.to = fits ? args.base + start + at : NULL;
    shared.offset = at - STREAM_HEADER_BYTES - GROUP_BYTES * args.groups;
    shared.payload = before + room;
    shared.is_last = claimed_groups(answer) + 1 == args.groups;
}

// The end of a group, and whether it is the last one: then all records are written. By all warps.
__device__ __forceinline__ bool is_last_group(const CompressArgs &args, const GroupShared &shared, u32 thread) {
    Totals *totals = &args.workspace->totals;
    if (args.with_stats && thread == 32 * WARP_OF_RECORD)
        record_is_written(totals);
    if (!shared.is_last)
        return false;
    if (args.with_stats)
        await_records(totals, args.groups);
    else if (thread == 0)
        totals->claimed = 0; // all have claimed
    return true;
}

template <class Shared>
__device__ __forceinline__ void end_group(const CompressArgs &args, Shared &shared, u32 thread) {
    if (is_last_group(args, shared, thread))
        finish(args, shared, shared.payload);
}

// Claims space for a group of planned narrow tiles, packs them and writes them out. By all warps.
template <int REACH>
__device__ __forceinline__ void write_common(const CompressArgs &args, CompressShared &shared, u32 group, u32 thread,
                                             u32 warp, const TilePlan &plan, const GroupPlan &g) {
    const u32 lane = thread & 31;
    unsigned long long answer = 0;
    u64 start = 0;
    if (thread == 32 * WARP_OF_CLAIM) { // the answer is used after the columns are written
        answer = claim_room(&args.workspace->totals, g.room);
        start = stream_start(args);
    }
    if (args.with_stats && warp == WARP_OF_RECORD)
        write_record(shared.stats, 0, 0, shared.range_known, &args.workspace->totals, args.records + group, lane);
    if (plan.entry)
        write_narrow<REACH>(plan, lane, shared.columns[warp], shared.out, g.begin);
    if (thread < g.room - g.bytes)
        shared.out[g.bytes + thread] = 0;
    if (thread == 32 * WARP_OF_CLAIM)
        take_claim(args, shared, g.room, start, answer);
    __syncthreads();
    u8 *to = shared.to;
    if (to == NULL)
        return;
    if (16 * thread < g.room)
        ((uint4 *)to)[thread] = ((const uint4 *)shared.out)[thread];
    if (16 * BLOCK_THREADS < g.room)
#pragma unroll 1
        for (u32 i = thread + BLOCK_THREADS; 16 * i < g.room; i += BLOCK_THREADS)
            ((uint4 *)to)[i] = ((const uint4 *)shared.out)[i];
    if (warp == WARP_OF_TABLE)
        write_table(args.base + shared.start + STREAM_HEADER_BYTES, group, shared.offset, g.entry, lane);
}

// Says how many tiles of a mixed group are exact and wide. By one warp, before the group claims.
__device__ __forceinline__ void note_rare(const CompressArgs &args, GroupShared &shared, const GroupPlan &g, u32 group,
                                          u32 lane) {
    const u32 exact =
        __popc(__ballot_sync(ALL_LANES, lane < GROUP_TILES && (g.entry & 0xffff) >> ENTRY_KIND_SHIFT != KIND_CODES));
    const u32 wide = __popc(__ballot_sync(ALL_LANES, lane < GROUP_TILES && g.entry & ENTRY_WIDE));
    if (args.with_stats) {
        write_record(shared.stats, exact, wide, make_uint2(0, 0), &args.workspace->totals, args.records + group, lane);
    } else if (lane == 0 && (exact | wide)) {
        atomicAdd(&args.workspace->totals.tiles, exact | (unsigned long long)wide << 32);
        __threadfence();
    }
}

// The same for a group in which not all tiles have narrow codes.
template <int REACH, int DTYPE, int LOADS>
__device__ __forceinline__ void write_mixed(const CompressArgs &args, CompressShared &shared, u32 group, u32 thread,
                                            const TilePlan &plan) {
    const u32 lane = thread & 31, warp = thread >> 5;
    const GroupPlan g = group_plan(shared, lane, warp);
    unsigned long long answer = 0;
    u64 start = 0;
    if (warp == WARP_OF_RECORD) {
        note_rare(args, shared, g, group, lane);
        if (lane == 0) { // the answer is used after the columns are written
            answer = claim_room(&args.workspace->totals, g.room);
            start = stream_start(args);
        }
    }
    const bool special = plan.wide || plan.entry >> ENTRY_KIND_SHIFT != KIND_CODES;
    if (plan.entry && !special)
        write_narrow<REACH>(plan, lane, shared.columns[warp], (u8 *)(shared.scratch[warp] + SCRATCH_TABLE), 0);
    if (thread == 32 * WARP_OF_RECORD)
        take_claim(args, shared, g.room, start, answer);
    __syncthreads();
    u8 *to = shared.to;
    if (to == NULL)
        return;
    if (warp == WARP_OF_TABLE)
        write_table(args.base + shared.start + STREAM_HEADER_BYTES, group, shared.offset, g.entry, lane);
    if (plan.entry)
        write_special<REACH, DTYPE, LOADS>(args, shared, plan, group * GROUP_TILES + warp, lane, warp, to + g.begin);
    if (thread < g.room - g.bytes)
        to[g.bytes + thread] = 0;
}

#endif
