// SPDX-License-Identifier: Apache-2.0
// What the kernels of eb and zvc are called with, and what lies in the workspace.
#ifndef COMET_CODEC_CUDA_EB_ARGS_CUH
#define COMET_CODEC_CUDA_EB_ARGS_CUH

#include "codec/cuda/cuda_impl.h"
#include "codec/cuda/tile/quantise.cuh"

enum { GROUP_TILES = 8, GROUP_BYTES = 24, BLOCK_THREADS = 32 * GROUP_TILES };

// The most tiles a warp does one after the other: a bit for each says whether it waits for code that can do everything.
enum { MOST_ROUNDS = 64 };

// Where a bound comes from.
struct BoundSource {
    double value;                   // if `device` is NULL
    const float *device;            // the bound, read when the kernel runs
    const comet_codec_stats *stats; // relative: times the rms of these; NULL: absolute
};

// The front of the workspace: all zero between calls. The blocks of a call meet here. There is room for two: a call may
// write two streams.
struct Totals {                              // lines of their own: blocks wait for the answers
    alignas(128) unsigned long long claimed; // bytes of the payload so far and groups that asked: eb_records.cuh
    alignas(128) u32 done;                   // groups whose record is written
    alignas(128) u32 least; // 0, or what totals_least and totals_most make of a value: the greater one wins
    u32 most;
    unsigned long long tiles; // without records: exact | wide << 32
};

enum { TOTALS_ROOM = CUDA_WORKSPACE_ZEROED / 2 };
static_assert(sizeof(Totals) <= TOTALS_ROOM, "two totals fit into what is zero between calls");

struct Workspace {
    Totals totals;
    u8 rest[CUDA_WORKSPACE_ZEROED - sizeof(Totals)];
    comet_codec_stats own; // statistics of a pass for a relative bound
    u8 pad[256 - sizeof(comet_codec_stats)];
    uint4 records[1]; // of each group: eb_records.cuh
};

// Bytes of a workspace for so many groups.
static inline size_t eb_workspace_bytes(u64 groups) {
    return offsetof(Workspace, records) + (size_t)groups * sizeof(uint4);
}

struct CompressArgs {
    const void *x;
    Geometry geometry;
    BoundSource bound;
    quantiser q; // of a bound that the host knows
    u32 bound_is_known;
    u8 *base;
    u64 capacity;
    const uint64_t *start;
    comet_cuda_result *result;
    Workspace *workspace;
    uint4 *records; // in the workspace
    u64 seed;
    GridTables grid;
    u32 grid_is_whole; // it has all four tables
    ChannelMap channel_map;
    u64 count, groups;
    u64 payload_start; // where groups may lie: behind header and table, at multiples of 16 from the stream's start
    u32 flags, dtype;  // of the stream; dtype: what is decoded
    u32 with_stats;    // statistics are asked for
    cuda_header header;
};

// What an epilogue does: nothing; a scale and a shift, then perhaps a ReLU; anything.
enum EpilogueKind { EPILOGUE_NONE, EPILOGUE_NORM, EPILOGUE_ANY };

struct DecompressArgs {
    void *y;
    Geometry geometry;
    u32 quick; // tiles before this one are stored by the common code: those without padding, or all
    u64 groups;
    const u8 *base;
    u64 capacity;
    u64 table_end;  // from the stream's start
    u64 last_start; // of a stream whose table lies inside the capacity, if it has room for one
    u32 has_room;
    const uint64_t *start;
    const comet_cuda_result *result;
    int32_t *status;
    GridTables grid;
    ChannelMap channel_map;
    // epilogue
    const float *scale, *shift;
    const void *add;
    u32 relu;
    EpilogueKind epilogue;
    u32 flags, dtype;
    u32 any_dtype; // the stream's may be another than `dtype`, which is then the tensor's
    cuda_header header;
};

// The classes of the bound a source gives. Called by one warp.
__device__ __forceinline__ float bound_of(const BoundSource &source, comet_dtype dtype) {
    double bound = source.device ? (double)*source.device : source.value;
    if (!(bound >= 0.0 && bound <= 0x1.fffffffffffffp+1023)) // in device memory it may be anything
        bound = 0.0;
    if (source.stats) {
        const comet_codec_stats *s = source.stats;
        bound = s->nonzero ? __dmul_rn(bound, __dsqrt_rn(__ddiv_rn(s->sum_squares, (double)s->nonzero))) : 0.0;
        if (!(bound >= 0.0)) // and so may the statistics
            bound = 0.0;
    }
    return quantiser_bound(bound, dtype);
}

__device__ __forceinline__ void quantiser_of(float bound, comet_dtype dtype, u32 flags, quantiser *q) {
    memset(q, 0, sizeof *q);
    q->bound = bound;
    q->dtype = dtype;
    quantiser_init(q, flags);
}

#endif
