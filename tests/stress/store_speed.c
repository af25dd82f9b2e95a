/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store costs beside the codec: times of save + load + release of an entry against compressing and
 * decompressing with memory that is there already, and against a copy.
 * usage: store_speed [MiB of a tensor] [rounds] [threads]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comet/comet.h"
#include "support/rng.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(comet_status status) {
    if (status == COMET_OK)
        return;
    fprintf(stderr, "%s\n", comet_status_string(status));
    exit(1);
}

/* Smooth rows with noise and a ReLU: about what an early layer gives. */
static void fill(float *values, int64_t count) {
    rng r = rng_seed(1);
    double level = 0.0;
    for (int64_t i = 0; i < count; i++) {
        level = 0.97 * level + 0.25 * rng_gauss(&r);
        values[i] = level > 0.0 ? (float)level : 0.0f;
    }
}

typedef struct bench {
    comet_tensor in, out;
    comet_codec_params params;
    comet_codec_exec exec;
    void *stream;
    size_t capacity, bytes;
    comet_store *store;
    comet_store_item item;
} bench;

static double time_codec(bench *b, int rounds) {
    double start = now();
    for (int i = 0; i < rounds; i++) {
        comet_codec_result result = COMET_CODEC_RESULT_INIT;
        check(comet_codec_compress(&b->in, &b->params, &b->exec, b->stream, b->capacity, &result));
        check(comet_codec_decompress(b->stream, result.bytes, NULL, &b->exec, &b->out));
    }
    return (now() - start) / rounds;
}

static double time_store(bench *b, int rounds) {
    double start = now();
    for (int i = 0; i < rounds; i++) {
        comet_store_handle handle;
        check(comet_store_save(b->store, &b->in, &b->item, &handle, NULL));
        check(comet_store_load(b->store, handle, &b->out));
        check(comet_store_release(b->store, handle));
    }
    return (now() - start) / rounds;
}

static double time_copy(bench *b, int rounds) {
    double start = now();
    for (int i = 0; i < rounds; i++)
        memcpy(b->out.data, b->in.data, b->bytes);
    return (now() - start) / rounds;
}

int main(int argc, char **argv) {
    int64_t count = (int64_t)(argc > 1 ? atoi(argv[1]) : 32) << 18;
    int rounds = argc > 2 ? atoi(argv[2]) : 20;
    unsigned threads = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
    bench b = {.params = COMET_CODEC_PARAMS_INIT, .exec = COMET_CODEC_EXEC_INIT, .item = COMET_STORE_ITEM_INIT};
    b.bytes = (size_t)count * sizeof(float);
    float *in = malloc(b.bytes), *out = malloc(b.bytes);
    if (!in || !out)
        return 1;
    fill(in, count);
    memset(out, 0, b.bytes);
    check(comet_tensor_init(&b.in, in, COMET_F32, COMET_NHWC, 4, (int64_t[]){1, count / 4096, 64, 64}));
    b.out = b.in;
    b.out.data = out;
    b.params.bound_kind = COMET_BOUND_RELATIVE;
    b.params.bound = 0.3;
    if (threads > 1)
        check(comet_threads_new(threads, NULL, &b.exec.threads));
    check(comet_codec_max_bytes(&b.in, &b.params, &b.capacity));
    check(comet_codec_compress_workspace(&b.in, &b.params, &b.exec, &b.exec.workspace_bytes));
    b.exec.workspace = aligned_alloc(64, (b.exec.workspace_bytes + 63) / 64 * 64);
    b.stream = malloc(b.capacity);
    comet_store_options options = COMET_STORE_OPTIONS_INIT;
    options.threads = b.exec.threads;
    check(comet_store_new(&options, &b.store));
    for (int form = 0; form < 2; form++) {
        b.params.codec = form ? COMET_CODEC_ZVC : COMET_CODEC_EB;
        b.item.form = COMET_FORM_CODEC;
        b.item.codec = &b.params;
        time_codec(&b, 2);
        time_store(&b, 2);
        double copy = time_copy(&b, rounds), codec = time_codec(&b, rounds), store = time_store(&b, rounds);
        comet_store_account account = {.size = sizeof account};
        check(comet_store_get_account(b.store, 0, &account));
        printf("%s: %zu MiB to %.2f MiB; copy %.2f ms, codec both ways %.2f ms, store save + load + release %.2f ms\n",
               comet_codec_name(b.params.codec), b.bytes >> 20, (double)account.last.stored / 1048576.0, 1e3 * copy,
               1e3 * codec, 1e3 * store);
    }
    comet_store_free(b.store);
    comet_threads_free(b.exec.threads);
    free(b.exec.workspace);
    free(b.stream);
    free(in);
    free(out);
    return 0;
}
