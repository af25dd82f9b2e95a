/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec/backend.h"

#include <stdlib.h>
#include <string.h>

#include "support/codec/isas.h"

enum { EDGE = 64, GUARD = 0x3C };

void trip_pools_new(trip_pools *pools) {
    for (unsigned i = 0; i < TRIP_POOLS; i++) {
        pools->threads[i] = NULL;
        if (i > 0 && comet_threads_new(i + 1, NULL, &pools->threads[i]) != COMET_OK)
            abort();
    }
}

void trip_pools_free(trip_pools *pools) {
    for (unsigned i = 0; i < TRIP_POOLS; i++)
        comet_threads_free(pools->threads[i]);
}

comet_codec_exec trip_exec(comet_isa isa, comet_threads *threads) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.isa = isa;
    exec.threads = threads;
    return exec;
}

void trip_stream_free(trip_stream *s) {
    free(s->bytes);
    free(s->stored);
    s->bytes = s->stored = NULL;
}

size_t trip_output_bytes(const trip *t) {
    return (size_t)t->count * comet_dtype_size(trip_output_dtype(t));
}

/* ---- compress ---- */

/* Compresses into exactly `capacity` bytes between guards. */
static comet_status compress_into(const trip *t, const comet_codec_exec *exec, size_t capacity, trip_stream *s,
                                  int *guards_intact) {
    unsigned char *memory = malloc(capacity + 2 * EDGE);
    if (!memory)
        abort();
    memset(memory, GUARD, capacity + 2 * EDGE);
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    comet_status status = comet_codec_compress(&t->input.view, &t->params, exec, memory + EDGE, capacity, &result);
    s->result = comet_codec_record_of(&result);
    *guards_intact = 1;
    for (size_t i = 0; i < EDGE; i++)
        *guards_intact &= memory[i] == GUARD && memory[EDGE + capacity + i] == GUARD;
    if (status == COMET_OK)
        memmove(memory, memory + EDGE, s->result.bytes);
    s->bytes = memory;
    s->stored = NULL;
    s->stored_bytes = 0;
    return status;
}

static int input_is_untouched(const trip *t) {
    size_t bytes = (size_t)t->count * comet_dtype_size(t->spec.dtype);
    void *now = malloc(bytes ? bytes : 1);
    if (!now)
        abort();
    test_tensor_read(&t->input, now);
    int same = (bytes == 0 || memcmp(now, t->patterns, bytes) == 0) && test_tensor_gaps_intact(&t->input);
    free(now);
    return same;
}

static int size_is_allowed(const trip *t, size_t capacity, size_t bytes, failure *f) {
    size_t raw = trip_output_bytes(t);
    if (bytes > capacity)
        return failure_set(f, "%zu bytes, more than comet_codec_max_bytes's %zu", bytes, capacity);
    if (capacity > raw + raw / 100 + 1024)
        return failure_set(f, "bound of %zu bytes for %zu raw bytes", capacity, raw);
    return 1;
}

int trip_compress(const trip *t, const comet_codec_exec *exec, trip_stream *s, failure *f) {
    size_t capacity = 0;
    int guards_intact;
    *s = (trip_stream){.bytes = NULL};
    comet_status status = comet_codec_max_bytes(&t->input.view, &t->params, &capacity);
    if (status != COMET_OK)
        return failure_set(f, "comet_codec_max_bytes: %s", comet_status_string(status));
    status = compress_into(t, exec, capacity, s, &guards_intact);
    if (status != COMET_OK)
        return failure_set(f, "compress: %s", comet_status_string(status));
    if (!guards_intact)
        return failure_set(f, "compress wrote outside its buffer");
    if (!input_is_untouched(t))
        return failure_set(f, "compress changed its input");
    return size_is_allowed(t, capacity, s->result.bytes, f);
}

/* ---- decompress ---- */

static int decompress_into(const trip *t, const void *stream, size_t stream_bytes, const comet_codec_exec *exec, rng *r,
                           stride_kind strides, void **patterns, failure *f) {
    size_t bytes = trip_output_bytes(t);
    test_tensor output;
    test_tensor_new(&output, r, trip_output_dtype(t), &t->spec.shape, strides);
    comet_status status = comet_codec_decompress(stream, stream_bytes, trip_grid(t), exec, &output.view);
    int intact = test_tensor_gaps_intact(&output);
    *patterns = malloc(bytes ? bytes : 1);
    if (!*patterns)
        abort();
    test_tensor_read(&output, *patterns);
    test_tensor_free(&output);
    if (status != COMET_OK)
        return failure_set(f, "decompress: %s", comet_status_string(status));
    return intact ? 1 : failure_set(f, "decompress wrote between or around the values");
}

int trip_decompress(const trip *t, const trip_stream *s, const comet_codec_exec *exec, rng *r, stride_kind strides,
                    void **patterns, failure *f) {
    return decompress_into(t, s->bytes, s->result.bytes, exec, r, strides, patterns, f);
}

/* ---- backends ---- */

static int cpu_compress(const backend *b, const trip *t, rng *r, trip_stream *s, failure *f) {
    (void)r;
    return trip_compress(t, &b->exec, s, f);
}

static int cpu_decompress(const backend *b, const trip *t, rng *r, const void *stream, size_t bytes, void **patterns,
                          failure *f) {
    stride_kind strides = (stride_kind)rng_below(r, STRIDES_OUTPUTS);
    return decompress_into(t, stream, bytes, &b->exec, r, strides, patterns, f);
}

static int cpu_check_capacity(const backend *b, const trip *t, rng *r, const trip_stream *reference, failure *f) {
    (void)r;
    for (size_t less = 0; less < 2; less++) {
        trip_stream s;
        int guards_intact;
        comet_status status = compress_into(t, &b->exec, reference->result.bytes - less, &s, &guards_intact);
        int same = less || (status == COMET_OK && memcmp(s.bytes, reference->bytes, reference->result.bytes) == 0);
        trip_stream_free(&s);
        if (!guards_intact)
            return failure_set(f, "compress wrote outside a buffer of %zu - %zu bytes", reference->result.bytes, less);
        if (status != (less ? COMET_ERROR_CAPACITY : COMET_OK) || !same)
            return failure_set(f, "capacity of %zu - %zu bytes: %s", reference->result.bytes, less,
                               comet_status_string(status));
    }
    return 1;
}

static backend cpu_with(comet_isa isa, comet_threads *threads, int pool) {
    return (backend){.name = isa_name(isa),
                     .pool = pool,
                     .exec = trip_exec(isa, threads),
                     .compress = cpu_compress,
                     .decompress = cpu_decompress,
                     .check_capacity = cpu_check_capacity};
}

backend backend_cpu(comet_isa isa) {
    return cpu_with(isa, NULL, -1);
}

backend_list backend_list_cpu(const trip_pools *pools) {
    isa_list isas = isa_list_get();
    backend_list list = {.dtypes = COMET_U8 + 1};
    for (int i = 0; i < isas.count; i++)
        for (int p = 0; p < TRIP_POOLS; p++)
            list.all[list.count++] = cpu_with(isas.isa[i], pools->threads[p], p);
    return list;
}
