// SPDX-License-Identifier: Apache-2.0
// Statistics of a batch norm's input: from a tensor to rows, blocks and a launch.
#include "codec/cuda/norm/norm_impl.h"
#include "codec/cuda/norm/norm_launch.h"

extern "C" {
#include "base/tensor_check.h"
}

// Vectors side by side in a block where moments are left of each column: enough for whole lines of memory, few enough
// that the last block of each group has not much to read.
enum { COLUMN_VECTORS = 16 };

// Rows from which on a thread has enough of them.
enum { ENOUGH_ROWS = 64 };

// What a block does behind its rows, in rows; and threads that keep memory busy.
enum { BLOCK_OVERHEAD = 4, ENOUGH_THREADS = 704 };

static u64 divided_up(u64 a, u64 b) {
    return (a + b - 1) / b;
}

static u64 least_of(u64 a, u64 b) {
    return a < b ? a : b;
}

// A power of two that divides both.
static u32 common_power(u64 a, u32 power) {
    while (a % power)
        power /= 2;
    return power;
}

// ---- rows ----

// Parts of a map that take turns as rows: so that a block holds one, and threads have rows enough.
static u32 fold_of(u64 inner, u64 samples, u32 vector) {
    u32 best = 1;
    if (inner % vector)
        return best;
    u64 vectors = inner / vector;
    for (u32 fold = 1; fold <= 512 && vectors / fold >= 8; fold++) {
        if (vectors % fold)
            continue;
        best = fold;
        if (vectors / fold <= STATISTICS_THREADS && samples * fold >= ENOUGH_ROWS)
            break;
    }
    return vectors / best <= STATISTICS_THREADS ? best : 1;
}

// False: numbers do not fit.
static bool set_rows(NormStatisticsShape *s, const comet_tensor *t, u64 *rows) {
    const u32 vector = 16 / (u32)comet_dtype_size(t->dtype);
    const u64 count = (u64)comet_tensor_count(t), channels = (u64)comet_tensor_channels(t);
    const u64 inner = t->layout == COMET_NCHW ? (u64)comet_shape_count(t->ndim - 2, t->shape + 2) : 1;
    const u32 fold = fold_of(inner, count / (channels * inner), vector),
              common = common_power(channels * inner, vector);
    const u64 length = channels * inner / fold / common;
    s->vectors = count / vector;
    s->behind = (u32)(count % vector);
    s->channel_stride = inner;
    s->channels = (u32)channels;
    s->length = (u32)length;
    s->extra = (u32)(s->vectors % length);
    s->inner = (u32)(inner / fold);
    s->copies = vector / common;
    s->fold = fold;
    s->unit = s->inner / common_power(s->inner, vector);
    s->is_maps = s->inner >= vector;
    *rows = s->vectors / length;
    return length <= 0x7fffffffu / vector && inner / fold <= 0x7fffffffu / vector;
}

// ---- blocks ----

// How long it takes, more or less.
static u64 cost_of(const NormStatisticsShape &s, u64 rows, u64 multiprocessors) {
    const u64 waves = divided_up((u64)s.groups * s.pieces * s.chunks, multiprocessors), threads = s.width * s.down;
    return waves * (divided_up(rows, (u64)s.chunks * s.down) + BLOCK_OVERHEAD) *
           (threads < ENOUGH_THREADS ? (u64)ENOUGH_THREADS : threads);
}

// Groups of so many units; into *best if that is better.
static void try_group(NormStatisticsShape s, u64 units, u64 rows, u64 multiprocessors, NormStatisticsShape *best) {
    s.group = (u32)least_of(units * s.unit, s.length);
    s.groups = (u32)divided_up(s.length, s.group);
    s.pieces = (u32)divided_up(s.group, STATISTICS_THREADS);
    s.width = (u32)divided_up(s.group, s.pieces);
    s.down = STATISTICS_THREADS / s.width;
    const u64 most = divided_up(rows, s.down), columns = (u64)s.groups * s.pieces;
    for (u64 waves = 1; waves <= 4; waves++) {
        s.chunks = (u32)least_of(multiprocessors * waves / columns, least_of(most, 65535));
        s.chunks += s.chunks == 0;
        if (!best->chunks || cost_of(s, rows, multiprocessors) < cost_of(*best, rows, multiprocessors))
            *best = s;
    }
}

