/* SPDX-License-Identifier: Apache-2.0 */
/* One coder on one tensor: its size and errors on the tensor as it is, then its speed. */
#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "cmd/bench/bench.h"
#include "cmd/common/command.h"
#include "cmd/common/measure.h"
#include "cmd/files/values.h"

/* ---- speed ---- */

/*
 * The tensor is repeated along its first dimension until it is far larger than the caches; every page has been touched;
 * copy, compress and decompress take turns, so that whatever disturbs the machine disturbs all; medians. Memory and
 * threads exist before the clock starts.
 */
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

/* Decoded values: those of a grid are fp32. */
static comet_tensor output_like(const comet_tensor *input, const coder *c) {
    comet_tensor output = *input;
    if (c->params.grid)
        output.dtype = COMET_F32;
    return output;
}

static size_t bytes_of(const comet_tensor *tensor) {
    return (size_t)comet_tensor_count(tensor) * comet_dtype_size(tensor->dtype);
}

static comet_status set_up(const bench_plan *plan, const comet_tensor *tensor, coder *one, coder *all, bench_room *room,
                           bench_setup *setup) {
    size_t bytes = bytes_of(tensor), capacity = 0;
    size_t times = bytes < plan->timed_bytes ? (plan->timed_bytes + bytes - 1) / bytes : 1;
    setup->input = *tensor;
    setup->bytes = bytes * times;
    if (!buffer_reserve(&room->input, setup->bytes))
        return COMET_ERROR_MEMORY;
    repeat(&setup->input, bytes, times, room->input.data);
    setup->output = output_like(&setup->input, one);
    if (!buffer_reserve(&room->output, bytes_of(&setup->output)))
        return COMET_ERROR_MEMORY;
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

/* Both coders are prepared; `all` may be NULL. */
static comet_status bench_time(const bench_plan *plan, const comet_tensor *tensor, coder *one, coder *all,
                               bench_room *room, bench_result *result) {
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

/* ---- size and errors ---- */

static const bench_speed not_measured = {NAN, NAN, NAN};

static void judge(const coder *c, const comet_tensor *input, const comet_tensor *output, const bench_room *room,
                  bench_result *result) {
    check_sides sides;
    check_task task = {.kind = c->spec->promise,
                       .bound = result->bound,
                       .keep_mask = c->params.keep_mask,
                       .dtype = output->dtype,
                       .count = comet_tensor_count(input),
                       .input = input->data,
                       .output = output->data};
    if (task.kind == CHECK_BOUNDED && !(task.bound > 0))
        task.kind = CHECK_EXACT;
    if (c->params.grid) {
        sides = bench_grid_sides(&room->grid);
        task.sides = &sides;
        task.input = room->grid.values.data;
    }
    check_round_trip(&task, &result->check);
}

/* Compresses, decompresses and checks. The stream's size is that of the tensor itself, not of the repeated one. */
static comet_status round_trip(coder *c, const comet_tensor *tensor, bench_room *room, bench_result *result) {
    const coder_kind *kind = c->spec->kind;
    size_t capacity;
    comet_status status = kind->prepare ? kind->prepare(c, tensor) : COMET_OK;
    if (status == COMET_OK)
        status = kind->capacity(c, tensor, &capacity);
    if (status != COMET_OK)
        return status;
    comet_tensor output = output_like(tensor, c);
    if (!buffer_reserve(&room->stream, capacity) || !buffer_reserve(&room->output, bytes_of(&output)))
        return COMET_ERROR_MEMORY;
    /* a value not written must not pass for a good one */
    output.data = memset(room->output.data, 0xff, bytes_of(&output));
    status = kind->compress(c, tensor, room->stream.data, capacity, &result->bytes_stored);
    if (status == COMET_OK)
        status = kind->decompress(c, room->stream.data, result->bytes_stored, &output);
    if (status == COMET_OK)
        judge(c, tensor, &output, room, result);
    return status;
}

/* The bound asked for, computed here and not taken from the library; and what the mode means for this tensor. */
static void set_mode_and_bound(const comet_tensor *tensor, bench_result *result) {
    values_summary summary;
    result->bound = NAN;
    result->mode = CODER_NEAREST;
    if (result->coder->promise != CHECK_BOUNDED)
        return;
    values_summarise(tensor->dtype, tensor->data, comet_tensor_count(tensor), &summary);
    result->mode = coder_mode_for(result->coder, &summary);
    result->bound = result->error_rel * (result->mode == CODER_GRID ? 1 : summary.rms);
}

/* Comet is given the relative bound, as a user would; peers know absolute ones only, and on a grid the rms is 1. */
static comet_status measure_size(const bench_plan *plan, const comet_tensor *tensor, bench_room *room,
                                 bench_result *result) {
    coder c;
    int relative = result->coder->kind == &coder_comet && result->mode != CODER_GRID;
    coder_init(&c, result->coder, relative ? result->error_rel : result->bound, relative, NULL, plan->isa);
    coder_set_mode(&c, result->mode, &room->grid.host);
    comet_status status = round_trip(&c, tensor, room, result);
    coder_free(&c);
    return status;
}

/* With the absolute bound: what a relative one costs more is a pass that finds the rms. */
static comet_status measure_speed(const bench_plan *plan, const comet_tensor *tensor, bench_room *room,
                                  bench_result *result) {
    coder one, all;
    int shared = result->coder->kind == &coder_comet && comet_threads_count(plan->threads) > 1;
    coder_init(&one, result->coder, result->bound, 0, NULL, plan->isa);
    coder_init(&all, result->coder, result->bound, 0, plan->threads, plan->isa);
    coder_set_mode(&one, result->mode, &room->grid.host);
    coder_set_mode(&all, result->mode, &room->grid.host);
    comet_status status = one.spec->kind->prepare ? one.spec->kind->prepare(&one, tensor) : COMET_OK;
    if (status == COMET_OK)
        status = bench_time(plan, tensor, &one, shared ? &all : NULL, room, result);
    coder_free(&one);
    coder_free(&all);
    return status;
}

comet_status bench_measure(const bench_plan *plan, const comet_tensor *tensor, bench_room *room, bench_result *result) {
    result->tensor = *tensor;
    result->tensor.data = NULL;
    result->bytes_raw = bytes_of(tensor);
    set_mode_and_bound(tensor, result);
    result->one = result->all = not_measured;
    if (result->mode == CODER_GRID && bench_grid_make(&room->grid, tensor) != DONE)
        return COMET_ERROR_MEMORY;
    comet_status status = measure_size(plan, tensor, room, result);
    return status == COMET_OK ? measure_speed(plan, tensor, room, result) : status;
}
