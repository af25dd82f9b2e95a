/* SPDX-License-Identifier: Apache-2.0 */
/* One coder on one tensor: its size and errors on the tensor as it is, then its speed. */
#include <math.h>
#include <string.h>

#include "cmd/bench/bench.h"
#include "cmd/files/values.h"

static const bench_speed not_measured = {NAN, NAN, NAN};

/* Compresses, decompresses and checks. The stream's size is that of the tensor itself, not of the repeated one. */
static comet_status round_trip(coder *c, const comet_tensor *tensor, bench_room *room, bench_result *result) {
    const coder_kind *kind = c->spec->kind;
    size_t capacity;
    comet_status status = kind->prepare ? kind->prepare(c, tensor) : COMET_OK;
    if (status == COMET_OK)
        status = kind->capacity(c, tensor, &capacity);
    if (status != COMET_OK)
        return status;
    if (!buffer_reserve(&room->stream, capacity) || !buffer_reserve(&room->output, result->bytes_raw))
        return COMET_ERROR_MEMORY;
    comet_tensor output = *tensor;
    output.data =
        memset(room->output.data, 0xff, result->bytes_raw); /* a value not written must not pass for a good one */
    status = kind->compress(c, tensor, room->stream.data, capacity, &result->bytes_stored);
    if (status == COMET_OK)
        status = kind->decompress(c, room->stream.data, result->bytes_stored, &output);
    check_task task = {.kind = c->spec->promise,
                       .bound = result->bound,
                       .keep_mask = c->params.keep_mask,
                       .dtype = tensor->dtype,
                       .count = comet_tensor_count(tensor),
                       .input = tensor->data,
                       .output = output.data};
    if (task.kind == CHECK_BOUNDED && !(task.bound > 0))
        task.kind = CHECK_EXACT;
    if (status == COMET_OK)
        check_round_trip(&task, &result->check);
    return status;
}

/* The bound asked for, computed here and not taken from the library. */
static double absolute_bound(const comet_tensor *tensor, const bench_result *result) {
    values_summary summary;
    if (result->coder->promise != CHECK_BOUNDED)
        return NAN;
    values_summarise(tensor->dtype, tensor->data, comet_tensor_count(tensor), &summary);
    return result->error_rel * summary.rms;
}

/* Comet is given the relative bound, as a user would; peers know absolute ones only. */
static comet_status measure_size(const bench_plan *plan, const comet_tensor *tensor, bench_room *room,
                                 bench_result *result) {
    coder c;
    int relative = result->coder->kind == &coder_comet;
    coder_init(&c, result->coder, relative ? result->error_rel : result->bound, relative, NULL, plan->isa);
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
    result->bytes_raw = (size_t)comet_tensor_count(tensor) * comet_dtype_size(tensor->dtype);
    result->bound = absolute_bound(tensor, result);
    result->one = result->all = not_measured;
    comet_status status = measure_size(plan, tensor, room, result);
    return status == COMET_OK ? measure_speed(plan, tensor, room, result) : status;
}