static void set_blocks(NormStatisticsShape *s, u64 rows, u64 multiprocessors) {
    NormStatisticsShape best = *s;
    const u64 units = s->length / s->unit, lines = rows * COLUMN_VECTORS < STATISTICS_THREADS && rows
                                                       ? STATISTICS_THREADS / rows
                                                       : (u64)COLUMN_VECTORS;
    const u64 most = (s->is_maps ? (u64)STATISTICS_THREADS : lines) / s->unit;
    if (!s->is_maps || most <= 1)
        try_group(*s, divided_up(units, divided_up(units, most ? most : 1)), rows, multiprocessors, &best);
    else
        for (u64 chunks = 1; chunks <= 8; chunks++) {
            u64 wanted = divided_up(units * chunks, multiprocessors);
            try_group(*s, least_of(wanted, most), rows, multiprocessors, &best);
        }
    *s = best;
}

// The rest follows.
static void complete(NormStatisticsShape *s, u32 vector) {
    const u64 rows = s->vectors / s->length, round = (u64)s->chunks * s->down;
    s->rounds = (u32)(rows / round);
    s->rest = (u32)(rows % round);
    s->maps_a_group = (u32)((u64)s->group * vector / s->inner);
    s->entries = s->is_maps ? s->pieces : s->inner;
    s->groups_a_counter = s->copies > 1 ? s->groups : (u32)divided_up(s->groups, STATISTICS_COUNTERS);
    s->part = (u32)(round % s->fold);
    s->step = round / s->fold * s->fold * s->length + (u64)s->part * s->unit;
    s->wrap = ((u64)s->length - s->unit) * s->fold;
}

static bool shape_of(const comet_tensor *t, NormStatisticsShape *s) {
    u64 rows, multiprocessors = eb_resident_blocks(1);
    *s = NormStatisticsShape{};
    if (!set_rows(s, t, &rows))
        return false;
    rows += s->extra != 0 || rows == 0;
    set_blocks(s, rows, multiprocessors);
    complete(s, 16 / (u32)comet_dtype_size(t->dtype));
    return rows / s->chunks < 0x7fffffffu;
}

// ---- the call ----

extern "C" size_t comet_norm_statistics_workspace(const comet_tensor *tensor) {
    NormStatisticsShape s;
    if (comet_tensor_count(tensor) == 0)
        return CUDA_WORKSPACE_ZEROED;
    if (!shape_of(tensor, &s))
        return 0;
    return CUDA_WORKSPACE_ZEROED + (size_t)s.chunks * s.channels * s.copies * s.entries * sizeof(float2);
}

extern "C" cudaError_t comet_norm_statistics(const norm_statistics_job *job) {
    const comet_cuda_norm_batch *b = job->batch;
    const comet_cuda_norm *n = b->norm;
    NormStatisticsArgs a = {};
    if (comet_tensor_count(job->x) == 0)
        return cudaSuccess;
    if (!shape_of(job->x, &a.shape))
        return cudaErrorInvalidValue; // was checked
    a.x = job->x->data;
    a.counters = (u32 *)job->workspace;
    a.partial = (float2 *)(job->workspace + CUDA_WORKSPACE_ZEROED);
    a.mean = b->mean;
    a.inverse_std = b->inverse_std;
    a.running_mean = b->running_mean;
    a.running_variance = b->running_variance;
    a.batches = (long long *)b->batches;
    a.momentum = b->momentum;
    a.epsilon = b->epsilon;
    a.count = (double)(comet_tensor_count(job->x) / a.shape.channels);
    if (n)
        a.prepare = NormPrepareArgs{b->mean,  b->inverse_std, n->gamma,         n->beta,
                                    n->shift, n->threshold,   (u32)b->channels, (u32)(n->relu && !n->adds)};
    return comet_norm_launch_statistics(job->x->dtype, a, job->queue);
}
