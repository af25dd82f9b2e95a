// SPDX-License-Identifier: Apache-2.0
// Statistics of a batch norm's input: how a tensor is shared out, and what the kernel is called with.
//
// The tensor is taken as rows of `length` vectors of 16 bytes, such that a vector's values have the same channels in
// each row: a row is a position (channels last) or a sample (maps); several of them where their values do not fill
// vectors; and a part of every map where samples are few and maps large (`fold`). A thread keeps to a column and goes
// down the rows. What is left in the end are moments: of each value's column where maps are smaller than a vector
// (channels last: a map is one value), else of the maps, or the parts of maps, that a block saw.
#ifndef COMET_CODEC_CUDA_NORM_STATISTICS_CUH
#define COMET_CODEC_CUDA_NORM_STATISTICS_CUH

#include "codec/cuda/norm/norm_args.cuh"

enum { STATISTICS_THREADS = 1024, STATISTICS_COUNTERS = 128 };

struct NormStatisticsShape {
    u64 vectors;        // whole ones
    u32 behind;         // values behind them
    u64 channel_stride; // values from the first of a channel to the first of the next
    u32 channels;
    u32 length; // vectors of a row; its values can be counted by 31 bits
    u32 extra;  // vectors of the row behind the last whole one
    u32 inner;  // values of a map, as far as it lies in a row
    u32 copies; // maps of a channel in a row

    // Rows one after the other in memory, or `fold` of them in turn in each map: where they lie.
    u32 fold, unit; // unit: vectors of a map in a row, for fold > 1
    u64 step;       // vectors from a row of a thread to its next,
    u64 wrap;       // and so many more where `part` brings it to the next sample
    u32 part;

    // Blocks: groups of whole maps, each `pieces` blocks of `width` vectors side by side; `chunks` blocks go down in
    // turn, each `down` rows at a time.
    u32 group, groups, maps_a_group; // group: vectors
    u32 pieces, width, down, chunks;
    u32 rounds, rest; // whole rows: rounds * chunks * down + rest
    u32 entries;      // moments of a map and a chunk: values (small maps) or pieces
    u32 groups_a_counter;
    u32 is_maps; // maps are not smaller than a vector
};

struct NormStatisticsArgs {
    const void *x;
    NormStatisticsShape shape;
    u32 *counters;   // blocks that are done, of so many groups each
    float2 *partial; // {mean, less the channel's first value; sum of squares around it} by chunk, map and entry
    float *mean, *inverse_std;
    float *running_mean, *running_variance; // NULL: not wanted
    long long *batches;                     // NULL: not wanted
    double momentum, epsilon, count;        // count: values of a channel
    NormPrepareArgs prepare;                // shift NULL: not wanted
};

#endif
