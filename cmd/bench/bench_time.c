/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed. The tensor is repeated along its first dimension until it is far larger than the caches; every page has been
 * touched; copy, compress and decompress take turns, so that whatever disturbs the machine disturbs all; medians.
 * Memory and threads exist before the clock starts.
 */
#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "cmd/bench/bench.h"
#include "cmd/common/command.h"
#include "cmd/common/measure.h"

enum { MAX_RUNS = 101 };

/* A memcpy, shared out over threads. */
typedef struct copy_job {
    const uint8_t *from;
    uint8_t *to;
    size_t bytes;
    unsigned workers;
} copy_job;

static void copy_share(void *context, unsigned worker) {
    const copy_job *job = context;
    size_t share = job->bytes / job->workers & ~(size_t)4095, first = share * worker;
    size_t bytes = worker + 1 == job->workers ? job->bytes - first : share;
    memcpy(job->to + first, job->from + first, bytes);
}

static void copy(comet_threads *threads, void *to, const void *from, size_t bytes) {
    copy_job job = {from, to, bytes, comet_threads_count(threads)};
    comet_parallel(threads, job.workers, copy_share, &job);
}

/* One coder and its times. */
typedef struct timed {
    coder *coder;
    double copy[MAX_RUNS], compress[MAX_RUNS], decompress[MAX_RUNS];
} timed;

/* What both coders work on. */
typedef struct bench_setup {
    comet_tensor input, output;
    size_t bytes;
    void *stream;
    size_t capacity;
} bench_setup;

static comet_status run_once(timed *t, const bench_setup *setup, int run) {
    const coder_kind *kind = t->coder->spec->kind;
    size_t stream_bytes = 0;
    double start = clock_seconds();
    copy(t->coder->exec.threads, setup->output.data, setup->input.data, setup->bytes);
    double copied = clock_seconds();
    comet_status status = kind->compress(t->coder, &setup->input, setup->stream, setup->capacity, &stream_bytes);
    double compressed = clock_seconds();
    if (status == COMET_OK)
        status = kind->decompress(t->coder, setup->stream, stream_bytes, &setup->output);
    double decompressed = clock_seconds();
    t->copy[run] = copied - start;
    t->compress[run] = compressed - copied;
    t->decompress[run] = decompressed - compressed;
    return status;
}

static void repeat(comet_tensor *tensor, size_t bytes, size_t times, uint8_t *to) {
    for (size_t i = 0; i < times; i++)
        memcpy(to + i * bytes, tensor->data, bytes);
    if (tensor->ndim == 0) {
        tensor->ndim = 1;
        tensor->shape[0] = 1;
        tensor->strides[0] = 1;
    }
    tensor->shape[0] *= (int64_t)times;
    tensor->data = to;
}

static comet_status set_up(const bench_plan *plan, const comet_tensor *tensor, coder *one, coder *all, bench_room *room,
                           bench_setup *setup) {
    size_t bytes = (size_t)comet_tensor_count(tensor) * comet_dtype_size(tensor->dtype), capacity = 0;
    size_t times = bytes < plan->timed_bytes ? (plan->timed_bytes + bytes - 1) / bytes : 1;
    setup->input = *tensor;
    setup->bytes = bytes * times;
    if (!buffer_reserve(&room->input, setup->bytes) || !buffer_reserve(&room->output, setup->bytes))
        return COMET_ERROR_MEMORY;
    repeat(&setup->input, bytes, times, room->input.data);
    setup->output = setup->input;
    setup->output.data = room->output.data;
    comet_status status = one->spec->kind->capacity(one, &setup->input, &setup->capacity);
    if (status == COMET_OK && all)
        status = all->spec->kind->capacity(all, &setup->input, &capacity);
    if (status == COMET_OK && !buffer_reserve(&room->stream, setup->capacity))
        return COMET_ERROR_MEMORY;
    setup->stream = room->stream.data;
    return status;
}

static bench_speed speed_of(timed *t, int runs, size_t bytes) {
    double gigabytes = 1e-9 * (double)bytes;
    return (bench_speed){gigabytes / median_of(t->copy, runs), gigabytes / median_of(t->compress, runs),
                         gigabytes / median_of(t->decompress, runs)};
}

comet_status bench_time(const bench_plan *plan, const comet_tensor *tensor, coder *one, coder *all, bench_room *room,
                        bench_result *result) {
    bench_setup setup;
    timed first = {.coder = one}, second = {.coder = all};
    if (comet_tensor_count(tensor) == 0)
        return COMET_OK;
    comet_status status = set_up(plan, tensor, one, all, room, &setup);
    int runs = plan->runs < MAX_RUNS ? plan->runs : MAX_RUNS;
    for (int run = plan->warm_up ? -1 : 0; run < runs && status == COMET_OK; run++) {
        int slot = run < 0 ? 0 : run; /* the run to warm up is written over */
        status = run_once(&first, &setup, slot);
        if (status == COMET_OK && all)
            status = run_once(&second, &setup, slot);
    }
    if (status != COMET_OK)
        return status;
    result->bytes_timed = setup.bytes;
    result->one = speed_of(&first, runs, setup.bytes);
    if (all)
        result->all = speed_of(&second, runs, setup.bytes);
    return COMET_OK;
}
